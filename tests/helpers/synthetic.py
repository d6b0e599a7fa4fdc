"""Stores with a known answer: the runs of a study, with numbers from a function instead of training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from greedyac.execution.rows import failed_row
from greedyac.results.files import publish_rows
from greedyac.results.schema import BINS, SCHEMA
from greedyac.study.spec import Study, parse_study
from greedyac.study.store import Store
from greedyac.training.config import Run

CA = ("MountainCar-CA", "Pendulum-CA", "Acrobot-CA")
SWEEP = "critic_step_size = [1e-4, 1e-3, 1e-2], actor_step_size_scale = [0.1, 1.0], entropy_scale = [1e-3, 0.1, 10.0]"


class Told(NamedTuple):
    """What a run's row says: its average return, or None for a run that diverged."""

    value: float | None
    best: float | None = None
    curve: list[float | None] | None = None


def grid_study(
    agents: tuple[str, ...] = ("greedy-ac", "sac"),
    envs: tuple[str, ...] = CA,
    seeds: str = "0-9",
    tuning: str | None = None,
    name: str = "planted",
    steps: int = 100_000,
    sweep: str = SWEEP,
) -> Study:
    """A study over the three hyperparameters of the paper."""
    text = f'name = "{name}"\nsteps = {steps}\nseeds = "{seeds}"\n'
    text += f'tuning_seeds = "{tuning}"\n' if tuning else ""
    quoted = ", ".join(f'"{agent}"' for agent in agents), ", ".join(f'"{env}"' for env in envs)
    return parse_study(text + f"[[cells]]\nagents = [{quoted[0]}]\nenvs = [{quoted[1]}]\nsweep = {{ {sweep} }}\n")


def row_of(run: Run, told: Told) -> dict[str, Any]:
    """The row of a run with these numbers; the curve is flat unless it is told."""
    if told.value is None:
        numbers: dict[str, Any] = {"status": "diverged", "diverged_at": run.config.steps // 2, "episodes": 3}
        numbers["curve"] = [0.0] * (BINS // 2) + [None] * (BINS - BINS // 2)
    else:
        curve = [told.value] * BINS if told.curve is None else told.curve
        best = told.value + 1 if told.best is None else told.best
        numbers = {"status": "done", "average_return": told.value, "final_return": told.value, "best_return": best}
        numbers |= {"episodes": 100, "curve": curve}
    return {**failed_row(run, ""), "error": None, "curve_steps": run.config.steps / BINS, "seconds": 1.0, **numbers}


def fill(folder: Path, study: Study, told: Callable[[Run], Told | None], rows_per_file: int = 50) -> Store:
    """A store of the study with the rows that `told` tells; those for which it tells None are missing."""
    store = Store.create(folder)
    store.record_study(study)
    rows = [row_of(run, numbers) for run in study.runs().values() if (numbers := told(run)) is not None]
    for first in range(0, len(rows), rows_per_file):
        publish_rows(store.chunks, pl.DataFrame(rows[first : first + rows_per_file], SCHEMA))
    return store


def noise(run: Run, scale: float = 1.0) -> float:
    """A number of the run's own, the same every time."""
    return float(np.random.default_rng(int(run.run_id, 16)).normal()) * scale
