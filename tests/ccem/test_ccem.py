"""Conditional CEM: which actions are elite, how many, and the gradients that follow from them."""

import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax import Array
from numpy.typing import NDArray

from greedyac import ccem
from greedyac.nn.distributions import ENTROPY_ESTIMATORS, ClippedGaussian, entropy_term

PROPERTY = settings(deadline=None, derandomize=True, max_examples=60)
BATCH = 3
SIZES = ((1, 1), (2, 1), (2, 2), (5, 2), (5, 5), (9, 1), (9, 4))  # (samples, elites): each pair compiles once
Floats = NDArray[np.float32]

# Few distinct numbers, so that ties are common; the rest is any float32. −0 is left out: it is no value of its own.
NUMBERS = st.one_of(
    st.sampled_from((math.nan, math.inf, -math.inf, 0.0, 1.0, -2.5)),
    st.floats(width=32).map(lambda number: number + 0.0),
)


def values_of(samples: int) -> st.SearchStrategy[Floats]:
    return hnp.arrays(np.float32, (samples, BATCH), elements=NUMBERS)


SAMPLED = st.sampled_from(SIZES).flatmap(lambda size: st.tuples(values_of(size[0]), st.just(size[1])))


@functools.partial(jax.jit, static_argnames="count")
def find_elites(actions: Array, values: Array, count: int) -> Array:
    return ccem.elites(actions, values, count)


def best_indices(values: Floats, count: int) -> NDArray[np.int64]:
    """The same by Python's stable sort, state by state: `[count, batch]`."""
    ranked = [[-math.inf if math.isnan(value) else float(value) for value in column] for column in values.T]
    order = [sorted(range(len(column)), key=lambda index, c=column: -c[index]) for column in ranked]  # type: ignore[misc]
    return np.array(order).T[:count]


@PROPERTY
@given(SAMPLED)
@example((np.full((9, BATCH), np.nan, np.float32), 4))
@example((np.zeros((9, BATCH), np.float32), 4))
@example((np.array([[math.nan, -math.inf, math.inf]] * 5, np.float32), 5))
def test_elites_are_the_first_of_a_stable_sort_by_value(sampled: tuple[Floats, int]) -> None:
    values, count = sampled
    samples = len(values)
    indices = np.arange(samples)[:, None] + 100 * np.arange(BATCH)
    expected = best_indices(values, count) + 100 * np.arange(BATCH)
    np.testing.assert_array_equal(find_elites(indices, values, count), expected)


@PROPERTY
@given(SAMPLED)
def test_elites_of_vector_actions_are_whole_rows(sampled: tuple[Floats, int]) -> None:
    values, count = sampled
    actions = np.random.default_rng(0).normal(size=(*values.shape, 2)).astype(np.float32)
    best = best_indices(values, count)
    expected = np.stack([actions[best[:, state], state] for state in range(BATCH)], 1)
    np.testing.assert_array_equal(find_elites(actions, values, count), expected)


@pytest.mark.parametrize(
    ("fraction", "samples", "count"),
    [
        (0.1, 30, 3),
        (0.1, 31, 4),
        (0.3, 10, 3),
        (0.07, 100, 7),
        (0.1, 1, 1),
        (0.29, 100, 29),
        (1 / 3, 3, 1),
        (0.5, 5, 3),
    ],
)
def test_elite_count_by_hand(fraction: float, samples: int, count: int) -> None:
    assert ccem.elite_count(fraction, samples) == count


@PROPERTY
@given(st.integers(1, 5), st.integers(1, 10**5), st.integers(1, 10**6))
def test_elite_count_is_the_exact_ceiling_of_a_decimal_fraction(places: int, digits: int, samples: int) -> None:
    fraction = Fraction(digits % 10**places or 1, 10**places)
    assert ccem.elite_count(float(fraction), samples) == math.ceil(fraction * samples)


@pytest.mark.parametrize(
    ("fraction", "actions", "suffices"),
    [
        *[(0.1, 10, True), (0.1, 11, False), (1 / 3, 3, True), (1 / 3, 4, False), (1 / 6, 6, True), (0.3, 3, True)],
        *[(0.34, 3, False), (0.5, 2, True), (0.5, 3, False), (0.99, 1, True), (0.07, 14, True), (0.07, 15, False)],
    ],
)
def test_greedy_suffices_up_to_one_action_per_elite_fraction(fraction: float, actions: int, suffices: bool) -> None:
    assert ccem.greedy_suffices(fraction, actions) is suffices


@PROPERTY
@given(st.integers(1, 999), st.integers(1, 1200))
def test_greedy_suffices_is_exact_for_decimal_fractions(thousandths: int, actions: int) -> None:
    assert ccem.greedy_suffices(thousandths / 1000, actions) is (thousandths * actions <= 1000)


def test_greedy_shares_split_evenly_among_ties_only() -> None:
    values = jnp.array([[1.0, 3.0, 2.0], [5.0, 5.0, -1.0], [0.0, 0.0, 0.0], [-jnp.inf, -2.0, -2.0]])
    expected = np.array([[0, 1, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]])
    np.testing.assert_allclose(ccem.greedy_shares(values), expected, rtol=1e-7)


@PROPERTY
@given(hnp.arrays(np.float32, (4, 3), elements=st.sampled_from((-1.0, 0.0, 0.5, 2.0, math.inf, -math.inf))))
def test_greedy_shares_are_positive_exactly_for_the_best_and_sum_to_one(values: Floats) -> None:
    shares = np.asarray(ccem.greedy_shares(jnp.asarray(values)))
    np.testing.assert_allclose(shares.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(shares > 0, values == values.max(-1, keepdims=True))


def test_greedy_shares_of_nan_are_nan_in_that_state_only() -> None:
    shares = np.asarray(ccem.greedy_shares(jnp.array([[1.0, math.nan, 0.0], [1.0, 2.0, 0.0]])))
    assert np.isnan(shares[0]).all()
    np.testing.assert_array_equal(shares[1], [0, 1, 0])


def test_elite_loss_is_minus_the_mean_over_elites_and_batch() -> None:
    log_probs = jnp.array([[1.0, 2.0, 4.0], [3.0, -1.0, 0.0]])  # sum 9 of 6 numbers
    assert float(ccem.elite_loss(log_probs, jnp.ones(3), 0.0)) == -1.5


def test_greedy_loss_sums_shares_over_actions_and_is_a_mean_over_states_less_the_scaled_mean_entropy() -> None:
    log_probs = jnp.array([[-1.0, -2.0, -4.0], [-8.0, -16.0, -32.0]])
    shares = jnp.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    entropy = jnp.array([4.0, 0.0])  # mean 2
    assert float(ccem.greedy_loss(log_probs, shares, entropy, 0.5)) == 10.0  # (2 + 20) / 2 − 0.5 × 2


def test_elite_loss_subtracts_the_scaled_mean_entropy() -> None:
    elite_log_probs = jnp.array([[1.0, 2.0], [3.0, -1.0]])  # mean 1.25
    entropy = jnp.array([4.0, 0.0])  # mean 2
    assert float(ccem.elite_loss(elite_log_probs, entropy, 0.5)) == -2.25


# A Gaussian in one dimension: z = (a − mean) / std, ∂log π/∂mean = z / std, ∂log π/∂log_std = z² − 1.
MEAN, LOG_STD = 0.3, -0.7
STD = math.exp(LOG_STD)


@functools.partial(jax.jit, static_argnames="estimator")
def entropy_gradients(estimator: str, noise: Array) -> Array:
    """∂/∂(mean, log_std) of the entropy term at each of the samples made of `noise: [samples]` → `[samples, 2]`."""

    def term(parameters: Array, action: Array) -> Array:
        wide = jnp.array([1e6])  # never clips
        policy = ClippedGaussian(parameters[:1], parameters[1:], -wide, wide)
        return entropy_term(estimator, policy.log_prob(action[None]), policy.entropy())

    parameters = jnp.array([MEAN, LOG_STD])
    return jax.vmap(jax.grad(term), (None, 0))(parameters, MEAN + STD * noise)


NOISE = np.array([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0], np.float32)
LOG_LIKELIHOOD = -0.5 * NOISE.astype(float) ** 2 - LOG_STD - 0.5 * math.log(2 * math.pi)
SCORE = np.stack([NOISE / STD, NOISE.astype(float) ** 2 - 1], -1)  # ∇log π(a)
BY_HAND: dict[str, Any] = {
    "score": -LOG_LIKELIHOOD[:, None] * SCORE,
    "exact": np.tile([0.0, 1.0], (len(NOISE), 1)),
    "released": -SCORE,
}


@pytest.mark.parametrize("estimator", ENTROPY_ESTIMATORS)
def test_entropy_gradient_by_hand(estimator: str) -> None:
    gradients = entropy_gradients(estimator, jnp.asarray(NOISE))
    np.testing.assert_allclose(gradients, BY_HAND[estimator], rtol=1e-5, atol=1e-5)


# Means of 100,000 samples. Over 20 seeds the largest distances from the expectation were, for (mean, log_std),
# score: (0.021, 0.024) and released: (0.011, 0.008); the margins are about twice that.
SAMPLES = 100_000
EXPECTED = {"score": [0.0, 1.0], "released": [0.0, 0.0]}
MARGIN = {"score": [0.05, 0.05], "released": [0.025, 0.016]}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("estimator", ["score", "released"])
def test_mean_entropy_gradient_is_exact_by_score_and_zero_by_released(estimator: str, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=SAMPLES).astype(np.float32)
    error = np.asarray(entropy_gradients(estimator, jnp.asarray(noise)), float).mean(0) - EXPECTED[estimator]
    assert (np.abs(error) < MARGIN[estimator]).all(), error
