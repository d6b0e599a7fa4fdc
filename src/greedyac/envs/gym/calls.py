"""Calls of a user's environment. What comes back has the form that Gymnasium asks for, or an error says what to return.

An error that Gymnasium's own wrappers raise on the way, because of what they wrap, is explained as well.
"""

import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from greedyac.envs.gym.adapter import SpaceAdapter, shortened
from greedyac.envs.gym.host import words_of

RESET = "return two values: observation, info"
STEP = "return five values: observation, reward, terminated, truncated, info"
OLD_STEP = f"{STEP} (Gym's old done is terminated if the task is over, and truncated if only the time is up)"
SIGNATURE = "define it as reset(self, *, seed=None, options=None)"
WRAPPERS = ("gymnasium.core", "gymnasium.wrappers.", "gymnasium.utils.")
"""Where Gymnasium takes apart what the environment below has returned."""
Numbers = np.ndarray[Any, Any]


def reset_env(env: Any, adapter: SpaceAdapter, seed: int) -> Numbers:
    """Begin an episode; its first observation."""
    try:
        given = env.reset(seed=seed)
    except (TypeError, ValueError) as error:
        if re.search(r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)):
            raise TypeError(f"{error}; {SIGNATURE}") from error
        if _is_unpacking(error, 2):
            raise TypeError(f"reset did not return two values; {RESET}") from error
        raise
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[1], Mapping | None):
        raise TypeError(f"reset returned {_form(given)}; {RESET}")
    return _observation(adapter, given[0], "reset")


def step_env(env: Any, adapter: SpaceAdapter, action: Numbers) -> tuple[Numbers, float, bool, bool]:
    """Take an action of ours: the observation, the reward, and whether the episode was terminated or truncated."""
    try:
        given = env.step(adapter.action(action))
    except (TypeError, ValueError) as error:
        if _is_unpacking(error, 5):
            fault = f"returned 4 values; {OLD_STEP}" if "got 4" in str(error) else f"did not return five values; {STEP}"
            raise TypeError(f"step {fault}") from error
        raise
    try:
        observation, reward, terminated, truncated, _ = given
    except (TypeError, ValueError):
        hint = OLD_STEP if isinstance(given, tuple | list) and len(given) == 4 else STEP
        raise TypeError(f"step returned {_form(given)}; {hint}") from None
    return _observation(adapter, observation, "step"), _reward(reward), bool(terminated), bool(truncated)


def _reward(given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError) as error:
        shown = shortened(repr(given))
        raise TypeError(f"step returned the reward {shown} of type {type(given).__name__}; return a number") from error


def _observation(adapter: SpaceAdapter, given: Any, call: str) -> Numbers:
    try:
        return adapter.observation(given)
    except Exception as error:  # theirs: of any kind
        why = str(error) if type(error) is ValueError else words_of(error)
        raise ValueError(f"the observation from {call} does not fit observation_space: {why}") from error


def _is_unpacking(error: Exception, values: int) -> bool:
    """Whether a wrapper, Gymnasium's or another, could not take apart what it got into so many values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or "unpack" not in str(error):
        return False
    home, owner = trace.tb_frame.f_globals.get("__name__", ""), trace.tb_frame.f_locals.get("self")
    is_wrapper = isinstance(owner, gymnasium.Wrapper) and re.search(rf"expected {values}\b", str(error)) is not None
    return is_wrapper or home.startswith(WRAPPERS)


def _form(given: Any) -> str:
    if given is None:
        return "None"
    kind = type(given).__name__
    if not isinstance(given, tuple | list):
        return f"one value (of type {kind})"
    return f"{len(given)} values" + (f", the last of type {type(given[-1]).__name__}" if len(given) == 2 else "")
