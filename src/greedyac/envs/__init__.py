"""Where agents learn: the built-in environments, compiled, and any environment of Gymnasium's."""

from greedyac.envs.base import Env, EnvState, Transition
from greedyac.envs.classic.acrobot import Acrobot
from greedyac.envs.classic.control import Control
from greedyac.envs.classic.mountain_car import MountainCar
from greedyac.envs.classic.pendulum import Pendulum
from greedyac.envs.gym.host import HostEnv
from greedyac.envs.minatar import Breakout, Freeway
from greedyac.envs.registry import ENVS, World, env_label, make_env, make_world, parse_env_label, parse_env_option

__all__ = [
    "ENVS",
    "Acrobot",
    "Breakout",
    "Control",
    "Env",
    "EnvState",
    "Freeway",
    "HostEnv",
    "MountainCar",
    "Pendulum",
    "Transition",
    "World",
    "env_label",
    "make_env",
    "make_world",
    "parse_env_label",
    "parse_env_option",
]
