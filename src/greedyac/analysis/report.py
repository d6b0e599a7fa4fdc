"""Everything that a report says, computed once: from results to frames. Figures, words and the page only show it."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from greedyac.analysis.compare import Comparison, Difference, compare, differences
from greedyac.analysis.grid import Grid, make_grids
from greedyac.analysis.load import STATUSES, VIEWS, Results, with_values
from greedyac.analysis.scores import Best, Scale, Scales, best_returns, paper_scales, percentile_scales
from greedyac.analysis.select import BYS, Choice, Reported, choose, reported
from greedyac.analysis.sensitivity import (
    MeanDifference,
    Measures,
    held_out_width,
    line_axis,
    mean_differences,
    measures,
    region_width,
    sensitivity_curves,
    shares_near_best,
    shares_of,
)
from greedyac.analysis.stats import Band, Interval, band_of, mean_interval, standard_error
from greedyac.execution.seeds import seeds_text


@dataclass(frozen=True)
class Analysis:
    """What the runs of a store show."""

    results: Results
    best: Best
    choices: Sequence[Choice]
    reported: Sequence[Reported]
    comparisons: Sequence[Comparison]
    grids: Sequence[Grid]
    scales: Mapping[str, Scales]
    """Score → environment → how it is computed there."""
    notes: Sequence[str]
    """What could not be said, and why."""

    @cached_property
    def measures(self) -> list[Measures]:
        """Mean score, Φ and effective dimensionality."""
        return measures(self.grids, self.scales)

    @cached_property
    def swept(self) -> list[Grid]:
        """The grids with more than one setting."""
        return [grid for grid in self.grids if len(grid.settings) > 1]

    @cached_property
    def tuned(self) -> bool:
        """Whether anything was chosen among several settings."""
        return any(choice.compared > 1 for choice in self.choices)

    def chosen(self, by: str) -> list[Reported]:
        """The reported runs of one way of choosing."""
        return [one for one in self.reported if one.choice.by == by]


def analyse(results: Results, best: Best = "store") -> Analysis:
    """Select on the tuning seeds, report on the others, compare, and measure sensitivity."""
    choices: list[Choice] = []
    notes: list[str] = []
    for by in BYS:
        chosen, unsaid = choose(results, by, best)
        across = [choice for choice in chosen if by == "env" or len(choice.envs) > 1]
        if by == "env" or any(choice.compared > 1 for choice in across):
            choices += across
        if by == "env" or any(choice.compared > 1 for choice in choices):
            notes += unsaid
    runs = with_values(results.runs)
    grids = make_grids(runs)
    scales = {"paper": paper_scales(runs, best), "percentile": percentile_scales(_balanced(runs, grids))}
    shown = reported(results, choices)
    comparisons, unsaid = compare(shown, scales["paper"])
    return Analysis(results, best, choices, shown, comparisons, grids, scales, list(dict.fromkeys([*notes, *unsaid])))


def _balanced(runs: pl.DataFrame, grids: Sequence[Grid]) -> pl.DataFrame:
    """The runs that are in grids: the same seeds of every setting."""
    cells = [
        {"env": grid.env, "setting_id": setting, "seed": seed}
        for grid in grids
        for setting, seed in itertools.product(grid.settings, grid.seeds)
    ]
    schema = {"env": pl.String, "setting_id": pl.String, "seed": pl.Int64}
    return runs.join(pl.DataFrame(cells, schema), on=list(schema), how="semi")


TABLES = {
    "inventory": "runs asked for, and what became of them (blank: done without a finished episode)",
    "best_returns": "what the normalised score is relative to, from this store or the paper",
    "selection": "chosen settings; score: the mean average return (by env) or normalised score (by kind) they won by; "
    "tied: settings with the same score; indistinguishable: settings that can't be told from it, itself included",
    "rivals": "all settings of each selection; win_share: of selections on resampled seeds",
    "results": "average returns of the chosen settings on the seeds reported; fresh: no selection saw these seeds; "
    "optimistic: chosen among several by these very runs; low, high: 95 % bootstrap interval of the mean",
    "differences": "on each environment, of every two agents at their chosen settings, on the seeds that both have: "
    "the first's mean average return less the second's, the same of final returns, and the probability that a run of "
    "the first is better, with 95 % bootstrap intervals over seeds",
    "learning_curves": "means and bands of the curves of the chosen settings",
    "offline_curves": "the same of evaluations with learning off",
    "settings": "mean average return of every setting over the seeds that all have",
    "sensitivity_curves": "the same over one hyperparameter, the others but that of the lines at their best",
    "regions": "mean height of the band between the lines (width), which noise makes larger; the same with lines "
    "chosen by one half of the seeds and judged by the other (held-out width), which noise makes smaller; the mean of "
    "these lines (level); as return and in scores",
    "near_best": "shares of settings within 5, 10, 25 % of |best| of the best mean, the agent's own and any agent's",
    "variance_shares": "functional ANOVA of the mean returns over full grids",
    "measures": "mean score over all settings, Φ and effective dimensionality, over the environments of a kind, by two "
    "scores",
    "mean_score_differences": "of two agents with the same grid on the same seeds: the first's mean score over all "
    "settings less the second's, by two scores, with 95 % bootstrap intervals over seeds",
    "interquartile_means": "of normalised scores, with 95 % stratified bootstrap intervals",
    "improvement": "probability that a run of the first agent is better, and difference of interquartile means",
    "profiles": "share of runs above a normalised score",
}
"""What each table holds."""


def tables(found: Analysis, band: Band = "standard-error") -> dict[str, pl.DataFrame]:
    """Every number of the report, by the name of its file."""
    made = {
        "inventory": inventory(found.results.runs),
        "best_returns": _best_returns(found),
        "selection": _frame(map(_selection_row, found.choices)),
        "rivals": _frame(row for choice in found.choices for row in _rival_rows(choice)),
        "results": _frame(map(_result_row, found.reported)),
        "differences": _frame(map(_difference_row, differences(found.reported))),
        "learning_curves": _learning_curves(found.reported, band, "online"),
        "offline_curves": _learning_curves(found.reported, band, "offline"),
        "settings": _frame(row for grid in found.swept for row in _setting_rows(grid)),
        "sensitivity_curves": _frame(row for grid in found.swept for row in _curve_rows(grid)),
        "regions": _frame(row for grid in found.swept for row in _region_rows(grid, found.scales)),
        "near_best": _frame(_near_best_rows(found.grids)),
        "variance_shares": _frame(row for grid in found.swept for row in _variance_rows(grid)),
        "measures": _frame(map(_measure_row, found.measures)),
        "mean_score_differences": _frame(map(_mean_difference_row, mean_differences(found.grids, found.scales))),
        "interquartile_means": _frame(row for one in found.comparisons for row in _mean_rows(one)),
        "improvement": _frame(row for one in found.comparisons for row in _pair_rows(one)),
        "profiles": _frame(row for one in found.comparisons for row in _profile_rows(one)),
    }
    return {name: frame for name, frame in made.items() if not frame.is_empty()}


def _frame(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), infer_schema_length=None)


def inventory(runs: pl.DataFrame) -> pl.DataFrame:
    """How many runs of each agent on each environment were asked for, and what became of them."""
    counts = [(pl.col("status") == status).sum().alias(status) for status in STATUSES]
    return runs.group_by("env", "agent", maintain_order=True).agg(pl.len().alias("runs"), *counts)


def _best_returns(found: Analysis) -> pl.DataFrame:
    """The near-optimal return of each environment: what the paper's score is relative to."""
    known = best_returns(found.results.runs, found.best)
    return _frame({"env": env, "best_return": value, "from": found.best} for env, value in sorted(known.items()))


def _selection_row(choice: Choice) -> dict[str, Any]:
    return {
        "by": choice.by,
        "kind": choice.kind,
        "envs": ", ".join(choice.envs),
        "agent": choice.agent,
        "setting_id": choice.setting_id,
        "setting": choice.setting,
        "score": choice.score,
        "seeds": seeds_text(choice.seeds),
        "settings_compared": choice.compared,
        "settings_left_out": choice.left_out,
        "tied": choice.tied,
        "indistinguishable": int(choice.rivals["indistinguishable"].sum()),
    }


def _rival_rows(choice: Choice) -> Iterator[dict[str, Any]]:
    about = {"by": choice.by, "envs": ", ".join(choice.envs), "agent": choice.agent}
    return ({**about, **row} for row in choice.rivals.iter_rows(named=True))


def _result_row(one: Reported) -> dict[str, Any]:
    values = one.runs["value"].to_numpy()
    _, low, high = mean_interval(values) if len(values) > 1 else (None, None, None)
    final = one.runs["final_value"].mean()
    return {
        "by": one.choice.by,
        "kind": one.choice.kind,
        "env": one.env,
        "agent": one.choice.agent,
        "setting_id": one.choice.setting_id,
        "setting": one.choice.setting,
        "runs": len(values),
        "runs_asked": one.asked,
        "diverged": int((one.runs["status"] == "diverged").sum()),
        "seeds": seeds_text(one.runs["seed"].to_list()),
        "fresh": one.fresh,
        "optimistic": one.optimistic,
        "average_return": float(values.mean()),
        "standard_error": float(standard_error(values)) if len(values) > 1 else None,
        "low": low,
        "high": high,
        "final_return": final,
    }


def _difference_row(one: Difference) -> dict[str, Any]:
    return {
        "by": one.by,
        "env": one.env,
        "first": one.first,
        "second": one.second,
        "runs": one.runs,
        **_with_ends("average_return", one.average_return),
        **_with_ends("final_return", one.final_return),
        **_with_ends("improvement", one.improvement),
        "optimistic": one.optimistic,
    }


def _with_ends(name: str, found: Interval | None) -> dict[str, Any]:
    """An estimate and the ends of its interval as three columns."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), found or [None] * 3, strict=True))


def _learning_curves(reported: Sequence[Reported], band: Band, view: str) -> pl.DataFrame:
    frames = []
    for one in reported:
        steps, values, _ = VIEWS[view](one.runs)
        if not len(steps):
            continue
        mean, low, high = band_of(values, band)
        about = {"by": one.choice.by, "env": one.env, "agent": one.choice.agent, "band": band}
        numbers = pl.DataFrame({"step": steps, "mean": mean, "low": low, "high": high})
        frames.append(numbers.select(*(pl.lit(text).alias(name) for name, text in about.items()), pl.all()))
    return pl.concat(frames) if frames else pl.DataFrame()


def _setting_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    errors = standard_error(grid.values.T)
    for place, (setting, mean) in enumerate(zip(grid.settings, grid.means, strict=True)):
        yield {
            "env": grid.env,
            "agent": grid.agent,
            "setting_id": setting,
            "setting": grid.describe(place),
            "runs": len(grid.seeds),
            "average_return": float(mean),
            "standard_error": float(errors[place]) if len(grid.seeds) > 1 else None,
            "diverged": int(grid.diverged[place].sum()),
        }


def _curve_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    for across in grid.axes:
        lines = line_axis(grid, across)
        curves = sensitivity_curves(grid, across, lines)
        for value, curve in zip(grid.axes[lines] if lines else [None], curves, strict=True):
            for point, mean in zip(grid.axes[across], curve, strict=True):
                yield {
                    "env": grid.env,
                    "agent": grid.agent,
                    "hyperparameter": across,
                    "value": float(point),
                    "line": lines,
                    "line_value": value,
                    "average_return": float(mean),
                }


def _region_rows(grid: Grid, scores: Mapping[str, Scales]) -> Iterator[dict[str, Any]]:
    units = {"mean": Scale(0, 1)} | {score: scales.get(grid.env) for score, scales in scores.items()}
    for across in grid.axes:
        lines = line_axis(grid, across)
        if lines is None:
            continue
        curves, fair = sensitivity_curves(grid, across, lines), held_out_width(grid, across, lines)
        row: dict[str, Any] = {"env": grid.env, "agent": grid.agent, "hyperparameter": across, "line": lines}
        for name, scale in units.items():
            row |= {
                f"{name}_width": float(region_width(curves) / scale.unit) if scale else None,
                f"{name}_held_out_width": float(fair / scale.unit) if scale and fair is not None else None,
                f"{name}_level": float(np.nanmean(scale(curves))) if scale else None,
            }
        yield row


def _near_best_rows(grids: Sequence[Grid]) -> Iterator[dict[str, Any]]:
    known = [grid for grid in grids if grid.settings]
    best = {env: max(grid.means.max() for grid in known if grid.env == env) for env in {grid.env for grid in known}}
    for grid in known:
        if len(grid.settings) < 2:
            continue
        row = {"env": grid.env, "agent": grid.agent, "settings": len(grid.settings)}
        for whose, reference in (("own", grid.means.max()), ("any", best[grid.env])):
            shares = shares_near_best(grid.means, reference)
            names = (f"within_{percent}_percent_of_{whose}_best" for percent in (5, 10, 25))
            row |= {f"{whose}_best": float(reference), **dict(zip(names, shares, strict=True))}
        yield row


def _variance_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    for names, share in shares_of(grid).items():
        yield {"env": grid.env, "agent": grid.agent, "hyperparameters": " × ".join(names), "share": share}


def _measure_row(one: Measures) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "agent": one.agent,
        "score": one.score,
        "envs": ", ".join(one.envs),
        "settings": one.settings,
        "hyperparameters": one.hyperparameters,
        **_with_ends("mean_score", one.mean_score),
        **_with_ends("phi", one.phi),
        "held_out_phi": one.held_out_phi,
        **_with_ends("effective_dimensionality", one.effective_dimensionality),
    }


def _mean_difference_row(one: MeanDifference) -> dict[str, Any]:
    about = {
        "kind": one.kind,
        "score": one.score,
        "envs": ", ".join(one.envs),
        "first": one.first,
        "second": one.second,
    }
    return {**about, **_with_ends("mean_score", one.mean_score)}


def _mean_rows(one: Comparison) -> Iterator[dict[str, Any]]:
    for agent, mean in one.means.items():
        about = {"by": one.by, "kind": one.kind, "envs": ", ".join(one.envs), "agent": agent}
        interval = {"interquartile_mean": mean.estimate, "low": mean.low, "high": mean.high}
        yield {**about, **interval, "runs": sum(one.runs.values()), "optimistic": one.optimistic}


def _pair_rows(one: Comparison) -> Iterator[dict[str, Any]]:
    for pair in one.pairs:
        about = {"by": one.by, "kind": one.kind, "first": pair.first, "second": pair.second}
        yield {
            **about,
            **_with_ends("improvement", pair.improvement),
            **_with_ends("difference", pair.difference),
        }


def _profile_rows(one: Comparison) -> Iterator[dict[str, Any]]:
    for profile in one.profiles:
        for point in zip(profile.thresholds, profile.share, profile.low, profile.high, strict=True):
            numbers = dict(zip(("threshold", "share", "low", "high"), map(float, point), strict=True))
            yield {"by": one.by, "kind": one.kind, "agent": profile.agent, **numbers}
