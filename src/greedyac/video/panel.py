"""An explanation as a picture: values above, policies below, and the samples of CCEM at the foot.

What stays is drawn once and kept; a frame draws only what moves. Colours and axes are the same in all frames.
"""

import math
from typing import Any

import jax
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from greedyac.core.counting import counted
from greedyac.video.explain import Categorical, Continuous, Explanation, Marginals
from greedyac.video.frame import HEIGHT, Frame
from greedyac.video.picture import Floats, Picture, Span, area, bars

MOST_DIMENSIONS = 3
"""Shown below each other; of more the first."""
INK, VALUES, GREY = "0.15", "0.45", "0.62"
ACTOR, ELITE, TAKEN, PROPOSAL = "#0072B2", "#D55E00", "#009E73", "#E69F00"
"""Of Okabe and Ito's colours, as in all figures."""
FEW = 10
"""So many discrete actions have probabilities on an axis up to 1."""


class Panel:
    """Draws the explanations of one agent, frame after frame; it is laid out for the first."""

    def __init__(self, height: int = HEIGHT):
        self.height = height
        self._picture: _ContinuousPicture | _CategoricalPicture | None = None

    def draw(self, explanation: Explanation, action: Any = None) -> Frame:
        """The explanation and, if told, the action that is taken, as `[height, width, 3]`."""
        told: Any = jax.device_get(explanation)
        if self._picture is None:
            kind = _ContinuousPicture if isinstance(told, Continuous) else _CategoricalPicture
            self._picture = kind(told, self.height, action is not None)
        return self._picture.draw(told, None if action is None else np.asarray(action))


class _ContinuousPicture(Picture):
    """A row of values and densities per dimension; one dimension alone has them below each other."""

    def __init__(self, told: Continuous, height: int, taken: bool):
        dims, has_values = len(told.grid), told.values is not None
        self.span = Span()
        self.rows = min(dims, MOST_DIMENSIONS)
        alone = self.rows == 1
        super().__init__(height, 4.6 if alone or not has_values else 6.2)
        shape = (1 + has_values, 1) if alone else (self.rows, 1 + has_values)
        axes = self.figure.subplots(*shape, squeeze=False)
        axes = axes.T if alone else axes  # [rows, values and densities]
        self._lay_out(alone, dims)
        self.value_axes: list[Axes] = list(axes[:, 0]) if has_values else []
        self.density_axes: list[Axes] = list(axes[:, -1])
        self.curves = [_ValueCurve(self, panel, alone, taken) for panel in self.value_axes]
        self.densities = [_Densities(self, panel, told, taken) for panel in self.density_axes]
        for row in range(self.rows):
            for panel in axes[row]:
                _dress(panel)
                low, high = told.grid[row, 0], told.grid[row, -1]
                panel.set_xlim(low - 0.08 * (high - low), high + 0.08 * (high - low))
                panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        self._name_axes(axes, alone)
        self.highest = _highest(self, axes[0, 0]) if has_values else None
        self.legend(_legend_of(told, taken))

    def _lay_out(self, alone: bool, dims: int) -> None:
        adjust = self.figure.subplots_adjust
        if alone:
            adjust(left=0.145, right=0.965, top=0.825, bottom=0.115, hspace=0.2)
        else:
            adjust(left=0.13, right=0.975, top=0.80, bottom=0.115, hspace=0.42, wspace=0.14)
        if dims > self.rows:
            note = f"{self.rows} of {dims} action dimensions; the other {dims - self.rows} are not shown"
            self.figure.text(0.5, 0.012, note, ha="center", fontsize=8, color="0.35")

    def _name_axes(self, axes: Any, alone: bool) -> None:
        names = (["Q(s, a) − max"] if self.value_axes else []) + ["density, scaled"]
        if alone:
            for panel, name in zip(axes[0], names, strict=True):
                panel.set_ylabel(name, fontsize=9)
                panel.yaxis.set_label_coords(-0.115, 0.5)
            axes[0, -1].set_xlabel("action", fontsize=9, labelpad=2)
            if self.value_axes:
                axes[0, 0].tick_params(labelbottom=False)
            return
        for panel, name in zip(axes[0], names, strict=True):
            panel.set_title(name, fontsize=9, loc="left", pad=4)
        for row in range(self.rows):
            axes[row, 0].set_ylabel(f"action {row + 1}", fontsize=9)
            axes[row, 0].yaxis.set_label_coords(-0.17, 0.5)

    def draw(self, told: Continuous, action: Any) -> Frame:
        """One frame; `action: [dims]` or None."""
        if told.values is not None:
            values = np.asarray(told.values[: self.rows], float)
            best = float(values.max())
            relative = values - best
            span = self.span.follow(float(np.ptp(relative)))
            self.reach(self.value_axes, -1.04 * span, 0.09 * span)
            for row, curve in enumerate(self.curves):
                curve.show(told, row, relative[row], best, action)
            if self.highest is not None:
                self.highest.set_text(f"max Q = {_number(best)}")
        for row, densities in enumerate(self.densities):
            densities.show(told, row, action)
        return self.render()


class _ValueCurve:
    """Q(s, a) over one dimension, with the actor's mode and, if there is no other dimension, the elite on it."""

    def __init__(self, picture: Picture, panel: Axes, alone: bool, taken: bool):
        self.taken = _upright(panel) if taken else None
        [self.line] = panel.plot([], [], color=INK, linewidth=1.8)
        [self.elite] = panel.plot(
            [], [], linestyle="", marker="^", markersize=6.5, color=ELITE, markeredgecolor="white"
        )
        [self.mode] = panel.plot([], [], linestyle="", marker="o", markersize=6.5, color=ACTOR, markeredgecolor="white")
        self.alone = alone
        picture.moves(*([self.taken] if self.taken else []), self.line, self.mode, self.elite)

    def show(self, told: Continuous, row: int, values: Floats, best: float, action: Any) -> None:
        """`values: [points]`, less the best."""
        self.line.set_data(told.grid[row], values)
        if told.mode is not None:
            self.mode.set_data([told.mode[row]], [np.interp(told.mode[row], told.grid[row], values)])
        if self.alone and told.samples is not None:
            elite = np.asarray(told.samples.elite)
            self.elite.set_data(told.samples.actions[elite, row], told.samples.values[elite] - best)
        if self.taken and action is not None:
            self.taken.set_xdata([action[row]] * 2)


class _Densities:
    """The policies over one dimension, each scaled to its peak; beside the range what stands on its bounds."""

    def __init__(self, picture: Picture, panel: Axes, told: Continuous, taken: bool):
        self.taken = _upright(panel) if taken else None
        self.proposal = _Density(panel, PROPOSAL, 0.034) if told.proposal is not None else None
        self.actor = _Density(panel, ACTOR, 0.006)
        [self.samples] = panel.plot([], [], linestyle="", marker="|", markersize=6, color=GREY)
        [self.elite] = panel.plot([], [], linestyle="", marker="^", markersize=6, color=ELITE, markeredgewidth=0)
        parts: list[Artist] = [self.taken] if self.taken else []
        parts += self.proposal.parts if self.proposal else []
        picture.moves(*parts, *self.actor.parts, self.samples, self.elite)
        self.foot = 0.0 if told.samples is None else -0.3 if len(told.grid) == 1 else -0.5  # room for samples
        panel.set_ylim(self.foot, 1.08)
        panel.set_yticks([])
        panel.axhline(0, color="0.75", linewidth=0.8)

    def show(self, told: Continuous, row: int, action: Any) -> None:
        """The densities, samples and action of one dimension."""
        grid = np.asarray(told.grid[row], float)
        self.actor.show(grid, told.actor, row)
        if self.proposal is not None and told.proposal is not None:
            self.proposal.show(grid, told.proposal, row)
        if told.samples is not None:
            drawn, elite = np.asarray(told.samples.actions)[:, row], np.asarray(told.samples.elite)
            self.samples.set_data(drawn, np.full(len(drawn), 0.3 * self.foot))
            self.elite.set_data(drawn[elite], np.full(elite.sum(), 0.7 * self.foot))
        if self.taken and action is not None:
            self.taken.set_xdata([action[row]] * 2)


class _Density:
    """One policy over one dimension: an area, and a bar beyond each bound whose height is the probability there."""

    def __init__(self, panel: Axes, colour: str, beyond: float):
        """`beyond` the bound by this share of the range the bars begin."""
        self.beyond = beyond
        self.area = area(panel, facecolor=(colour, 0.22), edgecolor=colour, linewidth=1.5)
        self.bars = area(panel, facecolor=colour, linewidth=0)
        self.parts: list[Artist] = [self.area, self.bars]

    def show(self, grid: Floats, marginals: Marginals, row: int) -> None:
        """What is in the outermost cells counts as on the bounds."""
        density, at_bounds = np.asarray(marginals.density[row], float), np.asarray(marginals.at_bounds[row], float)
        low, high = grid[0], grid[-1]
        peak = max(density[1:-1].max(), 1 / (high - low))
        heights = np.minimum(density / peak, 1.0)
        self.area.set_xy(np.column_stack([[low, *grid, high], [0, *heights, 0]]))
        outermost = density[[0, -1]] * (grid[1] - grid[0]) / 2
        inner, outer = self.beyond * (high - low), (self.beyond + 0.024) * (high - low)
        self.bars.set_xy(bars([low - outer, high + inner], [low - inner, high + outer], at_bounds + outermost))


class _CategoricalPicture(Picture):
    """Bars per action: values, probabilities and, where there is a proposal, how often it was sampled."""

    def __init__(self, told: Categorical, height: int, taken: bool):
        super().__init__(height, 4.6)
        self.count = len(told.actor)
        self.sides = np.arange(self.count) - 0.38, np.arange(self.count) + 0.38
        self.value_span, self.share_span, self.sample_span = Span(), Span(), Span()
        names = (
            ["Q(s, a) − max"] * (told.values is not None) + ["probability"] + ["samples"] * (told.samples is not None)
        )
        ratios = [{"samples": 0.45}.get(name, 1.0) for name in names]
        rows = self.figure.subplots(len(names), 1, squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
        self.figure.subplots_adjust(left=0.145, right=0.965, top=0.825, bottom=0.115, hspace=0.2)
        self.axes: dict[str, Axes] = dict(zip(names, rows, strict=True))
        self.bands = [area(panel, facecolor=(TAKEN, 0.2)) for panel in rows if taken]
        self.moves(*self.bands)
        for name, panel in self.axes.items():
            _dress(panel)
            panel.set_ylabel(name, fontsize=9)
            panel.yaxis.set_label_coords(-0.115, 0.5)
        rows[-1].set_xlim(-0.6, self.count - 0.4)
        rows[-1].xaxis.set_major_locator(MaxNLocator(10, integer=True))
        rows[-1].set_xlabel("action", fontsize=9, labelpad=2)
        self.highest = None
        if told.values is not None:
            self.values, self.greedy = self._series("Q(s, a) − max", VALUES), self._series("Q(s, a) − max", ELITE)
            self.highest = _highest(self, rows[0])
        self.actor, self.proposal = self._series("probability", ACTOR), self._series("probability", PROPOSAL)
        if told.samples is not None:
            self.samples, self.elite = self._series("samples", GREY), self._series("samples", ELITE)
        self.legend(_legend_of(told, taken))

    def _series(self, name: str, colour: str) -> Polygon:
        series = area(self.axes[name], facecolor=colour, linewidth=0)
        self.moves(series)
        return series

    def draw(self, told: Categorical, action: Any) -> Frame:
        """One frame; `action: []` or None."""
        self._show_values(told)
        self._show_probabilities(told)
        if told.samples is not None:
            drawn, elite = np.asarray(told.samples.actions), np.asarray(told.samples.elite)
            counts = np.bincount(drawn, minlength=self.count)
            self.samples.set_xy(bars(*self.sides, counts))
            self.elite.set_xy(bars(*self.sides, np.bincount(drawn[elite], minlength=self.count)))
            self.reach([self.axes["samples"]], 0, 1.04 * self.sample_span.follow(float(counts.max())))
        for band in self.bands if action is not None else ():
            assert band.axes is not None
            low, high = band.axes.get_ylim()
            band.set_xy(bars([action - 0.5], [action + 0.5], [high], low))
        return self.render()

    def _show_values(self, told: Categorical) -> None:
        if told.values is None or told.greedy is None or self.highest is None:
            return
        best, greedy, (left, right) = float(told.values.max()), np.asarray(told.greedy), self.sides
        relative = np.asarray(told.values - best, float)
        span = self.value_span.follow(float(np.ptp(relative)))
        self.reach([self.axes["Q(s, a) − max"]], -1.04 * span, 0.09 * span)
        for series, there in ((self.values, ~greedy), (self.greedy, greedy)):
            series.set_xy(bars(left[there], right[there], relative[there], -1.04 * span))
        self.highest.set_text(f"max Q = {_number(best)}")

    def _show_probabilities(self, told: Categorical) -> None:
        (left, right), highest = self.sides, float(np.max(told.actor))
        if told.proposal is None:
            self.actor.set_xy(bars(left, right, told.actor))
        else:
            middle, highest = (left + right) / 2, max(highest, float(np.max(told.proposal)))
            self.actor.set_xy(bars(left, middle, told.actor))
            self.proposal.set_xy(bars(middle, right, told.proposal))
        span = self.share_span.follow(highest) if self.count > FEW else 1.0
        self.reach([self.axes["probability"]], 0, 1.04 * min(span, 1.0))


def _upright(panel: Axes) -> Line2D:
    """The line of the next action."""
    return panel.axvline(math.nan, color=TAKEN, linewidth=1.6)


def _highest(picture: Picture, panel: Axes) -> Text:
    """Where the highest value is told."""
    text = panel.text(1.0, 1.03, "", transform=panel.transAxes, ha="right", va="bottom", fontsize=9, color=INK)
    picture.moves(text)
    return text


def _number(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")


def _dress(panel: Axes) -> None:
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8, length=2.5, pad=2)
    if panel.get_yticks().size:
        panel.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))


def _legend_of(told: Explanation, taken: bool) -> list[Artist]:
    """What the colours mean, of what there is."""
    handles = _bars_legend(told) if isinstance(told, Categorical) else _curves_legend(told)
    if taken:
        look: dict[str, Any] = {"color": TAKEN, "label": "next action"}
        handles.append(Patch(alpha=0.25, **look) if isinstance(told, Categorical) else Line2D([], [], **look))
    return handles


def _curves_legend(told: Continuous) -> list[Artist]:
    def mark(marker: str, colour: str, label: str) -> Line2D:
        width = 1.0 if marker == "|" else 0.0
        return Line2D(
            [], [], linestyle="", markersize=6, markeredgewidth=width, marker=marker, color=colour, label=label
        )

    def area(colour: str, label: str) -> Patch:
        return Patch(facecolor=(colour, 0.22), edgecolor=colour, label=label)

    handles: list[Artist] = [Line2D([], [], color=INK, label="critic Q")] if told.values is not None else []
    handles += [mark("o", ACTOR, "actor's mode")] if told.values is not None and told.mode is not None else []
    handles += [area(ACTOR, "actor")]
    handles += [Patch(color=ACTOR, label="share at bound")] if told.mode is not None else []
    handles += [area(PROPOSAL, "proposal")] if told.proposal is not None else []
    if told.samples is not None:
        count, elite = len(told.samples.elite), int(np.sum(told.samples.elite))
        handles += [mark("|", GREY, counted(count, "sample")), mark("^", ELITE, f"{elite} elite")]
    return handles


def _bars_legend(told: Categorical) -> list[Artist]:
    handles: list[Artist] = [Patch(color=VALUES, label="critic Q")] if told.values is not None else []
    handles += [Patch(color=ACTOR, label="actor")]
    handles += [Patch(color=PROPOSAL, label="proposal")] if told.proposal is not None else []
    if told.samples is not None:
        count, elite = len(told.samples.elite), int(np.sum(told.samples.elite))
        handles += [
            Patch(color=GREY, label=counted(count, "sample")),
            Patch(color=ELITE, label=f"greedy; {elite} elite"),
        ]
    elif told.values is not None:
        handles += [Patch(color=ELITE, label="greedy")]
    return handles
