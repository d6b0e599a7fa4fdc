"""Sensitivity: how much an agent's performance depends on its hyperparameters. Everything is read off grids."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from greedyac.analysis.grid import Grid, same_settings
from greedyac.analysis.load import kind_of
from greedyac.analysis.scores import Scales
from greedyac.analysis.stats import Floats, Interval, Whole, interval, resampled_means

KEPT = 0.95
"""The share of the per-environment score that the effective dimensionality keeps."""
ENTROPY = ("entropy_scale", "entropy_step_size")
ROUNDING = 1e-12
"""Relative differences up to this are those of equal numbers."""
HALVES = 100
WITHIN = (0.05, 0.10, 0.25)


def line_axis(grid: Grid, across: str) -> str | None:
    """The hyperparameter with a line for each of its values over another: the entropy scale, or what stands for it."""
    return next((name for name in ENTROPY if name in grid.axes and name != across), None)


def best_settings(grid: Grid, across: str, lines: str | None, means: Floats) -> Whole:
    """The best setting by its mean, `means: [settings]`, at each point of one hyperparameter for each line.

    `[lines, points]`, or `[1, points]` without lines; −1 where the grid has no setting.
    """
    names, points = list(grid.axes), len(grid.axes[across])
    cells = grid.places[:, names.index(across)]
    if lines:
        cells = cells + points * grid.places[:, names.index(lines)]
    order = np.argsort(means, kind="stable")
    best = np.full((len(grid.axes[lines]) if lines else 1) * points, -1)
    best[cells[order]] = order  # of several in one cell the last, and so the best, stays
    return best.reshape(-1, points)


def sensitivity_curves(grid: Grid, across: str, lines: str | None) -> Floats:
    """The mean value at each point of one hyperparameter, all others but that of the lines at their best there.

    `[lines, points]`, or `[1, points]` without lines; NaN where the grid has no setting.
    """
    best = best_settings(grid, across, lines, grid.means)
    return np.where(best < 0, np.nan, grid.means[best])


def region_width(curves: Floats) -> float:
    """The mean height of the band between the lines `[lines, points]`, over the points that have any."""
    return float(np.nanmean(np.fmax.reduce(curves) - np.fmin.reduce(curves)))


def held_out_width(grid: Grid, across: str, lines: str) -> float | None:
    """The width with the settings, the upper and the lower line of each point chosen by one half of the seeds, and
    judged by the other; the mean over many halves, both ways. None with one seed.

    Noise makes the width larger, because it is a difference of the best and the worst; and this one smaller, because
    with noise the lines that are chosen are not always the outer ones. Without an effect it is 0 on average.
    """
    if len(grid.seeds) < 2:
        return None
    rng, found = np.random.default_rng(0), []
    for _ in range(HALVES):
        halves = [grid.values[:, half].mean(axis=1) for half in _halves(rng, len(grid.seeds))]
        for chosen_by, judged_by in (halves, halves[::-1]):
            best = best_settings(grid, across, lines, chosen_by)
            best = best[:, (best >= 0).any(axis=0)]
            points = np.arange(best.shape[1])
            upper = best[np.where(best < 0, -np.inf, chosen_by[best]).argmax(axis=0), points]
            lower = best[np.where(best < 0, np.inf, chosen_by[best]).argmin(axis=0), points]
            found.append((judged_by[upper] - judged_by[lower]).mean())
    return float(np.mean(found))


def _halves(rng: np.random.Generator, seeds: int) -> list[Whole]:
    """Which seeds are in either of two random halves."""
    return np.array_split(rng.permutation(seeds), 2)


def shares_near_best(means: Floats, best: float) -> list[float]:
    """The shares of settings within 5, 10 and 25 % of a best value."""
    return [float((means >= best - share * abs(best)).mean()) for share in WITHIN]


def variance_shares(tensor: Floats) -> dict[tuple[int, ...], float]:
    """The exact functional ANOVA of a full grid: sets of axes → their share of the variance; empty if there is none.

    The component of a set of axes is the mean over all other axes, less the components of its subsets.
    """
    total = float(tensor.var())
    if np.ptp(tensor) <= ROUNDING * np.abs(tensor).max():
        return {}
    parts: dict[tuple[int, ...], Floats] = {(): tensor.mean(keepdims=True)}
    for size in range(1, tensor.ndim + 1):
        for chosen in itertools.combinations(range(tensor.ndim), size):
            others = tuple(axis for axis in range(tensor.ndim) if axis not in chosen)
            below = sum((part for inner, part in parts.items() if set(inner) < set(chosen)), start=np.zeros(1))
            parts[chosen] = tensor.mean(axis=others, keepdims=True) - below
    return {chosen: float((part**2).mean() / total) for chosen, part in parts.items() if chosen}


def shares_of(grid: Grid) -> dict[tuple[str, ...], float]:
    """The variance shares of a grid by the names of hyperparameters; empty if it is not full."""
    axes = list(grid.axes)
    shares = variance_shares(grid.tensor(grid.means)) if grid.full else {}
    return {tuple(axes[axis] for axis in chosen): share for chosen, share in shares.items()}


def pair_means(grid: Grid, first: str, second: str, numbers: Floats) -> Floats:
    """Means of the settings' numbers `[settings]` over all axes but two: `[first, second]`; NaN where there is none."""
    names = list(grid.axes)
    place = grid.places[:, names.index(first)], grid.places[:, names.index(second)]
    total = np.zeros((len(grid.axes[first]), len(grid.axes[second])))
    count = np.zeros_like(total)
    np.add.at(total, place, numbers)
    np.add.at(count, place, 1.0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def phi(scores: Floats) -> Floats:
    """What is lost by one setting for all environments: `[..., envs, settings]` scores."""
    return np.asarray(scores.max(axis=-1).mean(axis=-1) - scores.mean(axis=-2).max(axis=-1))


def effective_dimensionality(scores: Floats, places: Whole) -> Floats:
    """How many hyperparameters must be tuned per environment to keep `KEPT` of the score of tuning all.

    The others stay at the values that are best across environments. `scores: [times, envs, settings]`,
    `places: [settings, axes]`; NaN if the score of tuning all is not positive.
    """
    goal = scores.max(axis=-1).mean(axis=-1)
    across = scores.mean(axis=-2).argmax(axis=-1)
    needed = np.full(len(scores), np.nan)
    for size in range(places.shape[1] + 1):
        for tuned in itertools.combinations(range(places.shape[1]), size):
            fixed = [axis for axis in range(places.shape[1]) if axis not in tuned]
            allowed = (places[:, None, fixed] == places[None, :, fixed]).all(axis=-1)
            reached = np.where(allowed[across][:, None, :], scores, -np.inf).max(axis=-1).mean(axis=-1)
            enough = np.isnan(needed) & (goal > 0) & (reached >= KEPT * goal)
            needed = np.where(enough, size, needed)
    return needed


def held_out_phi(first: Floats, second: Floats) -> float:
    """Φ with the settings chosen by one half of the seeds and judged by the other: `[envs, settings]` scores each.

    Noise makes Φ larger, because the best of noisy means is too good. Here it does not, and so this may be below 0.
    """
    each, across = first.argmax(axis=1), first.mean(axis=0).argmax()
    return float((second[np.arange(len(second)), each] - second[:, across]).mean())


class Measures(NamedTuple):
    """How sensitive an agent is across the environments of one kind, by one score."""

    kind: str
    agent: str
    score: str
    envs: tuple[str, ...]
    settings: int
    hyperparameters: int
    mean_score: Interval
    """The score of a setting that is picked at random: the mean over settings and environments."""
    phi: Interval
    held_out_phi: float | None
    """The mean of `held_out_phi` over many halves; None with one seed."""
    effective_dimensionality: Interval | None
    """None where the score of tuning everything per environment is not positive."""


def measures(grids: Sequence[Grid], scores: Mapping[str, Scales]) -> list[Measures]:
    """The measures of every agent that has the same settings, two or more, on two or more environments of a kind.

    Seeds are resampled for all settings alike; the scores' scales stay as they are.
    """
    found = []
    for kind, agent, score, same in _scorable(grids, scores):
        scales = scores[score]
        estimate, samples = _scored(same, scales)
        places = same[0].places
        dimensions = effective_dimensionality(np.concatenate([estimate[None], samples]), places)
        dimension = None if np.isnan(dimensions).any() else interval(dimensions[0], dimensions[1:])
        envs = tuple(grid.env for grid in same)
        mean = interval(estimate.mean(), samples.mean(axis=(1, 2)))
        cost = interval(phi(estimate), phi(samples))
        fair = _held_out(same, scales)
        found.append(Measures(kind, agent, score, envs, len(places), places.shape[1], mean, cost, fair, dimension))
    return found


class MeanDifference(NamedTuple):
    """How the mean scores of two agents compare over the environments of one kind, by one score."""

    kind: str
    score: str
    envs: tuple[str, ...]
    first: str
    second: str
    mean_score: Interval
    """Of the first less that of the second."""


def mean_differences(grids: Sequence[Grid], scores: Mapping[str, Scales]) -> list[MeanDifference]:
    """Every two agents that have `measures` of the same grid on the same seeds of the same environments.

    The same: of the hyperparameters that vary. Seeds are resampled for both alike.
    """
    groups: dict[tuple[Any, ...], list[tuple[str, Floats, Floats]]] = {}
    for kind, agent, score, same in _scorable(grids, scores):
        estimate, samples = _scored(same, scores[score])
        envs, seeds = tuple(grid.env for grid in same), tuple(grid.seeds for grid in same)
        alike = (kind, score, envs, seeds, *same[0].axes.items(), same[0].places.tobytes())
        groups.setdefault(alike, []).append((agent, estimate.mean(), samples.mean(axis=(1, 2))))
    return [
        MeanDifference(kind, score, envs, first, second, interval(one - two, ones - twos))
        for (kind, score, envs, *_), own in groups.items()
        for (first, one, ones), (second, two, twos) in itertools.combinations(own, 2)
    ]


def _scorable(grids: Sequence[Grid], scores: Mapping[str, Scales]) -> Iterator[tuple[str, str, str, list[Grid]]]:
    """Kind, agent, score, and the agent's grids with the same settings, two or more of both, where that is defined."""
    groups: dict[tuple[str, str], list[Grid]] = {}
    for grid in grids:
        groups.setdefault((kind_of(grid.env), grid.agent), []).append(grid)
    for ((kind, agent), group), (score, scales) in itertools.product(groups.items(), scores.items()):
        scored = [grid for grid in group if scales.get(grid.env) is not None and grid.settings]
        if len(scored) > 1 and len((same := same_settings(scored))[0].settings) > 1:
            yield kind, agent, score, same


def _held_out(grids: Sequence[Grid], scales: Scales) -> float | None:
    """The mean of `held_out_phi` over random halves of each environment's seeds, both ways."""
    if min(len(grid.seeds) for grid in grids) < 2:
        return None
    rng, found = np.random.default_rng(0), []
    for _ in range(HALVES):
        halves: tuple[list[Floats], list[Floats]] = ([], [])
        for grid in grids:
            scale = scales[grid.env]
            assert scale is not None
            for half, part in zip(halves, _halves(rng, len(grid.seeds)), strict=True):
                half.append(scale(grid.values[:, part].mean(axis=1)))
        first, second = map(np.stack, halves)
        found += [held_out_phi(first, second), held_out_phi(second, first)]
    return float(np.mean(found))


def _scored(grids: Sequence[Grid], scales: Scales) -> tuple[Floats, Floats]:
    """The scores of all settings, `[envs, settings]`, and of resampled seeds, `[times, envs, settings]`."""
    estimates, samples = [], []
    for stream, grid in enumerate(grids):
        scale = scales[grid.env]
        assert scale is not None
        estimates.append(scale(grid.means))
        samples.append(scale(resampled_means(grid.values, stream)))
    return np.stack(estimates), np.stack(samples, axis=1)
