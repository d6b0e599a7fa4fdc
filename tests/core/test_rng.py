import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from greedyac.core import prng
from greedyac.core.streams import seed_keys

Keep = Callable[[Array], Array]


def test_the_hash_gives_the_published_test_vectors_of_threefry() -> None:
    # Random123's known answers for Threefry-2x32 with 20 rounds whose first counter word is 0
    first, second = prng.threefry(jnp.zeros(2, jnp.uint32), jnp.zeros(1, jnp.uint32))
    assert (int(first[0]), int(second[0])) == (0x6B200159, 0x99BA4EFE)


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31, 2**32 - 1])
def test_keys_draw_what_jax_draws(seed: int) -> None:
    ours, theirs = jax.random.key(jnp.uint32(seed), impl=prng.KEYS), jax.random.key(jnp.uint32(seed))
    for draw in (
        jax.random.key_data,
        lambda key: jax.random.bits(key, (5, 3)),
        lambda key: jax.random.normal(key, (33,)),
        lambda key: jax.random.uniform(key, (7, 2, 1)),
        lambda key: jax.random.gumbel(key, (4,)),
        lambda key: jax.random.randint(key, (32,), 0, 1000),
        jax.random.uniform,
        lambda key: jax.random.key_data(jax.random.split(key, 3)),
        lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 + 5)),
        lambda key: jax.random.normal(jax.random.split(jax.random.fold_in(key, 3))[1], (8,)),
    ):
        np.testing.assert_array_equal(draw(ours), draw(theirs))


def test_keys_of_several_seeds_at_once_draw_what_each_draws_alone() -> None:
    drawn = jax.jit(jax.vmap(lambda key: jax.random.normal(key, (6,))))(seed_keys([3, 4]))
    alone = jax.random.normal(jax.random.key(4), (6,))
    np.testing.assert_allclose(drawn[1], alone, rtol=1e-6)


@pytest.mark.parametrize("width", [8, 16])
def test_narrow_numbers_are_those_of_jax(width: int) -> None:
    ours, theirs = (jax.random.bits(jax.random.key(3, impl=impl), (9,), f"uint{width}") for impl in (prng.KEYS, None))
    np.testing.assert_array_equal(ours, theirs)


def test_64_bits_are_refused() -> None:
    with jax.enable_x64(True), pytest.raises(NotImplementedError, match="random numbers of 64 bits"):
        jax.random.bits(jax.random.key(0, impl=prng.KEYS), (2,), "uint64")


def test_computed_once_changes_no_number_and_is_not_computed_again_by_each_user() -> None:
    numbers = jnp.linspace(-1, 1, 12).reshape(3, 4)
    np.testing.assert_array_equal(jax.jit(prng.computed_once)(numbers), numbers)
    np.testing.assert_array_equal(jax.vmap(prng.computed_once)(numbers), numbers)

    def users(x: Array, kept: Keep) -> Array:
        hashed = kept(prng.threefry(jnp.uint32([1, 2]), x)[0])
        return hashed[:, None] * jnp.arange(64, dtype=jnp.uint32) + jnp.sin(hashed.astype(jnp.float32)).sum()

    def copies_of_the_hash(kept: Keep) -> int:
        text = jax.jit(lambda x: users(x, kept)).lower(jnp.arange(96, dtype=jnp.uint32)).compile().as_text()
        return str(text).count("466688986")  # the parity word of the key schedule

    assert copies_of_the_hash(prng.computed_once) < copies_of_the_hash(lambda numbers: numbers)


def test_no_loop_hashes_a_key_and_what_is_drawn_from_it() -> None:
    """LLVM would take forever to vectorize that: `benchmarks/slow_compile.py`."""

    def draw(words: Array, time: Array) -> Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(words, impl=prng.KEYS), time)
        return jax.random.normal(jax.random.split(jax.random.split(key)[0])[0], (32, 1))

    options: dict[str, bool | str] = {"xla_backend_optimization_level": "0"}  # else it might not end
    lowered = jax.jit(draw, compiler_options=options).lower(jnp.zeros(2, jnp.uint32), jnp.int32(0))
    fused = re.findall(r"^%fused_computation.*?^}", str(lowered.compile().as_text()), re.MULTILINE | re.DOTALL)
    rounds = [len(re.findall(r" xor\(", computation)) for computation in fused]
    assert sum(rounds) >= 80  # four hashes of 20 rounds
    assert max(rounds) < 30
