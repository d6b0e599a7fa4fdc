"""Results as rows: one row per run, with the same columns wherever results are kept."""

import json
import math
import platform
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import Any

import jax
import polars as pl

from greedyac.core import xla
from greedyac.core.processor import processor
from greedyac.envs import Env, World
from greedyac.execution.runs import Run
from greedyac.training.curve import BINS
from greedyac.training.loop import Outcome

_COLUMNS: dict[str, type[pl.DataType] | pl.DataType] = {
    "run_id": pl.String,
    "setting_id": pl.String,
    "agent": pl.String,
    "env": pl.String,
    "seed": pl.Int64,
    "steps": pl.Int64,
    "hypers": pl.String,
    "status": pl.String,
    "error": pl.String,
    "diverged_at": pl.Int64,
    "average_return": pl.Float64,
    "final_return": pl.Float64,
    "best_return": pl.Float64,
    "episodes": pl.Int64,
    "curve": pl.List(pl.Float32),
    "curve_steps": pl.Float64,
    "eval_curve": pl.List(pl.Float32),
    "eval_steps": pl.Int64,
    "versions": pl.String,
    "cpu": pl.String,
    "seconds": pl.Float64,
}
SCHEMA = pl.Schema(_COLUMNS)
ENGINE_DISTRIBUTIONS = {"mujoco": "mujoco-core"}
"""What has the engine itself, where several distributions share a package."""
RESTARTED = "after an interruption its environment could not be brought back, and a new episode was begun"
"""What the column `error` says of a run that is done all the same."""


def make_row(run: Run, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The row of a run that took `seconds` as its share."""
    summary = outcome.summary
    if outcome.error is not None:
        return failed_row(run, outcome.error)
    return {
        **_identity(run),
        "status": "done" if outcome.diverged_at is None else "diverged",
        "error": RESTARTED if outcome.restarted else None,
        "diverged_at": outcome.diverged_at,
        "average_return": summary.average_return,
        "final_return": summary.final_return,
        "best_return": summary.best_return,
        "episodes": summary.episodes,
        "curve": summary.curve,
        "curve_steps": run.case.steps / BINS,
        **_evaluated(run, outcome),
        "versions": json.dumps(software(run.case.world), sort_keys=True),
        "cpu": cpu(),
        "seconds": seconds,
    }


def _evaluated(run: Run, outcome: Outcome) -> dict[str, Any]:
    """The columns of offline evaluations, where there were any; null from a divergence on."""
    if not run.case.eval_every:
        return {}
    every, diverged_at = run.case.eval_every, outcome.diverged_at
    known = len(outcome.evaluations) if diverged_at is None else diverged_at // every
    told = [value if math.isfinite(value) else None for value in outcome.evaluations[:known]]
    missing = run.case.steps // every - len(told)
    return {"eval_curve": told + [None] * missing, "eval_steps": every}


def failed_row(run: Run, error: str) -> dict[str, Any]:
    """The row of a run that could not be trained."""
    return {**_identity(run), "status": "failed", "error": error}


def missing_row(run: Run) -> dict[str, Any]:
    """The row of a run that was asked for and is not there."""
    return {**_identity(run), "status": "missing"}


def _identity(run: Run) -> dict[str, Any]:
    """The columns that say which run it is; all others are empty."""
    case = run.case
    return {
        **dict.fromkeys(SCHEMA.names()),
        "run_id": run.run_id,
        "setting_id": case.setting_id,
        "agent": case.agent,
        "env": case.env_label,
        "seed": run.seed,
        "steps": case.steps,
        "hypers": json.dumps(case.hypers, sort_keys=True),
    }


@cache
def versions() -> dict[str, str]:
    """The software that a result depends on."""
    packages = ("greedyac", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


def software(world: World) -> dict[str, str]:
    """All that a result on this environment depends on, the processor aside."""
    return versions() | world_versions(world) | xla.deviation()


@cache
def world_versions(world: World) -> dict[str, str]:
    """The software of an environment that is not ours, as far as it can be told."""
    if isinstance(world, Env):
        return {}
    known = {name for package in world.packages - {"greedyac", ""} if (name := _distribution(package))}
    return {name: metadata.version(name) for name in sorted(known)}


def _distribution(package: str) -> str | None:
    """The name under which a package was installed: mostly its own; else looked for among all, which takes a second."""
    for name in (ENGINE_DISTRIBUTIONS.get(package), package):
        with suppress(metadata.PackageNotFoundError):
            if name is not None:
                return metadata.distribution(name).metadata["Name"]
    return next(iter(_distributions().get(package, [])), None)


_distributions = cache(metadata.packages_distributions)


def on_accelerator() -> bool:
    """Whether JAX computes on something else than the processor."""
    return jax.default_backend() != "cpu"


def cpu() -> str:
    """The type of processor, or of the accelerator that is used in its place."""
    return f"{jax.default_backend()} {jax.devices()[0].device_kind}" if on_accelerator() else processor()
