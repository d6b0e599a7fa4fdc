"""One whole update of GreedyAC against closed forms in NumPy, float64; see `by_hand`."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.by_hand import (
    ACTOR_STEP,
    BATCH,
    CHANGES,
    CONTINUOUS,
    COUNT,
    CRITIC_STEP,
    DIMS,
    DISCRETE,
    ESTIMATORS,
    FEATURES,
    HIGH,
    HYPERS,
    KEY,
    LOW,
    POLYAK,
    TAU,
    Case,
    Floats,
    Gaussian,
    Layers,
    Softmax,
    agree,
    agree_metrics,
    agree_step,
    assert_fresh,
    averaged,
    backward,
    drawn,
    entropy_term,
    forward,
    programs,
    random_case,
    refusal,
    sarsa,
    started,
    stepped,
    value,
)
from scipy.stats import norm, truncnorm

from greedyac.agents import GreedyACAgent, make_agent
from greedyac.agents.base import Metrics
from greedyac.agents.greedy_ac import Draws, State
from greedyac.core.errors import InputError
from greedyac.core.spaces import Spaces

SAMPLES, ELITES, ACTOR_TAU, RATE = 4, 2, 0.375, 0.2
NOISE: dict[str, tuple[int, ...]] = {"next_action": (), "proposal": (SAMPLES,), "actor": ()}
AGENT = GreedyACAgent(**HYPERS, elite_fraction=0.5, proposal_samples=SAMPLES, proposal_average_rate=RATE)


class Truncated(Gaussian):
    """The Gaussian policy cut off at the range, by hand: Z is its mass within, k the difference of zᵏ φ(z)."""

    def __init__(self, net: Layers, observation: Floats):
        super().__init__(net, observation)
        self.bounds = (LOW - self.mean) / self.std, (HIGH - self.mean) / self.std
        self.mass = norm.cdf(self.bounds[1]) - norm.cdf(self.bounds[0])

    def moment(self, power: int) -> Floats:
        low, high = (bound**power * norm.pdf(bound) for bound in self.bounds)
        return (high - low) / self.mass

    def sample(self, noise: Floats) -> Floats:
        return truncnorm.ppf(noise, *self.bounds, self.mean, self.std)

    def log_prob(self, action: Any) -> Floats:
        return truncnorm.logpdf(action, *self.bounds, self.mean, self.std).sum(-1)

    def score(self, action: Any) -> tuple[Floats, Floats]:
        of_mean, of_log_std = super().score(action)
        return of_mean + self.moment(0) / self.std * self.mean_slope, of_log_std + self.moment(1)

    def entropy(self) -> Floats:
        return truncnorm.entropy(*self.bounds, self.mean, self.std).sum(-1)

    def entropy_slope(self) -> tuple[Floats, Floats]:
        zeroth, first, second, third = map(self.moment, range(4))
        of_mean = -(zeroth + second + zeroth * first) / 2 / self.std
        return of_mean * self.mean_slope, 1 - (first + third + first**2) / 2


KINDS: dict[str, tuple[Spaces, type[Any], type[Any]]] = {  # spaces, actor, proposal
    "gaussian": (CONTINUOUS, Gaussian, Gaussian),
    "truncated-gaussian": (CONTINUOUS, Gaussian, Truncated),
    "softmax": (DISCRETE, Softmax, Softmax),
}
VARIANTS: dict[str, dict[str, Any]] = {
    **{estimator: {"entropy_estimator": estimator, "actor_entropy_scale": ACTOR_TAU} for estimator in ESTIMATORS},
    "no actor entropy": {},
    "average": {"proposal_update": "average", "actor_entropy_scale": ACTOR_TAU},
}


def elites(critic: Layers, observation: Floats, sampled: Any) -> Any:
    order = np.argsort(-value(critic, observation, sampled), 0, kind="stable")[:ELITES]
    return np.stack([sampled[order[:, state], state] for state in range(BATCH)], 1)


def case_of(seed: int, kind: str) -> Case:
    """A random case; the noise of a truncated Gaussian is uniform."""
    case = random_case(seed, KINDS[kind][0], NOISE)
    uniform = {"proposal": norm.cdf(case.noise["proposal"])} if kind == "truncated-gaussian" else {}
    return case._replace(noise=case.noise | uniform)


def telling(case: Case, kind: str) -> bool:
    """Whether the new critic's elites differ from those of the old one and of the targets, by more than rounding.

    And whether, where samples are clipped, some of the actor's are and some are not.
    """
    _, actor, proposal = KINDS[kind]
    critic = sarsa(case, actor)[0]
    sampled = proposal(case.proposal, case.observation).sample(case.noise["proposal"])
    nets = critic, case.critic, case.target, averaged(case.target, critic, POLYAK)
    chosen = [elites(net, case.observation, sampled) for net in nets]
    values = -np.sort(-value(critic, case.observation, sampled), 0)
    if actor is Gaussian:
        clipped = Gaussian(case.actor, case.observation).clipped(case.noise["actor"])
        if clipped is None or clipped.all() or not clipped.any():
            return False
    return not any((chosen[0] == other).all() for other in chosen[1:]) and (values[1] - values[2]).min() > 1e-3


@functools.cache
def updated(kind: str) -> tuple[Case, dict[str, tuple[State, Metrics]]]:
    """A telling case, and what one update of each variant made of it; one program for all is quicker to compile."""
    case = next(case for case in (case_of(seed, kind) for seed in range(1000)) if telling(case, kind))
    family: dict[str, Any] = {} if kind == "softmax" else {"proposal_policy": kind}
    agents: dict[str, GreedyACAgent] = {name: replace(AGENT, **family, **hypers) for name, hypers in VARIANTS.items()}
    learn = jax.jit(lambda inputs: {name: agents[name].learn(*inputs[name]) for name in agents})
    return case, learn({name: started(case, agent, KINDS[kind][0], Draws) for name, agent in agents.items()})


def followed(policy: Any, best: Any, entropy: tuple[Any, Any], scale: float) -> tuple[float, list[Floats]]:
    """The loss of a policy that follows the elites with an entropy bonus, and its slopes for each head."""
    pairs = zip(policy.score(best), entropy[1], strict=True)
    slopes = [-slope.sum(0) / (ELITES * BATCH) - scale * bonus / BATCH for slope, bonus in pairs]
    return -policy.log_prob(best).mean() - scale * entropy[0].mean(), slopes


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_update_with_a_proposal_by_hand(kind: str, variant: str) -> None:
    case, by_variant = updated(kind)
    state, metrics = by_variant[variant]
    _, actor_policy, proposal_policy = KINDS[kind]
    critic, gradient, critic_loss = sarsa(case, actor_policy)
    agree_step(state.critic, state.critic_opt_state, case.critic, gradient, CRITIC_STEP)
    agree(state.target, averaged(case.target, critic, POLYAK))

    observation, estimator = case.observation, VARIANTS[variant].get("entropy_estimator", "exact")
    actor, proposal = actor_policy(case.actor, observation), proposal_policy(case.proposal, observation)
    sampled = proposal.sample(case.noise["proposal"])
    best = elites(critic, observation, sampled)
    own = entropy_term(estimator, actor, actor.sample(case.noise["actor"]))
    actor_loss, slopes = followed(actor, best, own, 0.0 if variant == "no actor entropy" else ACTOR_TAU)
    actor_gradient = backward(case.actor, observation, slopes)
    agree_step(state.actor, state.actor_opt_state, case.actor, actor_gradient, ACTOR_STEP)

    if variant == "average":
        agree(state.proposal, averaged(case.proposal, stepped(case.actor, actor_gradient, ACTOR_STEP), RATE))
        assert not jax.tree.leaves(state.proposal_opt_state.mu)  # type: ignore[attr-defined]
        agree_metrics(metrics, critic_loss=critic_loss, actor_loss=actor_loss)
    else:
        proposal_loss, slopes = followed(proposal, best, entropy_term(estimator, proposal, sampled[0]), TAU)
        gradient = backward(case.proposal, observation, slopes)
        agree_step(state.proposal, state.proposal_opt_state, case.proposal, gradient, ACTOR_STEP)
        agree_metrics(metrics, critic_loss=critic_loss, actor_loss=actor_loss, proposal_loss=proposal_loss)
    if kind != "softmax":
        assert getattr(state.actor, "family", None) == "gaussian"
        assert getattr(state.proposal, "family", None) == kind


def test_one_update_with_few_discrete_actions_follows_the_greedy_action_and_ties_share() -> None:
    # Heads 1 and 2 value every state 0.5 and are never trained. The update lowers head 0, which was best everywhere:
    # to 0.5 − gap in the first state, to at least 0.5 + gap in the others.
    case = random_case(0, DISCRETE, {"next_action": ()})
    critic = [np.array([[0.8, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.full(3, 5.0), np.zeros((3, COUNT)), np.full(COUNT, 0.5)]
    critic[2][:, 0] = [0.3, 0.1, 0.1]
    observation, reward = np.array([[-1.0, 0.1], [1.0, -0.2], [0.9, 0.3]]), np.array([-20.0, -30.0, -25.0])
    case = case._replace(critic=critic, observation=observation, action=np.zeros(BATCH, np.int64), reward=reward)
    lowered = np.sort(forward(sarsa(case, Softmax)[0], observation)[0][:, 0])
    critic[3][0] += 0.5 - lowered[:2].mean()
    assert (forward(critic, observation)[0].argmax(-1) == 0).all()
    assert lowered[1] - lowered[0] > 0.1

    agents = [replace(AGENT, elite_fraction=0.1, actor_entropy_scale=scale) for scale in (0.0, ACTOR_TAU)]
    learn = jax.jit(lambda *inputs: [agent.learn(*inputs) for agent in agents])
    moved, gradient, critic_loss = sarsa(case, Softmax)
    shares = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    actor = Softmax(case.actor, observation)
    for agent, (state, metrics) in zip(agents, learn(*started(case, agents[0], DISCRETE, Draws)), strict=True):
        agree_step(state.critic, state.critic_opt_state, critic, gradient, CRITIC_STEP)
        agree(state.target, averaged(case.target, moved, POLYAK))
        slope = actor.probabilities - shares - agent.actor_entropy_scale * actor.entropy_slope()[0]
        agree_step(
            state.actor,
            state.actor_opt_state,
            case.actor,
            backward(case.actor, observation, [slope / BATCH]),
            ACTOR_STEP,
        )
        actor_loss = -(shares * actor.log_probs).sum(-1) - agent.actor_entropy_scale * actor.entropy()
        agree_metrics(metrics, critic_loss=critic_loss, actor_loss=actor_loss.mean())
        assert state.proposal is None


OTHER = CHANGES | {"proposal_samples": 6, "entropy_estimator": "score", "proposal_policy": "gaussian"}
OTHER |= {"proposal_average_rate": 0.125, "actor_entropy_scale": 0.125}
FEW = {"entropy_scale", "entropy_estimator", "proposal_samples", "proposal_update", "proposal_average_rate"}
ENTROPY = {"proposal_average_rate"}
AVERAGE = {"entropy_scale"}


@pytest.mark.parametrize(
    ("spaces", "elite_fraction", "update", "idle"),
    [
        (CONTINUOUS, 0.1, "entropy", {"discrete_critic"} | ENTROPY),
        (CONTINUOUS, 0.1, "average", {"discrete_critic"} | AVERAGE),
        (DISCRETE, 0.33, "entropy", {"proposal_policy"} | FEW),
        (DISCRETE, 0.34, "entropy", {"proposal_policy"} | ENTROPY),
        (DISCRETE, 0.34, "average", {"proposal_policy"} | AVERAGE),
    ],
)
def test_exactly_the_hyperparameters_without_effect_leave_the_program_as_it_is(
    spaces: Spaces, elite_fraction: float, update: str, idle: set[str]
) -> None:
    agent = replace(AGENT, elite_fraction=elite_fraction, proposal_update=update, actor_entropy_scale=0.25)
    changes = OTHER | {"proposal_update": "entropy" if update == "average" else "average"}
    made = programs({"": agent} | {name: replace(agent, **{name: other}) for name, other in changes.items()}, spaces)
    assert agent.without_effect(spaces) == idle == {name for name in changes if made[name] == made[""]}


def test_an_average_proposal_and_an_actor_without_entropy_need_no_estimator() -> None:
    agents = [replace(AGENT, proposal_update="average", entropy_estimator=estimator) for estimator in ESTIMATORS]
    inputs = started(case_of(0, "truncated-gaussian"), agents[0], CONTINUOUS, Draws)
    first, *others = jax.jit(lambda *inputs: [agent.learn(*inputs) for agent in agents])(*inputs)
    for other in others:  # the program has 0 × the entropy, so its text says nothing
        jax.tree.map(np.testing.assert_array_equal, first, other)
    assert agents[0].without_effect(CONTINUOUS) == {"discrete_critic", "entropy_scale", "entropy_estimator"}


def test_a_batch_larger_than_the_replay_is_refused_and_an_equal_one_is_not() -> None:
    make_agent("greedy-ac", {"batch_size": 8, "replay_capacity": 8})
    with pytest.raises(InputError, match=r"^batch_size = 9 is not allowed with replay_capacity = 8; allowed: .* ≤ 8$"):
        make_agent("greedy-ac", {"batch_size": 9, "replay_capacity": 8})


def test_bad_options_are_refused_with_what_is_allowed_and_the_nearest_match() -> None:
    cases: dict[str, dict[str, object]] = {
        "unknown proposal_policy 'truncated' (did you mean 'truncated-gaussian'?); "
        "allowed: gaussian, truncated-gaussian": {"proposal_policy": "truncated"},
        "unknown proposal_update 'averaged' (did you mean 'average'?); allowed: entropy, average": {
            "proposal_update": "averaged"
        },
        "proposal_average_rate = 0 is not allowed; allowed: > 0 and ≤ 1": {"proposal_average_rate": 0},
        "proposal_average_rate = 1.5 is not allowed; allowed: > 0 and ≤ 1": {"proposal_average_rate": 1.5},
        "actor_entropy_scale = -1 is not allowed; allowed: ≥ 0": {"actor_entropy_scale": -1},
    }
    for message, hypers in cases.items():
        assert refusal("greedy-ac", **hypers) == message
    message = refusal("greedy-ac", entropy_scal=1)
    assert message.startswith("unknown hyperparameter of greedy-ac 'entropy_scal' (did you mean 'entropy_scale'?); ")
    assert "actor_entropy_scale" in message


def test_the_target_starts_as_the_critic_the_proposal_as_the_actor_and_moments_at_zero() -> None:
    state = jax.jit(AGENT.init, static_argnums=1)(KEY, CONTINUOUS)
    jax.tree.map(np.testing.assert_array_equal, state.target, state.critic)
    jax.tree.map(np.testing.assert_array_equal, *map(jax.tree.leaves, (state.proposal, state.actor)))
    assert not any(
        np.any(leaf)
        for leaf in jax.tree.leaves((state.critic_opt_state, state.actor_opt_state, state.proposal_opt_state))
    )
    assert not np.allclose(state.critic.first.weight[:FEATURES], state.actor.mlp.layers[0].weight)


def test_act_samples_the_actor_within_the_range_or_takes_its_mode() -> None:
    case = random_case(0, CONTINUOUS, NOISE)
    state = started(case, AGENT, CONTINUOUS, Draws)[0]
    act = jax.jit(jax.vmap(AGENT.act, (None, None, 0, None)), static_argnums=3)
    keys, observation = jax.random.split(KEY, 500), jnp.asarray(case.observation[0], np.float32)
    policy = Gaussian(case.actor, case.observation[:1])
    np.testing.assert_allclose(act(state, observation, keys, True), np.tile(policy.mean, (500, 1)), rtol=1e-5)
    actions = np.asarray(act(state, observation, keys, False), float)
    inside = ((actions > LOW) & (actions < HIGH)).all(-1)
    assert ((actions >= LOW) & (actions <= HIGH)).all()
    assert 0 < inside.sum() < 500


def test_an_update_draws_fresh_noise_per_state_and_sample() -> None:
    agent = GreedyACAgent(proposal_samples=50, batch_size=20, hidden=(3,))
    one, other = drawn(agent, CONTINUOUS)
    shapes = {"next_action": (20, DIMS), "proposal": (50, 20, DIMS), "actor": (20, DIMS)}
    assert {name: noise.shape for name, noise in one.items()} == shapes
    assert_fresh([draws[name] for draws in (one, other) for name in ("next_action", "actor")], norm.cdf)
    assert_fresh([one["proposal"], other["proposal"]], "uniform")
