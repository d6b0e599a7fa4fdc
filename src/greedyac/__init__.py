"""Greedy Actor-Critic, compiled: train, compare and study reinforcement-learning agents.

>>> import greedyac
>>> model = greedyac.GreedyAC("Pendulum-CA").learn(50_000)  # or on your own gymnasium.Env
>>> action, _ = model.predict([3.1, 0.0])
>>> result = greedyac.train("greedy-ac", "Pendulum-CA", seeds=range(10), steps=50_000)
>>> result.curves  # a Polars frame, one row per run
>>> greedyac.ccem.maximize(f, contexts, low, high).actions  # conditional CEM by itself
"""

import importlib
from typing import TYPE_CHECKING, Any

from greedyac.core.version import __version__
from greedyac.registration import register

if TYPE_CHECKING:
    from greedyac import ccem
    from greedyac.api.callbacks import Checkpoint, Evaluate, StopAtReturn
    from greedyac.api.model import SAC, GreedyAC, Random, VanillaAC, load
    from greedyac.api.train import TrainResult, train
    from greedyac.core.errors import InputError
    from greedyac.training.checkpoint import Policy
    from greedyac.training.evaluate import evaluate

__all__ = [
    "SAC",
    "Checkpoint",
    "Evaluate",
    "GreedyAC",
    "InputError",
    "Policy",
    "Random",
    "StopAtReturn",
    "TrainResult",
    "VanillaAC",
    "__version__",
    "ccem",
    "evaluate",
    "load",
    "train",
]

_HOMES = {
    "greedyac.core.errors": ["InputError"],
    "greedyac.api.callbacks": ["Checkpoint", "Evaluate", "StopAtReturn"],
    "greedyac.training.checkpoint": ["Policy"],
    "greedyac.training.evaluate": ["evaluate"],
    "greedyac.api.model": ["SAC", "GreedyAC", "Random", "VanillaAC", "load"],
    "greedyac.api.train": ["TrainResult", "train"],
}

register()


def __getattr__(name: str) -> Any:
    """Import public names when they are first used: `import greedyac` and `greedyac --help` don't wait for JAX."""
    if name == "ccem":
        return importlib.import_module("greedyac.ccem")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet."""
    return sorted(__all__)
