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
from scipy.stats import chisquare, entropy, gumbel_r, kstest, norm

from greedyac.policies import MAX_LOG_STD, ClippedGaussian, GaussianPolicy, Softmax, SoftmaxPolicy, make_policy
from greedyac.spaces import Box, Discrete, Spaces

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


def test_gaussian_log_likelihood_is_that_of_scipy_summed_over_dimensions() -> None:
    actions = RNG.uniform(LOW, HIGH, (SAMPLES, BATCH, DIMS)).astype(np.float32)
    expected = norm.logpdf(actions.astype(float), MEAN, np.exp(LOG_STD.astype(float))).sum(-1)
    ours = GAUSSIAN.log_likelihood(jnp.asarray(actions))
    assert ours.shape == (SAMPLES, BATCH)
    np.testing.assert_allclose(ours, expected, rtol=1e-4)
    np.testing.assert_allclose(GAUSSIAN.log_likelihood(jnp.asarray(actions[1])), expected[1], rtol=1e-4)


@pytest.mark.parametrize("log_std", [-MAX_LOG_STD, MAX_LOG_STD])
def test_gaussian_log_likelihood_is_finite_and_right_at_the_extreme_deviations(log_std: float) -> None:
    policy = GAUSSIAN._replace(log_std=jnp.full((BATCH, DIMS), log_std))
    expected = norm.logpdf(HIGH.astype(float), MEAN.astype(float), math.exp(log_std)).sum(-1)
    np.testing.assert_allclose(policy.log_likelihood(jnp.asarray(HIGH)), expected, rtol=1e-4)


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


@jax.jit
def call(policy: Any, observation: Array) -> Any:
    return policy(observation)


def gaussian_policy(box: Box, hidden: tuple[int, ...] = (8, 5), seed: int = 0) -> GaussianPolicy:
    """A policy with random weights and biases."""
    rng = np.random.default_rng(seed)
    zero = GaussianPolicy(OBSERVATION.size, box, hidden)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape).astype(np.float32)), zero)


def features(policy: Any, observation: Floats) -> Floats:
    for layer in policy.trunk.layers:
        observation = np.maximum(observation @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float), 0)
    return observation


def head(layer: Any, x: Floats) -> Floats:
    return x @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)


def test_gaussian_policy_scales_tanh_to_the_range_and_clips_the_log_deviation() -> None:
    policy = gaussian_policy(Box((-2.0, -1.0), (2.0, 3.0)))
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


@pytest.mark.parametrize("bound", [1.0, 2.0, 0.4])
def test_means_of_a_symmetric_range_lie_within_it(bound: float) -> None:
    policy = gaussian_policy(Box((-bound,), (bound,)))
    observation = RNG.normal(0, 100, (200, 3)).astype(np.float32)
    mean = np.asarray(call(policy, jnp.asarray(observation)).mean)
    assert np.abs(mean).max() == np.float32(bound)  # tanh saturates at ±1


def test_gaussian_noise_is_standard_normal_and_independent_of_the_weights() -> None:
    noise = np.asarray(gaussian_policy(Box((-1.0, -1.0), (1.0, 1.0))).noise(jax.random.key(0), (1000, 5)))
    assert noise.shape == (1000, 5, 2)
    assert kstest(noise.ravel(), norm.cdf).pvalue > 1e-3  # of ten keys 0 … 9: lowest 0.10
    same = gaussian_policy(Box((-1.0, -1.0), (1.0, 1.0)), seed=1).noise(jax.random.key(0), (1000, 5))
    np.testing.assert_array_equal(noise, same)


def test_softmax_log_likelihoods_and_entropy_are_those_of_scipy() -> None:
    policy, expected = Softmax(jnp.asarray(LOGITS)), log_softmax(LOGITS.astype(float), -1)
    actions = RNG.integers(0, COUNT, (SAMPLES, BATCH))
    np.testing.assert_allclose(policy.log_likelihoods(), expected, rtol=1e-5)
    np.testing.assert_allclose(
        policy.log_likelihood(jnp.asarray(actions)), expected[np.arange(BATCH), actions], rtol=1e-5
    )
    np.testing.assert_allclose(policy.entropy(), entropy(np.exp(expected), axis=-1), rtol=1e-5)


@PROPERTY
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=COUNT, max_size=COUNT))
def test_softmax_is_safe_for_huge_logits(logits: list[float]) -> None:
    policy = Softmax(jnp.asarray(logits, jnp.float32))
    expected = log_softmax(np.array(logits, np.float32).astype(float))
    np.testing.assert_allclose(policy.log_likelihoods(), expected, rtol=1e-5, atol=1e-5)
    assert -1e-6 <= float(policy.entropy()) <= math.log(COUNT) + 1e-6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_softmax_sample_frequencies_are_its_probabilities(seed: int) -> None:
    logits = np.array([[1.0, 0.0, -1.0], [-3.0, 2.0, 2.0]], np.float32)
    noise = SoftmaxPolicy(3, COUNT, (4,)).noise(jax.random.key(seed), (10_000, 2))
    actions = np.asarray(Softmax(jnp.asarray(logits)).sample(noise))
    assert actions.shape == (10_000, 2)
    expected = np.exp(log_softmax(logits.astype(float), -1)) * len(actions)
    for state in range(2):
        counts = np.bincount(actions[:, state], minlength=COUNT)
        assert chisquare(counts, expected[state]).pvalue > 1e-3  # ten seeds × two states: lowest 0.15


def test_softmax_noise_is_standard_gumbel() -> None:
    noise = np.asarray(SoftmaxPolicy(3, COUNT, (4,)).noise(jax.random.key(0), (1000, 5)))
    assert noise.shape == (1000, 5, COUNT)
    assert kstest(noise.ravel(), gumbel_r.cdf).pvalue > 1e-3  # of ten keys 0 … 9: lowest 0.014


def test_softmax_mode_is_the_first_of_the_most_likely() -> None:
    logits = jnp.array([[0.0, 2.0, 1.0], [3.0, 3.0, 1.0], [1.0, 4.0, 4.0]])
    np.testing.assert_array_equal(Softmax(logits).mode(), [1, 0, 1])


def test_softmax_policy_is_a_network_with_one_logit_per_action() -> None:
    rng = np.random.default_rng(1)
    zero = SoftmaxPolicy(3, COUNT, (8, 5))
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
