"""A program of twenty lines that XLA:CPU compiles in a moment with JAX 0.10, and not at all with JAX 0.11 and 0.12.

    python benchmarks/slow_compile.py [--groups 5] [--seconds 60]

A key is hashed, split, and hashed again into 32 numbers: Threefry written out, as in `greedyac/core/prng.py`. XLA puts
all of it into one loop over the 32 numbers, the hash of the key included, which is the same for all of them. LLVM's
loop vectorizer then asks of each value whether only its first lane is used (`vputils::onlyFirstLaneUsed`). It asks all
users of that value in turn and remembers no answer. A round of the hash uses each value two or three times, so the time
is exponential in the number of rounds: `--groups 1` (4 rounds) compiles, `--groups 2` does not. Levels 1 to 3 of
`xla_backend_optimization_level` all run the vectorizer; level 0 does not.

What helps, and what `greedyac.core.prng.computed_once` does: put the key into memory before anything is drawn from it.
"""

import argparse
import multiprocessing
import sys
import time

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def compile_draw(groups: int) -> None:
    """Compile it, with so many groups of four rounds in the hash that splits the key."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def threefry(key: jax.Array, counter: jax.Array, groups: int = 5) -> tuple[jax.Array, jax.Array]:
        words = key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)
        first, second = jnp.broadcast_to(words[0], counter.shape), counter + words[1]
        for group in range(groups):
            for rotation in ROTATIONS[group % 2]:
                first = first + second
                second = first ^ (second << np.uint32(rotation) | second >> np.uint32(32 - rotation))
            first = first + words[(group + 1) % 3]
            second = second + words[(group + 2) % 3] + np.uint32(group + 1)
        return first, second

    def draw(key: jax.Array) -> jax.Array:
        key = jnp.stack(threefry(key, jnp.uint32(7)))
        key = jnp.stack(threefry(key, jnp.arange(2, dtype=jnp.uint32), groups), -1)[0]
        first, second = threefry(key, jnp.arange(32, dtype=jnp.uint32))
        return jnp.maximum((first ^ second).astype(jnp.float32), 0)

    jax.jit(draw).lower(jnp.zeros(2, jnp.uint32)).compile()


def main() -> None:
    """Compile it in a process that can be ended, and print how long that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=5, choices=range(1, 6))
    parser.add_argument("--seconds", type=float, default=60.0, help="give up after so many")
    options = parser.parse_args()
    from importlib.metadata import version

    process = multiprocessing.get_context("spawn").Process(target=compile_draw, args=(options.groups,))
    began = time.perf_counter()
    process.start()
    process.join(options.seconds)
    seconds = time.perf_counter() - began
    done = process.exitcode == 0
    if process.exitcode:
        sys.exit("the compilation failed")
    process.kill()
    process.join()
    end = f"compiled in {seconds:.1f} s, JAX's start included" if done else f"not compiled after {seconds:.0f} s"
    print(f"jaxlib {version('jaxlib')}, {options.groups} groups of rounds: {end}")


if __name__ == "__main__":
    main()
