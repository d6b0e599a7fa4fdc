"""Distributions over actions, and what estimates the gradient of their entropy. All are written by hand."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.core.prng import computed_once
from greedyac.nn.layers import select

SQUASHING_MARGIN = 1e-6
"""Inside the logarithm of the squashed Gaussian's correction, as in the published code."""


class ClippedGaussian(NamedTuple):
    """Independent Gaussians whose samples are clipped to the action range.

    Log-likelihoods are those of the unclipped Gaussian, taken at the clipped action, as in the published code.
    """

    mean: Array
    log_std: Array
    low: Array
    high: Array

    @staticmethod
    def noise(key: Array, shape: tuple[int, ...]) -> Array:
        """Standard normals."""
        return computed_once(jax.random.normal(key, shape))

    def sample(self, noise: Array) -> Array:
        """`noise: [..., batch, dims]` of standard normals → actions of that shape."""
        return jnp.clip(self.mean + jnp.exp(self.log_std) * noise, self.low, self.high)

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """A sample, as a function of the parameters, and its log-likelihood."""
        action = self.sample(noise)
        return action, self.log_prob(action)

    def log_prob(self, action: Array) -> Array:
        """`action: [..., batch, dims]` → `[..., batch]`."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return _log_density(z, self.log_std).sum(-1)

    def entropy(self) -> Array:
        """`[batch]`: that of the unclipped Gaussian."""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def mode(self) -> Array:
        """The most likely action: the mean; clipped, as rounding can carry it an ulp beyond the range."""
        return jnp.clip(self.mean, self.low, self.high)


_NODES, _WEIGHTS = (numbers.astype(np.float32) for numbers in np.polynomial.hermite_e.hermegauss(64))
_WEIGHTS /= math.sqrt(2 * math.pi)
"""The mean of a function of a standard normal is about Σ weight · f(node)."""
_GRID = np.linspace(-10, 10, 201, dtype=np.float32)
_NEAR = 0.1 * np.log1p(np.exp(-2 * np.abs(_GRID)))
"""log(1 − tanh² u) = log 4 − 2 |u| − 2 log(1 + exp(−2 |u|)): the last part on a grid, times its step."""


class SquashedGaussian(NamedTuple):
    """Independent Gaussians whose samples are squashed to the action range by tanh."""

    mean: Array
    log_std: Array
    low: Array
    high: Array

    @staticmethod
    def noise(key: Array, shape: tuple[int, ...]) -> Array:
        """Standard normals."""
        return computed_once(jax.random.normal(key, shape))

    def sample(self, noise: Array) -> Array:
        """`noise: [..., batch, dims]` of standard normals → actions of that shape."""
        return self._squashed(self.mean + jnp.exp(self.log_std) * noise)

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """A sample, as a function of the parameters, and its log-likelihood.

        The slope is half the range times 1 − tanh², in a form that does not cancel where tanh is close to ±1.
        """
        unsquashed = self.mean + jnp.exp(self.log_std) * noise
        slope = 2 * (self.high - self.low) * jax.nn.sigmoid(2 * unsquashed) * jax.nn.sigmoid(-2 * unsquashed)
        correction = jnp.log(slope + SQUASHING_MARGIN)
        return self._squashed(unsquashed), (_log_density(noise, self.log_std) - correction).sum(-1)

    def entropy(self) -> Array:
        """`[batch]`: that of the Gaussian, and the mean of the squashing's log-slope, log(1 − tanh²).

        That mean by Gauss–Hermite quadrature or, where the Gaussian is too wide for it, as log 4 − 2 E|u| and a
        correction near 0.
        """
        mean, std = self.mean[..., None], jnp.exp(self.log_std)[..., None]
        unsquashed = mean + std * _NODES
        narrow = ((math.log(4.0) - 2 * unsquashed - 2 * jax.nn.softplus(-2 * unsquashed)) * _WEIGHTS).sum(-1)
        size = std * math.sqrt(2 / math.pi) * jnp.exp(-0.5 * (mean / std) ** 2) + mean * jax.scipy.special.erf(
            mean / std / math.sqrt(2.0)
        )
        near = (jnp.exp(_log_density((jnp.asarray(_GRID) - mean) / std, jnp.log(std))) * _NEAR).sum(-1)
        log_slope = jnp.where(std[..., 0] < 1, narrow, math.log(4.0) - 2 * size[..., 0] - 2 * near)
        per_dimension = 0.5 * math.log(2 * math.pi * math.e) + self.log_std + jnp.log((self.high - self.low) / 2)
        return (per_dimension + log_slope).sum(-1)

    def mode(self) -> Array:
        """The squashed mean: the median, and what the policy does without noise."""
        return self._squashed(self.mean)

    def _squashed(self, unsquashed: Array) -> Array:
        action = (self.low + self.high) / 2 + (self.high - self.low) / 2 * jnp.tanh(unsquashed)
        return jnp.clip(action, self.low, self.high)  # rounding can carry it an ulp beyond the range


_BELOW_ONE = 1 - 2**-24
"""The largest float32 below 1."""


class TruncatedGaussian(NamedTuple):
    """Independent Gaussians cut off at the action range and renormalised. Their entropy is bounded: at most uniform.

    The mean lies within the range, so the cumulative probabilities of the two sides have opposite signs when counted
    from the mean (`erf`), and nothing cancels however small or large the deviation is.
    """

    mean: Array
    log_std: Array
    low: Array
    high: Array

    @staticmethod
    def noise(key: Array, shape: tuple[int, ...]) -> Array:
        """Uniform in [0, 1)."""
        return computed_once(jax.random.uniform(key, shape))

    def sample(self, noise: Array) -> Array:
        """`noise: [..., batch, dims]`, uniform in [0, 1) → actions of that shape, by the inverse CDF.

        Noise of 0 stays within 5.5 deviations of the mean, like any other, and is not sent to the bound.
        """
        low, high = map(jax.scipy.special.erf, self._bounds())
        z = jax.scipy.special.erfinv(jnp.clip(low + noise * (high - low), -_BELOW_ONE, _BELOW_ONE))
        return jnp.clip(self.mean + math.sqrt(2.0) * jnp.exp(self.log_std) * z, self.low, self.high)

    def log_prob(self, action: Array) -> Array:
        """`action: [..., batch, dims]`, within the range → `[..., batch]`."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return (_log_density(z, self.log_std) - jnp.log(self._mass())).sum(-1)

    def entropy(self) -> Array:
        """`[batch]`."""
        low, high = (bound * jnp.exp(-(bound**2)) / math.sqrt(math.pi) for bound in self._bounds())
        mass = self._mass()
        per_dimension = 0.5 * math.log(2 * math.pi * math.e) + self.log_std + jnp.log(mass) + (low - high) / (2 * mass)
        return per_dimension.sum(-1)

    def mode(self) -> Array:
        """The most likely action: the mean."""
        return jnp.clip(self.mean, self.low, self.high)

    def _bounds(self) -> tuple[Array, Array]:
        """The range in units of √2 deviations from the mean, as `erf` takes it."""
        scale = jnp.exp(-self.log_std) / math.sqrt(2.0)
        return (self.low - self.mean) * scale, (self.high - self.mean) * scale

    def _mass(self) -> Array:
        """The probability that the Gaussian has within the range."""
        low, high = map(jax.scipy.special.erf, self._bounds())
        return (high - low) / 2


def _log_density(z: Array, log_std: Array) -> Array:
    """That of a Gaussian, `z` deviations from its mean."""
    return -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)


GAUSSIANS: dict[str, Any] = {
    "gaussian": ClippedGaussian,
    "squashed": SquashedGaussian,
    "truncated-gaussian": TruncatedGaussian,
}


class Softmax(NamedTuple):
    """Probabilities proportional to exp(logits) over the actions 0, 1, …"""

    logits: Array

    def sample(self, noise: Array) -> Array:
        """`noise: [..., batch, actions]` of standard Gumbels → actions `[..., batch]`."""
        return jnp.argmax(self.logits + noise, -1)

    def sample_and_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """A sample and its log-likelihood."""
        action = self.sample(noise)
        return action, self.log_prob(action)

    def log_probs(self) -> Array:
        """`[batch, actions]`, of every action."""
        return jax.nn.log_softmax(self.logits)

    def log_prob(self, action: Array) -> Array:
        """`action: [..., batch]` → `[..., batch]`."""
        return select(self.log_probs(), action)

    def expectation(self, values: Array) -> Array:
        """E f(A) from f of every action `[batch, actions]` → `[batch]`."""
        return (jnp.exp(self.log_probs()) * values).sum(-1)

    def entropy(self) -> Array:
        """`[batch]`."""
        log_probs = self.log_probs()
        return -(jnp.exp(log_probs) * log_probs).sum(-1)

    def mode(self) -> Array:
        """The most likely action; the first of several."""
        return jnp.argmax(self.logits, -1)


ENTROPY_ESTIMATORS = ("score", "exact", "released")


def entropy_term(estimator: str, sample_log_prob: Array, exact_entropy: Array) -> Array:
    """A function of a policy's parameters whose gradient estimates that of its entropy.

    `score`: −log π(a)·∇log π(a) at one sample, unbiased for an unclipped policy. `exact`: the closed form.
    `released`: −∇log π(a), what the published code follows; its expectation is zero for an unclipped policy.
    """
    if estimator == "score":
        return -jax.lax.stop_gradient(sample_log_prob) * sample_log_prob
    return exact_entropy if estimator == "exact" else -sample_log_prob


def policy_stats(name: str, policy: Any) -> dict[str, Array]:
    """How widely a policy chooses: its entropy and, if it is Gaussian, deviation; means over states and dimensions.

    Of a squashed Gaussian the deviation before it is squashed.
    """
    entropy = {f"{name}_entropy": policy.entropy().mean()}
    return entropy if isinstance(policy, Softmax) else entropy | {f"{name}_deviation": jnp.exp(policy.log_std).mean()}
