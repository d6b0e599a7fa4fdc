"""Statistics of runs, as pure functions of arrays. Nothing here knows agents, environments or stores.

Every interval is a percentile bootstrap over runs, with the same random draws each time it is computed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import betaincinv

Floats = np.ndarray[Any, np.dtype[np.float64]]
Whole = np.ndarray[Any, np.dtype[np.int64]]
Band = Literal["standard-error", "bootstrap", "tolerance"]
BANDS: tuple[Band, ...] = ("standard-error", "bootstrap", "tolerance")
CONFIDENCE = 0.95
COVERAGE = 0.9
"""The share of runs that a tolerance band should hold, if there are enough runs to say so."""
RESAMPLES = 2000


class Interval(NamedTuple):
    """An estimate and the ends of its interval."""

    estimate: float
    low: float
    high: float


def resampled(runs: int, times: int = RESAMPLES, stream: int = 0) -> Whole:
    """Which runs each resample takes, `[times, runs]`; the same every time for the same `stream`."""
    return np.random.default_rng([stream, runs]).integers(runs, size=(times, runs))


def resampled_means(values: Floats, stream: int = 0, times: int = RESAMPLES) -> Floats:
    """Means over resampled runs: `[..., runs]` becomes `[times, ...]`."""
    runs = values.shape[-1]
    means = _counts(runs, times, stream) @ values.reshape(-1, runs).T / runs
    return means.reshape(times, *values.shape[:-1])


def _counts(runs: int, times: int, stream: int) -> Floats:
    """How often each resample takes each run: `[times, runs]`."""
    counts = np.zeros((times, runs))
    np.add.at(counts, (np.arange(times)[:, None], resampled(runs, times, stream)), 1.0)
    return counts


def percentile_interval(samples: Floats) -> tuple[Floats, Floats]:
    """The ends of the middle `CONFIDENCE` of samples along their first axis."""
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return low, high


def interval(estimate: float | Floats, samples: Floats) -> Interval:
    """An estimate with the percentile interval of its bootstrap samples `[times]`."""
    low, high = percentile_interval(samples)
    return Interval(float(estimate), float(low), float(high))


def mean_interval(values: Floats) -> Interval:
    """The mean of runs `[runs]` with its interval."""
    return interval(values.mean(), resampled_means(values))


def standard_error(values: Floats) -> Floats:
    """The standard error of the mean over the first axis; NaN for a single run."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


class Tolerance(NamedTuple):
    """The tolerance band of some runs: from the `rank`-th lowest to the `rank`-th highest."""

    rank: int
    coverage: float
    """The share of all runs that it holds with a probability of at least `CONFIDENCE`."""


def tolerance(runs: int, coverage: float = COVERAGE) -> Tolerance:
    """The narrowest band of order statistics that holds `coverage` of all runs; the widest there is if none does.

    What lies between two order statistics of n draws is distributed as Beta(s - r, n - s + r + 1), whatever the runs'
    distribution is.
    """
    held = [float(betaincinv(runs + 1 - 2 * rank, 2 * rank, 1 - CONFIDENCE)) for rank in range(1, runs // 2 + 1)]
    enough = [rank for rank, share in enumerate(held, 1) if share >= coverage]
    rank = max(enough, default=1)
    return Tolerance(rank, held[rank - 1] if held else 0.0)


def band_of(curves: Floats, band: Band) -> tuple[Floats, Floats, Floats]:
    """The mean of curves `[runs, bins]`, and a band's lower and upper end; of one run all three are the run."""
    mean = curves.mean(axis=0)
    if len(curves) < 2:
        return mean, mean, mean
    if band == "standard-error":
        error = standard_error(curves)
        return mean, mean - error, mean + error
    if band == "bootstrap":
        return mean, *percentile_interval(resampled_means(curves.T))
    rank, _ = tolerance(len(curves))
    ordered = np.sort(curves, axis=0)
    return mean, ordered[rank - 1], ordered[-rank]


def interquartile_mean(scores: Floats) -> Floats:
    """The mean of the middle half along the last axis (a quarter, rounded down, is cut at either end)."""
    cut = scores.shape[-1] // 4
    ordered = np.sort(scores, axis=-1)
    return np.asarray(ordered[..., cut : scores.shape[-1] - cut].mean(axis=-1))


def improvement(first: Floats, second: Floats) -> Floats:
    """The probability that a run of the first is better than one of the second, `[..., runs]` each; ties are half."""
    difference = first[..., :, None] - second[..., None, :]
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean(axis=(-2, -1)))


def resampled_improvement(first: Floats, second: Floats, stream: int = 0, times: int = RESAMPLES) -> Floats:
    """`improvement` of runs `[runs]` each, resampled alike: `[times]`."""
    better = (first[:, None] > second) + 0.5 * (first[:, None] == second)
    counts = _counts(len(first), times, stream)
    return np.asarray(((counts @ better) * counts).sum(axis=1) / len(first) ** 2)


def profile(scores: Floats, thresholds: Floats) -> Floats:
    """The share of scores `[..., runs]` above each threshold: `[..., thresholds]`."""
    return np.asarray((scores[..., None, :] > thresholds[:, None]).mean(axis=-1))


def stratified(
    statistic: Callable[..., Floats], groups: Sequence[Sequence[Floats]], times: int = RESAMPLES
) -> tuple[Floats, Floats]:
    """A statistic of groups of runs, and its bootstrap samples `[times, ...]`.

    `groups[g][e]` are the scores of group g on environment e. Each environment's runs are resampled by themselves, and
    for all groups alike: runs of the same place in two groups share a seed. The statistic takes, for each group, a list
    with one array `[..., runs]` per environment.
    """
    assert all(len({len(scores) for scores in same}) == 1 for same in zip(*groups, strict=True))
    draws = [resampled(len(scores), times, stream) for stream, scores in enumerate(groups[0])]
    samples = [[scores[draw] for scores, draw in zip(group, draws, strict=True)] for group in groups]
    return statistic(*groups), statistic(*samples)
