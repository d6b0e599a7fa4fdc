"""Every agent on tiny environments: the critic finds the values that are known by hand, the actor the best action."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from helpers.probes import BY_ACTION, BY_BOTH, BY_OBSERVATION, CONSTANT, TWO_STEPS, Endless, FiveProbes, ManyActions

from greedyac.agents import make_agent
from greedyac.envs import Control
from greedyac.training.lanes import LaneBatch

SEEDS = range(4)
DISCOUNT = 0.5
PROBES = [
    (CONSTANT, 0), (BY_OBSERVATION, 1), (BY_OBSERVATION, -1), (TWO_STEPS, -1), (TWO_STEPS, 1),
    (BY_ACTION, 0), (BY_BOTH, 1), (BY_BOTH, -1),
]  # fmt: skip
HYPERS: dict[str, Any] = {
    "hidden": (64,), "discount": DISCOUNT, "critic_step_size": 3e-3, "actor_step_size_scale": 0.3, "polyak": 0.1,
    "replay_capacity": 20_000,
}  # fmt: skip
ENTROPY_SCALE = {"greedy-ac": 0.1, "sac": 1e-3, "vanilla-ac": 1e-3}  # SAC's values include the entropy


class Case(NamedTuple):
    """An agent, the options that make it what is tested, and where it learns."""

    agent: str
    options: dict[str, Any]
    env: Control
    steps: int = 6000


CASES = {
    f"{agent}-{kind}": Case(
        agent,
        {} if kind == "continuous" else {"discrete_critic": kind},
        FiveProbes(continuous=kind == "continuous"),
    )
    for agent in ENTROPY_SCALE
    for kind in ("continuous", "heads", "index")
} | {
    "greedy-ac-clipped": Case("greedy-ac", {"proposal_policy": "gaussian", "entropy_estimator": "score"}, FiveProbes()),
    "greedy-ac-average": Case("greedy-ac", {"proposal_update": "average"}, FiveProbes()),
    "greedy-ac-25-actions": Case("greedy-ac", {"proposal_samples": 10}, ManyActions(), 12_000),
    "sac-gaussian": Case("sac", {"policy": "gaussian"}, FiveProbes()),
}


SLOW = {"sac-index", "vanilla-ac-index", "greedy-ac-average", "greedy-ac-25-actions", "sac-gaussian"}
MARKED = [pytest.param(case, marks=pytest.mark.slow) if case in SLOW else case for case in CASES]


@pytest.fixture(scope="module", params=MARKED)
def trained(request: pytest.FixtureRequest) -> tuple[Case, LaneBatch]:
    case = CASES[request.param]
    agent = make_agent(case.agent, {**HYPERS, "entropy_scale": ENTROPY_SCALE[case.agent], **case.options})
    lanes = LaneBatch([agent] * len(SEEDS), case.env, SEEDS, steps=case.steps)
    lanes.advance(lanes.steps)
    return case, lanes


def chosen(lanes: LaneBatch, env: Control, observation: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The force of each lane's most likely action for an observation, and its value; `[lanes, 2]` by two critics."""
    state, given = lanes.state.agent, np.asarray(observation, np.float32)
    actions = jax.vmap(lambda actor: actor(given).mode())(state.actor)
    values = jax.vmap(lambda critic, action: critic(given, action))(state.critic, actions)
    return np.asarray(jax.vmap(env._force)(actions)), np.asarray(values)


def value_by_hand(kind: int, signal: int, force: Any, continuous: bool) -> Any:
    by_action = 1 - (force - 0.5) ** 2 if continuous else -force
    second = 1.0 if signal > 0 else DISCOUNT
    return [1 + 0 * force, signal + 0 * force, second + 0 * force, by_action, signal * force][kind]


@pytest.mark.parametrize(("kind", "signal"), PROBES)
def test_the_value_of_the_policys_action_is_the_one_known_by_hand(
    trained: tuple[Case, LaneBatch], kind: int, signal: int
) -> None:
    case, lanes = trained
    force, values = chosen(lanes, case.env, [*np.eye(5)[kind], signal])
    expected = value_by_hand(kind, signal, force, case.env.continuous)
    for value in values.reshape(len(SEEDS), -1).T:  # of each critic
        # the largest error over eight seeds, all probes and cases was 0.07; of 25 actions it is settled from step 7,000
        np.testing.assert_allclose(value, expected, atol=0.12)


@pytest.mark.parametrize(("signal", "kind"), [(0, BY_ACTION), (1, BY_BOTH), (-1, BY_BOTH)])
def test_the_actor_finds_the_best_action(trained: tuple[Case, LaneBatch], kind: int, signal: int) -> None:
    case, lanes = trained
    force, _ = chosen(lanes, case.env, [*np.eye(5)[kind], signal])
    best = {(BY_ACTION, 0): 0.5 if case.env.continuous else -1, (BY_BOTH, 1): 1, (BY_BOTH, -1): -1}[kind, signal]
    # measured over eight seeds: up to 0.17, with three actions 0
    np.testing.assert_allclose(force, best, atol=0.3 if case.env.continuous else 0)


@pytest.mark.parametrize("continuous", [True, False])
@pytest.mark.parametrize("agent", ENTROPY_SCALE)
def test_a_time_limit_does_not_lower_the_value(agent: str, continuous: bool) -> None:
    """Reward 1 for ever is worth 1/(1 − γ) = 5. Were the cut after 5 steps a termination, it would be worth less."""
    learner = make_agent(agent, {**HYPERS, "discount": 0.8, "entropy_scale": 0.0})
    env = Endless(continuous=continuous, time_limit=5)
    lanes = LaneBatch([learner] * 2, env, range(2), steps=4000)
    lanes.advance(lanes.steps)
    _, values = chosen(lanes, env, [1.0])
    np.testing.assert_allclose(values, 5.0, atol=0.1)
