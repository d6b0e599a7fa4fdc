"""MinAtar's Breakout: a paddle keeps a ball in play that breaks the bricks above, one point for each.

The ball moves along diagonals. It bounces off the walls, the ceiling and bricks, though of two bricks in a row only the
first breaks and turns it. Coming down onto the paddle it goes up again: onwards if the paddle is below where it was,
and back to where it came from if the paddle is where it would have landed. If it lands elsewhere the game is over.
There are new bricks when it comes down and none is left.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.core.prng import computed_once
from greedyac.envs.minatar.game import LEFT, NOTHING, RIGHT, SIZE, Game, cell

FLOOR, START_ROW = SIZE - 1, 3


class Court(NamedTuple):
    """Where paddle, ball and bricks are, where the ball came from and goes to."""

    paddle: Array
    row: Array
    column: Array
    down: Array
    """1 if the ball moves down, −1 if up."""
    right: Array
    """1 if the ball moves to the right, −1 if to the left."""
    last_row: Array
    last_column: Array
    bricks: Array
    """`[rows, columns]` of bits."""
    struck: Array
    """Whether the ball met a brick in the last step; then it breaks none in the next."""


WALL = np.zeros((SIZE, SIZE), np.bool_)
WALL[1:4] = True
"""Where the bricks are at first."""


@dataclass(frozen=True)
class Breakout(Game):
    """1 for each brick; over when the ball gets past the paddle."""

    channels = ("paddle", "ball", "trail", "brick")
    used = (NOTHING, LEFT, RIGHT)

    def from_right(self, key: Array) -> Array:
        """Whether the ball comes from the right."""
        return computed_once(jax.random.bernoulli(key))

    def start(self, key: Array) -> Court:
        """The ball below the bricks at one of the sides, on its way down to the other."""
        from_right = self.from_right(key)
        row, column = jnp.int32(START_ROW), jnp.where(from_right, SIZE - 1, 0)
        return Court(
            paddle=jnp.int32(4),
            row=row,
            column=column,
            down=jnp.int32(1),
            right=jnp.where(from_right, -1, 1),
            last_row=row,
            last_column=column,
            bricks=jnp.asarray(WALL),
            struck=jnp.bool_(False),
        )

    def play(self, game: Court, action: Array, key: Array) -> tuple[Court, Array, Array]:
        """The paddle moves, then the ball."""
        step = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
        paddle = jnp.clip(game.paddle + step, 0, SIZE - 1)
        row, column, down, right = game.row + game.down, game.column + game.right, game.down, game.right
        at_side = (column < 0) | (column >= SIZE)
        column, right = jnp.clip(column, 0, SIZE - 1), jnp.where(at_side, -right, right)

        at_ceiling = row < 0
        row = jnp.maximum(row, 0)
        place = cell(row, column)
        at_brick = (game.bricks & place).any() & ~at_ceiling
        breaks = at_brick & ~game.struck
        bricks = game.bricks & ~(place & breaks)

        at_floor = row == FLOOR
        bricks = jnp.where(at_floor & ~bricks.any(), WALL, bricks)
        above = game.column == paddle
        beside = (column == paddle) & ~above
        saved = at_floor & (above | beside)
        return (
            Court(
                paddle=paddle,
                row=jnp.where(breaks | saved, game.row, row),
                column=column,
                down=jnp.where(at_ceiling | breaks | saved, -down, down),
                right=jnp.where(at_floor & beside, -right, right),
                last_row=game.row,
                last_column=game.column,
                bricks=bricks,
                struck=at_brick,
            ),
            breaks.astype(jnp.float32),
            at_floor & ~saved,
        )

    def picture(self, game: Court) -> tuple[Array, ...]:
        """Paddle, ball, where the ball was before, and bricks."""
        return (
            cell(FLOOR, game.paddle),
            cell(game.row, game.column),
            cell(game.last_row, game.last_column),
            game.bricks,
        )
