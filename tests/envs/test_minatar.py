"""The compiled games of MinAtar against the `minatar` package, step by step, fed with the same random draws."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from minatar import Environment

from greedyac.agents.random import uniform_action
from greedyac.core.streams import Stream, stream_key
from greedyac.envs import Breakout, Freeway, make_env
from greedyac.envs.minatar.game import Game

STEPS = 100_000
NEVER = 2**31 - 1
"""A time limit without which games go on until they are over by themselves."""


class Told(list[Any]):
    """In place of NumPy's random numbers: gives what it was told, in that order."""

    def rand(self, *shape: int) -> Any:
        return self.pop(0)

    def randint(self, *bounds: int) -> Any:
        return self.pop(0)


def start_draws(env: Game, key: Array) -> list[Any]:
    """What the package draws at the start of an episode."""
    if isinstance(env, Freeway):
        return _speed_draws(env.speeds(key))
    assert isinstance(env, Breakout)
    return [env.from_right(key).astype(jnp.int32)]


def step_draws(env: Game, key: Array) -> list[Any]:
    """What it draws in a step, in order: whether an action sticks, and Freeway's new speeds if they are needed."""
    sticky_key, game_key = jax.random.split(key)
    return [
        jnp.where(env.sticks(sticky_key), 0.0, 1.0),
        *(start_draws(env, game_key) if isinstance(env, Freeway) else []),
    ]


def _speed_draws(speeds: Array) -> list[Any]:
    return [jnp.abs(speeds), jnp.where(speeds > 0, 1.0, 0.0)]


Policy = Callable[[Any, Array], Array]
"""From physics and a key to an action."""


def played(env: Game, policy: Policy, steps: int) -> Iterator[Any]:
    """A run of ours on the device: actions, what was seen, rewards, ends, and all random draws."""
    root = jax.random.key(0)

    def step(carry: Any, time: Array) -> Any:
        state, episode = carry
        key = stream_key(root, Stream.MOVE, time)
        action = policy(state.physics, stream_key(root, Stream.ACT, time))
        state, moved = env.step(state, action, key)
        start = stream_key(root, Stream.START, episode + 1)
        fresh, first = env.reset(start)
        ended = moved.terminated | moved.truncated
        told = action, moved, step_draws(env, key), start_draws(env, start), first
        state = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, state)
        return (state, episode + ended), told

    def run() -> Any:
        start = stream_key(root, Stream.START, 0)
        state, first = env.reset(start)
        return start_draws(env, start), first, jax.lax.scan(step, (state, 0), jnp.arange(steps))[1]

    return jax.device_get(jax.jit(run)())


def random_play(env: Game) -> Policy:
    return lambda physics, key: uniform_action(env.spaces.action, key)


def good_play(env: Game) -> Policy:
    """Mostly keeps the ball in play, or crosses the road; so that a game lasts."""

    def breakout(physics: Any, key: Array) -> Array:
        court = physics.game
        ahead = court.column + court.right * (court.down > 0)
        towards = jnp.sign(jnp.clip(ahead, 0, 9) - court.paddle)
        good = jnp.asarray([1, 0, 2])[towards + 1]
        return jnp.where(jax.random.uniform(key) < 0.02, uniform_action(env.spaces.action, key), good)

    def freeway(physics: Any, key: Array) -> Array:
        return jnp.where(jax.random.uniform(key) < 0.3, uniform_action(env.spaces.action, key), 1)

    return freeway if isinstance(env, Freeway) else breakout


@pytest.mark.parametrize(
    ("play", "actions"),
    [
        (random_play, "full"),
        pytest.param(random_play, "minimal", marks=pytest.mark.slow),
        pytest.param(good_play, "minimal", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", [Breakout, Freeway])
def test_every_step_is_that_of_the_original(kind: type[Game], play: Callable[[Game], Policy], actions: str) -> None:
    env = kind(actions=actions, time_limit=NEVER)
    start, first, (chosen, moved, draws, starts, firsts) = played(env, play(env), STEPS)
    game = Environment(kind.__name__.lower())
    choices = game.minimal_action_set() if actions == "minimal" else range(6)
    assert env.spaces.action.count == len(choices)  # type: ignore[union-attr]
    told = Told()
    game.random = game.env.random = told

    def anew(draws: Any, observation: Any) -> None:
        told[:] = [int(draws[0])] if kind is Breakout else [draws[0].copy(), draws[1]]
        game.reset()
        game.last_action = 0  # which the package keeps from the last episode
        assert not told
        np.testing.assert_array_equal(game.state().ravel(), observation)

    anew(start, first)
    total = ended = 0
    for time in range(STEPS):
        told[:] = [draws[0][time], *(part[time].copy() for part in draws[1:])]
        reward, over = game.act(choices[chosen[time]])
        total, ended = total + reward, ended + over
        assert (reward, over) == (moved.reward[time], moved.terminated[time]), time
        if not np.array_equal(game.state().ravel(), moved.observation[time]):
            np.testing.assert_array_equal(game.state().ravel(), moved.observation[time], err_msg=f"step {time}")
        if over:
            anew([part[time] for part in starts], firsts[time])
    assert total > (500 if play is good_play else 0)  # there were bricks to break and roads to cross
    assert ended > 10


def test_good_play_clears_a_wall_and_is_given_another() -> None:
    env = Breakout(time_limit=NEVER)
    _, _, (_, moved, *_) = played(env, good_play(env), STEPS)
    bricks = moved.observation.reshape(-1, 10, 10, 4)[..., 3].sum((1, 2))
    assert (bricks == 0).any()
    assert ((bricks[1:] == 30) & (bricks[:-1] == 0)).any()


@pytest.mark.parametrize("name", ["MinAtar-Breakout", "MinAtar-Freeway"])
def test_training_cuts_episodes_after_2500_steps_without_terminating(name: str) -> None:
    env = make_env(name)
    assert env.time_limit == 2500
    state, _ = env.reset(jax.random.key(0))
    state = state._replace(time=jnp.int32(2499))
    _, moved = env.step(state, jnp.int32(0), jax.random.key(1))
    assert moved.truncated
    assert not moved.terminated


@pytest.mark.parametrize(("probability", "repeats"), [(0.0, 0.0), (0.1, 0.1), (1.0, 1.0)])
def test_sticky_actions_repeat_the_last_one_that_often(probability: float, repeats: float) -> None:
    env = Breakout(actions="full", sticky_actions=probability)
    state, _ = env.reset(jax.random.key(0))
    physics = state.physics._replace(last_action=jnp.int32(1))
    keys = jax.random.split(jax.random.key(2), 20_000)
    after, _, _ = jax.vmap(lambda key: env.move(physics, jnp.int32(3), key))(keys)
    assert set(np.unique(after.last_action)) <= {1, 3}
    assert np.mean(after.last_action == 1) == pytest.approx(repeats, abs=0.01)  # five deviations


def test_every_start_is_as_likely_as_any_other() -> None:
    keys = jax.random.split(jax.random.key(3), 20_000)
    sides = jax.vmap(Breakout().from_right)(keys)
    assert np.mean(sides) == pytest.approx(0.5, abs=0.02)
    speeds = np.asarray(jax.vmap(Freeway().speeds)(keys))
    assert set(np.unique(speeds)) == {-5, -4, -3, -2, -1, 1, 2, 3, 4, 5}
    for car in speeds.T:
        shares = [np.mean(car == speed) for speed in np.unique(speeds)]
        np.testing.assert_allclose(shares, 0.1, atol=0.012)
