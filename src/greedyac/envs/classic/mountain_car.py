"""Mountain Car: an underpowered car must swing back and forth to climb out of a valley.

The continuous version is Gymnasium's MountainCarContinuous, the discrete one its MountainCar, both with a reward
of −1 per step and with starts at rest in [−0.6, −0.4].
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greedyac.core.spaces import Box
from greedyac.envs.classic.control import Control


class Car(NamedTuple):
    """Position along the valley, and velocity."""

    position: Array
    velocity: Array


@dataclass(frozen=True)
class MountainCar(Control):
    """−1 per step until the car reaches the goal on the right hill."""

    observation_space = Box((-1.2, -0.07), (0.6, 0.07))
    action_box = Box((-1.0,), (1.0,))

    @property
    def power(self) -> float:
        """What a unit of force adds to the velocity in one step."""
        return 0.0015 if self.continuous else 0.001

    @property
    def goal(self) -> float:
        """The position from which an episode terminates."""
        return 0.45 if self.continuous else 0.5

    def begin(self, key: Array) -> Car:
        """At rest, somewhere near the valley's floor."""
        return Car(jax.random.uniform(key, (), jnp.float32, -0.6, -0.4), jnp.float32(0))

    def observe(self, physics: Car) -> Array:
        """Position and velocity."""
        return jnp.stack(physics)

    def push(self, physics: Car, force: Array) -> tuple[Car, Array, Array]:
        """Gravity and engine change the velocity; the left wall stops the car."""
        (left, slowest), (right, fastest) = self.observation_space.low, self.observation_space.high
        velocity = physics.velocity + force * self.power - 0.0025 * jnp.cos(3 * physics.position)
        velocity = jnp.clip(velocity, slowest, fastest)
        position = jnp.clip(physics.position + velocity, left, right)
        velocity = jnp.where((position <= left) & (velocity < 0), 0.0, velocity)
        return Car(position, velocity), jnp.float32(-1), (position >= self.goal) & (velocity >= 0)
