"""Whole episodes with learning off: on a compiled environment all at once, on the host one after another."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.core.streams import Stream, host_seed, stream_key
from greedyac.core.xla import configured
from greedyac.envs import Env
from greedyac.envs.gym.adapter import SpaceAdapter
from greedyac.envs.gym.calls import reset_env, step_env
from greedyac.training.normalize import normal_observation

MOST_STEPS = 100_000
"""Of an episode on the host: a policy that is not trained may never end one that has no time limit."""


def compiled_returns(
    agent: Any, env: Env, state: Any, scales: Any, key: Array, first: int, episodes: int, greedy: bool
) -> list[float]:
    """The returns of the episodes from the number `first` on, of an agent's `state`."""
    numbers = jnp.arange(first, first + episodes)
    returns = _returns(agent, env, greedy)(state, scales, key, numbers)
    return np.asarray(returns, np.float64).tolist()


@lru_cache(maxsize=8)
def _returns(agent: Any, env: Env, greedy: bool) -> Any:
    """The compiled function from an agent's state to the returns of numbered episodes."""

    def episode(state: Any, scales: Any, key: Array) -> Array:
        def under_way(carry: Any) -> Array:
            return ~carry[-1]

        def step(carry: Any) -> Any:
            env_state, observation, time, total, _ = carry
            act_key, move_key = jax.random.split(jax.random.fold_in(key, time + 1))
            action = agent.act(state, normal_observation(scales, observation), act_key, greedy=greedy)
            env_state, moved = env.step(env_state, action, move_key)
            ended = moved.terminated | moved.truncated
            return env_state, moved.observation, time + 1, total + moved.reward, ended

        begun = (*env.reset(jax.random.fold_in(key, 0)), jnp.int32(0), jnp.float32(0), jnp.bool_(False))
        return jax.lax.while_loop(under_way, step, begun)[3]

    def numbered(state: Any, scales: Any, key: Array, numbers: Array) -> Array:
        keys = jax.vmap(lambda number: stream_key(key, Stream.EVALUATE, number))(numbers)
        return jax.vmap(episode, in_axes=(None, None, 0))(state, scales, keys)

    return configured(jax.jit(numbered))


def host_returns(
    agent: Any,
    env: Any,
    adapter: SpaceAdapter,
    state: Any,
    scales: Any,
    key: Array,
    seed: int,
    first: int,
    episodes: int,
    greedy: bool,
) -> list[float]:
    """The same on a Gymnasium environment, whose resets have seeds of their own stream."""
    act, returns = _act(agent, greedy), []
    for number in range(first, first + episodes):
        episode_key = stream_key(key, Stream.EVALUATE, number)
        observation = reset_env(env, adapter, host_seed(seed, Stream.EVALUATE, number))
        total, time, ended = 0.0, 0, False
        while not ended:
            if time == MOST_STEPS:
                raise ValueError(f"an episode has not ended after {MOST_STEPS:,} steps; it needs a time limit")
            chosen = np.asarray(act(state, scales, observation, episode_key, np.int32(time)))
            observation, reward, terminated, truncated = step_env(env, adapter, chosen)
            total, time, ended = total + reward, time + 1, bool(terminated or truncated)
        returns.append(total)
    return returns


@lru_cache(maxsize=8)
def _act(agent: Any, greedy: bool) -> Any:
    def act(state: Any, scales: Any, observation: Array, key: Array, time: Array) -> Array:
        act_key = jax.random.fold_in(key, time)
        return agent.act(state, normal_observation(scales, observation), act_key, greedy=greedy)

    return configured(jax.jit(act))
