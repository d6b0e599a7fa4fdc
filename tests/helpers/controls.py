"""The environments of classic control among the built-in ones."""

from collections.abc import Mapping

from greedyac.envs import ENVS, Control, make_env

CONTROL = [name for name, (kind, _) in ENVS.items() if issubclass(kind, Control)]


def make_control(name: str, options: Mapping[str, object] | None = None) -> Control:
    """As `make_env`."""
    env = make_env(name, options)
    assert isinstance(env, Control)
    return env
