"""What an agent sees and does: the spaces of observations and actions. Nothing here knows JAX."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greedyac.core.counting import counted

KERNEL = 3
"""Rows and columns of a convolution's kernels: no grid is smaller."""
PIXEL = 1 / 255
"""What a byte of 1 stands for in an image, whose numbers are between 0 and 1."""


@dataclass(frozen=True)
class Image:
    """An image or a grid that is one part of a dict or tuple, whose numbers all come in a row."""

    start: int
    """Where its numbers begin."""
    grid: tuple[int, int, int]
    """Rows, columns and channels."""
    is_bytes: bool = False

    @property
    def stop(self) -> int:
        """Where its numbers end."""
        return self.start + math.prod(self.grid)

    @property
    def unit(self) -> float:
        """What a number of 1 stands for."""
        return PIXEL if self.is_bytes else 1.0

    @property
    def fits_kernel(self) -> bool:
        """Whether a convolution can look at it."""
        return min(self.grid[:2]) >= KERNEL


@dataclass(frozen=True)
class Box:
    """Vectors of real numbers between `low` and `high`, both inclusive; also grids, their numbers in a row."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    grid: tuple[int, int, int] | None = None
    """Rows, columns and channels, if these are the cells of a grid or the pixels of an image."""
    stored: str = "float32"
    """How a replay keeps them: as `float32`, `uint8` (whole numbers, of an image 255ths) or `bool`."""
    images: tuple[Image, ...] = ()
    """The images among the parts of a dict or tuple, in the order of their numbers; a lone grid is none of them."""

    @property
    def size(self) -> int:
        """The number of entries of a vector."""
        return len(self.low)

    @property
    def unit(self) -> float | NDArray[np.float64]:
        """What a number of 1 stands for: the pixels of images become numbers between 0 and 1, others stay.

        `[size]` where some of a dict or tuple are pixels.
        """
        if any(image.is_bytes for image in self.images):
            units = np.ones(self.size)
            for image in self.images:
                units[image.start : image.stop] = image.unit
            return units
        return PIXEL if self.grid and self.stored == "uint8" else 1.0

    @property
    def convolved(self) -> tuple[Image, ...]:
        """What networks look at with a convolution: the grid that it is, or images among its parts."""
        return (Image(0, self.grid),) if self.grid else tuple(image for image in self.images if image.fits_kernel)

    def __str__(self) -> str:
        if self.grid:
            kind = {"bool": "bits", "uint8": "bytes"}.get(self.stored, "numbers")
            return "{} × {} × {} ".format(*self.grid) + kind
        pairs = list(zip(self.low, self.high, strict=True))
        if len(pairs) > 1 and len(set(pairs)) == 1:
            return "[{:.4g}, {:.4g}]^{}".format(*pairs[0], len(pairs))
        return " × ".join(f"[{low:.4g}, {high:.4g}]" for low, high in pairs)


@dataclass(frozen=True)
class Discrete:
    """The whole numbers 0 … `count` − 1."""

    count: int

    def __str__(self) -> str:
        return "{" + ", ".join(str(action) for action in range(self.count)) + "}"


@dataclass(frozen=True)
class Spaces:
    """The observations and the actions of an environment."""

    observation: Box
    action: Box | Discrete


def to_json(spaces: Spaces) -> dict[str, Any]:
    """The spaces as plain JSON values."""
    action = spaces.action
    return {
        "observation": _bounds(spaces.observation),
        "action": {"count": action.count} if isinstance(action, Discrete) else _bounds(action),
    }


def _bounds(box: Box) -> dict[str, Any]:
    """The bounds, null where there is none; what else it is, where it is more than a vector of reals."""
    bounds = {name: [b if math.isfinite(b) else None for b in getattr(box, name)] for name in ("low", "high")}
    images = [asdict(image) | {"grid": list(image.grid)} for image in box.images]
    more = {"grid": box.grid and list(box.grid), "stored": box.stored, "images": images}
    return bounds | {name: value for name, value in more.items() if value not in (None, "float32", [])}


def from_json(values: dict[str, Any]) -> Spaces:
    """The inverse of `to_json`; raises KeyError, TypeError or ValueError on anything else."""
    action = values["action"]
    return Spaces(_box(values["observation"]), Discrete(int(action["count"])) if "count" in action else _box(action))


def _box(values: dict[str, Any]) -> Box:
    low, high = (
        tuple(none if bound is None else float(bound) for bound in values[name])
        for name, none in (("low", -math.inf), ("high", math.inf))
    )
    grid, stored = values.get("grid"), values.get("stored", "float32")
    if grid is not None:
        grid = _grid(grid)
        if math.prod(grid) != len(low):
            raise ValueError(f"a grid {grid} of {counted(len(low), 'number')}")
    if stored not in ("float32", "uint8", "bool"):
        raise ValueError(f"numbers stored as {stored!r}")
    return Box(low, high, grid, stored, tuple(_images(values.get("images", []), len(low))))


def _grid(values: Iterable[Any]) -> tuple[int, int, int]:
    rows, columns, channels = map(int, values)
    return rows, columns, channels


def _images(listed: Iterable[Mapping[str, Any]], size: int) -> list[Image]:
    images = [Image(int(one["start"]), _grid(one["grid"]), bool(one["is_bytes"])) for one in listed]
    edges = [0, *(edge for image in images for edge in (image.start, image.stop)), size]
    if edges != sorted(edges):
        raise ValueError(f"images at {edges[1:-1]} of {size} numbers")
    return images
