"""Between an environment's own observations and actions, as Gymnasium's spaces describe them, and flat vectors.

Observations may be boxes of any shape, discrete, and dicts or tuples of these; actions boxes with finite bounds, or
discrete. Whatever else is refused in one line. Boxes [rows, columns, channels], and [rows, columns] of bytes or bits if
a kernel fits into them, are grids, which networks look at with a convolution; also where they are parts of a dict or
tuple. A part [rows, columns, channels] that is smaller than a kernel stays flat; if it is of bytes, they are scaled
like those of any image.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as theirs

from greedyac.core.counting import counted
from greedyac.core.errors import InputError
from greedyac.core.spaces import KERNEL, Box, Discrete, Image, Spaces

MAX_FEATURES = 4096
"""Numbers in an observation: these networks, with one convolution and dense layers, are no home for larger images."""
OBSERVATIONS = "Box, Discrete, MultiBinary, MultiDiscrete, and Dict or Tuple of these"
ACTIONS = "Discrete, and Box of real numbers with finite bounds"
Numbers = np.ndarray[Any, Any]


class SpaceAdapter:
    """Between an environment's own observations and actions, and flat vectors and numbers.

    Without `images` those inside a dict or tuple are plain numbers, as in files of agents that were trained that way.
    """

    def __init__(self, observations: Any, actions: Any, images: bool = True):
        self.spaces = Spaces(_observation_box(observations, images), _action_space(actions))
        self._unit = np.asarray(self.spaces.observation.unit, np.float32)
        self._observations, self._actions = observations, actions
        self._is_box = isinstance(observations, theirs.Box)
        self._starts_at = int(actions.start) if isinstance(actions, theirs.Discrete) else None
        self._action_type = actions.dtype.type

    @classmethod
    def of(cls, spaces: Spaces) -> "SpaceAdapter":
        """Of an environment whose observations and actions are ours."""
        made = cls(gym_space(spaces.observation), gym_space(spaces.action))
        made.spaces = spaces  # whose bounds Gymnasium has rounded
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpaceAdapter) and self._theirs == other._theirs

    def __hash__(self) -> int:
        return hash(self.spaces.action)  # of what is compared

    @property
    def _theirs(self) -> tuple[Any, Any]:
        return self._observations, self._actions

    def observation(self, given: Any) -> Numbers:
        """`[features]` in float32, of an observation as the environment gives it."""
        if given is None:
            raise ValueError("it is None")
        if self.spaces.observation.grid and np.shape(given) != self._observations.shape:
            raise ValueError(f"it has the shape {np.shape(given)}, and the space has {self._observations.shape}")
        flat = np.asarray(given if self._is_box else theirs.flatten(self._observations, given), np.float32).ravel()
        if len(flat) != (size := self.spaces.observation.size):
            raise ValueError(f"it has {counted(len(flat), 'number')}, and the space has {size}")
        return flat * self._unit

    def batch(self, given: Any) -> tuple[Numbers, bool]:
        """`[batch, features]` of one or several observations, and whether it was one; else an `InputError`."""
        single, several = self._apart(given)
        try:
            flat = [self.observation(one) for one in several]
        except Exception as error:  # theirs: of any kind
            raise self._refused(f"an observation {shortened(given)}") from error
        numbers = np.array(flat, np.float32).reshape(len(several), self.spaces.observation.size)
        if not np.isfinite(numbers).all():
            raise self._refused("an observation with NaN or infinity in it")
        return numbers, single

    def _apart(self, given: Any) -> tuple[bool, Any]:
        """Whether it is a single observation, and all of them in a row."""
        space = self._observations
        if isinstance(space, theirs.Dict | theirs.Tuple):
            return (False, given) if isinstance(given, list) else (True, [given])
        try:
            numbers = np.asarray(given)
        except ValueError:  # rows of different lengths
            raise self._refused(f"an observation {shortened(given)}") from None
        if numbers.dtype.kind not in "biuf" or (not self._is_box and numbers.dtype.kind == "f" and numbers.size):
            raise self._refused(f"an observation {shortened(given)}")
        shape = space.shape
        if numbers.shape not in (shape, (len(numbers) if numbers.ndim else 0, *shape)):
            raise self._refused(f"an observation of shape {numbers.shape}")
        single = numbers.shape == shape
        rows = [numbers] if single else list(numbers)
        if not self._is_box and (wrong := [row for row in rows if not space.contains(row.astype(space.dtype))]):
            raise self._refused(f"an observation {shortened(wrong[0])}")
        return single, rows

    def _refused(self, what: str) -> InputError:
        space = self._observations
        if isinstance(space, theirs.Dict | theirs.Tuple | theirs.Discrete):
            return InputError(f"{what} is not allowed; allowed: one of {shortened(space)}, or a list of such")
        several = f"{space.shape} or ({', '.join(map(str, ('batch', *space.shape)))})"
        kind = "" if self._is_box else f" of {shortened(space)}"
        return InputError(f"{what} is not allowed; allowed: {several}{kind}")

    def action(self, chosen: Numbers) -> Any:
        """An action as the environment takes it, of ours: `[dims]`, or a whole number from 0."""
        if self._starts_at is not None:
            return self._action_type(int(chosen) + self._starts_at)
        return self._within(chosen.reshape(self._actions.shape))

    def actions(self, chosen: Numbers) -> Any:
        """Several of them, `[batch, ...]`."""
        if self._starts_at is not None:
            return chosen.astype(self._action_type) + self._action_type(self._starts_at)
        return self._within(chosen.reshape(-1, *self._actions.shape))

    def _within(self, boxes: Numbers) -> Numbers:
        """In the environment's own type, whose bounds float32 may have rounded to something beyond them."""
        return boxes.astype(self._action_type).clip(self._actions.low, self._actions.high)

    def own(self, action: Any) -> Numbers:
        """The inverse of `action`."""
        if self._starts_at is not None:
            return np.asarray(action - self._starts_at)
        return np.asarray(action, np.float32).ravel()

    def to_json(self) -> dict[str, Any]:
        """The environment's own spaces as plain JSON values."""
        images = {"images": True} if self.spaces.observation.images else {}
        return {"observation": _described(self._observations), "action": _described(self._actions), **images}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "SpaceAdapter":
        """The inverse of `to_json`."""
        return cls(_space(values["observation"]), _space(values["action"]), values.get("images", False))


def gym_space(box: Box | Discrete) -> theirs.Space[Any]:
    """The same space in Gymnasium's words."""
    if isinstance(box, Discrete):
        return theirs.Discrete(box.count)
    kind: Any = np.dtype(box.stored).type if box.grid else np.float32
    low, high = ((np.array(bound) / box.unit).astype(kind).reshape(box.grid or -1) for bound in (box.low, box.high))
    return theirs.Box(low, high, dtype=kind)


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
    return {"dict": [[name, _described(part)] for name, part in space.spaces.items()]}


def _space(values: dict[str, Any]) -> Any:
    """The inverse of `_described`."""
    if "dtype" in values and np.dtype(values["dtype"]).kind not in "biuf":
        raise ValueError(f"numbers of the type {values['dtype']!r}")
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
    return theirs.Dict(OrderedDict((name, _space(part)) for name, part in values["dict"]))  # which it does not sort


def adapter_of(name: str, env: Any) -> SpaceAdapter:
    """How the observations and actions of an environment become ours."""
    if not isinstance(env, gymnasium.Env):
        raise InputError(f"environment {name!r} is a {type(env).__name__}; allowed: a gymnasium.Env")
    for space in ("observation_space", "action_space"):
        if getattr(env, space, None) is None:
            raise InputError(f"environment {name!r} has no {space}; set self.{space} in its __init__")
    try:
        return SpaceAdapter(env.observation_space, env.action_space)
    except InputError as error:
        raise InputError(f"environment {name!r} {error}") from None


def _observation_box(space: Any, images: bool) -> Box:
    if not _is_known(space):
        raise InputError(f"has observations {shortened(space)}; allowed: {OBSERVATIONS}")
    if (size := theirs.flatdim(space)) > MAX_FEATURES or size == 0:
        raise InputError(
            f"has observations of {size:,} numbers; allowed: 1 to {MAX_FEATURES:,}; images can be made smaller by "
            f"wrappers such as gymnasium.wrappers.ResizeObservation and GrayscaleObservation"
        )
    flat: Any = theirs.flatten_space(space)
    stored = str(flat.dtype) if flat.dtype in (np.uint8, np.bool_) else "float32"
    low, high = (bounds.ravel().astype(np.float64) for bounds in (flat.low, flat.high))
    found = tuple(_images(space)) if images and isinstance(space, theirs.Dict | theirs.Tuple) else ()
    box = Box(tuple(low), tuple(high), _lone_grid(space), stored, found)
    return replace(box, low=tuple((low * box.unit).tolist()), high=tuple((high * box.unit).tolist()))


def _lone_grid(space: Any) -> tuple[int, int, int] | None:
    """Rows, columns and channels of observations that are grids or images; None of others."""
    grid = _grid(space)
    if grid is not None and min(grid[:2]) < KERNEL:
        raise InputError(
            f"has grids of {grid[0]} × {grid[1]}; allowed: {KERNEL} × {KERNEL}, the size of the kernels, or larger; "
            f"smaller ones can be made vectors by the wrapper gymnasium.wrappers.FlattenObservation"
        )
    return grid


def _images(space: Any, start: int = 0) -> Iterator[Image]:
    """The images among the parts of a dict or tuple whose numbers begin at `start`."""
    for part in space.spaces.values() if isinstance(space, theirs.Dict) else space.spaces:
        size = theirs.flatdim(part)
        if isinstance(part, theirs.Dict | theirs.Tuple):
            yield from _images(part, start)
        elif size and (grid := _grid(part)) is not None:
            image = Image(start, grid, part.dtype == np.uint8)
            if image.is_bytes or image.fits_kernel:
                yield image
        start += size


def _grid(space: Any) -> tuple[int, int, int] | None:
    """Rows, columns and channels of a grid or an image, large enough for a kernel or not; None of whatever else."""
    if not isinstance(space, theirs.Box):
        return None
    if len(space.shape) == 2 and min(space.shape) >= KERNEL and space.dtype in (np.uint8, np.bool_):
        return (*space.shape, 1)
    if len(space.shape) != 3:
        return None
    rows, columns, channels = space.shape
    return rows, columns, channels


def _is_known(space: Any) -> bool:
    if isinstance(space, theirs.Dict):
        return all(isinstance(name, str) and _is_known(part) for name, part in space.items())
    if isinstance(space, theirs.Tuple):
        return all(map(_is_known, space))
    return isinstance(space, theirs.Box | theirs.Discrete | theirs.MultiBinary | theirs.MultiDiscrete)


def _action_space(space: Any) -> Box | Discrete:
    if isinstance(space, theirs.Discrete):
        return Discrete(int(space.n))
    allowed = f"; allowed: {ACTIONS}"
    if not isinstance(space, theirs.Box) or not np.issubdtype(space.dtype, np.floating):
        raise InputError(f"has actions {shortened(space)}{allowed}")
    low, high = (tuple(map(float, np.asarray(bound, np.float32).ravel())) for bound in (space.low, space.high))
    if not low or not all(math.isfinite(bound) for bound in low + high):
        raise InputError(f"has actions {shortened(space)}{allowed}")
    if any(below >= above for below, above in zip(low, high, strict=True)):
        raise InputError(f"has actions {shortened(space)}, some of which can't be chosen{allowed}, lower below upper")
    return Box(low, high)


def shortened(thing: Any) -> str:
    """What it looks like, in one line that is not too long."""
    text = " ".join(str(thing).split())
    return text if len(text) <= 80 else text[:79] + "…"
