"""A grid: the settings of one agent on one environment, and the values of their runs on the same seeds.

Selection and sensitivity look at runs only through grids. What is incomplete is left out and counted.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from greedyac.analysis.load import is_number, settings_of
from greedyac.analysis.stats import Floats, Whole
from greedyac.core.fields import show

Flags = np.ndarray[Any, np.dtype[np.bool_]]

USUAL_AXES = ("critic_step_size", "actor_step_size_scale", "entropy_scale", "entropy_step_size")
"""The paper's hyperparameters, which come first, in its order."""


@dataclass(frozen=True)
class Grid:
    """Complete settings × common seeds, in an order that does not depend on the rows'."""

    agent: str
    env: str
    axes: dict[str, tuple[float, ...]]
    """The numbers that vary between the settings, and their values in order."""
    settings: tuple[str, ...]
    hypers: tuple[dict[str, Any], ...]
    """All hyperparameters of each setting."""
    seeds: tuple[int, ...]
    values: Floats
    """`[settings, seeds]`."""
    diverged: Flags
    """`[settings, seeds]`."""
    left_out: int
    """Settings without a value for each of these seeds: runs are missing, failed, or finished no episode."""

    @cached_property
    def places(self) -> Whole:
        """Where each setting lies on the axes: `[settings, axes]`."""
        rows = [[values.index(hypers[name]) for name, values in self.axes.items()] for hypers in self.hypers]
        return np.array(rows, np.int64).reshape(len(self.settings), len(self.axes))

    @property
    def means(self) -> Floats:
        """The mean value of each setting, `[settings]`."""
        return np.asarray(self.values.mean(axis=1))

    @property
    def full(self) -> bool:
        """Whether every combination of the axes' values is there, once."""
        size = int(np.prod([len(values) for values in self.axes.values()]))
        return len(self.settings) == size == len({tuple(place) for place in self.places.tolist()})

    def tensor(self, numbers: Floats) -> Floats:
        """Numbers of the settings of a full grid, `[settings]`, laid out along the axes."""
        laid = np.empty([len(values) for values in self.axes.values()])
        laid[(..., *self.places.T)] = numbers
        return laid

    def describe(self, setting: int) -> str:
        """A setting by the numbers that vary: `critic_step_size=0.001, entropy_scale=10`."""
        named = (f"{name}={show(self.hypers[setting][name])}" for name in self.axes)
        return ", ".join(named) or "the only setting"

    def only(self, settings: Sequence[str]) -> "Grid":
        """The same grid with some of its settings, in that order."""
        index = [self.settings.index(setting) for setting in settings]
        hypers = tuple(self.hypers[place] for place in index)
        left_out = self.left_out + len(self.settings) - len(index)
        return Grid(
            self.agent,
            self.env,
            axes_of(hypers),
            tuple(settings),
            hypers,
            self.seeds,
            self.values[index],
            self.diverged[index],
            left_out,
        )


def make_grids(runs: pl.DataFrame) -> list[Grid]:
    """The grid of every agent on every environment, from runs `with_values`."""
    parts = runs.sort("kind", "env", "agent", "setting_id", "seed").group_by("env", "agent", maintain_order=True)
    return [_make_grid(str(agent), str(env), part) for (env, agent), part in parts]


def _make_grid(agent: str, env: str, runs: pl.DataFrame) -> Grid:
    asked = runs.group_by("setting_id").agg(pl.col("seed").sort()).sort("setting_id")
    common = _usual_seeds(asked["seed"])
    there = runs.filter(pl.col("seed").is_in(common), pl.col("value").is_not_null())
    complete = there.group_by("setting_id").len().filter(pl.col("len") == len(common))["setting_id"]
    all_hypers = settings_of(runs)
    chosen = {setting: all_hypers[setting] for setting in complete}
    axes = axes_of(tuple(chosen.values()))
    order = sorted(chosen, key=lambda setting: ([chosen[setting][name] for name in axes], setting))
    rank = {setting: place for place, setting in enumerate(order)}
    place = pl.col("setting_id").replace_strict(rank, default=None, return_dtype=pl.Int64)
    cells = there.filter(pl.col("setting_id").is_in(order)).sort(place, "seed")
    shape = (len(order), len(common))
    return Grid(
        agent,
        env,
        axes,
        tuple(order),
        tuple(chosen[setting] for setting in order),
        common,
        cells["value"].to_numpy().astype(np.float64).reshape(shape),
        (cells["status"] == "diverged").to_numpy().reshape(shape),
        asked.height - len(order),
    )


def same_settings(grids: Sequence[Grid]) -> list[Grid]:
    """Grids of one agent, each with only the settings that all of them have."""
    others = [set(grid.settings) for grid in grids[1:]]
    shared = [setting for setting in grids[0].settings if all(setting in other for other in others)]
    return [grid.only(shared) for grid in grids]


def _usual_seeds(asked: pl.Series) -> tuple[int, ...]:
    """The seeds that most settings were to be run with, these and perhaps more; of two such sets the larger."""
    sets = Counter(tuple(seeds) for seeds in asked)
    shared = {seeds: sum(sets[other] for other in sets if set(seeds) <= set(other)) for seeds in sets}
    return max(sets, key=lambda seeds: (shared[seeds], len(seeds), seeds))


def _rank(name: str) -> int:
    return USUAL_AXES.index(name) if name in USUAL_AXES else len(USUAL_AXES)


def axes_of(hypers: Sequence[dict[str, Any]]) -> dict[str, tuple[float, ...]]:
    """The numbers among hyperparameters that vary, with their values in order."""
    names = sorted(set(itertools.chain.from_iterable(hypers)), key=lambda name: (_rank(name), name))
    values: dict[str, list[Any]] = {name: [one.get(name) for one in hypers] for name in names}
    return {
        name: tuple(sorted(set(found)))
        for name, found in values.items()
        if all(map(is_number, found)) and len(set(found)) > 1
    }
