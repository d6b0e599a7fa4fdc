"""What MinAtar's games have in common: six actions of which each game uses a few, sticky actions, a grid of bits."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.core.fields import static
from greedyac.core.prng import computed_once
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.envs.base import Env

SIZE = 10
"""Rows and columns of every grid."""
NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


class Played(NamedTuple):
    """A game, and the action that was taken last, which may be repeated."""

    game: Any
    last_action: Array


@dataclass(frozen=True)
class Game(Env):
    """A game on a grid of bits with one channel per kind of thing. Now and then the last action is repeated instead.

    Every episode begins as if nothing had been done before.
    """

    channels: ClassVar[tuple[str, ...]]
    used: ClassVar[tuple[int, ...]]
    """The actions that make a difference."""

    time_limit: int = static(
        2500, help="steps after which an episode is cut without terminating", at_least=1, at_most=2**31 - 1
    )
    actions: str = static(
        "minimal", choices=("minimal", "full"), help="those that make a difference in this game, or all six"
    )
    sticky_actions: float = static(
        0.1, at_least=0, at_most=1, help="probability that the last action is repeated in place of the chosen one"
    )

    @property
    def spaces(self) -> Spaces:
        """What an agent sees and does here."""
        grid = SIZE, SIZE, len(self.channels)
        bits = SIZE * SIZE * len(self.channels)
        seen = Box((0.0,) * bits, (1.0,) * bits, grid, "bool")
        return Spaces(seen, Discrete(len(self._choices)))

    @property
    def _choices(self) -> tuple[int, ...]:
        return self.used if self.actions == "minimal" else tuple(range(6))

    @abstractmethod
    def start(self, key: Array) -> Any:
        """The game at the start of an episode."""

    @abstractmethod
    def play(self, game: Any, action: Array, key: Array) -> tuple[Any, Array, Array]:
        """One step under one of the six actions: the game, the reward and whether it is over."""

    @abstractmethod
    def picture(self, game: Any) -> tuple[Array, ...]:
        """Where each of the channels' things are, `[rows, columns]` of bits each."""

    def sticks(self, key: Array) -> Array:
        """Whether the last action is repeated."""
        return computed_once(jax.random.uniform(key)) < self.sticky_actions

    def begin(self, key: Array) -> Played:
        """A new game."""
        return Played(self.start(key), jnp.int32(NOTHING))

    def observe(self, physics: Played) -> Array:
        """All bits in a row, those of one cell next to each other."""
        return jnp.stack(self.picture(physics.game), -1).ravel().astype(jnp.float32)

    def move(self, physics: Played, action: Array, key: Array) -> tuple[Played, Array, Array]:
        """One step of the game under the action, or under the last one again."""
        sticky_key, game_key = jax.random.split(key)
        chosen = jnp.asarray(self._choices, jnp.int32)[action]
        taken = jnp.where(self.sticks(sticky_key), physics.last_action, chosen)
        game, reward, over = self.play(physics.game, taken, game_key)
        return Played(game, taken), reward, over


def cell(row: Array | int, column: Array | int) -> Array:
    """A grid in which only that cell is lit."""
    return jnp.equal(row, _ROWS) & jnp.equal(column, _COLUMNS)


_ROWS, _COLUMNS = np.arange(SIZE)[:, None], np.arange(SIZE)
