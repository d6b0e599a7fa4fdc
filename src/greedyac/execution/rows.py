"""Results as rows: one row per run, with the same columns wherever results are kept."""

import json
import math
from typing import Any

from greedyac.results.provenance import cpu, software
from greedyac.results.schema import BINS, RESTARTED, SCHEMA
from greedyac.training.config import Run
from greedyac.training.lanes import Outcome


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
        "curve_steps": run.config.steps / BINS,
        **_evaluated(run, outcome),
        "versions": json.dumps(software(run.config.world.packages), sort_keys=True),
        "cpu": cpu(),
        "seconds": seconds,
    }


def _evaluated(run: Run, outcome: Outcome) -> dict[str, Any]:
    """The columns of offline evaluations, where there were any; null from a divergence on."""
    if not run.config.eval_every:
        return {}
    every, diverged_at = run.config.eval_every, outcome.diverged_at
    known = len(outcome.evaluations) if diverged_at is None else diverged_at // every
    told = [value if math.isfinite(value) else None for value in outcome.evaluations[:known]]
    missing = run.config.steps // every - len(told)
    return {"eval_curve": told + [None] * missing, "eval_steps": every}


def failed_row(run: Run, error: str) -> dict[str, Any]:
    """The row of a run that could not be trained."""
    return {**_identity(run), "status": "failed", "error": error}


def missing_row(run: Run) -> dict[str, Any]:
    """The row of a run that was asked for and is not there."""
    return {**_identity(run), "status": "missing"}


def _identity(run: Run) -> dict[str, Any]:
    """The columns that say which run it is; all others are empty."""
    config = run.config
    return {
        **dict.fromkeys(SCHEMA.names()),
        "run_id": run.run_id,
        "setting_id": config.setting_id,
        "agent": config.agent,
        "env": config.env_label,
        "seed": run.seed,
        "steps": config.steps,
        "hypers": json.dumps(config.hypers, sort_keys=True),
    }
