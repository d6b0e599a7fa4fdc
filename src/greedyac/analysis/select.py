"""Selection: the best setting of every agent, per environment or across those of one kind, by the tuning seeds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from greedyac.analysis.grid import Grid, make_grids, same_settings
from greedyac.analysis.load import Results, kind_of, with_values
from greedyac.analysis.scores import Best, best_returns, paper_scale
from greedyac.analysis.stats import CONFIDENCE, Floats, percentile_interval, resampled, resampled_means

By = Literal["env", "kind"]
BYS: tuple[By, ...] = ("env", "kind")


class Choice(NamedTuple):
    """The setting that was chosen for an agent on some environments, and how."""

    by: By
    agent: str
    kind: str
    envs: tuple[str, ...]
    setting_id: str
    setting: str
    """The numbers that vary, in words."""
    hypers: dict[str, object]
    score: float
    """What it was chosen by: the mean value on one environment, or the mean score across several."""
    compared: int
    tied: int
    """Other settings with exactly this score; the first of them was taken."""
    left_out: int
    """Settings that lack runs on some tuning seed or environment."""
    seeds: tuple[int, ...]
    rivals: pl.DataFrame
    """`setting_id`, `setting`, `score`, `win_share`, `indistinguishable`: every setting, the best first."""


def choose(results: Results, by: By, best: Best = "store") -> tuple[list[Choice], list[str]]:
    """The choice for every agent on every environment (or kind of environments), and in words where there is none."""
    runs = with_values(results.tuning())
    grids = make_grids(runs)
    seen = [{"env": grid.env, "seed": seed} for grid in grids for seed in grid.seeds]
    runs = runs.join(pl.DataFrame(seen), on=["env", "seed"], how="semi")
    known = best_returns(runs, best)
    groups: dict[tuple[str, str], list[Grid]] = defaultdict(list)
    for grid in grids:
        groups[grid.env if by == "env" else kind_of(grid.env), grid.agent].append(grid)
    choices, notes = [], []
    for (place, agent), group in groups.items():
        where = place if by == "env" else f"the {place}-action environments"
        same = same_settings(group)
        if obstacle := _obstacle(group, same, known if by == "kind" else None):
            tuned = " on the tuning seeds" if results.tuning_seeds else ""
            notes.append(f"no setting of {agent} was chosen for {where}: {obstacle}{tuned}")
        else:
            choices.append(_choice(by, same, *_judged(by, same, runs, known, best)))
    return choices, notes


def _obstacle(grids: list[Grid], same: list[Grid], best: Mapping[str, float] | None) -> str | None:
    """Why nothing can be chosen from these grids, which have the `same` settings in common, in words."""
    if incomplete := [grid.env for grid in grids if not grid.settings]:
        return f"no setting has a return for every run on {incomplete[0]}"
    if not same[0].settings:
        return "no setting was run on all of them"
    if best is not None and (unscored := [grid.env for grid in grids if not best.get(grid.env)]):
        return f"the score is not defined on {unscored[0]}, where the best return is 0 or unknown"
    return None


def _choice(by: By, grids: list[Grid], scores: Floats, samples: Floats) -> Choice:
    winners = samples == samples.max(axis=1, keepdims=True)
    wins = (winners / winners.sum(axis=1, keepdims=True)).mean(axis=0)  # equal settings share a win
    first, best = grids[0], int(scores.argmax())
    rivals = pl.DataFrame(
        {
            "setting_id": first.settings,
            "setting": [first.describe(place) for place in range(len(scores))],
            "score": scores,
            "win_share": wins,
            "indistinguishable": _indistinguishable(samples, wins, best, min(len(grid.seeds) for grid in grids)),
        }
    ).sort("score", descending=True, maintain_order=True)
    return Choice(
        by,
        first.agent,
        kind_of(first.env),
        tuple(grid.env for grid in grids),
        first.settings[best],
        first.describe(best),
        first.hypers[best],
        float(scores[best]),
        len(scores),
        int((scores == scores[best]).sum()) - 1,
        max(grid.left_out for grid in grids),
        tuple(sorted(set().union(*(grid.seeds for grid in grids)))),
        rivals,
    )


def _judged(
    by: By, grids: list[Grid], runs: pl.DataFrame, known: Mapping[str, float], best: Best
) -> tuple[Floats, Floats]:
    """What each setting is judged by, `[settings]`, and the same for resampled seeds, `[times, settings]`.

    By environment that is the mean value, else the mean score over environments. The seeds are resampled for all
    settings alike, and the near-optimal return is found anew among them.
    """
    if by == "env":
        return grids[0].means, resampled_means(grids[0].values)
    means, samples = [], []
    for stream, grid in enumerate(grids):
        means.append(paper_scale(known[grid.env])(grid.means))
        drawn = _near_optimal(grid, runs, known[grid.env], best, stream)
        samples.append(paper_scale(drawn)(resampled_means(grid.values, stream)))
    return np.mean(means, axis=0), np.mean(samples, axis=0)


def _near_optimal(grid: Grid, runs: pl.DataFrame, known: float, best: Best, stream: int) -> Floats:
    """The highest return of any agent's runs on the resampled seeds, `[times, 1]`; of all where theirs is 0 or none."""
    if best == "paper":
        return np.full((1, 1), known)
    there = runs.filter(pl.col("env") == grid.env, pl.col("seed").is_in(grid.seeds))
    highest = dict(there.group_by("seed").agg(pl.col("best_return").max()).rows())
    by_seed = np.array([-np.inf if highest[seed] is None else highest[seed] for seed in grid.seeds])
    drawn = by_seed[resampled(len(grid.seeds), stream=stream)].max(axis=1, keepdims=True)
    return np.where(np.isfinite(drawn) & (drawn != 0), drawn, known)


def _indistinguishable(samples: Floats, wins: Floats, best: int, seeds: int) -> list[bool]:
    """The settings that can't be told from the best, by judgements of resampled seeds, `[times, settings]`.

    These are the fewest that together win in `CONFIDENCE` of the resamples, and those that are not behind the best in
    so many of them. One seed tells nothing apart.
    """
    order = np.argsort(-wins, kind="stable")
    before = np.cumsum(wins[order]) - wins[order]
    winners = set(order[before < CONFIDENCE].tolist())
    behind = percentile_interval(samples[:, [best]] - samples)[0] > 0
    return [seeds < 2 or place in winners or not behind[place] for place in range(len(wins))]


class Reported(NamedTuple):
    """The runs by which a choice is reported on one environment."""

    choice: Choice
    env: str
    runs: pl.DataFrame
    """Runs `with_values`."""
    asked: int
    """How many there should be."""
    fresh: bool
    """Whether no selection saw them."""
    optimistic: bool
    """Whether the setting was chosen among several on these very runs."""


def reported(results: Results, choices: Sequence[Choice]) -> list[Reported]:
    """The runs of every chosen setting on seeds that the selection did not see, or else on those it saw."""
    runs = with_values(results.runs)
    reports = []
    for choice in choices:
        for env in choice.envs:
            own = runs.filter(pl.col("env") == env, pl.col("setting_id") == choice.setting_id)
            others = own.filter(~pl.col("tuning"), ~pl.col("seed").is_in(choice.seeds))
            fresh = others["value"].is_not_null().any()
            used = others if fresh else own.filter(pl.col("seed").is_in(choice.seeds))
            known = used.filter(pl.col("value").is_not_null())
            reports.append(Reported(choice, env, known, used.height, fresh, not fresh and choice.compared > 1))
    return reports
