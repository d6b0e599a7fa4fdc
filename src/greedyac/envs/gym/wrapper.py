"""The built-in environments seen through Gymnasium: `gymnasium.make("greedyac/Pendulum-CA-v0")`.

The wrapper runs the compiled `reset` and `step` of its environment, on the CPU, and shows what rendering.py draws.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, cast

import gymnasium
import jax
import numpy as np
from gymnasium.error import ResetNeeded
from jax import Array
from numpy.typing import NDArray

from greedyac.core import prng, xla
from greedyac.core.errors import InputError, unknown_name
from greedyac.core.fields import check_int
from greedyac.core.spaces import Box, Discrete
from greedyac.core.streams import MAX_SEED, Stream, stream_key
from greedyac.core.xla import configured
from greedyac.envs.base import Env, EnvState, Transition
from greedyac.envs.classic.control import Control
from greedyac.envs.gym.adapter import gym_space
from greedyac.envs.registry import make_env
from greedyac.envs.rendering import Frame, drawing_of

Observation = NDArray[Any]
Action = NDArray[np.float32] | np.int32


class Compiled(NamedTuple):
    """An environment's `reset` of an episode's seed, and its `step` with that seed."""

    reset: Callable[[Array], tuple[EnvState, Array]]
    step: Callable[[EnvState, Action, Array], tuple[EnvState, Transition]]


@lru_cache(maxsize=128)
def compiled(env: Env) -> Compiled:
    """Programs for one environment with its options, compiled when they are first called.

    The seed's key gives the start by `stream_key(key, Stream.START, 0)` and the step after `t` others by
    `stream_key(key, Stream.MOVE, t)`: the first episode of a run with that seed.
    """

    def key_of(seed: Array) -> Array:
        return jax.random.key(seed, impl=prng.KEYS)

    def reset(seed: Array) -> tuple[EnvState, Array]:
        return env.reset(stream_key(key_of(seed), Stream.START, 0))

    def step(state: EnvState, action: Array, seed: Array) -> tuple[EnvState, Transition]:
        return env.step(state, action, stream_key(key_of(seed), Stream.MOVE, state.time))

    return Compiled(configured(jax.jit(reset)), configured(jax.jit(step)))


class GymnasiumWrapper(gymnasium.Env[Observation, Any]):
    """A built-in environment by its name, with its options as keyword arguments.

    An episode follows from the seed of its `reset` and the actions. The time limit is the option `time_limit`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "human"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, name: str, render_mode: str | None = None, **options: object) -> None:
        self.world = make_env(name, options)
        self.render_mode = render_mode
        self._inner = self.world.spaces
        self.observation_space = gym_space(self._inner.observation)
        self.action_space = gym_space(self._inner.action)
        self._seed: Array | None = None
        self._state: EnvState | None = None
        self._force = 0.0
        self._window: _Window | None = None
        if render_mode is not None:
            self._prepare(render_mode)

    def _prepare(self, render_mode: str) -> None:
        if render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render mode", render_mode, self.metadata["render_modes"])
        self._drawing = drawing_of(self.world)
        self.metadata = {**self.metadata, "render_fps": self._drawing.frames_per_second}
        if render_mode == "human":
            _pygame()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new episode from the seed, or from one that `np_random` draws. There are no options."""
        if seed is not None:
            seed = check_int("seed", seed, 0, MAX_SEED)
        super().reset(seed=seed)
        drawn = self.np_random.integers(MAX_SEED, endpoint=True) if seed is None else seed
        xla.start()
        [cpu, *_] = jax.local_devices(backend="cpu")
        self._seed = jax.device_put(np.uint32(drawn), cpu)  # what is computed from it stays there
        self._state, observation = compiled(self.world).reset(self._seed)
        self._force = 0.0
        if self.render_mode == "human":
            self.render()
        return self._shown(observation), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One step of time: observation, reward, terminated, truncated, and no more information."""
        if self._state is None or self._seed is None:
            raise ResetNeeded("call reset before step")
        given, self._force = self._understood(action)
        self._state, seen = compiled(self.world).step(self._state, given, self._seed)
        if self.render_mode == "human":
            self.render()
        return self._shown(seen.observation), seen.reward.item(), seen.terminated.item(), seen.truncated.item(), {}

    def _shown(self, observation: Array) -> Observation:
        """An observation as it is in the space: a vector, or a grid."""
        space: Any = self.observation_space
        return np.array(observation).astype(space.dtype, copy=False).reshape(space.shape)

    def _understood(self, action: Any) -> tuple[Action, float]:
        """The action as the compiled step takes it, and the force it stands for, if it is one."""
        space = self._inner.action
        if isinstance(space, Box):
            vector = _vector(action, space)
            return vector, float(vector[0])
        number = _number(action, space)
        if not isinstance(self.world, Control):
            return number, 0.0
        (low,), (high,) = self.world.action_box.low, self.world.action_box.high
        return number, (low, (low + high) / 2, high)[number]

    def render(self) -> Frame | None:
        """The picture `[height, width, 3]` in the mode `rgb_array`; in `human` it goes to a window, at its pace."""
        if self.render_mode is None:
            gymnasium.logger.warn('render draws nothing without a render_mode, such as render_mode="rgb_array"')
            return None
        if self._state is None:
            raise ResetNeeded("call reset before render")
        frame = self._drawing.draw(self.world, jax.tree.map(np.asarray, self._state.physics), self._force)
        if self.render_mode == "rgb_array":
            return frame
        if self._window is None:
            self._window = _Window(frame, f"greedyac {type(self.world).__name__}")
        self._window.show(frame, self.metadata["render_fps"])
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a copy opens its own


class _Window:
    """A window of pygame's, as large as a frame."""

    def __init__(self, frame: Frame, title: str) -> None:
        self._pygame = _pygame()
        self._pygame.display.init()
        self._size = frame.shape[1], frame.shape[0]
        self._surface = self._pygame.display.set_mode(self._size)
        self._pygame.display.set_caption(title)
        self._clock = self._pygame.time.Clock()

    def show(self, frame: Frame, frames_per_second: int) -> None:
        """Show the frame when it is due."""
        self._pygame.event.pump()
        self._surface.blit(self._pygame.image.frombuffer(frame.tobytes(), self._size, "RGB"), (0, 0))
        self._clock.tick(frames_per_second)
        self._pygame.display.flip()

    def close(self) -> None:
        """Take it away."""
        self._pygame.display.quit()


def _pygame() -> Any:
    try:
        import pygame
    except ImportError:
        raise InputError("render_mode = human needs pygame: pip install 'greedyac[play]'") from None
    return pygame


def _vector(action: Any, box: Box) -> NDArray[np.float32]:
    """The action clipped to the box, or an `InputError`."""
    try:
        given = np.asarray(action)
    except ValueError:
        given = np.asarray(None)
    if given.shape != (box.size,) or given.dtype.kind not in "fiu" or np.isnan(given).any():
        raise _refused(action, f"{box.size} number{'s' * (box.size > 1)} in {box}, in one array")
    bounds = zip(given.tolist(), box.low, box.high, strict=True)
    return np.array([min(max(number, low), high) for number, low, high in bounds], np.float32)


def _number(action: Any, space: Discrete) -> np.int32:
    """The action as a whole number of the space, or an `InputError`."""
    try:
        given = np.asarray(action)
    except ValueError:
        given = np.asarray(None)
    if given.shape != () or given.dtype.kind not in "iu" or not 0 <= given < space.count:
        raise _refused(action, str(space))
    return cast(np.int32, given.astype(np.int32)[()])


def _refused(action: Any, allowed: str) -> InputError:
    shown = " ".join(repr(action).split())
    return InputError(f"action {shown if len(shown) <= 60 else shown[:57] + '...'} is not allowed; allowed: {allowed}")
