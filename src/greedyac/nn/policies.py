"""Policies: networks from an observation to a distribution over actions.

Every draw starts from standard noise that is an input, so that an update can be repeated with given draws.
Many samples of one state stand on a *leading* axis: `[samples, batch, ...]`.
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from greedyac.core.prng import computed_once
from greedyac.core.spaces import Box, Spaces
from greedyac.nn.distributions import GAUSSIANS, Softmax
from greedyac.nn.layers import MLP, Encoder, Linear, initialize

MAX_LOG_STD = math.log(1000.0)


class GaussianPolicy(eqx.Module):
    """Mean and log standard deviation from one trunk; `family` names the distribution that they parametrise.

    The mean is a tanh, scaled to the action range; except for `squashed`, which squashes its samples instead.
    """

    encoder: Encoder
    mlp: MLP
    mean: Linear
    log_std: Linear
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    family: str = eqx.field(static=True)

    def __init__(self, observation: Box, action: Box, hidden: Sequence[int], family: str = "gaussian"):
        self.encoder = Encoder(observation)
        self.mlp = MLP(self.encoder.size, hidden)
        width = (self.encoder.size, *hidden)[-1]
        self.mean = Linear(width, action.size)
        self.log_std = Linear(width, action.size)
        self.low, self.high, self.family = action.low, action.high, family

    def __call__(self, observation: Array) -> Any:
        """`observation: [..., features]` → distributions over actions `[..., dims]`."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        features = self.mlp(self.encoder(observation))
        mean = self.mean(features)
        if self.family != "squashed":
            mean = (low + high) / 2 + (high - low) / 2 * jnp.tanh(mean)
        log_std = jnp.clip(self.log_std(features), -MAX_LOG_STD, MAX_LOG_STD)
        return GAUSSIANS[self.family](mean, log_std, low, high)

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Noise for actions of states `shape`."""
        return GAUSSIANS[self.family].noise(key, (*shape, len(self.low)))


class SoftmaxPolicy(eqx.Module):
    """One logit per action."""

    encoder: Encoder
    mlp: MLP
    logits: Linear

    def __init__(self, observation: Box, count: int, hidden: Sequence[int]):
        self.encoder = Encoder(observation)
        self.mlp = MLP(self.encoder.size, hidden)
        self.logits = Linear((self.encoder.size, *hidden)[-1], count)

    def __call__(self, observation: Array) -> Softmax:
        """`observation: [..., features]` → distributions over actions."""
        return Softmax(self.logits.heads(self.mlp(self.encoder(observation))))

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Noise for actions of states `shape`."""
        return computed_once(jax.random.gumbel(key, (*shape, self.logits.bias.shape[-1])))


PolicyNetwork = GaussianPolicy | SoftmaxPolicy


def make_policy(key: Array, spaces: Spaces, hidden: Sequence[int], family: str = "gaussian") -> PolicyNetwork:
    """The policy for these spaces: a Gaussian of that family, or a softmax."""
    observation, action = spaces.observation, spaces.action
    if isinstance(action, Box):
        return initialize(key, GaussianPolicy(observation, action, hidden, family))
    return initialize(key, SoftmaxPolicy(observation, action.count, hidden))
