"""Why an agent acts as it does at one observation, as numbers: values, policies, and the actions that CCEM compares.

Nothing is drawn here. Everything is for one state, without a batch axis.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greedyac import ccem
from greedyac.agents import Agent, GreedyACAgent
from greedyac.agents.random import Uniform
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.core.xla import configured
from greedyac.nn.critics import TwinCritic
from greedyac.nn.distributions import ClippedGaussian, SquashedGaussian, TruncatedGaussian

POINTS = 201
"""Actions from the lowest to the highest at which each dimension is shown."""


class Marginals(NamedTuple):
    """A policy in each action dimension by itself.

    `density: [dims, points]` is the mean over the cell around each point of the grid: a peak between two points is not
    missed, and the cells hold exactly the probability that is not `at_bounds: [dims, 2]`, on the lowest and on the
    highest action themselves, where a clipped Gaussian has some.
    """

    density: Array
    at_bounds: Array


class Samples(NamedTuple):
    """What one CCEM update would do here: `actions: [samples, ...]` of the proposal, their values, the best ⌈ρN⌉."""

    actions: Array
    values: Array
    elite: Array


class Continuous(NamedTuple):
    """Of each dimension: `grid: [dims, points]` of actions and, where the agent has a critic, their `values`.

    The other dimensions are held at `mode: [dims]`, the actor's most likely action; a uniform actor has none.
    """

    grid: Array
    values: Array | None
    mode: Array | None
    actor: Marginals
    proposal: Marginals | None
    samples: Samples | None


class Categorical(NamedTuple):
    """Of each discrete action, `[actions]`: its value, whether that is the highest, and its probabilities."""

    values: Array | None
    greedy: Array | None
    mode: Array | None
    actor: Array
    proposal: Array | None
    samples: Samples | None


Explanation = Continuous | Categorical
"""Fields of what the agent does not have are None."""


@configured
@partial(jax.jit, static_argnums=(0, 2))
def explain(agent: Agent, state: Any, spaces: Spaces, observation: Array, key: Array) -> Explanation:
    """What the agent in this state thinks at `observation: [features]`, as its networks see it; compiled once per
    agent and spaces.

    Of the state only `actor`, `critic` and `proposal` are read, the last two if there are any. The proposal's samples
    are a function of `key`: a film with one key for all frames shows them move, not flicker.
    """
    actor = state.actor if isinstance(state.actor, Uniform) else state.actor(observation)
    critic = getattr(state, "critic", None)
    proposal = getattr(state, "proposal", None)
    samples = None
    if isinstance(agent, GreedyACAgent) and critic is not None and proposal is not None:
        samples = _samples(agent, critic, proposal, observation, key)
    proposed = None if proposal is None else proposal(observation)
    if isinstance(spaces.action, Discrete):
        return _categorical(actor, critic, proposed, samples, observation)
    return _continuous(spaces.action, actor, critic, proposed, samples, observation)


def _samples(agent: GreedyACAgent, critic: Any, proposal: Any, observation: Array, key: Array) -> Samples:
    """N actions of the proposal and, by the rule of an update, which of them are elite."""
    actions = proposal(observation).sample(proposal.noise(key, (agent.proposal_samples,)))
    values = _value(critic, observation, actions)
    numbers = jnp.arange(agent.proposal_samples)
    count = ccem.elite_count(agent.elite_fraction, agent.proposal_samples)
    elite = ccem.elites(numbers[:, None], values[:, None], count)  # [count, 1]
    return Samples(actions, values, (numbers == elite).any(0))


def _value(critic: Any, observation: Array, action: Array) -> Array:
    """Q(s, a) of `action: [n, ...]` → `[n]`; of a twin critic the smaller."""
    value = critic(observation, action)
    return value.min(0) if isinstance(critic, TwinCritic) else value


def _categorical(actor: Any, critic: Any, proposal: Any, samples: Samples | None, observation: Array) -> Categorical:
    values = greedy = None
    if critic is not None:
        values = critic.values(observation)
        values = values.min(0) if isinstance(critic, TwinCritic) else values
        greedy = ccem.greedy_shares(values) > 0
    if isinstance(actor, Uniform):
        assert isinstance(actor.action, Discrete)
        count = actor.action.count
        return Categorical(values, greedy, None, jnp.full(count, 1 / count), None, samples)
    proposed = None if proposal is None else jnp.exp(proposal.log_probs())
    return Categorical(values, greedy, actor.mode(), jnp.exp(actor.log_probs()), proposed, samples)


def _continuous(
    box: Box, actor: Any, critic: Any, proposal: Any, samples: Samples | None, observation: Array
) -> Continuous:
    low, high = jnp.asarray(box.low), jnp.asarray(box.high)
    grid = jnp.linspace(low, high, POINTS, axis=-1)
    if isinstance(actor, Uniform):
        density = jnp.broadcast_to(1 / (high - low)[:, None], grid.shape)
        return Continuous(grid, None, None, Marginals(density, jnp.zeros((box.size, 2))), None, samples)
    mode = actor.mode()
    values = None
    if critic is not None:
        varied = jnp.eye(box.size, dtype=bool)[:, None]  # [dims, 1, dims]
        actions = jnp.where(varied, grid[..., None], mode)
        values = _value(critic, observation, actions.reshape(-1, box.size)).reshape(grid.shape)
    return Continuous(
        grid, values, mode, _marginals(actor, grid), None if proposal is None else _marginals(proposal, grid), samples
    )


def _marginals(policy: ClippedGaussian | SquashedGaussian | TruncatedGaussian, grid: Array) -> Marginals:
    """Of each dimension of a Gaussian policy, on its `grid: [dims, points]`."""
    between = (grid[:, 1:] + grid[:, :-1]) / 2
    edges = jnp.concatenate([grid[:, :1], between, grid[:, -1:]], -1)
    low, high, mean = policy.low[:, None], policy.high[:, None], policy.mean[:, None]
    if isinstance(policy, SquashedGaussian):
        place = jnp.clip((2 * edges - low - high) / (high - low), -1, 1)
        unsquashed = jnp.arctanh(place).at[:, 0].set(-jnp.inf).at[:, -1].set(jnp.inf)
    else:
        unsquashed = edges
    z = (unsquashed - mean) * jnp.exp(-policy.log_std[:, None])
    cumulative = jax.scipy.special.erf(z / math.sqrt(2.0)) / 2  # from the mean: nothing cancels near it
    inside = cumulative[:, -1:] - cumulative[:, :1]
    density = jnp.diff(cumulative) / jnp.diff(edges)
    if isinstance(policy, ClippedGaussian):
        at_bounds = jnp.stack([0.5 + cumulative[:, 0], 0.5 - cumulative[:, -1]], -1)
        return Marginals(density, at_bounds)
    return Marginals(density / inside, jnp.zeros((len(grid), 2)))
