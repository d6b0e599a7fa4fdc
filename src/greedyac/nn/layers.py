"""Networks as pytrees: layers, critics that value many actions of a state at once, and how Adam moves them.

Vectors go through dense layers; grids and images, whose numbers come in a row, through one convolution before that.
Of a dict or tuple each image has a convolution of its own.
ReLU between layers, Xavier-uniform weights with the ReLU gain √2, zero biases, as in the published code.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from greedyac.core.spaces import KERNEL, Box, Spaces

LARGE = 2**16
"""Weights of more numbers than this have a gradient of their own."""


def product(x: Array, weight: Array) -> Array:
    """`x: [..., inputs]` times `weight: [inputs, outputs]`."""
    return _large_product(x, weight) if weight.size > LARGE else x @ weight


@jax.custom_vjp
def _large_product(x: Array, weight: Array) -> Array:
    """With a gradient laid out as the weights are. JAX's is transposed, and XLA would turn all that Adam has."""
    return x @ weight


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _backward(given: tuple[Array, Array], pull: Array) -> tuple[Array, Array]:
    x, weight = given
    return jnp.einsum("...o,io->...i", pull, weight), jnp.einsum("bi,bo->io", _rows(x), _rows(pull))


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


_large_product.defvjp(_forward, _backward)


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
        found = _large_product(patches, self.weight.reshape(KERNEL * KERNEL * channels, KERNELS)) + self.bias
        return found.reshape(*x.shape[:-1], -1)


def found_numbers(grid: tuple[int, int, int]) -> int:
    """How many numbers a convolution makes of a grid."""
    rows, columns, _ = grid
    return (rows - KERNEL + 1) * (columns - KERNEL + 1) * KERNELS


def seen_numbers(observation: Box) -> int:
    """How many numbers a network's dense layers get of an observation."""
    more = sum(found_numbers(image.grid) - math.prod(image.grid) for image in observation.convolved)
    return observation.size + more


class Eye(eqx.Module):
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
        self.size = seen_numbers(observation)

    def __call__(self, observation: Array) -> Array:
        """`observation: [..., features]` → `[..., size]`."""
        if self.convolution is not None:
            return jax.nn.relu(self.convolution(observation))
        if not self.convolutions:
            return observation
        pieces = jnp.split(observation, self.edges, -1)  # other numbers, image, other numbers, image, …
        found = [jax.nn.relu(look(piece)) for look, piece in zip(self.convolutions, pieces[1::2], strict=True)]
        return jnp.concatenate([*found, *pieces[::2]], -1)


class Trunk(eqx.Module):
    """The hidden layers that a policy's heads share."""

    layers: tuple[Linear, ...]

    def __init__(self, inputs: int, hidden: Sequence[int]):
        self.layers = tuple(map(Linear, (inputs, *hidden[:-1]), hidden))

    def __call__(self, x: Array) -> Array:
        """`x: [..., inputs]` → `[..., last hidden width]`."""
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


class ContinuousCritic(eqx.Module):
    """Q(s, a) of an observation followed by an action.

    The first layer is computed in two parts, so that many actions of one state share the state's part.
    """

    eye: Eye
    first: Linear
    trunk: Trunk
    last: Linear

    def __init__(self, observation: Box, action_size: int, hidden: Sequence[int]):
        self.eye = Eye(observation)
        self.first = Linear(self.eye.size + action_size, hidden[0])
        self.trunk = Trunk(hidden[0], hidden[1:])
        self.last = Linear(hidden[-1], 1)

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [..., dims]`, leading axes broadcast → `[...]`."""
        of_observation, of_action = jnp.split(self.first.weight, [self.eye.size])
        first = (product(self.eye(observation), of_observation) + self.first.bias) + action @ of_action
        return self.last(self.trunk(jax.nn.relu(first)))[..., 0]


class IndexCritic(eqx.Module):
    """Q(s, a) of discrete actions by a network that takes the action's index as one more input."""

    net: ContinuousCritic
    count: int = eqx.field(static=True)

    def __init__(self, observation: Box, count: int, hidden: Sequence[int]):
        self.net = ContinuousCritic(observation, 1, hidden)
        self.count = count

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [...]`, leading axes broadcast → `[...]`."""
        return self.net(observation, action[..., None].astype(jnp.float32))

    def values(self, observation: Array) -> Array:
        """Q(s, ·): `observation: [..., features]` → `[..., actions]`."""
        return self(observation[..., None, :], jnp.arange(self.count))


class HeadsCritic(eqx.Module):
    """Q(s, a) of discrete actions by a network with one output per action."""

    eye: Eye
    trunk: Trunk
    last: Linear

    def __init__(self, observation: Box, count: int, hidden: Sequence[int]):
        self.eye = Eye(observation)
        self.trunk = Trunk(self.eye.size, hidden)
        self.last = Linear(hidden[-1], count)

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [...]`, leading axes broadcast → `[...]`."""
        return select(self.values(observation), action)

    def values(self, observation: Array) -> Array:
        """Q(s, ·): `observation: [..., features]` → `[..., actions]`."""
        return self.last.heads(self.trunk(self.eye(observation)))


Critic = ContinuousCritic | IndexCritic | HeadsCritic


class TwinCritic(eqx.Module):
    """Two critics side by side. Whatever is asked, both answer, on a new leading axis of two."""

    both: Critic
    """Every weight has a leading axis of two."""

    def __call__(self, observation: Array, action: Array) -> Array:
        """As of one critic, → `[2, ...]`."""
        return jax.vmap(lambda critic: critic(observation, action))(self.both)

    def values(self, observation: Array) -> Array:
        """As of one critic of discrete actions, → `[2, ..., actions]`."""
        return jax.vmap(lambda critic: critic.values(observation))(self.both)


def make_critic(key: Array, spaces: Spaces, hidden: Sequence[int], discrete_critic: str) -> Critic:
    """The critic for these spaces; `discrete_critic` is `heads` or `index`."""
    observation, action = spaces.observation, spaces.action
    if isinstance(action, Box):
        return initialised(key, ContinuousCritic(observation, action.size, hidden))
    if discrete_critic == "index":
        return initialised(key, IndexCritic(observation, action.count, hidden))
    return initialised(key, HeadsCritic(observation, action.count, hidden))


def make_twin_critic(key: Array, spaces: Spaces, hidden: Sequence[int], discrete_critic: str) -> TwinCritic:
    """Two critics for these spaces, with weights of their own."""
    return TwinCritic(jax.vmap(lambda one: make_critic(one, spaces, hidden, discrete_critic))(jax.random.split(key)))


def select(per_action: Array, action: Array) -> Array:
    """The entry of `per_action: [..., actions]` that each `action: [...]` names; leading axes broadcast."""
    chosen = jnp.arange(per_action.shape[-1]) == action[..., None]
    return jnp.where(chosen, per_action, 0.0).sum(-1)


def steady_mean(values: Array) -> Array:
    """The mean over the leading axis, as a matrix product: XLA rounds a reduction differently at different widths."""
    return jnp.full(len(values), 1 / len(values), values.dtype) @ values


Net = TypeVar("Net")


def initialised(key: Array, net: Net) -> Net:
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


_ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)


def moments(net: Net) -> Any:
    """Adam's moments before the first step."""
    return _ADAM.init(cast(Any, net))


def minimise(loss: Callable[[Net], Array], net: Net, adam: Any, step_size: float) -> tuple[Net, Any, Array]:
    """One step of Adam downhill: the new network, the new moments, and the loss before the step.

    The step size may be traced, so that lanes can differ in it.
    """
    value, gradient = jax.value_and_grad(loss)(net)
    direction, adam = _ADAM.update(gradient, adam)
    return jax.tree.map(lambda weight, d: weight - step_size * d, net, direction), adam, value


def average(slow: Net, fast: Net, rate: float) -> Net:
    """(1 − rate)·slow + rate·fast, weight by weight: how target networks move. What else `slow` is, it stays."""
    weights, structure = jax.tree.flatten(slow)
    moved = [(1 - rate) * old + rate * new for old, new in zip(weights, jax.tree.leaves(fast), strict=True)]
    return jax.tree.unflatten(structure, moved)
