"""The environments, by name: the built-in ones, which are compiled, and those of Gymnasium."""

from collections.abc import Mapping
from typing import Any

from greedyac.core.errors import unknown_name
from greedyac.core.fields import checked, hypers_of, show
from greedyac.envs.base import Env
from greedyac.envs.classic.acrobot import Acrobot
from greedyac.envs.classic.control import Control
from greedyac.envs.classic.mountain_car import MountainCar
from greedyac.envs.classic.pendulum import Pendulum
from greedyac.envs.gym.host import HostEnv, find_host_env, parse_option, show_option
from greedyac.envs.minatar import Breakout, Freeway

_CONTROL: dict[str, type[Control]] = {"MountainCar": MountainCar, "Pendulum": Pendulum, "Acrobot": Acrobot}

ENVS: dict[str, tuple[type[Env], dict[str, bool]]] = {
    f"{name}-{suffix}": (env, {"continuous": suffix == "CA"})
    for name, env in _CONTROL.items()
    for suffix in ("CA", "DA")
} | {"MinAtar-Breakout": (Breakout, {}), "MinAtar-Freeway": (Freeway, {})}
"""Name → class, and what of it the name decides."""


World = Env | HostEnv
"""Where a run can take place: compiled, or stepped on the host."""


def make_env(name: str, options: Mapping[str, object] | None = None) -> Env:
    """The built-in environment of that name with these options of its constructor."""
    if name not in ENVS:
        raise unknown_name("environment", name, ENVS)
    env, named = ENVS[name]
    return checked(env, f"option of {name}", options or {}, **named)


def make_world(name: str, options: Mapping[str, object] | None = None) -> World:
    """The built-in environment of that name, or the Gymnasium environment of that id, with these options."""
    return make_env(name, options) if name in ENVS else find_host_env(name, options or {}, ENVS)


def env_label(name: str, world: World) -> str:
    """The environment's name, with the options that differ from its defaults: `Acrobot-CA[start=zero]`."""
    told = show if isinstance(world, Env) else show_option
    options = ",".join(f"{name}={told(value)}" for name, value in sorted(world.options_changed.items()))
    return f"{name}[{options}]" if options else name


def parse_env_label(label: str) -> tuple[str, dict[str, Any]]:
    """The environment and the options that an `env_label` tells."""
    name, _, texts = label.removesuffix("]").partition("[")
    pairs = (text.partition("=") for text in texts.split(",") if text)
    return name, {option: parse_env_option(name, option, text) for option, _, text in pairs}


def parse_env_option(env: str, option: str, text: str) -> Any:
    """The value of an environment's option that a text stands for."""
    if env not in ENVS:
        return parse_option(text)
    known = hypers_of(ENVS[env][0])
    if option not in known:
        raise unknown_name(f"option of {env}", option, known)
    return known[option].parse(text)
