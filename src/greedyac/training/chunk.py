"""A chunk of runs: trained a few lanes at a time, and published as one file of rows and a checkpoint per run."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from greedyac.training.checkpoint import save_checkpoint
from greedyac.training.loop import Lanes, Outcome
from greedyac.training.rows import SCHEMA, make_row
from greedyac.training.runs import Run

BLOCK_SECONDS = 0.3
"""How often training comes back to Python. Long enough to cost nothing, short enough for a live progress bar."""


def train_runs(runs: Sequence[Run], width: int, on_steps: Callable[[int], None]) -> list[tuple[Run, Outcome, float]]:
    """Train runs of one program side by side; `on_steps` hears of run-steps done. Seconds are each run's share."""
    started = time.perf_counter()
    lanes = Lanes(
        [run.make_agent() for run in runs],
        runs[0].make_env(),
        [run.seed for run in runs],
        runs[0].steps,
        width,
    )
    lanes.advance(0)  # compiles
    on_steps(0)
    block = 10
    while lanes.time < lanes.steps:
        before, begun = lanes.time, time.perf_counter()
        lanes.advance(block)
        on_steps((lanes.time - before) * len(runs))
        rate = block / (time.perf_counter() - begun)
        block = max(1, min(int(rate * BLOCK_SECONDS), 10 * block))
    seconds = (time.perf_counter() - started) / len(runs)
    return [(run, outcome, seconds) for run, outcome in zip(runs, lanes.outcomes(), strict=True)]


def publish(finished: Sequence[tuple[Run, Outcome, float]], folder: Path, name: str) -> None:
    """Write a checkpoint per run, then `name`.parquet with all rows: that file says that the chunk is done."""
    rows: list[dict[str, Any]] = []
    for run, outcome, seconds in finished:
        rows.append(make_row(run, outcome, seconds))
        save_checkpoint(folder / f"{run.run_id}.safetensors", run, outcome.actor)
    temporary = folder / f".{name}.tmp"
    pl.DataFrame(rows, SCHEMA).write_parquet(temporary)
    temporary.replace(folder / f"{name}.parquet")
