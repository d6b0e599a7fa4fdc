"""The built-in environments seen through Gymnasium: the same worlds, by its rules, and their pictures."""

import copy
import functools
import itertools
import json
import math
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from helpers.controls import CONTROL, make_control
from helpers.paths import ROOT
from jax import Array
from numpy.typing import NDArray
from PIL import ImageColor

from greedyac import registration
from greedyac.core.errors import InputError
from greedyac.core.streams import MAX_SEED, Stream, seed_keys, stream_key
from greedyac.envs import ENVS, Acrobot, Breakout, Env, EnvState, Freeway, MountainCar, Pendulum, Transition, make_env
from greedyac.envs.classic.acrobot import Links
from greedyac.envs.classic.mountain_car import Car
from greedyac.envs.classic.pendulum import Rod
from greedyac.envs.gym.wrapper import GymnasiumWrapper, compiled
from greedyac.envs.rendering import BODY, DRAWINGS, FORCE, GAMES, GOAL, INK, SECOND, Frame

PEERS = Path(os.environ.get("GREEDYAC_PEERS_PYTHON", ROOT / ".venv-peers/bin/python"))
IDS = {name: f"greedyac/{name}-v0" for name in ENVS}
Floats = NDArray[np.float64]


def face_of(name: str, **given: Any) -> GymnasiumWrapper:
    return cast(GymnasiumWrapper, gymnasium.make(IDS[name], **given).unwrapped)


def run(program: str, python: Path | str = sys.executable, **environment: str) -> str:
    """What a fresh process prints that ends well, warnings being errors."""
    call, env = [python, "-W", "error", "-c", program], {**os.environ, **environment}
    done = subprocess.run(call, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- in the registry


def test_the_registered_names_are_those_of_the_environments() -> None:
    assert set(registration.NAMES) == set(ENVS)
    ours = {key: spec for key, spec in gymnasium.registry.items() if key.startswith("greedyac/")}
    assert set(ours) == set(IDS.values())
    assert all(spec.max_episode_steps is None for spec in ours.values())


def test_registering_again_changes_nothing() -> None:
    before = dict(gymnasium.registry)
    registration.register()
    assert gymnasium.registry == before


@pytest.mark.parametrize("first", ["greedyac, gymnasium", "gymnasium, greedyac", "gymnasium"])
def test_importing_registers_in_any_order_and_without_jax(first: str) -> None:
    program = f"""
import sys
import {first}
assert not {{"jax", "PIL"}} & sys.modules.keys()
env = gymnasium.make("greedyac/Acrobot-DA-v0" if "greedyac" in sys.modules else "greedyac:greedyac/Acrobot-DA-v0")
assert sys.modules["greedyac.envs.gym.wrapper"].GymnasiumWrapper is type(env.unwrapped)
"""
    run(program)


@pytest.mark.parametrize("name", ENVS)
def test_gymnasiums_checker_finds_nothing_but_a_range_of_2(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(face_of(name, render_mode="rgb_array"))
    told = [str(warning.message) for warning in caught]
    assert len(told) == (name == "Pendulum-CA")
    assert all("symmetric and normalized space" in one for one in told)


SB3 = """
import json, sys, warnings
try:
    import PIL, jax, gymnasium
    from stable_baselines3.common.env_checker import check_env
except ImportError as error:
    sys.exit(print(json.dumps(str(error))))
import greedyac
told = {}
for key in [key for key in gymnasium.registry if key.startswith("greedyac/")]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gymnasium.make(key, render_mode="rgb_array").unwrapped)
    told[key] = [str(warning.message) for warning in caught]
print(json.dumps(told))
"""


@pytest.mark.skipif(not PEERS.exists(), reason=f"{PEERS} does not exist; make bench sets it up")
def test_stable_baselines_checker_finds_nothing_but_a_range_of_2() -> None:
    told = json.loads(subprocess.check_output([PEERS, "-c", SB3], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}))
    if isinstance(told, str):
        pytest.skip(f"{PEERS}: {told}")
    assert set(told) == set(IDS.values())
    [pendulum] = told.pop(IDS["Pendulum-CA"])
    assert "symmetric and normalized Box action space" in pendulum
    games = [told.pop(IDS[name]) for name in ENVS if name not in CONTROL]
    assert all("image" in one for words in games for one in words)  # which has other types and sizes there
    assert not any(told.values())


# --- the same world


@pytest.mark.parametrize("name", CONTROL)
def test_the_spaces_are_the_environments(name: str) -> None:
    face, inner = face_of(name), make_control(name)
    seen, act = face.observation_space, face.action_space
    assert isinstance(seen, gymnasium.spaces.Box)
    assert seen.dtype == np.float32
    np.testing.assert_array_equal(seen.low, np.array(inner.observation_space.low, np.float32))
    np.testing.assert_array_equal(seen.high, np.array(inner.observation_space.high, np.float32))
    if inner.continuous:
        bound = np.float32(2 if name == "Pendulum-CA" else 1)
        assert act == gymnasium.spaces.Box(-bound, bound, (1,), np.float32)
    else:
        assert act == gymnasium.spaces.Discrete(3)


@pytest.mark.parametrize(("name", "channels"), [("MinAtar-Breakout", 4), ("MinAtar-Freeway", 7)])
@pytest.mark.parametrize(("actions", "count"), [("minimal", 3), ("full", 6)])
def test_a_game_is_seen_as_a_grid_of_bits(name: str, channels: int, actions: str, count: int) -> None:
    face = face_of(name, actions=actions)
    assert face.observation_space == gymnasium.spaces.Box(0, 1, (10, 10, channels), cast(Any, np.bool_))
    assert face.action_space == gymnasium.spaces.Discrete(count)
    seen, _ = face.reset(seed=3)
    assert seen.dtype == np.bool_
    assert seen.shape == (10, 10, channels)
    _, first = make_env(name).reset(stream_key(seed_keys([3])[0], Stream.START, 0))
    np.testing.assert_array_equal(seen.ravel(), first)


def swing(name: str, observation: NDArray[np.float32], random: np.random.Generator) -> Any:
    """Push along: enough to reach the goal of Mountain Car and Acrobot. Now and then, a random action."""
    if name.startswith("MinAtar"):
        return int(random.integers(3))
    velocity = observation[3] if name.startswith("Acrobot") else observation[1]
    if name.endswith("DA"):
        return int(random.integers(3) if random.random() < 0.1 else 2 * (velocity > 0))
    return random.uniform(-4, 4, 1) if random.random() < 0.1 else np.sign([velocity]) * 1.5


@functools.lru_cache
def programs(env: Env) -> tuple[Any, Any]:
    def step(state: EnvState, action: Array, key: Array, time: Array) -> tuple[EnvState, Transition]:
        return env.step(state, action, stream_key(key, Stream.MOVE, time))

    return jax.jit(env.reset), jax.jit(step)


def rolled(env: Env, seed: int, actions: Any) -> tuple[Any, list[Transition]]:
    """An episode of the compiled environment: its first observation and what each step gave."""
    reset, step = programs(env)
    [key] = seed_keys([seed])
    state, first = reset(stream_key(key, Stream.START, 0))
    transitions = []
    for time, action in enumerate(actions):
        state, seen = step(state, action, key, np.int32(time))
        transitions.append(jax.tree.map(np.asarray, seen))
    return np.asarray(first), transitions


ENDINGS = {name: 40 if name.startswith("Pendulum") or name.endswith("Freeway") else 1000 for name in ENVS}


@pytest.mark.parametrize(("name", "limit"), [*ENDINGS.items(), ("MountainCar-DA", 40), ("Acrobot-CA", 40)])
def test_an_episode_is_that_of_the_compiled_environment_bit_for_bit(name: str, limit: int) -> None:
    face, random, seed = face_of(name, time_limit=limit), np.random.default_rng(5), MAX_SEED - limit
    observation, info = face.reset(seed=seed)
    actions, steps, ended, first = [], [], False, observation
    while not ended:
        actions.append(swing(name, observation, random))
        observation, reward, terminated, truncated, info = face.step(actions[-1])
        assert (type(reward), type(terminated), type(truncated), info) == (float, bool, bool, {})
        steps.append((observation, reward, terminated, truncated))
        ended = terminated or truncated

    given = np.array(actions, np.float32 if name.endswith("CA") else np.int32)
    expected, transitions = rolled(make_env(name, {"time_limit": limit}), seed, given)
    np.testing.assert_array_equal(first.ravel(), expected)
    flat = [(seen.ravel(), *rest) for seen, *rest in steps]
    for field, ours, theirs in zip(
        Transition._fields, zip(*flat, strict=True), zip(*transitions, strict=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs, err_msg=field)
    reached = limit == 1000
    assert (steps[-1][2], steps[-1][3]) == (reached, not reached)
    assert len(steps) < limit if reached else len(steps) == limit


@pytest.mark.parametrize("seed", [0, 7, MAX_SEED])
def test_an_episode_starts_as_the_first_one_of_a_run_with_its_seed(seed: int) -> None:
    expected = make_env("Acrobot-CA").reset(stream_key(seed_keys([seed])[0], Stream.START, 0))[1]
    np.testing.assert_array_equal(face_of("Acrobot-CA").reset(seed=seed)[0], expected)


class Windy(Pendulum):
    """Its reward is a random number."""

    def step(self, state: EnvState, action: Array, key: Array) -> tuple[EnvState, Transition]:
        moved, seen = super().step(state, action, key)
        return moved, seen._replace(reward=jax.random.normal(key))


def test_what_moves_at_random_draws_from_the_seed_and_the_time() -> None:
    world, seed, key = compiled(Windy()), jnp.uint32(9), jax.random.key(9)
    state, _ = world.reset(seed)
    for time in range(3):
        state, seen = world.step(state, np.zeros(1, np.float32), seed)
        expected = jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, Stream.MOVE), time))
        assert seen.reward == expected


def episode(face: Any, seed: int | None, steps: int = 30) -> Floats:
    """The observations of an episode under fixed actions."""
    discrete = isinstance(face.action_space, gymnasium.spaces.Discrete)
    observations = [face.reset(seed=seed)[0]]
    for step in range(steps):
        observations.append(face.step(step % 3 if discrete else [math.sin(step)])[0])
    return np.array(observations, float)


@pytest.mark.parametrize("name", ENVS)
def test_episodes_follow_from_the_seed_and_the_actions(name: str) -> None:
    face, other = face_of(name), face_of(name)
    third = [episode(face, 3), episode(face, None), episode(face, None)]
    episode(other, None)
    again = [episode(other, 3), episode(other, None), episode(other, None)]
    np.testing.assert_array_equal(third, again)
    starts = [one[0].tolist() for one in (*third, episode(face, 4))]
    assert len(np.unique(starts, axis=0)) == {"Pendulum": 1, "MinAtar-Breakout": 2}.get(
        name.removesuffix("-CA").removesuffix("-DA"), 4
    )


def test_a_face_without_a_seed_is_not_the_same_twice() -> None:
    assert face_of("Acrobot-CA").reset()[0].tolist() != face_of("Acrobot-CA").reset()[0].tolist()


def test_observations_are_the_callers_own() -> None:
    face = face_of("Pendulum-CA")
    first, _ = face.reset(seed=0)
    second = face.step([1.0])[0]
    expected = second.copy()
    first[:] = second[:] = 7.0
    face.reset(seed=0)
    np.testing.assert_array_equal(face.step([1.0])[0], expected)


def test_a_program_is_compiled_once_for_all_faces_alike() -> None:
    one, other = (face_of("Acrobot-CA", time_limit=123) for _ in range(2))
    assert compiled(one.world) is compiled(other.world)
    assert compiled(one.world) is not compiled(face_of("Acrobot-CA", time_limit=124).world)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda face: pickle.loads(pickle.dumps(face))])
@pytest.mark.parametrize("mode", ["rgb_array", "human"])
def test_a_copy_goes_on_by_itself(copied: Callable[[Any], Any], mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    face = gymnasium.make(IDS["MountainCar-CA"], render_mode=mode)
    face.reset(seed=2)
    face.step(np.ones(1, np.float32))
    double = copied(face)
    steps = [double.step(np.full(1, force, np.float32))[0] for force in (1.0, -1.0)]
    np.testing.assert_array_equal(face.step(np.ones(1, np.float32))[0], steps[0])
    np.testing.assert_array_equal(face.reset()[0], double.reset()[0])
    face.close()
    double.close()


# --- options and actions


def test_options_are_the_environments() -> None:
    face = face_of("Acrobot-DA", start="zero", time_limit=2)
    assert face.world == make_env("Acrobot-DA", {"start": "zero", "time_limit": 2})
    assert face.reset()[0].tolist() == [0, 0, 0, 0]
    assert [face.step(1)[3] for _ in range(2)] == [False, True]
    assert GymnasiumWrapper("Acrobot-DA", start="zero").world.time_limit == 1000


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("Acrobot-CA", {"start": "zeros"}, "unknown start 'zeros' (did you mean 'zero'?); allowed: uniform, zero"),
        ("Pendulum-CA", {"start": "zero"}, "unknown option of Pendulum-CA 'start'"),
        ("Pendulum-CA", {"time_limit": 0}, "time_limit = 0 is not allowed; allowed: whole number ≥ 1"),
        ("Pendulum-CA", {"continuous": False}, "unknown option of Pendulum-CA 'continuous'"),
        ("Pendulum-CA", {"render_mode": "rgb"}, "unknown render mode 'rgb' (did you mean 'rgb_array'?)"),
        ("Pendulum", {}, "unknown environment 'Pendulum'"),
    ],
)
def test_refused_options(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        GymnasiumWrapper(name, **given)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


BOX, THREE = "1 number in [-2, 2], in one array", "{0, 1, 2}"
REFUSED: list[tuple[str, Any, str]] = [
    ("Pendulum-CA", 0.5, BOX),
    ("Pendulum-CA", np.float32(0.5), BOX),
    ("Pendulum-CA", [0.5, 0.5], BOX),
    ("Pendulum-CA", np.zeros((1, 1)), BOX),
    ("Pendulum-CA", np.zeros(1000), BOX),
    ("Pendulum-CA", [], BOX),
    ("Pendulum-CA", [math.nan], BOX),
    ("Pendulum-CA", ["0.5"], BOX),
    ("Pendulum-CA", [1j], BOX),
    ("Pendulum-CA", [[1], [1, 2]], BOX),
    ("Pendulum-CA", None, BOX),
    ("Pendulum-DA", 3, THREE),
    ("Pendulum-DA", -1, THREE),
    ("Pendulum-DA", 1.0, THREE),
    ("Pendulum-DA", [1], THREE),
    ("Pendulum-DA", [[1], [1, 2]], THREE),
    ("Pendulum-DA", math.nan, THREE),
    ("Pendulum-DA", True, THREE),
    ("Pendulum-DA", 2**70, THREE),
    ("Pendulum-DA", None, THREE),
]


@pytest.mark.parametrize(("name", "action", "allowed"), REFUSED, ids=lambda value: repr(value)[:20])
def test_refused_actions_change_nothing(name: str, action: Any, allowed: str) -> None:
    face = GymnasiumWrapper(name, render_mode="rgb_array")
    start, _ = face.reset(seed=0)
    before = face.render()
    with pytest.raises(InputError) as caught:
        face.step(action)
    assert str(caught.value).startswith("action ")
    assert str(caught.value).endswith(f" is not allowed; allowed: {allowed}")
    assert len(str(caught.value)) < 150
    assert len(str(caught.value).splitlines()) == 1
    np.testing.assert_array_equal(face.render(), before)
    idle: Any = 1 if name.endswith("DA") else [0.0]
    assert face.step(idle)[0] == pytest.approx(start, abs=1e-5)


@pytest.mark.parametrize("name", [name for name in CONTROL if name.endswith("CA")])
def test_actions_outside_the_range_act_as_its_bound(name: str) -> None:
    face, low, high = face_of(name), *make_control(name).action_box.low, *make_control(name).action_box.high

    def after(action: Any) -> list[float]:
        face.reset(seed=0)
        return face.step(action)[0].tolist()

    assert after([1.01 * high]) == after([math.inf]) == after([1e300]) == after(np.array([7])) == after([high])
    assert after([1.01 * low]) == after([-math.inf]) == after(np.array([-1e6], np.float32)) == after([low])
    assert after([low]) != after([0.99 * low]) != after([high])


@pytest.mark.parametrize("action", [2, np.int64(2), np.uint8(2), np.array(2)])
def test_discrete_actions_may_be_any_whole_number(action: Any) -> None:
    face = face_of("Acrobot-DA")
    face.reset(seed=0)
    seen = face.step(action)[0]
    np.testing.assert_array_equal(rolled(face.world, 0, [np.int32(2)])[1][0].observation, seen)


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, 1.5, "1"])
def test_refused_seeds(seed: Any) -> None:
    with pytest.raises(InputError, match=r"^seed = .* is not allowed; allowed: whole number ≥ 0 and ≤ 4294967295$"):
        face_of("Pendulum-CA").reset(seed=seed)


@pytest.mark.parametrize("call", [lambda face: face.step([0.0]), lambda face: face.render()])
def test_reset_comes_first(call: Callable[[GymnasiumWrapper], Any]) -> None:
    with pytest.raises(ResetNeeded):
        call(GymnasiumWrapper("Pendulum-CA", render_mode="rgb_array"))


# --- many at once


def stepped(vector: SyncVectorEnv | AsyncVectorEnv) -> tuple[Floats, Floats, list[bool]]:
    observations, rewards, cut = [vector.reset(seed=11)[0]], [], []
    for step in range(6):
        seen, reward, _, truncated, _ = vector.step(np.full((2, 1), math.cos(step), np.float32))
        observations.append(seen)
        rewards.append(reward)
        cut.append(bool(truncated.all()))
    vector.close()
    return np.array(observations), np.array(rewards), cut


@pytest.mark.parametrize(("mode", "given"), [("sync", {}), ("async", {"context": "spawn"})])
def test_a_vector_of_environments(mode: str, given: dict[str, Any]) -> None:
    vector = gymnasium.make_vec(
        IDS["Acrobot-CA"], num_envs=2, vectorization_mode=mode, vector_kwargs=given, time_limit=5
    )
    assert isinstance(vector, SyncVectorEnv if mode == "sync" else AsyncVectorEnv)
    observations, rewards, cut = stepped(vector)
    assert cut == [False] * 4 + [True, False]
    assert (rewards[:5] == -1).all()
    for lane in range(2):
        actions = np.array([[math.cos(step)] for step in range(5)], np.float32)
        first, seen = rolled(make_env("Acrobot-CA", {"time_limit": 5}), 11 + lane, actions)
        np.testing.assert_array_equal(observations[:6, lane], [first, *(one.observation for one in seen)])
    assert np.abs(observations[6]).max() <= np.float32(0.1)  # a new episode


def test_processes_may_be_forked_before_jax_runs() -> None:
    """Making environments starts nothing of JAX's that would not survive the fork."""
    program = """
import gymnasium, greedyac
vector = gymnasium.make_vec("greedyac/Acrobot-CA-v0", 2, "async", vector_kwargs={"context": "fork"}, start="zero")
print(vector.reset(seed=0)[0].tolist())
vector.close()
"""
    assert run(program) == "[[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]\n"


# --- pictures

SIZES = {MountainCar: (400, 600, 3), Pendulum: (400, 400, 3), Acrobot: (400, 400, 3)}


def painted(frame: Frame, colour: str) -> Floats:
    """The middle, as (column, row), of the pixels of a colour."""
    rows, columns = np.nonzero((frame == ImageColor.getrgb(colour)).all(-1))
    return np.array([columns.mean(), rows.mean()])


def has(frame: Frame, colour: str) -> bool:
    return bool((frame == ImageColor.getrgb(colour)).all(-1).any())


def shown(face: GymnasiumWrapper) -> Frame:
    frame = face.render()
    assert isinstance(frame, np.ndarray)
    assert frame.dtype == np.uint8
    return frame


def draw(name: str, physics: Any, force: float = 0.0) -> Frame:
    env = make_env(name)
    return DRAWINGS[type(env)].draw(env, physics, force)


@pytest.mark.parametrize("name", CONTROL)
def test_a_picture_shows_the_state(name: str) -> None:
    face, env = GymnasiumWrapper(name, render_mode="rgb_array"), make_control(name)
    face.reset(seed=0)
    frames = [shown(face)]
    for _ in range(3):
        face.step([-0.8] if env.continuous else 0)
        frames.append(shown(face))
    assert all(frame.shape == SIZES[type(env)] for frame in frames)
    assert all((one != other).any() for one, other in itertools.pairwise(frames))
    np.testing.assert_array_equal(face.render(), frames[-1])
    assert [has(frame, FORCE) for frame in frames] == [False, True, True, True]
    face.reset(seed=0)
    np.testing.assert_array_equal(face.render(), frames[0])


@pytest.mark.parametrize("name", ["MinAtar-Breakout", "MinAtar-Freeway"])
def test_a_games_picture_has_the_colour_of_the_first_channel_that_is_lit_in_each_cell(name: str) -> None:
    face, random = GymnasiumWrapper(name, render_mode="rgb_array", time_limit=20), np.random.default_rng(0)
    grid, _ = face.reset(seed=0)
    for _ in range(15):
        middles = shown(face)[20::40, 20::40]
        colours = [ImageColor.getrgb(colour) for colour in (*GAMES[type(face.world)], INK)]
        first = np.where(grid.any(-1), grid.argmax(-1), grid.shape[-1])
        np.testing.assert_array_equal(middles, np.array(colours)[first])
        grid, _, terminated, _, _ = face.step(int(random.integers(3)))
        if terminated:
            grid, _ = face.reset()


@pytest.mark.parametrize("angle", [0.0, 0.6, 1.6, 3.1, -3.1, -1.6, -0.6])
def test_the_pendulum_points_where_its_angle_says(angle: float) -> None:
    """From the middle, 0 is up, and it grows anticlockwise as in Gymnasium; half of the rod's 141 pixels away."""
    middle = painted(draw("Pendulum-CA", Rod(angle, 0.0)), BODY)  # type: ignore[arg-type]
    away = np.array([-math.sin(angle), -math.cos(angle)])
    assert np.abs(middle - 200 - 70.5 * away).max() < 5  # 4.3: the pivot hides some of it


def test_an_upright_pendulum_is_above_its_pivot_and_a_hanging_one_below() -> None:
    rows = [
        np.nonzero((draw("Pendulum-DA", Rod(angle, 0.0)) == ImageColor.getrgb(BODY)).all(-1))[0]  # type: ignore[arg-type]
        for angle in (0.0, math.pi)
    ]
    assert (rows[0].min(), rows[1].max()) == pytest.approx((50, 350), abs=2)  # the tip reaches its circle
    assert rows[0].max() <= 210
    assert rows[1].min() >= 190


@pytest.mark.parametrize(("angle_1", "angle_2"), [(0.0, 0.0), (0.7, 0.0), (0.7, 1.5), (-2.0, 1.0), (3.1, -0.5)])
def test_acrobats_links_hang_from_each_other(angle_1: float, angle_2: float) -> None:
    frame = draw("Acrobot-CA", Links(angle_1, angle_2, 0.0, 0.0))  # type: ignore[arg-type]
    first, second = (np.array([math.sin(x), math.cos(x)]) for x in (angle_1, angle_1 + angle_2))
    assert np.abs(painted(frame, SECOND) - 200 - 88 * (first + second / 2)).max() < 4
    assert np.abs(painted(frame, BODY) - 200 - 88 * first / 2).max() < 6


def test_acrobats_goal_is_one_link_above_the_bar() -> None:
    assert painted(draw("Acrobot-CA", Links(0.0, 0.0, 0.0, 0.0)), GOAL) == pytest.approx((200, 112), abs=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [-1.2, -0.9, -math.pi / 6, 0.0, 0.45, 0.6])
def test_the_car_stands_on_the_ground_at_its_position(position: float) -> None:
    column, row = painted(draw("MountainCar-CA", Car(position, 0.0)), BODY)  # type: ignore[arg-type]
    ground = np.array([300 + 280 * (position + 0.3), 200 + 280 * (0.58 - 0.55 - 0.45 * math.sin(3 * position))])
    assert 10 < math.dist((column, row), ground) < 25  # the height of its body above the ground
    assert row < ground[1]


def test_the_flag_stands_at_the_goal() -> None:
    """Its cloth's right edge is the pole, at 0.45 or 0.5."""
    continuous, discrete = (painted(draw(f"MountainCar-{kind}", Car(0.0, 0.0)), GOAL) for kind in ("CA", "DA"))  # type: ignore[arg-type]
    assert discrete[0] - continuous[0] == pytest.approx(0.05 * 280, abs=1)
    assert continuous[0] == pytest.approx(300 + 280 * 0.75 - 0.04 * 280, abs=2)


@pytest.mark.parametrize(
    ("name", "physics", "steps"),
    [
        ("Pendulum-CA", Rod(0.0, 0.0), 3),  # type: ignore[arg-type]
        ("Pendulum-CA", Rod(3.1, 0.0), 3),  # type: ignore[arg-type]
        ("Acrobot-CA", Links(0.0, 0.0, 0.0, 0.0), 3),  # type: ignore[arg-type]
        ("MountainCar-CA", Car(-math.pi / 6, 0.0), 10),  # type: ignore[arg-type]
    ],
)
def test_a_force_points_where_it_moves_the_body(name: str, physics: Any, steps: int) -> None:
    """Acrobot's moves the second link away from the first."""
    env, still, acrobot = make_control(name), draw(name, physics), name.startswith("Acrobot")

    def body(frame: Frame) -> Floats:
        return painted(frame, SECOND) - painted(frame, BODY) if acrobot else painted(frame, BODY)

    strongest = env.action_box.high[0]
    for force in (-strongest, strongest):
        moved = idle = physics
        for _ in range(steps):
            moved, idle = env.push(moved, jnp.float32(force))[0], env.push(idle, jnp.float32(0))[0]
        pushed = body(draw(name, moved)) - body(draw(name, idle))
        pointed = painted(draw(name, physics, force), FORCE) - painted(still, SECOND if acrobot else BODY)
        assert abs(pushed[0]) > 2
        assert abs(pointed[0]) > 15
        assert np.sign(pushed[0]) == np.sign(pointed[0])
    assert not has(still, FORCE)
    sizes = [np.sum(draw(name, physics, part * strongest) != still) for part in (0.1, 0.4, 1.0)]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[-1] > 2 * sizes[0]


@pytest.mark.parametrize("name", [name for name in CONTROL if name.endswith("DA")])
def test_discrete_actions_show_the_forces_they_stand_for(name: str) -> None:
    discrete, same = GymnasiumWrapper(name, render_mode="rgb_array"), make_control(name)
    discrete.reset(seed=0)
    for action, force in enumerate((same.action_box.low[0], 0.0, same.action_box.high[0])):
        discrete.step(action)
        assert discrete._state is not None
        np.testing.assert_array_equal(discrete.render(), draw(name, discrete._state.physics, force))


def test_the_pace_is_the_drawings() -> None:
    made = {ENVS[name][0]: face_of(name, render_mode="rgb_array").metadata["render_fps"] for name in ENVS}
    assert made == {MountainCar: 30, Pendulum: 20, Acrobot: 15, Breakout: 10, Freeway: 15}
    assert set(made) == set(DRAWINGS)
    assert set(GymnasiumWrapper.metadata["render_modes"]) == {"rgb_array", "human"}


def test_what_has_no_drawing_is_refused_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(cast(dict[Any, Any], DRAWINGS), Pendulum)
    with pytest.raises(
        InputError, match=r"^Pendulum can't be rendered: .*; these have one: MountainCar, Acrobot, Breakout, Freeway$"
    ):
        GymnasiumWrapper("Pendulum-CA", render_mode="rgb_array")
    GymnasiumWrapper("Pendulum-CA").reset()


def test_without_a_render_mode_nothing_is_drawn() -> None:
    face = GymnasiumWrapper("Pendulum-CA")
    face.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert face.render() is None


def test_a_window_shows_every_step() -> None:
    program = """
import gymnasium, greedyac, numpy, pygame
window, picture = (gymnasium.make("greedyac/MountainCar-DA-v0", render_mode=mode) for mode in ("human", "rgb_array"))
for env in (window, picture):
    env.reset(seed=1)
for action in (None, 2, 2, 0):
    if action is not None:
        window.step(action)
        picture.step(action)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    assert (shown == picture.render()).all()
    assert window.render() is None
window.close()
assert not pygame.display.get_init()
window.close()
window.reset()
assert pygame.display.get_init()
window.close()
"""
    run(program, SDL_VIDEODRIVER="dummy")


def test_a_window_needs_an_extra_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(InputError, match=r"^render_mode = human needs pygame: pip install 'greedyac\[play\]'$"):
        GymnasiumWrapper("Pendulum-CA", render_mode="human")
    GymnasiumWrapper("Pendulum-CA", render_mode="rgb_array")
