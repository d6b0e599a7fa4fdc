"""The folder that `greedyac train` writes: summary, curves, picture and a checkpoint per seed."""

import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from greedyac.analysis.figures import learning_curves
from greedyac.api.train import TrainResult
from greedyac.core.atomic import write_atomically
from greedyac.core.errors import InputError
from greedyac.core.lock import locked
from greedyac.results.schema import RESTARTED
from greedyac.training.checkpoint import save_checkpoint
from greedyac.training.config import Run

_OURS = ("summary.json", "curves.parquet", "curves.png", "seed-*.safetensors")
_STAGING = ".writing-"
UNFINISHED, _PLAN = "unfinished", "train.json"
_LAST = ("summary.json", "report.html")
"""What a reader looks at first is put in place last."""


def first_free(stem: str) -> Path:
    """Make the folder `stem`-0, or the first of its successors that does not exist yet."""
    for index in itertools.count():
        with contextlib.suppress(FileExistsError):
            folder = Path(f"{stem}-{index}")
            folder.mkdir()
            break
    return folder


@contextmanager
def claimed(out: Path | None, stem: str) -> Iterator[Path]:
    """The folder `out`, or the first free one of `stem`, for this process alone; one that stays empty is removed.

    Refuses a folder that another process is using, and leaves it alone.
    """
    with _made(out or Path(stem).parent):
        with _refused(out or Path(stem).parent):
            folder = out or first_free(stem)
        try:
            with reserved(folder):
                yield folder
        finally:
            if out is None:
                _remove_empty([folder])


def reserved(out: Path) -> AbstractContextManager[None]:
    """Keep other processes from training into a folder; refuses one that another process trains into."""
    used = "is in use by another greedyac train, resume or demo; wait until it has ended, or choose another folder"
    return locked(out, f"output folder {str(out)!r} {used}")


@dataclass
class Output:
    """Where files are written for now, and the folder where they go at the end."""

    staging: Path
    out: Path
    overwrite: bool
    ours: Sequence[str]

    def publish(self, complete: bool) -> None:
        """Move the files to `out`, in place of an older result; an incomplete one never replaces another."""
        if _results(self.out, self.ours) and not (self.overwrite and complete):
            self.out = first_free(f"{self.out}-{'new' if complete else 'incomplete'}")
        fresh = sorted(path for path in self.staging.rglob("*") if path.is_file())
        fresh.sort(key=lambda path: path.name in _LAST)
        targets = [self.out / path.relative_to(self.staging) for path in fresh]
        for path, target in zip(fresh, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        for path in set(_results(self.out, self.ours)) - set(targets):
            path.unlink()

    def clear_left(self) -> None:
        """Remove the empty folders that interrupted trainings left."""
        for folder in self.out.glob(f"{_STAGING}*"):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextmanager
def output_folder(out: Path, overwrite: bool, ours: Sequence[str] = _OURS) -> Iterator[Output]:
    """A staging folder inside `out`, to be filled and then published; `ours` are patterns of an older result's files.

    Refuses, before anything is trained, a folder that holds a result (unless `overwrite`) or can't be written. Without
    `publish`, `out` is left as it was.
    """
    with _refused(out):
        held = _results(out, ours)
    if held and not overwrite:
        known = f"already holds a result ({held[0].name}); --overwrite replaces it"
        raise InputError(f"output folder {str(out)!r} {known}")
    with _made(out):
        with _refused(out):
            staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=out))
        try:
            yield Output(staging, out, overwrite, ours)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _made(out: Path) -> Iterator[None]:
    """Make a folder and those that it is in; what was made and stays empty is removed."""
    created: list[Path] = []
    try:
        with _refused(out):
            created = [folder for folder in (out, *out.parents) if not folder.exists()]
            out.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        _remove_empty(created)


@contextmanager
def _refused(out: Path) -> Iterator[None]:
    """Say in one line what the system refuses."""
    try:
        yield
    except OSError as error:
        raise InputError(f"output folder {str(out)!r} can't be written: {error.strerror}") from None


class Asked(NamedTuple):
    """What a call of `greedyac train` came to, once it was checked."""

    runs: list[Run]
    overwrite: bool
    checkpoint_every: int | None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({**self._asdict(), "runs": [run.to_json() for run in self.runs]}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Asked":
        """The inverse of `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "runs": [Run.from_json(run) for run in values["runs"]]})


@contextmanager
def unfinished_folder(out: Path, asked: Asked) -> Iterator[Path]:
    """Where runs under way are kept: in `out` if they are to be resumed after an interruption, else nowhere for long.

    Refuses a folder that holds other unfinished runs, unless asked to overwrite.
    """
    folder = out / UNFINISHED
    plan = folder / _PLAN
    if plan.exists() and plan.read_text() != asked.to_json():
        if not asked.overwrite:
            known = f"holds an unfinished result: `greedyac resume {out}` goes on with it, --overwrite begins anew"
            raise InputError(f"output folder {str(out)!r} {known}")
        shutil.rmtree(folder)
    if not asked.checkpoint_every:
        with tempfile.TemporaryDirectory(prefix="greedyac-") as temporary:
            yield Path(temporary)
        return
    fresh = not plan.exists()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(plan, asked.to_json().encode())
    try:
        yield folder
    except InputError:
        if fresh:  # it can't be trained: then there is nothing to resume
            shutil.rmtree(folder, ignore_errors=True)
        raise


def read_unfinished(out: Path) -> Asked | None:
    """What was asked of a folder whose runs have not finished; None if all have."""
    plan = out / UNFINISHED / _PLAN
    try:
        return Asked.from_json(plan.read_text())
    except (FileNotFoundError, NotADirectoryError):
        if _results(out, _OURS):
            return None
        allowed = "the folder of a `greedyac train … --checkpoint-every N` that was interrupted"
        raise InputError(f"{str(out)!r} can't be resumed: it holds no training; allowed: {allowed}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{str(plan)!r} can't be read ({error!r})") from None


def _remove_empty(folders: list[Path]) -> None:
    """Remove those folders that are empty, the innermost first."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _results(out: Path, ours: Sequence[str]) -> list[Path]:
    return sorted(path for pattern in ours for path in out.glob(pattern))


def write_result(result: TrainResult, folder: Path) -> dict[str, Any]:
    """Write the result of one setting to a folder; returns the summary."""
    summary = summarise(result)
    for policy in result.policies:
        save_checkpoint(folder / f"seed-{policy.run.seed}.safetensors", policy)
    result.curves.write_parquet(folder / "curves.parquet")
    (folder / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    learning_curves(result.curves, single_runs=True).savefig(folder / "curves.png")
    return summary


def summarise(result: TrainResult) -> dict[str, Any]:
    """The contents of summary.json."""
    rows, config = result.curves, result.config
    failed = rows.filter(pl.col("status") == "failed")
    return {
        "agent": config.agent,
        "env": config.env,
        "env_options": config.env_options,
        "steps": config.steps,
        "seeds": rows["seed"].to_list(),
        "hypers": config.hypers,
        "average_return": _over_seeds(rows, "average_return"),
        "final_return": _over_seeds(rows, "final_return"),
        "best_return": _over_seeds(rows, "best_return"),
        "run_steps_per_second": result.run_steps_per_second,
        "diverged": rows.filter(pl.col("status") == "diverged")["seed"].to_list(),
        "failed": {str(seed): error for seed, error in failed.select("seed", "error").iter_rows()},
        "restarted": rows.filter(pl.col("error") == RESTARTED)["seed"].to_list(),
        **_evaluated(rows),
    }


def _evaluated(rows: pl.DataFrame) -> dict[str, Any]:
    """The last offline evaluation, if there were any."""
    if not (known := rows.drop_nulls("eval_steps")).height:
        return {}
    last = known.with_columns(last_evaluation=pl.col("eval_curve").list.last().cast(pl.Float64))
    return {"eval_every": known["eval_steps"][0], "last_evaluation": _over_seeds(last, "last_evaluation")}


def _over_seeds(rows: pl.DataFrame, column: str) -> dict[str, Any]:
    values = dict(zip(rows["seed"].to_list(), rows[column].to_list(), strict=True))
    known = [value for value in values.values() if value is not None]
    return {
        "mean": sum(known) / len(known) if known else None,
        "seeds": {str(seed): value for seed, value in values.items()},
    }
