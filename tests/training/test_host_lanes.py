"""The loop for environments on the host: what is stored and learned, odd environments, failures, real ones."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from helpers import odd_envs
from helpers.odd_envs import Diary
from scipy import stats

import greedyac
from greedyac.agents import Agent, make_agent
from greedyac.agents.base import Batch
from greedyac.agents.random import uniform_action
from greedyac.core.streams import Stream, host_seed, seed_keys, stream_key
from greedyac.envs import HostEnv, env_label, make_world, parse_env_label
from greedyac.envs.gym.adapter import MAX_FEATURES, SpaceAdapter
from greedyac.envs.gym.host import find_host_env, named_host_env
from greedyac.training import replay
from greedyac.training.host_lanes import HostLaneBatch
from greedyac.training.normalize import LIMIT

TINY: dict[str, Any] = {"hidden": (4,), "batch_size": 4, "replay_capacity": 50, "critic_step_size": 1e-2}
STEPS = 100


@cache
def tiny(**more: Any) -> Agent:
    return make_agent("greedy-ac", {**TINY, "proposal_samples": 10, **more})


class Ran:
    """Runs of an odd environment, and the environments that they were on."""

    def __init__(self, kind: Callable[[], Diary], seeds: list[int], steps: int = STEPS, **hypers: Any):
        made: list[Diary] = []

        def make() -> Diary:
            made.append(kind())
            return made[-1]

        self.world = HostEnv(kind.__name__, maker=make, known=SpaceAdapter(kind.observation_space, kind.action_space))  # type: ignore[attr-defined]
        self.agent = tiny(**hypers)
        self.lanes = HostLaneBatch([self.agent] * len(seeds), self.world, seeds, steps)
        self.lanes.advance(steps)
        self.diaries = made
        self.outcomes = self.lanes.outcomes()

    def lane(self, number: int) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf[number]), self.lanes.state)


def assert_same(one: Any, other: Any) -> None:
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


def returns_of(diary: Diary) -> list[tuple[int, float]]:
    """Length and return of each finished episode."""
    ends = [index + 1 for index, step in enumerate(diary.steps) if step[4] or step[5]]
    spans = zip([0, *ends], ends, strict=False)
    return [
        (stop - start, float(sum(np.float32(step[2]) for step in diary.steps[start:stop]))) for start, stop in spans
    ]


# --- what is stored, recorded and learned


@pytest.fixture(scope="module")
def walk() -> Ran:
    return Ran(Diary, [3])


def test_the_replay_holds_what_happened_with_true_last_observations(walk: Ran) -> None:
    [diary], rows = walk.diaries, walk.lane(0).replay
    assert len(diary.steps) == STEPS
    assert {step[4] for step in diary.steps} == {step[5] for step in diary.steps} == {True, False}
    for time in range(STEPS - 50, STEPS):
        before, action, reward, after, terminated, _ = diary.steps[time]
        told = np.concatenate([before, action, [reward], after, [1.0 - terminated]]).astype(np.float32)
        assert np.array_equal(rows[time % 50], told)


def test_every_episode_has_a_seed_of_its_own_by_its_number(walk: Ran) -> None:
    [diary] = walk.diaries
    assert len(diary.seeds) == len(returns_of(diary)) + 1
    assert diary.seeds == [host_seed(3, Stream.START, index) for index in range(len(diary.seeds))]
    assert len(set(diary.seeds)) == len(diary.seeds)
    assert host_seed(3, Stream.START, 0) != host_seed(4, Stream.START, 0) != host_seed(3, Stream.EVALUATE, 0)


def test_the_curve_tells_the_returns_of_the_diary(walk: Ran) -> None:
    told, summary = returns_of(walk.diaries[0]), walk.outcomes[0].summary
    assert summary.episodes == len(told)
    assert summary.best_return == pytest.approx(max(total for _, total in told), rel=1e-5)
    mean = sum(length * total for length, total in told) / sum(length for length, _ in told)
    assert summary.average_return == pytest.approx(mean, rel=1e-5)


def test_it_learns_what_a_plain_loop_learns() -> None:
    steps, seed, agent = 60, 5, tiny()
    ran = Ran(Diary, [seed], steps)
    env, box, key = Diary(), ran.world.spaces, seed_keys([seed])[0]
    state = agent.init(stream_key(key, Stream.WEIGHTS, 0), box)
    rows, episode = replay.empty(50, box), 0
    update, act = jax.jit(agent.update), jax.jit(agent.act, static_argnames="greedy")
    observation, _ = env.reset(seed=host_seed(seed, Stream.START, 0))
    for time in range(steps):
        action = act(state, observation, stream_key(key, Stream.ACT, time), greedy=False)
        after, reward, terminated, truncated, _ = env.step(np.asarray(action))
        told = Batch(*map(jnp.float32, (observation, action, reward, after, not terminated)))
        rows = replay.write(rows, box, told, jnp.int32(time))
        if time >= 3:
            batch = replay.sample(rows, box, stream_key(key, Stream.REPLAY, time), 4, jnp.int32(time))
            state, _ = update(state, batch, stream_key(key, Stream.UPDATE, time))
        observation = after
        if terminated or truncated:
            episode += 1
            observation, _ = env.reset(seed=host_seed(seed, Stream.START, episode))
    for mine, theirs in zip(jax.tree.leaves(ran.outcomes[0].agent), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-5)


def test_a_run_does_not_depend_on_the_others(walk: Ran) -> None:
    alone = walk.outcomes[0]
    for seeds in ([3, 8], [1, 2, 3]):
        beside = Ran(Diary, seeds).outcomes[seeds.index(3)]
        assert_same(alone.agent, beside.agent)
        assert alone.summary == beside.summary
    assert Ran(Diary, [4]).outcomes[0].summary != alone.summary


def test_blocks_make_no_difference(walk: Ran) -> None:
    lanes = HostLaneBatch([walk.agent], walk.world, [3], STEPS)
    for block in (1, 2, 3, 40, 1000):
        lanes.advance(block)
    assert_same(lanes.outcomes()[0].agent, walk.outcomes[0].agent)


# --- odd environments


@pytest.mark.parametrize("kind", [odd_envs.OnlyCut, odd_envs.AtOnce])
def test_only_termination_ends_the_future(kind: type[Diary]) -> None:
    ran = Ran(kind, [0])
    continues = ran.lane(0).replay[:, -1]
    assert set(continues) == ({1.0} if kind is odd_envs.OnlyCut else {0.0})
    assert ran.outcomes[0].summary.episodes == (STEPS // 7 if kind is odd_envs.OnlyCut else STEPS)


def test_dict_observations_are_flattened() -> None:
    ran = Ran(odd_envs.InPieces, [0])
    rows, [diary] = ran.lane(0).replay, ran.diaries
    assert ran.world.spaces.observation.size == 2 + 2 + (2 + 2 + 3)
    time = STEPS - 1
    before, *_, after, _, _ = diary.steps[time]
    for seen, told in ((before, rows[time % 50, :11]), (after, rows[time % 50, 13:24])):
        flat: Any = spaces.flatten(odd_envs.InPieces.observation_space, seen)
        assert np.array_equal(told, flat.astype(np.float32))
    assert ran.outcomes[0].diverged_at is None


def test_boxes_of_unequal_bounds() -> None:
    ran = Ran(odd_envs.ThreePushes, [0])
    actions = np.array([step[1] for step in ran.diaries[0].steps])
    assert len(actions) == STEPS  # the environment itself asserts shape, type and bounds
    assert (actions.max(0) - actions.min(0) > [0.4, 0.25, 20.0]).all()


def test_discrete_actions_start_where_the_environments_do() -> None:
    ran = Ran(odd_envs.FromFive, [0])
    assert {int(step[1]) for step in ran.diaries[0].steps} == {5, 6, 7}
    stored = ran.lane(0).replay[:, 2]
    assert [int(step[1]) - 5 for step in ran.diaries[0].steps[50:]] == stored.astype(int).tolist()


ODD = next(seed for seed in range(20) if host_seed(seed, Stream.START, 0) % 2)
EVEN = next(seed for seed in range(20) if not host_seed(seed, Stream.START, 0) % 2)


def test_an_environment_that_raises_fails_its_run_alone() -> None:
    ran = Ran(odd_envs.Breaks, [EVEN, ODD])
    assert [outcome.error for outcome in ran.outcomes] == [None, "BrokenError: at step 40"]
    assert [len(diary.steps) for diary in ran.diaries] == [STEPS, 39]
    assert_same(ran.outcomes[0].agent, Ran(Diary, [EVEN]).outcomes[0].agent)


def test_all_environments_raise() -> None:
    ran = Ran(odd_envs.Breaks, [ODD])
    assert (ran.lanes.time, ran.lanes.live, ran.outcomes[0].error) == (39, False, "BrokenError: at step 40")


def test_not_a_number_diverges_its_run_alone() -> None:
    ran = Ran(odd_envs.NotANumber, [EVEN, ODD])
    assert [outcome.diverged_at for outcome in ran.outcomes] == [None, 39]
    assert ran.outcomes[1].summary.average_return is None
    assert_same(ran.outcomes[0].agent, Ran(Diary, [EVEN]).outcomes[0].agent)


def test_actions_that_are_no_numbers_are_not_for_an_environment() -> None:
    ran = Ran(odd_envs.OutOfSight, [0])
    assert (ran.outcomes[0].diverged_at, ran.lanes.time, len(ran.diaries[0].steps)) == (39, 40, 40)


def test_a_run_that_sees_nothing_from_the_start_has_diverged() -> None:
    ran = Ran(odd_envs.Blind, [0])
    assert (ran.outcomes[0].diverged_at, ran.lanes.time, ran.lanes.live) == (0, 0, False)


def test_an_environment_that_can_not_be_closed_loses_nothing() -> None:
    result = greedyac.train("random", odd_envs.Slammed, steps=20)
    assert result.curves["status"].to_list() == ["done"]
    assert greedyac.evaluate(result.policies[0], episodes=1).mean < 0


def test_an_id_that_was_registered_here_is_trained_here() -> None:
    gymnasium.register("Mine-v0", odd_envs.Diary)  # type: ignore[arg-type]
    try:
        assert greedyac.train("random", "Mine-v0", steps=20, seeds=2).curves["episodes"][0] >= 2
    finally:
        del gymnasium.registry["Mine-v0"]


@pytest.mark.parametrize("value", [9, 9.0, 9.5, True, "9", "nine", -0.1])
def test_labels_tell_options_again(value: Any) -> None:
    world = find_host_env("Pendulum-v1", {"g": value}, [])
    name, options = parse_env_label(env_label("Pendulum-v1", world))
    assert find_host_env(name, options, []) == world
    assert [type(one) for _, one in world.given] == [
        int if value == 9.0 and not isinstance(value, str) else type(value)
    ]


def test_rows_of_odd_runs() -> None:
    with pytest.warns(RuntimeWarning, match=f"1 of 2 runs failed, the first of them with seed {ODD}: BrokenError: at"):
        result = greedyac.train("greedy-ac", odd_envs.Breaks, seeds=[EVEN, ODD], steps=STEPS, **TINY)
    assert result.curves["status"].to_list() == ["done", "failed"]
    assert result.curves["error"].to_list() == [None, "BrokenError: at step 40"]
    assert result.curves["average_return"][1] is None
    assert [policy.run.seed for policy in result.policies] == [EVEN]
    assert result.run_steps_per_second is None  # some of the steps were never made


# --- which environments there can be


class _Of(gymnasium.Env[Any, Any]):
    def __init__(self, observation: Any, action: Any):
        self.observation_space, self.action_space = observation, action


LINE, PUSH = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))


@pytest.mark.parametrize(
    ("observation", "action", "complaint"),
    [
        (spaces.Text(5), PUSH, "has observations Text"),
        (spaces.Sequence(LINE), PUSH, "has observations Sequence"),
        (spaces.Dict({"a": spaces.Text(3)}), PUSH, "has observations Dict"),
        (
            spaces.Box(0, 255, (96, 96, 3), np.uint8),
            PUSH,
            "observations of 27,648 numbers; allowed: 1 to 4,096; images",
        ),
        (spaces.Box(0, 1, (0,)), PUSH, "has observations of 0 numbers"),
        (LINE, spaces.Box(-np.inf, 1, (1,)), "has actions Box(-inf, 1.0, (1,), float32); allowed: Discrete, and Box"),
        (LINE, spaces.Box(0, 5, (1,), np.int32), "has actions Box(0, 5, (1,), int32); allowed"),
        (LINE, spaces.Box(np.array([0, 1]), np.array([1, 1]), dtype=np.float32), "some of which can't be chosen"),
        (LINE, spaces.MultiDiscrete([2, 3]), "has actions MultiDiscrete"),
        (LINE, spaces.Dict({"a": PUSH}), "has actions Dict"),
    ],
)
def test_spaces_that_are_refused(observation: Any, action: Any, complaint: str) -> None:
    with pytest.raises(greedyac.InputError) as caught:
        named_host_env(_Of(observation, action))
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("environment '_Of' has ")
    assert "allowed: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 2, (2, 3)),
        spaces.Box(-np.inf, np.array([1.0, np.inf]), (2,), np.float64),
        spaces.Box(0, 255, (2, 2), np.uint8),
        spaces.Box(0, 1, (MAX_FEATURES,)),
        spaces.Discrete(4, start=-2),
        spaces.MultiBinary(3),
        spaces.MultiBinary([2, 2]),
        spaces.MultiDiscrete([2, 3], start=[1, -1]),
        spaces.Tuple([LINE, spaces.Dict({"b": spaces.Discrete(2), "a": LINE})]),
    ],
    ids=str,
)
def test_spaces_that_are_taken_survive_json(space: Any) -> None:
    known = SpaceAdapter(space, PUSH)
    assert SpaceAdapter.from_json(known.to_json()) == known
    assert known != SpaceAdapter(LINE, PUSH) or space == LINE
    space.seed(0)
    sample = space.sample()
    flat: Any = spaces.flatten(space, sample)
    assert np.array_equal(known.observation(sample), flat.astype(np.float32).ravel())
    assert known.spaces.observation.size == spaces.flatdim(space)


SWIG = pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")
"""Box2D's import warns, and breaks if a warning is an error."""


@SWIG
@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("Lunarlander-v3", {}, "(did you mean 'LunarLander-v3'?); allowed: MountainCar-CA, "),
        ("Pendulum-C", {}, "(did you mean 'Pendulum-CA'?)"),
        ("no_such_module:X-v0", {}, "module 'no_such_module' can't be imported: ModuleNotFoundError"),
        ("helpers.odd_envs:odd/Diry-v0", {}, "unknown environment 'helpers.odd_envs:odd/Diry-v0'"),
        ("Pendulum-v1", {"grav": 1}, "environment 'Pendulum-v1' can't be made: TypeError"),
        ("Pendulum-v1", {"g": [1, 2]}, "env option g = [1, 2] is not allowed; allowed: a finite number"),
        ("Pendulum-v1", {"g": "a,b"}, "env option g = 'a,b' is not allowed"),
        ("Swimmer-v3", {}, "environment 'Swimmer-v3' can't be made: "),
        ("CarRacing-v3", {}, "observations of 27,648 numbers"),
    ],
)
def test_environments_that_are_refused(name: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(greedyac.InputError) as caught:
        make_world(name, options).spaces  # noqa: B018
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


# --- options that are off by default


def test_warm_up_is_uniform_and_learns_nothing() -> None:
    ran = Ran(Diary, [2], 30, warm_up_steps=30)
    key, box = seed_keys([2])[0], ran.world.spaces
    wanted = [uniform_action(box.action, stream_key(key, Stream.ACT, time)) for time in range(30)]
    assert np.array_equal([step[1] for step in ran.diaries[0].steps], wanted)
    assert_same(ran.outcomes[0].agent, jax.jit(lambda: ran.agent.init(stream_key(key, Stream.WEIGHTS, 0), box))())
    ran.lanes.more(1)
    ran.lanes.advance(1)
    assert int(ran.lane(0).agent.critic_opt_state.count) == 1


def test_several_updates_per_step() -> None:
    ran = Ran(Diary, [2], 20, updates_per_step=3)
    assert int(ran.lane(0).agent.critic_opt_state.count) == 3 * (20 - 3)
    agent, key, box = ran.agent, seed_keys([2])[0], ran.world.spaces
    before = Ran(Diary, [2], 19, updates_per_step=3).lane(0)
    state, rows = before.agent, ran.lane(0).replay
    chosen = replay.sample(jnp.asarray(rows), box, stream_key(key, Stream.REPLAY, 19), 12, jnp.int32(19))
    for number, update_key in enumerate(jax.random.split(stream_key(key, Stream.UPDATE, 19), 3)):
        part = jax.tree.map(lambda field, number=number: field[4 * number : 4 * number + 4], chosen)
        state, _ = jax.jit(agent.update)(state, part, update_key)
    for mine, theirs in zip(jax.tree.leaves(ran.lane(0).agent), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_observations_and_rewards_are_normalised() -> None:
    ran = Ran(Diary, [2], 40, normalise_observations=True, normalise_rewards=True, discount=0.5)
    [diary], scales = ran.diaries, ran.outcomes[0].scales
    assert scales is not None
    assert scales.observation is not None
    assert scales.reward is not None
    seen = np.array([step[0] for step in diary.steps], np.float64)
    np.testing.assert_allclose(scales.observation.mean, seen.mean(0), rtol=1e-4)
    np.testing.assert_allclose(scales.observation.squares / 40, seen.var(0), rtol=1e-3)
    discounted, totals = 0.0, []
    for *_, reward, _, terminated, truncated in diary.steps:
        discounted = 0.5 * discounted + reward
        totals.append(discounted)
        discounted = 0.0 if terminated or truncated else discounted
    np.testing.assert_allclose(scales.reward.squares / 40, np.var(totals), rtol=1e-3)

    policy = greedyac.Policy(ran_run(ran), ran.outcomes[0].agent, scales)
    normal = np.clip((seen[-1] - seen.mean(0)) / seen.std(0), -LIMIT, LIMIT).astype(np.float32)
    wanted = ran.agent.act(policy.state, jnp.asarray(normal), jax.random.key(0), greedy=True)
    np.testing.assert_allclose(policy.predict(diary.steps[-1][0]).action, wanted, rtol=1e-3, atol=1e-4)

    row = ran.lane(0).replay[39]
    assert np.array_equal(row[:2], seen[39].astype(np.float32))  # the replay keeps what was seen


def ran_run(ran: Ran) -> Any:
    from greedyac.core.fields import values_of
    from greedyac.training.config import Run, RunConfig

    case = RunConfig("greedy-ac", "Diary", 40, values_of(ran.agent))
    vars(case).update(world=ran.world, learner=ran.agent)
    return Run(case, 2)


def test_normalisation_is_of_the_compiled_loop_too_and_survives_a_checkpoint(tmp_path: Path) -> None:
    model = greedyac.VanillaAC("MountainCar-CA", normalise_observations=True, **{**TINY, "replay_capacity": 300})
    model.learn(200, progress=False)
    scales = model.policy.scales
    assert scales is not None
    assert scales.observation is not None
    lane = model._begun().state
    positions = np.asarray(lane.replay[0, :200, 0], np.float64)
    np.testing.assert_allclose(scales.observation.mean[0], positions.mean(), rtol=1e-4)
    model.save(tmp_path / "model.safetensors")
    loaded = greedyac.load(tmp_path / "model.safetensors")
    spots = np.array([[-0.5, 0.01], [0.2, -0.03]])
    assert np.array_equal(loaded.predict(spots).action, model.predict(spots).action)


# --- evaluations


def test_evaluations_are_of_the_most_likely_action_and_change_nothing() -> None:
    asked: dict[str, Any] = {"seeds": [3, 4], "steps": STEPS, **TINY}
    plain = greedyac.train("greedy-ac", Diary, **asked)
    told = greedyac.train("greedy-ac", Diary, **asked, eval_every=30, eval_episodes=4)
    assert plain.curves["curve"].to_list() == told.curves["curve"].to_list()
    assert plain.curves["eval_curve"].to_list() == [None, None]
    assert told.curves["eval_steps"].to_list() == [30, 30]
    assert [len(values) for values in told.curves["eval_curve"]] == [3, 3]
    assert set(plain.curves["run_id"]).isdisjoint(told.curves["run_id"])
    until = greedyac.train("greedy-ac", Diary, **{**asked, "steps": 90})
    for policy, values in zip(until.policies, told.curves["eval_curve"].to_list(), strict=True):
        totals = []
        for episode in range(8, 12):  # those of the third evaluation
            env, total, ended = Diary(), 0.0, False
            observation, _ = env.reset(seed=host_seed(policy.run.seed, Stream.EVALUATE, episode))
            while not ended:
                observation, reward, terminated, truncated, _ = env.step(policy.predict(observation).action)
                total, ended = total + reward, terminated or truncated
            totals.append(total)
        assert values[2] == pytest.approx(np.mean(totals), rel=1e-5)


# --- real ones


@SWIG
@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "env", "options"), [("sac", "LunarLander-v3", {"gravity": -9.0}), ("greedy-ac", "Swimmer-v5", {})]
)
def test_real_environments(agent: str, env: str, options: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"steps": 1100, "env_options": options, "hidden": (16,)}
    both = greedyac.train(agent, env, seeds=[0, 1], **asked)
    assert both.curves["status"].to_list() == ["done", "done"]
    assert (both.curves["episodes"] >= 1).all()
    assert both.curves["env"][0] == ("LunarLander-v3[gravity=-9]" if options else env)
    engine = "Box2D" if options else "mujoco"
    assert f'"{engine}' in both.curves["versions"][0]
    alone = greedyac.train(agent, env, seeds=1, **asked)
    for column in ("run_id", "curve", "average_return", "episodes"):
        assert both.curves[column].to_list()[1] == alone.curves[column].to_list()[0]
    assert greedyac.evaluate(both.policies[0], episodes=1).mean != 0


@pytest.mark.slow
def test_swimmer_runs_with_the_papers_networks_and_larger_step_sizes() -> None:
    """With the paper's own the actor moves by 1e-6 per step: in a test nothing would."""
    asked: dict[str, Any] = {
        "critic_step_size": 1e-3,
        "actor_step_size_scale": 0.1,
        "eval_every": 200,
        "eval_episodes": 1,
    }
    result = greedyac.train("greedy-ac", "Swimmer-v5", preset="paper", seeds=0, steps=400, **asked)
    [row] = result.curves.to_dicts()
    assert row["status"] == "done"
    first, second = row["eval_curve"]
    assert first != second  # it has learned something
    assert json.loads(row["hypers"])["hidden"] == [256, 256]


@pytest.mark.slow
def test_the_host_loop_learns_like_the_compiled_loop() -> None:
    """8 seeds on two workers; random actions earn about -600."""
    asked: dict[str, Any] = {"seeds": range(8), "steps": 10_000}
    compiled = greedyac.train("greedy-ac", "Pendulum-CA", **asked).curves["average_return"].to_numpy()
    host = greedyac.train("greedy-ac", "greedyac/Pendulum-CA-v0", **asked).curves["average_return"].to_numpy()
    intervals = [stats.t.interval(0.95, 7, values.mean(), stats.sem(values)) for values in (compiled, host)]
    assert max(low for low, _ in intervals) < min(high for _, high in intervals)
    assert host.mean() > -500
