"""Acrobot: two links hang from a fixed joint; a torque at the elbow must swing the tip above the bar.

Sutton & Barto's dynamics, integrated by one Runge–Kutta step of 0.2 as in Gymnasium's Acrobot. The observation is
the four raw state variables.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greedyac.core.fields import static
from greedyac.core.spaces import Box
from greedyac.envs.classic.control import Control, wrap_angle

GRAVITY, TIME_STEP = 9.8, 0.2
MASS, LENGTH, CENTRE, INERTIA = 1.0, 1.0, 0.5, 1.0  # of either link
MAX_SPEED_1, MAX_SPEED_2 = 4 * math.pi, 9 * math.pi


class Links(NamedTuple):
    """Angle of the first link from hanging down, of the second from the first, and their velocities."""

    angle_1: Array
    angle_2: Array
    velocity_1: Array
    velocity_2: Array


@dataclass(frozen=True)
class Acrobot(Control):
    """−1 per step, 0 on the step that lifts the tip one link's length above the bar."""

    observation_space = Box(
        (-math.pi, -math.pi, -MAX_SPEED_1, -MAX_SPEED_2), (math.pi, math.pi, MAX_SPEED_1, MAX_SPEED_2)
    )
    action_box = Box((-1.0,), (1.0,))

    start: str = static(
        "uniform",
        choices=("uniform", "zero"),
        help="where episodes start: all four variables uniform in ±0.1, or at 0 as in the published code",
    )

    def begin(self, key: Array) -> Links:
        """Hanging down, all but at rest."""
        spread = 0.1 if self.start == "uniform" else 0.0
        return Links(*jax.random.uniform(key, (4,), jnp.float32, -spread, spread))

    def observe(self, physics: Links) -> Array:
        """The four state variables."""
        return jnp.stack(physics)

    def push(self, physics: Links, force: Array) -> tuple[Links, Array, Array]:
        """One classical Runge–Kutta step, then wrap the angles and clip the velocities."""

        def after(slope: Links, time: float) -> Links:
            return Links(*(x + time * dx for x, dx in zip(physics, slope, strict=True)))

        slope_1 = _slope(physics, force)
        slope_2 = _slope(after(slope_1, TIME_STEP / 2), force)
        slope_3 = _slope(after(slope_2, TIME_STEP / 2), force)
        slope_4 = _slope(after(slope_3, TIME_STEP), force)
        slopes = zip(slope_1, slope_2, slope_3, slope_4, strict=True)
        moved = after(Links(*(a + 2 * b + 2 * c + d for a, b, c, d in slopes)), TIME_STEP / 6)
        links = Links(
            wrap_angle(moved.angle_1),
            wrap_angle(moved.angle_2),
            jnp.clip(moved.velocity_1, -MAX_SPEED_1, MAX_SPEED_1),
            jnp.clip(moved.velocity_2, -MAX_SPEED_2, MAX_SPEED_2),
        )
        terminated = -jnp.cos(links.angle_1) - jnp.cos(links.angle_1 + links.angle_2) > 1.0
        return links, jnp.where(terminated, 0.0, -1.0), terminated


def _slope(links: Links, torque: Array) -> Links:
    """The time derivative of the four state variables (the equations of Sutton & Barto's book)."""
    angle_1, angle_2, velocity_1, velocity_2 = links
    coupling = LENGTH * CENTRE * jnp.cos(angle_2)
    inertia_1 = MASS * CENTRE**2 + MASS * (LENGTH**2 + CENTRE**2 + 2 * coupling) + 2 * INERTIA
    inertia_12 = MASS * (CENTRE**2 + coupling) + INERTIA
    gravity_2 = MASS * CENTRE * GRAVITY * jnp.sin(angle_1 + angle_2)
    bend = MASS * LENGTH * CENTRE * jnp.sin(angle_2)
    gravity_1 = (
        -bend * velocity_2**2
        - 2 * bend * velocity_2 * velocity_1
        + (MASS * CENTRE + MASS * LENGTH) * GRAVITY * jnp.sin(angle_1)
        + gravity_2
    )
    acceleration_2 = (torque + inertia_12 / inertia_1 * gravity_1 - bend * velocity_1**2 - gravity_2) / (
        MASS * CENTRE**2 + INERTIA - inertia_12**2 / inertia_1
    )
    acceleration_1 = -(inertia_12 * acceleration_2 + gravity_1) / inertia_1
    return Links(velocity_1, velocity_2, acceleration_1, acceleration_2)
