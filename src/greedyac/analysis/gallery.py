"""The figures of a report: which there are, what they are called, and what is under them."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl
from matplotlib.figure import Figure

from greedyac.analysis import figures
from greedyac.analysis.load import evaluated, kind_of
from greedyac.analysis.report import Analysis
from greedyac.analysis.select import BYS, Reported
from greedyac.analysis.sensitivity import line_axis
from greedyac.analysis.stats import Band
from greedyac.analysis.words import tuned_words
from greedyac.core.counting import plural


class Picture(NamedTuple):
    """A figure with the name of its file and its caption."""

    name: str
    caption: str
    figure: Figure


def gallery(found: Analysis, band: Band = "standard-error", single_runs: bool = False) -> Iterator[Picture]:
    """Every figure for which there is something to show, one after the other."""
    for by in BYS:
        if found.chosen(by):
            yield curves_picture(found, by, band, single_runs)
    for kind in dict.fromkeys(kind_of(grid.env) for grid in found.swept):
        yield from _sensitivity(found, kind)
    for by in BYS:
        yield from _comparison(found, by)


def curves_picture(found: Analysis, by: str, band: Band, single_runs: bool = False) -> Picture:
    """The learning curves of one way of choosing; where runs were evaluated, online and offline side by side."""
    shown = found.chosen(by)
    runs = pl.concat([one.runs for one in shown])
    views = ", online (episodes of training) and offline (evaluations with learning off)" if evaluated(runs) else ""
    return Picture(
        f"learning_curves_by_{by}",
        f"Learning curves{tuned_words(found, by)}{views}; {figures.BAND_WORDS[band]}, {seeds_words(shown)}.",
        figures.learning_curves(runs, band, single_runs),
    )


def seeds_words(shown: list[Reported]) -> str:
    """Which seeds the reported runs have, in words."""
    if seeds := max((one.runs.height for one in shown if one.optimistic), default=0):
        return f"on the {plural(seeds, 'seed')} that the settings were chosen by, and so optimistic"
    seeds = max((one.runs.height for one in shown if one.fresh), default=0)
    return f"on {'a seed' if seeds == 1 else 'seeds'} that no selection saw" if seeds else "all runs"


def _sensitivity(found: Analysis, kind: str) -> Iterator[Picture]:
    grids = [grid for grid in found.swept if kind_of(grid.env) == kind]
    axes = sorted({name for grid in grids for name in grid.axes})
    for name in axes:
        lined = [grid for grid in grids if name in grid.axes and line_axis(grid, name)]
        others, means = (" but that of the lines", "means") if lined else ("", "means ± standard errors")
        yield Picture(
            f"sensitivity_{kind}_{name}",
            f"Average return over the {figures.axis_name(name)}, every other hyperparameter{others} at its best for "
            f"each point; {means} over the runs that all settings have.",
            figures.sensitivity(grids, name),
        )
        if lined:
            yield Picture(
                f"region_{kind}_{name}",
                f"Sensitivity region over the {figures.axis_name(name)}: the band between all entropy scales' lines.",
                figures.regions(lined, name),
            )
    if full := [grid for grid in grids if figures.named_shares(grid)]:
        caption = "Exact functional ANOVA over the grid of settings: the share of the variance of mean returns."
        yield Picture(f"variance_{kind}", caption, figures.variance(full))
    several = [grid for grid in grids if len(grid.axes) > 1]
    for agent in dict.fromkeys(grid.agent for grid in several):
        own = [grid for grid in several if grid.agent == agent]
        caption = f"Average return of {agent} over pairs of hyperparameters, averaged over the others."
        yield Picture(f"heat_maps_{kind}_{_file_name(agent)}", caption, figures.heat_maps(own))
    if any(grid.diverged.any() for grid in several):
        caption = "Where runs diverged: the share of runs, averaged over the other hyperparameters."
        yield Picture(f"divergence_{kind}", caption, figures.divergence(several))


def _comparison(found: Analysis, by: str) -> Iterator[Picture]:
    own = [one for one in found.comparisons if one.by == by]
    if not own:
        return
    tuned = tuned_words(found, by)
    yield Picture(
        f"interquartile_means_by_{by}",
        f"Interquartile mean of the normalised score with 95 % stratified bootstrap intervals{tuned}.",
        figures.intervals({f"{one.kind} actions": one.means for one in own}, "interquartile mean of the score"),
    )
    better = {
        f"{one.kind} actions": {f"{pair.first} over {pair.second}": pair.improvement for pair in one.pairs}
        for one in own
    }
    yield Picture(
        f"improvement_by_{by}",
        f"Probability that a run of the first agent is better than one of the second, with 95 % intervals{tuned}.",
        figures.intervals(better, "probability of improvement", marked=0.5),
    )
    caption = f"Performance profiles: the share of runs above a normalised score, with 95 % intervals{tuned}."
    yield Picture(f"profiles_by_{by}", caption, figures.profiles(own))


def _file_name(agent: str) -> str:
    """An agent's label without the characters that file systems dislike."""
    return "".join(letter if letter.isalnum() or letter in "-_=" else "_" for letter in agent).rstrip("_")
