"""What the Dask engine costs: time beside the local engine, how many tiny chunks a second it hands out, and what Dask
takes for itself.

    python benchmarks/cluster.py [overhead] [rate] [idle] [--steps 40000] [--rounds 2] [--chunks 2000] [--seconds 30]

Each on a new cluster of this machine, one worker per core, whose start is not counted. Noisy: compare within one run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import psutil

from greedyac.core.machine import cores
from greedyac.execution.dask import connect
from greedyac.execution.dask.engine import DaskEngine, _Members
from greedyac.study.spec import Study, parse_study
from greedyac.study.store import Store
from greedyac.study.sweep import Engine, make_plan, run_plan

PARTS = ("overhead", "rate", "idle")
STUDY = (
    'name = "cluster"\nsteps = {steps}\nseeds = "0-{last}"\n[[cells]]\nagents = ["{agent}"]\nenvs = ["Pendulum-CA"]\n'
)


START_SECONDS = 15.0
"""After which a scheduler and its worker have started."""


class Swept(NamedTuple):
    """How a study went in a new store."""

    seconds: float
    chunks: int
    own_seconds: float
    """Processor time of this process, in which the sweep and Dask's scheduler run."""


@contextmanager
def dask(publish: bool = False) -> Iterator[Engine]:
    """A new cluster of this machine, with a worker per core."""
    with connect.local(len(cores())) as cluster:
        yield DaskEngine(cluster.address, publish).train_chunks


def overhead(steps: int, rounds: int) -> None:
    """The same runs of GreedyAC, two chunks of four for each core, by each engine in turn."""
    study = parse_study(STUDY.format(steps=steps, last=8 * len(cores()) - 1, agent="greedy-ac"))
    totals = {"local": 0.0, "Dask": 0.0}
    for _ in range(rounds):
        for name, place in (("local", nullcontext()), ("Dask", dask())):
            with place as engine:
                swept = _sweep(study, engine, chunk_seconds=1.0)
            totals[name] += swept.seconds
            each = swept.seconds * len(cores()) / swept.chunks
            print(f"{name}: {swept.chunks} chunks in {swept.seconds:.1f} s, about {each:.0f} s each", flush=True)
    print(f"Dask beside local, {rounds} rounds: {totals['Dask'] / totals['local'] - 1:+.1%}")


def rate(chunks: int) -> None:
    """Chunks of four runs of the random agent, 100 steps each: what takes time is handing out and publishing."""
    study = parse_study(STUDY.format(steps=100, last=4 * chunks - 1, agent="random"))
    places: dict[str, AbstractContextManager[Engine | None]] = {"local": nullcontext()}
    places |= {"Dask": dask(), "Dask, --publish client": dask(publish=True)}
    for name, place in places.items():
        with place as engine:
            swept = _sweep(study, engine, chunk_seconds=0.001)
        print(
            f"{name}: {swept.chunks:,} chunks in {swept.seconds:.1f} s, {swept.chunks / swept.seconds:.0f} per second"
        )
    with patch.object(_Members, "batch_seconds", 0.0), dask() as engine:
        swept = _sweep(study, engine, chunk_seconds=0.001)
    rate, own = swept.chunks / swept.seconds, swept.own_seconds / swept.chunks
    print(f"Dask, one chunk in an order: {rate:.0f} per second; scheduler and sweep take {own:.4f} s for each")


def idle(seconds: float) -> None:
    """The processor time of a scheduler and a worker that do nothing, as Dask sets them up and as we do."""
    for name, settings in (("as they come", {}), ("with our settings", connect.CALM)):
        environment = os.environ | connect.variables(settings)
        with tempfile.TemporaryDirectory() as folder:
            words = ("--scheduler-file", f"{folder}/scheduler.json", "--no-dashboard")
            parts = {"scheduler": ("--host", "127.0.0.1", "--port", "0"), "worker": ("--memory-limit", "0")}
            commands = [[sys.executable, "-m", "dask", part, *words, *more] for part, more in parts.items()]
            running = [psutil.Popen(command, env=environment, stderr=subprocess.DEVNULL) for command in commands]
            try:
                time.sleep(START_SECONDS)
                before = [_processor_seconds(part) for part in running]
                time.sleep(seconds)
                after = [_processor_seconds(part) for part in running]
            finally:
                for part in reversed(running):
                    part.terminate()
                    part.wait()
        shares = [(now - then) / seconds for now, then in zip(after, before, strict=True)]
        print(f"{name}: scheduler {shares[0]:.1%}, worker {shares[1]:.1%} of a core", flush=True)


def _processor_seconds(process: psutil.Popen) -> float:
    """Of a process and those that it started."""
    return sum(sum(part.cpu_times()[:2]) for part in (process, *process.children(recursive=True)))


def _sweep(study: Study, engine: Engine | None, chunk_seconds: float) -> Swept:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "store")
        plan = make_plan(study, store, len(cores()), chunk_seconds=chunk_seconds)
        began, own = time.perf_counter(), time.process_time()
        ended = run_plan(plan, store, lambda progress: None, print, engine)
        assert ended.done == ended.runs
        return Swept(time.perf_counter() - began, len(plan.chunks), time.process_time() - own)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    parts = PARTS if "all" in options.parts else options.parts
    if "overhead" in parts:
        overhead(options.steps, options.rounds)
    if "rate" in parts:
        rate(options.chunks)
    if "idle" in parts:
        idle(options.seconds)


if __name__ == "__main__":
    main()
