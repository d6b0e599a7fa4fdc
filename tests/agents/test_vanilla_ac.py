"""One whole update of VanillaAC against closed forms in NumPy, float64; see `by_hand`."""

import functools
from dataclasses import replace
from typing import Any

import jax
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
    HYPERS,
    KEY,
    POLYAK,
    TAU,
    Case,
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
    value,
)
from scipy.stats import gumbel_r, norm

from greedyac.agents import VanillaACAgent
from greedyac.agents.base import Metrics
from greedyac.agents.vanilla_ac import Draws, State
from greedyac.core.spaces import Spaces

BASELINE = 3
AGENT = VanillaACAgent(**HYPERS, baseline_samples=BASELINE)


def telling(case: Case) -> bool:
    """Whether of the first samples some are clipped and some are not, and so of the last ones."""
    clipped = Gaussian(case.actor, case.observation).clipped(case.noise["samples"])
    return clipped is not None and all(0 < each.sum() < each.size for each in (clipped[0], clipped[-1]))


@functools.cache
def updated() -> tuple[Case, dict[str, tuple[State, Metrics]]]:
    """A telling case, and what one update with each estimator made of it; one program for all is quicker to compile."""
    shapes: dict[str, tuple[int, ...]] = {"next_action": (), "samples": (BASELINE + 2,)}
    case = next(case for case in (random_case(seed, CONTINUOUS, shapes) for seed in range(1000)) if telling(case))
    agents = {estimator: replace(AGENT, entropy_estimator=estimator) for estimator in ESTIMATORS}
    learn = jax.jit(lambda *inputs: {estimator: agents[estimator].learn(*inputs) for estimator in ESTIMATORS})
    return case, learn(*started(case, AGENT, CONTINUOUS, Draws))


def agree_critic(case: Case, policy: type[Any], state: State) -> tuple[Layers, float]:
    """The critic's step and the target's are those by hand; the new critic and the loss."""
    critic, gradient, critic_loss = sarsa(case, policy)
    agree_step(state.critic, state.critic_opt_state, case.critic, gradient, CRITIC_STEP)
    agree(state.target, averaged(case.target, critic, POLYAK))
    return critic, critic_loss


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_update_with_continuous_actions_by_hand(estimator: str) -> None:
    case, by_estimator = updated()
    state, metrics = by_estimator[estimator]
    critic, critic_loss = agree_critic(case, Gaussian, state)

    actor = Gaussian(case.actor, case.observation)
    sampled = actor.sample(case.noise["samples"])
    first, *baseline = value(critic, case.observation, sampled[:-1])
    assert len(baseline) == BASELINE
    advantage = first - np.mean(baseline, 0)
    entropy, entropy_slopes = entropy_term(estimator, actor, sampled[-1])
    pairs = zip(actor.score(sampled[0]), entropy_slopes, strict=True)
    slopes = [-(advantage[:, None] * slope + TAU * bonus) / BATCH for slope, bonus in pairs]
    gradient = backward(case.actor, case.observation, slopes)
    agree_step(state.actor, state.actor_opt_state, case.actor, gradient, ACTOR_STEP)
    actor_loss = -(actor.log_prob(sampled[0]) * advantage + TAU * entropy).mean()
    agree_metrics(metrics, critic_loss=critic_loss, actor_loss=actor_loss)


def test_one_update_with_discrete_actions_by_hand() -> None:
    case = random_case(0, DISCRETE, {"next_action": ()})
    state, metrics = jax.jit(AGENT.learn)(*started(case, AGENT, DISCRETE, Draws))
    critic, critic_loss = agree_critic(case, Softmax, state)

    actor, (values,) = Softmax(case.actor, case.observation), forward(critic, case.observation)
    slope = actor.expectation_slope(values)[0] + TAU * actor.entropy_slope()[0]
    gradient = backward(case.actor, case.observation, [-slope / BATCH])
    agree_step(state.actor, state.actor_opt_state, case.actor, gradient, ACTOR_STEP)
    actor_loss = -(actor.expectation(values) + TAU * actor.entropy()).mean()
    agree_metrics(metrics, critic_loss=critic_loss, actor_loss=actor_loss)


@pytest.mark.parametrize(
    ("spaces", "idle"),
    [(CONTINUOUS, {"discrete_critic"}), (DISCRETE, {"baseline_samples", "entropy_estimator"})],
)
def test_exactly_the_hyperparameters_without_effect_leave_the_program_as_it_is(spaces: Spaces, idle: set[str]) -> None:
    changes = CHANGES | {"baseline_samples": 4, "entropy_estimator": "exact"}
    made = programs({"": AGENT} | {name: replace(AGENT, **{name: other}) for name, other in changes.items()}, spaces)
    assert AGENT.without_effect(spaces) == idle == {name for name in changes if made[name] == made[""]}


def test_the_target_starts_as_the_critic_and_moments_at_zero() -> None:
    state = jax.jit(AGENT.init, static_argnums=1)(KEY, DISCRETE)
    jax.tree.map(np.testing.assert_array_equal, state.target, state.critic)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((state.critic_opt_state, state.actor_opt_state)))
    assert not np.allclose(state.critic.mlp.layers[0].weight, state.actor.mlp.layers[0].weight)


def test_an_update_draws_fresh_noise_per_state_and_sample() -> None:
    agent = replace(AGENT, baseline_samples=48, batch_size=20)
    one, other = drawn(agent, CONTINUOUS)
    assert {name: x.shape for name, x in one.items()} == {"next_action": (20, DIMS), "samples": (50, 20, DIMS)}
    assert_fresh([*one.values(), *other.values()], norm.cdf)
    one, other = drawn(agent, DISCRETE)
    assert (one["next_action"].shape, one["samples"]) == ((20, COUNT), None)
    assert_fresh([one["next_action"], other["next_action"]], gumbel_r.cdf)


def test_bad_options_are_refused_with_what_is_allowed_and_the_nearest_match() -> None:
    for wrong in (0, 2.5):
        message = f"baseline_samples = {wrong} is not allowed; allowed: whole number ≥ 1"
        assert refusal("vanilla-ac", baseline_samples=wrong) == message
    message = "unknown entropy_estimator 'scores' (did you mean 'score'?); allowed: score, exact, released"
    assert refusal("vanilla-ac", entropy_estimator="scores") == message
    message = refusal("vanilla-ac", entropy_scal=1)
    assert message.startswith("unknown hyperparameter of vanilla-ac 'entropy_scal' (did you mean 'entropy_scale'?); ")
    assert "baseline_samples" in message
