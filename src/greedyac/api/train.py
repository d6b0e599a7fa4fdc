"""`train`: runs over seeds and settings, spread over worker processes, and what they came to."""

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from greedyac.api.progress import Progress, ProgressReport
from greedyac.api.returns import missing_returns
from greedyac.core.counting import counted
from greedyac.core.errors import InputError, WorkerError
from greedyac.core.fields import check_int
from greedyac.core.machine import cores
from greedyac.envs import HostEnv
from greedyac.envs.gym.host import named_host_env
from greedyac.execution.chunk import Chunk, read_middle, train_chunk
from greedyac.execution.local import train_chunks
from greedyac.execution.plan import expand_configs, plan_chunks
from greedyac.execution.process import end_ahead
from greedyac.execution.rows import failed_row
from greedyac.execution.seeds import seed_list
from greedyac.results.files import DamagedError, read_rows
from greedyac.results.schema import SCHEMA
from greedyac.training.checkpoint import Policy, load_policy
from greedyac.training.config import Run, RunConfig


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
    config: RunConfig
    """That of the first run."""
    run_steps_per_second: float | None
    """Over all runs and workers, from the first training step to the last; compilation is not counted.

    None if a run failed: then some of the steps were never made."""


def train(
    agent: str,
    env: str | Callable[[], Any],
    *,
    steps: int = 100_000,
    seeds: int | str | Iterable[int] = 0,
    preset: str | None = None,
    env_options: Mapping[str, object] | None = None,
    sweep: Mapping[str, Sequence[object]] | None = None,
    eval_every: int | None = None,
    eval_episodes: int = 10,
    workers: int | None = None,
    progress: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    **hypers: object,
) -> TrainResult:
    """Train an agent on an environment: one run per seed and, with `sweep`, per combination of its values.

    Settings that differ only in traced hyperparameters train in one compiled program. The runs are spread over
    `workers` processes, by default one per core.

    Args:
        agent: its name, `"greedy-ac"`; `greedyac agents` lists them with their hyperparameters.
        env: its name, `"Pendulum-CA"` (`greedyac envs` lists them with their options), any Gymnasium id, or a class or
            function that makes a `gymnasium.Env`: one for each run, all in this process.
        steps: environment steps of each run; there is one update per step.
        seeds: a seed, several, or a text such as `"0-9"`.
        preset: `"paper"` or `"paper-across"` for settings that the paper tuned per environment or across environments;
            hyperparameters given beside it override it.
        env_options: options of the environment, `{"start": "zero"}`.
        sweep: hyperparameter → its values, `{"critic_step_size": [1e-4, 1e-3]}`.
        eval_every: steps after which the most likely action is tried for `eval_episodes` episodes with learning off.
        eval_episodes: episodes of such an evaluation, whose mean return enters the column `eval_curve`.
        workers: number of processes.
        progress: whether to show a bar, in a terminal or a notebook.
        on_progress: called a few times a second with how far training has come, in place of the bar.
        **hypers: the agent's hyperparameters; the others keep their defaults.
    """
    world = env if isinstance(env, str) else named_host_env(env)
    evaluation = (eval_every, eval_episodes)
    runs = plan_runs(agent, world, steps, seeds, preset, env_options or {}, sweep or {}, hypers, evaluation)
    count = worker_count(workers)
    if on_progress is not None or not progress:
        return _warned(train_runs(runs, count, on_progress or (lambda _: None)))
    with ProgressReport(f"{agent} on {runs[0].config.env_label}", lines=False) as report:
        result = _warned(train_runs(runs, count, report.training))
    done = result.curves.filter(pl.col("status") == "done").select("average_return", "final_return")
    for line in missing_returns(runs[0].config.env, runs[0].config.steps, done.rows()):
        report.say(line)
    return result


def _warned(result: TrainResult) -> TrainResult:
    """The same result; of runs that failed there is a warning."""
    failed = result.curves.filter(pl.col("status") == "failed")
    if failed.height:
        seed, error = failed.select("seed", "error").row(0)
        share = f"{failed.height} of {counted(result.curves.height, 'run')}"
        warnings.warn(f"{share} failed, the first of them with seed {seed}: {error}", RuntimeWarning, stacklevel=3)
    return result


def worker_count(workers: int | None) -> int:
    """The number of worker processes: as asked for, else one per core."""
    return len(cores()) if workers is None else check_int("workers", workers, 1, 10_000)


def plan_runs(
    agent: str,
    env: str | HostEnv,
    steps: int,
    seeds: int | str | Iterable[int],
    preset: str | None,
    env_options: Mapping[str, object],
    sweep: Mapping[str, Sequence[object]],
    hypers: Mapping[str, object],
    evaluation: tuple[object, object] = (None, None),
) -> list[Run]:
    """The runs that a call of `train` asks for, all checked before anything compiles."""
    configs = expand_configs(agent, env, steps, preset, env_options, sweep, hypers, evaluation)
    listed = seed_list(seeds)
    return [Run(config, seed) for config in configs for seed in listed]


def train_runs(runs: Sequence[Run], workers: int, on_progress: Callable[[Progress], None]) -> TrainResult:
    """Train checked runs. `Interrupted` or `WorkerError` carry the `result` of those that had finished."""
    with tempfile.TemporaryDirectory(prefix="greedyac-") as temporary:
        return train_runs_in(Path(temporary), runs, workers, on_progress)


def train_runs_in(
    folder: Path,
    runs: Sequence[Run],
    workers: int,
    on_progress: Callable[[Progress], None],
    checkpoint_every: int = 0,
) -> TrainResult:
    """The same in a folder that stays: what it holds is not trained again, and what is in the middle goes on."""
    try:
        held = set(read_rows(folder.glob("*.parquet"), ["run_id"])["run_id"])
    except DamagedError as error:
        raise InputError(f"a file of rows in {str(folder)!r} {error}") from None
    missing = [run for run in runs if run.run_id not in held]
    total, left = (sum(run.config.steps for run in some) for some in (runs, missing))
    if checkpoint_every:
        left -= sum(snapshot.time for run in missing if (snapshot := read_middle(folder, run)))
    meter = _Meter(total, total - left, on_progress)
    chunks = plan_chunks(missing, workers, folder, checkpoints=True, checkpoint_every=checkpoint_every)
    failed: dict[str, str] = {}
    try:
        if any(isinstance(run.config.world, HostEnv) and run.config.world.is_local for run in missing):
            end_ahead()
            for chunk in chunks:  # a user's own class can't be sent to another process
                failed |= train_chunk(chunk, meter.add).failed
        else:
            _train_in_workers(chunks, workers, meter, failed)
    except KeyboardInterrupt:
        raise Interrupted(_collect(runs, folder, failed, meter.rate)) from None
    except WorkerError as error:
        error.result = _collect(runs, folder, failed, meter.rate)
        raise
    return _collect(runs, folder, failed, meter.rate)


def _train_in_workers(chunks: Sequence[Chunk], workers: int, meter: "_Meter", failed: dict[str, str]) -> None:
    with contextlib.closing(train_chunks(chunks, workers)) as events:
        for event in events:
            if event["event"] == "failed":
                raise WorkerError(event["error"])
            if event["event"] == "steps":
                meter.add(event["steps"])
            if event["event"] == "done":
                failed |= event["failed"]


class _Meter:
    """Counts run-steps, those `before` included, and tells how far that is."""

    def __init__(self, total: int, before: int, on_progress: Callable[[Progress], None]):
        self._total, self._before, self._done, self._tell = total, before, before, on_progress
        self._began: float | None = None
        self.rate: float | None = None
        self._tell(Progress(before, total, None))

    def add(self, steps: int) -> None:
        """So many more are done; the first time it is that training begins."""
        now = time.perf_counter()
        self._began = self._began or now
        self._done += steps
        self.rate = (self._done - self._before) / (now - self._began) if self._done > self._before else None
        self._tell(Progress(self._done, self._total, self.rate))


def _collect(runs: Sequence[Run], folder: Path, failed: dict[str, str], rate: float | None) -> TrainResult:
    """The published results, and the failures, in the order of the runs; runs that failed have no policy."""
    failures = [failed_row(run, failed[run.run_id]) for run in runs if run.run_id in failed]
    rows = pl.concat([read_rows(folder.glob("*.parquet")), pl.DataFrame(failures, SCHEMA)])
    order = pl.DataFrame({"run_id": [run.run_id for run in runs]})
    curves = order.join(rows, on="run_id", how="inner", maintain_order="left").select(SCHEMA.names())
    trained = set(curves.filter(pl.col("status") != "failed")["run_id"])
    policies = [_policy(folder, run) for run in runs if run.run_id in trained]
    return TrainResult(curves, policies, runs[0].config, None if failed else rate)


def _policy(folder: Path, run: Run) -> Policy:
    held = load_policy(folder / f"{run.run_id}.safetensors")
    return Policy(run, held.state, held.scales, held.adapter, held.statistics)
