"""Between an environment's own observations and actions, as Gymnasium's spaces describe them, and flat vectors.

Observations may be boxes of any shape, discrete, and dicts or tuples of these; actions boxes with finite bounds, or
discrete. Whatever else is refused in one line.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as theirs

from greedyac.errors import InputError
from greedyac.spaces import Box, Discrete, Spaces

MAX_FEATURES = 4096
"""Numbers in an observation: dense layers and a replay of float32 are no home for larger images."""
OBSERVATIONS = "Box, Discrete, MultiBinary, MultiDiscrete, and Dict or Tuple of these"
ACTIONS = "Discrete, and Box of real numbers with finite bounds"
Numbers = np.ndarray[Any, Any]


class Translation:
    """Between an environment's own observations and actions, and flat vectors and numbers."""

    def __init__(self, observations: Any, actions: Any):
        self.spaces = Spaces(_observation_box(observations), _action_space(actions))
        self._observations, self._actions = observations, actions
        self._is_box = isinstance(observations, theirs.Box)

    @classmethod
    def of(cls, spaces: Spaces) -> "Translation":
        """Of an environment whose observations and actions are ours."""
        action = spaces.action
        made = cls(
            _gym_box(spaces.observation), _gym_box(action) if isinstance(action, Box) else theirs.Discrete(action.count)
        )
        made.spaces = spaces  # whose bounds Gymnasium has rounded
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Translation) and self._theirs == other._theirs

    def __hash__(self) -> int:
        return hash(self.spaces)

    @property
    def _theirs(self) -> tuple[Any, Any]:
        return self._observations, self._actions

    def observation(self, given: Any) -> Numbers:
        """`[features]` in float32, of an observation as the environment gives it."""
        flat = np.asarray(given if self._is_box else theirs.flatten(self._observations, given), np.float32).ravel()
        if len(flat) != self.spaces.observation.size:
            raise ValueError(f"an observation of {len(flat)} numbers; its space has {self.spaces.observation.size}")
        return flat

    def batch(self, given: Any) -> tuple[Numbers, bool]:
        """`[batch, features]` of one or several observations, and whether it was one; else an `InputError`."""
        if self._is_box:
            flat, single = self._boxes(given)
        else:
            single = (
                np.ndim(given) == 0 if isinstance(self._observations, theirs.Discrete) else not isinstance(given, list)
            )
            several = [given] if single else list(given)
            if wrong := [one for one in several if not self._observations.contains(_plain(one))]:
                allowed = f"one of {self._shape_words()}, or a list of such"
                raise InputError(f"an observation {_short(wrong[0])} is not allowed; allowed: {allowed}")
            flat = np.array([self.observation(_plain(one)) for one in several], np.float32).reshape(len(several), -1)
        if np.isnan(flat).any():
            raise InputError(f"an observation with NaN in it is not allowed; allowed: {self._shape_words()} of numbers")
        return flat, single

    def _boxes(self, given: Any) -> tuple[Numbers, bool]:
        shape = self._observations.shape
        try:
            numbers = np.asarray(given, np.float32)
        except (TypeError, ValueError):
            raise InputError(f"an observation {_short(given)} is not allowed; allowed: {self._shape_words()}") from None
        if numbers.shape not in (shape, (len(numbers) if numbers.ndim else 0, *shape)):
            raise InputError(f"an observation of shape {numbers.shape} is not allowed; allowed: {self._shape_words()}")
        return numbers.reshape(-1, self.spaces.observation.size), numbers.shape == shape

    def _shape_words(self) -> str:
        shape = self._observations.shape
        return f"{shape} or ({', '.join(map(str, ('batch', *shape)))})" if self._is_box else _short(self._observations)

    def action(self, chosen: Numbers) -> Any:
        """An action as the environment takes it, of ours: `[dims]`, or a whole number from 0."""
        return self.actions(chosen[None])[0]

    def actions(self, chosen: Numbers) -> Any:
        """Several of them, `[batch, ...]`."""
        if isinstance(self._actions, theirs.Discrete):
            return chosen.astype(self._actions.dtype) + self._actions.start
        return chosen.reshape(-1, *self._actions.shape).astype(self._actions.dtype)

    def own(self, action: Any) -> Numbers:
        """The inverse of `action`."""
        if isinstance(self._actions, theirs.Discrete):
            return np.asarray(action - self._actions.start)
        return np.asarray(action, np.float32).ravel()

    def to_json(self) -> dict[str, Any]:
        """The environment's own spaces as plain JSON values."""
        return {"observation": _described(self._observations), "action": _described(self._actions)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Translation":
        """The inverse of `to_json`."""
        return cls(_space(values["observation"]), _space(values["action"]))


def _gym_box(box: Box) -> theirs.Box:
    return theirs.Box(np.array(box.low, np.float32), np.array(box.high, np.float32))


def _plain(given: Any) -> Any:
    """A whole number as NumPy has it, which Gymnasium's discrete spaces want."""
    return np.int64(given) if isinstance(given, int) else given


def _described(space: Any) -> dict[str, Any]:
    """A space as plain JSON values."""
    if isinstance(space, theirs.Box):
        bounds = {
            name: [b if math.isfinite(b) else None for b in getattr(space, name).ravel().tolist()]
            for name in ("low", "high")
        }
        return {"box": bounds, "shape": space.shape, "dtype": str(space.dtype)}
    if isinstance(space, theirs.Discrete):
        return {"discrete": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, theirs.MultiBinary):
        return {"binary": np.asarray(space.n).tolist()}
    if isinstance(space, theirs.MultiDiscrete):
        return {"multi": space.nvec.tolist(), "start": space.start.tolist(), "dtype": str(space.dtype)}
    if isinstance(space, theirs.Tuple):
        return {"tuple": [_described(part) for part in space.spaces]}
    return {"dict": {str(name): _described(part) for name, part in space.spaces.items()}}


def _space(values: dict[str, Any]) -> Any:
    """The inverse of `_described`."""
    kind = next(iter(values))
    match kind:
        case "box":
            low, high = (
                np.array([none if b is None else b for b in values["box"][name]], values["dtype"]).reshape(
                    values["shape"]
                )
                for name, none in (("low", -math.inf), ("high", math.inf))
            )
            return theirs.Box(low, high, tuple(values["shape"]), np.dtype(values["dtype"]).type)
        case "discrete":
            return theirs.Discrete(values["discrete"], start=values["start"], dtype=np.dtype(values["dtype"]).type)
        case "binary":
            return theirs.MultiBinary(values["binary"])
        case "multi":
            return theirs.MultiDiscrete(values["multi"], np.dtype(values["dtype"]).type, start=values["start"])
        case "tuple":
            return theirs.Tuple([_space(part) for part in values["tuple"]])
    return theirs.Dict({name: _space(part) for name, part in values["dict"].items()})


def translation_of(name: str, env: Any) -> Translation:
    """How the observations and actions of an environment become ours."""
    if not isinstance(env, gymnasium.Env):
        raise InputError(f"environment {name!r} is a {type(env).__name__}; allowed: a gymnasium.Env")
    try:
        return Translation(env.observation_space, env.action_space)
    except InputError as error:
        raise InputError(f"environment {name!r} {error}") from None


def _observation_box(space: Any) -> Box:
    if not _is_known(space):
        raise InputError(f"has observations {_short(space)}; allowed: {OBSERVATIONS}")
    if (size := theirs.flatdim(space)) > MAX_FEATURES or size == 0:
        raise InputError(
            f"has observations of {size:,} numbers; allowed: 1 to {MAX_FEATURES:,}; images can be made smaller by "
            f"wrappers such as gymnasium.wrappers.ResizeObservation and GrayscaleObservation"
        )
    flat: Any = theirs.flatten_space(space)
    return Box(tuple(map(float, flat.low.ravel())), tuple(map(float, flat.high.ravel())))


def _is_known(space: Any) -> bool:
    if isinstance(space, theirs.Dict):
        return all(map(_is_known, space.values()))
    if isinstance(space, theirs.Tuple):
        return all(map(_is_known, space))
    return isinstance(space, theirs.Box | theirs.Discrete | theirs.MultiBinary | theirs.MultiDiscrete)


def _action_space(space: Any) -> Box | Discrete:
    if isinstance(space, theirs.Discrete):
        return Discrete(int(space.n))
    allowed = f"; allowed: {ACTIONS}"
    if not isinstance(space, theirs.Box) or not np.issubdtype(space.dtype, np.floating):
        raise InputError(f"has actions {_short(space)}{allowed}")
    low, high = (tuple(map(float, np.asarray(bound, np.float32).ravel())) for bound in (space.low, space.high))
    if not low or not all(math.isfinite(bound) for bound in low + high):
        raise InputError(f"has actions {_short(space)}{allowed}")
    if any(below >= above for below, above in zip(low, high, strict=True)):
        raise InputError(f"has actions {_short(space)}, some of which can't be chosen{allowed}, lower below upper")
    return Box(low, high)


def _short(thing: Any) -> str:
    text = " ".join(str(thing).split())
    return text if len(text) <= 80 else text[:79] + "…"
