"""A trained policy at work on its environment, as frames, with or without a panel that explains its actions."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp

from greedyac.core.errors import InputError
from greedyac.envs import ENVS, HostEnv
from greedyac.envs.gym.host import words_of
from greedyac.training.checkpoint import Policy
from greedyac.training.normalize import normal_observation
from greedyac.training.program import static_part
from greedyac.video.explain import explain
from greedyac.video.frame import Frame
from greedyac.video.panel import Panel
from greedyac.video.record import episode_frames

FPS = 30.0
"""Of environments that don't say how fast they should be shown."""


def drawn_env(policy: Policy) -> gymnasium.Env[Any, Any]:
    """The environment of a policy, in the form that draws itself."""
    config = policy.run.config
    if config.env in ENVS:
        return gymnasium.make(f"greedyac/{config.env}-v0", render_mode="rgb_array", **dict(config.env_options))
    assert isinstance(config.world, HostEnv)
    return policy.prepare(config.world.make(render_mode="rgb_array"))


def frames_per_second(env: gymnasium.Env[Any, Any]) -> float:
    """How fast the environment should be shown."""
    return float(env.metadata.get("render_fps") or FPS)


def play(
    env: gymnasium.Env[Any, Any], policy: Policy, seed: int, steps: int, deterministic: bool, explained: bool
) -> Iterator[Frame]:
    """One episode, of at most so many steps; the environment is closed after it."""
    panel, agent = Panel(), static_part(policy.agent)
    key = jax.random.key(seed)  # one for all frames: the samples move, and don't flicker

    def act(observation: Any) -> Any:
        return policy.predict(observation, deterministic).action

    def why(observation: Any, action: Any) -> Frame:
        seen = normal_observation(policy.scales, jnp.asarray(policy.adapter.observation(observation)))
        return panel.draw(explain(agent, policy.state, policy.spaces, seen, key), policy.adapter.own(action))

    with closing(env):
        try:
            yield from episode_frames(env, act, seed, steps, why if explained else None)
        except (InputError, GeneratorExit):
            raise
        except Exception as error:  # theirs: of any kind
            raise InputError(f"environment {policy.run.config.env!r} can't be played: {words_of(error)}") from None
