"""What the study layer costs: planning, reading, memory, and time beside the bare training loop.

    python benchmarks/study.py [plan] [read] [overhead] [estimate] [--steps 100000] [--lanes 4]

Figures of one machine on one day, and noisy: compare them within one run.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from greedyac.core.machine import cores
from greedyac.execution.rows import failed_row
from greedyac.results.files import publish_rows
from greedyac.results.schema import BINS, SCHEMA
from greedyac.study.spec import load_study, parse_study
from greedyac.study.store import Store
from greedyac.study.sweep import estimate, make_plan, run_plan, seconds_of
from greedyac.training.config import Run

PARTS = ("plan", "read", "overhead", "estimate")
GRID = """
name = "grid"
steps = 100_000
seeds = "0-9"
[[cells]]
agents = ["greedy-ac", "sac", "vanilla-ac"]
envs = ["Pendulum-CA", "MountainCar-CA", "Acrobot-CA"]
[cells.sweep]
critic_step_size = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
actor_step_size_scale = [1e-3, 1e-2, 0.1, 1.0, 2.0, 10.0]
entropy_scale = [1e-3, 1e-2, 0.1, 1.0, 10.0]
polyak = [{polyak}]
"""
BARE = """
import os, sys, time
core, lanes, steps = map(int, sys.argv[1:])
os.sched_setaffinity(0, {core})
from greedyac.agents import make_agent
from greedyac.envs import make_env
from greedyac.training.program import LaneBatch
seeds = range(core * lanes, (core + 1) * lanes)
run = LaneBatch([make_agent("greedy-ac")] * lanes, make_env("Pendulum-CA"), seeds, steps)
run.advance(steps)
run.outcomes()
"""


def plan() -> None:
    """Planning 108,000 runs (1,200 settings each on nine pairs, ten seeds), and the memory of the process."""
    text = GRID.replace("{polyak}", ", ".join(str(0.001 * number) for number in range(1, 9)))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        study = parse_study(text)
        planned = make_plan(study, Store.create(Path(folder) / "store"), len(cores()))
        seconds = time.perf_counter() - began
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"planning {planned.missing:,} runs: {seconds:.2f} s; largest memory of the process {megabytes:.0f} MB")


def read() -> None:
    """Reading 30,000 runs' curves, in files of 16 and after `compact`."""
    study, rng = parse_study(GRID.replace("{polyak}", "0.01, 0.02, 0.03")), np.random.default_rng(0)
    runs = list(study.runs().values())[:30_000]
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "store")
        for first in range(0, len(runs), 16):
            publish_rows(store.chunks, pl.DataFrame([_row(run, rng) for run in runs[first : first + 16]], SCHEMA))
        for what in ("in files of 16 runs", "compacted"):
            began = time.perf_counter()
            rows = store.read().rows
            seconds = time.perf_counter() - began
            size = sum(path.stat().st_size for path in store.chunks.iterdir()) / 1e6
            print(f"reading {rows.height:,} runs {what}: {seconds:.2f} s; {size:.1f} MB", flush=True)
            if what != "compacted":
                began = time.perf_counter()
                before, after = store.compact()
                print(f"compacting {before:,} files to {after}: {time.perf_counter() - began:.2f} s", flush=True)


def _row(run: Run, rng: np.random.Generator) -> dict[str, object]:
    curve = rng.normal(size=BINS).astype(np.float32).tolist()
    numbers = {"average_return": curve[0], "final_return": curve[1], "best_return": curve[2], "episodes": 100}
    return {**failed_row(run, ""), "status": "done", "curve": curve, "curve_steps": 1000.0, "seconds": 20.0, **numbers}


def overhead(steps: int, lanes: int) -> None:
    """The same runs by bare loops, one pinned process per core, and by a sweep; both compile."""
    began = time.perf_counter()
    loops = [
        subprocess.Popen([sys.executable, "-c", BARE, str(core), str(lanes), str(steps)], env={"PJRT_NPROC": "1"})
        for core in cores()
    ]
    assert not any(loop.wait() for loop in loops)
    bare = time.perf_counter() - began
    count = lanes * len(cores())
    text = f'seeds = "0-{count - 1}"'
    text += f'\nname = "overhead"\nsteps = {steps}\n[[cells]]\nagents = ["greedy-ac"]\nenvs = ["Pendulum-CA"]\n'
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        store = Store.create(Path(folder) / "store")
        run_plan(make_plan(parse_study(text), store, len(cores())), store, lambda progress: None, print)
        swept = time.perf_counter() - began
    print(f"{count} runs of {steps:,} steps: bare loop {bare:.1f} s, sweep {swept:.1f} s, {swept / bare - 1:+.1%}")


def slice_of(study: str, chunks: int) -> None:
    """Some of a study's chunks, evenly from its plan: how long they take by `sweep --dry-run`'s probes, and do."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "store")
        whole = make_plan(load_study(study), store, len(cores()))
        told = estimate(whole, lambda config: None)
        print(f"{study}: {told.seconds / 3600:.1f} h estimated in all", flush=True)
        few = replace(whole, chunks=whole.chunks[:: -(-len(whole.chunks) // chunks)])
        expected = seconds_of(few, told.probes)
        began = time.perf_counter()
        run_plan(few, store, lambda progress: None, print)
        took = time.perf_counter() - began
    print(
        f"{study}, {len(few.chunks)} chunks: estimated {expected:.0f} s, took {took:.0f} s, {expected / took - 1:+.1%}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--lanes", type=int, default=4)
    options = parser.parse_args()
    parts = PARTS if "all" in options.parts else options.parts
    if "plan" in parts:
        plan()
    if "read" in parts:
        read()
    if "overhead" in parts:
        overhead(options.steps, options.lanes)
    if "estimate" in parts:
        slice_of("paper/sweep-ca", 4)
        slice_of("paper/sweep-da", 4)


if __name__ == "__main__":
    main()
