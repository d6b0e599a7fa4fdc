"""Evaluation of a policy: whole episodes with learning off."""

from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from scipy import stats

from greedyac.core.fields import check_int
from greedyac.envs import HostEnv
from greedyac.training.checkpoint import Policy
from greedyac.training.config import check_seeds
from greedyac.training.episodes import compiled_returns, host_returns
from greedyac.training.program import static_part


class Evaluation(NamedTuple):
    """The return of each episode, their mean, and its 95 % interval (Student's t; None for one episode)."""

    returns: list[float]
    mean: float
    interval: tuple[float, float] | None


class Trained(Protocol):
    """What has learned a policy: a model of the front."""

    @property
    def policy(self) -> Policy:
        """As it is now."""


def evaluate(policy: Policy | Trained, episodes: int = 10, seed: int = 0, deterministic: bool = True) -> Evaluation:
    """Episodes on the policy's own environment, with the most likely action or with samples."""
    policy = policy if isinstance(policy, Policy) else policy.policy
    episodes = check_int("episodes", episodes, 1, 1_000_000)
    [seed] = check_seeds([seed])
    agent = static_part(policy.agent)  # the traced fields play no part, and would have it compiled anew
    world, trained = policy.run.config.world, (policy.state, policy.scales, jax.random.key(seed))
    if isinstance(world, HostEnv):
        env = world.make()
        try:
            told = agent, policy.prepare(env), policy.adapter, *trained, seed, 0, episodes, deterministic
            returns = np.array(host_returns(*told))
        finally:
            world.close(env)
    else:
        returns = np.array(compiled_returns(agent, world, *trained, 0, episodes, deterministic))
    return Evaluation(returns.tolist(), float(returns.mean()), _interval(returns))


def _interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)
