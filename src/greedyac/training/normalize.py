"""Observation and reward normalisation: running means and deviations of what a run has seen, as pure functions.

The replay keeps what the environment gave; what an agent acts on and learns from is normalised with all that is known
by then.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

LIMIT = 10.0
"""Normalised numbers are clipped to ±this."""


class Moments(NamedTuple):
    """Of the numbers seen so far: how many, their mean, and the sum of squared distances from it."""

    number: Array
    mean: Array
    squares: Array


class Scales(NamedTuple):
    """What is known of observations, `[features]` each, and of discounted returns; None of what stays as it is."""

    observation: Moments | None
    reward: Moments | None
    discounted: Array
    """The rewards of the episode so far, the older the more discounted."""


def unknown_scales(features: int, observations: bool, rewards: bool) -> Scales | None:
    """Nothing was seen yet; None if nothing is to be normalised."""
    if not (observations or rewards):
        return None
    return Scales(_nothing((features,)) if observations else None, _nothing(()) if rewards else None, jnp.float32(0))


def _nothing(shape: tuple[int, ...]) -> Moments:
    return Moments(jnp.float32(0), jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))


def seen(scales: Scales, observation: Array, reward: Array, ended: Array, discount: float) -> Scales:
    """What is known after one more step: the observation that was acted on, and the reward that followed."""
    discounted = discount * scales.discounted + reward
    return Scales(
        None if scales.observation is None else _one_more(scales.observation, observation),
        None if scales.reward is None else _one_more(scales.reward, discounted),
        jnp.where(ended, 0.0, discounted),
    )


def _one_more(moments: Moments, number: Array) -> Moments:
    """Welford's rule."""
    count = moments.number + 1
    off = number - moments.mean
    mean = moments.mean + off / count
    return Moments(count, mean, moments.squares + off * (number - mean))


def _deviation(moments: Moments) -> Array:
    """1 until there are two numbers."""
    return jnp.where(moments.number > 1, jnp.sqrt(moments.squares / jnp.maximum(moments.number, 1) + 1e-8), 1.0)


def normal_observation(scales: Scales | None, observation: Array) -> Array:
    """`observation: [..., features]`, centred and in units of its deviation."""
    if scales is None or (moments := scales.observation) is None:
        return observation
    return jnp.clip((observation - moments.mean) / _deviation(moments), -LIMIT, LIMIT)


def normal_reward(scales: Scales | None, reward: Array) -> Array:
    """`reward: [...]` in units of the deviation of discounted returns; not centred, which would change the task."""
    if scales is None or (moments := scales.reward) is None:
        return reward
    return jnp.clip(reward / _deviation(moments), -LIMIT, LIMIT)
