"""A chunk of runs: the unit of work and of loss. Trained a few lanes at a time, and published as one file of rows."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from greedyac.training.checkpoint import save_checkpoint
from greedyac.training.files import DamagedError, chunk_id, publish_rows, read_rows, rows_path
from greedyac.training.loop import Lanes, Outcome
from greedyac.training.rows import SCHEMA, make_row
from greedyac.training.runs import Case, Run


@dataclass(frozen=True, eq=False)
class Chunk:
    """Runs of one program and length, trained `width` lanes at a time; their rows go to one file in `folder`.

    With `checkpoints` each run's policy is saved beside that file.
    """

    runs: Sequence[Run]
    width: int
    folder: Path
    checkpoints: bool = False

    @cached_property
    def chunk_id(self) -> str:
        """A hash of the runs' ids; the name of the file."""
        return chunk_id(run.run_id for run in self.runs)

    @property
    def case(self) -> Case:
        """What its runs have in common, seeds and swept hyperparameters aside."""
        return self.runs[0].case

    def to_json(self) -> str:
        """One line of JSON, as workers take it."""
        runs, folder = [run.to_json() for run in self.runs], str(self.folder.absolute())
        return json.dumps({"runs": runs, "width": self.width, "folder": folder, "checkpoints": self.checkpoints})

    @classmethod
    def from_json(cls, text: str) -> "Chunk":
        """The inverse of `to_json`."""
        values = json.loads(text)
        runs = [Run.from_json(run) for run in values["runs"]]
        return cls(runs, values["width"], Path(values["folder"]), values["checkpoints"])


class Receipt(NamedTuple):
    """What a worker says of a chunk that is published."""

    chunk_id: str
    runs: int
    diverged: int
    links: bool
    """Whether the file system has hard links."""


BLOCK_SECONDS = 0.3
"""How often training comes back to Python. Long enough to cost nothing, short enough for a live progress bar."""


def train_chunk(chunk: Chunk, on_steps: Callable[[int], None]) -> Receipt:
    """Train a chunk's runs and publish them, unless they are; `on_steps` hears of run-steps done, 0 when compiled."""
    links, rows = True, None
    with suppress(FileNotFoundError, DamagedError):
        rows = read_rows([rows_path(chunk.folder, [run.run_id for run in chunk.runs])])
    if rows is None:
        made: list[dict[str, Any]] = []
        for first in range(0, len(chunk.runs), chunk.width):
            runs, started = chunk.runs[first : first + chunk.width], time.perf_counter()
            outcomes = _train(runs, chunk.width, on_steps)
            seconds = (time.perf_counter() - started) / len(runs)
            made += [make_row(run, outcome, seconds) for run, outcome in zip(runs, outcomes, strict=True)]
            if chunk.checkpoints:
                for run, outcome in zip(runs, outcomes, strict=True):
                    save_checkpoint(chunk.folder / f"{run.run_id}.safetensors", run, outcome.actor)
        rows = pl.DataFrame(made, SCHEMA)
        links = publish_rows(chunk.folder, rows)
    diverged = rows.filter(pl.col("status") == "diverged").height
    return Receipt(chunk.chunk_id, rows.height, diverged, links)


def _train(runs: Sequence[Run], width: int, on_steps: Callable[[int], None]) -> list[Outcome]:
    """What the runs come to, side by side."""
    case = runs[0].case
    lanes = Lanes([run.case.learner for run in runs], case.world, [run.seed for run in runs], case.steps, width)
    on_steps(0)
    block = 10
    while lanes.time < lanes.steps:
        before, begun = lanes.time, time.perf_counter()
        lanes.advance(block)
        on_steps((lanes.time - before) * len(runs))
        rate = block / (time.perf_counter() - begun)
        block = max(1, min(int(rate * BLOCK_SECONDS), 10 * block))
    return lanes.outcomes()
