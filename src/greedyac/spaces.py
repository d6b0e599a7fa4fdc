"""What an agent sees and does: the spaces of observations and actions. Nothing here knows JAX."""

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
        pairs = zip(self.low, self.high, strict=True)
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
        "observation": {"low": spaces.observation.low, "high": spaces.observation.high},
        "action": {"count": action.count} if isinstance(action, Discrete) else {"low": action.low, "high": action.high},
    }


def from_json(values: dict[str, Any]) -> Spaces:
    """The inverse of `to_json`; raises KeyError or TypeError on anything else."""
    action = values["action"]
    return Spaces(_box(values["observation"]), Discrete(int(action["count"])) if "count" in action else _box(action))


def _box(values: dict[str, Any]) -> Box:
    return Box(tuple(map(float, values["low"])), tuple(map(float, values["high"])))
