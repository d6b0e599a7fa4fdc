"""A warning of wrappers that seem to gather statistics from episode to episode, and don't say how to hand them on."""

import contextlib
import re
import warnings
from typing import Any

import gymnasium
import numpy as np

from greedyac.envs.gym.statistics import keeps_statistics, layers

KNOWN = ("gymnasium.", "greedyac.")
"""Packages whose wrappers need no check."""
STATISTIC = re.compile(
    r"(?:^|[._])(?:mean|average|avg|ema|var|variance|std|deviation|rms|running|moments?|stats|statistics|total|sum"
    r"|max|maximum|min|minimum|largest|smallest)(?:$|[._])"
)
"""What the names of statistics have in them."""
Remembered = dict[tuple[str, str], bytes]
"""The real numbers of wrappers, by class and attribute."""


class MemoryCheck:
    """Looks at an environment's wrappers after its first two resets: a statistic that differs has been kept.

    It only looks: the environment may be a robot.
    """

    def __init__(self) -> None:
        self._first: Remembered | None = None
        self._kept: list[tuple[str, str]] | None = None

    def look(self, env: Any) -> None:
        """To be called after every reset. A wrapper that can't be looked at is not warned of."""
        with contextlib.suppress(Exception):  # theirs: of any kind
            if self._first is None:
                self._first = _numbers(env)
            elif self._kept is None:
                self._kept = [name for name, value in _numbers(env).items() if self._first.get(name, value) != value]

    def warn(self) -> None:
        """Warn of each wrapper that keeps statistics, once."""
        kept, self._kept = self._kept or [], [] if self._kept is not None else None
        for kind in dict.fromkeys(kind for kind, _ in kept):
            attributes = ", ".join(attribute for one, attribute in kept if one == kind)
            warnings.warn(
                f"the wrapper {kind} seems to keep {attributes} from episode to episode, which evaluations and loaded "
                f"models would lack; give it get_statistics and set_statistics (see docs/your-environment.md)",
                stacklevel=2,
            )


def _numbers(env: Any) -> Remembered:
    suspects = [layer for layer in layers(env) if _is_suspect(layer)]
    return {
        (type(layer).__name__, attribute): np.asarray(value).tobytes()
        for layer in suspects
        for attribute, value in _attributes(layer).items()
        if STATISTIC.search(attribute.lower()) and _is_real(value)
    }


def _is_real(value: Any) -> bool:
    return isinstance(value, float | np.floating) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _is_suspect(layer: Any) -> bool:
    known = type(layer).__module__.startswith(KNOWN) or keeps_statistics(layer)
    return isinstance(layer, gymnasium.Wrapper) and not known


def _attributes(layer: Any) -> dict[str, Any]:
    """Those of a wrapper, and those of the objects and dicts among them."""
    own = {name: value for name, value in vars(layer).items() if not isinstance(value, gymnasium.Env | gymnasium.Space)}
    inner = {
        f"{name}.{part}": value
        for name, held in own.items()
        for part, value in (held if isinstance(held, dict) else getattr(held, "__dict__", {})).items()
    }
    return own | inner
