"""`train`: runs over seeds and settings, spread over worker processes, and what they came to."""

import contextlib
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from greedyac.agents import Agent, find_agent, make_agent
from greedyac.envs import make_env
from greedyac.errors import InputError, WorkerError, unknown
from greedyac.hypers import hypers_of, show, values_of, whole
from greedyac.presets import preset as find_preset
from greedyac.training.checkpoint import Policy, load
from greedyac.training.chunk import Chunk
from greedyac.training.loop import MIN_WIDTH, Program, static_part
from greedyac.training.pool import cores, train_chunks
from greedyac.training.rows import SCHEMA
from greedyac.training.runs import MAX_SEEDS, Run, check_seeds, check_steps, parse_seeds

MAX_WIDTH = 8
"""Lanes that one worker trains side by side: more of them outgrow the core's cache."""


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
    learner, world = find_agent(agent), make_env(env, env_options)
    options = {name: value for name, value in values_of(world).items() if name in env_options}
    fixed = {**(find_preset(preset, agent, env) if preset is not None else {}), **hypers}
    make_agent(agent, fixed)  # complains about a wrong name or value before the sweep does
    if not isinstance(sweep, Mapping):
        raise InputError(
            f"sweep = {sweep!r} is not allowed; allowed: hyperparameters and their values, {{name: [values]}}"
        )
    sweep = {name: _sweep_values(learner, name, values, hypers) for name, values in sweep.items()}
    steps, all_seeds = check_steps(steps), _seed_list(seeds)
    runs = []
    for values in itertools.product(*sweep.values()):
        setting = make_agent(agent, {**fixed, **dict(zip(sweep, values, strict=True))})
        if vain := sorted(setting.without_effect(world.spaces) & sweep.keys()):
            raise InputError(
                f"sweeping {vain[0]} is not allowed: it has no effect for {agent} on {env} with these values"
            )
        runs += [Run(agent, env, seed, steps, values_of(setting), options) for seed in all_seeds]
    return runs


def _sweep_values(agent: type[Agent], name: str, values: object, hypers: Mapping[str, object]) -> list[object]:
    if name in hypers:
        raise InputError(f"{name} is given both as a value and in the sweep; allowed: one of them")
    listed = list(values) if isinstance(values, Iterable) and not isinstance(values, (str, Mapping)) else []
    if not listed:
        raise InputError(f"the sweep of {name} = {values!r} is not allowed; allowed: a list of one or more values")
    known = hypers_of(agent)
    if name not in known:
        raise unknown(f"hyperparameter of {agent.name}", name, known)
    checked: list[object] = [known[name].check(value) for value in listed]
    if len(set(checked)) < len(checked):
        raise InputError(f"the sweep of {name} = {show(checked)} is not allowed; allowed: each value once")
    return checked


def _seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    listed = list(itertools.islice(seeds, MAX_SEEDS + 1)) if isinstance(seeds, Iterable) else [seeds]
    if len(listed) > MAX_SEEDS:
        raise InputError(f"these are too many seeds; allowed: up to {MAX_SEEDS:,}")
    return check_seeds(listed)


def plan_chunks(runs: Sequence[Run], workers: int, folder: Path) -> list[Chunk]:
    """The runs by program, split so that all workers have about as much to do, a few lanes at a time.

    With as many programs as workers, or more, a program goes to one worker if it can: others need not compile it.
    """
    programs: dict[Program, list[Run]] = defaultdict(list)
    for run in runs:
        programs[Program(static_part(run.make_agent()), run.make_env())].append(run)
    chunks: list[Chunk] = []
    workers = -(-workers // max(len(programs), 1))  # for each program
    for members in programs.values():
        rounds = -(-len(members) // (workers * MAX_WIDTH))
        width = max(-(-len(members) // (workers * rounds)), MIN_WIDTH)
        for first in range(0, len(members), width):
            chunks.append(Chunk(f"chunk-{len(chunks)}", members[first : first + width], width, folder))
    return chunks


def train_runs(runs: Sequence[Run], workers: int, on_progress: Callable[[Progress], None]) -> TrainResult:
    """Train checked runs. `Interrupted` or `WorkerError` carry the `result` of those that had finished."""
    total, done, began, rate = sum(run.steps for run in runs), 0, None, None
    with tempfile.TemporaryDirectory(prefix="greedyac-") as temporary:
        folder = Path(temporary)
        on_progress(Progress(0, total, None))
        try:
            with contextlib.closing(train_chunks(plan_chunks(runs, workers, folder), workers)) as events:
                for event in events:
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
    frames = [pl.read_parquet(path) for path in sorted(folder.glob("chunk-*.parquet"))]
    rows = pl.concat([pl.DataFrame(schema=SCHEMA), *frames])
    order = pl.DataFrame({"run_id": [run.run_id for run in runs]})
    curves = order.join(rows, on="run_id", how="inner", maintain_order="left").select(SCHEMA.names())
    policies = [load(folder / f"{run_id}.safetensors") for run_id in curves["run_id"]]
    return TrainResult(curves, policies, rate)
