"""A chunk of runs: the unit of work and of loss. Trained a few lanes at a time, and published as one file of rows."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from greedyac.core.errors import InputError
from greedyac.execution.rows import make_row
from greedyac.results.files import DamagedError, chunk_id, publish_rows, read_rows, rows_path
from greedyac.results.provenance import on_accelerator
from greedyac.results.schema import SCHEMA
from greedyac.training.blocks import Periodic, make_lanes, run_blocks
from greedyac.training.checkpoint import Policy, read_checkpoint, save_checkpoint, save_snapshot
from greedyac.training.config import Run, RunConfig
from greedyac.training.lanes import Snapshot


@dataclass(frozen=True, eq=False)
class Chunk:
    """Runs of one program and length, trained `width` lanes at a time; their rows go to one file in `folder`.

    With `checkpoints` each run's policy is saved beside that file.
    """

    runs: Sequence[Run]
    width: int
    folder: Path
    checkpoints: bool = False
    checkpoint_every: int = 0
    """Steps after which each run is saved in the middle, to go on from there after an interruption; 0 for never."""
    lanes: int = 0
    """How many advance side by side on an accelerator, if not `width`, which suits a core."""

    @cached_property
    def chunk_id(self) -> str:
        """A hash of the runs' ids; the name of the file."""
        return chunk_id(run.run_id for run in self.runs)

    @property
    def config(self) -> RunConfig:
        """What its runs have in common, seeds and traced hyperparameters aside."""
        return self.runs[0].config

    @property
    def all_lanes(self) -> int:
        """Those of all rounds on a core: also lanes without a run take their time."""
        return self.width * math.ceil(len(self.runs) / self.width)

    def to_json(self) -> str:
        """One line of JSON, as workers take it."""
        runs, folder = [run.to_json() for run in self.runs], str(self.folder.absolute())
        saved = {"checkpoints": self.checkpoints, "checkpoint_every": self.checkpoint_every}
        widths = {"width": self.width, "lanes": self.lanes}
        return json.dumps({"runs": runs, "numerics": _numerics(self.config), **widths, "folder": folder, **saved})

    @classmethod
    def from_json(cls, text: str) -> "Chunk":
        """The inverse of `to_json`; `InputError` if the runs can't be trained here, or would have other numbers."""
        values = json.loads(text)
        runs = [Run.from_json(run) for run in values["runs"]]
        config, asked = runs[0].config, values["numerics"]
        for name, ours, theirs in zip((config.agent, config.env), _numerics(config), asked, strict=True):
            if ours != theirs:
                raise InputError(f"the numerics of {name} are {ours!r} here and {theirs!r} where it was asked for")
        saved = values["checkpoints"], values["checkpoint_every"]
        return cls(runs, values["width"], Path(values["folder"]), *saved, lanes=values["lanes"])


def _numerics(config: RunConfig) -> list[int]:
    return [config.learner.numerics, config.world.numerics]


def middle_path(folder: Path, run: Run) -> Path:
    """Where a run in the middle is saved."""
    return folder / f"{run.run_id}.middle.safetensors"


def read_middle(folder: Path, run: Run) -> Snapshot | None:
    """A run in the middle, if it was saved; `InputError` if its file is damaged or of another run."""
    path = middle_path(folder, run)
    if not path.exists():
        return None
    held = read_checkpoint(path)
    if held.policy.run.run_id != run.run_id:
        raise InputError(f"checkpoint {str(path)!r}: it is of another run")
    return held.snapshot


class Receipt(NamedTuple):
    """What a worker says of a chunk that is published."""

    file: str | None
    """The name of its file of rows; none if all of its runs failed."""
    runs: int
    diverged: int
    links: bool
    """Whether the file system has hard links."""
    failed: dict[str, str]
    """Runs whose environments raised, by their ids, and what these said; they are not published."""


def train_chunk(chunk: Chunk, on_steps: Callable[[int], None]) -> Receipt:
    """Train a chunk's runs and publish them, unless they are; `on_steps` hears of run-steps done, 0 when compiled."""
    links, rows, failed = True, None, {}
    with suppress(FileNotFoundError, DamagedError):
        rows = read_rows([rows_path(chunk.folder, [run.run_id for run in chunk.runs])])
    if rows is None:
        made: list[dict[str, Any]] = []
        width = chunk.lanes if chunk.lanes and on_accelerator() else chunk.width
        for first in range(0, len(chunk.runs), width):
            made += _train(chunk, chunk.runs[first : first + width], width, on_steps)
        failed = {row["run_id"]: row["error"] for row in made if row["status"] == "failed"}
        rows = pl.DataFrame([row for row in made if row["run_id"] not in failed], SCHEMA)
        if rows.height:
            links = publish_rows(chunk.folder, rows)
    diverged = rows.filter(pl.col("status") == "diverged").height
    file = rows_path(chunk.folder, rows["run_id"]).name if rows.height else None
    return Receipt(file, rows.height, diverged, links, failed)


def _train(chunk: Chunk, runs: Sequence[Run], width: int, on_steps: Callable[[int], None]) -> list[dict[str, Any]]:
    """The rows of runs that are trained side by side; those that go on from different times one after another."""
    saved = {run.run_id: read_middle(chunk.folder, run) if chunk.checkpoint_every else None for run in runs}
    times = {run_id: snapshot.time if snapshot else 0 for run_id, snapshot in saved.items()}
    rows: dict[str, dict[str, Any]] = {}
    for moment in sorted(set(times.values())):
        same = [run for run in runs if times[run.run_id] == moment]
        snapshots = [snapshot for run in same if (snapshot := saved[run.run_id])]
        made = _train_together(chunk, same, width, snapshots, on_steps)
        rows |= {row["run_id"]: row for row in made}
    return [rows[run.run_id] for run in runs]


def _train_together(
    chunk: Chunk, runs: Sequence[Run], width: int, snapshots: Sequence[Snapshot], on_steps: Callable[[int], None]
) -> list[dict[str, Any]]:
    """The rows of runs that are, and stay, at one time."""
    started, config = time.perf_counter(), runs[0].config
    agents, seeds = [run.config.learner for run in runs], [run.seed for run in runs]
    lanes = make_lanes(agents, config.world, seeds, config.steps, width, snapshots)

    def evaluate() -> None:
        lanes.evaluate(config.eval_episodes)

    def save() -> None:
        for run, snapshot in zip(runs, lanes.snapshots(), strict=True):
            save_snapshot(middle_path(chunk.folder, run), run, snapshot)

    due = [Periodic(config.eval_every, evaluate)] if config.eval_every else []
    due += [Periodic(chunk.checkpoint_every, save)] if chunk.checkpoint_every else []
    with contextlib.closing(lanes):
        on_steps(0)
        run_blocks(lanes, lambda steps: on_steps(steps * len(runs)), *due)
        outcomes = lanes.outcomes()
    seconds = (time.perf_counter() - started) / len(runs)
    for run, outcome in zip(runs, outcomes, strict=True):
        if chunk.checkpoints and outcome.error is None:
            save_checkpoint(chunk.folder / f"{run.run_id}.safetensors", Policy.of(run, outcome))
    return [make_row(run, outcome, seconds) for run, outcome in zip(runs, outcomes, strict=True)]
