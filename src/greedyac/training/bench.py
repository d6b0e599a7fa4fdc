"""How fast the agents train here: run-steps per second on all cores, beside what the machine can do at best.

Speeds of different days or machines can't be compared; ratios within one run can.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from greedyac.agents import make_agent
from greedyac.agents.actor_critic import ActorCritic
from greedyac.envs import make_env
from greedyac.hypers import values_of
from greedyac.spaces import Box, Spaces
from greedyac.training.chunk import Chunk
from greedyac.training.pool import cores, train_chunks
from greedyac.training.runs import MAX_STEPS, Run

ENVS = ("Pendulum-CA", "Pendulum-DA")
WARM_UP = 1.0
"""Seconds after all workers have compiled, before counting starts."""

PASSES = {
    # agent: (policy, critic) with continuous actions, the same with discrete ones. A gradient takes three passes.
    "greedy-ac": ((1 + 3 + 3, 1 + 3 + 30), (1 + 3, 1 + 3 + 1)),  # S', actor, proposal; S', fit, samples or all actions
    "sac": ((1 + 3, 2 + 6 + 4), (1 + 3, 2 + 6 + 2)),  # S', actor; S', fit, actor (there and back): each of two critics
    "vanilla-ac": ((1 + 3, 1 + 3 + 29), (1 + 3, 1 + 3 + 1)),  # S', actor; S', fit, samples or all actions
}
"""Forward passes of a whole batch through one network that one update takes in the plain algorithm, at the defaults."""


class Measured(NamedTuple):
    """How fast one agent trains on one environment; the fields that `greedyac bench --json` prints."""

    agent: str
    env: str
    run_steps_per_second: float
    gflops: float
    fraction_of_matmul: float
    lanes: int
    workers: int


class Bench(NamedTuple):
    """All measurements of one run of the benchmark."""

    cores: int
    matmul_gflops: float
    results: list[Measured]


def operations(agent: str, spaces: Spaces) -> int:
    """Floating-point operations of one step of the plain dense algorithm: one action, one update.

    Matrix products only, two operations per weight and input. It is the same number whatever tricks the code uses.
    """
    settings, features, action = ActorCritic(), spaces.observation.size, spaces.action
    if isinstance(action, Box):
        (policy_passes, critic_passes), _ = PASSES[agent]
        policy = _dense(features, *settings.hidden, 2 * action.size)
        critic = _dense(features + action.size, *settings.hidden, 1)
    else:
        _, (policy_passes, critic_passes) = PASSES[agent]
        policy = critic = _dense(features, *settings.hidden, action.count)
    return policy + settings.batch_size * (policy_passes * policy + critic_passes * critic)


def _dense(*widths: int) -> int:
    """Operations of one input's way through a network."""
    return sum(2 * inputs * outputs for inputs, outputs in pairwise(widths))


def matmul_gflops(seconds: float = 1.0, size: int = 2048) -> float:
    """10⁹ operations per second in the product of two square float32 matrices, on one thread per core."""
    matrix = np.random.default_rng(0).random((size, size), np.float32)
    matrix @ matrix  # wakes the threads
    began, products = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        matrix @ matrix
        products += 1
    return products * 2 * size**3 / passed / 1e9


def run_steps_per_second(agent: str, env: str, lanes: int, seconds: float) -> float:
    """The speed of training on all cores at once, once every worker has compiled and warmed up."""
    workers, hypers = len(cores()), values_of(make_agent(agent))
    runs = [Run(agent, env, seed, MAX_STEPS, hypers) for seed in range(workers * lanes)]
    chunks = [Chunk(f"bench-{worker}", runs[worker::workers], lanes, Path()) for worker in range(workers)]
    with contextlib.closing(train_chunks(chunks, workers)) as events:
        return sustained(((time.perf_counter(), event["steps"]) for event in events), workers, seconds)


def sustained(events: Iterable[tuple[float, int]], workers: int, seconds: float) -> float:
    """The rate of the steps in `(time, steps)` events over that many seconds, after all workers said 0: compiled."""
    compiled, done = 0, 0
    warm = began = float("inf")
    for now, steps in events:
        compiled += steps == 0
        if compiled < workers:
            continue
        warm = min(warm, now + WARM_UP)
        if began < now:
            done += steps
            if now >= began + seconds:
                return done / (now - began)
        elif now >= warm:
            began = now
    raise AssertionError("the events ended")  # runs of MAX_STEPS don't


def bench(agents: Iterable[str], seconds: float, lanes: int, on_start: Callable[[str, str], None]) -> Bench:
    """Measure these agents on a continuous and a discrete environment, and matrix products in between."""
    rates, products = {}, [matmul_gflops()]
    for agent, env in itertools.product(agents, ENVS):
        on_start(agent, env)
        rates[agent, env] = run_steps_per_second(agent, env, lanes, seconds)
        products.append(matmul_gflops())
    matmul, results = median(products), []
    for (agent, env), rate in rates.items():
        gflops = rate * operations(agent, make_env(env).spaces) / 1e9
        results.append(Measured(agent, env, rate, gflops, gflops / matmul, lanes, len(cores())))
    return Bench(len(cores()), matmul, results)
