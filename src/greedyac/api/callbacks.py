"""Callbacks of `learn`: evaluate and keep the best, stop at a return, save now and then."""

import math
import os
from pathlib import Path

from greedyac.api.model import Model, writable
from greedyac.core.errors import InputError
from greedyac.core.fields import Hyper, check_int
from greedyac.training.config import check_seeds


class Evaluate:
    """Every so many steps, episodes of the most likely action with learning off.

    Args:
        every: steps between evaluations.
        episodes: of each.
        best: a file for the best policy so far.
        stop_at: ends training as soon as a mean return reaches it.
        seed: of the episodes' starts, the same in every evaluation, and not that of `model.evaluate`.
    """

    evaluates = True
    """A callback that says so needs another environment beside that of training, which `learn` looks for at once."""

    def __init__(
        self,
        every: int,
        episodes: int = 10,
        *,
        best: str | os.PathLike[str] | None = None,
        stop_at: float | None = None,
        seed: int = 1,
    ):
        self.every = check_int("every", every, 1, 2**31 - 1)
        self.episodes = check_int("episodes", episodes, 1, 1_000_000)
        self.best = None if best is None else writable(best)
        self.stop_at = None if stop_at is None else _number("stop_at", stop_at)
        [self.seed] = check_seeds([seed])
        self.steps: list[int] = []
        """When it was evaluated."""
        self.returns: list[float] = []
        """The mean return of each evaluation."""

    def __call__(self, model: Model) -> bool:
        """Evaluate; False when there is no need to go on."""
        mean = model.evaluate(self.episodes, self.seed).mean
        best = max((value for value in self.returns if not math.isnan(value)), default=-math.inf)
        if self.best is not None and mean > best:
            model.save(self.best)
        self.steps.append(model.steps)
        self.returns.append(mean)
        return self.stop_at is None or not mean >= self.stop_at  # NaN has not reached it


class StopAtReturn(Evaluate):
    """Ends training as soon as the mean return of so many episodes of the most likely action reaches a value."""

    def __init__(self, value: float, every: int = 1000, episodes: int = 10):
        super().__init__(every, episodes, stop_at=_number("value", value))


def _number(name: str, value: object) -> float:
    return float(Hyper(name, float, 0.0, "static", "").check(value))  # type: ignore[arg-type]


class Checkpoint:
    """Saves the model every so many steps, to a path in which `{steps}` stands for their number."""

    def __init__(self, every: int, path: str | os.PathLike[str], *, everything: bool = False):
        self.every = check_int("every", every, 1, 2**31 - 1)
        self.path, self.everything = str(path), everything
        try:
            self.path.format(steps=0)
        except (KeyError, IndexError, ValueError, AttributeError, TypeError):
            raise InputError(
                f"path = {self.path!r} is not allowed; allowed: a path, in which {{steps}} may stand"
            ) from None
        writable(self.path.format(steps=0))

    def __call__(self, model: Model) -> None:
        """Save it now."""
        model.save(Path(self.path.format(steps=model.steps)), everything=self.everything)
