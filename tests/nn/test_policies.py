"""Distributions over actions against SciPy, and the policies that give them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from numpy.typing import NDArray
from scipy.special import log_softmax
from scipy.stats import chisquare, entropy, gumbel_r, kstest, norm, truncnorm, uniform

from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.nn.distributions import ClippedGaussian, Softmax, SquashedGaussian, TruncatedGaussian
from greedyac.nn.policies import MAX_LOG_STD, GaussianPolicy, SoftmaxPolicy, make_policy

Floats = NDArray[np.float64]
PROPERTY = settings(deadline=None, derandomize=True, max_examples=60)
SAMPLES, BATCH, DIMS, COUNT = 6, 4, 2, 3
RNG = np.random.default_rng(0)
LOW, HIGH = np.array([-2.0, -1.0], np.float32), np.array([2.0, 3.0], np.float32)
MEAN = RNG.uniform(LOW, HIGH, (BATCH, DIMS)).astype(np.float32)
LOG_STD = RNG.uniform(-4, 3, (BATCH, DIMS)).astype(np.float32)
GAUSSIAN = ClippedGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD), jnp.asarray(LOW), jnp.asarray(HIGH))
LOGITS = RNG.normal(0, 2, (BATCH, COUNT)).astype(np.float32)
OBSERVATION = Box((-1.0,) * 3, (1.0,) * 3)
OTHER = np.random.default_rng(1)
NOISE = OTHER.normal(size=(SAMPLES, BATCH, DIMS)).astype(np.float32)
UNIFORM = OTHER.uniform(0.01, 0.99, (SAMPLES, BATCH, DIMS)).astype(np.float32)
ACTIONS = OTHER.uniform(LOW, HIGH, (SAMPLES, BATCH, DIMS)).astype(np.float32)
GUMBELS = OTHER.gumbel(size=(SAMPLES, BATCH, COUNT)).astype(np.float32)
VALUES = OTHER.normal(size=(BATCH, COUNT)).astype(np.float32)
FEW = OTHER.normal(0, 3, (50, 3)).astype(np.float32)


def test_gaussian_log_likelihood_is_that_of_scipy_summed_over_dimensions() -> None:
    actions = RNG.uniform(LOW, HIGH, (SAMPLES, BATCH, DIMS)).astype(np.float32)
    expected = norm.logpdf(actions.astype(float), MEAN, np.exp(LOG_STD.astype(float))).sum(-1)
    ours = GAUSSIAN.log_prob(jnp.asarray(actions))
    assert ours.shape == (SAMPLES, BATCH)
    np.testing.assert_allclose(ours, expected, rtol=1e-4)
    np.testing.assert_allclose(GAUSSIAN.log_prob(jnp.asarray(actions[1])), expected[1], rtol=1e-4)


@pytest.mark.parametrize("log_std", [-MAX_LOG_STD, MAX_LOG_STD])
def test_gaussian_log_likelihood_is_finite_and_right_at_the_extreme_deviations(log_std: float) -> None:
    policy = GAUSSIAN._replace(log_std=jnp.full((BATCH, DIMS), log_std))
    expected = norm.logpdf(HIGH.astype(float), MEAN.astype(float), math.exp(log_std)).sum(-1)
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(HIGH)), expected, rtol=1e-4)


def test_gaussian_entropy_is_that_of_scipy_summed_over_dimensions() -> None:
    expected = norm.entropy(MEAN, np.exp(LOG_STD.astype(float))).sum(-1)
    np.testing.assert_allclose(GAUSSIAN.entropy(), expected, rtol=1e-5)


def test_gaussian_samples_are_mean_plus_deviation_times_noise_clipped_to_the_range() -> None:
    noise = RNG.normal(size=(SAMPLES, BATCH, DIMS)).astype(np.float32)
    expected = np.clip(MEAN + np.exp(LOG_STD.astype(float)) * noise, LOW, HIGH)
    ours = np.asarray(GAUSSIAN.sample(jnp.asarray(noise)))
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    assert ((ours >= LOW) & (ours <= HIGH)).all()
    assert {*np.unique(LOW), *np.unique(HIGH)} <= {*ours.ravel()}  # every bound was met
    assert ((ours > LOW) & (ours < HIGH)).any()


def test_gaussian_mode_is_the_mean() -> None:
    np.testing.assert_array_equal(GAUSSIAN.mode(), MEAN)


def test_gaussian_draw_is_the_sample_and_its_log_likelihood_at_the_clipped_action() -> None:
    action, log_prob = GAUSSIAN.sample_and_log_prob(jnp.asarray(NOISE))
    np.testing.assert_array_equal(action, GAUSSIAN.sample(jnp.asarray(NOISE)))
    unclipped = MEAN + np.exp(LOG_STD.astype(float)) * NOISE
    expected = norm.logpdf(unclipped.clip(LOW, HIGH), MEAN, np.exp(LOG_STD.astype(float))).sum(-1)
    np.testing.assert_allclose(log_prob, expected, rtol=0, atol=2e-5)  # largest error 6.1e-6
    assert (unclipped < LOW).any()
    assert (unclipped > HIGH).any()


def test_a_gaussian_draw_moves_with_the_parameters_within_the_range_and_not_beyond_it() -> None:
    mean, log_std, noise = (
        np.array(part, np.float32) for part in ([0.5, 1.5, -1.5], [-1.0, 0.5, 0.5], [1.3, 2.0, -1.7])
    )
    z = np.array([1.3, (2 - 1.5) / math.exp(0.5), (-2 + 1.5) / math.exp(0.5)])  # of the action: within, above, below
    within = np.array([1, 0, 0])
    inverse = np.exp(-log_std.astype(float))
    of_action, of_log_prob = gradients(ClippedGaussian, mean, log_std, -2.0, 2.0, noise)
    np.testing.assert_allclose(of_action[0], within, rtol=0)
    np.testing.assert_allclose(of_action[1], within * 1.3 / inverse, rtol=1e-6)
    np.testing.assert_allclose(of_log_prob[0], (1 - within) * z * inverse, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(of_log_prob[1], (1 - within) * z**2 - 1, rtol=1e-6)


def gradients(family: Any, mean: Any, log_std: Any, low: float, high: float, noise: Any) -> Any:
    """Of drawn actions and of their log-likelihoods, each with respect to mean and log deviation: `[2, 2, cases]`."""

    def drawn(parameters: tuple[Array, Array], which: int) -> Array:
        distribution = family(*(column(parameter) for parameter in parameters), jnp.array([low]), jnp.array([high]))
        return distribution.sample_and_log_prob(column(noise))[which].sum()

    parameters = (jnp.asarray(mean), jnp.asarray(log_std))
    return np.asarray([jax.grad(drawn)(parameters, which) for which in (0, 1)])


def column(values: Any) -> Array:
    """Cases of one dimension: `[cases, 1]`."""
    return jnp.asarray(values)[..., None]


def within(error: Any, scale: Any, most: float) -> None:
    """Errors of either sign, in units of `scale`."""
    assert np.max(np.abs(error) / scale) <= most


RANGES = [(-2.0, 2.0), (-0.3, 0.7), (1.0, 9.0)]
MARGIN = 1e-6  # the published code's, inside the logarithm


def squashed_slope(unsquashed: Floats, low: float, high: float) -> Floats:
    """Of the action, (high − low) / 2 · sech², in a form that neither overflows nor cancels."""
    decay = np.exp(-2 * np.abs(unsquashed))
    return (high - low) / 2 * 4 * decay / (1 + decay) ** 2


def squashed_by_hand(mean: Any, log_std: Any, low: float, high: float, noise: Any) -> tuple[Floats, Floats, Floats]:
    """In float64, by the change of variables: actions, log-likelihoods and what `gradients` gives."""
    deviation = np.exp(log_std) * noise
    unsquashed = mean + deviation
    tanh, slope = np.tanh(unsquashed), squashed_slope(unsquashed, low, high)
    action = low + (high - low) * (1 + tanh) / 2
    log_prob = norm.logpdf(unsquashed, mean, np.exp(log_std)) - np.log(slope + MARGIN)
    pull = 2 * tanh * slope / (slope + MARGIN)  # −∂ log(slope + margin) / ∂unsquashed
    return action, log_prob, np.array([[slope, slope * deviation], [pull, pull * deviation - 1]])


def squashing_cases() -> tuple[Floats, Floats, Floats]:
    """Means, log deviations and noises, as far as tanh saturates."""
    grids = np.meshgrid(np.linspace(-4, 4, 17), np.linspace(-5, 1.5, 14), np.linspace(-3, 3, 13), indexing="ij")
    mean, log_std, noise = (grid.ravel().astype(np.float32).astype(float) for grid in grids)
    return mean, log_std, noise


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_squashed_draws_and_their_gradients_in_double_precision_are_the_closed_forms(low: float, high: float) -> None:
    mean, log_std, noise = squashing_cases()
    with jax.enable_x64(True):
        squashed = SquashedGaussian(column(mean), column(log_std), jnp.array([low]), jnp.array([high]))
        action, log_prob = squashed.sample_and_log_prob(column(noise))
        slopes = gradients(SquashedGaussian, mean, log_std, low, high, noise)
    assert action.dtype == np.float64
    by_hand = squashed_by_hand(mean, log_std, low, high, noise)
    np.testing.assert_allclose(action[:, 0], by_hand[0], rtol=0, atol=1e-14)  # largest error 3.6e-15
    np.testing.assert_allclose(log_prob, by_hand[1], rtol=0, atol=1e-8)  # 3.6e-9, where tanh saturates
    np.testing.assert_allclose(slopes, by_hand[2], rtol=0, atol=2e-7)  # 7.0e-8, likewise


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_squashed_draws_in_single_precision_are_right_up_to_the_rounding_of_tanh(low: float, high: float) -> None:
    mean, log_std, noise = squashing_cases()
    squashed = SquashedGaussian(
        column(mean.astype(np.float32)), column(log_std.astype(np.float32)), jnp.array([low]), jnp.array([high])
    )
    action, log_prob = squashed.sample_and_log_prob(column(noise.astype(np.float32)))
    by_hand = squashed_by_hand(mean, log_std, low, high, noise)
    np.testing.assert_allclose(action[:, 0], by_hand[0], rtol=0, atol=3e-7 * (high - low))  # largest error 1.5e-7
    slope = squashed_slope(mean + np.exp(log_std) * noise, low, high)
    rounding = (high - low) * 2.0**-24 / (slope + MARGIN)  # what an ulp of tanh near one does to the logarithm
    within(np.asarray(log_prob) - by_hand[1], 1e-6 + rounding, 8)  # largest 5.0


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_squashed_density_between_two_actions_is_the_probability_of_the_noise_between(low: float, high: float) -> None:
    mean, std = (grid.ravel().astype(np.float32) for grid in np.meshgrid([-1.0, 0.0, 0.4, 1.5], [0.05, 0.3, 1.0]))
    squashed = SquashedGaussian(column(mean), column(np.log(std)), jnp.array([low]), jnp.array([high]))
    edges = np.linspace(-4.5, 4.5, 2001)[:, None].repeat(len(mean), 1)
    middles = (edges[1:] + edges[:-1]) / 2
    actions = low + (high - low) * (1 + np.tanh(mean + std * edges)) / 2
    density = np.exp(np.asarray(squashed.sample_and_log_prob(column(middles.astype(np.float32)))[1], float))
    missing = np.diff(norm.cdf(edges), axis=0) * MARGIN / (squashed_slope(mean + std * middles, low, high) + MARGIN)
    between = np.cumsum(density * np.diff(actions, axis=0) + missing, 0)  # the midpoint rule, and what the margin takes
    np.testing.assert_allclose(between, norm.cdf(edges[1:]) - norm.cdf(-4.5), rtol=0, atol=5e-6)  # largest 2.1e-6
    within(between[-1] - 1, 1, 1e-5)  # 6.8e-6 lies beyond ±4.5
    within(missing.sum(0), 1, 1e-4)  # largest 7.5e-5


def test_squashed_samples_are_the_draws_actions_and_log_likelihoods_are_summed_over_dimensions() -> None:
    squashed = SquashedGaussian(*(jnp.asarray(part) for part in (MEAN, LOG_STD / 3, LOW, HIGH)))
    action, log_prob = squashed.sample_and_log_prob(jnp.asarray(NOISE))
    np.testing.assert_array_equal(squashed.sample(jnp.asarray(NOISE)), action)
    assert action.shape == NOISE.shape
    assert log_prob.shape == (SAMPLES, BATCH)
    each = [
        SquashedGaussian(*(part[..., dim : dim + 1] for part in squashed)).sample_and_log_prob(
            jnp.asarray(NOISE[..., dim : dim + 1])
        )
        for dim in range(DIMS)
    ]
    np.testing.assert_array_equal(action, np.concatenate([one for one, _ in each], -1))
    np.testing.assert_allclose(log_prob, sum(np.asarray(one) for _, one in each), rtol=0, atol=1e-6)


def test_squashed_mode_is_the_squashed_mean() -> None:
    squashed = SquashedGaussian(*(jnp.asarray(part) for part in (MEAN, LOG_STD, LOW, HIGH)))
    expected = [0, 1] + 2 * np.tanh(MEAN.astype(float))
    np.testing.assert_allclose(squashed.mode(), expected, rtol=0, atol=3e-7)  # largest error 1.4e-7


EXTREME = np.array([0.0, 1e-30, 1.0, 5.0, 8.0, 8.5, 9.0, 9.5, 10.0, 20.0, 100.0, 1e4, 1e30])


@pytest.mark.parametrize(("low", "high"), [*RANGES, (-1.9, 0.5), (-0.2, 0.1), (-1e-3, 1e3), (-1e3, 1e3)])
def test_squashed_draws_lie_within_the_range_and_are_finite_with_their_gradients(low: float, high: float) -> None:
    grids = np.meshgrid([*EXTREME, *-EXTREME], [-MAX_LOG_STD, 0, MAX_LOG_STD], [-6, -1, 0, 1, 6], indexing="ij")
    mean, log_std, noise = (grid.ravel().astype(np.float32) for grid in grids)
    squashed = SquashedGaussian(column(mean), column(log_std), jnp.array([low]), jnp.array([high]))
    action, log_prob = map(np.asarray, squashed.sample_and_log_prob(column(noise)))
    for actions in (action, np.asarray(squashed.mode())):
        assert ((actions >= np.float32(low)) & (actions <= np.float32(high))).all()
        within([actions.min() - low, actions.max() - high], high - low, 2.0**-23)  # both bounds were met
    assert np.isfinite(log_prob).all()
    most = MAX_LOG_STD - math.log(MARGIN * math.sqrt(2 * math.pi))  # the margin bounds it; largest is this, to 1e-7
    assert log_prob.max() <= most + 1e-5
    assert np.isfinite(gradients(SquashedGaussian, mean, log_std, low, high, noise)).all()


DEVIATIONS = np.logspace(-3, 3, 25).astype(np.float32)


def truncated_cases(low: float, high: float) -> TruncatedGaussian:
    """Every deviation with means across the range, both bounds among them: `[cases, 1]`."""
    bounds = np.array([low, high], np.float32)
    inside = bounds[0] + np.diff(bounds) * np.array(
        [0.001, 0.03, 0.125, 0.25, 0.5, 0.6, 0.875, 0.97, 0.999], np.float32
    )
    mean, std = (grid.ravel() for grid in np.meshgrid([*bounds, *inside], DEVIATIONS))
    return TruncatedGaussian(column(mean), column(np.log(std)), jnp.asarray(bounds[:1]), jnp.asarray(bounds[1:]))


def by_scipy(policy: TruncatedGaussian, shift: float = 0.0, widen: float = 0.0) -> Any:
    """SciPy's in float64, with the mean moved by a share of the deviation, and the log deviation moved.

    SciPy's entropies agree with 200-point quadrature to 2e-13 on these ranges, deviations and means.
    """
    mean, log_std, low, high = (np.asarray(part, float) for part in policy)
    mean, std = mean + shift * np.exp(log_std), np.exp(log_std + widen)
    return truncnorm((low - mean) / std, (high - mean) / std, mean, std)


def spread(policy: TruncatedGaussian) -> Floats:
    """The scale of the samples: the deviation or the range, whichever is less. `[cases, 1]`."""
    return np.minimum(np.exp(np.asarray(policy.log_std, float)), np.asarray(policy.high - policy.low, float))


def actions_across(low: float, high: float) -> Array:
    """Both bounds and between: `[actions, 1, 1]`."""
    bounds = np.array([low, high], np.float32)
    inside = bounds[0] + np.diff(bounds) * np.array([0.01, 0.3, 0.5, 0.7, 0.99], np.float32)
    return jnp.asarray([*bounds, *inside])[:, None, None]


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_truncated_samples_are_scipys_inverse_distribution_function(low: float, high: float) -> None:
    policy = truncated_cases(low, high)
    u = np.array([0.001, 0.01, *np.linspace(0.05, 0.95, 19), 0.99, 0.999], np.float32)[:, None, None]
    ours = np.asarray(policy.sample(jnp.asarray(u)))
    assert ours.shape == (len(u), *policy.mean.shape)
    expected = by_scipy(policy).ppf(u.astype(float))
    steepness = 1 / by_scipy(policy).pdf(expected)  # an ulp of the probability moves the sample by so many
    ulp = 2.0**-23 * max(abs(low), abs(high))
    within(ours - expected, 2.0**-23 * steepness + ulp, 3)  # largest 1.9


LAST_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_truncated_samples_lie_within_the_range_and_rise_with_the_noise(low: float, high: float) -> None:
    policy = truncated_cases(low, high)
    u = np.array([0, 2**-24, 2**-23, 2**-22, 1e-3, 0.5, 0.999, 1 - 2**-22, 1 - 2**-23, LAST_BELOW_ONE], np.float32)
    ours = np.asarray(policy.sample(jnp.asarray(u)[:, None, None]))
    assert ((ours >= np.float32(low)) & (ours <= np.float32(high))).all()
    assert (np.diff(ours, axis=0) >= 0).all()
    reached = by_scipy(policy).cdf(ours.astype(float))
    density = by_scipy(policy).pdf(ours.astype(float))
    ulp = 2.0**-23 * max(abs(low), abs(high))  # of the action
    within(reached - u[:, None, None], 2.0**-23 + density * ulp, 3)  # largest 1.9
    wide = np.asarray(policy.log_std)[:, 0] > math.log(high - low)  # largest errors 4.3e-7 of the range
    np.testing.assert_allclose(ours[0, wide], low, rtol=0, atol=1e-6 * (high - low))
    np.testing.assert_allclose(ours[-1, wide], high, rtol=0, atol=1e-6 * (high - low))


@pytest.mark.parametrize("std", [1e-3, 0.1, 1.0, 1e3])
@pytest.mark.parametrize("mean", [-0.3, -0.25, 0.4, 0.7])
def test_truncated_samples_of_its_noise_have_scipys_distribution(mean: float, std: float) -> None:
    policy = TruncatedGaussian(*(jnp.asarray([part], jnp.float32) for part in (mean, math.log(std), -0.3, 0.7)))
    samples = np.asarray(policy.sample(TruncatedGaussian.noise(jax.random.key(0), (5000, 1))), float)
    assert kstest(samples.ravel(), by_scipy(policy).cdf).pvalue > 1e-3  # of ten keys 0 … 9: lowest 0.066


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_truncated_log_likelihood_is_that_of_scipy(low: float, high: float) -> None:
    policy, actions = truncated_cases(low, high), actions_across(low, high)
    expected = by_scipy(policy).logpdf(np.asarray(actions, float))[..., 0]
    np.testing.assert_allclose(policy.log_prob(actions), expected, rtol=5e-7, atol=1.5e-6)  # half is used


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_truncated_entropy_is_that_of_scipy_and_at_most_that_of_the_uniform(low: float, high: float) -> None:
    policy = truncated_cases(low, high)
    ours, most = np.asarray(policy.entropy()), uniform(low, high - low).entropy()
    np.testing.assert_allclose(ours, by_scipy(policy).entropy()[:, 0], rtol=0, atol=1.5e-6)  # largest error 7.1e-7
    assert ours.max() <= most + 1e-6  # largest excess 4.8e-7
    widest = np.asarray(policy.log_std)[:, 0] > math.log(100 * (high - low))
    np.testing.assert_allclose(ours[widest], most, rtol=0, atol=1.5e-6)  # exact: 5e-11 below; ours: within 7.1e-7


def test_truncated_log_likelihood_and_entropy_are_summed_over_dimensions() -> None:
    policy = TruncatedGaussian(*(jnp.asarray(part) for part in (MEAN, LOG_STD, LOW, HIGH)))
    ours = policy.log_prob(jnp.asarray(ACTIONS))
    assert ours.shape == (SAMPLES, BATCH)
    np.testing.assert_allclose(ours, by_scipy(policy).logpdf(ACTIONS.astype(float)).sum(-1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(policy.entropy(), by_scipy(policy).entropy().sum(-1), rtol=0, atol=1e-6)
    expected = by_scipy(policy).ppf(UNIFORM.astype(float))
    np.testing.assert_allclose(policy.sample(jnp.asarray(UNIFORM)), expected, rtol=0, atol=1.5e-6)


def slopes_of(value: Any, policy: TruncatedGaussian) -> tuple[Floats, Floats]:
    """The gradient of a sum of values with respect to mean and log deviation: `[cases, 1]` each."""
    of_mean, of_log_std = jax.grad(
        lambda mean, log_std: value(policy._replace(mean=mean, log_std=log_std)).sum(), (0, 1)
    )(policy.mean, policy.log_std)
    return np.asarray(of_mean, float), np.asarray(of_log_std, float)


def central(value: Any, policy: TruncatedGaussian, step: float = 1e-5) -> tuple[Floats, Floats]:
    """The same by central differences of SciPy's values; the step of the mean is that share of a deviation."""
    of_mean = value(by_scipy(policy, shift=step)) - value(by_scipy(policy, shift=-step))
    of_log_std = value(by_scipy(policy, widen=step)) - value(by_scipy(policy, widen=-step))
    return of_mean / (2 * step) / np.exp(np.asarray(policy.log_std, float)), of_log_std / (2 * step)


def assert_slopes(ours: tuple[Floats, Floats], expected: tuple[Floats, Floats], policy: TruncatedGaussian) -> None:
    within(ours[0] - expected[0], np.abs(expected[0]) + 1 / spread(policy), 6e-7)  # largest 2.5e-7
    within(ours[1] - expected[1], np.abs(expected[1]) + 1, 1e-6)  # largest 5.0e-7


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_truncated_entropy_gradients_are_differences_of_scipys(low: float, high: float) -> None:
    policy = truncated_cases(low, high)
    ours = slopes_of(lambda policy: policy.entropy(), policy)
    assert_slopes(ours, central(lambda scipy: scipy.entropy(), policy), policy)


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_truncated_log_likelihood_gradients_are_differences_of_scipys(low: float, high: float) -> None:
    policy = truncated_cases(low, high)
    for action in actions_across(low, high):
        ours = slopes_of(lambda policy, at=action: policy.log_prob(at), policy)
        expected = central(lambda scipy, at=action: scipy.logpdf(np.asarray(at, float)), policy)
        assert_slopes(ours, expected, policy)


def test_truncated_mode_is_the_mean_within_the_range() -> None:
    policy = TruncatedGaussian(*(jnp.asarray(part) for part in (MEAN, LOG_STD, LOW, HIGH)))
    np.testing.assert_array_equal(policy.mode(), MEAN)
    beyond = policy._replace(mean=jnp.nextafter(policy.high, jnp.inf))
    np.testing.assert_array_equal(beyond.mode(), HIGH)


@jax.jit
def call(policy: Any, observation: Array) -> Any:
    return policy(observation)


def gaussian_policy(box: Box, seed: int = 0, family: str = "gaussian") -> GaussianPolicy:
    """A policy with random weights and biases."""
    rng = np.random.default_rng(seed)
    zero = GaussianPolicy(OBSERVATION, box, (8, 5), family)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape).astype(np.float32)), zero)


def features(policy: Any, observation: Floats) -> Floats:
    for layer in policy.mlp.layers:
        observation = np.maximum(observation @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float), 0)
    return observation


def head(layer: Any, x: Floats) -> Floats:
    return x @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)


FAMILIES = {"gaussian": ClippedGaussian, "squashed": SquashedGaussian, "truncated-gaussian": TruncatedGaussian}


@pytest.mark.parametrize("family", ["gaussian", "truncated-gaussian"])
def test_gaussian_policy_scales_tanh_to_the_range_and_clips_the_log_deviation(family: str) -> None:
    policy = gaussian_policy(Box((-2.0, -1.0), (2.0, 3.0)), family=family)
    observation = RNG.normal(0, 3, (50, 3))
    given_by = call(policy, jnp.asarray(observation, jnp.float32))
    x = features(policy, observation)
    np.testing.assert_allclose(given_by.mean, [0, 1] + 2 * np.tanh(head(policy.mean, x)), rtol=1e-3, atol=1e-4)
    raw = head(policy.log_std, x)
    np.testing.assert_allclose(given_by.log_std, raw.clip(-math.log(1000), math.log(1000)), rtol=1e-3, atol=1e-4)
    assert (raw > math.log(1000)).any()  # both clips were met
    assert (raw < -math.log(1000)).any()
    np.testing.assert_array_equal(given_by.low, LOW)
    np.testing.assert_array_equal(given_by.high, HIGH)
    assert type(given_by) is FAMILIES[family]


def test_a_squashed_policy_leaves_its_mean_as_the_network_gives_it() -> None:
    box = Box((-2.0, -1.0), (2.0, 3.0))
    policy = gaussian_policy(box, family="squashed")
    given_by, expected = call(policy, jnp.asarray(FEW)), head(policy.mean, features(policy, FEW.astype(float)))
    assert type(given_by) is SquashedGaussian
    np.testing.assert_allclose(given_by.mean, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected).max() > 10  # far beyond what tanh gives
    np.testing.assert_array_equal(given_by.log_std, call(gaussian_policy(box), jnp.asarray(FEW)).log_std)
    np.testing.assert_array_equal(given_by.low, LOW)
    np.testing.assert_array_equal(given_by.high, HIGH)


@pytest.mark.parametrize("bound", [1.0, 2.0, 0.4])
def test_means_of_a_symmetric_range_lie_within_it(bound: float) -> None:
    policy = gaussian_policy(Box((-bound,), (bound,)))
    observation = RNG.normal(0, 100, (200, 3)).astype(np.float32)
    mean = np.asarray(call(policy, jnp.asarray(observation)).mean)
    assert np.abs(mean).max() == np.float32(bound)  # tanh saturates at ±1


@pytest.mark.parametrize(
    ("family", "cdf"), [("gaussian", norm.cdf), ("squashed", norm.cdf), ("truncated-gaussian", uniform.cdf)]
)
def test_noise_is_normal_or_for_a_truncated_gaussian_uniform_and_independent_of_the_weights(
    family: str, cdf: Any
) -> None:
    box = Box((-1.0, -1.0), (1.0, 1.0))
    noise = np.asarray(gaussian_policy(box, family=family).noise(jax.random.key(0), (1000, 5)))
    assert noise.shape == (1000, 5, 2)
    assert kstest(noise.ravel(), cdf).pvalue > 1e-3  # of ten keys 0 … 9: lowest 0.10
    assert family != "truncated-gaussian" or (noise.min() >= 0 and noise.max() < 1)
    same = gaussian_policy(box, seed=1, family=family).noise(jax.random.key(0), (1000, 5))
    np.testing.assert_array_equal(noise, same)


def test_softmax_log_likelihoods_and_entropy_are_those_of_scipy() -> None:
    policy, expected = Softmax(jnp.asarray(LOGITS)), log_softmax(LOGITS.astype(float), -1)
    actions = RNG.integers(0, COUNT, (SAMPLES, BATCH))
    np.testing.assert_allclose(policy.log_probs(), expected, rtol=1e-5)
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(actions)), expected[np.arange(BATCH), actions], rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(), entropy(np.exp(expected), axis=-1), rtol=1e-5)


@PROPERTY
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=COUNT, max_size=COUNT))
def test_softmax_is_safe_for_huge_logits(logits: list[float]) -> None:
    policy = Softmax(jnp.asarray(logits, jnp.float32))
    expected = log_softmax(np.array(logits, np.float32).astype(float))
    np.testing.assert_allclose(policy.log_probs(), expected, rtol=1e-5, atol=1e-5)
    assert -1e-6 <= float(policy.entropy()) <= math.log(COUNT) + 1e-6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_softmax_sample_frequencies_are_its_probabilities(seed: int) -> None:
    logits = np.array([[1.0, 0.0, -1.0], [-3.0, 2.0, 2.0]], np.float32)
    noise = SoftmaxPolicy(OBSERVATION, COUNT, (4,)).noise(jax.random.key(seed), (10_000, 2))
    actions = np.asarray(Softmax(jnp.asarray(logits)).sample(noise))
    assert actions.shape == (10_000, 2)
    expected = np.exp(log_softmax(logits.astype(float), -1)) * len(actions)
    for state in range(2):
        counts = np.bincount(actions[:, state], minlength=COUNT)
        assert chisquare(counts, expected[state]).pvalue > 1e-3  # ten seeds × two states: lowest 0.15


def test_softmax_noise_is_standard_gumbel() -> None:
    noise = np.asarray(SoftmaxPolicy(OBSERVATION, COUNT, (4,)).noise(jax.random.key(0), (1000, 5)))
    assert noise.shape == (1000, 5, COUNT)
    assert kstest(noise.ravel(), gumbel_r.cdf).pvalue > 1e-3  # of ten keys 0 … 9: lowest 0.014


def test_softmax_draw_is_the_sample_and_its_log_likelihood() -> None:
    policy, noise = Softmax(jnp.asarray(LOGITS)), jnp.asarray(GUMBELS)
    action, log_prob = policy.sample_and_log_prob(noise)
    expected = (LOGITS.astype(float) + GUMBELS).argmax(-1)
    np.testing.assert_array_equal(action, expected)
    np.testing.assert_array_equal(policy.sample(noise), expected)
    np.testing.assert_allclose(
        log_prob, log_softmax(LOGITS.astype(float), -1)[np.arange(BATCH), expected], rtol=0, atol=5e-7
    )
    assert {*expected.ravel()} == {*range(COUNT)}


def test_softmax_expectation_weights_values_by_probabilities() -> None:
    ours = Softmax(jnp.asarray(LOGITS)).expectation(jnp.asarray(VALUES))
    probabilities = np.exp(log_softmax(LOGITS.astype(float), -1))
    np.testing.assert_allclose(ours, (probabilities * VALUES).sum(-1), rtol=0, atol=5e-7)


def test_softmax_mode_is_the_first_of_the_most_likely() -> None:
    logits = jnp.array([[0.0, 2.0, 1.0], [3.0, 3.0, 1.0], [1.0, 4.0, 4.0]])
    np.testing.assert_array_equal(Softmax(logits).mode(), [1, 0, 1])


def test_softmax_policy_is_a_network_with_one_logit_per_action() -> None:
    rng = np.random.default_rng(1)
    zero = SoftmaxPolicy(OBSERVATION, COUNT, (8, 5))
    policy = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape).astype(np.float32)), zero)
    observation = RNG.normal(size=(BATCH, 3))
    expected = head(policy.logits, features(policy, observation))
    np.testing.assert_allclose(
        call(policy, jnp.asarray(observation, jnp.float32)).logits, expected, rtol=1e-4, atol=1e-4
    )


def test_make_policy_fits_the_spaces() -> None:
    box, few = Spaces(OBSERVATION, Box((-1.0, 0.0), (1.0, 5.0))), Spaces(OBSERVATION, Discrete(COUNT))
    gaussian = jax.eval_shape(lambda: make_policy(jax.random.key(0), box, (8, 5)))
    softmax = jax.eval_shape(lambda: make_policy(jax.random.key(0), few, (8, 5)))
    assert isinstance(gaussian, GaussianPolicy)
    assert isinstance(softmax, SoftmaxPolicy)
    assert (gaussian.low, gaussian.high) == ((-1.0, 0.0), (1.0, 5.0))
    hidden = [(3, 8), (8,), (8, 5), (5,)]
    assert [leaf.shape for leaf in jax.tree.leaves(gaussian)] == [*hidden, (5, 2), (2,), (5, 2), (2,)]
    assert [leaf.shape for leaf in jax.tree.leaves(softmax)] == [*hidden, (5, COUNT), (COUNT,)]


def test_every_family_of_policy_starts_from_the_same_weights() -> None:
    spaces = Spaces(OBSERVATION, Box((-1.0, 0.0), (1.0, 5.0)))
    policies = {family: make_policy(jax.random.key(3), spaces, (8, 5), family) for family in FAMILIES}
    assert [getattr(policy, "family", None) for policy in policies.values()] == [*FAMILIES]
    leaves = [
        jax.tree.leaves(policy) for policy in (make_policy(jax.random.key(3), spaces, (8, 5)), *policies.values())
    ]
    for other in leaves[1:]:
        for one, two in zip(leaves[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    observation = jnp.zeros((BATCH, OBSERVATION.size))
    for family, policy in policies.items():
        assert type(policy(observation)) is FAMILIES[family]
    assert type(make_policy(jax.random.key(3), spaces, (8, 5))(observation)) is ClippedGaussian
    few = Spaces(OBSERVATION, Discrete(COUNT))
    assert isinstance(make_policy(jax.random.key(3), few, (8, 5), "squashed"), SoftmaxPolicy)


@pytest.mark.parametrize("deviation", [1e-3, 0.1])
def test_the_smallest_and_largest_noise_stay_near_the_mean_of_a_narrow_truncated_gaussian(deviation: float) -> None:
    policy = TruncatedGaussian(*(jnp.array([[x]], jnp.float32) for x in (0.0, math.log(deviation), -2.0, 2.0)))
    ends = policy.sample(jnp.array([0.0, np.nextafter(np.float32(1), np.float32(0))])[:, None, None])
    assert (np.abs(ends) < 5.5 * deviation).all()  # 5.42 at both ends
