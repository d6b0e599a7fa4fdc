"""How fast the agents train here: run-steps per second on all cores, beside what the machine can do at best.

Speeds of different days or machines can't be compared; ratios within one run can.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple

import numpy as np

from greedyac.agents import make_agent
from greedyac.core.fields import values_of
from greedyac.core.machine import cores
from greedyac.execution.cost import operations
from greedyac.execution.plan import best_width
from greedyac.execution.speed import measure
from greedyac.training.config import MAX_STEPS, RunConfig

ENVS = ("Pendulum-CA", "Pendulum-DA")


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


def matmul_gflops(seconds: float = 1.0, size: int = 2048) -> float:
    """10⁹ operations per second in the product of two square float32 matrices, on one thread per core."""
    matrix = np.random.default_rng(0).random((size, size), np.float32)
    matrix @ matrix  # wakes the threads
    began, products = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        matrix @ matrix
        products += 1
    return products * 2 * size**3 / passed / 1e9


def bench(agents: Iterable[str], seconds: float, lanes: int | None, on_start: Callable[[str, str], None]) -> Bench:
    """Measure these agents on a continuous and a discrete environment, and matrix products in between.

    Without a number of lanes each worker has as many as in a study.
    """
    measured, products = [], [matmul_gflops()]
    for agent, env in itertools.product(agents, ENVS):
        on_start(agent, env)
        config = default_config(agent, env)
        width = lanes or best_width(config)
        measured.append((config, width, measure(config, len(cores()), width, seconds).run_steps_per_second))
        products.append(matmul_gflops())
    matmul, results = median(products), []
    for config, width, rate in measured:
        gflops = rate * operations(config.learner, config.world.spaces) / 1e9
        results.append(Measured(config.agent, config.env, rate, gflops, gflops / matmul, width, len(cores())))
    return Bench(len(cores()), matmul, results)


def default_config(agent: str, env: str) -> RunConfig:
    """An agent with its defaults, which trains for as long as one likes."""
    return RunConfig(agent, env, MAX_STEPS, values_of(make_agent(agent)))
