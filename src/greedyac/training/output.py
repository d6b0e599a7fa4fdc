"""The folder that `greedyac train` writes: summary, curves, picture and a checkpoint per seed."""

import contextlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from greedyac.analysis.figures import learning_curves
from greedyac.errors import InputError
from greedyac.training.checkpoint import save_checkpoint
from greedyac.training.train import TrainResult

_OURS = ("summary.json", "curves.parquet", "curves.png", "seed-*.safetensors")


def first_free(stem: str) -> Path:
    """`stem`-0, or the first of its successors that does not exist yet."""
    index = 0
    while Path(f"{stem}-{index}").exists():
        index += 1
    return Path(f"{stem}-{index}")


@contextmanager
def output_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """A staging folder inside `out`, whose files are moved there at the end and replace an older result.

    Refuses, before anything is trained, a folder that holds a result (unless `overwrite`) or can't be written. If the
    body fails, `out` is as it was.
    """
    created: list[Path] = []
    try:
        held = _results(out)
        if held and not overwrite:
            known = f"already holds a result ({held[0].name}); --overwrite replaces it"
            raise InputError(f"output folder {str(out)!r} {known}")
        created = [folder for folder in (out, *out.parents) if not folder.exists()]
        out.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))
    except OSError as error:
        _remove_empty(created)
        raise InputError(f"output folder {str(out)!r} can't be written: {error.strerror}") from None
    try:
        yield staging
        fresh = {path.name for path in staging.iterdir()}
        for path in staging.iterdir():
            path.replace(out / path.name)
        for path in _results(out) if fresh else []:
            if path.name not in fresh:
                path.unlink()
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        _remove_empty(created)


def _remove_empty(folders: list[Path]) -> None:
    """Remove those folders that are empty, the innermost first."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _results(out: Path) -> list[Path]:
    return sorted(path for pattern in _OURS for path in out.glob(pattern))


def write_result(result: TrainResult, folder: Path) -> dict[str, Any]:
    """Write the result of one setting to a folder; returns the summary."""
    summary = summarise(result)
    for policy in result.policies:
        save_checkpoint(folder / f"seed-{policy.run.seed}.safetensors", policy.run, policy.state.actor)
    result.curves.write_parquet(folder / "curves.parquet")
    learning_curves(result.curves).savefig(folder / "curves.png")
    (folder / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    return summary


def summarise(result: TrainResult) -> dict[str, Any]:
    """The contents of summary.json."""
    rows, run = result.curves, result.policies[0].run
    return {
        "agent": run.agent,
        "env": run.env,
        "env_options": run.env_options,
        "steps": run.steps,
        "seeds": rows["seed"].to_list(),
        "hypers": run.hypers,
        "average_return": _over_seeds(rows, "average_return"),
        "final_return": _over_seeds(rows, "final_return"),
        "best_return": _over_seeds(rows, "best_return"),
        "run_steps_per_second": result.run_steps_per_second,
        "diverged": rows.filter(pl.col("status") == "diverged")["seed"].to_list(),
    }


def _over_seeds(rows: pl.DataFrame, column: str) -> dict[str, Any]:
    values = dict(zip(rows["seed"].to_list(), rows[column].to_list(), strict=True))
    known = [value for value in values.values() if value is not None and math.isfinite(value)]
    return {
        "mean": sum(known) / len(known) if known else None,
        "seeds": {str(seed): value for seed, value in values.items()},
    }
