"""`train`: runs over seeds and settings, spread over worker processes, and what they came to."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from greedyac.errors import WorkerError
from greedyac.hypers import whole
from greedyac.training.checkpoint import Policy, load
from greedyac.training.files import read_rows
from greedyac.training.plan import plan_cases, plan_chunks
from greedyac.training.pool import cores, train_chunks
from greedyac.training.rows import SCHEMA
from greedyac.training.runs import Run, seed_list


class Progress(NamedTuple):
    """How far training has come: run-steps done of all, and run-steps per second since the first step."""

    done: int
    total: int
    rate: float | None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while training; `result` holds the runs that had finished."""

    def __init__(self, result: "TrainResult"):
        super().__init__("training was interrupted")
        self.result = result


class TrainResult(NamedTuple):
    """What the runs came to."""

    curves: pl.DataFrame
    """One row per run, in the order of settings × seeds."""
    policies: list[Policy]
    """The trained policies, in the same order."""
    run_steps_per_second: float | None
    """Over all runs and workers, from the first training step to the last; compilation is not counted."""


def train(
    agent: str,
    env: str,
    *,
    steps: int = 100_000,
    seeds: int | str | Iterable[int] = 0,
    preset: str | None = None,
    env_options: Mapping[str, object] | None = None,
    sweep: Mapping[str, Sequence[object]] | None = None,
    workers: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **hypers: object,
) -> TrainResult:
    """Train an agent on an environment: one run per seed and, with `sweep`, per combination of its values.

    Settings that differ only in swept hyperparameters train in one compiled program. The runs are spread over
    `workers` processes, by default one per core.

    Args:
        agent: its name, `"greedy-ac"`; `greedyac agents` lists them with their hyperparameters.
        env: its name, `"Pendulum-CA"`; `greedyac envs` lists them with their options.
        steps: environment steps of each run; there is one update per step.
        seeds: a seed, several, or a text such as `"0-9"`.
        preset: `"paper"` or `"paper-across"` for settings that the paper tuned per environment or across environments;
            hyperparameters given beside it override it.
        env_options: options of the environment, `{"start": "zero"}`.
        sweep: hyperparameter → its values, `{"critic_step_size": [1e-4, 1e-3]}`.
        workers: number of processes.
        on_progress: hears how far training has come, a few times a second.
        **hypers: the agent's hyperparameters; the others keep their defaults.
    """
    runs = plan_runs(agent, env, steps, seeds, preset, env_options or {}, sweep or {}, hypers)
    return train_runs(runs, worker_count(workers), on_progress or (lambda progress: None))


def worker_count(workers: int | None) -> int:
    """The number of worker processes: as asked for, else one per core."""
    return len(cores()) if workers is None else whole("workers", workers, 1, 10_000)


def plan_runs(
    agent: str,
    env: str,
    steps: int,
    seeds: int | str | Iterable[int],
    preset: str | None,
    env_options: Mapping[str, object],
    sweep: Mapping[str, Sequence[object]],
    hypers: Mapping[str, object],
) -> list[Run]:
    """The runs that a call of `train` asks for, all checked before anything compiles."""
    cases = plan_cases(agent, env, steps, preset, env_options, sweep, hypers)
    listed = seed_list(seeds)
    return [Run(case, seed) for case in cases for seed in listed]


def train_runs(runs: Sequence[Run], workers: int, on_progress: Callable[[Progress], None]) -> TrainResult:
    """Train checked runs. `Interrupted` or `WorkerError` carry the `result` of those that had finished."""
    total, done, began, rate = sum(run.case.steps for run in runs), 0, None, None
    with tempfile.TemporaryDirectory(prefix="greedyac-") as temporary:
        folder = Path(temporary)
        on_progress(Progress(0, total, None))
        chunks = plan_chunks(runs, workers, folder, checkpoints=True)
        try:
            with contextlib.closing(train_chunks(chunks, workers)) as events:
                for event in events:
                    if event["event"] == "failed":
                        raise WorkerError(event["error"])
                    if event["event"] == "steps":
                        now = time.perf_counter()
                        began = began or now
                        done += event["steps"]
                        rate = done / (now - began) if done else None
                        on_progress(Progress(done, total, rate))
        except KeyboardInterrupt:
            raise Interrupted(_collect(runs, folder, rate)) from None
        except WorkerError as error:
            error.result = _collect(runs, folder, rate)
            raise
        return _collect(runs, folder, rate)


def _collect(runs: Sequence[Run], folder: Path, rate: float | None) -> TrainResult:
    """The published results in the order of the runs."""
    rows = read_rows(folder.glob("*.parquet"))
    order = pl.DataFrame({"run_id": [run.run_id for run in runs]})
    curves = order.join(rows, on="run_id", how="inner", maintain_order="left").select(SCHEMA.names())
    policies = [load(folder / f"{run_id}.safetensors") for run_id in curves["run_id"]]
    return TrainResult(curves, policies, rate)
