"""What an agent sees and does: the spaces of observations and actions. Nothing here knows JAX."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Box:
    """Vectors of real numbers between `low` and `high`, both inclusive."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        """The number of entries of a vector."""
        return len(self.low)

    def __str__(self) -> str:
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


def _bounds(box: Box) -> dict[str, list[float | None]]:
    """The bounds, null where there is none."""
    return {name: [b if math.isfinite(b) else None for b in getattr(box, name)] for name in ("low", "high")}


def from_json(values: dict[str, Any]) -> Spaces:
    """The inverse of `to_json`; raises KeyError or TypeError on anything else."""
    action = values["action"]
    return Spaces(_box(values["observation"]), Discrete(int(action["count"])) if "count" in action else _box(action))


def _box(values: dict[str, Any]) -> Box:
    low, high = (
        tuple(none if bound is None else float(bound) for bound in values[name])
        for name, none in (("low", -math.inf), ("high", math.inf))
    )
    return Box(low, high)
