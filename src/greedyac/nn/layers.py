"""Layers as pytrees, and their initial weights.

Vectors go through dense layers; grids and images, whose numbers come in a row, through one convolution before that.
Of a dict or tuple each image has a convolution of its own.
ReLU between layers, Xavier-uniform weights with the ReLU gain √2, zero biases, as in the published code.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from greedyac.core.spaces import KERNEL, Box
from greedyac.nn._xla import large_product, product
from greedyac.nn.optim import Net


class Linear(eqx.Module):
    """x ↦ x·weight + bias, over any leading axes."""

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int):
        self.weight = jnp.zeros((inputs, outputs), jnp.float32)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Array) -> Array:
        """`x: [..., inputs]` → `[..., outputs]`."""
        return product(x, self.weight) + self.bias

    def heads(self, x: Array) -> Array:
        """The same, faster if there are few outputs.

        XLA:CPU likes their few columns in one piece each. The barrier keeps it from turning them back.
        """
        columns = jax.lax.optimization_barrier(self.weight.T)  # type: ignore[no-untyped-call]
        return x @ columns.T + self.bias


KERNELS = 16
"""How many kernels the convolution has."""


class Convolution(eqx.Module):
    """What `KERNELS` kernels find in a grid, at every place where they fit.

    As patches × matrix: with a kernel per lane that is several times faster on a CPU than XLA's convolution.
    """

    weight: Array
    """`[KERNEL, KERNEL, channels, KERNELS]`"""
    bias: Array
    grid: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, grid: tuple[int, int, int]):
        self.grid = grid
        self.weight = jnp.zeros((KERNEL, KERNEL, grid[2], KERNELS), jnp.float32)
        self.bias = jnp.zeros(KERNELS, jnp.float32)

    def __call__(self, x: Array) -> Array:
        """`x: [..., rows × columns × channels]` → `[..., places × KERNELS]`."""
        rows, columns, channels = self.grid
        cells = x.reshape(*x.shape[:-1], *self.grid)
        patches = jnp.concatenate(
            [
                cells[..., down : down + rows - KERNEL + 1, right : right + columns - KERNEL + 1, :]
                for down in range(KERNEL)
                for right in range(KERNEL)
            ],
            -1,
        )
        found = large_product(patches, self.weight.reshape(KERNEL * KERNEL * channels, KERNELS)) + self.bias
        return found.reshape(*x.shape[:-1], -1)


def convolution_size(grid: tuple[int, int, int]) -> int:
    """How many numbers a convolution makes of a grid."""
    rows, columns, _ = grid
    return (rows - KERNEL + 1) * (columns - KERNEL + 1) * KERNELS


def encoded_size(observation: Box) -> int:
    """How many numbers a network's dense layers get of an observation."""
    more = sum(convolution_size(image.grid) - math.prod(image.grid) for image in observation.convolved)
    return observation.size + more


class Encoder(eqx.Module):
    """What a network sees of an observation: a vector as it is, of a grid what a convolution finds.

    Of a dict or tuple with images: what the convolution of each image finds, then all other numbers as they are.
    """

    convolution: Convolution | None
    convolutions: tuple[Convolution, ...]
    """Those of a dict's or tuple's images."""
    edges: tuple[int, ...] = eqx.field(static=True)
    """Where each of these images begins and ends."""
    size: int = eqx.field(static=True)

    def __init__(self, observation: Box):
        images = () if observation.grid else observation.convolved
        self.convolution = Convolution(observation.grid) if observation.grid else None
        self.convolutions = tuple(Convolution(image.grid) for image in images)
        self.edges = tuple(edge for image in images for edge in (image.start, image.stop))
        self.size = encoded_size(observation)

    def __call__(self, observation: Array) -> Array:
        """`observation: [..., features]` → `[..., size]`."""
        if self.convolution is not None:
            return jax.nn.relu(self.convolution(observation))
        if not self.convolutions:
            return observation
        pieces = jnp.split(observation, self.edges, -1)  # other numbers, image, other numbers, image, …
        found = [jax.nn.relu(look(piece)) for look, piece in zip(self.convolutions, pieces[1::2], strict=True)]
        return jnp.concatenate([*found, *pieces[::2]], -1)


class MLP(eqx.Module):
    """The hidden layers that a policy's heads share."""

    layers: tuple[Linear, ...]

    def __init__(self, inputs: int, hidden: Sequence[int]):
        self.layers = tuple(map(Linear, (inputs, *hidden[:-1]), hidden))

    def __call__(self, x: Array) -> Array:
        """`x: [..., inputs]` → `[..., last hidden width]`."""
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


def initialize(key: Array, net: Net) -> Net:
    """The network with fresh weights: Xavier-uniform with the ReLU gain √2, from one draw; biases stay zero."""
    weights, structure = jax.tree.flatten(net)
    numbers = jax.random.uniform(key, (sum(weight.size for weight in weights),), jnp.float32, -1.0, 1.0)
    drawn = jax.lax.split(numbers, [weight.size for weight in weights])
    return jax.tree.unflatten(structure, list(map(_xavier, weights, drawn)))


def _xavier(weight: Array, drawn: Array) -> Array:
    if weight.ndim < 2:
        return weight
    *kernel, inputs, outputs = weight.shape
    return math.sqrt(2.0) * math.sqrt(6.0 / (math.prod(kernel) * (inputs + outputs))) * drawn.reshape(weight.shape)


def select(per_action: Array, action: Array) -> Array:
    """The entry of `per_action: [..., actions]` that each `action: [...]` names; leading axes broadcast."""
    chosen = jnp.arange(per_action.shape[-1]) == action[..., None]
    return jnp.where(chosen, per_action, 0.0).sum(-1)
