"""How fast MinAtar's games are by themselves, and how fast agents learn on them.

    python benchmarks/games.py [--agents greedy-ac sac] [--envs MinAtar-Breakout MinAtar-Freeway] [--steps 200]

On one core: a game alone with 64 lanes and random actions, then one run of each agent with the paper's settings, beside
a large matrix product. All figures are the best of several rounds that take turns. Figures of one machine on one day,
and noisy: compare them within one run.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

CORE = max(os.sched_getaffinity(0))
ROUNDS, LANES, ALONE = 8, 64, 2000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=["greedy-ac", "sac"])
    parser.add_argument("--envs", nargs="+", default=["MinAtar-Breakout", "MinAtar-Freeway"])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    os.sched_setaffinity(0, {CORE})
    os.environ["PJRT_NPROC"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

    from greedyac.bench.measure import matmul_gflops
    from greedyac.execution.cost import operations
    from greedyac.execution.plan import expand_configs
    from greedyac.training.config import MAX_STEPS
    from greedyac.training.lanes import LaneBatch

    gflops: list[float] = []

    def multiply() -> None:
        gflops.append(matmul_gflops(0.3))

    for env in options.envs:
        play = played(env)
        print(f"{env}: {rate(play, LANES * ALONE):,.0f} steps/s alone, {LANES} lanes")
        for agent in options.agents:
            [config] = expand_configs(agent, env, MAX_STEPS, "paper", {}, {}, {})
            lanes = LaneBatch([config.learner], config.world, [0], MAX_STEPS)
            lanes.advance(2 * config.learner.batch_size)
            best = rate(partial(lanes.advance, options.steps), options.steps, multiply)
            fraction = best * operations(config.learner, config.world.spaces) / 1e9 / max(gflops)
            print(f"  {agent}: {best:,.0f} run-steps/s, {fraction:.2f} of a large product's {max(gflops):.0f} GFLOP/s")


def played(name: str) -> Callable[[], Any]:
    """A function that plays so many steps of random actions in all lanes, compiled."""
    import jax
    import jax.numpy as jnp

    from greedyac.agents.random import uniform_action
    from greedyac.core.streams import Stream, seed_keys, stream_key
    from greedyac.envs import make_env

    env = make_env(name)

    def step(key: Any, state: Any, time: Any) -> tuple[Any, Any]:
        action = uniform_action(env.spaces.action, stream_key(key, Stream.ACT, time))
        state, moved = env.step(state, action, stream_key(key, Stream.MOVE, time))
        fresh, first = env.reset(stream_key(key, Stream.START, time))
        ended = moved.terminated | moved.truncated
        state, seen = jax.tree.map(
            lambda new, old: jnp.where(ended, new, old), (fresh, first), (state, moved.observation)
        )
        return state, seen.sum() + moved.reward

    @jax.jit
    def play(keys: Any) -> Any:
        state = jax.vmap(lambda key: env.reset(key)[0])(keys)

        def one(state: Any, time: Any) -> tuple[Any, Any]:
            return jax.vmap(step, (0, 0, None))(keys, state, time)

        return jax.lax.scan(one, state, jnp.arange(ALONE))[1].sum()

    keys = seed_keys(list(range(LANES)))
    play(keys).block_until_ready()
    return lambda: play(keys).block_until_ready()


def rate(do: Callable[[], Any], steps: int, between: Callable[[], None] = lambda: None) -> float:
    """Steps per second, the best of all rounds."""
    best = 0.0
    for _ in range(ROUNDS):
        between()
        began = time.perf_counter()
        do()
        best = max(best, steps / (time.perf_counter() - began))
    return best


if __name__ == "__main__":
    main()
