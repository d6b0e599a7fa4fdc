"""Policies: networks from an observation to a distribution over actions. The distributions are written by hand.

Every draw starts from standard noise that is an input, so that an update can be repeated with given draws.
Many samples of one state stand on a *leading* axis: `[samples, batch, ...]`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from greedyac.nets import Linear, Trunk, initialised, select
from greedyac.spaces import Box, Spaces

MAX_LOG_STD = math.log(1000.0)


class ClippedGaussian(NamedTuple):
    """Independent Gaussians whose samples are clipped to the action range.

    Log-likelihoods are those of the unclipped Gaussian, taken at the clipped action, as in the published code.
    """

    mean: Array
    log_std: Array
    low: Array
    high: Array

    def sample(self, noise: Array) -> Array:
        """`noise: [..., batch, dims]` of standard normals → actions of that shape."""
        return jnp.clip(self.mean + jnp.exp(self.log_std) * noise, self.low, self.high)

    def log_likelihood(self, action: Array) -> Array:
        """`action: [..., batch, dims]` → `[..., batch]`."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return (-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Array:
        """`[batch]`: that of the unclipped Gaussian."""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def mode(self) -> Array:
        """The most likely action: the mean; clipped, as rounding can carry it an ulp beyond the range."""
        return jnp.clip(self.mean, self.low, self.high)


class Softmax(NamedTuple):
    """Probabilities proportional to exp(logits) over the actions 0, 1, …"""

    logits: Array

    def sample(self, noise: Array) -> Array:
        """`noise: [..., batch, actions]` of standard Gumbels → actions `[..., batch]`."""
        return jnp.argmax(self.logits + noise, -1)

    def log_likelihoods(self) -> Array:
        """`[batch, actions]`, of every action."""
        return jax.nn.log_softmax(self.logits)

    def log_likelihood(self, action: Array) -> Array:
        """`action: [..., batch]` → `[..., batch]`."""
        return select(self.log_likelihoods(), action)

    def entropy(self) -> Array:
        """`[batch]`."""
        log_likelihoods = self.log_likelihoods()
        return -(jnp.exp(log_likelihoods) * log_likelihoods).sum(-1)

    def mode(self) -> Array:
        """The most likely action; the first of several."""
        return jnp.argmax(self.logits, -1)


class GaussianPolicy(eqx.Module):
    """Mean (tanh, scaled to the action range) and log standard deviation from one trunk."""

    trunk: Trunk
    mean: Linear
    log_std: Linear
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, observation_size: int, action: Box, hidden: Sequence[int]):
        self.trunk = Trunk(observation_size, hidden)
        self.mean = Linear(hidden[-1], action.size)
        self.log_std = Linear(hidden[-1], action.size)
        self.low, self.high = action.low, action.high

    def __call__(self, observation: Array) -> ClippedGaussian:
        """`observation: [..., features]` → distributions over actions `[..., dims]`."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        features = self.trunk(observation)
        mean = (low + high) / 2 + (high - low) / 2 * jnp.tanh(self.mean(features))
        log_std = jnp.clip(self.log_std(features), -MAX_LOG_STD, MAX_LOG_STD)
        return ClippedGaussian(mean, log_std, low, high)

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Noise for actions of states `shape`."""
        return jax.random.normal(key, (*shape, len(self.low)))


class SoftmaxPolicy(eqx.Module):
    """One logit per action."""

    trunk: Trunk
    logits: Linear

    def __init__(self, observation_size: int, count: int, hidden: Sequence[int]):
        self.trunk = Trunk(observation_size, hidden)
        self.logits = Linear(hidden[-1], count)

    def __call__(self, observation: Array) -> Softmax:
        """`observation: [..., features]` → distributions over actions."""
        return Softmax(self.logits(self.trunk(observation)))

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Noise for actions of states `shape`."""
        return jax.random.gumbel(key, (*shape, self.logits.bias.shape[-1]))


Policy = GaussianPolicy | SoftmaxPolicy


def make_policy(key: Array, spaces: Spaces, hidden: Sequence[int]) -> Policy:
    """The paper's policy for these spaces: Gaussian or softmax."""
    size, action = spaces.observation.size, spaces.action
    if isinstance(action, Box):
        return initialised(key, GaussianPolicy(size, action, hidden))
    return initialised(key, SoftmaxPolicy(size, action.count, hidden))
