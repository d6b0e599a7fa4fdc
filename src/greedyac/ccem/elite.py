"""Conditional CEM (Algorithms 1 and 2 of the paper) as pure functions that know nothing of networks.

Sampled actions of one state stand on the leading axis: `[samples, batch, ...]`.
"""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
from jax import Array


def elite_count(elite_fraction: float, samples: int) -> int:
    """h = ⌈ρN⌉ with the ρ that was meant: 0.1 × 30 gives 3 and 1/11 × 11 gives 1, though floats would give more."""
    return max(1, math.ceil(_meant(elite_fraction) * samples))


def greedy_suffices(elite_fraction: float, actions: int) -> bool:
    """Whether |A| ≤ 1/ρ: the top percentile of so few actions is the greedy one, and no proposal is needed."""
    return _meant(elite_fraction) * actions <= 1


def _meant(fraction: float) -> Fraction:
    """The simple fraction next to a float: 1/10 for 0.1, whose float is a little more."""
    return Fraction(fraction).limit_denominator(10**9)


def elites(actions: Array, values: Array, count: int) -> Array:
    """Algorithm 1: of each state's sampled actions the `count` with the highest values, best first.

    `actions: [samples, batch, ...]`, `values: [samples, batch]` → `[count, batch, ...]`. Of equal values the one
    sampled first is taken first; NaN counts as −∞.
    """
    ranked = jnp.where(jnp.isnan(values), -jnp.inf, jnp.where(values == 0, 0.0, values))  # top_k puts −0 below 0
    _, best = jax.lax.top_k(jnp.moveaxis(ranked, 0, -1), count)
    best = jnp.moveaxis(best, -1, 0)
    return jnp.take_along_axis(actions, best.reshape(best.shape + (1,) * (actions.ndim - best.ndim)), 0)


def greedy_shares(values: Array) -> Array:
    """argmax over discrete actions, as the share of each: 1 for the best, evenly split among ties, else 0.

    `values: [..., actions]`; NaN in gives NaN out.
    """
    best = (values == values.max(-1, keepdims=True)).astype(values.dtype)
    return best / best.sum(-1, keepdims=True)


def elite_loss(elite_log_probs: Array, entropy: Array, entropy_scale: float) -> Array:
    """What a policy descends to follow the elite actions: minus the mean of their log-likelihoods `[count, batch]`,
    less τ times the mean of an entropy term `[batch]`. In the paper τ is 0 for the actor.
    """
    return -elite_log_probs.mean() - entropy_scale * entropy.mean()


def greedy_loss(log_probs: Array, shares: Array, entropy: Array, entropy_scale: float) -> Array:
    """The same where the elite is the greedy action; the first two are `[batch, actions]`."""
    return -(shares * log_probs).sum(-1).mean() - entropy_scale * entropy.mean()
