"""Uniform random actions: a baseline, the smallest worked example of an agent, and quick to compile."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from greedyac.agents.base import Batch, Metrics
from greedyac.core.spaces import Box, Discrete, Spaces


def uniform_action(action: Box | Discrete, key: Array) -> Array:
    """Any of these actions, all equally likely."""
    if isinstance(action, Discrete):
        return jax.random.randint(key, (), 0, action.count)
    return jax.random.uniform(key, (action.size,), jnp.float32, jnp.asarray(action.low), jnp.asarray(action.high))


class Uniform(eqx.Module):
    """Every action alike. It has no weights, only the space."""

    action: Box | Discrete = eqx.field(static=True)


class State(NamedTuple):
    """Nothing is learned."""

    actor: Uniform


@dataclass(frozen=True)
class RandomAgent:
    """Uniform random actions; learns nothing."""

    name: ClassVar[str] = "random"
    numerics: ClassVar[int] = 1
    actions: ClassVar[tuple[type[Box] | type[Discrete], ...]] = (Box, Discrete)
    batch_size: ClassVar[int] = 0
    replay_capacity: ClassVar[int] = 0
    warm_up_steps: ClassVar[int] = 0
    updates_per_step: ClassVar[int] = 0
    normalise_observations: ClassVar[bool] = False
    normalise_rewards: ClassVar[bool] = False
    discount: ClassVar[float] = 1.0

    def check(self) -> None:
        """There is nothing to check."""

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """There is nothing to sweep."""
        return frozenset()

    def init(self, key: Array, spaces: Spaces) -> State:
        """Remember the actions."""
        return State(Uniform(spaces.action))

    def act(self, state: State, observation: Array, key: Array, greedy: bool) -> Array:
        """Any action; `greedy` makes no difference, as all are equally likely."""
        return uniform_action(state.actor.action, key)

    def diagnose(self, state: State, observation: Array) -> Metrics:
        """There is nothing to tell."""
        return {}

    def update(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Never called: a batch size of 0 means that there are no updates."""
        raise NotImplementedError("the random agent does not learn")
