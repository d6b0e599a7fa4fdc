"""The numbers that the page's figures are drawn from: JSON values, and the curves of single runs in 16 bits."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.colors import to_hex

from greedyac.analysis.compare import Comparison
from greedyac.analysis.figures import COLOURS, axis_name, named_shares
from greedyac.analysis.grid import Grid, axes_of
from greedyac.analysis.load import curves_of, settings_of, with_values
from greedyac.analysis.report import Analysis
from greedyac.analysis.sensitivity import pair_means, sensitivity_curves
from greedyac.analysis.stats import Floats, Interval, tolerance
from greedyac.analysis.words import BY_WORDS, few_words, tuned_words
from greedyac.core.counting import counted
from greedyac.core.fields import show

MOST_CURVES = 32_000
"""Runs whose curves the page holds; with more of them, those of the best settings."""
LEVELS = 65_535
DARK_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00")


def make_payload(found: Analysis) -> tuple[dict[str, Any], np.ndarray[Any, np.dtype[np.uint16]]]:
    """What the figures are drawn from, as JSON values, and the curves of single runs."""
    curves, settings, envs, left_out = _curves(found)
    views = [(by, words if found.tuned else "as they are") for by, words in BY_WORDS.items() if found.chosen(by)]
    every = [one for own in settings.values() for group in own.values() for one in group]
    hypers = sorted(
        {name for one in every for name in one["hypers"]} | {name for grid in found.grids for name in grid.axes}
    )
    counts = sorted({one.runs.height for one in found.reported} | {len(one["seeds"]) for one in every})
    data = {
        "bins": curves.shape[1],
        "envs": envs,
        "agents": dict.fromkeys(found.results.runs["agent"].unique().sort(), 1),
        "colours": {"light": COLOURS, "dark": DARK_COLOURS},
        "viridis": [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 1, 32))],
        "hypers": {name: axis_name(name) for name in hypers},
        "tolerance": {count: tolerance(count) for count in counts if count > 1},
        "curves": settings,
        "curvesLeftOut": left_out,
        "mostAxes": max((len(one["hypers"]) for one in every), default=0),
        "views": views,
        "chosen": {by: _chosen(found, by) for by, _ in views},
        "sensitivity": _by_env(found.swept, _sensitivity_data),
        "pairs": _by_env([grid for grid in found.swept if len(grid.axes) > 1], _pairs_data),
        "variance": _by_env([grid for grid in found.swept if named_shares(grid)], named_shares),
        "comparisons": [_comparison_data(one, tuned_words(found, one.by)) for one in found.comparisons],
    }
    return data, curves


def _by_env(grids: Sequence[Grid], data: Callable[[Grid], Any]) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for grid in grids:
        made.setdefault(grid.env, {})[grid.agent] = data(grid)
    return made


def _curves(found: Analysis) -> tuple[Any, dict[str, Any], dict[str, Any], int]:
    """The curves in levels between each environment's lowest and highest, `[runs, bins]`, and where to find which."""
    runs = with_values(found.results.runs).filter(pl.col("value").is_not_null())
    keys = ["env", "agent", "setting_id"]
    chosen = {(one.env, one.choice.agent, one.choice.setting_id) for one in found.reported}
    groups = runs.group_by(keys, maintain_order=True).agg(pl.len(), pl.col("value").mean())
    first = pl.Series([tuple(row) in chosen for row in groups.select(keys).iter_rows()], dtype=pl.Boolean)
    ranked = groups.with_columns(
        chosen=first, rank=pl.col("value").rank("ordinal", descending=True).over("env", "agent")
    )
    ranked = ranked.sort(["chosen", "rank", *keys], descending=[True, False, False, False, False])
    kept = ranked.filter(pl.col("len").cum_sum() <= MOST_CURVES)
    runs = runs.join(kept.select(keys), on=keys, how="semi", maintain_order="left")
    values = curves_of(runs)
    levels = np.zeros(values.shape, "<u2")
    envs: dict[str, Any] = {}
    for (env,), part in runs.with_row_index("place").group_by("env", maintain_order=True):
        rows = part["place"].to_numpy()
        low, high = float(values[rows].min()), float(values[rows].max())
        envs[str(env)] = {"low": low, "high": high, "curveSteps": part["curve_steps"][0]}
        levels[rows] = np.rint((values[rows] - low) / ((high - low) or 1.0) * LEVELS)
    settings = _listed_settings(runs)
    return levels, settings, envs, groups.height - kept.height


def _listed_settings(runs: pl.DataFrame) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Environment → agent → its settings, each with its seeds and the row of its first curve."""
    made: dict[str, dict[str, list[dict[str, Any]]]] = {}
    hypers = settings_of(runs)
    for (env, agent), own in runs.with_row_index("place").group_by("env", "agent", maintain_order=True):
        axes = axes_of([hypers[setting] for setting in own["setting_id"].unique()])
        group = made.setdefault(str(env), {}).setdefault(str(agent), [])
        for (setting,), part in own.group_by("setting_id", maintain_order=True):
            numbers = {name: hypers[str(setting)][name] for name in axes}
            group.append(
                {
                    "id": setting,
                    "label": ", ".join(f"{axis_name(name)} {show(value)}" for name, value in numbers.items())
                    or "its only setting",
                    "hypers": numbers,
                    "seeds": part["seed"].to_list(),
                    "diverged": (part["status"] == "diverged").cast(pl.Int8).to_list(),
                    "first": int(part["place"][0]),
                }
            )
    return made


def _chosen(found: Analysis, by: str) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for one in found.chosen(by):
        pick = {"id": one.choice.setting_id, "seeds": one.runs["seed"].to_list(), "optimistic": one.optimistic}
        made.setdefault(one.env, {})[one.choice.agent] = pick
    return made


def _sensitivity_data(grid: Grid) -> dict[str, Any]:
    curves: dict[str, dict[str, Any]] = {}
    for across, lines in itertools.product(grid.axes, [*grid.axes, ""]):
        if across != lines:
            curves.setdefault(across, {})[lines] = _numbers(sensitivity_curves(grid, across, lines or None))
    return {"axes": grid.axes, "curves": curves}


def _pairs_data(grid: Grid) -> list[dict[str, Any]]:
    diverged = grid.diverged.mean(axis=1)
    return [
        {
            "first": first,
            "second": second,
            "rows": grid.axes[first],
            "columns": grid.axes[second],
            "value": _numbers(pair_means(grid, first, second, grid.means)),
            "diverged": _numbers(pair_means(grid, first, second, diverged)),
        }
        for first, second in itertools.combinations(grid.axes, 2)
    ]


def _comparison_data(one: Comparison, tuned: str) -> dict[str, Any]:
    def row(name: str, agent: str, number: Interval) -> dict[str, Any]:
        return {"name": name, "agent": agent, **number._asdict()}

    return {
        "title": f"{one.kind} actions{tuned}",
        "few": few_words(min(one.runs.values())),
        "runs": ", ".join(f"{counted(count, 'run')} on {env}" for env, count in one.runs.items()),
        "optimistic": one.optimistic,
        "means": [row(agent, agent, mean) for agent, mean in one.means.items()],
        "improvement": [row(f"{pair.first} over {pair.second}", pair.first, pair.improvement) for pair in one.pairs],
        "profiles": [
            {"agent": profile.agent}
            | {name: _numbers(getattr(profile, name)) for name in ("thresholds", "share", "low", "high")}
            for profile in one.profiles
        ],
    }


def _numbers(array: Floats) -> Any:
    """An array as nested lists with null for NaN, to six places that matter."""
    rounded = np.vectorize(lambda number: None if np.isnan(number) else float(f"{number:.6g}"), otypes=[object])(array)
    return rounded.tolist()
