"""Critics: networks that value actions, many of one state at once."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from greedyac.core.spaces import Box, Spaces
from greedyac.nn._xla import product
from greedyac.nn.layers import MLP, Encoder, Linear, initialize, select


class ContinuousCritic(eqx.Module):
    """Q(s, a) of an observation followed by an action.

    The first layer is computed in two parts, so that many actions of one state share the state's part.
    """

    encoder: Encoder
    first: Linear
    mlp: MLP
    last: Linear

    def __init__(self, observation: Box, action_size: int, hidden: Sequence[int]):
        self.encoder = Encoder(observation)
        self.first = Linear(self.encoder.size + action_size, hidden[0])
        self.mlp = MLP(hidden[0], hidden[1:])
        self.last = Linear(hidden[-1], 1)

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [..., dims]`, leading axes broadcast → `[...]`."""
        of_observation, of_action = jnp.split(self.first.weight, [self.encoder.size])
        first = (product(self.encoder(observation), of_observation) + self.first.bias) + action @ of_action
        return self.last(self.mlp(jax.nn.relu(first)))[..., 0]


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

    encoder: Encoder
    mlp: MLP
    last: Linear

    def __init__(self, observation: Box, count: int, hidden: Sequence[int]):
        self.encoder = Encoder(observation)
        self.mlp = MLP(self.encoder.size, hidden)
        self.last = Linear(hidden[-1], count)

    def __call__(self, observation: Array, action: Array) -> Array:
        """`observation: [..., features]`, `action: [...]`, leading axes broadcast → `[...]`."""
        return select(self.values(observation), action)

    def values(self, observation: Array) -> Array:
        """Q(s, ·): `observation: [..., features]` → `[..., actions]`."""
        return self.last.heads(self.mlp(self.encoder(observation)))


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
        return initialize(key, ContinuousCritic(observation, action.size, hidden))
    if discrete_critic == "index":
        return initialize(key, IndexCritic(observation, action.count, hidden))
    return initialize(key, HeadsCritic(observation, action.count, hidden))


def make_twin_critic(key: Array, spaces: Spaces, hidden: Sequence[int], discrete_critic: str) -> TwinCritic:
    """Two critics for these spaces, with weights of their own."""
    return TwinCritic(jax.vmap(lambda one: make_critic(one, spaces, hidden, discrete_critic))(jax.random.split(key)))
