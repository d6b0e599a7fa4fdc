"""Figure 1 of the paper, drawn anew: how conditional CEM concentrates, as a picture and as a film."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from greedyac.ccem.illustration import Floats, Gaussians, Illustration, Uniform
from greedyac.core.fields import show
from greedyac.video.frame import Frame
from greedyac.video.panel import ACTOR, ELITE, GREY, INK, PROPOSAL
from greedyac.video.picture import Picture, area, bars

SHOWN = (1, 2, 4, 8)
"""The updates with uniform policies in the picture."""
REACH = 1.645
"""Deviations to either side of its mean that hold nine tenths of a Gaussian."""
FRAMES, STILL = 100, 15
"""How many a film has at most, and for how many it stays at the end."""
LONGEST = 45
"""Letters of a function's name in a title."""
DASHED: Any = (0, (4, 2))
LIGHT = 0.4
"""How much of its colour an area has."""


class Story(NamedTuple):
    """What is drawn: a function, and how policies of two kinds concentrate on it."""

    name: str
    settings: Illustration
    actions: Floats
    """A fine grid."""
    values: Floats
    uniform: Sequence[Uniform]
    gaussians: Gaussians


def picture(story: Story) -> Figure:
    """Left, uniform policies and their target at some updates; right, Gaussians over all updates."""
    figure = Figure(figsize=(12.5, 4.6), dpi=150, layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[0.62, 0.38])
    left, right = parts
    panels = left.subplots(2, 2, sharex=True, sharey=True)
    for panel, number in zip(panels.flat, SHOWN, strict=True):
        _UniformPanel(panel, story).show(story.uniform[number - 1])
        panel.set_title(f"update {number}", fontsize=10, loc="left")
        panel.label_outer()
    name = story.name if len(story.name) <= LONGEST else f"{story.name[:LONGEST]}…"
    left.suptitle(f"uniform policies on {name}, ρ = {show(story.settings.elite_fraction)}", fontsize=11)
    left.legend(handles=_legend(samples=False), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    _draw_over_time(right.subplots(), story)
    sampled, scale = story.settings.proposal_samples, show(story.settings.entropy_scale)
    right.suptitle(f"Gaussian policies, N = {sampled}, τ = {scale}: mean ± {REACH} deviations", fontsize=11)
    return figure


def _legend(samples: bool) -> list[Any]:
    """Of uniform policies, and on demand of samples and elite, too."""
    dots: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 5}
    sampled = [Line2D([], [], color=GREY, label="samples", **dots), Line2D([], [], color=ELITE, label="elite", **dots)]
    return [
        Patch(color=ELITE, alpha=LIGHT, linewidth=0, label="target: best ρ of the proposal"),
        Line2D([], [], color=ELITE, linewidth=1, linestyle=DASHED, label="its threshold"),
        Patch(color=PROPOSAL, label="proposal"),
        Patch(color=ACTOR, label="actor"),
        *(sampled if samples else []),
    ]


def _draw_over_time(panel: Axes, story: Story) -> None:
    """Time runs downwards."""
    told, (lowest, highest) = story.gaussians, story.actions[[0, -1]]
    updates = np.arange(1, len(told.actor_mean) + 1)
    for name, colour in (("proposal", PROPOSAL), ("actor", ACTOR)):
        mean, deviation = getattr(told, f"{name}_mean"), getattr(told, f"{name}_deviation")
        low, high = (np.clip(mean + side * REACH * deviation, lowest, highest) for side in (-1, 1))
        panel.fill_betweenx(updates, low, high, color=colour, alpha=LIGHT, linewidth=0)
        panel.plot(mean, updates, color=colour, linewidth=1.8, label=name)
    best = story.actions[story.values.argmax()]
    panel.axvline(best, color=INK, linewidth=1, linestyle=DASHED, label="best action")
    panel.set_ylim(max(updates[-1], 2), 1)
    panel.yaxis.set_major_locator(MaxNLocator(9, integer=True))
    panel.set_ylabel("update")
    _dress(panel, story)
    panel.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def _dress(panel: Axes, story: Story) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.set_xlim(story.actions[0], story.actions[-1])
    panel.set_xlabel("action")
    panel.xaxis.set_major_locator(MaxNLocator(5))


class _UniformPanel:
    """The values, what of them is in the target, and both policies as bars below."""

    def __init__(self, panel: Axes, story: Story):
        self.story = story
        lowest, self.span = float(story.values.min()), float(np.ptp(story.values)) or 1.0
        self.floor = lowest - 0.32 * self.span
        self.target = area(panel, facecolor=ELITE, alpha=LIGHT, linewidth=0)
        panel.plot(story.actions, story.values, color=INK, linewidth=1.8)
        [self.threshold] = panel.plot([], [], color=ELITE, linewidth=1, linestyle=DASHED)
        self.proposal, self.actor = (area(panel, facecolor=colour, linewidth=0) for colour in (PROPOSAL, ACTOR))
        panel.set_ylim(self.floor, lowest + 1.06 * self.span)
        panel.set_ylabel("value")
        _dress(panel, story)

    def show(self, told: Uniform) -> None:
        """The policies before one update."""
        inside = np.where(np.isin(self.story.actions, told.target), self.story.values, self.floor)
        self.target.set_xy(_below(self.story.actions, inside, self.floor))
        self.threshold.set_data(told.proposal, [told.threshold] * 2)
        for bar, policy, place in ((self.proposal, told.proposal, 0.03), (self.actor, told.actor, 0.14)):
            bottom = self.floor + place * self.span
            bar.set_xy(bars(policy[:1], policy[1:], [bottom + 0.09 * self.span], bottom))


def _below(actions: Floats, heights: Floats, floor: float) -> Floats:
    """The corners of what lies between a curve and the floor."""
    return np.column_stack([np.r_[actions[0], actions, actions[-1]], np.r_[floor, heights, floor]])


class _GaussianPanels:
    """Above, the values with the proposal's samples and the elite; below, the densities."""

    def __init__(self, above: Axes, below: Axes, story: Story):
        self.story = story
        above.plot(story.actions, story.values, color=INK, linewidth=1.8)
        [self.sampled] = above.plot([], [], linestyle="", marker="o", markersize=4, color=GREY)
        [self.elite] = above.plot([], [], linestyle="", marker="o", markersize=5, color=ELITE)
        self.proposal, self.actor = (
            area(below, facecolor=colour, edgecolor=colour, alpha=LIGHT, linewidth=1.5) for colour in (PROPOSAL, ACTOR)
        )
        below.set_ylim(0, 1.08)
        above.set_ylabel("value")
        below.set_ylabel("density, scaled")
        for panel in (above, below):
            _dress(panel, story)
        above.set_xlabel("")
        above.tick_params(labelbottom=False)

    def show(self, number: int) -> None:
        """The policies before one update, counted from 0."""
        actions, told = self.story.actions, self.story.gaussians
        for dots, chosen in ((self.sampled, told.sampled[number]), (self.elite, told.elite[number])):
            dots.set_data(chosen, np.interp(chosen, actions, self.story.values))
        for shape, name in ((self.proposal, "proposal"), (self.actor, "actor")):
            mean, deviation = (getattr(told, f"{name}_{part}")[number] for part in ("mean", "deviation"))
            shape.set_xy(_below(actions, np.exp(-0.5 * ((actions - mean) / deviation) ** 2), 0.0))


def film(story: Story, height: int = 400) -> Iterator[Frame]:
    """Uniform policies on the left, Gaussians on the right, both from their first update to their last."""
    page = Picture(height, 10.4)
    grid = page.figure.add_gridspec(2, 2, left=0.065, right=0.985, top=0.84, bottom=0.12, wspace=0.17, hspace=0.13)
    whole, above = page.figure.add_subplot(grid[:, 0]), page.figure.add_subplot(grid[0, 1])
    below = page.figure.add_subplot(grid[1, 1], sharex=above)
    uniform, gaussian = _UniformPanel(whole, story), _GaussianPanels(above, below, story)
    captions = [panel.text(0, 1.02, "", transform=panel.transAxes, fontsize=9) for panel in (whole, above)]
    for panel in (whole, above, below):
        panel.tick_params(labelsize=8)
        panel.yaxis.set_major_locator(MaxNLocator(4))
    page.moves(uniform.target, uniform.threshold, uniform.proposal, uniform.actor)
    page.moves(gaussian.sampled, gaussian.elite, gaussian.proposal, gaussian.actor, *captions)
    page.legend(_legend(samples=True))
    last = len(story.gaussians.actor_mean) - 1
    numbers = np.unique(np.linspace(0, last, FRAMES).round().astype(int))
    for number in itertools.chain(numbers, [last] * STILL):
        step = int(number * len(story.uniform) // (last + 1))
        uniform.show(story.uniform[step])
        gaussian.show(number)
        for caption, kind, shown in zip(captions, ("uniform", "Gaussian"), (step, number), strict=True):
            caption.set_text(f"{kind} policies, update {shown + 1}")
        yield page.render()
