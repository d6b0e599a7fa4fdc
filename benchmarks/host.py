"""What a step costs on a Gymnasium environment, and what of it is not the environment's own and not the update.

    python benchmarks/host.py [--agent greedy-ac] [--env Pendulum-v1] [--steps 300] [HYPERPARAMETER=VALUE ...]
    python benchmarks/host.py --env Swimmer-v5 --steps 60 hidden=256,256 batch_size=100

One lane, on one core. All figures are the best of several rounds of the same process, which take turns. Figures of one
machine on one day, and noisy: compare them within one run.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

CORE = min(os.sched_getaffinity(0))
ROUNDS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hypers", nargs="*", metavar="HYPERPARAMETER=VALUE")
    parser.add_argument("--agent", default="greedy-ac")
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    os.sched_setaffinity(0, {CORE})
    os.environ["PJRT_NPROC"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

    from greedyac.agents import AGENTS, make_agent
    from greedyac.bench.measure import matmul_gflops
    from greedyac.core.fields import hypers_of
    from greedyac.envs import HostEnv, make_world
    from greedyac.execution.cost import operations

    known = hypers_of(AGENTS[options.agent])
    pairs = (text.partition("=") for text in options.hypers)
    agent = make_agent(options.agent, {name: known[name].parse(value) for name, _, value in pairs})
    world = make_world(options.env)
    assert isinstance(world, HostEnv)
    gflops: list[float] = []
    best = measure(agent, world, options.steps, lambda: gflops.append(matmul_gflops(0.3)))
    whole, own, call, update = (best[name] for name in ("whole", "environment", "call", "update"))
    print(f"{options.agent} on {options.env}, one lane, one core; microseconds per step")
    print(f"{whole:8.0f}  a whole step")
    print(f"{own:8.0f}  of it the environment's own step")
    print(f"{call:8.0f}  the compiled call that stores, learns and acts")
    print(f"{update:8.0f}  the same, compiled into a loop: without any call")
    print(f"{whole - own - call:8.0f}  the loop on the host: whole - environment - call")
    print(f"{call - update:8.0f}  what XLA needs to begin and end a call")
    work = operations(agent, world.spaces)
    if work:
        fraction = work / update / 1e3 / max(gflops)
        print(f"{fraction:8.2f}  of the rate of a large matrix product here, {max(gflops):.0f} GFLOP/s, has the update")


def measure(agent: Any, world: Any, steps: int, between: Callable[[], None]) -> dict[str, float]:
    """Microseconds per step of each part, the best of all rounds."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from greedyac.training.host_lanes import HostLaneBatch
    from greedyac.training.host_program import Given, Packing, host_step
    from greedyac.training.program import Program

    lanes = HostLaneBatch([agent], world, [0], 10**9)
    lanes.advance(agent.batch_size + 200)
    program = Program(lanes.program.agent, lanes.program.spaces)
    packing = Packing(jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], lanes.state)))
    given = Given.of(lanes._keys, lanes._hypers, lanes._edges)
    names = list(lanes._hypers)

    def loop(count: Any, memory: Any, packed: Any, told: Any) -> Any:
        def body(time: Any, carry: Any) -> Any:
            memory, packed, total = carry
            now = told._replace(numbers=told.numbers.at[0].add(time))
            memory, packed, action = host_step(program, packing, names, memory, packed, given, now, learn=True)
            return memory, packed, total + action.sum()

        return jax.lax.fori_loop(0, count, body, (memory, packed, jnp.float32(0)))

    looped = jax.jit(loop, donate_argnums=(1, 2), compiler_options={"xla_backend_optimization_level": 1})
    told = lanes._told
    told.numbers[:3] = lanes.time, 1, 0
    on_device = jax.tree.map(jnp.asarray, told)

    def whole() -> None:
        lanes.advance(steps)

    def calls() -> None:
        memory, packed = lanes.state.replay, lanes._compiled.pack(lanes.state._replace(replay=None))
        for _ in range(steps):
            memory, packed, action = lanes._compiled.learn(memory, packed, given, told)
            np.asarray(action)
        lanes.state = lanes._compiled.unpack(packed)._replace(replay=memory)

    def update() -> None:
        packed = lanes._compiled.pack(lanes.state._replace(replay=None))
        memory, packed, total = looped(np.int32(steps), lanes.state.replay, packed, on_device)
        total.block_until_ready()
        lanes.state = lanes._compiled.unpack(packed)._replace(replay=memory)

    env = world.make()
    env.action_space.seed(0)

    def environment() -> None:
        env.reset(seed=0)
        for action in actions:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    actions = [env.action_space.sample() for _ in range(steps)]
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, part in (("whole", whole), ("environment", environment), ("call", calls), ("update", update)):
            began = time.perf_counter()
            part()
            taken = (time.perf_counter() - began) * 1e6 / steps
            best[name] = min(taken, best.get(name, taken))
        between()
    return best


if __name__ == "__main__":
    main()
