"""MinAtar's Freeway: a chicken crosses eight lanes of traffic, one point for each time it reaches the other side.

It moves at most every third step; a car that meets it sends it back. After each crossing the cars have new speeds.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.core.prng import computed_once
from greedyac.envs.minatar.game import DOWN, NOTHING, SIZE, UP, Game, cell

PACE, SLOWEST, LENGTH = 3, 5, 2500
"""Steps from one move of the chicken to the next, from one move of the slowest cars to the next, of a game."""
COLUMN, START_ROW = 4, SIZE - 1
CARS = SIZE - 2


class Road(NamedTuple):
    """Where the chicken and the cars are, and when they may move again."""

    row: Array
    wait: Array
    columns: Array
    """Of the cars, `[CARS]`; there is one in each row but the first and the last."""
    waits: Array
    speeds: Array
    """Of the cars: they move every so many steps and one; to the left where it is negative."""
    time: Array


_ROWS = np.arange(1, CARS + 1)


@dataclass(frozen=True)
class Freeway(Game):
    """1 for each crossing; over after 2,500 steps, where training cuts it before."""

    channels = ("chicken", "car", *(f"speed {speed}" for speed in range(1, SLOWEST + 1)))
    used = (NOTHING, UP, DOWN)

    def speeds(self, key: Array) -> Array:
        """New speeds and directions of the cars, `[CARS]`."""
        speed_key, direction_key = jax.random.split(key)
        speeds = jax.random.randint(speed_key, (CARS,), 1, SLOWEST + 1)
        return computed_once(jnp.where(jax.random.bernoulli(direction_key, shape=(CARS,)), speeds, -speeds))

    def start(self, key: Array) -> Road:
        """The chicken below, all cars on the left."""
        speeds = self.speeds(key)
        return Road(
            row=jnp.int32(START_ROW),
            wait=jnp.int32(PACE),
            columns=jnp.zeros(CARS, jnp.int32),
            waits=jnp.abs(speeds),
            speeds=speeds,
            time=jnp.int32(0),
        )

    def play(self, game: Road, action: Array, key: Array) -> tuple[Road, Array, Array]:
        """The chicken moves, then the cars."""
        walks = ((action == UP) | (action == DOWN)) & (game.wait == 0)
        row = jnp.where(walks, jnp.clip(game.row + jnp.where(action == UP, -1, 1), 0, SIZE - 1), game.row)
        wait = jnp.where(walks, PACE, game.wait)

        across = row == 0
        speeds = jnp.where(across, self.speeds(key), game.speeds)
        waits = jnp.where(across, jnp.abs(speeds), game.waits)
        row = jnp.where(across, START_ROW, row)

        drive = waits == 0
        columns = jnp.where(drive, (game.columns + jnp.sign(speeds)) % SIZE, game.columns)
        waits = jnp.where(drive, jnp.abs(speeds), waits - 1)
        met = (row == _ROWS) & ((game.columns == COLUMN) | (columns == COLUMN))
        time = game.time + 1
        return (
            Road(
                row=jnp.where(met.any(), START_ROW, row),
                wait=jnp.maximum(wait - 1, 0),
                columns=columns,
                waits=waits,
                speeds=speeds,
                time=time,
            ),
            across.astype(jnp.float32),
            time > LENGTH,
        )

    def picture(self, game: Road) -> tuple[Array, ...]:
        """Chicken and cars, and behind each car its trail in the channel of its speed."""
        behind = (game.columns - jnp.sign(game.speeds)) % SIZE
        columns, behind, speeds = (
            jnp.pad(of_cars, 1)[:, None] for of_cars in (game.columns, behind, jnp.abs(game.speeds))
        )
        cars, trails = ((speeds > 0) & (places == np.arange(SIZE)) for places in (columns, behind))
        by_speed = (trails & (speeds == speed) for speed in range(1, SLOWEST + 1))
        return cell(game.row, COLUMN), cars, *by_speed
