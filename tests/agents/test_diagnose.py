"""What agents tell of themselves after a step, against numbers computed another way."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, truncnorm

from greedyac.agents import AGENTS, make_agent
from greedyac.envs import make_env
from greedyac.nn.distributions import SquashedGaussian

OBSERVATION = jnp.array([0.3, -0.7])
KEY = jax.random.key(3)


@pytest.mark.parametrize("mean", [0.0, 0.5, -2.0, 20.0])
@pytest.mark.parametrize("deviation", [0.01, 0.3, 0.99, 1.0, 3.0, 30.0, 1000.0])
def test_squashed_entropy_is_the_integral(mean: float, deviation: float) -> None:
    low, high = -2.0, 3.0

    def surprise(z: float) -> float:
        size = abs(mean + deviation * z)
        log_slope = math.log((high - low) / 2) + math.log(4) - 2 * size - 2 * math.log1p(math.exp(-2 * size))
        return float(-norm.pdf(z) * (norm.logpdf(z) - math.log(deviation) - log_slope))

    kink = -mean / deviation
    expected = sum(quad(surprise, *ends, limit=500)[0] for ends in ((-9, kink), (kink, 9)) if abs(kink) < 9)
    expected = expected or quad(surprise, -9, 9, limit=500)[0]
    policy = SquashedGaussian(*(jnp.array([[x]]) for x in (mean, math.log(deviation), low, high)))
    assert policy.entropy().tolist() == pytest.approx([expected], abs=2e-3, rel=1e-5)


def test_squashed_entropy_is_summed_over_dimensions() -> None:
    rows = [[0.1, -0.4], [-1.0, 0.2], [-1.0, -2.0], [1.0, 2.0]]
    both = SquashedGaussian(*(jnp.array([row]) for row in rows)).entropy()
    single = [SquashedGaussian(*(jnp.array([[row[dim]]]) for row in rows)).entropy() for dim in (0, 1)]
    assert float(both[0]) == pytest.approx(sum(float(entropy[0]) for entropy in single), rel=1e-6)


def told(agent: str, env: str, **hypers: Any) -> tuple[Any, dict[str, float]]:
    learner, spaces = make_agent(agent, hypers), make_env(env).spaces
    state = learner.init(KEY, spaces)
    numbers = learner.diagnose(state, OBSERVATION)
    assert all(number.shape == () for number in numbers.values())
    return state, {name: float(number) for name, number in numbers.items()}


@pytest.mark.parametrize("agent", ["greedy-ac", "sac", "vanilla-ac"])
def test_with_continuous_actions(agent: str) -> None:
    state, numbers = told(agent, "Pendulum-CA")
    policy = state.actor(OBSERVATION)
    value = state.critic(OBSERVATION[None], policy.mode()[None])
    assert numbers["q"] == pytest.approx(float(value.min()), rel=1e-5)
    assert numbers["actor_deviation"] == pytest.approx(float(jnp.exp(policy.log_std[0])), rel=1e-5)
    noise = np.random.default_rng(0).normal(size=(40_000, 1, 1)).astype(np.float32)
    if agent == "sac":
        sampled = -float(state.actor(OBSERVATION[None]).sample_and_log_prob(noise)[1].mean())
        assert numbers["actor_entropy"] == pytest.approx(sampled, abs=0.05)
    else:
        closed = 0.5 * math.log(2 * math.pi * math.e) + math.log(numbers["actor_deviation"])
        assert numbers["actor_entropy"] == pytest.approx(closed, rel=1e-5)
    proposal = {"proposal_entropy", "proposal_deviation"} if agent == "greedy-ac" else set()
    assert set(numbers) == {"q", "actor_entropy", "actor_deviation"} | proposal


@pytest.mark.parametrize("agent", ["greedy-ac", "sac", "vanilla-ac"])
@pytest.mark.parametrize("critic", ["heads", "index"])
def test_with_discrete_actions(agent: str, critic: str) -> None:
    state, numbers = told(agent, "Pendulum-DA", discrete_critic=critic)
    logits = np.asarray(state.actor(OBSERVATION).logits, np.float64)
    likely = np.exp(logits) / np.exp(logits).sum()
    values = np.asarray(state.critic.values(OBSERVATION))  # [actions], or of two critics [2, actions]
    assert numbers["q"] == pytest.approx(values[..., likely.argmax()].min(), rel=1e-5)
    assert numbers["actor_entropy"] == pytest.approx(-(likely * np.log(likely)).sum(), rel=1e-5)
    assert set(numbers) == {"q", "actor_entropy"}


def test_what_only_some_settings_have() -> None:
    state, numbers = told("sac", "Pendulum-CA", automatic_entropy=True)
    assert numbers["entropy_scale"] == 1.0
    learner = make_agent("sac", {"automatic_entropy": True})
    tuned = learner.diagnose(state._replace(log_entropy_scale=jnp.float32(-2.0)), OBSERVATION)["entropy_scale"]
    assert float(tuned) == pytest.approx(math.exp(-2.0), rel=1e-5)
    state, truncated = told("greedy-ac", "Pendulum-CA")
    policy = state.proposal(OBSERVATION)
    mean, deviation = float(policy.mean[0]), truncated["proposal_deviation"]
    within = truncnorm((-2 - mean) / deviation, (2 - mean) / deviation, mean, deviation)
    assert truncated["proposal_entropy"] == pytest.approx(within.entropy(), abs=1e-5)
    _, clipped = told("greedy-ac", "Pendulum-CA", proposal_policy="gaussian")
    assert clipped["proposal_entropy"] == clipped["actor_entropy"]
    _, many = told("greedy-ac", "Pendulum-DA", elite_fraction=0.9)  # three actions are too many for the greedy one
    assert many["proposal_entropy"] == many["actor_entropy"]
    assert told("random", "Pendulum-CA")[1] == {}
    assert set(AGENTS) == {"greedy-ac", "sac", "vanilla-ac", "random"}  # a new one needs a line here
