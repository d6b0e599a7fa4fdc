"""One whole update of SAC against closed forms in NumPy, float64 (see `by_hand`), and its automatic entropy scale."""

import functools
import math
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
    CONTINUES,
    CONTINUOUS,
    COUNT,
    CRITIC_STEP,
    DIMS,
    DISCRETE,
    FEATURES,
    HALF,
    HYPERS,
    KEY,
    MIDDLE,
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
    both,
    drawn,
    each,
    fitted,
    forward,
    programs,
    random_case,
    refusal,
    started,
    value,
)
from jax import Array
from scipy.stats import gumbel_r, norm

from greedyac.agents import SACAgent
from greedyac.agents.base import Batch, Metrics
from greedyac.agents.sac import Draws, State
from greedyac.core.spaces import Box, Discrete, Spaces

AUTOMATIC_TAU, SCALE_STEP = 0.4, 0.05
AGENT = SACAgent(**HYPERS, entropy_step_size=SCALE_STEP)


class Squashed:
    """The squashed Gaussian policy by hand; slopes are with respect to the heads."""

    def __init__(self, net: Layers, observation: Floats):
        self.mean, self.log_std = forward(net, observation)
        self.std = np.exp(self.log_std)

    def sample_and_log_prob(self, noise: Floats) -> tuple[Floats, Floats]:
        tanh = np.tanh(self.mean + self.std * noise)
        density = norm.logpdf(noise) - self.log_std - np.log(HALF * (1 - tanh**2) + 1e-6)
        return MIDDLE + HALF * tanh, density.sum(-1)

    def slopes(self, noise: Floats, value_slope: Floats, tau: float) -> list[Floats]:
        """Of Q(a) − τ log π(a), where a is a function of the heads and Q has the slope `[batch, dims]` in it."""
        tanh = np.tanh(self.mean + self.std * noise)
        stretch = HALF * (1 - tanh**2)
        of_mean = value_slope * stretch - tau * 2 * tanh * stretch / (stretch + 1e-6)
        return [of_mean, of_mean * self.std * noise + tau]


class Clipped(Gaussian):
    """The Gaussian policy by hand, whose actions are a function of the heads only where they are not clipped."""

    def sample_and_log_prob(self, noise: Floats) -> tuple[Floats, Floats]:
        action = self.sample(noise)
        return action, self.log_prob(action)

    def slopes(self, noise: Floats, value_slope: Floats, tau: float) -> list[Floats]:
        """As of `Squashed`. Within the range the likelihood of a depends on the deviation only."""
        clipped, score = self.clipped(noise), self.score(self.sample(noise))
        of_mean = np.where(clipped, -tau * score[0], value_slope * self.mean_slope)
        return [of_mean, np.where(clipped, -tau * score[1], value_slope * self.std * noise + tau)]


class Drawn(Softmax):
    """The softmax policy by hand."""

    def sample_and_log_prob(self, noise: Floats) -> tuple[Any, Floats]:
        action = self.sample(noise)
        return action, self.log_prob(action)


KINDS: dict[str, tuple[Spaces, type[Any], dict[str, Any]]] = {
    "squashed": (CONTINUOUS, Squashed, {}),
    "gaussian": (CONTINUOUS, Clipped, {"policy": "gaussian"}),
    "discrete": (DISCRETE, Drawn, {}),
    "released": (DISCRETE, Drawn, {"soft_target": "released"}),
}


def soft_values(case: Case, kind: str) -> tuple[Floats, Floats]:
    """Both targets' values of the next actions `[2, batch]`, and the log-likelihoods that are taken off."""
    policy = KINDS[kind][1](case.actor, case.next_observation)
    action, log_prob = policy.sample_and_log_prob(case.noise["next_action"])
    if kind == "released":
        log_prob = policy.log_probs[0][action]
    return np.stack([value(target, case.next_observation, action) for target in each(case.target)]), log_prob


def fit_both(case: Case, kind: str, tau: float) -> tuple[list[Layers], Layers, float]:
    """Both critics after their step, the gradients that they followed, and the sum of the losses before."""
    values, log_prob = soft_values(case, kind)
    goal = values.min(0) - tau * log_prob
    critics, gradients, losses = zip(*(fitted(case, critic, goal) for critic in each(case.critic)), strict=True)
    return list(critics), both(gradients), sum(losses)


def actors_values(case: Case, kind: str, critics: list[Layers]) -> Floats:
    """Both critics' values of the actor's own actions, `[2, batch]`, or of all discrete ones, `[2, batch, actions]`."""
    if KINDS[kind][0] is DISCRETE:
        return np.stack([forward(critic, case.observation)[0] for critic in critics])
    action = KINDS[kind][1](case.actor, case.observation).sample_and_log_prob(case.noise["action"])[0]
    return np.stack([value(critic, case.observation, action) for critic in critics])


def telling(case: Case, kind: str, tau: float) -> bool:
    """Whether each minimum comes from one critic here and from the other there, by more than rounding.

    By the new critics another one than by the old or by the targets. Some Gaussian samples are clipped, some are not.
    The released slip makes a difference.
    """
    if kind == "gaussian":
        pairs = (case.observation, "action"), (case.next_observation, "next_action")
        clipped = [Gaussian(case.actor, observation).clipped(case.noise[name]) for observation, name in pairs]
        if not all(where is not None and 0 < where.sum() < where.size for where in clipped):
            return False
    nexts, log_prob = soft_values(case, kind)
    if kind == "released" and np.abs(log_prob - soft_values(case, "discrete")[1])[CONTINUES > 0].max() < 0.1:
        return False
    critics = fit_both(case, kind, tau)[0]
    nets = critics, each(case.critic), each(case.target), each(averaged(case.target, both(critics), POLYAK))
    mine, *others = (actors_values(case, kind, net) for net in nets)
    return (
        all(len({*values.argmin(0).flat}) == 2 for values in (nexts[:, CONTINUES > 0], mine))
        and not any((mine.argmin(0) == other.argmin(0)).all() for other in others)
        and min(np.abs(values[0] - values[1]).min() for values in (nexts, mine)) > 1e-3
    )


@functools.cache
def updated(kind: str) -> tuple[Case, dict[bool, tuple[State, Metrics]]]:
    """A telling case, and what one update made of it, with an automatic entropy scale or not."""
    spaces, _, hypers = KINDS[kind]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("next_action", "action")[: 1 if spaces is DISCRETE else 2], ())
    cases = (random_case(seed, spaces, shapes, twin=True) for seed in range(10_000))
    case = next(case for case in cases if all(telling(case, kind, tau) for tau in (TAU, AUTOMATIC_TAU)))
    agents: dict[bool, SACAgent] = {on: replace(AGENT, automatic_entropy=on, **hypers) for on in (False, True)}
    inputs = {on: started(case, agent, spaces, Draws) for on, agent in agents.items()}
    state, *rest = inputs[True]
    inputs[True] = (state._replace(log_entropy_scale=np.float32(math.log(AUTOMATIC_TAU))), *rest)
    return case, jax.jit(lambda inputs: {on: agent.learn(*inputs[on]) for on, agent in agents.items()})(inputs)


@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_update_by_hand(kind: str, automatic: bool) -> None:
    case, results = updated(kind)
    state, metrics = results[automatic]
    tau = AUTOMATIC_TAU if automatic else TAU
    critics, gradient, critic_loss = fit_both(case, kind, tau)
    agree_step(state.critic, state.critic_opt_state, case.critic, gradient, CRITIC_STEP)
    agree(state.target, averaged(case.target, both(critics), POLYAK))

    actor, values = KINDS[kind][1](case.actor, case.observation), actors_values(case, kind, critics)
    if KINDS[kind][0] is DISCRETE:
        least = values.min(0)
        slopes = [actor.expectation_slope(least)[0] + tau * actor.entropy_slope()[0]]
        actors_value, entropy, target = actor.expectation(least), actor.entropy(), 0.5 * math.log(COUNT)
    else:
        of_action = np.stack([(critic[0][FEATURES:] @ critic[2])[:, 0] for critic in critics])
        slopes = actor.slopes(case.noise["action"], of_action[values.argmin(0)], tau)
        entropy, target = -actor.sample_and_log_prob(case.noise["action"])[1], -float(DIMS)
        actors_value = values.min(0)
    gradient = backward(case.actor, case.observation, [-slope / BATCH for slope in slopes])
    agree_step(state.actor, state.actor_opt_state, case.actor, gradient, ACTOR_STEP)

    losses = {"critic_loss": critic_loss, "actor_loss": -(actors_value + tau * entropy).mean()}
    if automatic:
        excess = [np.array(entropy.mean() - target)]
        agree_step(state.log_entropy_scale, state.entropy_opt_state, [np.log(tau)], excess, SCALE_STEP)
    else:
        assert state.log_entropy_scale is None
    agree_metrics(metrics, **losses, **({"entropy_scale": tau} if automatic else {}))


def test_the_released_soft_target_is_another_one() -> None:
    case = updated("released")[0]
    own, released = (fit_both(case, kind, TAU)[1] for kind in ("discrete", "released"))
    assert max(np.abs(one - other).max() for one, other in zip(own, released, strict=True)) > 0.01


OTHER = CHANGES | {"entropy_step_size": 0.125, "policy": "gaussian", "soft_target": "released"}


@pytest.mark.parametrize(("automatic", "scale"), [(False, "entropy_step_size"), (True, "entropy_scale")])
@pytest.mark.parametrize(("spaces", "idle"), [(CONTINUOUS, {"discrete_critic", "soft_target"}), (DISCRETE, {"policy"})])
def test_exactly_the_hyperparameters_without_effect_leave_the_program_as_it_is(
    spaces: Spaces, idle: set[str], automatic: bool, scale: str
) -> None:
    agent = replace(AGENT, automatic_entropy=automatic)
    changes = OTHER | {"automatic_entropy": not automatic}
    made = programs({"": agent} | {name: replace(agent, **{name: other}) for name, other in changes.items()}, spaces)
    assert agent.without_effect(spaces) == idle | {scale} == {name for name in changes if made[name] == made[""]}


def test_critics_start_apart_targets_as_the_critics_the_scale_at_1_and_moments_at_zero() -> None:
    agent = replace(AGENT, automatic_entropy=True)
    state = jax.jit(agent.init, static_argnums=1)(KEY, CONTINUOUS)
    jax.tree.map(np.testing.assert_array_equal, state.target, state.critic)
    assert not any(
        np.any(leaf)
        for leaf in jax.tree.leaves((state.critic_opt_state, state.actor_opt_state, state.entropy_opt_state))
    )
    first = state.critic.both.first.weight
    assert not np.allclose(first[0], first[1])
    assert not np.allclose(first[:, :FEATURES], state.actor.mlp.layers[0].weight)
    assert state.log_entropy_scale == 0
    assert state.actor.family == "squashed"


def test_an_update_draws_fresh_noise_per_state() -> None:
    agent = replace(AGENT, batch_size=500)
    one, other = drawn(agent, CONTINUOUS)
    assert {name: x.shape for name, x in one.items()} == {"next_action": (500, DIMS), "action": (500, DIMS)}
    assert_fresh([*one.values(), *other.values()], norm.cdf)
    one, other = drawn(agent, DISCRETE)
    assert (one["next_action"].shape, one["action"]) == ((500, COUNT), None)
    assert_fresh([one["next_action"], other["next_action"]], gumbel_r.cdf)


def test_bad_options_are_refused_with_what_is_allowed_and_the_nearest_match() -> None:
    cases: dict[str, dict[str, object]] = {
        "unknown policy 'squash' (did you mean 'squashed'?); allowed: squashed, gaussian": {"policy": "squash"},
        "unknown soft_target 'release' (did you mean 'released'?); allowed: own, released": {"soft_target": "release"},
        "automatic_entropy = 'yes' is not allowed; allowed: true | false": {"automatic_entropy": "yes"},
        "entropy_step_size = 0 is not allowed; allowed: > 0": {"entropy_step_size": 0},
    }
    for message, hypers in cases.items():
        assert refusal("sac", **hypers) == message
    message = refusal("sac", entropy_scal=1)
    assert message.startswith("unknown hyperparameter of sac 'entropy_scal' (did you mean 'entropy_scale'?); ")
    assert "entropy_step_size" in message


BANDIT = SACAgent(1e-2, actor_step_size_scale=0.3, automatic_entropy=True, entropy_step_size=1e-2, hidden=(8,))
BANDIT_STEPS = 3000


def bandit_entropies(key: Array, spaces: Spaces, bias: Array) -> tuple[Array, Array]:
    """The policy's entropy before and after training in the only state of a bandit.

    The actor's heads start at zero but for the bias of the last. Rewards are −4 |a − 0.5|², or 0, 1, 2, … by action.
    """
    continuous, batch_size = isinstance(spaces.action, Box), BANDIT.batch_size
    observation = jnp.ones((batch_size, 1))

    def step(_: Any, carry: tuple[State, Array]) -> tuple[State, Array]:
        state, key = carry
        key, act, update = jax.random.split(key, 3)
        action = state.actor(observation).sample(state.actor.noise(act, (batch_size,)))
        reward = -4 * ((action - 0.5) ** 2).sum(-1) if continuous else action.astype(jnp.float32)
        batch = Batch(observation, action, reward, observation, jnp.zeros(batch_size))
        return BANDIT.update(state, batch, update)[0], key

    def entropy(state: State) -> Array:
        noise = state.actor.noise(jax.random.fold_in(key, 1), (4000, 1))
        return -state.actor(observation[:1]).sample_and_log_prob(noise)[1].mean()

    fresh = BANDIT.init(key, spaces)
    leaves, structure = jax.tree.flatten(fresh.actor)
    heads = [*map(jnp.zeros_like, leaves[2:-1]), bias]
    fresh = fresh._replace(actor=jax.tree.unflatten(structure, leaves[:2] + heads))
    return entropy(fresh), entropy(jax.lax.fori_loop(0, BANDIT_STEPS, step, (fresh, key))[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "biases", "target", "margin"),  # medians of eight seeds, sixteen times: within 0.042; within 0.009
    [
        (Box((-1.0, -1.0), (1.0, 1.0)), ([0.0, 0.0], [-3.0, -3.0]), -2.0, 0.15),
        (Discrete(4), ([0.0, 0.0, 0.0, 0.0], [5.0, 0.0, 0.0, 0.0]), 0.5 * math.log(4), 0.05),
    ],
)
def test_an_automatic_entropy_scale_brings_the_entropy_to_its_target_from_above_and_below(
    action: Box | Discrete, biases: tuple[list[float], list[float]], target: float, margin: float
) -> None:
    spaces = Spaces(Box((1.0,), (1.0,)), action)
    train = jax.jit(jax.vmap(lambda key, bias: bandit_entropies(key, spaces, bias)))
    entropies = train(jax.random.split(KEY, 16), jnp.repeat(jnp.asarray(biases), 8, 0))
    before, after = (np.asarray(entropy).reshape(2, 8) - target for entropy in entropies)
    assert (before[0] > 0.4).all()
    assert (before[1] < -0.4).all()
    assert np.abs(np.median(after, 1)).max() < margin, after
