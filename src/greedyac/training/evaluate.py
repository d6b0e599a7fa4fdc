"""Evaluation of a policy: whole episodes with learning off, all at once in one compiled program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import stats

from greedyac.hypers import whole
from greedyac.training.checkpoint import Policy
from greedyac.training.runs import check_seeds
from greedyac.training.streams import Stream, stream_key


class Evaluation(NamedTuple):
    """The return of each episode, their mean, and its 95 % interval (Student's t; None for one episode)."""

    returns: list[float]
    mean: float
    interval: tuple[float, float] | None


def evaluate(policy: Policy, episodes: int = 10, seed: int = 0, deterministic: bool = True) -> Evaluation:
    """Episodes on the policy's own environment, with the most likely action or with samples."""
    episodes = whole("episodes", episodes, 1, 1_000_000)
    [seed] = check_seeds([seed])
    env, agent, state = policy.run.case.world, policy.agent, policy.state

    def episode(key: Array) -> Array:
        def under_way(carry: Any) -> Array:
            return ~carry[-1]

        def step(carry: Any) -> Any:
            env_state, observation, time, total, _ = carry
            act_key, move_key = jax.random.split(jax.random.fold_in(key, time + 1))
            action = agent.act(state, observation, act_key, greedy=deterministic)
            env_state, moved = env.step(env_state, action, move_key)
            ended = moved.terminated | moved.truncated
            return env_state, moved.observation, time + 1, total + moved.reward, ended

        begun = (*env.reset(jax.random.fold_in(key, 0)), jnp.int32(0), jnp.float32(0), jnp.bool_(False))
        return jax.lax.while_loop(under_way, step, begun)[3]

    def numbered(index: Array) -> Array:
        return episode(stream_key(jax.random.key(seed), Stream.EVALUATE, index))

    returns = np.asarray(jax.jit(jax.vmap(numbered))(jnp.arange(episodes)), np.float64)
    return Evaluation(returns.tolist(), float(returns.mean()), _interval(returns))


def _interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)
