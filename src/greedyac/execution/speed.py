"""How fast a program trains on all workers at once: what a study's estimate and the benchmark measure."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from greedyac.core.errors import WorkerError
from greedyac.execution.chunk import Chunk
from greedyac.execution.local import train_chunks
from greedyac.execution.pool import Events
from greedyac.training.config import MAX_STEPS, Run, RunConfig

WARM_UP = 1.0
"""Seconds after all workers have compiled, before counting starts."""


class Speed(NamedTuple):
    """How fast a program trains, and how long it took to compile."""

    run_steps_per_second: float
    compile_seconds: float


def measure(config: RunConfig, workers: int, lanes: int, seconds: float, cached: bool = True) -> Speed:
    """The speed of training on all workers at once, once every one of them has compiled and warmed up.

    Only if it is not `cached`, the time of compiling does not depend on what was compiled before.
    """
    config = replace(config, steps=MAX_STEPS)
    runs = [Run(config, seed) for seed in range(workers * lanes)]
    chunks = [Chunk(runs[worker::workers], lanes, Path()) for worker in range(workers)]
    ready = compiled = 0.0

    def steps(events: Events) -> Iterator[tuple[float, int]]:
        nonlocal ready, compiled
        for event in events:
            now = time.perf_counter()
            if event["event"] == "failed":
                raise WorkerError(event["error"])
            if event["event"] == "ready":
                ready = now
            if event["event"] == "steps":
                compiled = compiled if event["steps"] else now
                yield now, event["steps"]

    with contextlib.closing(train_chunks(chunks, workers, cached=cached)) as events:
        rate = sustained(steps(events), workers, seconds)
    return Speed(rate, compiled - ready)


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
