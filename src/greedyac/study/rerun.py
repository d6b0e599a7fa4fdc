"""Rerun: one run of a store again, alone, looked at after every step, and compared with what the store says."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import polars as pl

from greedyac.core.atomic import write_atomically
from greedyac.core.counting import counted
from greedyac.core.errors import InputError
from greedyac.core.xla import configured
from greedyac.envs import parse_env_label
from greedyac.execution.rows import make_row
from greedyac.results.provenance import cpu, software
from greedyac.results.schema import SCHEMA
from greedyac.study.store import CIRCUMSTANCES, Store
from greedyac.training.blocks import make_lanes
from greedyac.training.config import Run, RunConfig
from greedyac.training.lanes import LaneBatch
from greedyac.training.normalize import normal_observation
from greedyac.training.program import LaneState

MOST_LIKELY_FIRST = (10, *range(1, 1001))
"""Numbers of episodes."""
BLOCK = 1000
"""Steps whose diagnostics wait on the device before they are brought to the host."""


class Rerun(NamedTuple):
    """What a run came to when it was run again."""

    row: dict[str, Any]
    diagnostics: pl.DataFrame
    """One row per step."""
    differences: list[str]
    """Columns whose numbers are not, bit for bit, those in the store."""
    obstacles: list[str]
    """Why the numbers can't be compared: other software, another processor."""


def find_row(store: Store, run_id: str) -> dict[str, Any]:
    """The row of a run, by its id or enough of its first letters."""
    rows = store.read().rows
    found = rows.filter(pl.col("run_id").str.starts_with(run_id.lower()) & pl.lit(bool(run_id)))
    if found.height != 1:
        none = f"it is none of the {counted(rows.height, 'run')} there"
        known = f"{found.height:,} runs begin so" if found.height else none
        example = f", such as {rows['run_id'][0]}" if rows.height else ""
        allowed = f"a run_id{example}, or its beginning"
        raise InputError(f"run {run_id!r} can't be found in {str(store.folder)!r}: {known}; allowed: {allowed}")
    return found.row(0, named=True)


def run_of(row: dict[str, Any]) -> Run:
    """The run that a row tells of."""
    try:
        env, options = parse_env_label(row["env"])
        run = Run(RunConfig(row["agent"], env, row["steps"], json.loads(row["hypers"]), options), row["seed"])
        run.config.learner  # noqa: B018  # checks the hyperparameters
    except (InputError, KeyError) as error:
        raise InputError(f"run {row['run_id']} can't be run by this version: {error}") from None
    return run if row["eval_steps"] is None else _evaluated(run, row)


def _evaluated(run: Run, row: dict[str, Any]) -> Run:
    """The run with its evaluations; in how many episodes each is known to the run's id alone."""
    configs = [replace(run.config, eval_every=row["eval_steps"], eval_episodes=count) for count in MOST_LIKELY_FIRST]
    for config in configs:
        vars(config).update(learner=run.config.learner, world=run.config.world)
    return Run(next((config for config in configs if config.run_id(run.seed) == row["run_id"]), configs[0]), run.seed)


def rerun(row: dict[str, Any], on_step: Callable[[int], None]) -> Rerun:
    """Train the run of a row again and compare; `on_step` hears how many steps are done."""
    run = run_of(row)
    config = run.config
    lanes = make_lanes([config.learner], config.world, [run.seed], config.steps)
    parts = [
        pl.DataFrame({name: np.asarray(column) for name, column in part.items()})
        for part in _watched(lanes, config, on_step)
    ]
    made = make_row(run, lanes.outcomes()[0], seconds=0.0)
    lanes.close()
    new, old = (pl.DataFrame([numbers], SCHEMA).drop(CIRCUMSTANCES) for numbers in (made, row))
    differences = [column for column in new.columns if not new[column].equals(old[column], null_equal=True)]
    return Rerun(made, pl.concat(parts), differences, _obstacles(row, run))


def _watched(lanes: LaneBatch, config: RunConfig, on_step: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    """Advance step by step; what is seen after each, in blocks. The program that trains is the usual one."""

    @configured
    @jax.jit
    def look(lane: LaneState) -> tuple[Any, ...]:
        first = jax.tree.map(lambda leaf: leaf[0], lane)
        told = config.learner.diagnose(first.agent, normal_observation(first.scales, first.observation))
        return first.curve.episodes, first.curve.running, told

    while lanes.time < lanes.steps and lanes.live:
        start = lanes.time
        seen: list[Any] = []
        while lanes.time < min(start + BLOCK, lanes.steps):
            lanes.advance(1)
            if lanes.time == start + len(seen):  # its environment gave up
                break
            if config.eval_every and lanes.time % config.eval_every == 0:
                lanes.evaluate(config.eval_episodes)
            seen.append(look(lanes.state))
        on_step(lanes.time)
        if not seen:
            return
        episodes, returns, told = zip(*jax.device_get(seen), strict=True)
        about = {"step": range(start, lanes.time), "episode": episodes, "return_so_far": returns}
        yield about | {name: [numbers[name] for numbers in told] for name in told[0]}


def _obstacles(row: dict[str, Any], run: Run) -> list[str]:
    obstacles = []
    if row["run_id"] != run.run_id:
        obstacles.append(f"the numerics of {run.config.agent} or {run.config.env} have changed since")
    if row["versions"] is None:
        return [*obstacles, "the store has no numbers of it"]
    then, now = json.loads(row["versions"]), software(run.config.world.packages)
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            obstacles.append(f"{name} {then.get(name)} then, {now.get(name)} now")
    if row["cpu"] != cpu():
        obstacles.append(f"processor {row['cpu']} then, {cpu()} now")
    return obstacles


def write_diagnostics(store: Store, result: Rerun) -> Path:
    """Keep the diagnostics in the store's folder `reruns/`; an older file of the same run is replaced."""
    folder = store.folder / "reruns"
    folder.mkdir(exist_ok=True)
    path = folder / f"{result.row['run_id']}.parquet"
    buffer = io.BytesIO()
    result.diagnostics.write_parquet(buffer)
    write_atomically(path, buffer.getvalue())
    return path
