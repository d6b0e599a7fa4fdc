"""A replay of transitions as a few pure functions on one array `[capacity, numbers per transition]`.

A transition is packed into one row: one write and one gather per step, both in place. (With one array per field XLA
fuses write and gather of the narrow ones, and copies those buffers at every step.) The write index is the same for
all lanes, for a batched one would copy, too.

Observations of bytes or bits are kept as such, several in one word of 32 bits; the rows are then of such words.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from greedyac.agents.base import Batch
from greedyac.core.prng import computed_once
from greedyac.core.spaces import Box, Spaces
from greedyac.training import bits


def empty(capacity: int, spaces: Spaces) -> Array:
    """Room for `capacity` transitions: `[capacity, words per transition]`."""
    packed = spaces.observation.stored != "float32"
    return jnp.zeros((capacity, sum(_sizes(spaces))), jnp.uint32 if packed else jnp.float32)


def write(rows: Array, spaces: Spaces, transition: Batch, time: Array) -> Array:
    """The transition of step `time`, without a batch axis, in place of the oldest."""
    parts = transition._replace(
        observation=bits.pack(transition.observation, spaces.observation),
        next_observation=bits.pack(transition.next_observation, spaces.observation),
    )
    row = jnp.concatenate([_as_word(jnp.ravel(part), rows.dtype) for part in parts])
    return jax.lax.dynamic_update_index_in_dim(rows, row, time % rows.shape[0], 0)


def sample(rows: Array, spaces: Spaces, key: Array, size: int, time: Array) -> Batch:
    """`size` of the transitions up to step `time`, uniformly with replacement."""
    chosen = rows[computed_once(jax.random.randint(key, (size,), 0, jnp.minimum(time + 1, rows.shape[0])))]
    observation, *numbers, next_observation, continues = jax.lax.split(chosen, _sizes(spaces), axis=1)
    observation, next_observation = (
        bits.unpack(words, spaces.observation) for words in (observation, next_observation)
    )
    action, reward, continues = map(_as_number, (*numbers, continues))
    if not isinstance(spaces.action, Box):
        action = action[:, 0].astype(jnp.int32)
    return Batch(observation, action, reward[:, 0], next_observation, continues[:, 0])


def _as_word(part: Array, kind: Any) -> Array:
    """In the type of the rows, every bit of it kept."""
    if part.dtype == jnp.uint32:
        return part
    number = part.astype(jnp.float32)
    return number if kind == jnp.float32 else jax.lax.bitcast_convert_type(number, jnp.uint32)


def _as_number(word: Array) -> Array:
    """The inverse of `_as_word`, for numbers."""
    return word if word.dtype == jnp.float32 else jax.lax.bitcast_convert_type(word, jnp.float32)


def _sizes(spaces: Spaces) -> tuple[int, ...]:
    """How many words each field of a `Batch` takes in a row."""
    seen = bits.words(spaces.observation)
    return seen, spaces.action.size if isinstance(spaces.action, Box) else 1, 1, seen, 1
