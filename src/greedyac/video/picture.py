"""What a panel is drawn with: a figure that keeps what stays, axes that stay calm over a film, and bars."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from numpy.typing import NDArray

from greedyac.video.frame import Frame

Floats = NDArray[np.float64]

INCHES = 4.0
"""The height for which letters and lines are sized; another height scales all of it."""


class Span:
    """How far an axis reaches, over a film.

    It glides to a round number that holds what is shown: at once if that needs more, and only after a while if it
    needs much less.
    """

    interrupt, glide, roomy = 12, 0.4, 0.45

    def __init__(self) -> None:
        self.shown = self._goal = 0.0
        self._idle = 0

    def follow(self, needed: float) -> float:
        """The span after a frame that needs so much."""
        if not (math.isfinite(needed) and needed > 0):
            self.shown = self.shown or 1.0
            return self.shown
        self._idle = self._idle + 1 if needed < self.roomy * self._goal else 0
        if needed > self._goal or self._idle > self.interrupt:
            self._goal, self._idle = _round_up(1.05 * needed), 0
        self.shown = self._goal * (self.shown / self._goal or 1.0) ** (1 - self.glide)
        if abs(self.shown / self._goal - 1) < 0.02:
            self.shown = self._goal
        return self.shown


def _round_up(number: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(number))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= number * (1 - 1e-9))


class Picture:
    """A figure whose moving parts are drawn onto a kept picture of the rest."""

    def __init__(self, height: int, width: float):
        self.figure = Figure(figsize=(width, INCHES), dpi=height / INCHES, facecolor="white")
        self.canvas: Any = FigureCanvasAgg(self.figure)  # whose methods have no types
        self.moving: list[Artist] = []
        self._stretching: list[Axes] = []
        self._still: Any = None  # pixels without the stretching axes
        self._kept: Any = None  # with them

    def moves(self, *artists: Artist) -> None:
        """These change from frame to frame."""
        for artist in artists:
            artist.set_animated(True)
            self.moving.append(artist)

    def reach(self, panels: Iterable[Axes], low: float, high: float) -> None:
        """Let these axes reach from `low` to `high`."""
        for panel in panels:
            if panel.get_ylim() != (low, high):
                panel.set_ylim(low, high)
                self._kept = None
            if panel not in self._stretching:
                panel.set_animated(True)
                self._stretching.append(panel)
                self._still = None

    def render(self) -> Frame:
        """The pixels."""
        if self._still is None:
            self.canvas.draw()
            self._still, self._kept = self.canvas.copy_from_bbox(self.figure.bbox), None
        if self._kept is None:
            self.canvas.restore_region(self._still)
            for panel in self._stretching:
                self.figure.draw_artist(panel)
            self._kept = self.canvas.copy_from_bbox(self.figure.bbox)
        self.canvas.restore_region(self._kept)
        for artist in self.moving:
            self.figure.draw_artist(artist)
        return np.asarray(self.canvas.buffer_rgba())[..., :3].copy()

    def legend(self, handles: Sequence[Artist]) -> None:
        """Above all axes, in two lines."""
        self.figure.legend(
            handles=list(handles),
            loc="upper center",
            ncols=math.ceil(len(handles) / 2) if len(handles) > 3 else len(handles),
            frameon=False,
            fontsize=8,
            borderaxespad=0.2,
            handlelength=1.6,
            columnspacing=1.2,
        )


def area(panel: Axes, **look: Any) -> Polygon:
    """A polygon that is yet to get its corners, `[n, 2]`."""
    polygon = Polygon([(0.0, 0.0)], **look)
    panel.add_patch(polygon)
    return polygon


def bars(left: Any, right: Any, heights: Any, floor: float = 0.0) -> Floats:
    """The corners of upright bars as one polygon, which runs along the floor between them: `[4 · bars, 2]`."""
    left, right, heights = (np.asarray(numbers, float) for numbers in (left, right, heights))
    x = np.stack([left, left, right, right], -1)
    y = np.stack([np.full_like(heights, floor), heights, heights, np.full_like(heights, floor)], -1)
    return np.column_stack([x.ravel(), y.ravel()]) if len(heights) else np.array([(0.0, floor)])
