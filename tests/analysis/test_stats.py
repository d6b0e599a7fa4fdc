"""Statistics against numbers worked out by hand, against SciPy and rliable, and against what they promise."""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
from scipy import stats as scipy_stats

from greedyac.analysis import stats
from greedyac.analysis.stats import (
    BANDS,
    CONFIDENCE,
    RESAMPLES,
    Band,
    Floats,
    Interval,
    Tolerance,
    band_of,
    improvement,
    interquartile_mean,
    interval,
    percentile_interval,
    profile,
    resampled,
    resampled_improvement,
    resampled_means,
    standard_error,
    stratified,
    tolerance,
)

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 30, 40)


def floats(*values: float) -> Floats:
    return np.array(values, np.float64)


def normal(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).normal(size=shape)


def pooled(scores: Sequence[Floats]) -> Floats:
    return interquartile_mean(np.concatenate(scores, axis=-1))


def mean_improvement(first: Sequence[Floats], second: Sequence[Floats]) -> Floats:
    return np.mean([improvement(one, two) for one, two in zip(first, second, strict=True)], axis=0)


# Resamples


@pytest.mark.parametrize("runs", [1, 2, 7, 30])
def test_a_resample_takes_as_many_runs_as_there_are_each_as_likely(runs: int) -> None:
    draws = resampled(runs)
    assert draws.shape == (RESAMPLES, runs)
    shares = np.bincount(draws.ravel(), minlength=runs) / draws.size
    assert len(shares) == runs
    sigma = np.sqrt((1 / runs) * (1 - 1 / runs) / draws.size)
    np.testing.assert_allclose(shares, 1 / runs, atol=4 * sigma)  # 2.2 with these draws


def test_resamples_are_the_same_every_time_and_differ_between_streams() -> None:
    np.testing.assert_array_equal(resampled(10, 50, 3), resampled(10, 50, 3))
    assert (resampled(10, 50, 3) != resampled(10, 50, 4)).mean() > 0.8  # 0.9 of independent draws differ
    assert resampled(10, 50).shape == (50, 10)
    np.testing.assert_array_equal(resampled(10, 50), resampled(10, 50, 0))


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_resampled_means_are_the_means_of_the_runs_that_were_drawn(shape: tuple[int, ...]) -> None:
    values = normal(0, *shape)
    means = resampled_means(values, stream=4, times=40)
    assert means.shape == (40, *shape[:-1])
    np.testing.assert_allclose(means, np.stack([values[..., draw].mean(axis=-1) for draw in resampled(5, 40, 4)]))


def test_resampled_means_of_two_runs_are_either_run_or_their_middle() -> None:
    means, counts = np.unique(resampled_means(floats(2, 4)), return_counts=True)
    assert means.tolist() == [2, 3, 4]
    np.testing.assert_allclose(counts / RESAMPLES, [0.25, 0.5, 0.25], atol=0.04)  # 4 sigma


def test_resampled_means_take_the_same_runs_for_all_rows() -> None:
    values = normal(1, 6)
    means = resampled_means(np.stack([values, values + 10]))
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 10)


# Intervals


def test_confidence_is_95_percent() -> None:
    assert CONFIDENCE == 0.95
    assert stats.COVERAGE == 0.9


def test_a_percentile_interval_leaves_the_same_share_out_at_either_end() -> None:
    low, high = percentile_interval(np.arange(1001.0))
    assert (float(low), float(high)) == pytest.approx((25, 975))


def test_a_percentile_interval_is_taken_along_the_first_axis() -> None:
    low, high = percentile_interval(np.arange(1001.0)[:, None] * floats(1, 2, -1))
    np.testing.assert_allclose(low, [25, 50, -975])
    np.testing.assert_allclose(high, [975, 1950, -25])


def test_an_interval_is_an_estimate_with_its_ends() -> None:
    found = interval(np.float64(7), np.arange(1001.0))
    assert found == pytest.approx(Interval(7, 25, 975))
    assert {type(number) for number in found} == {float}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("runs", [5, 30])
def test_bootstrap_intervals_of_a_mean_are_scipys(runs: int, seed: int) -> None:
    values = np.random.default_rng(seed).exponential(size=runs)
    ours = percentile_interval(resampled_means(values))
    theirs = scipy_stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    # the end of an interval of 2,000 resamples is known to 0.06 standard errors or more; of 100 such samples: to 0.20
    np.testing.assert_allclose(ours, theirs, atol=0.25 * scipy_stats.sem(values))


@pytest.mark.parametrize("runs", [10, 30])
def test_bootstrap_intervals_hold_the_mean_as_often_as_they_should(runs: int) -> None:
    values = normal(0, 4000, runs)
    low, high = percentile_interval(resampled_means(values))
    held = ((low <= 0) & (high >= 0)).mean()
    # of normal runs: the interval is mean ± 1.96 s √((n-1)/n) / √n, and the mean is distributed as Student's t
    expected = 2 * scipy_stats.t.cdf(1.96 * np.sqrt((runs - 1) / runs), runs - 1) - 1
    assert expected == pytest.approx({10: 0.904, 30: 0.936}[runs], abs=0.001)
    assert held == pytest.approx(expected, abs=0.015)  # measured for four seeds: within 0.012


# Standard errors


def test_standard_error_by_hand() -> None:
    # deviations -2, -1, 3 around 3: a variance of 14 / 2, and √(7 / 3) of their mean
    assert float(standard_error(floats(1, 2, 6))) == pytest.approx(np.sqrt(7 / 3))
    assert float(standard_error(floats(1, 3))) == pytest.approx(1)


@pytest.mark.parametrize("shape", [(2, 4), (5, 1), (9,), (30, 100)])
def test_standard_error_is_scipys(shape: tuple[int, ...]) -> None:
    values = normal(2, *shape)
    np.testing.assert_allclose(standard_error(values), scipy_stats.sem(values, axis=0))


def test_standard_error_of_one_run_is_not_known() -> None:
    found = standard_error(np.ones((1, 4)))
    assert found.shape == (4,)
    assert np.isnan(found).all()


# Tolerance


def held_by(runs: int, rank: int, share: float) -> float:
    """The probability that at least a share of all runs lies between two order statistics, by the binomial formula.

    It does if at most `runs - 2 rank` of the draws fall into the lowest `share` of the distribution.
    """
    return float(scipy_stats.binom.cdf(runs - 2 * rank, runs, share))


def test_what_two_runs_hold_by_hand() -> None:
    # the gap between two uniform draws exceeds x with a probability of (1 - x)²
    assert tolerance(2) == pytest.approx(Tolerance(1, 1 - np.sqrt(0.95)))


def test_what_three_runs_hold_by_hand() -> None:
    rank, held = tolerance(3)
    assert rank == 1
    assert 3 * held**2 - 2 * held**3 == pytest.approx(0.05)  # their range is below x with that probability


@pytest.mark.parametrize(("rank", "runs"), [(1, 46), (2, 76), (3, 103)])
def test_the_fewest_runs_for_a_rank_are_those_of_the_tables(rank: int, runs: int) -> None:
    assert tolerance(runs).rank == rank
    assert tolerance(runs - 1).rank == max(rank - 1, 1)
    assert tolerance(runs).coverage >= 0.9
    assert (tolerance(runs - 1).coverage < 0.9) == (rank == 1)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("runs", [2, 3, 4, 10, 31, 100, 200])
def test_tolerance_is_the_binomial_formulas(runs: int, coverage: float) -> None:
    rank, held = tolerance(runs, coverage)
    enough = [one for one in range(1, runs // 2 + 1) if held_by(runs, one, coverage) >= CONFIDENCE]
    assert rank == max(enough, default=1)
    assert held_by(runs, rank, held) == pytest.approx(CONFIDENCE)


@pytest.mark.parametrize("runs", [0, 1])
def test_a_single_run_holds_nothing(runs: int) -> None:
    assert tolerance(runs) == Tolerance(1, 0.0)


@pytest.mark.parametrize("runs", [4, 30, 100])
def test_a_tolerance_band_holds_what_it_says_as_often_as_it_should(runs: int) -> None:
    rank, coverage = tolerance(runs)
    draws = np.random.default_rng(0).uniform(size=(runs, 20_000))  # a share of a uniform distribution is a length
    _, low, high = band_of(draws, "tolerance")
    ordered = np.sort(draws, axis=0)
    np.testing.assert_array_equal(low, ordered[rank - 1])
    np.testing.assert_array_equal(high, ordered[runs - rank])
    assert (high - low >= coverage).mean() == pytest.approx(
        0.95, abs=0.006
    )  # 4 sigma; measured for four seeds: within 0.003


# Bands


def test_there_are_three_bands() -> None:
    assert get_args(Band) == BANDS == ("standard-error", "bootstrap", "tolerance")


def test_the_standard_error_band_by_hand() -> None:
    mean, low, high = band_of(np.array([[1.0, 0.0], [3.0, 8.0]]), "standard-error")
    np.testing.assert_allclose([mean, low, high], [[2, 4], [1, 0], [3, 8]])


def test_the_bootstrap_band_of_two_runs_reaches_from_one_to_the_other() -> None:
    curves = np.array([[1.0, 0.0], [3.0, 8.0]])
    np.testing.assert_allclose(band_of(curves, "bootstrap"), [[2, 4], [1, 0], [3, 8]])


def test_the_bootstrap_band_is_the_interval_of_each_bins_mean() -> None:
    curves = normal(3, 12, 5)
    mean, low, high = band_of(curves, "bootstrap")
    np.testing.assert_allclose(mean, curves.mean(axis=0))
    for place in range(5):
        ends = percentile_interval(resampled_means(curves[:, place]))
        np.testing.assert_allclose((low[place], high[place]), ends)


def test_the_tolerance_band_of_few_runs_is_their_range() -> None:
    curves = normal(4, 45, 3)
    np.testing.assert_array_equal(band_of(curves, "tolerance"), [curves.mean(0), curves.min(0), curves.max(0)])


def test_the_tolerance_band_of_76_runs_leaves_out_the_extremes() -> None:
    curves = np.random.default_rng(5).permutation(np.arange(76.0))[:, None]
    assert [float(part[0]) for part in band_of(curves, "tolerance")] == [37.5, 1, 74]


@pytest.mark.parametrize("band", BANDS)
def test_the_band_of_one_run_is_the_run(band: Band) -> None:
    curve = normal(6, 1, 4)
    for part in band_of(curve, band):
        np.testing.assert_array_equal(part, curve[0])


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("runs", [2, 3, 10, 60])
def test_the_band_of_runs_that_agree_has_no_width(runs: int, band: Band) -> None:
    for part in band_of(np.tile(floats(0.1, -7, 0), (runs, 1)), band):
        np.testing.assert_allclose(part, [0.1, -7, 0], rtol=1e-12)


@pytest.mark.parametrize("band", BANDS)
def test_a_band_lies_around_the_mean_and_is_the_same_every_time(band: Band) -> None:
    curves = normal(7, 10, 20)
    mean, low, high = band_of(curves, band)
    assert ((low < mean) & (mean < high)).all()
    np.testing.assert_array_equal(band_of(curves, band), [mean, low, high])


# Interquartile means


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([5], 5),
        ([1, 4], 2.5),
        ([0, 1, 8], 3),  # fewer than four: nothing is cut
        ([9, 1, 2, -50], 1.5),  # one is cut at either end
        ([100, 1, 2, 3, -50], 2),
        ([0, 1, 2, 3, 10, 99], 4),
        ([0, 1, 2, 3, 4, 10, 99], 4),
        ([-9, -8, 1, 2, 3, 6, 50, 99], 3),  # two are cut
        ([7, 7, 7, 7, 1000], 7),
    ],
)
def test_interquartile_mean_by_hand(scores: list[float], expected: float) -> None:
    assert float(interquartile_mean(floats(*scores))) == pytest.approx(expected)
    assert float(interquartile_mean(floats(*scores[::-1]))) == pytest.approx(expected)


@pytest.mark.parametrize("size", SIZES)
def test_interquartile_mean_is_scipys_trimmed_mean(size: int) -> None:
    scores = normal(8, 3, size)
    np.testing.assert_allclose(interquartile_mean(scores), scipy_stats.trim_mean(scores, 0.25, axis=-1))


def test_interquartile_mean_leaves_its_argument_alone() -> None:
    scores = floats(3, 1, 2)
    interquartile_mean(scores)
    assert scores.tolist() == [3, 1, 2]


# Improvement


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1], [0], 1),
        ([0], [1], 0),
        ([1], [1], 0.5),
        ([1, 3], [2], 0.5),
        ([1, 2], [2, 3], 0.125),  # of four pairs, one is a tie
        ([1, 2, 3], [0, 2], 4.5 / 6),
        ([5, 5], [5, 5, 5], 0.5),
    ],
)
def test_improvement_by_hand(first: list[float], second: list[float], expected: float) -> None:
    assert float(improvement(floats(*first), floats(*second))) == expected
    assert float(improvement(floats(*second), floats(*first))) == 1 - expected


@pytest.mark.parametrize(("runs", "others"), [(1, 1), (2, 5), (7, 7), (30, 20)])
@pytest.mark.parametrize("ties", [False, True])
def test_improvement_is_the_mann_whitney_statistic(runs: int, others: int, ties: bool) -> None:
    first, second = normal(9, 4, runs) + 0.5, normal(10, 4, others)
    if ties:
        first, second = first.round(), second.round()
    statistic = scipy_stats.mannwhitneyu(first, second, axis=-1, method="asymptotic").statistic
    np.testing.assert_allclose(improvement(first, second), statistic / (runs * others))


# Profiles


def test_a_profile_is_the_share_above_each_threshold_by_hand() -> None:
    scores = np.array([[0.0, 1.0, 1.0, 2.0], [5.0, 5.0, 5.0, -5.0]])
    found = profile(scores, floats(-1, 0, 1, 1.5, 2))
    np.testing.assert_array_equal(found, [[1, 0.75, 0.25, 0.25, 0], [0.75] * 5])


@pytest.mark.parametrize("size", SIZES)
def test_a_profile_is_one_less_the_empirical_distribution(size: int) -> None:
    scores, thresholds = normal(11, size), np.linspace(-2, 2, 9)
    expected = scipy_stats.ecdf(scores).sf.evaluate(thresholds)
    np.testing.assert_allclose(profile(scores, thresholds), expected)


# Stratified resamples


def test_the_estimate_is_the_statistic_of_the_runs_themselves() -> None:
    groups = [[floats(1, 2, 6), floats(4)]]
    estimate, samples = stratified(lambda scores: scores[0].mean(axis=-1) + scores[1].mean(axis=-1), groups, 50)
    assert float(estimate) == 7
    assert samples.shape == (50,)


def test_there_are_as_many_samples_as_usual_unless_told() -> None:
    assert stratified(pooled, [[floats(1, 2, 6)]])[1].shape == (RESAMPLES,)


def test_a_group_does_not_differ_from_itself_in_any_resample() -> None:
    scores = [normal(12, 10), normal(13, 7)]
    estimate, samples = stratified(lambda first, second: pooled(first) - pooled(second), [scores, scores])
    assert float(estimate) == 0
    np.testing.assert_array_equal(samples, np.zeros(RESAMPLES))


def test_groups_that_differ_by_a_constant_for_each_seed_do_so_in_every_resample() -> None:
    first = [normal(14, 10), normal(15, 10)]
    second = [scores - 2 for scores in first]
    _, samples = stratified(lambda one, two: pooled(one) - pooled(two), [first, second])
    np.testing.assert_allclose(samples, 2)


def test_the_runs_of_an_environment_are_resampled_by_themselves() -> None:
    groups = [[np.arange(4.0), 100 + np.arange(6.0)]]
    _, parts = stratified(lambda scores: np.concatenate(scores, axis=-1), groups)
    assert set(parts[:, :4].ravel()) == {0, 1, 2, 3}
    assert set(parts[:, 4:].ravel()) == {100, 101, 102, 103, 104, 105}


def test_environments_are_resampled_independently() -> None:
    scores = normal(16, 10)
    _, means = stratified(lambda parts: np.stack([part.mean(axis=-1) for part in parts], axis=-1), [[scores, scores]])
    correlation = scipy_stats.pearsonr(means[:, 0], means[:, 1]).statistic
    assert abs(correlation) < 0.09  # 4 sigma of 2,000 independent pairs; 0.008 with these draws


def test_stratified_samples_are_the_same_every_time() -> None:
    groups = [[normal(17, 10), normal(18, 5)]]
    np.testing.assert_array_equal(stratified(pooled, groups)[1], stratified(pooled, groups)[1])


def test_stratified_intervals_of_a_mean_are_those_of_the_normal_distribution() -> None:
    scores = [normal(19, 40), 3 * normal(20, 40)]
    estimate, samples = stratified(lambda parts: np.mean([part.mean(axis=-1) for part in parts], axis=0), [scores])
    error = np.hypot(scores[0].std(), scores[1].std()) / np.sqrt(40) / 2  # of a mean of two independent means
    expected = float(estimate) - 1.96 * error, float(estimate) + 1.96 * error
    np.testing.assert_allclose(percentile_interval(samples), expected, atol=0.25 * error)  # 11 such pairs: 0.13


@pytest.mark.parametrize("groups", [1, 2])
def test_runs_that_agree_give_an_interval_without_width(groups: int) -> None:
    found = interval(*stratified(lambda *parts: pooled(parts[-1]), [[np.full(7, 0.1), np.full(5, 0.1)]] * groups))
    assert found == pytest.approx((0.1, 0.1, 0.1), rel=1e-12)


# rliable


@pytest.fixture(scope="module")
def rliable() -> Any:
    return pytest.importorskip("rliable.metrics"), pytest.importorskip("rliable.library")


@pytest.mark.parametrize("runs", [5, 10, 30])
def test_estimates_are_those_of_rliable(runs: int, rliable: Any) -> None:
    metrics, _ = rliable
    first, second = normal(21, runs, 3) + 0.3, normal(22, runs, 3).round(1)
    assert float(pooled(list(first.T))) == pytest.approx(metrics.aggregate_iqm(first))
    expected = metrics.probability_of_improvement(first, second)
    assert float(mean_improvement(list(first.T), list(second.T))) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:random_state is deprecated:FutureWarning")
@pytest.mark.parametrize("seed", range(2))
def test_intervals_are_those_of_rliable(seed: int, rliable: Any) -> None:
    metrics, library = rliable
    first, second = normal(30 + seed, 20, 3) + 0.3, normal(40 + seed, 20, 3)
    scores = {"first": first, "second": second}
    options: dict[str, Any] = {"reps": 2000, "random_state": np.random.RandomState(0)}
    _, theirs = library.get_interval_estimates(scores, metrics.aggregate_iqm, **options)
    for name, values in scores.items():
        _, low, high = interval(*stratified(pooled, [list(values.T)]))
        # an end is known to about 0.02 of the length by either; of 20 such samples: to 0.034 (4,000 of theirs)
        np.testing.assert_allclose((low, high), theirs[name].ravel(), atol=0.08 * (high - low))
    pairs = {"pair": (first, second)}
    _, better = library.get_interval_estimates(pairs, metrics.probability_of_improvement, **options | {"reps": 1000})
    _, low, high = interval(*stratified(mean_improvement, [list(first.T), list(second.T)]))
    # theirs draws each group's runs by themselves, ours those of the same seeds: alike for unrelated groups,
    # and not quite for those that happen to be correlated; of 8 such pairs: to 0.11 of the length (2,000 of theirs)
    np.testing.assert_allclose((low, high), better["pair"].ravel(), atol=0.15 * (high - low))


def test_resampled_improvement_is_that_of_the_resampled_runs() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.integers(5, size=(2, 7)).astype(float)
    draws = resampled(7, 50, 2)
    np.testing.assert_allclose(
        resampled_improvement(first, second, 2, 50), improvement(first[draws], second[draws]), atol=1e-12
    )
