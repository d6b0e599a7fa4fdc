"""The environments against Gymnasium's, one step at a time, and the rules of their episodes."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from helpers.controls import CONTROL, make_control
from jax import Array
from numpy.typing import NDArray
from scipy.stats import kstest

from greedyac.core.errors import InputError
from greedyac.core.spaces import Discrete
from greedyac.envs import Acrobot, Control, EnvState, MountainCar, Pendulum, Transition
from greedyac.envs.classic.acrobot import Links
from greedyac.envs.classic.control import wrap_angle
from greedyac.envs.classic.mountain_car import Car
from greedyac.envs.classic.pendulum import Rod

Floats = NDArray[np.float64]
PHYSICS: dict[type[Control], Any] = {MountainCar: Car, Pendulum: Rod, Acrobot: Links}
CONTINUOUS = [name for name in CONTROL if name.endswith("CA")]
DISCRETE = [name for name in CONTROL if name.endswith("DA")]
KEY = jax.random.key(0)
COUNT = 4000


class Trial(NamedTuple):
    """Random states, actions, and the forces these stand for: numbers that float32 has, in float64."""

    states: Floats
    actions: Any
    forces: Floats


def bounds(env: Control) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return np.array(env.observation_space.low, np.float32), np.array(env.observation_space.high, np.float32)


def trial(env: Control, count: int = COUNT, speed: float = 1.0) -> Trial:
    """States over all of the observation space, velocities up to a fraction `speed`, and actions."""
    rng = np.random.default_rng(0)
    low, high = bounds(env)
    scale = np.where(np.arange(low.size) < low.size // 2, 1.0, speed)
    states = rng.uniform(low * scale, high * scale, (count, low.size)).astype(np.float32)
    bound = env.action_box.high[0]
    if env.continuous:
        actions: Any = rng.uniform(-1.5 * bound, 1.5 * bound, (count, 1)).astype(np.float32)
        return Trial(states.astype(float), actions, actions[:, 0].clip(-bound, bound).astype(float))
    actions = rng.integers(0, 3, count)
    return Trial(states.astype(float), actions, (actions - 1) * bound)


@functools.partial(jax.jit, static_argnums=0)
def step_all(env: Control, states: Array, actions: Array, time: Array) -> Transition:
    def step(state: Array, action: Array) -> Transition:
        return env.step(EnvState(PHYSICS[type(env)](*state), time), action, KEY)[1]

    return jax.vmap(step)(states, actions)


def stepped(env: Control, states: Any, actions: Any, time: int = 0) -> Transition:
    """One step from each state under each action, as NumPy arrays `[count, …]`, padded to compile once."""
    states, actions, count = np.array(states, np.float32), np.array(actions), len(states)
    padded = (np.resize(x, (COUNT, *x.shape[1:])) for x in (states, actions))
    seen: Transition = jax.tree.map(lambda x: np.array(x[:count]), step_all(env, *padded, jnp.int32(time)))
    return seen


@functools.partial(jax.jit, static_argnums=0)
def starts(env: Control) -> tuple[EnvState, Array]:
    return jax.vmap(env.reset)(jax.random.split(KEY, COUNT))


def apart(ours: Any, theirs: Floats, angles: int = 0) -> Floats:
    """The distance of each state variable `[count, features]`; the first `angles` of them are modulo 2π."""
    distance = np.abs(np.asarray(ours, float) - theirs)
    distance[:, :angles] = np.minimum(distance[:, :angles], np.abs(distance[:, :angles] - 2 * math.pi))
    return distance


# --- one step against the originals


@pytest.mark.parametrize("name", ["MountainCar-CA", "MountainCar-DA"])
def test_mountain_car_moves_as_gymnasiums(name: str) -> None:
    env = make_control(name)
    tried = trial(env)
    original: Any = Continuous_MountainCarEnv() if env.continuous else MountainCarEnv()
    theirs, ended = [], []
    for state, action in zip(tried.states, tried.actions, strict=True):
        original.state = state.copy()
        ended.append(original.step(action.astype(float) if env.continuous else action)[2])
        theirs.append(np.array(original.state, float))
    ours, positions = stepped(env, tried.states, tried.actions), np.array(theirs)[:, 0]
    distance = apart(ours.observation, np.array(theirs))
    assert (distance.max(0) < [2e-7, 2e-8]).all()  # 1.2e-7 and 7.5e-9
    assert np.isclose(positions, -1.2, atol=1e-7).any()
    clear = np.abs(positions - original.goal_position) > 1e-6
    np.testing.assert_array_equal(ours.terminated[clear], np.array(ended)[clear])
    assert clear.mean() > 0.99
    assert 0.02 < np.mean(ended) < 0.2


@pytest.mark.parametrize("name", ["Acrobot-CA", "Acrobot-DA"])
@pytest.mark.parametrize(("speed", "most", "typical"), [(1.0, 5e-3, 5e-5), (0.5, 1e-5, 4e-6)])
def test_acrobot_moves_as_gymnasiums(name: str, speed: float, most: float, typical: float) -> None:
    """At full speed a step of 0.2 turns a link by several turns and magnifies float32 rounding."""
    env = make_control(name)
    tried = trial(env, speed=speed)
    original: Any = AcrobotEnv()
    theirs, ended = [], []
    for state, force in zip(tried.states, tried.forces, strict=True):
        original.state, original.AVAIL_TORQUE = state, [force]
        ended.append(original.step(0)[2])
        theirs.append(original.state)
    ours = stepped(env, tried.states, tried.actions)
    distance = apart(ours.observation, np.array(theirs), angles=2)
    assert distance.max() < most  # 1.9e-3 at full speed, 4.2e-6 at half
    assert np.quantile(distance, 0.99, axis=0).max() < typical  # 2.3e-5, 1.6e-6
    angle_1, angle_2 = np.array(theirs).T[:2]
    clear = np.abs(-np.cos(angle_1) - np.cos(angle_1 + angle_2) - 1) > 1e-4
    np.testing.assert_array_equal(ours.terminated[clear], np.array(ended)[clear])
    assert clear.mean() > 0.99
    assert 0.1 < np.mean(ended) < 0.3


@pytest.mark.parametrize("name", ["Pendulum-CA", "Pendulum-DA"])
def test_pendulum_turns_by_its_velocity_before_the_clip_and_else_as_gymnasiums(name: str) -> None:
    env = make_control(name)
    tried = trial(env)
    original: Any = PendulumEnv()
    theirs = []
    for state, force in zip(tried.states, tried.forces, strict=True):
        original.state = state
        original.step([force])
        theirs.append(original.state)
    angle, velocity = tried.states.T
    velocity = velocity + 0.05 * (15 * np.sin(angle) + 3 * tried.forces)
    expected = np.stack([angle + 0.05 * velocity, velocity.clip(-8, 8)], 1)
    expected[:, 0] = np.mod(expected[:, 0] + math.pi, 2 * math.pi) - math.pi

    ours = stepped(env, tried.states, tried.actions).observation
    assert apart(ours, expected, angles=1).max() < 1e-6  # 5.2e-7
    free = np.abs(velocity) < 8
    turned = np.array(theirs)
    turned[:, 0] = np.mod(turned[:, 0] + math.pi, 2 * math.pi) - math.pi
    assert apart(ours, turned, angles=1)[free].max() < 1e-6
    assert 0.9 < free.mean() < 0.99
    assert apart(ours, turned, angles=1)[~free, 0].max() > 0.01  # the clip does make a difference


# --- how episodes start


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("MountainCar-CA", -0.6, -0.4),
        ("MountainCar-DA", -0.6, -0.4),
        ("Acrobot-CA", -0.1, 0.1),
        ("Acrobot-DA", -0.1, 0.1),
    ],
)
def test_random_starts_are_uniform(name: str, low: float, high: float) -> None:
    env = make_control(name)
    state, observation = starts(env)
    drawn = np.asarray(observation)[:, : 1 if name.startswith("MountainCar") else 4]
    assert (np.asarray(observation)[:, drawn.shape[1] :] == 0).all()
    assert (np.asarray(state.time) == 0).all()
    assert ((drawn >= np.float32(low)) & (drawn < np.float32(high))).all()
    p_values = [kstest(column, "uniform", (low, high - low)).pvalue for column in drawn.T]
    assert min(p_values) > 0.01
    correlations = np.atleast_2d(np.corrcoef(drawn.T)) - np.eye(drawn.shape[1])
    assert np.abs(correlations).max() < 0.05


@pytest.mark.parametrize("name", ["Pendulum-CA", "Pendulum-DA"])
def test_pendulum_starts_hanging_down_at_rest(name: str) -> None:
    _, observations = starts(make_control(name))
    np.testing.assert_array_equal(observations, np.tile(np.array([-math.pi, 0], np.float32), (COUNT, 1)))


@pytest.mark.parametrize("name", ["Acrobot-CA", "Acrobot-DA"])
def test_acrobot_can_start_at_zero(name: str) -> None:
    _, observations = starts(make_control(name, {"start": "zero"}))
    np.testing.assert_array_equal(observations, np.zeros((COUNT, 4)))
    assert make_control(name) == make_control(name, {"start": "uniform"})


# --- rewards and ends


@pytest.mark.parametrize("name", ["MountainCar-CA", "MountainCar-DA"])
def test_mountain_car_pays_minus_one_also_at_the_goal(name: str) -> None:
    env = make_control(name)
    seen = stepped(env, *trial(env)[:2])
    assert seen.terminated.any()
    assert (seen.reward == -1).all()


@pytest.mark.parametrize("name", ["Acrobot-CA", "Acrobot-DA"])
def test_acrobot_pays_minus_one_but_nothing_at_the_goal(name: str) -> None:
    env = make_control(name)
    seen = stepped(env, *trial(env)[:2])
    assert seen.terminated.any()
    np.testing.assert_array_equal(seen.reward, np.where(seen.terminated, 0, -1))


@pytest.mark.parametrize("name", ["Pendulum-CA", "Pendulum-DA"])
def test_pendulum_pays_the_cosine_of_the_new_angle_and_never_terminates(name: str) -> None:
    env = make_control(name)
    seen = stepped(env, *trial(env)[:2])
    np.testing.assert_allclose(seen.reward, np.cos(seen.observation[:, 0].astype(float)), atol=2e-7)
    assert not seen.terminated.any()


@pytest.mark.parametrize(("name", "goal"), [("MountainCar-CA", 0.45), ("MountainCar-DA", 0.5)])
def test_mountain_car_must_pass_the_goal_and_not_roll_back(name: str, goal: float) -> None:
    env = make_control(name)
    states = [[goal - 0.02, 0.03], [goal - 0.02, 0.01], [goal + 0.05, -0.01], [goal + 0.05, 0.0], [0.6, 0.07]]
    seen = stepped(env, states, [[1.0]] * 5 if env.continuous else [2] * 5)
    assert seen.observation[2, 0] > goal
    assert seen.observation[2, 1] < 0
    np.testing.assert_array_equal(seen.terminated, [True, False, False, True, True])


@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.parametrize("limit", [1000, 7])
def test_an_episode_is_truncated_at_the_limit_and_never_before(name: str, limit: int) -> None:
    env = make_control(name) if limit == 1000 else make_control(name, {"time_limit": limit})
    idle = jnp.zeros(1) if env.continuous else jnp.int32(1)

    def step(state: EnvState, _: None) -> tuple[EnvState, Transition]:
        return env.step(state, idle, KEY)

    _, seen = jax.jit(lambda: jax.lax.scan(step, env.reset(KEY)[0], length=limit))()
    assert not seen.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(seen.truncated), [limit - 1])


@pytest.mark.parametrize(
    ("name", "state"),
    [("MountainCar", [0.49, 0.03]), ("Acrobot", [math.pi, 0.0, 0.0, 0.0])],
)
@pytest.mark.parametrize("suffix", ["CA", "DA"])
def test_reaching_the_goal_on_the_last_step_terminates_and_does_not_truncate(
    name: str, state: list[float], suffix: str
) -> None:
    env = make_control(f"{name}-{suffix}")
    seen = stepped(env, [state], [[1.0]] if env.continuous else [2], time=999)
    assert seen.terminated.all()
    assert not seen.truncated.any()


# --- actions


@pytest.mark.parametrize("name", CONTINUOUS)
def test_actions_outside_the_box_act_as_its_bound(name: str) -> None:
    env = make_control(name)
    low, high = env.action_box.low[0], env.action_box.high[0]
    state = starts(env)[1][0]
    actions = np.array(
        [[-1e6], [1.01 * low], [low], [0.99 * low], [0.99 * high], [high], [1.01 * high], [1e6]], np.float32
    )
    velocities = stepped(env, [state] * 8, actions).observation[:, -1]
    assert velocities[0] == velocities[1] == velocities[2]
    assert velocities[5] == velocities[6] == velocities[7]
    assert (np.diff(velocities[2:6]) > 0).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_actions_push_down_not_at_all_and_up(name: str) -> None:
    env = make_control(name)
    first = starts(env)[1][0]
    low, high = env.action_box.low[0], env.action_box.high[0]
    physics, forces = PHYSICS[type(env)](*first), jnp.array([low, 0, high])
    expected = jax.jit(jax.vmap(lambda force: env.observe(env.push(physics, force)[0])))(forces)
    seen = stepped(env, [first] * 3, [0, 1, 2]).observation
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    assert (np.diff(seen[:, -1]) > 1e-4).all()


@pytest.mark.parametrize("name", CONTROL)
def test_the_action_space_is_the_box_or_three_numbers(name: str) -> None:
    env = make_control(name)
    assert env.spaces.observation == env.observation_space
    assert env.spaces.action == (env.action_box if name in CONTINUOUS else Discrete(3))
    assert env.action_box.high == ((2.0,) if name.startswith("Pendulum") else (1.0,))
    assert env.action_box.low == tuple(-x for x in env.action_box.high)


# --- observations


@pytest.mark.parametrize("name", CONTROL)
def test_observations_of_random_play_are_float32_within_their_space(name: str) -> None:
    env, rng = make_control(name), np.random.default_rng(1)
    states: Any = trial(env, 100).states
    assert starts(env)[1].dtype == jnp.float32
    low, high = bounds(env)
    for _ in range(200):
        actions = rng.normal(0, 2, (100, 1)).astype(np.float32) if env.continuous else rng.integers(0, 3, 100)
        seen = stepped(env, states, actions).observation
        assert seen.dtype == np.float32
        assert (seen >= low).all()
        assert (seen <= high).all()
        states = seen


def test_wrapped_angles_are_in_the_half_open_range_for_any_float() -> None:
    pi = np.float32(math.pi)
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    tiny = np.array([-1e-45, -1e-38, -1e-10, -1e-7, 0, 1e-7, 3e38, -3e38], np.float32)
    odd = np.float32(math.pi) * np.arange(-101, 102, 2, dtype=np.float32)
    edges = np.concatenate([np.nextafter(odd, -np.inf), odd, np.nextafter(odd, np.inf)])
    angles = np.concatenate([bits[np.isfinite(bits)], tiny, edges])
    wrapped = np.asarray(jax.jit(wrap_angle)(angles))
    assert wrapped.dtype == np.float32
    assert (wrapped >= -pi).all()
    assert (wrapped < pi).all()
    assert wrap_angle(jnp.float32(pi)) == -pi
    assert wrap_angle(jnp.float32(-pi)) == -pi


def test_wrapping_keeps_the_angle_modulo_a_turn() -> None:
    angles = np.random.default_rng(0).uniform(-50, 50, 20_000).astype(np.float32)
    wrapped = np.asarray(jax.jit(wrap_angle)(angles), float)
    turned = (wrapped - angles.astype(float)) / (2 * math.pi)
    assert np.abs(turned - np.round(turned)).max() * 2 * math.pi < 5e-6  # 2.6e-6


# --- names and options


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Pendulm-CA", {}, ["environment 'Pendulm-CA'", "did you mean 'Pendulum-CA'?", "MountainCar-DA"]),
        ("pendulum-ca", {}, ["did you mean 'Pendulum-CA'?"]),
        ("Swimmer", {}, ["allowed: MountainCar-CA"]),
        (
            "Acrobot-CA",
            {"strt": "zero"},
            ["option of Acrobot-CA 'strt'", "did you mean 'start'?", "time_limit"],
        ),
        ("Pendulum-CA", {"start": "zero"}, ["option of Pendulum-CA 'start'", "allowed: time_limit"]),
        ("Pendulum-CA", {"continuous": False}, ["option of Pendulum-CA 'continuous'"]),
        ("Acrobot-DA", {"start": "random"}, ["start 'random'", "uniform, zero"]),
        ("MountainCar-CA", {"time_limit": 0}, ["time_limit = 0 is not allowed", "whole number ≥ 1"]),
        ("MountainCar-CA", {"time_limit": 1.5}, ["time_limit = 1.5 is not allowed"]),
        ("MountainCar-CA", {"time_limit": True}, ["time_limit = true is not allowed"]),
        ("MountainCar-CA", {"time_limit": "long"}, ["time_limit = 'long' is not allowed"]),
        ("MountainCar-CA", {"time_limit": math.inf}, ["time_limit = inf is not allowed"]),
    ],
)
def test_a_wrong_name_or_option_is_one_line_that_says_what_is_allowed(
    name: str, options: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        make_control(name, options)
    message = str(caught.value)
    assert all(word in message for word in words)
    assert "\n" not in message
