"""Where agents learn: the built-in environments, compiled, by name."""

from collections.abc import Mapping

from greedyac.envs.acrobot import Acrobot
from greedyac.envs.env import Env, EnvState, Transition
from greedyac.envs.mountain_car import MountainCar
from greedyac.envs.pendulum import Pendulum
from greedyac.errors import unknown
from greedyac.hypers import checked

__all__ = ["ENVS", "Acrobot", "Env", "EnvState", "MountainCar", "Pendulum", "Transition", "make_env"]

_CLASSES: dict[str, type[Env]] = {"MountainCar": MountainCar, "Pendulum": Pendulum, "Acrobot": Acrobot}

ENVS: dict[str, tuple[type[Env], bool]] = {
    f"{name}-{suffix}": (env, suffix == "CA") for name, env in _CLASSES.items() for suffix in ("CA", "DA")
}
"""Name → class, and whether its actions are continuous."""


def make_env(name: str, options: Mapping[str, object] | None = None) -> Env:
    """The environment of that name with these options of its constructor."""
    if name not in ENVS:
        raise unknown("environment", name, ENVS)
    env, continuous = ENVS[name]
    return checked(env, f"option of {name}", options or {}, continuous=continuous)
