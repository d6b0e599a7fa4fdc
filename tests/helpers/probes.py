"""Tiny environments whose action values are known by hand."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.envs import Control

CONSTANT, BY_OBSERVATION, TWO_STEPS, BY_ACTION, BY_BOTH = range(5)


class Probe(NamedTuple):
    kind: Array
    signal: Array


@dataclass(frozen=True)
class FiveProbes(Control):
    """Each episode is one of five probes; the observation names it (one-hot) and carries a signal.

    Constant: reward 1. By observation: the signal, ±1. Two steps: 0 with the signal −1, then 1 with the signal 1.
    By action: 1 − (force − 0.5)² with continuous actions, −force with discrete ones. By both: signal × force, ±1.
    """

    observation_space = Box((0.0,) * 5 + (-1.0,), (1.0,) * 6)
    action_box = Box((-1.0,), (1.0,))

    def begin(self, key: Array) -> Probe:
        kind_key, signal_key = jax.random.split(key)
        kind = jax.random.randint(kind_key, (), 0, 5)
        signal = jnp.where(jax.random.bernoulli(signal_key), 1.0, -1.0)
        return Probe(kind, jnp.stack([jnp.float32(0), signal, jnp.float32(-1), jnp.float32(0), signal])[kind])

    def observe(self, physics: Probe) -> Array:
        return jnp.append(jax.nn.one_hot(physics.kind, 5), physics.signal)

    def push(self, physics: Probe, force: Array) -> tuple[Probe, Array, Array]:
        kind, signal = physics
        second = (kind == TWO_STEPS) & (signal > 0)
        by_action = 1 - (force - 0.5) ** 2 if self.continuous else -force
        reward = jnp.stack([jnp.float32(1), signal, second.astype(jnp.float32), by_action, signal * force])[kind]
        return Probe(kind, jnp.float32(1)), reward, (kind != TWO_STEPS) | second


@dataclass(frozen=True)
class ManyActions(FiveProbes):
    """The same probes with 25 discrete actions, evenly spread over the continuous ones, and their rewards."""

    count: ClassVar[int] = 25

    @property
    def spaces(self) -> Spaces:
        return Spaces(self.observation_space, Discrete(self.count))

    def _force(self, action: Array) -> Array:
        return jnp.linspace(-1.0, 1.0, self.count)[action]


@dataclass(frozen=True)
class Endless(Control):
    """Pays 1 per step and never terminates; only the time limit cuts its episodes."""

    observation_space = Box((0.0,), (1.0,))
    action_box = Box((-1.0,), (1.0,))

    def begin(self, key: Array) -> Array:
        return jnp.float32(1)

    def observe(self, physics: Array) -> Array:
        return physics[None]

    def push(self, physics: Array, force: Array) -> tuple[Array, Array, Array]:
        return physics, jnp.float32(1), jnp.bool_(False)


@dataclass(frozen=True)
class Quits(Control):
    """Starts anywhere in [0, 1] and terminates as soon as the force is positive: the policy decides how long."""

    observation_space = Box((0.0,), (1.0,))
    action_box = Box((-1.0,), (1.0,))

    def begin(self, key: Array) -> Array:
        return jax.random.uniform(key)

    def observe(self, physics: Array) -> Array:
        return physics[None]

    def push(self, physics: Array, force: Array) -> tuple[Array, Array, Array]:
        return physics, jnp.float32(0), force > 0


@dataclass(frozen=True)
class TwoPixels(Control):
    """One of two pixels of a grid of bits is lit, all else is noise: 1 for a force to its side, −1 to the other."""

    observation_space = Box((0.0,) * 40, (1.0,) * 40, (4, 5, 2), "bool")
    action_box = Box((-1.0,), (1.0,))

    def begin(self, key: Array) -> tuple[Array, Array]:
        signal_key, noise_key = jax.random.split(key)
        signal = jnp.where(jax.random.bernoulli(signal_key), 1.0, -1.0)
        return signal, jax.random.bernoulli(noise_key, shape=(4, 5)).astype(jnp.float32)

    def observe(self, physics: tuple[Array, Array]) -> Array:
        signal, noise = physics
        lit = jnp.zeros((4, 5)).at[2, 1].set(signal < 0).at[2, 3].set(signal > 0)
        return jnp.stack([noise, lit], -1).ravel()

    def push(self, physics: tuple[Array, Array], force: Array) -> tuple[tuple[Array, Array], Array, Array]:
        return physics, physics[0] * force, jnp.bool_(True)
