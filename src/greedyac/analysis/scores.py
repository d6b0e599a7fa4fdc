"""Scores that can be averaged over environments: the paper's, and one by percentiles."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from greedyac.analysis.stats import Floats
from greedyac.core.errors import InputError

PAPER_BEST = {
    "Acrobot-CA": -56.0,
    "Acrobot-DA": -56.0,
    "MountainCar-CA": -65.0,
    "MountainCar-DA": -83.0,
    "Pendulum-CA": 930.0,
    "Pendulum-DA": 932.0,
}
"""The paper's table of near-optimal returns: the best episode of any of its runs."""
Best = Literal["store", "paper"]


class Scale(NamedTuple):
    """A score as a straight line: (value - zero) / unit. Both may be arrays."""

    zero: float | Floats
    unit: float | Floats

    def __call__(self, values: Floats) -> Floats:
        """The scores of values."""
        return np.asarray((values - self.zero) / self.unit)


Scales = Mapping[str, Scale | None]
"""By environment; none where the score is not defined."""


def paper_scale(best: float | Floats) -> Scale:
    """1 - (best - value) / |best|, which is 1 at the best; not defined if that is 0."""
    return Scale(best - np.abs(best), np.abs(best))


def best_returns(runs: pl.DataFrame, best: Best) -> dict[str, float]:
    """Environment → the near-optimal return: the highest of any episode of these runs, or the paper's."""
    if best == "paper":
        envs = runs["env"].unique().sort()
        if strange := [env for env in envs if _name(env) not in PAPER_BEST]:
            raise InputError(f"the paper has no best return for {strange[0]}; allowed: {', '.join(PAPER_BEST)}")
        return {env: PAPER_BEST[_name(env)] for env in envs}
    found = runs.group_by("env").agg(pl.col("best_return").max()).drop_nulls()
    return dict(found.rows())


def _name(env: str) -> str:
    return env.partition("[")[0]


def paper_scales(runs: pl.DataFrame, best: Best) -> dict[str, Scale | None]:
    """The paper's score on each environment."""
    return {env: paper_scale(value) if value else None for env, value in best_returns(runs, best).items()}


def percentile_scales(runs: pl.DataFrame) -> dict[str, Scale | None]:
    """A score that is 0 at the 5th and 1 at the 95th percentile of these runs' values on an environment.

    Unlike the paper's it does not grow without bound where a bad return is many times the best, as in Mountain Car.
    """
    scales: dict[str, Scale | None] = {}
    for (env,), part in runs.drop_nulls("value").group_by("env"):
        low, high = np.quantile(part["value"].to_numpy(), [0.05, 0.95])
        scales[str(env)] = Scale(float(low), float(high - low)) if high > low else None
    return scales
