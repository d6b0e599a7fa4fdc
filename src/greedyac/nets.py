"""Networks as pytrees: layers, critics that value many actions of a state at once, and how Adam moves them.

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

from greedyac.spaces import Box, Spaces


class Linear(eqx.Module):
    """x ↦ x·weight + bias, over any leading axes."""

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int):
        self.weight = jnp.zeros((inputs, outputs), jnp.float32)
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Array) -> Array:
        """`x: [..., inputs]` → `[..., outputs]`."""
        return x @ self.weight + self.bias

    def heads(self, x: Array) -> Array:
        """The same, faster if there are few outputs.

        XLA:CPU likes their few columns in one piece each. The barrier keeps it from turning them back.
        """
        columns = jax.lax.optimization_barrier(self.weight.T)  # type: ignore[no-untyped-call]
        return x @ columns.T + self.bias


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

    first: Linear
    trunk: Trunk
    last: Linear

    def __init__(self, observation_size: int, action_size: int, hidden: Sequence[int]):
        self.first = Linear(observation_size + action_size, hidden[0])
        self.trunk = Trunk(hidden[0], hidden[1:])
        self.last = Linear(hidden[-1], 1)

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [..., dims]`, leading axes broadcast → `[...]`."""
        of_observation, of_action = jnp.split(self.first.weight, [observation.shape[-1]])
        first = (observation @ of_observation + self.first.bias) + action @ of_action
        return self.last(self.trunk(jax.nn.relu(first)))[..., 0]


class IndexCritic(eqx.Module):
    """Q(s, a) of discrete actions by a network that takes the action's index as one more input."""

    net: ContinuousCritic
    count: int = eqx.field(static=True)

    def __init__(self, observation_size: int, count: int, hidden: Sequence[int]):
        self.net = ContinuousCritic(observation_size, 1, hidden)
        self.count = count

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [...]`, leading axes broadcast → `[...]`."""
        return self.net(observation, action[..., None].astype(jnp.float32))

    def values(self, observation: Array) -> Array:
        """Q(s, ·): `observation: [..., features]` → `[..., actions]`."""
        return self(observation[..., None, :], jnp.arange(self.count))


class HeadsCritic(eqx.Module):
    """Q(s, a) of discrete actions by a network with one output per action."""

    trunk: Trunk
    last: Linear

    def __init__(self, observation_size: int, count: int, hidden: Sequence[int]):
        self.trunk = Trunk(observation_size, hidden)
        self.last = Linear(hidden[-1], count)

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [...]`, leading axes broadcast → `[...]`."""
        return select(self.values(observation), action)

    def values(self, observation: Array) -> Array:
        """Q(s, ·): `observation: [..., features]` → `[..., actions]`."""
        return self.last.heads(self.trunk(observation))


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
    size, action = spaces.observation.size, spaces.action
    if isinstance(action, Box):
        return initialised(key, ContinuousCritic(size, action.size, hidden))
    if discrete_critic == "index":
        return initialised(key, IndexCritic(size, action.count, hidden))
    return initialised(key, HeadsCritic(size, action.count, hidden))


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
    return math.sqrt(2.0) * math.sqrt(6.0 / sum(weight.shape)) * drawn.reshape(weight.shape)


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
