"""What wrappers have learned in training: evaluations and files have it, and wrappers that lose it are named."""

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from helpers.odd_envs import Diary
from safetensors import safe_open

import greedyac
from greedyac.api.model import Model
from greedyac.core.errors import InputError
from greedyac.core.streams import Stream, host_seed
from greedyac.envs.gym.statistics import get_statistics, prepare, set_statistics
from greedyac.video.play import drawn_env

TINY: dict[str, Any] = {"hidden": (4,), "batch_size": 4, "replay_capacity": 50, "critic_step_size": 1e-2}
STEPS = 101


class Scale(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Divides by the largest number so far, which it says how to hand on."""

    def __init__(self, env: Any):
        super().__init__(env)
        self.largest, self.seen = np.full(2, 1e-3), 0

    def observation(self, observation: Any) -> Any:
        self.largest, self.seen = np.maximum(self.largest, np.abs(observation)), self.seen + 1
        return observation / self.largest

    def get_statistics(self) -> Any:
        return {"largest": self.largest, "seen": self.seen}

    def set_statistics(self, statistics: Mapping[str, Any]) -> None:
        self.largest, self.seen = statistics["largest"], statistics["seen"]


class Made:
    """A function that makes environments, which can be looked at."""

    def __init__(self, make: Callable[[Any], Any]):
        self.make, self.envs = make, list[Any]()

    def __call__(self) -> Any:
        self.envs.append(self.make(Diary()))
        return self.envs[-1]

    @property
    def trained(self) -> Any:
        return next(env for env in self.envs if env.unwrapped.steps)

    @property
    def evaluated(self) -> Any:
        assert self.envs[-1] is not self.trained
        return self.envs[-1]


def both(env: Any) -> Any:
    return NormalizeReward(NormalizeObservation(env))


def learner(env: Any, **more: Any) -> Model:
    return greedyac.GreedyAC(env, **TINY, proposal_samples=10, **more)


def assert_same(one: Any, other: Any) -> None:
    mine, theirs = (env if isinstance(env, dict) else get_statistics(env) for env in (one, other))
    assert mine.keys() == theirs.keys()
    assert mine
    for name, value in mine.items():
        assert value.tobytes() == theirs[name].tobytes(), name
        assert value.dtype == theirs[name].dtype, name


def returns_by_hand(model: Model, normalize: Callable[[Any], Any], episodes: int, seed: int) -> list[float]:
    """On an environment without wrappers."""
    env, returns = Diary(), []
    for number in range(episodes):
        observation, _ = env.reset(seed=host_seed(seed, Stream.EVALUATE, number))
        total, ended = 0.0, False
        while not ended:
            action = model.predict(normalize(observation)).action
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    return returns


def as_trained(moments: Any) -> Callable[[Any], Any]:
    return lambda observation: np.float32((observation - moments.mean) / np.sqrt(moments.var + 1e-8))


# --- evaluations


def test_an_evaluation_sees_what_training_saw_and_adds_nothing() -> None:
    made = Made(NormalizeObservation)
    model = learner(made).learn(STEPS)
    evaluation = model.evaluate(3, seed=5)
    moments = made.trained.obs_rms
    assert moments.count == pytest.approx(len(made.trained.unwrapped.steps) + len(made.trained.unwrapped.seeds))
    assert_same(made.evaluated, made.trained)
    assert len(made.evaluated.unwrapped.seeds) == 3
    assert evaluation.returns == pytest.approx(returns_by_hand(model, as_trained(moments), 3, 5), rel=1e-4)
    fresh = returns_by_hand(model, as_trained(NormalizeObservation(Diary()).obs_rms), 3, 5)
    assert evaluation.returns != pytest.approx(fresh, rel=1e-4)
    model.learn(20)
    assert made.trained.obs_rms.count > 120
    assert greedyac.evaluate(model, 3, 5).returns != evaluation.returns
    assert_same(made.evaluated, made.trained)


@pytest.mark.parametrize("base", [Diary, lambda: gymnasium.make("Pendulum-v1", max_episode_steps=9)])
def test_an_instance_shares_too_made_again_or_copied(base: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    env = wrappers.TransformObservation(NormalizeObservation(base()), lambda seen: seen / 2, None)
    model = greedyac.Random(env).learn(STEPS)
    seen: list[Any] = []
    observe = NormalizeObservation.observation

    def spied(env: Any, observation: Any) -> Any:
        seen.append(env)
        return observe(env, observation)

    monkeypatch.setattr(NormalizeObservation, "observation", spied)
    before = get_statistics(env)
    model.evaluate(2)
    assert env.env not in seen
    assert_same(seen[0], env)
    assert_same(seen[-1], before)


def test_the_best_policy_is_kept_with_its_statistics(tmp_path: Path) -> None:
    made, known = Made(NormalizeObservation), dict[int, Any]()

    def note(model: Model) -> None:
        known[model.steps] = get_statistics(made.trained)

    note.every = 20  # type: ignore[attr-defined]
    evaluate = greedyac.Evaluate(20, 3, best=tmp_path / "best", seed=4)
    learner(made, seed=1).learn(STEPS, callback=[note, evaluate])
    assert len(set(evaluate.returns)) == len(evaluate.steps) == 5
    best = evaluate.steps[np.argmax(evaluate.returns)]
    held = greedyac.load(tmp_path / "best", env=made)
    assert_same(held.policy.statistics, known[best])
    assert held.evaluate(3, seed=4).mean == max(evaluate.returns)
    mean, var = (known[best][f"NormalizeObservation.0.obs_rms.{part}"] for part in ("mean", "var"))
    by_hand = returns_by_hand(held, lambda seen: np.float32((seen - mean) / np.sqrt(var + 1e-8)), 3, 4)
    assert max(evaluate.returns) == pytest.approx(np.mean(by_hand), rel=1e-4)


@pytest.mark.parametrize("wrap", [NormalizeReward, both, lambda env: NormalizeReward(NormalizeReward(env))])
def test_evaluations_are_in_the_environments_own_rewards(wrap: Callable[[Any], Any]) -> None:
    made = Made(wrap)
    model = learner(made).learn(STEPS)
    returns = model.evaluate(3).returns
    diary = made.evaluated.unwrapped
    ends = [0, *(index + 1 for index, step in enumerate(diary.steps) if step[4] or step[5])]
    own = [sum(step[2] for step in diary.steps[begin:end]) for begin, end in pairwise(ends)]
    assert returns == pytest.approx(own, rel=1e-6)
    *_, reward = [step[2] for step in made.trained.unwrapped.steps]
    assert made.trained.step(np.zeros(1, np.float32))[1] != pytest.approx(reward)  # training goes on as it was


def test_rewards_that_are_clipped_after_normalization_are_evaluated_as_they_were_before() -> None:
    made = Made(lambda env: wrappers.ClipReward(NormalizeReward(env), -0.1, 0.1))
    model = learner(made).learn(STEPS)
    for _ in range(2):  # once more with the environment that is ready
        returns = model.evaluate(2).returns
        diary = made.evaluated.unwrapped
        ends = [0, *(index + 1 for index, step in enumerate(diary.steps) if step[4] or step[5])]
        own = [sum(step[2] for step in diary.steps[begin:end]) for begin, end in pairwise(ends)]
        assert returns == pytest.approx(own, rel=1e-6)
        assert max(map(abs, own)) > 0.1 * max(end - begin for begin, end in pairwise(ends))


class Twice(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats every action, and adds up the rewards."""

    def step(self, action: Any) -> Any:
        _, first, *ended, _ = self.env.step(action)
        if any(ended):
            return _, first, *ended, {}
        observation, second, *ended, info = self.env.step(action)
        return observation, float(first) + float(second), *ended, info


def test_rewards_of_repeated_actions_are_added_up() -> None:
    env = prepare(Twice(NormalizeReward(Diary())), {})
    env.reset(seed=0)
    reward = env.step(np.zeros(1, np.float32))[1]
    assert reward == pytest.approx(sum(step[2] for step in env.unwrapped.steps[:2]))
    assert len(env.unwrapped.steps) == 2


def test_evaluations_again_and_again_wrap_the_environment_once() -> None:
    env = both(Diary())
    statistics = get_statistics(env)
    once = prepare(env, statistics)
    assert prepare(once, statistics) is once
    once.reset(seed=0)
    once.step(np.zeros(1, np.float32))
    assert len(once.unwrapped.steps) == 1


def test_a_function_that_gives_the_environment_in_training_again_is_refused() -> None:
    env = NormalizeObservation(Diary())
    model = learner(lambda: env).learn(20)
    allowed = "allowed: a class or a function that makes a new environment at each call"
    with pytest.raises(InputError, match=f"was returned again while it is in training; {allowed}"):
        model.evaluate(1)
    assert env.update_running_mean
    learner(lambda: copy.deepcopy(env)).learn(20).evaluate(1)  # others like it are fine


class Hostile(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has attributes that must not be looked into."""

    class Proxy:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("not connected")

    def __init__(self, env: Any):
        super().__init__(env)
        self.robot = self.Proxy()


def test_looking_for_statistics_never_fails_a_training() -> None:
    model = learner(lambda: Hostile(Diary())).learn(STEPS)
    assert model.steps == STEPS


def test_offline_evaluations_have_the_statistics_of_their_lane() -> None:
    made = Made(NormalizeObservation)
    asked: dict[str, Any] = {"seeds": [3, 8], "steps": 60, "eval_every": 30, "eval_episodes": 2}
    result = greedyac.train("greedy-ac", made, **asked, **TINY)
    lanes = [env for env in made.envs if len(env.unwrapped.steps) == 60]
    for policy, env, evaluated in zip(result.policies, lanes, made.envs[-2:], strict=True):
        assert_same(policy.statistics, env)
        assert_same(evaluated, env)
    last = greedyac.train("greedy-ac", Made(NormalizeObservation), **{**asked, "eval_every": 60}, **TINY)
    told = [curve[0] for curve in last.curves["eval_curve"]]
    wanted = [greedyac.evaluate(policy, 2, policy.run.seed).mean for policy in last.policies]
    assert told == pytest.approx(wanted, rel=1e-6)
    assert result.curves["average_return"].to_list() == last.curves["average_return"].to_list()


def test_a_wrapper_that_says_how() -> None:
    made = Made(lambda env: Scale(wrappers.OrderEnforcing(Scale(env))))
    learner(made).learn(STEPS).evaluate(2)
    statistics = get_statistics(made.trained)
    assert list(statistics) == ["Scale.0.largest", "Scale.0.seen", "Scale.1.largest", "Scale.1.seen"]
    assert made.trained.seen > STEPS
    assert made.evaluated.seen > made.trained.seen  # it can't be frozen, and begins where training is
    assert made.evaluated.seen < 2 * made.trained.seen
    prepare(made.evaluated, statistics)
    assert_same(made.evaluated, made.trained)
    assert type(made.evaluated.seen) is int


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ([1, 2], "Scale.get_statistics() returned a list; allowed: a dict of arrays and numbers by name"),
        ({1: 2}, "Scale.get_statistics() returned a dict; allowed"),
        ({"name": "text"}, "Scale.get_statistics() has 'name' of <U4; allowed"),
    ],
)
def test_statistics_of_another_form_fail_their_run(told: Any, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scale, "get_statistics", lambda env: told)
    with pytest.warns(RuntimeWarning, match="1 of 1 run failed"):
        [error] = greedyac.train("random", Made(Scale), steps=9).curves["error"]
    assert error.startswith(f"in get_statistics: InputError: {complaint}")
    with pytest.raises(RuntimeError, match="the environment failed at step 9: in get_statistics: InputError"):
        greedyac.Random(Made(Scale)).learn(9)


def test_statistics_of_another_shape_are_refused() -> None:
    statistics = get_statistics(NormalizeObservation(gymnasium.make("Pendulum-v1")))
    with pytest.raises(
        greedyac.InputError, match="the wrapper NormalizeObservation has other statistics than the saved"
    ):
        set_statistics(NormalizeObservation(Diary()), statistics)


# --- files


def test_files_have_the_statistics(tmp_path: Path) -> None:
    made = Made(both)
    model = learner(made).learn(STEPS)
    for everything in (False, True):
        path = tmp_path / f"model-{everything}"
        model.save(path, everything=everything)
        again = Made(both)
        held = greedyac.load(path, env=again)
        assert held.evaluate(3) == model.evaluate(3)
        assert_same(held.policy.statistics, made.trained)
        held.save(tmp_path / "again", everything=everything)
        assert_same(greedyac.load(tmp_path / "again").policy.statistics, made.trained)


def test_an_environment_that_has_failed_still_has_its_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(NormalizeObservation)
    model: Model = greedyac.Random(made).learn(STEPS)
    monkeypatch.setattr(Diary, "pay", lambda env: 1 / 0)
    with pytest.raises(RuntimeError, match="failed at step 101: ZeroDivisionError"):
        model.learn(STEPS)
    assert_same(dict(model.policy.statistics), made.trained)
    for path in (tmp_path / "failed", tmp_path / "again"):
        model.save(path, everything=True)
        model = greedyac.load(path, env=NormalizeObservation(Diary()))
        assert_same(dict(model.policy.statistics), made.trained)


def test_networks_alone_go_on_with_the_statistics(tmp_path: Path) -> None:
    made, again = Made(NormalizeObservation), Made(NormalizeObservation)
    learner(made).learn(STEPS).save(tmp_path / "model")
    held = greedyac.load(tmp_path / "model", env=again)
    first = np.asarray(held._begun().state.observation)[0]
    [env] = [env for env in again.envs if env.unwrapped.seeds]
    assert env.obs_rms.count == pytest.approx(made.trained.obs_rms.count + 1)
    assert first == pytest.approx(as_trained(env.obs_rms)(env.unwrapped.look()))
    held.learn(10)
    assert env.obs_rms.count >= made.trained.obs_rms.count + 11


def test_everything_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """In the middle of an episode, after one that was cut."""
    made, again = Made(both), Made(both)
    model = learner(made, seed=2).learn(STEPS)
    assert made.trained.unwrapped.time > 1
    model.save(tmp_path / "model", everything=True)
    held = greedyac.load(tmp_path / "model", env=again)
    for one in (model, held):
        one.learn(50)
    [outcome] = held._lanes.outcomes()  # type: ignore[union-attr]
    assert not outcome.restarted
    assert_same(outcome.statistics, made.trained)
    assert held.curves.drop("seconds").equals(model.curves[1:].drop("seconds"))
    assert held.evaluate(3) == model.evaluate(3)


def test_files_without_statistics_are_as_they_were(tmp_path: Path) -> None:
    learner(Diary).learn(9).save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="numpy") as file:
        assert not [name for name in file.keys() if "statistics" in name]  # noqa: SIM118
    greedyac.load(tmp_path / "model", env=Diary).evaluate(1)  # silently


def test_a_policy_without_statistics_is_named(tmp_path: Path) -> None:
    greedyac.Random(Diary).learn(9).save(tmp_path / "plain")
    greedyac.Random(Made(both)).learn(9).save(tmp_path / "normalized")
    with pytest.warns(UserWarning, match="no statistics for the wrapper NormalizeObservation, which starts"):
        greedyac.load(tmp_path / "plain", env=Made(both)).evaluate(1)
    with pytest.warns(UserWarning, match="trained with the wrapper NormalizeObservation, which this environment lacks"):
        greedyac.load(tmp_path / "normalized", env=Diary).evaluate(1)


def test_films_and_loops_of_ones_own_are_prepared() -> None:
    def make(**more: Any) -> Any:
        return NormalizeObservation(gymnasium.make("Pendulum-v1", max_episode_steps=9, **more))

    policy = greedyac.Random(make).learn(30).policy
    assert_same(drawn_env(policy), dict(policy.statistics))
    env = policy.prepare(make())
    env.reset(seed=0)
    assert_same(env, dict(policy.statistics))


# --- wrappers that don't say how


class Centered(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Its mean is forgotten."""

    def __init__(self, env: Any):
        super().__init__(env)
        self.mean, self.decay, self.calls = np.zeros(2), 0.9, 0

    def observation(self, observation: Any) -> Any:
        self.mean, self.calls = self.decay * self.mean + (1 - self.decay) * observation, self.calls + 1
        return observation - self.mean


class Helper:
    def __init__(self) -> None:
        self.total = 0.0


class Helped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What it remembers is an attribute of another object."""

    def __init__(self, env: Any):
        super().__init__(env)
        self.helper = Helper()

    def step(self, action: Any) -> Any:
        given = super().step(action)
        self.helper.total += float(given[1])
        return given


class Forgets(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What it has is of an episode, of the clock, or a count."""

    def __init__(self, env: Any):
        super().__init__(env)
        self.steps, self.last, self.potential, self.began, self.names = 0, np.zeros(2), 0.0, 0.0, {"a": 1.0}
        self.max_torque, self.total = 2.0, 0.0

    def reset(self, **given: Any) -> Any:
        observation, info = super().reset(**given)
        self.last, self.potential, self.began = observation, float(self.np_random.normal()), time.perf_counter()
        self.total = 0.0
        return observation, info

    def step(self, action: Any) -> Any:
        given = super().step(action)
        self.steps, self.last, self.potential = self.steps + 1, given[0], self.potential + 1
        self.total += float(given[1])
        return given


@pytest.mark.parametrize(("wrapper", "attribute"), [(Centered, "mean"), (Helped, "helper.total")])
def test_a_wrapper_that_forgets_in_evaluations_is_named(wrapper: Any, attribute: str) -> None:
    model = greedyac.Random(lambda: wrappers.TimeLimit(wrapper(Diary()), 99))
    with pytest.warns(UserWarning, match="from episode to episode") as caught:
        model.learn(STEPS).learn(STEPS).evaluate(2)
    [told] = [str(one.message) for one in caught]
    assert told.startswith(
        f"the wrapper {wrapper.__name__} seems to keep {attribute} from episode to episode, which evaluations"
    )
    assert told.endswith("give it get_statistics and set_statistics (see docs/your-environment.md)")


def test_it_is_named_in_offline_evaluations_and_they_go_on() -> None:
    with pytest.warns(UserWarning, match="the wrapper Centered seems to keep mean from episode to episode"):
        rows = greedyac.train("random", lambda: Centered(Diary()), steps=30, eval_every=10, eval_episodes=1).curves
    assert len(rows["eval_curve"][0]) == 3


@pytest.mark.parametrize(
    "wrap",
    [
        Forgets,
        Scale,
        lambda env: both(wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(env, 5))),
        lambda env: wrappers.OrderEnforcing(wrappers.PassiveEnvChecker(env)),
        lambda env: wrappers.FlattenObservation(wrappers.FrameStackObservation(env, 3)),
        lambda env: wrappers.DelayObservation(wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 5)), 2),
        lambda env: wrappers.StickyAction(wrappers.MaxAndSkipObservation(env, 2), 0.3),
        lambda env: wrappers.ClipReward(wrappers.RescaleAction(env, np.float32(0), np.float32(1)), -1.0),
    ],
)
def test_other_wrappers_are_not(wrap: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module="gymnasium")  # its checker has opinions
        greedyac.Random(lambda: wrap(Diary())).learn(STEPS).evaluate(2)
