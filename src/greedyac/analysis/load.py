"""Results: every run that was asked for, with its numbers or why it has none. Reads a store, or what `train` wrote."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from greedyac.agents import AGENTS
from greedyac.analysis.stats import Floats
from greedyac.core.counting import counted
from greedyac.core.errors import InputError, unknown_name
from greedyac.core.fields import hypers_of, show
from greedyac.core.spaces import Box
from greedyac.envs import make_world, parse_env_label
from greedyac.execution.rows import missing_row
from greedyac.results.schema import BINS, SCHEMA
from greedyac.study.spec import Study
from greedyac.study.store import Store

STATUSES = ("done", "diverged", "blank", "failed", "missing")
"""What can have become of a run. `blank`: it is done, but finished no episode and so has no return."""


@dataclass(frozen=True)
class Results:
    """The runs of a store, and what is known of them as a whole."""

    runs: pl.DataFrame
    """One row per run, asked for or there: the store's columns, with `agent` as the variant's label (see `variants`),
    `status` as one of `STATUSES`, `kind` of the actions, and whether the seed is for `tuning`."""
    tuning_seeds: frozenset[int]
    studies: tuple[str, ...]
    faults: tuple[str, ...]
    """What could not be read, in words."""

    def tuning(self) -> pl.DataFrame:
        """The runs that a selection may see: those of the tuning seeds; all of an agent that has none of them there."""
        return self.runs.filter(pl.col("tuning") | ~pl.col("tuning").any().over("env", "agent"))


def load(folder: Path | str, study: str | None = None, steps: int | None = None) -> Results:
    """Every run of a store, of one study in it, or of that many steps; also of a folder that `greedyac train` wrote."""
    folder = Path(folder)
    rows, asked, faults = _read(folder)
    if study is not None:
        names = dict.fromkeys(one.name for one in asked)
        if study not in names:
            raise unknown_name("study in this store", study, names)
        asked = [one for one in asked if one.name == study]
    planned = {run_id: run for one in asked for run_id, run in one.runs().items()}
    if study is not None:
        rows = rows.filter(pl.col("run_id").is_in(list(planned)))
    known = set(rows["run_id"])
    missing = [missing_row(run) for run_id, run in planned.items() if run_id not in known]
    runs = pl.concat([rows.select(SCHEMA.names()), pl.DataFrame(missing, SCHEMA)])
    runs, outdated = _newest(runs, planned)
    if outdated:
        faults.append(f"{counted(outdated, 'run')} left out, of which there are several versions")
    if steps is not None:
        _check_steps_known(runs, steps)
        runs = runs.filter(pl.col("steps") == steps)
        asked = [one for one in asked if one.configs[0].steps == steps]
    _check_there_is_something(folder, runs, faults)
    _check_one_length(runs)
    tuning = frozenset(seed for one in asked for seed in one.tuning_seeds)
    told = tuple(dict.fromkeys(one.name for one in asked))
    return Results(_described(runs, tuning), tuning, told, tuple(faults))


def _read(folder: Path) -> tuple[pl.DataFrame, list[Study], list[str]]:
    """The rows of a store or of what `train` wrote, the studies that asked for them, and what could not be read."""
    try:
        store = Store.existing(folder)
    except InputError:
        if paths := _train_files(folder):
            rows, faults = _read_train_files(paths)
            return rows, [], faults
        allowed = "a folder that `greedyac sweep` filled, or that `greedyac train` or `demo` wrote"
        raise InputError(f"there are no results at {str(folder)!r}; allowed: {allowed}") from None
    contents, (asked, damaged) = store.read(), store.asked()
    return contents.rows, asked, [str(fault) for fault in (*contents.faults, *damaged)]


def _train_files(folder: Path) -> list[Path]:
    """The rows that `greedyac train` or `greedyac demo` left in a folder."""
    try:
        return sorted([*folder.glob("curves.parquet"), *folder.glob("[!.]*/curves.parquet")])
    except OSError:
        return []


def _read_train_files(paths: Iterable[Path]) -> tuple[pl.DataFrame, list[str]]:
    frames, faults = [pl.DataFrame(schema=SCHEMA)], []
    for path in paths:
        try:
            frame = pl.read_parquet(path, glob=False).select(SCHEMA.names()).cast(SCHEMA)
            curves = frame.filter(pl.col("status") != "failed")["curve"]
            if settings_of(frame) and not (curves.list.len() == BINS).fill_null(False).all():
                raise ValueError("a curve is not whole")
            frames.append(frame)
        except (pl.exceptions.PolarsError, OSError, ValueError) as error:
            faults.append(f"{path.parent.name}/{path.name} can't be read ({str(error).splitlines()[0]})")
    return pl.concat(frames).unique("run_id", keep="first", maintain_order=True), faults


def _newest(runs: pl.DataFrame, planned: Collection[str]) -> tuple[pl.DataFrame, int]:
    """One run for each setting, environment and seed, and how many others there were.

    There are several after a change of the code that changes numbers: then the one that would be run now is asked for.
    Of those asked for, which differ in how often they are evaluated, it is the one that is there and most often so.
    """
    asked, there = pl.col("run_id").is_in(list(planned)), pl.col("status").is_in(["done", "diverged"])
    newest = runs.sort(~asked, ~there, "eval_steps", "run_id", nulls_last=True).unique(
        ["setting_id", "env", "seed", "steps"], keep="first", maintain_order=True
    )
    return newest, runs.height - newest.height


def _check_there_is_something(folder: Path, runs: pl.DataFrame, faults: list[str]) -> None:
    there = runs.filter(pl.col("status").is_in(["done", "diverged"]))
    if there.is_empty():
        counts = [f"{runs.filter(pl.col('status') == status).height:,} {status}" for status in ("failed", "missing")]
        damage = f"; {faults[0]}" if faults else ""
        raise InputError(f"there is no finished run in {str(folder)!r} ({', '.join(counts)}){damage}")


def _check_one_length(runs: pl.DataFrame) -> None:
    for (env,), part in runs.group_by("env", maintain_order=True):
        if len(lengths := sorted(part["steps"].unique())) > 1:
            listed = ", ".join(f"{steps:,}" for steps in lengths)
            raise InputError(
                f"the runs on {env} differ in length ({listed} steps); allowed: one, as with --steps {lengths[-1]}"
            )


def _check_steps_known(runs: pl.DataFrame, steps: int) -> None:
    if steps not in (known := sorted(runs["steps"].unique())):
        raise InputError(f"steps = {steps} is not allowed; allowed: {', '.join(map(str, known))}, as the runs have")


def _described(runs: pl.DataFrame, tuning: frozenset[int]) -> pl.DataFrame:
    """The runs in an order that does not depend on files, with the columns that analysis adds."""
    blank = (pl.col("status") == "done") & pl.col("average_return").is_null()
    kinds = {env: kind_of(env) for env in runs["env"].unique()}
    labels = variants(runs)
    return runs.with_columns(
        agent=pl.col("setting_id").replace_strict(labels),
        status=pl.when(blank).then(pl.lit("blank")).otherwise(pl.col("status")),
        kind=pl.col("env").replace_strict(kinds),
        tuning=pl.col("seed").is_in(sorted(tuning)),
    ).sort("kind", "env", "agent", "setting_id", "seed", "run_id")


@cache
def kind_of(env: str) -> str:
    """Whether the actions of an environment are `continuous` or `discrete`."""
    name, options = parse_env_label(env)
    return "continuous" if isinstance(make_world(name, options).spaces.action, Box) else "discrete"


def variants(runs: pl.DataFrame) -> dict[str, str]:
    """Setting → the agent, with those of its options that are not numbers and that vary on some environment.

    So `sac` and `sac[policy=gaussian]` are compared with each other, and each is tuned over its own numbers.
    """
    labels = {}
    for (agent,), own in runs.select("agent", "env", "setting_id", "hypers").unique().group_by("agent"):
        settings = settings_of(own)
        names = {name for hypers in settings.values() for name in hypers if not is_number(hypers[name])}
        together = [group["setting_id"].unique() for _, group in own.group_by("env")]
        varied = sorted(name for name in names if any(_varies(name, settings, group) for group in together))
        known = hypers_of(AGENTS[str(agent)]) if agent in AGENTS else {}
        defaults = {name: show(hyper.default) for name, hyper in known.items()}
        for setting, hypers in settings.items():
            told = {name: show(hypers[name]) for name in varied if name in hypers}
            options = ",".join(f"{name}={value}" for name, value in told.items() if value != defaults.get(name))
            labels[setting] = f"{agent}[{options}]" if options else str(agent)
    return labels


def _varies(name: str, settings: Mapping[str, Mapping[str, Any]], group: Iterable[str]) -> bool:
    return len({show(settings[setting].get(name)) for setting in group}) > 1


def settings_of(runs: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Setting → its hyperparameters, in an order that does not depend on that of the rows."""
    unique = runs.select("setting_id", "hypers").unique().sort("setting_id", "hypers")
    return {setting: json.loads(hypers) for setting, hypers in unique.rows()}


def is_number(value: object) -> bool:
    """Whether a hyperparameter's value has a place on an axis."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def with_values(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs with a column `value`: the average return, and for a run that diverged the lowest of these runs there.

    Runs that are missing, failed, or finished no episode have none. `final_value` is the same of the final return, and
    `offline_value` of the mean of the evaluations, for runs that have any.
    """
    diverged = pl.col("status") == "diverged"

    def value(known: pl.Expr) -> pl.Expr:
        return pl.when(diverged).then(known.min().over("env")).otherwise(known)

    evaluations = pl.col("eval_curve").list.eval(pl.element().cast(pl.Float64).fill_nan(None))
    mean = pl.when(~diverged).then(evaluations.list.mean())
    return runs.with_columns(
        value=value(pl.col("average_return")),
        final_value=value(pl.col("final_return")),
        offline_value=pl.when(pl.col("eval_steps") > 0, evaluations.is_not_null()).then(value(mean)),
    )


def evaluated(runs: pl.DataFrame) -> bool:
    """Whether any of these runs `with_values` have an offline curve."""
    return runs["offline_value"].is_not_null().any()


def curves_of(runs: pl.DataFrame) -> Floats:
    """The curves of runs `with_values` as `[runs, bins]`; an empty bin repeats the one before it.

    The curve of a run that diverged is its value all along, so that means of curves and of values agree.
    """
    matrix = runs["curve"].explode().to_numpy().astype(np.float64).reshape(runs.height, -1 if runs.height else 0)
    return _filled(matrix, runs, "value")


def _filled(matrix: Floats, runs: pl.DataFrame, value: str) -> Floats:
    """Curves `[runs, points]` without gaps: each repeats what is before it, and a run that diverged is its value."""
    places = np.where(np.isnan(matrix), 0, np.arange(matrix.shape[1]))
    matrix = np.take_along_axis(matrix, np.maximum.accumulate(places, axis=1), axis=1)
    diverged = (runs["status"] == "diverged").to_numpy()
    matrix[diverged] = runs[value].to_numpy()[diverged, None]
    return matrix


class Curves(NamedTuple):
    """The curves of some runs."""

    steps: Floats
    """`[points]`."""
    values: Floats
    """`[runs, points]`."""
    diverged: int


def online_curves(runs: pl.DataFrame) -> Curves:
    """The returns of training episodes, of those runs `with_values` that have any."""
    known = runs.filter(pl.col("value").is_not_null())
    values = curves_of(known)
    steps = (np.arange(values.shape[1]) + 1) * known["curve_steps"].head(1).to_numpy()
    return Curves(steps, values, _diverged(known))


def offline_curves(runs: pl.DataFrame) -> Curves:
    """The mean returns of evaluations, of those runs `with_values` that have any, at every step where one of them has.

    A run that has none at a step repeats the one before it; where it has none yet, the curves have not begun.
    """
    known = runs.filter(pl.col("offline_value").is_not_null())
    told = [
        (every * np.arange(1.0, len(curve) + 1), np.array(curve, np.float64))
        for every, curve in known.select("eval_steps", "eval_curve").iter_rows()
    ]
    steps = np.unique(np.concatenate([np.empty(0), *(own for own, _ in told)]))
    values = np.full((len(told), len(steps)), np.nan)
    for row, (own, curve) in zip(values, told, strict=True):
        row[np.searchsorted(steps, own)] = curve
    values = _filled(values, known, "offline_value")
    begun = ~np.isnan(values).any(axis=0)
    return Curves(steps[begun], values[:, begun], _diverged(known))


def _diverged(runs: pl.DataFrame) -> int:
    return int((runs["status"] == "diverged").sum())


VIEWS: Mapping[str, Callable[[pl.DataFrame], Curves]] = {"online": online_curves, "offline": offline_curves}
"""How learning can be looked at: by the episodes of training, and by evaluations with learning off."""
