"""Environments that don't keep to Gymnasium's API: what is said of them, and that the cause is not lost."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, TimeLimit
from helpers import odd_envs
from helpers.odd_envs import Diary
from helpers.paths import TESTS

import greedyac
from greedyac.cli import main
from greedyac.envs.gym.adapter import SpaceAdapter

NUMBERS = np.zeros(3, np.float32)


class LongStart(Diary):
    def reset(self, **_: Any) -> Any:
        return NUMBERS, {}


class NoStart(Diary):
    def reset(self, **_: Any) -> Any:
        return None, {}


class LongStep(Diary):
    def step(self, action: Any) -> Any:
        return NUMBERS, *super().step(action)[1:]


class OldReset(Diary):
    """As in Gym before 0.26: two numbers, which are no pair of an observation and infos."""

    def reset(self, **_: Any) -> Any:
        return [0.1, 0.2]


class ArrayReset(Diary):
    def reset(self, **_: Any) -> Any:
        return NUMBERS


class EmptyReset(Diary):
    def reset(self, **_: Any) -> Any:
        return None


class Seedless(Diary):
    def reset(self) -> Any:  # type: ignore[override]
        return self.look(), {}


class Optionless(Diary):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class OldStep(Diary):
    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        return observation, reward, False, {}


class EmptyStep(Diary):
    def step(self, action: Any) -> Any:
        return None


class ThreeStep(Diary):
    def step(self, action: Any) -> Any:
        return tuple(super().step(action))[:3]


class ThreeReset(Diary):
    def reset(self, **given: Any) -> Any:
        return (*super().reset(**given), None)


class OwnMistake(Diary):
    def step(self, action: Any) -> Any:
        one, two = list(super().step(action))
        return one, two


class Passes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper of one's own, which takes apart what it gets."""

    def reset(self, **given: Any) -> Any:
        observation, info = self.env.reset(**given)
        return observation, info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info


def wrapped(kind: type[Diary]) -> Callable[[], Any]:
    return lambda: Passes(kind())


def limited(kind: type[Diary]) -> Callable[[], Any]:
    """In a wrapper, which looks at what is returned before we do."""
    return lambda: TimeLimit(kind(), 5)


def normalized(kind: type[Diary]) -> Callable[[], Any]:
    return lambda: NormalizeObservation(kind())


TWO = "; return two values: observation, info"
FIVE = "; return five values: observation, reward, terminated, truncated, info"
SPACE = "does not fit observation_space"
SIGNATURE = "; define it as reset(self, *, seed=None, options=None)"
START, STEP = "the environment failed in its first reset: ", "the environment failed at step 0: "


@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        (odd_envs.NoRobot, f"{START}RuntimeError: no robot on port 7"),
        (limited(odd_envs.NoRobot), f"{START}RuntimeError: no robot on port 7"),
        (LongStart, f"{START}ValueError: the observation from reset {SPACE}: it has 3 numbers, and the space has 2"),
        (LongStep, f"{STEP}ValueError: the observation from step {SPACE}: it has 3 numbers, and the space has 2"),
        (NoStart, f"{START}ValueError: the observation from reset {SPACE}: it is None"),
        (OldReset, f"{START}TypeError: reset returned 2 values, the last of type float{TWO}"),
        (ArrayReset, f"{START}TypeError: reset returned one value (of type ndarray){TWO}"),
        (EmptyReset, f"{START}TypeError: reset returned None{TWO}"),
        (normalized(ArrayReset), f"{START}TypeError: reset did not return two values{TWO}"),
        (Seedless, f"{START}TypeError: Seedless.reset() got an unexpected keyword argument 'seed'{SIGNATURE}"),
        (limited(Seedless), f"{START}TypeError: Seedless.reset() got an unexpected keyword argument 'seed'{SIGNATURE}"),
        (limited(Optionless), f"Optionless.reset() got an unexpected keyword argument 'options'{SIGNATURE}"),
        (OldStep, f"{STEP}TypeError: step returned 4 values{FIVE} (Gym's old done is"),
        (limited(OldStep), f"{STEP}TypeError: step returned 4 values{FIVE} (Gym's old done is"),
        (EmptyStep, f"{STEP}TypeError: step returned None{FIVE}"),
        (limited(EmptyStep), f"{STEP}TypeError: step did not return five values{FIVE}"),
        (wrapped(OldStep), f"{STEP}TypeError: step returned 4 values{FIVE} (Gym's old done is"),
        (wrapped(ThreeStep), f"{STEP}TypeError: step did not return five values{FIVE}"),
        (wrapped(ThreeReset), f"{START}TypeError: reset did not return two values{TWO}"),
        (wrapped(OwnMistake), f"{STEP}ValueError: too many values to unpack (expected 2"),
        (limited(OwnMistake), f"{STEP}ValueError: too many values to unpack (expected 2"),
    ],
)
def test_what_an_environment_did_is_said_and_chained_and_said_again(env: Any, complaint: str) -> None:
    model = greedyac.Random(env)
    with pytest.raises(RuntimeError, match=re.escape(complaint)) as first:
        model.learn(20)
    assert isinstance(first.value.__cause__, Exception)
    assert str(first.value.__cause__).split()[-1] in str(first.value)
    assert "\n" not in str(first.value)
    with pytest.raises(RuntimeError) as second:
        model.learn(20)
    assert str(second.value) == f"it can't learn any more: {first.value}"
    assert second.value.__cause__ is first.value.__cause__


def test_an_instance_says_the_same() -> None:
    with pytest.raises(RuntimeError, match="failed in its first reset: RuntimeError: no robot on port 7"):
        greedyac.Random(odd_envs.NoRobot()).learn(20)


@pytest.mark.parametrize(
    ("env", "complaint"), [(OldReset, "reset returned 2 values"), (OldStep, "step returned 4 values")]
)
def test_evaluations_say_it_too(env: type[Diary], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        greedyac.Random(env).evaluate(1)


def test_rows_of_failed_runs_carry_the_reason() -> None:
    with pytest.warns(RuntimeWarning, match=r"2 of 2 runs failed, the first .* seed 0: in its first reset: Runtime"):
        rows = greedyac.train("random", odd_envs.NoRobot, seeds=[0, 1], steps=20, progress=False).curves
    assert rows["status"].to_list() == ["failed", "failed"]
    assert set(rows["error"]) == {"in its first reset: RuntimeError: no robot on port 7"}
    with pytest.warns(RuntimeWarning, match="1 of 1 run failed"):
        [error] = greedyac.train("random", OldStep, steps=20).curves["error"]
    assert error.startswith("TypeError: step returned 4 values")


def test_the_command_line_says_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(TESTS)  # where the module is found
    asked = ["train", "random", "helpers.odd_envs:odd/NoRobot-v0", "--steps", "20", "--workers", "1"]
    assert main([*asked, "--out", str(tmp_path / "out")]) == 1
    assert "seed 0 failed: in its first reset: RuntimeError: no robot on port 7\n" in capsys.readouterr().out


class Bare(gymnasium.Env[Any, Any]):
    """Has no spaces."""


class NoActions(Bare):
    observation_space = spaces.Discrete(2)
    action_space = None  # type: ignore[assignment]


@pytest.mark.parametrize(("kind", "space"), [(Bare, "observation_space"), (NoActions, "action_space")])
@pytest.mark.parametrize("wrap", [lambda kind: kind, lambda kind: kind(), lambda kind: lambda: TimeLimit(kind(), 5)])
def test_missing_spaces_are_named(kind: type[Bare], space: str, wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(greedyac.InputError, match=f"^environment .* has no {space}; set self.{space} in its __init__$"):
        greedyac.Random(wrap(kind))


def test_an_image_of_another_layout_is_refused() -> None:
    adapter = SpaceAdapter(gymnasium.spaces.Box(0, 255, (8, 6, 3), np.uint8), gymnasium.spaces.Discrete(2))
    assert adapter.observation(np.zeros((8, 6, 3), np.uint8)).shape == (144,)
    with pytest.raises(ValueError, match=r"it has the shape \(3, 8, 6\), and the space has \(8, 6, 3\)"):
        adapter.observation(np.zeros((3, 8, 6), np.uint8))


@pytest.mark.parametrize("reward", [None, "one", np.ones(1), [1.0]])
def test_a_reward_that_is_no_number_is_named(reward: Any) -> None:
    class Odd(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return np.zeros(2), {}

        def step(self, action: Any) -> Any:
            return np.zeros(2), reward, False, False, {}

    with pytest.raises(RuntimeError, match=r"step returned the reward .* of type .*; return a number"):
        greedyac.Random(Odd).learn(5)


class Unplugged(Diary):
    def __init__(self) -> None:
        raise OSError("cannot open /dev/robot")


@pytest.mark.parametrize(
    ("env", "cause"), [(Unplugged, OSError), ("no_such_module:X-v0", ModuleNotFoundError)], ids=["class", "module"]
)
def test_why_an_environment_cannot_be_made_is_chained(env: Any, cause: type[Exception]) -> None:
    with pytest.raises(greedyac.InputError) as refused:
        greedyac.Random(env)
    assert isinstance(refused.value.__cause__, cause)
