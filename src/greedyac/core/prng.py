"""Random numbers as JAX draws them, bit for bit, computed in fewer and larger pieces on a CPU.

There JAX runs its hash, Threefry-2x32, as a loop of small operations: a fifth of the time of a training step. Written
out it becomes part of what uses it. `KEYS` goes where JAX takes an `impl`; `jax.random` then works as always, but for
numbers of 64 bits and `poisson`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def threefry(key: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with its 20 rounds: the hash of the counter (0, low) under a key of two words."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    first, second = jnp.broadcast_to(schedule[0], low.shape), low + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            first = first + second
            second = first ^ (second << np.uint32(rotation) | second >> np.uint32(32 - rotation))
        first = first + schedule[(group + 1) % 3]
        second = second + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return first, second


def _counters(shape: tuple[int, ...]) -> Array:
    return jnp.arange(np.prod(shape, dtype=np.uint32), dtype=jnp.uint32).reshape(shape)


def _seed(seed: Array) -> Array:
    return jnp.stack([jnp.uint32(0), seed.astype(jnp.uint32)])


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return computed_once(jnp.stack(threefry(key, _counters(shape)), -1))


def _fold_in(key: Array, number: Array | int) -> Array:
    return computed_once(jnp.stack(threefry(key, jnp.asarray(number, jnp.uint32))))


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    if width not in (8, 16, 32):
        raise NotImplementedError(f"random numbers of {width} bits")
    first, second = threefry(key, _counters(shape))
    return (first ^ second).astype(f"uint{width}")


KEYS = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="threefry_written_out"
)


@jax.jit
def computed_once(numbers: Array) -> Array:
    """The same numbers, kept in memory before anything uses them.

    XLA:CPU would rather compute what looks cheap, like a hash, again inside each loop that uses it, and there once per
    element. What a loop returns it keeps; a barrier hides that this one is passed through only once.

    Keys need it, too. XLA would hash a key and the numbers drawn from it in one loop, and there LLVM's vectorizer
    (since JAX 0.11) follows all uses of the key's hash again and again: `benchmarks/slow_compile.py` never finishes.
    """
    once = jax.lax.optimization_barrier(jnp.int32(1))  # type: ignore[no-untyped-call]
    return jax.lax.fori_loop(0, once, lambda _, __: numbers, jnp.zeros_like(numbers))
