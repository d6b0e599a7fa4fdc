"""Gymnasium environments with one oddity each. All of them keep a diary of what was done to them."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

Numbers = np.ndarray[Any, Any]


class Diary(gymnasium.Env[Any, Any]):
    """Walks on a line: the observation is (place, time / 10), an action pushes; the reward is minus the distance.

    Where an episode starts depends on the seed of its reset alone.
    """

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32)
    limit: ClassVar[int] = 7

    def __init__(self) -> None:
        self.seeds: list[int | None] = []
        self.steps: list[tuple[Any, Any, float, Any, bool, bool]] = []
        """(observation, action, reward, next observation, terminated, truncated) of every step."""
        self.place, self.time = 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.place, self.time = float(self.np_random.uniform(-1, 1)), 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self.look()
        self.place += 0.1 * self.push(action)
        self.time += 1
        reward, (terminated, truncated) = self.pay(), self.ends()
        self.steps.append((before, action, reward, self.look(), terminated, truncated))
        return self.look(), reward, terminated, truncated, {}

    def look(self) -> Any:
        return np.array([self.place, self.time / 10], np.float32)

    def push(self, action: Any) -> float:
        assert action.shape == (1,)
        assert action.dtype == np.float32
        return float(action[0])

    def pay(self) -> float:
        return -abs(self.place)

    def ends(self) -> tuple[bool, bool]:
        """Some episodes terminate early, the others are cut."""
        return bool(self.place > 0.6), self.time >= self.limit


class OnlyCut(Diary):
    """Never terminates."""

    def ends(self) -> tuple[bool, bool]:
        return False, self.time >= self.limit


class AtOnce(Diary):
    """Every episode terminates with its first step."""

    def ends(self) -> tuple[bool, bool]:
        return True, False


class InPieces(Diary):
    """Observations are a dict of a box, a discrete number and a pair."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-np.inf, np.inf, (1, 2), np.float64),
            "side": spaces.Discrete(2, start=3),
            "pair": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]),
        }
    )

    def look(self) -> Any:
        return {
            "place": np.array([[self.place, self.time]]),
            "side": np.int64(3 + (self.place > 0)),
            "pair": (np.array([1, self.place > 0], np.int8), np.array([self.time % 2, self.time % 3])),
        }


class ThreePushes(Diary):
    """Actions are Box(3,) of unequal bounds."""

    action_space = spaces.Box(np.array([-0.4, 0.0, 5.0]), np.array([0.4, 0.5, 50.0]), dtype=np.float64)

    def push(self, action: Any) -> float:
        assert action.shape == (3,)
        assert action.dtype == np.float64
        assert (action >= self.action_space.low).all()
        assert (action <= self.action_space.high).all()
        return float(action.sum()) / 50


class FromFive(Diary):
    """Actions are the whole numbers 5, 6, 7."""

    action_space = spaces.Discrete(3, start=5)

    def push(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float(action) - 6


class Breaks(Diary):
    """Raises at its 40th step if its first reset had an odd seed; `Broken: at step 40`."""

    class BrokenError(Exception):
        pass

    def pay(self) -> float:
        if len(self.steps) == 39 and (self.seeds[0] or 0) % 2:
            raise self.BrokenError("at step\n40")
        return super().pay()


class NotANumber(Diary):
    """Its 40th reward is NaN if its first reset had an odd seed."""

    def pay(self) -> float:
        return float("nan") if len(self.steps) == 39 and (self.seeds[0] or 0) % 2 else super().pay()


class OutOfSight(Diary):
    """What is seen at its 40th step is NaN."""

    def look(self) -> Any:
        return super().look() * (float("nan") if len(self.steps) == 40 and self.time else 1)


class Blind(Diary):
    """Nothing is ever seen."""

    def look(self) -> Any:
        return np.full(2, np.nan, np.float32)


class Pictures(Diary):
    """Its place is a bright pixel of an image, its time the brightness of another; it can be pushed to either side."""

    observation_space = spaces.Box(0, 255, (4, 9, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def look(self) -> Any:
        image = np.zeros((4, 9, 1), np.uint8)
        image[1, int(np.clip(4 + 4 * self.place, 0, 8))] = 255
        image[3, 8] = 20 * self.time
        return image

    def push(self, action: Any) -> float:
        return float(action) - 1


class Cameras(Diary):
    """Observations are a dict with an image of bytes, a tuple that has a grid of bits, and plain numbers."""

    observation_space = spaces.Dict(
        {
            "front": spaces.Box(0, 255, (4, 9, 2), np.uint8),
            "side": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (3, 5), np.bool_)]),
            "time": spaces.Box(0, 10, (1,), np.float32),
        }
    )

    def look(self) -> Any:
        front, side = np.zeros((4, 9, 2), np.uint8), np.zeros((3, 5), np.bool_)
        front[1, int(np.clip(4 + 4 * self.place, 0, 8))] = 255
        front[..., 1] += np.uint8(17)
        side[1, int(np.clip(2 + 2 * self.place, 0, 4))] = True
        return {"front": front, "side": (np.int64(self.place > 0), side), "time": np.array([self.time], np.float32)}


class ChosenCameras(Cameras):
    """The same with discrete actions."""

    action_space = spaces.Discrete(3)

    def push(self, action: Any) -> float:
        return float(action) - 1


class Slammed(Diary):
    """Can't be closed in peace."""

    def close(self) -> None:
        raise OSError("it is stuck")


class Forgetful(Diary):
    """Starts wherever it likes, whatever the seed: it can't be brought back."""

    count: ClassVar[int] = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        Forgetful.count += 1
        self.place = Forgetful.count / 1000
        return self.look(), {}


class NoRobot(Diary):
    """Can't even begin."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        raise RuntimeError("no robot on\nport 7")


gymnasium.register("odd/Diary-v0", "helpers.odd_envs:Diary")
gymnasium.register("odd/NoRobot-v0", "helpers.odd_envs:NoRobot")
gymnasium.register("odd/Breaks-v0", "helpers.odd_envs:Breaks")
gymnasium.register("odd/Forgetful-v0", "helpers.odd_envs:Forgetful")
