"""A replay of transitions as a few pure functions on one array `[capacity, numbers per transition]`.

A transition is packed into one row: one write and one gather per step, both in place. (With one array per field XLA
fuses write and gather of the narrow ones, and copies those buffers at every step.) The write index is the same for
all lanes, for a batched one would copy, too.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greedyac.rng import computed_once
from greedyac.spaces import Box, Spaces


class Batch(NamedTuple):
    """Transitions, `[batch, ...]` each; `continues` is 0 where the environment terminated, else 1."""

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    continues: Array


def empty(capacity: int, spaces: Spaces) -> Array:
    """Room for `capacity` transitions: `[capacity, numbers per transition]`."""
    return jnp.zeros((capacity, sum(_sizes(spaces))), jnp.float32)


def write(rows: Array, transition: Batch, time: Array) -> Array:
    """The transition of step `time`, without a batch axis, in place of the oldest."""
    row = jnp.concatenate([jnp.ravel(part).astype(jnp.float32) for part in transition])
    return jax.lax.dynamic_update_index_in_dim(rows, row, time % rows.shape[0], 0)


def sample(rows: Array, spaces: Spaces, key: Array, size: int, time: Array) -> Batch:
    """`size` of the transitions up to step `time`, uniformly with replacement."""
    chosen = rows[computed_once(jax.random.randint(key, (size,), 0, jnp.minimum(time + 1, rows.shape[0])))]
    observation, action, reward, next_observation, continues = jax.lax.split(chosen, _sizes(spaces), axis=1)
    if not isinstance(spaces.action, Box):
        action = action[:, 0].astype(jnp.int32)
    return Batch(observation, action, reward[:, 0], next_observation, continues[:, 0])


def _sizes(spaces: Spaces) -> tuple[int, ...]:
    """How many numbers each field of a `Batch` takes in a row."""
    features = spaces.observation.size
    return features, spaces.action.size if isinstance(spaces.action, Box) else 1, 1, features, 1
