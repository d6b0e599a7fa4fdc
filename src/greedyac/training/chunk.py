"""A chunk of runs: trained a few lanes at a time, and published as one file of rows and a checkpoint per run."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from greedyac.training.checkpoint import save_checkpoint
from greedyac.training.loop import Lanes, Outcome
from greedyac.training.rows import SCHEMA, make_row
from greedyac.training.runs import Run


@dataclass(frozen=True)
class Chunk:
    """Runs of one program, trained `width` lanes wide and published in `folder` under `name`."""

    name: str
    runs: Sequence[Run]
    width: int
    folder: Path

    def to_json(self) -> str:
        """One line of JSON, as workers take it."""
        runs = [run.to_json() for run in self.runs]
        return json.dumps({"name": self.name, "runs": runs, "width": self.width, "folder": str(self.folder.absolute())})

    @classmethod
    def from_json(cls, text: str) -> "Chunk":
        """The inverse of `to_json`."""
        values = json.loads(text)
        return cls(values["name"], [Run(**run) for run in values["runs"]], values["width"], Path(values["folder"]))


BLOCK_SECONDS = 0.3
"""How often training comes back to Python. Long enough to cost nothing, short enough for a live progress bar."""


def train_chunk(chunk: Chunk, on_steps: Callable[[int], None]) -> None:
    """Train a chunk's runs side by side and publish them; `on_steps` hears of run-steps done."""
    started, runs = time.perf_counter(), chunk.runs
    agents, seeds = [run.make_agent() for run in runs], [run.seed for run in runs]
    lanes = Lanes(agents, runs[0].make_env(), seeds, runs[0].steps, chunk.width)
    lanes.advance(0)  # compiles
    on_steps(0)
    block = 10
    while lanes.time < lanes.steps:
        before, begun = lanes.time, time.perf_counter()
        lanes.advance(block)
        on_steps((lanes.time - before) * len(runs))
        rate = block / (time.perf_counter() - begun)
        block = max(1, min(int(rate * BLOCK_SECONDS), 10 * block))
    _publish(chunk, lanes.outcomes(), (time.perf_counter() - started) / len(runs))


def _publish(chunk: Chunk, outcomes: Sequence[Outcome], seconds: float) -> None:
    """Write a checkpoint per run, then one file with all rows: that file says that the chunk is done."""
    rows = []
    for run, outcome in zip(chunk.runs, outcomes, strict=True):
        rows.append(make_row(run, outcome, seconds))
        save_checkpoint(chunk.folder / f"{run.run_id}.safetensors", run, outcome.actor)
    temporary = chunk.folder / f".{chunk.name}.tmp"
    pl.DataFrame(rows, SCHEMA).write_parquet(temporary)
    temporary.replace(chunk.folder / f"{chunk.name}.parquet")
