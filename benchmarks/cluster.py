"""What the Dask engine costs: time beside the local engine, and how many tiny chunks a second it hands out.

    python benchmarks/cluster.py [overhead] [rate] [--steps 40000] [--rounds 2] [--chunks 2000]

Each on a new cluster of this machine, one worker per core, whose start is not counted. Noisy: compare within one run.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from greedyac.cluster import connect
from greedyac.cluster.engine import DaskEngine, _Members
from greedyac.study.spec import Study, parse_study
from greedyac.study.store import Store
from greedyac.study.sweep import Engine, make_plan, run_plan
from greedyac.training.cores import cores

PARTS = ("overhead", "rate")
STUDY = (
    'name = "cluster"\nsteps = {steps}\nseeds = "0-{last}"\n[[cells]]\nagents = ["{agent}"]\nenvs = ["Pendulum-CA"]\n'
)


class Swept(NamedTuple):
    """How a study went in a new store."""

    seconds: float
    chunks: int
    own_seconds: float
    """Processor time of this process, in which the sweep and Dask's scheduler run."""


@contextmanager
def local() -> Iterator[None]:
    """Processes of this machine."""
    yield None


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
        for name, place in (("local", local()), ("Dask", dask())):
            with place as engine:
                swept = _sweep(study, engine, chunk_seconds=1.0)
            totals[name] += swept.seconds
            each = swept.seconds * len(cores()) / swept.chunks
            print(f"{name}: {swept.chunks} chunks in {swept.seconds:.1f} s, about {each:.0f} s each", flush=True)
    print(f"Dask beside local, {rounds} rounds: {totals['Dask'] / totals['local'] - 1:+.1%}")


def rate(chunks: int) -> None:
    """Chunks of four runs of the random agent, 100 steps each: what takes time is handing out and publishing."""
    study = parse_study(STUDY.format(steps=100, last=4 * chunks - 1, agent="random"))
    places = {"local": local(), "Dask": dask(), "Dask, --publish client": dask(publish=True)}
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
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS))
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=2000)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(unknown)}: allowed: {', '.join(PARTS)}")
    parts = options.parts or PARTS
    if "overhead" in parts:
        overhead(options.steps, options.rounds)
    if "rate" in parts:
        rate(options.chunks)


if __name__ == "__main__":
    main()
