"""The contract of a compiled environment. One subclass, in one file, says how its world starts and moves.

A time limit truncates an episode and never terminates it: the agent bootstraps from the true next observation,
and the next episode starts anew.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from greedyac.core.fields import hashed_values, hypers_of, static, values_of
from greedyac.core.spaces import Spaces


class EnvState(NamedTuple):
    """Where an environment is: its physics and the number of steps since its start."""

    physics: Any
    time: Array


class Transition(NamedTuple):
    """What one step gave: the next observation, before any reset, and why the episode may have ended."""

    observation: Array
    reward: Array
    terminated: Array
    truncated: Array


@dataclass(frozen=True)
class Env(ABC):
    """An environment as pure functions of a state, an action and a key."""

    numerics: ClassVar[int] = 1
    """Raised by hand when a change of the code changes the numbers: it enters every run's id."""

    time_limit: int = static(
        1000, help="steps after which an episode is cut without terminating", at_least=1, at_most=2**31 - 1
    )

    @property
    @abstractmethod
    def spaces(self) -> Spaces:
        """What an agent sees and does here."""

    @property
    def packages(self) -> frozenset[str]:
        """The packages whose versions its numbers depend on, beside ours."""
        return frozenset()

    @property
    def options_changed(self) -> dict[str, Any]:
        """Those options that differ from their defaults."""
        known = hypers_of(type(self))
        return {name: value for name, value in values_of(self).items() if value != known[name].default}

    @property
    def options_hashed(self) -> dict[str, Any]:
        """The options that enter a run's id."""
        return hashed_values(self)

    @abstractmethod
    def begin(self, key: Array) -> Any:
        """The physics at the start of an episode."""

    @abstractmethod
    def observe(self, physics: Any) -> Array:
        """The observation `[features]` that belongs to the physics."""

    @abstractmethod
    def move(self, physics: Any, action: Array, key: Array) -> tuple[Any, Array, Array]:
        """One step: the new physics, the reward and whether it terminated. `key` is for worlds that move at random."""

    def reset(self, key: Array) -> tuple[EnvState, Array]:
        """A new episode: its state and first observation."""
        physics = self.begin(key)
        return EnvState(physics, jnp.int32(0)), self.observe(physics)

    def step(self, state: EnvState, action: Array, key: Array) -> tuple[EnvState, Transition]:
        """One step of time."""
        physics, reward, terminated = self.move(state.physics, action, key)
        time = state.time + 1
        truncated = (time >= self.time_limit) & ~terminated
        return EnvState(physics, time), Transition(self.observe(physics), reward, terminated, truncated)
