"""The learning curve of a run, gathered inside the compiled program.

Every step carries the return of the finished episode that it belongs to; a bin is the mean over its steps that
belong to finished episodes. So the mean over all such steps is the paper's average return across timesteps.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.results.schema import BINS, FINAL_BINS


class Curve(NamedTuple):
    """What is known of one run's episodes: sums over the finished ones, and the one under way."""

    total: Array
    """`[BINS]`: sum of the returns that the bin's steps carry."""
    steps: Array
    """`[BINS]`: number of the bin's steps that belong to finished episodes."""
    best: Array
    episodes: Array
    """Finished episodes; also the index of the one under way."""
    start: Array
    """Time at which the episode under way began."""
    running: Array
    """Rewards of the episode under way, summed."""


class Summary(NamedTuple):
    """A finished curve in plain numbers; None where no episode was finished."""

    average_return: float | None
    final_return: float | None
    best_return: float | None
    episodes: int
    curve: list[float | None]


def bin_edges(steps: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The first step of each bin, and the end: step t of `steps` belongs to bin ⌊t · BINS / steps⌋."""
    return np.array([-(-index * steps // BINS) for index in range(BINS + 1)], np.int32)


def empty() -> Curve:
    """A run before its first step."""
    return Curve(
        total=jnp.zeros(BINS, jnp.float32),
        steps=jnp.zeros(BINS, jnp.int32),
        best=jnp.float32(-jnp.inf),
        episodes=jnp.int32(0),
        start=jnp.int32(0),
        running=jnp.float32(0),
    )


def renewed(curve: Curve) -> Curve:
    """Nothing is recorded yet, in the middle of whatever episode is under way."""
    return empty()._replace(episodes=curve.episodes, start=curve.start, running=curve.running)


def record(curve: Curve, edges: Array, time: Array, reward: Array, ended: Array, counts: Array) -> Curve:
    """The curve after the step at `time`, whether the episode `ended` there, and whether it still `counts`."""
    running = curve.running + reward
    finished = ended & counts
    overlap = jnp.minimum(edges[1:], time + 1) - jnp.maximum(edges[:-1], curve.start)
    steps = jnp.where(finished, jnp.maximum(overlap, 0), 0)
    return Curve(
        total=curve.total + jnp.where(steps > 0, running, 0) * steps,
        steps=curve.steps + steps,
        best=jnp.where(finished, jnp.maximum(curve.best, running), curve.best),
        episodes=curve.episodes + ended,
        start=jnp.where(ended, time + 1, curve.start),
        running=jnp.where(ended, 0.0, running),
    )


def summarise(curve: Curve) -> Summary:
    """The curve of one lane, brought to the host, in plain numbers."""
    total, steps = np.asarray(curve.total, np.float64), np.asarray(curve.steps, np.int64)

    def mean(bins: slice) -> float | None:
        return float(total[bins].sum() / steps[bins].sum()) if steps[bins].sum() else None

    return Summary(
        average_return=mean(slice(None)),
        final_return=mean(slice(-FINAL_BINS, None)),
        best_return=float(curve.best) if steps.sum() else None,
        episodes=int(curve.episodes),
        curve=[mean(slice(index, index + 1)) for index in range(BINS)],
    )
