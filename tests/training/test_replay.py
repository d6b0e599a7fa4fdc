"""The replay: what is written comes back, whole, uniformly, and only that."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.stats import chisquare

from greedyac.agents.base import Batch
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.envs import make_env
from greedyac.training import bits, replay

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


write = jax.jit(replay.write, donate_argnums=0, static_argnames="spaces")


def written(spaces: Spaces, count: int) -> Array:
    """A replay after `count` steps."""
    rows = replay.empty(CAPACITY, spaces)
    for time in range(count):
        rows = write(rows, spaces, transition(spaces, time), np.int32(time))
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


BITS = Box((0.0,) * 45, (1.0,) * 45, (3, 3, 5), "bool")
BYTES = Box((0.0,) * 10, (255.0,) * 10, stored="uint8")
PIXELS = Box((0.0,) * 9, (1.0,) * 9, (3, 3, 1), "uint8")
OTHERS = {
    "bits": Spaces(BITS, Discrete(7)),
    "bits-continuous": Spaces(BITS, CONTINUOUS.action),
    "bytes": Spaces(BYTES, Discrete(7)),
    "pixels": Spaces(PIXELS, Discrete(7)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_bits_and_bytes_come_back_as_they_were_written(name: str) -> None:
    spaces, random = OTHERS[name], np.random.default_rng(0)
    box, most = spaces.observation, 2 if name.startswith("bits") else 256
    seen = random.integers(0, most, (CAPACITY + 2, 2, box.size)).astype(np.float32)
    if name == "pixels":
        seen *= np.float32(box.unit)
    rows = replay.empty(CAPACITY, spaces)
    for time in range(CAPACITY + 2):
        observation, following = map(jnp.asarray, seen[time])
        told = transition(DISCRETE if isinstance(spaces.action, Discrete) else CONTINUOUS, time)
        rows = write(rows, spaces, told._replace(observation=observation, next_observation=following), np.int32(time))
    batch = jax.device_get(drawn(rows, spaces, 0, SIZE, CAPACITY + 1))
    assert set(times(batch)) == set(range(2, CAPACITY + 2))
    for index, time in enumerate(times(batch)):
        expected = transition(DISCRETE if isinstance(spaces.action, Discrete) else CONTINUOUS, time)
        np.testing.assert_array_equal(batch.observation[index], seen[time, 0])
        np.testing.assert_array_equal(batch.next_observation[index], seen[time, 1])
        for field in ("action", "reward", "continues"):
            np.testing.assert_array_equal(getattr(batch, field)[index], getattr(expected, field), err_msg=field)


@pytest.mark.parametrize("box", [BITS, BYTES, PIXELS])
def test_a_number_out_of_range_does_not_spill_into_its_neighbours(box: Box) -> None:
    numbers = np.zeros(box.size, np.float32)
    numbers[3], numbers[5] = 1e6, -7
    whole = np.asarray(bits.unpack(bits.pack(jnp.asarray(numbers), box), box))
    assert whole[3] == box.high[3]
    assert not np.delete(whole, 3).any()


def test_a_million_transitions_of_breakout_take_116_mb() -> None:
    rows = jax.eval_shape(lambda: replay.empty(1_000_000, make_env("MinAtar-Breakout").spaces))
    assert rows.size * rows.dtype.itemsize == 116_000_000


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
