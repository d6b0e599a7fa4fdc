"""Random streams: every key is derived from (seed, a fixed number per stream), then from a time or an index.

The same seed gives every setting the same initial weights and the same sequence of start states, so that
comparisons are paired.
"""

from enum import IntEnum

import jax
import numpy as np
from jax import Array

from greedyac.core import prng
from greedyac.core.xla import configured, in_float32

MAX_SEED = 2**32 - 1


class Stream(IntEnum):
    """What a key is for. The numbers are part of every run's identity: never change or reuse one."""

    WEIGHTS = 0
    START = 1
    ACT = 2
    MOVE = 3
    REPLAY = 4
    UPDATE = 5
    EVALUATE = 6
    PREDICT = 7


@configured
def seed_keys(seeds: list[int]) -> Array:
    """One key per seed, `[lanes]`."""
    words = np.stack([np.zeros(len(seeds), np.uint32), np.asarray(seeds, np.uint32)], -1)
    return jax.random.wrap_key_data(words, impl=prng.KEYS)  # type: ignore[arg-type]  # the same, without a program


@in_float32
def key_shape() -> jax.ShapeDtypeStruct:
    """The shape of one key, without one."""
    return jax.eval_shape(lambda: jax.random.key(0, impl=prng.KEYS))


def stream_key(key: Array, stream: Stream, index: Array | int) -> Array:
    """The key of one use of a stream: at a time, for an episode, for the n-th prediction."""
    return jax.random.fold_in(jax.random.fold_in(key, stream), index)


def host_seed(seed: int, stream: Stream, index: int) -> int:
    """The seed of an environment's reset: of an episode, or of an evaluation."""
    return int(np.random.SeedSequence((seed, int(stream), index)).generate_state(1)[0] >> 1)
