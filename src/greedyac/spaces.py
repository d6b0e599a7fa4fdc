"""What an agent sees and does: the spaces of observations and actions. Nothing here knows JAX."""

import math
from dataclasses import dataclass
from typing import Any

KERNEL = 3
"""Rows and columns of a convolution's kernels: no grid is smaller."""


@dataclass(frozen=True)
class Box:
    """Vectors of real numbers between `low` and `high`, both inclusive; also grids, their numbers in a row."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    grid: tuple[int, int, int] | None = None
    """Rows, columns and channels, if these are the cells of a grid or the pixels of an image."""
    stored: str = "float32"
    """How a replay keeps them: as `float32`, `uint8` (whole numbers, of a grid 255ths) or `bool`."""

    @property
    def size(self) -> int:
        """The number of entries of a vector."""
        return len(self.low)

    @property
    def unit(self) -> float:
        """What a stored number of 1 stands for: the pixels of an image become numbers between 0 and 1."""
        return 1 / 255 if self.grid and self.stored == "uint8" else 1.0

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
    more = {"grid": box.grid and list(box.grid), "stored": box.stored}
    return bounds | {name: value for name, value in more.items() if value not in (None, "float32")}


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
        rows, columns, channels = map(int, grid)
        if rows * columns * channels != len(low):
            raise ValueError(f"a grid {grid} of {len(low)} numbers")
        grid = rows, columns, channels
    if stored not in ("float32", "uint8", "bool"):
        raise ValueError(f"numbers stored as {stored!r}")
    return Box(low, high, grid, stored)
