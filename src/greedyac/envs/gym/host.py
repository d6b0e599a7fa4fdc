"""Gymnasium's environments as worlds for our agents, stepped on the host: by id, by function, or a user's own one."""

import contextlib
import copy
import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnasium

from greedyac.core.errors import EnvError, InputError, unknown_name
from greedyac.core.fields import show
from greedyac.core.spaces import Spaces
from greedyac.envs.gym.adapter import SpaceAdapter, adapter_of, shortened

Scalar = bool | int | float | str
ENGINES = {"mujoco": "mujoco", "box2d": "Box2D"}
"""Gymnasium's engines that are extras of ours, too, and the modules that they are in."""
MINATAR = "MinAtar/"
"""How the ids of the games of the `minatar` package begin."""
MINATAR_LIMIT = 2500
"""Steps after which their episodes are cut, as in the paper, unless told: by themselves some would never end."""


_IN_TRAINING = "_greedyac_in_training"


@dataclass(frozen=True)
class HostEnv:
    """A Gymnasium id with options of its constructor, or a function that makes such environments, under a name."""

    name: str
    given: tuple[tuple[str, Scalar], ...] = ()
    maker: Callable[..., Any] | None = None
    known: "SpaceAdapter | None" = field(default=None, compare=False)
    """What a file says of its observations and actions: then none need be made to know them."""

    @property
    def numerics(self) -> int:
        """As of an `Env`; raised when grids, and later images in dicts and tuples, were no longer seen as vectors."""
        observation = self.spaces.observation
        return 2 if observation.grid or observation.images else 1

    @property
    def options(self) -> dict[str, Scalar]:
        """What was given to the constructor."""
        return dict(self.given)

    options_changed = options_hashed = options

    @property
    def packages(self) -> frozenset[str]:
        """The packages whose versions its numbers depend on."""
        engines = (ENGINES[engine] for engine in self._engines)
        return frozenset({"gymnasium", self._home.partition(".")[0], *engines})

    @property
    def _home(self) -> str:
        """The path of the module that has it."""
        made = self.maker or gymnasium.registry[self.name.rpartition(":")[2]].entry_point
        made = type(made.env.unwrapped) if isinstance(made, Only) else made
        return made if isinstance(made, str) else getattr(made, "__module__", "")

    @property
    def _engines(self) -> list[str]:
        """Which of Gymnasium's engines it needs."""
        return [part for part in self._home.split(".") if part in ENGINES]

    def make(self, **more: Any) -> Any:
        """A new environment; `InputError` if there can't be one."""
        try:
            env = self._make(**more)
        except InputError:
            raise
        except gymnasium.error.DependencyNotInstalled as error:
            raise _missing(self.name, self._engines, error) from error
        except Exception as error:  # theirs: of any kind
            raise EnvError(f"environment {self.name!r} can't be made: {words_of(error)}") from error
        if isinstance(self.maker, _Maker) and getattr(env, "__dict__", {}).get(_IN_TRAINING) == id(env):
            allowed = "a class or a function that makes a new environment at each call"
            raise InputError(
                f"environment {self.name!r} was returned again while it is in training; allowed: {allowed}"
            )
        if self.known is not None and adapter_of(self.name, env) != self.known:
            raise InputError(f"environment {self.name!r} has other observations and actions than this was trained on")
        return env

    def make_for_training(self) -> Any:
        """A new environment, or the user's own."""
        env = self.maker.take() if isinstance(self.maker, Only) else self.make()
        with contextlib.suppress(AttributeError, TypeError):  # where it has room for it
            vars(env)[_IN_TRAINING] = id(env)  # which a copy has not
        return env

    def _make(self, **more: Any) -> Any:
        if self.maker is not None:
            return self.maker(**more)
        _import_home(self.name)
        if self.name.rpartition(":")[2] not in gymnasium.registry:
            allowed = "a Gymnasium id, or as in my_module:MyEnv-v0 the module that registers it"
            raise EnvError(f"environment {self.name!r} can't be found by its name; allowed: {allowed}")
        cut = {"max_episode_steps": MINATAR_LIMIT} if self.name.startswith(MINATAR) else {}
        given: dict[str, Any] = {**cut, **self.options, **more}
        return gymnasium.make(self.name.rpartition(":")[2], disable_env_checker=True, **given)

    def check_evaluation(self) -> None:
        """Raise an `InputError` if there can be no other environment beside a user's own, for evaluations."""
        if isinstance(self.maker, Only):
            self.close(self.make())

    @cached_property
    def adapter(self) -> "SpaceAdapter":
        """How its observations and actions become ours; found out by making one."""
        if self.known is not None:
            return self.known
        env = self.make()
        known = adapter_of(self.name, env)
        self.close(env)
        return known

    def close(self, env: Any) -> None:
        """Close an environment that was made, but not a user's own; whatever it says to that, it is over."""
        getattr(env, "__dict__", {}).pop(_IN_TRAINING, None)
        if not (isinstance(self.maker, Only) and self.maker.env is env):
            with contextlib.suppress(Exception):
                env.close()

    @property
    def is_local(self) -> bool:
        """Whether only this process can make one: of a user's class, or under an id that was registered here."""
        if self.maker is not None:
            return True
        made = gymnasium.registry[self.name].entry_point if self.name in gymnasium.registry else ""
        known = isinstance(made, str) and made.startswith(("gymnasium.", "greedyac.", "minatar."))
        return ":" not in self.name and not known

    @property
    def spaces(self) -> Spaces:
        """What an agent sees and does here."""
        return self.adapter.spaces


def find_host_env(name: str, options: Mapping[str, object], built_in: Iterable[str]) -> HostEnv:
    """The Gymnasium environment of that id with these options; `built_in` names are for the error's list."""
    _import_home(name)
    if name.rpartition(":")[2] not in gymnasium.registry:
        raise EnvError(unknown_name("environment", name, [*built_in, "any Gymnasium id"], nearby=gymnasium.registry))
    return HostEnv(name, tuple(sorted((key, _scalar(key, value)) for key, value in options.items())))


def named_host_env(env: Any) -> HostEnv:
    """A user's own environment, or a function that makes them, under the name by which files tell of it."""
    if isinstance(env, gymnasium.Env):
        name, options = _name_of(env)
        return HostEnv(name, options, Only(env), known=adapter_of(name, env))
    if callable(env):
        return HostEnv(getattr(env, "__name__", type(env).__name__), maker=_Maker(env))
    allowed = "a name, a gymnasium.Env, or a function that makes one"
    raise InputError(f"env = {shortened(repr(env))} is not allowed; allowed: {allowed}")


def _name_of(env: Any) -> tuple[str, tuple[tuple[str, Scalar], ...]]:
    """The id and options by which an environment can be made again; else the name of its class."""
    spec = env.spec
    if spec is None or spec.additional_wrappers or (known := gymnasium.registry.get(spec.id)) is None:
        return type(env).__name__, ()
    options = {name: value for name, value in spec.kwargs.items() if known.kwargs.get(name, env) != value}
    options.pop("render_mode", None)
    if spec.max_episode_steps != known.max_episode_steps or not all(map(_is_scalar, options.values())):
        return type(env.unwrapped).__name__, ()
    return spec.id, tuple(sorted((name, _exact(value)) for name, value in options.items()))


class _Maker:
    """A user's class or function, whatever it is equal to."""

    def __init__(self, make: Callable[..., Any]):
        self._make, self.__module__ = make, getattr(make, "__module__", "")

    def __call__(self, **more: Any) -> Any:
        """A new environment."""
        return self._make(**more)


class Only:
    """A user's environment, which is for training, and others like it, if there can be any, for all else."""

    def __init__(self, env: Any):
        self.env, self._taken = env, False

    def take(self) -> Any:
        """The environment itself, once."""
        if self._taken:
            return self()
        self._taken = True
        return self.env

    def __call__(self, **more: Any) -> Any:
        """Another one like it."""
        if self.env.spec is not None:
            with contextlib.suppress(*([] if more else [Exception])):  # else it may be copied
                return gymnasium.make(self.env.spec, disable_env_checker=True, **more)
        if more:
            raise InputError("allowed: one that gymnasium.make made, or a class or function that makes them")
        try:
            return copy.deepcopy(self.env)
        except Exception as error:  # theirs: of any kind
            raise InputError(
                f"environment {type(self.env).__name__!r} can't be copied for an evaluation or another seed: "
                f"{words_of(error)}; give a class or a function that makes environments instead of one environment"
            ) from error


def parse_option(text: str) -> Scalar:
    """The value that a text stands for: a number, true or false, else the text itself; one in quotes is a text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, Scalar) else text


def show_option(value: Scalar) -> str:
    """The inverse of `parse_option`."""
    return json.dumps(value) if isinstance(value, str) and parse_option(value) != value else show(value)


def _scalar(name: str, value: Any) -> Scalar:
    if not _is_scalar(value):
        allowed = "a finite number, true, false, or a text without , [ ] and ="
        raise InputError(f"env option {name} = {value!r} is not allowed; allowed: {allowed}")
    return _exact(value)


def _exact(value: Any) -> Any:
    """One value, one id: 9 for 9.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_scalar(value: object) -> bool:
    if isinstance(value, str):
        return not set(value) & set(",[]=")
    return isinstance(value, bool | int | float) and math.isfinite(value)


def _import_home(name: str) -> None:
    """Import the module of an id such as `my_module:MyEnv-v0`, which registers it; also from the working folder.

    MinAtar's games are registered by their package when it is asked to.
    """
    if name.startswith(MINATAR) and not any(known.startswith(MINATAR) for known in gymnasium.registry):
        try:
            importlib.import_module("minatar.gym").register_envs()
        except ImportError as error:
            raise _missing(name, ["minatar"], error) from error
    module, colon, _ = name.rpartition(":")
    if not colon:
        return
    if os.getcwd() not in sys.path:  # noqa: PTH109
        sys.path.append(os.getcwd())  # noqa: PTH109
    try:
        importlib.import_module(module)
    except Exception as error:  # theirs: of any kind
        raise EnvError(f"environment {name!r}: module {module!r} can't be imported: {words_of(error)}") from error


def _missing(name: str, extras: Iterable[str], error: Exception) -> EnvError:
    """What to install; if it is no extra of ours, in the words of whoever misses it."""
    told = [f"environment {name!r} needs {extra}: pip install 'greedyac[{extra}]'" for extra in extras]
    return EnvError(told[0] if told else f"environment {name!r} can't be made: {words_of(error)}")


def words_of(error: Exception) -> str:
    """What an exception says, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
