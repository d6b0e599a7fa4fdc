"""Classic control: worlds that one force moves, given as a number or as one of three."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.envs.base import Env


@dataclass(frozen=True)
class Control(Env):
    """An environment whose physics a scalar force moves."""

    observation_space: ClassVar[Box]
    action_box: ClassVar[Box]
    """The continuous actions; the discrete ones are its lowest, its middle and its highest."""

    continuous: bool = True

    @property
    def spaces(self) -> Spaces:
        """What an agent sees and does here."""
        return Spaces(self.observation_space, self.action_box if self.continuous else Discrete(3))

    @abstractmethod
    def push(self, physics: Any, force: Array) -> tuple[Any, Array, Array]:
        """One step under a force within `action_box`: the new physics, the reward and whether it terminated."""

    def move(self, physics: Any, action: Array, key: Array) -> tuple[Any, Array, Array]:
        """One step under the action's force."""
        return self.push(physics, self._force(action))

    def _force(self, action: Array) -> Array:
        """The scalar force of an action: clipped if continuous, one of {lowest, middle, highest} if discrete."""
        low, high = self.action_box.low[0], self.action_box.high[0]
        if self.continuous:
            return jnp.clip(action[0], low, high)
        return jnp.asarray([low, (low + high) / 2, high], jnp.float32)[action]


def wrap_angle(angle: Array) -> Array:
    """The same angle in [−π, π)."""
    wrapped = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
    return jnp.where(wrapped >= jnp.pi, -jnp.pi, wrapped)  # float32 can round up to π itself
