"""How each environment's world looks: a picture from its physics and the last force, drawn with Pillow.

A new environment that draws itself is one more function here and one more line in `DRAWINGS`. Windows and pace are
in wrapper.py.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from greedyac.core.errors import InputError
from greedyac.core.xla import configured
from greedyac.envs.base import Env
from greedyac.envs.classic.acrobot import Acrobot, Links
from greedyac.envs.classic.mountain_car import Car, MountainCar
from greedyac.envs.classic.pendulum import Pendulum, Rod
from greedyac.envs.minatar import Breakout, Freeway
from greedyac.envs.minatar.game import SIZE, Game, Played

Frame = NDArray[np.uint8]
Point = tuple[float, float]

PAPER, FAINT, SHADE, INK = "#f5f7f9", "#d5dae0", "#9aa5b1", "#1b1f24"
BODY, SECOND, FORCE, GOAL = "#0072B2", "#56B4E9", "#D55E00", "#009E73"
FINER = 3
"""Pictures are drawn so many times larger and then made smaller: that smooths their edges."""


class Drawing(NamedTuple):
    """The picture `[height, width, 3]` of an environment, its physics as floats and its last force; its pace."""

    draw: Callable[[Any, Any, float], Frame]
    frames_per_second: int


class Canvas:
    """A picture in the coordinates of a world: x to the right, y up, `unit` pixels per 1, its centre in the middle.

    Widths and radii are in pixels.
    """

    def __init__(self, width: int, height: int, unit: float, centre: Point = (0.0, 0.0)) -> None:
        self._image = Image.new("RGB", (FINER * width, FINER * height), PAPER)
        self._pen = ImageDraw.Draw(self._image)
        self._unit, self._centre = FINER * unit, centre
        self._middle = FINER * width / 2, FINER * height / 2

    def _pixel(self, point: Point) -> tuple[int, int]:
        (x, y), (left, top) = point, self._middle
        return round(left + self._unit * (x - self._centre[0])), round(top - self._unit * (y - self._centre[1]))

    def polygon(self, points: Sequence[Point], colour: str) -> None:
        """A filled polygon."""
        self._pen.polygon([self._pixel(point) for point in points], colour)

    def disc(self, point: Point, radius: float, colour: str) -> None:
        """A filled circle."""
        self._pen.circle(self._pixel(point), FINER * radius, colour)

    def line(self, points: Sequence[Point], width: float, colour: str) -> None:
        """Straight from point to point, the ends round."""
        pixels, half = [self._pixel(point) for point in points], round(FINER * width / 2)
        self._pen.line(pixels, colour, 2 * half + 1, joint="curve")
        for end in (pixels[0], pixels[-1]):
            self._pen.circle(end, half, colour)

    def dashes(self, start: Point, end: Point, count: int, width: float, colour: str) -> None:
        """A straight line with gaps as long as its dashes."""
        for dash in range(count):
            first, last = (_between(start, end, (2 * dash + part) / (2 * count - 1)) for part in (0, 1))
            self.line([first, last], width, colour)

    def arrow(self, points: Sequence[Point], size: float, colour: str) -> None:
        """A line with a head of `size` pixels that goes on from its last piece."""
        self.line(points, size / 3, colour)
        (x0, y0), (x1, y1) = points[-2:]
        length = size / self._unit * FINER
        towards = math.atan2(y1 - y0, x1 - x0)
        corners = ((0.0, 1.0), (math.pi / 2, 0.75), (-math.pi / 2, 0.75))
        self.polygon([_away((x1, y1), towards + turn, part * length) for turn, part in corners], colour)

    def frame(self) -> Frame:
        """The picture `[height, width, 3]`."""
        return np.array(self._image.reduce(FINER))


def drawing_of(env: Env) -> Drawing:
    """How the environment is drawn, or an `InputError` if nothing here draws it."""
    if type(env) not in DRAWINGS:
        known = ", ".join(kind.__name__ for kind in DRAWINGS)
        raise InputError(f"{type(env).__name__} can't be rendered: it has no drawing; these have one: {known}")
    return DRAWINGS[type(env)]


def draw_pendulum(env: Pendulum, physics: Rod, force: float) -> Frame:
    """The rod in the circle that its tip runs on, the torque as an arc from the rod; angles grow anticlockwise."""
    canvas, pivot = Canvas(400, 400, unit=150), (0.0, 0.0)
    direction = math.pi / 2 + float(physics.angle)
    canvas.disc(pivot, 151, FAINT)
    canvas.disc(pivot, 149, PAPER)
    canvas.line([(0.0, 0.95), (0.0, 1.05)], 4, GOAL)
    canvas.line([pivot, _away(pivot, direction, 0.94)], 18, BODY)
    _torque(canvas, pivot, 0.4, direction, force / env.action_box.high[0])
    canvas.disc(pivot, 6, INK)
    return canvas.frame()


def draw_acrobot(env: Acrobot, physics: Links, force: float) -> Frame:
    """The two links below their bar, the height to reach, the torque as an arc from the second link."""
    canvas, pivot = Canvas(400, 400, unit=88), (0.0, 0.0)
    first = float(physics.angle_1) - math.pi / 2
    second = first + float(physics.angle_2)
    elbow = _away(pivot, first, 1.0)
    canvas.dashes((-2.1, 1.0), (2.1, 1.0), 24, 2.5, GOAL)
    canvas.line([(-0.5, 0.0), (0.5, 0.0)], 4, SHADE)
    canvas.line([pivot, elbow], 16, BODY)
    canvas.line([elbow, _away(elbow, second, 1.0)], 16, SECOND)
    _torque(canvas, elbow, 0.5, second, force / env.action_box.high[0])
    for joint in (pivot, elbow):
        canvas.disc(joint, 5, INK)
    return canvas.frame()


def draw_mountain_car(env: MountainCar, physics: Car, force: float) -> Frame:
    """The car in its valley, the wall on the left, the goal's flag on the right, the force as an arrow."""
    canvas = Canvas(600, 400, unit=VALLEY, centre=(-0.3, 0.58))
    ground = [(x, _height(x)) for x in np.linspace(-1.4, 0.8, 111).tolist()]
    canvas.polygon([(-1.4, -0.2), *ground, (0.8, -0.2)], FAINT)
    canvas.line(ground, 2.5, SHADE)
    wall = env.observation_space.low[0] - CAR / 2
    canvas.line([(wall, _height(wall)), (wall, _height(wall) + 0.2)], 5, SHADE)
    _flag(canvas, (env.goal, _height(env.goal)))
    _car(canvas, float(physics.position), force / env.action_box.high[0])
    return canvas.frame()


def draw_game(env: Game, physics: Played, force: float) -> Frame:
    """The cells of the grid, each in the colour of the first thing that is there."""
    rows, columns, channels = SIZE, SIZE, len(env.channels)
    canvas = Canvas(400, 400, unit=CELL, centre=(columns / 2, -rows / 2))
    canvas.polygon([(0, 0), (columns, 0), (columns, -rows), (0, -rows)], INK)
    cells = np.asarray(_observed(env, physics)).reshape(rows, columns, channels)
    for row, column, channel in sorted(np.argwhere(cells).tolist(), key=lambda place: -place[2]):
        square = [(column + x, -row - y) for x, y in ((0.04, 0.04), (0.96, 0.04), (0.96, 0.96), (0.04, 0.96))]
        canvas.polygon(square, GAMES[type(env)][channel])
    return canvas.frame()


@configured
@partial(jax.jit, static_argnums=0)
def _observed(env: Game, physics: Played) -> Array:
    return env.observe(physics)


CELL = 40
"""Pixels of a game's cell."""
TRAILS = ("#E8EDF2", "#BCC6D0", "#929EAB", "#6B7887", "#4A5563")
GAMES: dict[type[Env], tuple[str, ...]] = {
    Breakout: (SECOND, PAPER, SHADE, FORCE),
    Freeway: (GOAL, FORCE, *TRAILS),  # the faster a car the brighter its trail
}
"""The colours of their channels."""

VALLEY, CAR, WHEEL = 280, 0.17, 0.032
"""Pixels per 1, the car's length, its wheels' radius."""

DRAWINGS: dict[type[Env], Drawing] = {
    MountainCar: Drawing(draw_mountain_car, 30),
    Pendulum: Drawing(draw_pendulum, 20),  # as fast as its clock
    Acrobot: Drawing(draw_acrobot, 15),  # three times as fast as its clock
    Breakout: Drawing(draw_game, 10),
    Freeway: Drawing(draw_game, 15),
}


def _between(start: Point, end: Point, part: float) -> Point:
    return start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])


def _away(point: Point, direction: float, distance: float) -> Point:
    """The point at a distance in a direction, anticlockwise from the right."""
    return point[0] + distance * math.cos(direction), point[1] + distance * math.sin(direction)


def _torque(canvas: Canvas, pivot: Point, radius: float, direction: float, part: float) -> None:
    """An arc from `direction`, of 120° for the largest torque."""
    if part == 0:
        return
    turns = np.linspace(0.0, part * math.radians(120), 33).tolist()
    canvas.arrow([_away(pivot, direction + turn, radius) for turn in turns], _head(part), FORCE)


def _head(part: float) -> float:
    """The size of the arrow for a part of the largest force: a weak one has a smaller head."""
    return 14 * min(1.0, 4 * abs(part))


def _height(position: float) -> float:
    """Of the ground: the shape whose slope the car's gravity follows."""
    return 0.45 * math.sin(3 * position) + 0.55


def _flag(canvas: Canvas, foot: Point) -> None:
    x, y = foot
    canvas.line([foot, (x, y + 0.24)], 3, INK)
    canvas.polygon([(x, y + 0.24), (x, y + 0.14), (x - 0.12, y + 0.19)], GOAL)


def _car(canvas: Canvas, position: float, part: float) -> None:
    """Wheels on the ground, the body above them; the arrow of the force starts at its middle."""
    slope = math.atan(1.35 * math.cos(3 * position))

    def place(along: float, above: float) -> Point:
        foot = _away((position, _height(position)), slope, along)
        return _away(foot, slope + math.pi / 2, above)

    half, floor, roof, top = CAR / 2, WHEEL, WHEEL + 0.05, WHEEL + 0.09
    cabin = [(-0.6 * half, roof), (-0.4 * half, top), (0.3 * half, top), (0.6 * half, roof)]
    body = [(-half, floor), (-half, roof), (half, roof), (half, floor)]
    canvas.polygon([place(*corner) for corner in cabin], SECOND)
    canvas.polygon([place(*corner) for corner in body], BODY)
    for along in (-0.58 * half, 0.58 * half):
        canvas.disc(place(along, WHEEL), WHEEL * VALLEY, INK)
        canvas.disc(place(along, WHEEL), WHEEL * VALLEY / 2.5, SHADE)
    if part != 0:
        canvas.arrow([place(0.0, top + 0.05), place(0.2 * part, top + 0.05)], _head(part), FORCE)
