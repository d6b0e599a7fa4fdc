"""The learning curve against its definition, written as plain Python."""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import Array

from greedyac.results.schema import BINS
from greedyac.training import curve
from greedyac.training.curve import Curve, Summary, bin_edges

MAX_STEPS = 320
PROPERTY = settings(deadline=None, derandomize=True, max_examples=150)


def test_bin_edges_of_steps_that_divide_evenly() -> None:
    np.testing.assert_array_equal(bin_edges(1000), np.arange(0, 1001, 10))
    np.testing.assert_array_equal(bin_edges(100), np.arange(101))


def test_bin_edges_of_steps_that_do_not() -> None:
    assert bin_edges(250)[:6].tolist() == [0, 3, 5, 8, 10, 13]
    assert bin_edges(250)[-3:].tolist() == [245, 248, 250]


def test_bin_edges_of_fewer_steps_than_bins_leave_bins_empty() -> None:
    edges = bin_edges(4)
    assert np.flatnonzero(np.diff(edges)).tolist() == [0, 25, 50, 75]
    assert edges[-1] == 4


@PROPERTY
@given(st.integers(1, 2**31 - 1), st.floats(0, 1, exclude_max=True))
@example(2**31 - 1, 0.9999999999)
def test_every_step_lies_in_the_bin_of_its_share_of_the_run(steps: int, share: float) -> None:
    edges = bin_edges(steps).astype(np.int64)
    step = min(int(share * steps), steps - 1)
    assert (edges[0], edges[-1], len(edges)) == (0, steps, BINS + 1)
    assert np.searchsorted(edges, step, "right") - 1 == step * BINS // steps


class Story(NamedTuple):
    """A run: its rewards, the steps at which episodes ended, and when it diverged, if it did."""

    rewards: list[float]
    ends: set[int]
    diverged_at: int


@st.composite
def stories(draw: st.DrawFn) -> Story:
    steps = draw(st.integers(1, MAX_STEPS))
    lengths = draw(st.lists(st.integers(1, draw(st.sampled_from((3, 40, MAX_STEPS)))), max_size=60))
    ends = {end - 1 for end in itertools.accumulate(lengths) if end <= steps}
    quarters = draw(st.lists(st.integers(-40, 40), min_size=steps, max_size=steps))  # sums are exact in float32
    diverged_at = draw(st.one_of(st.just(MAX_STEPS), st.integers(0, steps)))
    return Story([quarter / 4 for quarter in quarters], ends, diverged_at)


@jax.jit
def recorded(rewards: Array, ended: Array, edges: Array, steps: Array, diverged_at: Array) -> Curve:
    def step(time: Array, so_far: Curve) -> Curve:
        return curve.record(so_far, edges, time, rewards[time], ended[time], time < diverged_at)

    return jax.lax.fori_loop(0, steps, step, curve.empty())


def ours(story: Story) -> Summary:
    steps = len(story.rewards)
    rewards = np.zeros(MAX_STEPS, np.float32)
    rewards[:steps] = story.rewards
    rewards[story.diverged_at : steps] = np.nan  # what is no longer counted must not leak
    ended = np.isin(np.arange(MAX_STEPS), list(story.ends))
    ran = recorded(rewards, ended, bin_edges(steps), np.int32(steps), np.int32(story.diverged_at))
    return curve.summarise(jax.device_get(ran))


def mean(numbers: list[float]) -> float | None:
    return math.fsum(numbers) / len(numbers) if numbers else None


def by_definition(story: Story) -> Summary:
    steps, start, returns = len(story.rewards), 0, []
    bins: list[list[float]] = [[] for _ in range(BINS)]
    for end in sorted(story.ends):
        if end < story.diverged_at:
            returns.append(sum(story.rewards[start : end + 1]))
            for step in range(start, end + 1):
                bins[step * BINS // steps].append(returns[-1])
        start = end + 1
    return Summary(
        average_return=mean(list(itertools.chain(*bins))),
        final_return=mean(list(itertools.chain(*bins[-10:]))),
        best_return=max(returns, default=None),
        episodes=len(story.ends),
        curve=[mean(numbers) for numbers in bins],
    )


def same(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-6)


@PROPERTY
@given(stories())
@example(Story([1.0] * 250, {99, 199}, MAX_STEPS))
@example(Story([1.0] * 5, {4}, MAX_STEPS))
@example(Story([-1.0] * 300, {0, 1, 150, 299}, 200))
def test_the_curve_is_its_definition(story: Story) -> None:
    summary, expected = ours(story), by_definition(story)
    assert summary.episodes == expected.episodes
    for name in ("average_return", "final_return", "best_return"):
        assert same(getattr(summary, name), getattr(expected, name)), name
    for index, (left, right) in enumerate(zip(summary.curve, expected.curve, strict=True)):
        assert same(left, right), index


def test_a_curve_by_hand() -> None:
    # 200 steps, two per bin. Return 3 for steps 0 … 2, 100 for 3 … 102, 50 for 103 … 152; the rest is unfinished.
    summary = ours(Story([1.0] * 200, {2, 102, 152}, MAX_STEPS))
    assert summary.curve[:3] == [3.0, 51.5, 100.0]
    assert summary.curve[50:53] == [100.0, 75.0, 50.0]
    assert summary.curve[76:] == [50.0] + [None] * 23
    assert summary.average_return == pytest.approx((3 * 3 + 100 * 100 + 50 * 50) / 153)
    assert (summary.final_return, summary.best_return, summary.episodes) == (None, 100.0, 3)


def test_a_run_without_a_finished_episode_has_no_returns() -> None:
    assert ours(Story([1.0] * 20, set(), MAX_STEPS)) == Summary(None, None, None, 0, [None] * BINS)


def test_episodes_after_divergence_do_not_contribute() -> None:
    before = ours(Story([1.0] * 200, {49}, MAX_STEPS))
    after = ours(Story([1.0] * 200, {49, 99, 149, 199}, 60))
    assert after._replace(episodes=1) == before


def test_a_summary_holds_plain_numbers() -> None:
    summary = ours(Story([1.0] * 200, {199}, MAX_STEPS))
    numbers = [summary.average_return, summary.final_return, summary.best_return, *summary.curve]
    assert {type(number) for number in numbers} == {float}
    assert type(summary.episodes) is int


def test_lanes_are_recorded_apart() -> None:
    rewards = np.repeat(np.array([[1.0], [2.0]], np.float32), MAX_STEPS, 1)
    ended = np.arange(MAX_STEPS) == np.array([[9], [19]])
    lanes = jax.vmap(recorded, (0, 0, None, None, None))(
        jnp.asarray(rewards), jnp.asarray(ended), bin_edges(100), np.int32(100), np.int32(MAX_STEPS)
    )
    first, second = (curve.summarise(jax.tree.map(lambda leaf, lane=lane: leaf[lane], lanes)) for lane in range(2))
    assert (first.best_return, second.best_return) == (10.0, 40.0)
    assert first.curve[:20] == [10.0] * 10 + [None] * 10
    assert second.curve[:20] == [40.0] * 20
