"""Networks against plain NumPy in float64: critics, initial weights, Adam and target averages."""

import math
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray
from scipy.stats import kstest

from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.nn._xla import LARGE, product, steady_mean
from greedyac.nn.critics import (
    ContinuousCritic,
    HeadsCritic,
    IndexCritic,
    TwinCritic,
    make_critic,
    make_twin_critic,
)
from greedyac.nn.layers import KERNELS, MLP, Convolution, Encoder, Linear, initialize, select
from greedyac.nn.optim import adam_step, init_optimizer, polyak_update
from greedyac.nn.policies import GaussianPolicy, SoftmaxPolicy

Net = TypeVar("Net")
Floats = NDArray[np.float64]
FEATURES, DIMS, COUNT, BATCH, SAMPLES = 3, 2, 4, 5, 6
OBSERVATION = Box((-1.0,) * FEATURES, (1.0,) * FEATURES)
CONTINUOUS = Spaces(OBSERVATION, Box((-1.0,) * DIMS, (1.0,) * DIMS))
DISCRETE = Spaces(OBSERVATION, Discrete(COUNT))
RNG = np.random.default_rng(0)
OBSERVATIONS = RNG.normal(size=(BATCH, FEATURES)).astype(np.float32)
ACTIONS = RNG.normal(size=(SAMPLES, BATCH, DIMS)).astype(np.float32)
INDICES = RNG.integers(0, COUNT, (SAMPLES, BATCH))


def randomised(net: Net, seed: int = 0) -> Net:
    """The network with random weights and biases."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape).astype(np.float32)), net)


def forward(net: Any, x: Floats) -> Floats:
    """Layer by layer, ReLU between: every network here flattens to weight, bias, weight, bias, …"""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(net)]
    pairs = list(zip(leaves[::2], leaves[1::2], strict=True))
    for index, (weight, bias) in enumerate(pairs):
        x = x @ weight + bias
        if index < len(pairs) - 1:
            x = np.maximum(x, 0)
    return x


@jax.jit
def call(net: Any, *inputs: Array) -> Array:
    return net(*inputs)


fresh = jax.jit(initialize)


def joined(observation: NDArray[Any], action: NDArray[Any]) -> Floats:
    """Every action behind its state's observation: `[samples, batch, features + dims]`."""
    return np.concatenate([np.broadcast_to(observation, (*action.shape[:-1], FEATURES)), action], -1, dtype=float)


def close(ours: Array, expected: Floats) -> None:
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_trunk_ends_with_relu() -> None:
    trunk = randomised(MLP(FEATURES, (7, 4)))
    close(call(trunk, jnp.asarray(OBSERVATIONS)), np.maximum(forward(trunk, OBSERVATIONS.astype(float)), 0))


def test_heads_are_the_layer_itself_with_its_gradient_in_each_lane() -> None:
    rng = np.random.default_rng(7)
    shapes = {"x": (5, 6), "weight": (6, 3), "bias": (3,), "pull": (5, 3)}
    x, weight, bias, pull = (rng.normal(size=(4, *shape)).astype(np.float32) for shape in shapes.values())

    @jax.jit
    @jax.vmap
    def pulled(weight: Array, bias: Array, x: Array, pull: Array) -> Any:
        layer = eqx.tree_at(lambda layer: (layer.weight, layer.bias), Linear(6, 3), (weight, bias))
        told, pull_back = jax.vjp(Linear.heads, layer, x)
        return told, *pull_back(pull)

    told, by_layer, by_x = pulled(weight, bias, x, pull)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    close(told, x @ weight + bias[:, None])
    close(by_layer.weight, np.einsum("lbi,lbo->lio", x, pull))
    close(by_layer.bias, pull.sum(1))
    close(by_x, np.einsum("lbo,lio->lbi", pull, weight))


GRID = (5, 4, 3)
GRID_BOX = Box((0.0,) * 60, (1.0,) * 60, GRID)
GRIDS = RNG.normal(size=(BATCH, 60)).astype(np.float32)


def convolved(x: Array, weight: Array, bias: Array) -> Array:
    """XLA's own convolution."""
    cells = x.reshape(-1, *GRID)
    found = jax.lax.conv_general_dilated(cells, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return (found + bias).reshape(len(cells), -1)


def test_a_convolution_is_that_of_xla_with_its_gradients_in_each_lane() -> None:
    rng = np.random.default_rng(8)
    shapes = {"x": (BATCH, 60), "weight": (3, 3, 3, KERNELS), "bias": (KERNELS,), "pull": (BATCH, 3 * 2 * KERNELS)}
    x, weight, bias, pull = (rng.normal(size=(2, *shape)).astype(np.float32) for shape in shapes.values())

    def ours(x: Array, weight: Array, bias: Array) -> Array:
        layer = eqx.tree_at(lambda layer: (layer.weight, layer.bias), Convolution(GRID), (weight, bias))
        return layer(x)

    def pulled(function: Any) -> Any:
        def told(x: Array, weight: Array, bias: Array, pull: Array) -> Any:
            value, pull_back = jax.vjp(function, x, weight, bias)
            return value, *pull_back(pull)

        return jax.jit(jax.vmap(told))(x, weight, bias, pull)

    for mine, theirs in zip(pulled(ours), pulled(convolved), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_a_convolutions_gradient_is_the_slope_of_what_it_computes() -> None:
    rng, layer = np.random.default_rng(9), randomised(Convolution(GRID))
    pull = rng.normal(size=(BATCH, 3 * 2 * KERNELS))

    def by_hand(weight: Floats, bias: Floats) -> Floats:
        cells = GRIDS.astype(float).reshape(BATCH, *GRID)
        found = np.zeros((BATCH, 3, 2, KERNELS))
        for row, column in np.ndindex(3, 2):
            patch = cells[:, row : row + 3, column : column + 3]
            found[:, row, column] = np.tensordot(patch, weight, 3) + bias
        return found.reshape(BATCH, -1)

    weight, bias = np.asarray(layer.weight, float), np.asarray(layer.bias, float)
    close(call(layer, jnp.asarray(GRIDS)), by_hand(weight, bias))
    slopes = jax.grad(lambda layer: (layer(jnp.asarray(GRIDS)) * pull).sum())(layer)
    for place in [(0, 0, 0, 0), (2, 1, 2, 15), (1, 2, 0, 7)]:
        step = np.zeros_like(weight)
        step[place] = 1e-3
        slope = ((by_hand(weight + step, bias) - by_hand(weight - step, bias)) * pull).sum() / 2e-3
        np.testing.assert_allclose(slopes.weight[place], slope, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(slopes.bias, pull.reshape(-1, KERNELS).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_large_product_has_the_gradients_of_any_other(lanes: int) -> None:
    rng, inputs, outputs = np.random.default_rng(10), 300, LARGE // 300 + 1
    x = rng.normal(size=(lanes, 4, 2, inputs)).astype(np.float32)
    weight, pull = (
        rng.normal(size=(lanes, *shape)).astype(np.float32) for shape in ((inputs, outputs), (4, 2, outputs))
    )

    @jax.jit
    @jax.vmap
    def pulled(x: Array, weight: Array, pull: Array) -> Any:
        value, pull_back = jax.vjp(product, x, weight)
        return value, *pull_back(pull)

    value, by_x, by_weight = pulled(x, weight, pull)
    near = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
    near(value, np.einsum("labi,lio->labo", x, weight))
    near(by_x, np.einsum("labo,lio->labi", pull, weight))
    near(by_weight, np.einsum("labi,labo->lio", x, pull))


def test_a_vector_is_seen_as_it_is() -> None:
    eye = Encoder(OBSERVATION)
    assert jax.tree.leaves(eye) == []
    np.testing.assert_array_equal(eye(jnp.asarray(OBSERVATIONS)), OBSERVATIONS)


def seen(net: Any) -> Floats:
    """What the dense layers of a network get of `GRIDS`."""
    found = convolved(jnp.asarray(GRIDS), net.encoder.convolution.weight, net.encoder.convolution.bias)
    return np.maximum(np.asarray(found, float), 0)


def dense(net: Any) -> Any:
    return eqx.tree_at(lambda net: net.encoder, net, None)


@pytest.mark.parametrize("kind", [HeadsCritic, IndexCritic])
def test_critics_of_discrete_actions_look_at_grids_first(kind: Any) -> None:
    critic = randomised(kind(GRID_BOX, COUNT, (8,)))
    if kind is HeadsCritic:
        expected = forward(dense(critic), seen(critic))
    else:
        features = seen(critic.net)
        rows = np.concatenate([np.repeat(features, COUNT, 0), np.tile(np.arange(COUNT), BATCH)[:, None]], 1)
        expected = forward(dense(critic.net), rows).reshape(BATCH, COUNT)
    np.testing.assert_allclose(critic.values(jnp.asarray(GRIDS)), expected, rtol=1e-3, atol=1e-3)


def test_a_continuous_critic_looks_at_grids_first() -> None:
    critic = randomised(ContinuousCritic(GRID_BOX, DIMS, (8, 5)))
    features = seen(critic)
    rows = np.concatenate([np.broadcast_to(features, (SAMPLES, *features.shape)), ACTIONS], -1)
    expected = forward(dense(critic), rows)[..., 0]
    told = call(critic, jnp.asarray(GRIDS), jnp.asarray(ACTIONS))
    np.testing.assert_allclose(told, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["gaussian", "squashed", "truncated-gaussian"])
def test_gaussian_policies_look_at_grids_first(family: str) -> None:
    policy = randomised(GaussianPolicy(GRID_BOX, Box((-1.0,), (1.0,)), (8,), family))
    flat = GaussianPolicy(
        Box((0.0,) * policy.encoder.size, (1.0,) * policy.encoder.size), Box((-1.0,), (1.0,)), (8,), family
    )
    flat = eqx.tree_at(lambda net: (net.mlp, net.mean, net.log_std), flat, (policy.mlp, policy.mean, policy.log_std))
    ours, expected = policy(jnp.asarray(GRIDS)), flat(jnp.asarray(seen(policy), jnp.float32))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_a_softmax_policy_looks_at_grids_first() -> None:
    policy = randomised(SoftmaxPolicy(GRID_BOX, COUNT, (8,)))
    expected = forward(dense(policy), seen(policy))
    np.testing.assert_allclose(policy(jnp.asarray(GRIDS)).logits, expected, rtol=1e-3, atol=1e-3)


def test_kernels_start_xavier_uniform_over_all_their_cells() -> None:
    layer = fresh(jax.random.key(0), Convolution((10, 10, 40)))
    bound = math.sqrt(2) * math.sqrt(6 / (9 * 40 + 9 * KERNELS))
    assert kstest(np.asarray(layer.weight).ravel(), "uniform", (-bound, 2 * bound)).pvalue > 1e-3
    assert not layer.bias.any()


@pytest.mark.parametrize("hidden", [(8,), (8, 5), (8, 5, 7)])
def test_continuous_critic_values_the_observation_followed_by_the_action(hidden: tuple[int, ...]) -> None:
    critic = randomised(ContinuousCritic(OBSERVATION, DIMS, hidden))
    expected = forward(critic, joined(OBSERVATIONS, ACTIONS))[..., 0]
    close(call(critic, jnp.asarray(OBSERVATIONS), jnp.asarray(ACTIONS[2])), expected[2])
    close(call(critic, jnp.asarray(OBSERVATIONS), jnp.asarray(ACTIONS)), expected)


def test_index_critic_takes_the_index_as_one_number() -> None:
    critic = randomised(IndexCritic(OBSERVATION, COUNT, (8, 5)))
    expected = forward(critic, joined(OBSERVATIONS, INDICES[..., None].astype(float)))[..., 0]
    close(call(critic, jnp.asarray(OBSERVATIONS), jnp.asarray(INDICES)), expected)


def test_heads_critic_has_one_output_per_action() -> None:
    critic = randomised(HeadsCritic(OBSERVATION, COUNT, (8, 5)))
    expected = forward(critic, OBSERVATIONS.astype(float))
    close(critic.values(jnp.asarray(OBSERVATIONS)), expected)
    close(call(critic, jnp.asarray(OBSERVATIONS), jnp.asarray(INDICES)), expected[np.arange(BATCH), INDICES])


@pytest.mark.parametrize("kind", [IndexCritic, HeadsCritic])
def test_values_are_those_of_each_action_by_itself(kind: Any) -> None:
    critic = randomised(kind(OBSERVATION, COUNT, (8,)))
    observation = jnp.asarray(OBSERVATIONS)
    each = [call(critic, observation, np.full(BATCH, action)) for action in range(COUNT)]
    close(critic.values(observation), np.stack(each, -1))


def test_select_takes_the_named_entry_and_ignores_nan_and_inf_elsewhere() -> None:
    rows = jnp.array([[1.0, 2.0, math.nan], [4.0, math.inf, 6.0]])
    np.testing.assert_array_equal(select(rows, jnp.array([1, 2])), [2, 6])
    np.testing.assert_array_equal(select(rows, jnp.array([[0, 0], [1, 1], [2, 2]])), [[1, 4], [2, np.inf], [np.nan, 6]])


@pytest.mark.parametrize(
    ("spaces", "name", "kind"),
    [
        (CONTINUOUS, "heads", ContinuousCritic),
        (CONTINUOUS, "index", ContinuousCritic),
        (DISCRETE, "heads", HeadsCritic),
        (DISCRETE, "index", IndexCritic),
    ],
)
def test_make_critic_fits_the_spaces(spaces: Spaces, name: str, kind: type[Any]) -> None:
    critic = jax.eval_shape(lambda: make_critic(jax.random.key(0), spaces, (8, 5), name))
    assert isinstance(critic, kind)
    inputs = {ContinuousCritic: FEATURES + DIMS, IndexCritic: FEATURES + 1, HeadsCritic: FEATURES}[kind]
    outputs = COUNT if kind is HeadsCritic else 1
    shapes = [leaf.shape for leaf in jax.tree.leaves(critic)]
    assert shapes == [(inputs, 8), (8,), (8, 5), (5,), (5, outputs), (outputs,)]


KINDS = [(CONTINUOUS, "heads"), (DISCRETE, "heads"), (DISCRETE, "index")]


def one_of(twin: TwinCritic, which: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[which], twin.both)


@pytest.mark.parametrize(("spaces", "name"), KINDS)
def test_each_of_twin_critics_is_the_single_critic_with_its_weights(spaces: Spaces, name: str) -> None:
    twin = randomised(make_twin_critic(jax.random.key(0), spaces, (8, 5), name))
    observation, actions = jnp.asarray(OBSERVATIONS), jnp.asarray(ACTIONS if spaces is CONTINUOUS else INDICES)
    for inputs, shape in [(actions, (SAMPLES, BATCH)), (actions[2], (BATCH,))]:
        both = call(twin, observation, inputs)
        assert both.shape == (2, *shape)
        for which in (0, 1):
            close(both[which], np.asarray(call(one_of(twin, which), observation, inputs)))
    if spaces is DISCRETE:
        values = twin.values(observation)
        assert values.shape == (2, BATCH, COUNT)
        for which in (0, 1):
            close(values[which], np.asarray(one_of(twin, which).values(observation)))


@pytest.mark.parametrize(("spaces", "name"), KINDS)
def test_make_twin_critic_gives_two_critics_for_the_spaces_with_weights_of_their_own(spaces: Spaces, name: str) -> None:
    twin = make_twin_critic(jax.random.key(0), spaces, (8, 5), name)
    single = make_critic(jax.random.key(0), spaces, (8, 5), name)
    assert type(twin.both) is type(single)
    for leaf, like in zip(jax.tree.leaves(twin), jax.tree.leaves(single), strict=True):
        assert leaf.shape == (2, *like.shape)
        assert leaf.dtype == np.float32
        if like.ndim == 1:
            np.testing.assert_array_equal(leaf, np.zeros_like(leaf))
            continue
        bound = math.sqrt(2) * math.sqrt(6 / sum(like.shape))  # of one critic's layer, not of the pair
        assert np.float64(np.abs(leaf).max()) <= bound
        assert np.abs(leaf).max() > 0.6 * bound
        assert (leaf[0] != leaf[1]).all()


LAYERS = (Linear(40, 60), Linear(60, 40))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_initial_weights_are_uniform_up_to_the_xavier_bound_with_relu_gain(seed: int) -> None:
    layers = fresh(jax.random.key(seed), LAYERS)
    for layer in layers:
        weight = np.asarray(layer.weight, np.float64)
        bound = math.sqrt(2) * math.sqrt(6 / sum(weight.shape))
        assert np.abs(weight).max() <= bound
        assert (
            kstest(weight.ravel(), "uniform", (-bound, 2 * bound)).pvalue > 1e-3
        )  # ten seeds × two layers: lowest 0.06


def test_initial_biases_are_zero() -> None:
    for layer in fresh(jax.random.key(0), LAYERS):
        np.testing.assert_array_equal(layer.bias, np.zeros_like(layer.bias))


def test_initial_weights_differ_between_keys_and_between_layers_and_repeat_with_a_key() -> None:
    first, again, other = (fresh(jax.random.key(seed), LAYERS) for seed in (0, 0, 1))
    assert all((one.weight == two.weight).all() for one, two in zip(first, again, strict=True))
    for one, two in [(first[0], first[1]), (first[0], other[0]), (first[1], other[1])]:
        correlation = np.corrcoef(np.ravel(one.weight), np.ravel(two.weight))[0, 1]
        assert abs(correlation) < 0.1  # 2,400 pairs: standard error 0.02


SLOPE, CURVATURE = np.array([3.0, -0.5, 1e-8, 0.0]), np.array([0.1, 2.0, 0.0, 0.0])  # 1e-8: as small as Adam's ε
START = np.array([1.0, -1.0, 0.5, 2.0])


def loss(weight: Array) -> Array:
    return (jnp.asarray(SLOPE, jnp.float32) * weight + 0.5 * jnp.asarray(CURVATURE, jnp.float32) * weight**2).sum()


def adam_by_hand(weight: Floats, step_size: float, steps: int) -> tuple[Floats, float]:
    """The weights after some steps, and the loss before the last one."""
    first, second, value = np.zeros(4), np.zeros(4), math.nan
    for step in range(1, steps + 1):
        value = float((SLOPE * weight + 0.5 * CURVATURE * weight**2).sum())
        gradient = SLOPE + CURVATURE * weight
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        direction = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        weight = weight - step_size * direction
    return weight, value


def test_minimise_is_adam_by_hand_with_a_step_size_per_lane() -> None:
    step_sizes = np.array([0.3, 0.01], np.float32)
    step = jax.jit(jax.vmap(lambda weight, adam, size: adam_step(loss, weight, adam, size)))
    weights = jnp.asarray(np.stack([START, START]), jnp.float32)
    adam = jax.vmap(init_optimizer)(weights)
    for steps in (1, 2, 3):
        weights, adam, value = step(weights, adam, step_sizes)
        for lane, step_size in enumerate(step_sizes):
            expected, expected_loss = adam_by_hand(START, float(step_size), steps)
            # 1 − 0.999ᵗ in float32 is good to 6e-5, of which the square root takes half
            np.testing.assert_allclose(weights[lane], expected, rtol=0, atol=1e-4 * step_size)
            np.testing.assert_allclose(value[lane], expected_loss, rtol=1e-4)


def test_average_moves_the_slow_network_by_the_rate() -> None:
    slow, fast = randomised(LAYERS, 1), randomised(LAYERS, 2)
    expected = [
        0.75 * np.asarray(old, float) + 0.25 * np.asarray(new, float)
        for old, new in zip(jax.tree.leaves(slow), jax.tree.leaves(fast), strict=True)
    ]
    for leaf, by_hand in zip(jax.tree.leaves(polyak_update(slow, fast, 0.25)), expected, strict=True):
        np.testing.assert_allclose(leaf, by_hand, rtol=1e-5, atol=1e-6)


def test_average_of_policies_of_two_families_keeps_that_of_the_slow_one() -> None:
    action = Box((-1.0,) * DIMS, (1.0,) * DIMS)
    slow, fast = (
        randomised(GaussianPolicy(OBSERVATION, action, (8, 5), family), seed)
        for seed, family in [(1, "squashed"), (2, "gaussian")]
    )
    for one, other, family in [(slow, fast, "squashed"), (fast, slow, "gaussian")]:
        moved = polyak_update(one, other, 0.25)
        assert moved.family == family
        for leaf, old, new in zip(*map(jax.tree.leaves, (moved, one, other)), strict=True):
            np.testing.assert_allclose(leaf, 0.75 * old + 0.25 * new, rtol=1e-5, atol=1e-6)


def test_steady_mean_is_the_mean_over_the_leading_axis() -> None:
    values = np.random.default_rng(0).normal(size=(28, 5)).astype(np.float32)
    np.testing.assert_allclose(steady_mean(jnp.asarray(values)), values.mean(0), rtol=1e-6, atol=1e-6)
