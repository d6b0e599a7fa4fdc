"""Pendulum: swing a rod up from rest and hold it upright. The reward is the cosine of its angle.

Gymnasium's Pendulum dynamics with three differences: the observation is angle and velocity themselves, every
episode starts hanging down at rest, and the new angle uses the new velocity before that is clipped.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from greedyac.core.spaces import Box
from greedyac.envs.classic.control import Control, wrap_angle

GRAVITY, MASS, LENGTH, TIME_STEP, MAX_SPEED = 10.0, 1.0, 1.0, 0.05, 8.0


class Rod(NamedTuple):
    """Angle from upright in [−π, π), and angular velocity."""

    angle: Array
    velocity: Array


@dataclass(frozen=True)
class Pendulum(Control):
    """cos(angle) of the new state; never terminates."""

    observation_space = Box((-math.pi, -MAX_SPEED), (math.pi, MAX_SPEED))
    action_box = Box((-2.0,), (2.0,))

    def begin(self, key: Array) -> Rod:
        """Hanging down, at rest."""
        return Rod(jnp.float32(-math.pi), jnp.float32(0))

    def observe(self, physics: Rod) -> Array:
        """Angle and angular velocity."""
        return jnp.stack(physics)

    def push(self, physics: Rod, force: Array) -> tuple[Rod, Array, Array]:
        """Gravity and torque accelerate the rod for one time step."""
        acceleration = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(physics.angle) + 3 / (MASS * LENGTH**2) * force
        velocity = physics.velocity + acceleration * TIME_STEP
        angle = wrap_angle(physics.angle + velocity * TIME_STEP)
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        return Rod(angle, velocity), jnp.cos(angle), jnp.bool_(False)
