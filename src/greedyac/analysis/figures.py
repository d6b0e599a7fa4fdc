"""Figures for print. They take runs, grids and comparisons, and return Matplotlib figures."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, NullFormatter, NullLocator

from greedyac.analysis.compare import Comparison
from greedyac.analysis.grid import Grid
from greedyac.analysis.load import VIEWS, Curves, evaluated, with_values
from greedyac.analysis.sensitivity import best_settings, line_axis, pair_means, sensitivity_curves, shares_of
from greedyac.analysis.stats import Band, Floats, Interval, band_of, standard_error, tolerance
from greedyac.core.fields import show

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (5, 1.5, 1.5, 1.5)))
"""One set of colours after the other; lines also differ in print without colour."""
SYMBOLS = {"critic_step_size": "α", "actor_step_size_scale": "κ", "entropy_scale": "τ", "entropy_step_size": "β"}
BAND_WORDS: Mapping[Band, str] = {
    "standard-error": "mean ± standard error",
    "bootstrap": "mean, 95 % bootstrap interval",
    "tolerance": "mean, tolerance band",
}
MOST_COLUMNS = 3
FEW_POINTS = 50
"""So many points of a learning curve are marked; more of them are a line."""
TWO_COLUMNS, ONE_COLUMN = 28, 56
"""How long labels below a panel may be, in letters."""


def axis_name(hyper: str) -> str:
    """A hyperparameter's name for an axis: `critic step size α`."""
    return f"{hyper.replace('_', ' ')} {SYMBOLS.get(hyper, '')}".rstrip()


def in_lines(label: str) -> str:
    """A label beside a panel, an agent's or that of two of them, with a line for each of its options."""
    return label.replace(" over ", "\nover ").replace("[", "\n[").replace(",", ",\n")


def _room_for(labels: Sequence[str]) -> tuple[float, float]:
    """Width and height in inches that labels below each other take, at least those of short ones."""
    lines = [label.split("\n") for label in labels]
    longest = max(len(line) for label in lines for line in label)
    return max(1.5, 0.4 + 0.085 * longest), len(labels) * max(0.45, 0.2 * max(map(len, lines)))


def styles_of(agents: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Agent → a colour and a dash pattern of its own."""
    return {
        agent: (COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)])
        for place, agent in enumerate(agents)
    }


def learning_curves(runs: pl.DataFrame, band: Band = "standard-error", single_runs: bool = False) -> Figure:
    """One panel per environment: each agent's mean return over its runs, with a band, and single runs on demand.

    Where runs were evaluated there are two that share their axes, online and offline. A run that diverged counts as its
    environment's lowest value among these runs.
    """
    runs = runs if "value" in runs.columns else with_values(runs)
    envs = runs["env"].unique(maintain_order=True).to_list()
    styles = styles_of(runs["agent"].unique(maintain_order=True).to_list())
    pairs = evaluated(runs)
    shown = [(env, view) for env in envs for view in (VIEWS if pairs else ["online"])]
    columns = len(VIEWS) if pairs else min(len(envs), MOST_COLUMNS)
    rows = math.ceil(len(shown) / columns)
    share: Literal["row", "none"] = "row" if pairs else "none"
    figure = Figure(figsize=(4.6 * columns + 0.4, 3.6 * rows), dpi=150, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share).flat
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    for panel, (env, view) in zip(panels, shown, strict=False):
        there = runs.filter(pl.col("env") == env)
        for rank, agent in enumerate(there["agent"].unique(maintain_order=True)):
            curves = VIEWS[view](there.filter(pl.col("agent") == agent))
            _draw_curves(panel, curves, agent, styles[agent], 3 - rank / 100, band, single_runs)
        _dress(panel, f"{env}, {view}" if pairs else env)
        panel.set_xlabel("environment steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        if panel.has_data():
            _legend_below(panel)
        else:
            panel.text(0.5, 0.5, _why_empty(there, view), ha="center", transform=panel.transAxes)
    for place in range(0, len(shown), columns):
        figure.axes[place].set_ylabel(f"return ({BAND_WORDS[band]})")
    return figure


def _legend_below(panel: Axes) -> None:
    """A legend below the axis, in two columns if its longest label leaves room for them."""
    longest = max(len(label) for label in panel.get_legend_handles_labels()[1])
    columns, size = (2, 9) if longest <= TWO_COLUMNS else (1, 9 if longest <= ONE_COLUMN else 6.5)
    panel.legend(frameon=False, fontsize=size, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=columns)


def _why_empty(runs: pl.DataFrame, view: str) -> str:
    if (runs["status"] == "diverged").all():
        return "every run diverged"
    return "no finished episodes" if view == "online" else "no evaluations"


def _draw_curves(
    panel: Axes, curves: Curves, agent: str, style: tuple[str, Any], layer: float, band: Band, single: bool
) -> None:
    (colour, dashes), (steps, values, diverged) = style, curves
    if not len(steps):
        return
    line: Any = {"color": colour, "zorder": layer, "marker": "o" if len(steps) <= FEW_POINTS else None, "markersize": 3}
    for curve in values if single else ():
        panel.plot(steps, curve, linewidth=0.6, alpha=0.35, **line)
    mean, low, high = band_of(values, band)
    label = curve_label(agent, len(values), diverged, band)
    panel.plot(steps, mean, linestyle=dashes, linewidth=2, label=label, **line)
    panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def curve_label(agent: str, runs: int, diverged: int, band: Band) -> str:
    """What a curve is a mean of: `sac, 30 runs, 2 diverged`."""
    label = f"{agent}, {runs} runs" if runs > 1 else f"{agent}, one run"
    if diverged:
        label += f", {diverged} diverged"
    if band == "tolerance" and runs > 1:
        label += f", band holds ≥ {int(100 * tolerance(runs).coverage)} %"
    return label


def _dress(panel: Axes, title: str) -> None:
    panel.set_title(title, fontsize=11)
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _place_on(panel: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis where the values span decades, with a tick at each value."""
    if min(values) > 0 and max(values) >= 10 * min(values):
        panel.set_xscale("log")
    panel.set_xticks(values, [show(value) for value in values], fontsize=8, rotation=45 if len(values) > 5 else 0)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())


def _agents_and_envs(grids: Sequence[Grid]) -> tuple[list[str], list[str]]:
    """Who is drawn, and where, each once and in order."""
    return list(dict.fromkeys(grid.agent for grid in grids)), list(dict.fromkeys(grid.env for grid in grids))


def _matrix_of_panels(
    grids: Sequence[Grid], height: float = 2.6, share: bool = True
) -> tuple[Figure, dict[tuple[str, str], Axes], list[str], list[str]]:
    """A figure with agents in rows and environments in columns, and the panels that have a grid."""
    agents, envs = _agents_and_envs(grids)
    figure = Figure(figsize=(3.3 * len(envs) + 1.2, height * len(agents) + 0.5), dpi=150, layout="constrained")
    axes = figure.subplots(len(agents), len(envs), squeeze=False, sharey="col" if share else False)
    there = {(grid.agent, grid.env) for grid in grids}
    panels = {}
    for (row, agent), (column, env) in itertools.product(enumerate(agents), enumerate(envs)):
        panel = axes[row, column]
        _dress(panel, env if row == 0 else "")
        if (agent, env) in there:
            panels[agent, env] = panel
        else:
            panel.text(0.5, 0.5, "no complete settings", ha="center", transform=panel.transAxes)
    for row, agent in enumerate(agents):
        axes[row, 0].set_ylabel(f"{in_lines(agent)}\naverage return", fontsize=9)
    return figure, panels, agents, envs


def sensitivity(grids: Sequence[Grid], across: str) -> Figure:
    """Agents in rows, environments in columns: a line per entropy scale over one hyperparameter, the others at best.

    Where nothing has lines, all agents of an environment share a panel.
    """
    drawn = [grid for grid in grids if across in grid.axes]
    if not any(line_axis(grid, across) for grid in drawn):
        return _sensitivity_of_all(drawn, across)
    figure, panels, _, _ = _matrix_of_panels(drawn)
    colours, labelled = _line_colours(drawn, across), dict[str, Artist]()
    for grid in drawn:
        panel, lines, points = panels[grid.agent, grid.env], line_axis(grid, across), grid.axes[across]
        values: Sequence[float | None] = grid.axes[lines] if lines else [None]
        for value, curve in zip(values, sensitivity_curves(grid, across, lines), strict=True):
            name = f"{axis_name(lines)} = {show(value)}" if lines else "all others at their best"
            colour = colours[lines, value]
            [line] = panel.plot(points, curve, color=colour, marker="o", markersize=4, linewidth=1.5)
            labelled[name] = line
        _place_on(panel, points)
        panel.set_xlabel(axis_name(across), fontsize=9)
    _legend_at_the_foot(figure, labelled)
    return figure


def _sensitivity_of_all(grids: Sequence[Grid], across: str) -> Figure:
    """A panel per environment: each agent's mean ± standard error over one hyperparameter, the others at their best."""
    agents, envs = _agents_and_envs(grids)
    styles, labelled = styles_of(agents), dict[str, Artist]()
    figure = Figure(figsize=(3.9 * len(envs) + 0.6, 3.6), dpi=150, layout="constrained")
    panels = dict(zip(envs, figure.subplots(1, len(envs), squeeze=False)[0], strict=True))
    for grid in grids:
        panel, (colour, dashes) = panels[grid.env], styles[grid.agent]
        best = best_settings(grid, across, None, grid.means)[0]
        means, errors, points = grid.means[best], standard_error(grid.values[best].T), grid.axes[across]
        [line] = panel.plot(points, means, color=colour, linestyle=dashes, marker="o", markersize=4, linewidth=1.8)
        panel.fill_between(points, means - errors, means + errors, color=colour, alpha=0.15, linewidth=0)
        labelled[grid.agent] = line
    for env, panel in panels.items():
        _dress(panel, env)
        _place_on(panel, sorted({point for grid in grids if grid.env == env for point in grid.axes[across]}))
        panel.set_xlabel(axis_name(across), fontsize=9)
    panels[envs[0]].set_ylabel("average return\n(mean ± standard error)", fontsize=9)
    _legend_at_the_foot(figure, labelled)
    return figure


def _legend_at_the_foot(figure: Figure, labelled: Mapping[str, Artist]) -> None:
    """A legend for all panels, in as many columns as the figure is wide; it is widened if it has no room for one."""
    inches = 0.6 + 0.075 * max(map(len, labelled))  # of a label with its line
    figure.set_figwidth(max(figure.get_figwidth(), inches))
    columns = int(figure.get_figwidth() / inches)
    figure.legend(
        list(labelled.values()), list(labelled), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )


def _line_colours(grids: Sequence[Grid], across: str) -> dict[tuple[str | None, float | None], Any]:
    """A colour for each value that has a line, the same in all panels, dark to light."""
    axes = {name for grid in grids if (name := line_axis(grid, across))}
    values = {name: sorted({value for grid in grids for value in grid.axes.get(name, ())}) for name in axes}
    shades = colormaps["viridis"]
    colours: dict[tuple[str | None, float | None], Any] = {(None, None): shades(0.0)}
    for name, found in values.items():
        colours |= {(name, value): shades(0.9 * place / max(len(found) - 1, 1)) for place, value in enumerate(found)}
    return colours


def regions(grids: Sequence[Grid], across: str) -> Figure:
    """The sensitivity region: the band between the lines of all entropy scales, agents in rows."""
    drawn = [grid for grid in grids if across in grid.axes and line_axis(grid, across)]
    figure, panels, agents, _ = _matrix_of_panels(drawn, 2.2)
    styles = styles_of(agents)
    for grid in drawn:
        panel, (colour, _) = panels[grid.agent, grid.env], styles[grid.agent]
        curves = sensitivity_curves(grid, across, line_axis(grid, across))
        known = ~np.isnan(curves).all(axis=0)
        points = np.array(grid.axes[across])[known]
        low, high = np.nanmin(curves[:, known], axis=0), np.nanmax(curves[:, known], axis=0)
        panel.fill_between(points, low, high, color=colour, alpha=0.35, linewidth=0)
        for edge in (low, high):
            panel.plot(points, edge, color=colour, linewidth=1)
        _place_on(panel, grid.axes[across])
        panel.set_xlabel(axis_name(across), fontsize=9)
    return figure


def variance(grids: Sequence[Grid]) -> Figure:
    """One panel per environment: how much of the variance over the grid each set of hyperparameters explains."""
    agents, envs = _agents_and_envs(grids)
    width, height = _room_for([in_lines(agent) for agent in agents])
    figure = Figure(figsize=(3.8 * len(envs) + width, height + 2.1), dpi=150, layout="constrained")
    panels = dict(zip(envs, figure.subplots(1, len(envs), squeeze=False, sharey=True)[0], strict=True))
    names = list(dict.fromkeys(name for grid in grids for name in named_shares(grid)))
    mains, others = ([name for name in names if (" × " in name) is joint] for joint in (False, True))
    colours = dict(zip(mains, itertools.cycle(COLOURS), strict=False))
    colours |= {name: str(grey) for name, grey in zip(others, np.linspace(0.35, 0.85, len(others)), strict=True)}
    for grid in grids:
        left = 0.0
        for name, share in named_shares(grid).items():
            panels[grid.env].barh(
                in_lines(grid.agent), share, 0.8, left, color=colours[name], edgecolor="white", linewidth=0.5
            )
            left += share
    for env, panel in panels.items():
        _dress(panel, env)
        panel.set_xlabel("share of variance")
        panel.set_xlim(0, 1)
    panels[envs[0]].invert_yaxis()  # and with it the others, which share it
    _legend_at_the_foot(figure, {name: Patch(color=colours[name]) for name in names})
    return figure


def named_shares(grid: Grid) -> dict[str, float]:
    """The variance shares of a full grid by name: `critic step size α`, `α × τ`; the largest sets last."""
    return {
        " × ".join(SYMBOLS.get(name, name.replace("_", " ")) for name in names)
        if names[1:]
        else axis_name(*names): share
        for names, share in shares_of(grid).items()
    }


def heat_maps(grids: Sequence[Grid]) -> Figure:
    """Mean return of one agent over each pair of hyperparameters (rows), the others averaged, on each environment."""
    pairs = list(dict.fromkeys(pair for grid in grids for pair in itertools.combinations(grid.axes, 2)))
    figure = Figure(figsize=(3.4 * len(grids) + 0.6, 2.7 * len(pairs) + 0.5), dpi=150, layout="constrained")
    panels = figure.subplots(len(pairs), len(grids), squeeze=False)
    for (row, (first, second)), (column, grid) in itertools.product(enumerate(pairs), enumerate(grids)):
        panel = panels[row, column]
        panel.set_title(grid.env if row == 0 else "", fontsize=11)
        if first in grid.axes and second in grid.axes:
            image = _heat_map(panel, grid, first, second, grid.means, "cividis")
            figure.colorbar(image, ax=panel, label="average return")
        else:
            panel.set_axis_off()
    figure.suptitle(grids[0].agent, fontsize=12)
    return figure


def divergence(grids: Sequence[Grid]) -> Figure:
    """The share of runs that diverged over two hyperparameters, the others averaged; agents in rows."""
    drawn = [grid for grid in grids if len(grid.axes) > 1]
    figure, panels, _, _ = _matrix_of_panels(drawn, share=False)
    for panel in figure.axes:
        panel.grid(visible=False)
    for grid in drawn:
        first, second = divergence_axes(grid)
        panel = panels[grid.agent, grid.env]
        left = bool(panel.get_ylabel())
        image = _heat_map(panel, grid, first, second, grid.diverged.mean(axis=1), "Oranges", (0, 1))
        panel.set_ylabel(f"{in_lines(grid.agent)}\n{axis_name(first)}" if left else axis_name(first), fontsize=9)
    figure.colorbar(image, ax=figure.axes, label="share of runs that diverged")
    return figure


def divergence_axes(grid: Grid) -> tuple[str, str]:
    """The two hyperparameters over which divergence is shown: the step sizes if they vary."""
    usual = [name for name in ("actor_step_size_scale", "critic_step_size") if name in grid.axes]
    ordered = [*usual, *(name for name in grid.axes if name not in usual)]
    return ordered[0], ordered[1]


def _heat_map(
    panel: Axes,
    grid: Grid,
    first: str,
    second: str,
    numbers: Floats,
    colours: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> AxesImage:
    table = pair_means(grid, first, second, numbers)
    image = panel.imshow(table, aspect="auto", origin="lower", cmap=colours, vmin=limits[0], vmax=limits[1])
    panel.set_yticks(range(len(grid.axes[first])), [show(value) for value in grid.axes[first]], fontsize=8)
    panel.set_xticks(
        range(len(grid.axes[second])), [show(value) for value in grid.axes[second]], fontsize=8, rotation=45
    )
    panel.set_ylabel(axis_name(first), fontsize=9)
    panel.set_xlabel(axis_name(second), fontsize=9)
    return image


def intervals(groups: Mapping[str, Mapping[str, Interval]], label: str, marked: float | None = None) -> Figure:
    """Panels side by side, each with a line per name: an estimate and its interval."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    styles = styles_of(names)
    labels = [in_lines(name) for name in names]
    width, height = _room_for(labels)
    figure = Figure(figsize=(4.2 * len(groups) + width, height + 1.3), dpi=150, layout="constrained")
    for panel, (title, group) in zip(
        figure.subplots(1, len(groups), squeeze=False, sharey=True)[0], groups.items(), strict=True
    ):
        _dress(panel, title)
        for place, name in enumerate(names):
            if name in group:
                one, (colour, _) = group[name], styles[name]
                panel.plot([one.low, one.high], [place, place], color=colour, linewidth=5, alpha=0.4)
                panel.plot(one.estimate, place, "o", color=colour)
        panel.set_yticks(range(len(names)), labels)
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.set_xlabel(label)
        if marked is not None:  # half of a probability
            panel.axvline(marked, color="0.4", linewidth=1, linestyle="--")
            panel.set_xlim(-0.03, 1.03)
    return figure


def profiles(comparisons: Sequence[Comparison]) -> Figure:
    """A panel per comparison: the share of each agent's runs whose score is above a threshold."""
    figure = Figure(figsize=(4.8 * len(comparisons) + 0.4, 3.6), dpi=150, layout="constrained")
    for panel, comparison in zip(figure.subplots(1, len(comparisons), squeeze=False)[0], comparisons, strict=True):
        styles = styles_of(list(comparison.means))
        _dress(panel, f"{comparison.kind} actions")
        for one in comparison.profiles:
            colour, dashes = styles[one.agent]
            panel.plot(one.thresholds, one.share, color=colour, linestyle=dashes, linewidth=2, label=one.agent)
            panel.fill_between(one.thresholds, one.low, one.high, color=colour, alpha=0.2, linewidth=0)
        panel.set_xlabel("normalised score")
        panel.set_ylim(-0.02, 1.02)
        _legend_below(panel)
    figure.axes[0].set_ylabel("share of runs above the score")
    return figure
