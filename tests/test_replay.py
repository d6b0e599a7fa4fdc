"""The replay: what is written comes back, whole, uniformly, and only that."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.stats import chisquare

from greedyac import replay
from greedyac.replay import Batch
from greedyac.spaces import Box, Discrete, Spaces

OBSERVATION = Box((-9.0,) * 3, (9.0,) * 3)
CONTINUOUS = Spaces(OBSERVATION, Box((-9.0,) * 2, (9.0,) * 2))
DISCRETE = Spaces(OBSERVATION, Discrete(7))
CAPACITY, SIZE = 5, 400


def transition(spaces: Spaces, time: int) -> Batch:
    """A transition whose every number tells its time and its place."""
    discrete = isinstance(spaces.action, Discrete)
    action: Any = np.int32(time % 7) if discrete else np.array([time + 0.25, -time], np.float32)
    observation = np.array([time, time + 0.5, -time], np.float32)
    continues = np.float32(time % 3 > 0)
    return Batch(*map(jnp.asarray, (observation, action, np.float32(time + 1), observation + 100, continues)))


write = jax.jit(replay.write, donate_argnums=0)


def written(spaces: Spaces, count: int) -> Array:
    """A replay after `count` steps."""
    rows = replay.empty(CAPACITY, spaces)
    for time in range(count):
        rows = write(rows, transition(spaces, time), np.int32(time))
    return rows


@functools.partial(jax.jit, static_argnames=("spaces", "size"))
def drawn(rows: Array, spaces: Spaces, seed: int, size: int, time: int) -> Batch:
    return replay.sample(rows, spaces, jax.random.key(seed), size, jnp.asarray(time))


def sampled(spaces: Spaces, count: int, seed: int = 0) -> Batch:
    return jax.device_get(drawn(written(spaces, count), spaces, seed, SIZE, count - 1))


def times(batch: Batch) -> list[int]:
    """When each sampled transition was written; −1 for a row that never was."""
    return (np.asarray(batch.reward).astype(int) - 1).tolist()


@pytest.mark.parametrize("count", range(1, CAPACITY + 1))
def test_only_and_all_written_transitions_are_sampled(count: int) -> None:
    assert set(times(sampled(CONTINUOUS, count))) == set(range(count))


@pytest.mark.parametrize("count", [CAPACITY + 1, 2 * CAPACITY, 2 * CAPACITY + 3])
def test_a_full_replay_holds_the_latest(count: int) -> None:
    assert set(times(sampled(CONTINUOUS, count))) == set(range(count - CAPACITY, count))


@pytest.mark.parametrize("spaces", [CONTINUOUS, DISCRETE])
def test_every_field_of_a_transition_comes_back_as_it_was_written(spaces: Spaces) -> None:
    batch = sampled(spaces, CAPACITY + 2)
    for index, time in enumerate(times(batch)):
        expected = transition(spaces, time)
        for name, field, value in zip(Batch._fields, batch, expected, strict=True):
            np.testing.assert_array_equal(field[index], value, err_msg=name)
            assert field.dtype == value.dtype
            assert field.shape == (SIZE, *value.shape)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sampling_is_uniform_with_replacement(seed: int) -> None:
    counts = np.bincount(times(sampled(CONTINUOUS, CAPACITY, seed)), minlength=CAPACITY)
    assert chisquare(counts).pvalue > 1e-3  # ten seeds: lowest 0.04


def test_samples_repeat_with_a_key_and_differ_between_keys() -> None:
    first, again, other = (sampled(CONTINUOUS, CAPACITY, seed).reward for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == other) < 0.4  # one in five by chance


def test_a_replay_takes_one_row_per_transition() -> None:
    assert replay.empty(CAPACITY, CONTINUOUS).shape == (CAPACITY, 3 + 2 + 1 + 3 + 1)
    assert replay.empty(CAPACITY, DISCRETE).shape == (CAPACITY, 3 + 1 + 1 + 3 + 1)
