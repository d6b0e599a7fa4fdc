"""The compiled loop: what a run's numbers depend on, and what they must not depend on."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.probes import Quits

from greedyac.agents import Agent, GreedyACAgent, make_agent
from greedyac.envs import Env, make_env
from greedyac.training.lanes import LaneBatch, Outcome

STEPS = 300
SMALL: dict[str, Any] = {"hidden": (16, 16), "batch_size": 8, "proposal_samples": 6, "replay_capacity": 200}


def train(agents: Sequence[Agent], env: Env, seeds: Sequence[int], block: int = STEPS) -> list[Outcome]:
    lanes = LaneBatch(agents, env, seeds, STEPS)
    while lanes.time < STEPS:
        lanes.advance(block)
    return lanes.outcomes()


def bits(outcome: Outcome) -> tuple[Any, ...]:
    return (outcome.summary, outcome.diverged_at, *(leaf.tobytes() for leaf in jax.tree.leaves(outcome.agent.actor)))


def setting(index: int, **hypers: Any) -> Agent:
    """Settings that differ in swept hyperparameters, one for each index."""
    return make_agent("greedy-ac", {**SMALL, "critic_step_size": 1e-3 * (index + 1), **hypers})


@pytest.mark.parametrize("name", ["Pendulum-CA", pytest.param("MountainCar-DA", marks=pytest.mark.slow)])
def test_a_run_has_the_same_bits_alone_beside_any_others_in_any_lane_and_in_any_blocks(name: str) -> None:
    env = make_env(name, {"time_limit": 40})
    [alone] = train([setting(0)], env, [7])
    for neighbours, block in [(1, STEPS), (2, 1), (7, 77)]:
        for lane in {0, neighbours // 2, neighbours}:
            order = [*range(1, lane + 1), 0, *range(lane + 1, neighbours + 1)]
            outcomes = train([setting(index) for index in order], env, [7 + index for index in order], block)
            assert bits(outcomes[lane]) == bits(alone), f"{neighbours} neighbours, lane {lane}, blocks of {block}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Pendulum-CA", "Pendulum-DA"])
def test_the_default_network_has_the_same_bits_at_every_width(name: str) -> None:
    env, agent = make_env(name), make_agent("greedy-ac")
    [alone] = train([agent], env, [3])
    for width in (2, 3, 4, 8):
        assert bits(train([agent] * width, env, range(3, 3 + width))[0]) == bits(alone), f"{width} lanes"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "env", "options"),
    [
        ("greedy-ac", "Pendulum-CA", {"proposal_policy": "gaussian", "entropy_estimator": "score"}),
        ("greedy-ac", "Pendulum-CA", {"proposal_update": "average"}),
        ("sac", "Pendulum-CA", {}),
        ("sac", "Pendulum-CA", {"policy": "gaussian", "automatic_entropy": True}),
        ("sac", "MountainCar-DA", {"soft_target": "released", "discrete_critic": "index"}),
        ("vanilla-ac", "Pendulum-CA", {}),
        ("vanilla-ac", "MountainCar-DA", {}),
    ],
)
def test_the_other_agents_runs_depend_on_setting_and_seed_alone(agent: str, env: str, options: dict[str, Any]) -> None:
    world = make_env(env, {"time_limit": 40})
    usual, other, wild = (make_agent(agent, {**options, "critic_step_size": size}) for size in (1e-3, 1e-2, 1e30))
    [alone] = train([usual], world, [7])
    lanes = LaneBatch([usual, wild, other, usual, usual], world, [7, 7, 7, 8, 7], STEPS)
    first_weights = jax.device_get(lanes.state.agent.actor)
    while lanes.time < STEPS:
        lanes.advance(77)
    first, wildly, tuned, second_seed, again = lanes.outcomes()
    assert bits(first) == bits(again) == bits(alone)
    assert bits(tuned) != bits(first) != bits(second_seed)
    assert wildly.diverged_at is not None
    assert first.diverged_at is tuned.diverged_at is second_seed.diverged_at is None
    for weights in jax.tree.leaves(first_weights):
        np.testing.assert_array_equal(weights[0], weights[2])  # one seed, two settings: the same start
        assert weights.ndim < 3 or not np.array_equal(weights[0], weights[3])


def test_a_seed_repeats_and_two_seeds_differ() -> None:
    env = make_env("Pendulum-CA", {"time_limit": 40})
    first, again, other = train([setting(0)] * 3, env, [0, 0, 1])
    assert bits(first) == bits(again)
    assert first.summary.curve != other.summary.curve
    assert all(
        not np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(first.agent.actor), jax.tree.leaves(other.agent.actor), strict=True)
    )


def test_two_seeds_start_from_different_weights_and_one_seed_from_the_same_under_two_settings() -> None:
    lanes = LaneBatch([setting(0), setting(0), setting(5)], make_env("Pendulum-CA"), [0, 1, 0], STEPS)
    for leaf in jax.tree.leaves(lanes.state.agent.critic) + jax.tree.leaves(lanes.state.agent.actor):
        if leaf.ndim == 3:  # a weight matrix; biases start at zero
            assert not np.array_equal(leaf[0], leaf[1])
            np.testing.assert_array_equal(leaf[0], leaf[2])


def test_one_seed_has_the_same_start_states_under_two_settings_whatever_their_episodes_lengths() -> None:
    lanes = LaneBatch([setting(0), setting(90)], Quits(time_limit=9), [4, 4], STEPS)
    starts: list[dict[int, float]] = [{}, {}]
    times: list[dict[int, int]] = [{}, {}]
    while lanes.time < STEPS:
        for lane in range(2):
            if lanes.state.curve.start[lane] == lanes.time:
                episode = int(lanes.state.curve.episodes[lane])
                starts[lane][episode] = float(lanes.state.observation[lane, 0])
                times[lane][episode] = lanes.time
        lanes.advance(1)
    shared = starts[0].keys() & starts[1].keys()
    assert len(shared) > 20
    assert len({starts[0][episode] for episode in shared}) == len(shared)
    assert all(starts[0][episode] == starts[1][episode] for episode in shared)
    assert times[0] != times[1]


def test_a_lane_driven_to_nan_is_recorded_and_leaves_its_neighbours_bits_alone() -> None:
    env = make_env("Pendulum-CA", {"time_limit": 40})
    healthy = train([setting(0)] * 3, env, [0, 1, 2])
    beside = train([setting(0), setting(0, critic_step_size=1e30), setting(0)], env, [0, 1, 2])
    assert bits(beside[0]) == bits(healthy[0])
    assert bits(beside[2]) == bits(healthy[2])
    assert beside[1].diverged_at is not None
    assert SMALL["batch_size"] <= beside[1].diverged_at < 40  # the first update is at step 7, its effect in the next
    assert beside[1].summary.average_return is beside[1].summary.final_return is beside[1].summary.best_return is None
    assert beside[1].summary.curve == [None] * 100  # it diverged before its first episode ended
    assert all(outcome.diverged_at is None for outcome in healthy)


def test_a_late_divergence_keeps_the_curve_before_it() -> None:
    @dataclasses.dataclass(frozen=True)
    class PaysNanLate(Quits):
        def begin(self, key: jax.Array) -> jax.Array:
            return jax.random.randint(key, (), 0, 40).astype(jnp.float32)

        def push(self, physics: jax.Array, force: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            return physics, jnp.where(physics == 0, jnp.nan, 1.0), force > 0

    [outcome] = train([make_agent("random")], PaysNanLate(time_limit=9), [1])
    at = outcome.diverged_at
    assert at is not None
    assert at > 10
    assert outcome.summary.best_return is None
    filled = [index for index, value in enumerate(outcome.summary.curve) if value is not None]
    assert filled
    assert max(filled) <= at * 100 // STEPS


def test_a_critic_frozen_by_infinite_moments_has_diverged_though_its_loss_is_finite() -> None:
    """Gradients of 2e19 overflow when Adam squares them, and it then divides by infinity for ever."""
    frozen = setting(0, critic_step_size=1e4, actor_step_size_scale=1e-7)
    outcomes = train([setting(0), frozen], make_env("MountainCar-CA", {"time_limit": 40}), [0, 1])
    assert [outcome.diverged_at is None for outcome in outcomes] == [True, False]


def test_a_grid_over_swept_fields_compiles_once() -> None:
    @dataclasses.dataclass(frozen=True)
    class Counting(GreedyACAgent):
        traced: ClassVar[list[int]] = []

        def update(self, state: Any, batch: Any, key: Any) -> Any:
            self.traced.append(1)
            return super().update(state, batch, key)

    env = make_env("Pendulum-CA")
    small = {name: value for name, value in SMALL.items() if name != "batch_size"}
    for scale in (0.1, 1.0):
        grids: list[dict[str, Any]] = [{"entropy_scale": scale}, {"discount": 1 - scale / 10, "polyak": scale / 10}]
        for values in grids:
            agents = [Counting(**small, critic_step_size=10**-n, **values) for n in range(1, 5)]
            lanes = LaneBatch(agents, env, [0, 0, 1, 2], STEPS)
            lanes.advance(7)
            lanes.advance(100)
    assert len(Counting.traced) == 1


def test_learning_starts_when_the_replay_holds_a_batch() -> None:
    lanes = LaneBatch([setting(0)] * 2, make_env("Pendulum-CA"), [0, 1], STEPS)
    first = np.asarray(lanes.state.agent.critic.last.weight)
    lanes.advance(SMALL["batch_size"] - 1)
    np.testing.assert_array_equal(lanes.state.agent.critic.last.weight, first)
    lanes.advance(1)
    assert not np.array_equal(lanes.state.agent.critic.last.weight, first)


def test_lanes_of_different_programs_are_refused() -> None:
    with pytest.raises(ValueError, match="static"):
        LaneBatch([setting(0), setting(0, batch_size=4)], make_env("Pendulum-CA"), [0, 1], STEPS)
