"""Statistics that wrappers gather while an agent trains, such as a running mean, and that its evaluations need as well.

Gymnasium's `RunningMeanStd` is found in whatever wrapper keeps one. A wrapper of another kind says how, in two methods:
`get_statistics()` returns a dict of arrays and numbers by name, and `set_statistics(statistics)` takes such a dict.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import NormalizeReward
from gymnasium.wrappers.utils import RunningMeanStd

from greedyac.core.errors import InputError

Numbers = np.ndarray[Any, Any]
Statistics = Mapping[str, Numbers]
"""By wrapper, number among those of its class, and name: `NormalizeObservation.0.obs_rms.mean`."""
NO_STATISTICS: Statistics = MappingProxyType({})
FREEZE = "update_running_mean"
"""The attribute that is False in Gymnasium's wrappers while their statistics stay as they are."""
PARTS = ("mean", "var", "count")


def layers(env: Any) -> list[Any]:
    """The environment's wrappers, the outermost first, and what they wrap."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


def get_statistics(env: Any) -> dict[str, Numbers]:
    """A copy of what the wrappers know."""
    return {f"{name}.{key}": value for name, layer in _named(env).items() for key, value in _known(layer).items()}


def set_statistics(env: Any, statistics: Statistics) -> None:
    """Let the wrappers know the same; those of which nothing is told are left as they are."""
    for name, layer in _named(env).items():
        told = {key.removeprefix(f"{name}."): np.array(value) for key, value in _of(name, statistics).items()}
        if told and says_how(layer):
            layer.set_statistics({key: value if value.ndim else value.item() for key, value in told.items()})
        elif told:
            _set(layer, told)


def prepare(env: Any, statistics: Statistics) -> Any:
    """The environment, ready for an evaluation: it has these statistics, which stay as they are, and its own rewards.

    Its own: a return in units of a running deviation says little, and nothing beside one from another time. They are
    those that its innermost `NormalizeReward` is given, whatever wrappers further out make of what that returns.
    """
    set_statistics(env, statistics)
    _warn_of_differences(env, statistics)
    _update(env, False)
    scaling = [layer for layer in layers(env) if _scales_rewards(layer)]
    prepared = any(isinstance(layer, _OwnRewards) for layer in layers(env))
    return _OwnRewards(env, scaling[-1]) if scaling and not prepared else env


class _OwnRewards(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Returns the rewards that a layer is given, in place of those that come out at the top."""

    def __init__(self, env: Any, layer: Any):
        super().__init__(env)
        self._reward: Any = 0.0
        below = layer.env.step

        def step(action: Any) -> Any:
            moved = below(action)
            if isinstance(moved, tuple | list) and len(moved) == 5:  # of others the wrapper complains
                self._reward += moved[1]
            return moved

        layer.env.step = step

    def step(self, action: Any) -> Any:
        """One step, with the layer's reward."""
        self._reward = 0.0  # of all steps, if a wrapper repeats actions
        observation, _, *rest = self.env.step(action)
        return observation, self._reward, *rest


@contextmanager
def kept(env: Any, statistics: Statistics) -> Iterator[None]:
    """Let an environment repeat steps that these statistics know already."""
    set_statistics(env, statistics)
    updated = _update(env, False)
    try:
        yield
    finally:
        for layer, value in updated:
            setattr(layer, FREEZE, value)
        set_statistics(env, statistics)


def says_how(layer: Any) -> bool:
    """Whether it has the two methods."""
    return all(callable(getattr(type(layer), name, None)) for name in ("get_statistics", "set_statistics"))


def keeps_statistics(layer: Any) -> bool:
    """Whether it has statistics that are shared."""
    return says_how(layer) or bool(_running(layer))


def _named(env: Any) -> dict[str, Any]:
    """By names that other wrappers, such as those of rendering, don't change."""
    seen: Counter[str] = Counter()
    named = {}
    for layer in layers(env):
        kind = type(layer).__name__
        named[f"{kind}.{seen[kind]}"] = layer
        seen[kind] += 1
    return named


def _of(name: str, statistics: Statistics) -> Statistics:
    return {key: value for key, value in statistics.items() if key.startswith(f"{name}.")}


def _running(layer: Any) -> dict[str, RunningMeanStd]:
    return {name: value for name, value in vars(layer).items() if isinstance(value, RunningMeanStd)}


def _known(layer: Any) -> dict[str, Numbers]:
    if says_how(layer):
        return _checked(layer, layer.get_statistics())
    moments = _running(layer).items()
    known = {f"{name}.{part}": np.array(getattr(held, part)) for name, held in moments for part in PARTS}
    if isinstance(layer, NormalizeReward):  # which lasts beyond episodes that are cut
        known["discounted_reward"] = np.array(layer.discounted_reward)
    return known


def _checked(layer: Any, told: Any) -> dict[str, Numbers]:
    allowed = "allowed: a dict of arrays and numbers by name"
    if not isinstance(told, Mapping) or not all(isinstance(name, str) for name in told):
        raise InputError(f"{type(layer).__name__}.get_statistics() returned a {type(told).__name__}; {allowed}")
    known = {name: np.array(value) for name, value in told.items()}
    for name, value in known.items():
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise InputError(f"{type(layer).__name__}.get_statistics() has {name!r} of {value.dtype}; {allowed}")
    return known


def _set(layer: Any, told: dict[str, Numbers]) -> None:
    now = _known(layer)
    if [(name, told[name].shape) for name in sorted(told)] != [(name, now[name].shape) for name in sorted(now)]:
        raise InputError(f"the wrapper {type(layer).__name__} has other statistics than the saved ones")
    for name, moments in _running(layer).items():
        moments.mean, moments.var = told[f"{name}.mean"], told[f"{name}.var"]
        moments.count = told[f"{name}.count"].item()
    if isinstance(layer, NormalizeReward):
        layer.discounted_reward = told["discounted_reward"]


def _update(env: Any, value: bool) -> list[tuple[Any, bool]]:
    """Switch all statistics on or off; how they were before."""
    before = [(layer, getattr(layer, FREEZE)) for layer in layers(env) if hasattr(layer, FREEZE)]
    for layer, _ in before:
        setattr(layer, FREEZE, value)
    return before


def _scales_rewards(layer: Any) -> bool:
    return isinstance(layer, NormalizeReward) and type(layer).step is NormalizeReward.step


def _warn_of_differences(env: Any, statistics: Statistics) -> None:
    """Of wrappers that training had and this environment has not, or the other way round."""
    named = _named(env)
    for name, layer in named.items():
        if not _scales_rewards(layer) and _known(layer) and not _of(name, statistics):
            kind = type(layer).__name__
            warnings.warn(
                f"the policy has no statistics for the wrapper {kind}, which starts without any", stacklevel=3
            )
    missing = {key.partition(".")[0] for key in statistics if ".".join(key.split(".", 2)[:2]) not in named}
    for kind in sorted(missing - {NormalizeReward.__name__}):
        warnings.warn(f"the policy was trained with the wrapper {kind}, which this environment lacks", stacklevel=3)
