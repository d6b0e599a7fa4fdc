"""Greedy Actor-Critic, compiled: train, compare and study reinforcement-learning agents.

>>> import greedyac
>>> result = greedyac.train("greedy-ac", "Pendulum-CA", seeds=range(10), steps=50_000)
>>> result.curves  # a Polars frame, one row per run
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greedyac.errors import InputError
    from greedyac.training.checkpoint import Policy, load
    from greedyac.training.evaluate import evaluate
    from greedyac.training.train import TrainResult, train

__all__ = ["InputError", "Policy", "TrainResult", "evaluate", "load", "train"]
__version__ = "0.1.0"

_HOMES = {
    "InputError": "greedyac.errors",
    "Policy": "greedyac.training.checkpoint",
    "TrainResult": "greedyac.training.train",
    "evaluate": "greedyac.training.evaluate",
    "load": "greedyac.training.checkpoint",
    "train": "greedyac.training.train",
}


def __getattr__(name: str) -> Any:
    """Import public names when they are first used: `import greedyac` and `greedyac --help` don't wait for JAX."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
