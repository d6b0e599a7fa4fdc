"""The Python front: learning in pieces, saving and loading, predictions, a user's own environments, callbacks."""

import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, cast

import equinox as eqx
import gymnasium
import jax
import numpy as np
import polars as pl
import pytest
from gymnasium import spaces

import greedyac
from greedyac.api.model import Model

TINY: dict[str, Any] = {"hidden": (4,), "batch_size": 4, "replay_capacity": 500}
SHORT: dict[str, Any] = {"env_options": {"time_limit": 20}}
OBSERVATIONS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 2, 3)


class Walk(gymnasium.Env[Any, Any]):
    """Six numbers at random in two rows; an episode is seven steps, each of which pays its action, 5, 6 or 7."""

    made: ClassVar[list["Walk"]] = []
    trouble: ClassVar[Callable[["Walk"], None] | None] = None
    """What happens at the beginning of a step."""

    def __init__(self) -> None:
        self.observation_space: Any = spaces.Box(-1, 1, (2, 3))
        self.action_space: Any = spaces.Discrete(3, start=5)
        self.steps, self.time = 0, 0
        self.actions: list[Any] = []
        Walk.made.append(self)

    def seen(self) -> Any:
        return self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if Walk.trouble is not None:
            Walk.trouble(self)
        assert self.action_space.contains(action)
        self.actions.append(action)
        self.steps, self.time = self.steps + 1, self.time + 1
        return self.seen(), self.reward(action), False, self.time >= 7, {}

    def reward(self, action: Any) -> float:
        return float(np.sum(action))


class Other(Walk):
    """With any observations and actions."""

    def __init__(self, observations: Any = None, actions: Any = None) -> None:
        super().__init__()
        self.observation_space = observations or self.observation_space
        self.action_space = actions or self.action_space

    def seen(self) -> Any:
        return self.observation_space.sample()


class Paying(Walk):
    """Pays the same in every step."""

    def __init__(self, pay: float) -> None:
        super().__init__()
        self.pay = pay

    def reward(self, action: Any) -> float:
        return self.pay


class Plugged(Walk):
    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise TypeError("a socket can't\nbe copied")


def pendulum(front: type[Model] = greedyac.GreedyAC, **more: Any) -> Model:
    return front("Pendulum-CA", **SHORT, **({} if front is greedyac.Random else TINY), **more)


def walker(**more: Any) -> Model:
    return greedyac.GreedyAC(Walk, **TINY, **more)


def idler(env: Any = "Pendulum-CA", **more: Any) -> Model:
    """A model that is quick to compile."""
    return greedyac.Random(env, **more)


def bits(model: Model) -> list[bytes]:
    """All numbers of the agent: networks, targets, optimizers."""
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model.policy.state)]
    assert leaves
    return leaves


def same(one: Any, other: Any) -> bool:
    return bool(eqx.tree_equal(*jax.tree.map(np.asarray, (one, other)), typematch=False))


def rows(model: Model) -> list[dict[str, Any]]:
    return model.curves.drop("seconds").to_dicts()


def with_every(steps: int, function: Callable[[Model], Any]) -> Any:
    cast(Any, function).every = steps
    return function


def assert_refused(ask: Callable[[], object], complaint: str) -> None:
    """One line."""
    with pytest.raises(greedyac.InputError) as caught:
        ask()
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(autouse=True)
def _no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walk, "trouble", None)
    monkeypatch.setattr(Walk, "made", [])


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may have had it ignored
    yield
    signal.signal(signal.SIGINT, before)


FRONTS = [greedyac.GreedyAC, greedyac.SAC, greedyac.VanillaAC]
MODELS = pytest.mark.parametrize("made", [pendulum, walker])


# Learning


@pytest.mark.parametrize("front", FRONTS)
def test_learning_in_pieces_is_learning_at_once(front: type[Model]) -> None:
    pieces, whole = pendulum(front).learn(23).learn(17), pendulum(front).learn(40)
    assert bits(pieces) == bits(whole)
    assert bits(pendulum(front, seed=1).learn(40)) != bits(whole)
    assert (pieces.steps, whole.steps) == (40, 40)


def test_learning_in_pieces_on_the_host() -> None:
    pieces, whole = walker().learn(23).learn(17), walker().learn(40)
    assert bits(pieces) == bits(whole)
    _, env, _, other = Walk.made  # each after one for a look at the spaces
    assert (env.steps, other.steps) == (40, 40)
    assert env.actions == other.actions


def test_curves_have_a_row_for_each_call() -> None:
    model = pendulum().learn(20).learn(40)
    assert model.curves["begun"].to_list() == [0, 20]
    assert model.curves["steps"].to_list() == [20, 40]
    assert model.curves["episodes"].to_list() == [1, 2]  # of 20 steps each
    assert model.curves["status"].to_list() == ["done", "done"]
    # A step's reward is cos θ; whatever the episode, its return is one of 20 such.
    assert all(-20 <= value <= 20 for value in model.curves["average_return"])


def test_the_returns_of_the_host_are_those_of_its_environment() -> None:
    [row] = rows(walker().learn(21))
    actions = np.array(Walk.made[-1].actions).reshape(3, 7)
    assert row["average_return"] == pytest.approx(actions.sum(axis=1).mean())
    assert row["best_return"] == actions.sum(axis=1).max()


def test_a_model_learns_what_train_learns() -> None:
    model = pendulum(seed=3).learn(60)
    result = greedyac.train("greedy-ac", "Pendulum-CA", seeds=3, steps=60, workers=1, **SHORT, **TINY)
    for part in ("actor", "critic", "proposal"):
        assert same(getattr(model.policy.state, part), getattr(result.policies[0].state, part))
    [told] = result.curves.drop("run_id", "setting_id", "seconds").to_dicts()
    assert rows(model) == [{"begun": 0, **told}]
    assert told["average_return"] is not None


def test_several_seeds_of_a_class_are_those_of_one_at_a_time() -> None:
    together = greedyac.train("greedy-ac", Walk, seeds=range(3), steps=30, **TINY).curves
    assert [env.steps for env in Walk.made] == [0, 30, 30, 30]
    alone = [greedyac.train("greedy-ac", Walk, seeds=seed, steps=30, **TINY).curves for seed in range(3)]
    assert together.drop("seconds").equals(pl.concat(alone).drop("seconds"))
    assert len({str(curve) for curve in together["curve"].to_list()}) == 3
    assert rows(walker(seed=2).learn(30))[0]["curve"] == together["curve"][2].to_list()


# Saving and loading


def moved(model: Model, path: Path, everything: bool) -> Model:
    """Through a file, as another process would."""
    model.save(path, everything=everything)
    return greedyac.load(path, env=None if path.name == "pendulum" else Walk)


@MODELS
def test_saved_and_loaded(made: Callable[..., Model], tmp_path: Path) -> None:
    model = made().learn(30)
    shape = model.policy.adapter.observation(np.zeros(2 if made is pendulum else (2, 3))).shape
    given = np.random.default_rng(0).uniform(-1, 1, (5, *shape)).astype(np.float32)
    given = given if made is pendulum else given.reshape(5, 2, 3)
    for everything in (False, True):
        loaded = moved(model, tmp_path / made.__name__, everything)
        assert type(loaded) is type(model)
        assert loaded.steps == (30 if everything else 0)
        assert np.array_equal(loaded.predict(given).action, model.predict(given).action)


@MODELS
def test_everything_goes_on_as_if_never_stopped(made: Callable[..., Model], tmp_path: Path) -> None:
    path, whole = tmp_path / made.__name__, made().learn(25).learn(20).learn(15)
    once = moved(made().learn(25), path, everything=True).learn(20)
    twice = moved(once, path, everything=True).learn(15)
    assert twice.steps == 60
    assert bits(twice) == bits(whole)
    assert rows(once) + rows(twice) == rows(whole)[1:]


@MODELS
def test_everything_that_was_loaded_is_saved_again(made: Callable[..., Model], tmp_path: Path) -> None:
    path, again = tmp_path / made.__name__, tmp_path / "again"
    for model in (made().learn(25), made()):  # in the middle of an episode, and before the first step
        moved(model, path, everything=True).save(again, everything=True)
        assert again.read_bytes() == path.read_bytes()


@MODELS
def test_networks_alone_are_what_learning_starts_from(made: Callable[..., Model], tmp_path: Path) -> None:
    model = made().learn(40)
    loaded = moved(model, tmp_path / made.__name__, everything=False)
    before = loaded.learn(1).policy.state  # a batch is not there yet
    for part in ("actor", "critic", "proposal"):
        assert same(getattr(before, part), getattr(model.policy.state, part))
    assert same(before.target, before.critic)
    assert not same(model.policy.state.target, model.policy.state.critic)
    after = loaded.learn(20).policy.state
    assert not same(after.critic, before.critic)
    assert not same(after.actor, before.actor)
    assert loaded.steps == 21


def test_the_first_action_is_already_that_of_the_loaded_networks(tmp_path: Path) -> None:
    first = []
    for certain in 1000 * np.eye(3, dtype=np.float32):
        loaded = moved(walker(), tmp_path / "walker", everything=False)
        loaded.policy.state = eqx.tree_at(lambda state: state.actor.logits.bias, loaded.policy.state, certain)
        loaded.learn(1)
        first += Walk.made[-1].actions
    assert first == [5, 6, 7]


def test_a_file_of_an_environment_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for everything in (False, True):
        idler(Walk).save(path, everything=everything)
        loaded = greedyac.load(path)
        assert loaded.predict(OBSERVATIONS[0]).action in (5, 6, 7)
        wanted = "environment 'Walk' can't be found by its name; allowed: greedyac.load(path, env=…) with"
        assert_refused(partial(loaded.learn, 3), wanted)
        assert_refused(partial(loaded.evaluate, 2), wanted)
        assert greedyac.load(path, env=Walk).learn(3).evaluate(2).mean >= 35
    assert_refused(lambda: loaded.save(path, everything=True), wanted)


def test_a_file_with_another_environment(tmp_path: Path) -> None:
    path = tmp_path / "model"
    idler(Walk).save(path)
    for same_spaces in (Walk, Walk(), lambda: Paying(2.0)):
        loaded = greedyac.load(path, env=same_spaces).learn(5)
    assert loaded.evaluate(1).returns == [14.0]
    assert repr(loaded) == "Random('<lambda>', seed=0) after 5 steps"
    wide, high = spaces.Box(-1, 1, (3, 2)), spaces.Box(-1, 2, (2, 3))
    for other in (Other(wide), Other(high), Other(actions=spaces.Discrete(3)), gymnasium.make("CartPole-v1")):
        assert_refused(partial(greedyac.load, path, env=other), "has other observations and actions than")
    assert_refused(lambda: greedyac.load(path, env="Pendulum-CA"), "env = 'Pendulum-CA' has other observations")
    assert_refused(lambda: greedyac.load(path, env=3), "env = 3 is not allowed; allowed: a name, a gymnasium.Env")
    assert_refused(lambda: greedyac.load(path, env="CartPoel-v1"), "did you mean 'CartPole-v1'?")
    assert_refused(lambda: greedyac.load(tmp_path / "missing"), "there is no such file")


def test_a_file_of_ours_goes_on_as_gymnasium_s_but_not_in_the_middle(tmp_path: Path) -> None:
    path, theirs = tmp_path / "model", "greedyac/Pendulum-CA-v0"
    idler().save(path)
    assert repr(greedyac.load(path, env=theirs).learn(5)) == f"Random('{theirs}', seed=0) after 5 steps"
    idler().save(path, everything=True)
    assert_refused(lambda: greedyac.load(path, env=theirs), "is not allowed for everything of a run on Pendulum-CA")


# Predictions


def test_one_several_lists_and_tuples() -> None:
    model = walker().learn(10)
    several = model.predict(OBSERVATIONS).action
    assert (several.shape, several.dtype) == ((4,), np.int64)
    assert set(several) <= {5, 6, 7}
    singles = [model.predict(one).action for one in OBSERVATIONS]
    assert [single.shape for single in singles] == [()] * 4
    assert np.array_equal(singles, several)
    assert np.array_equal(model.predict(OBSERVATIONS.tolist()).action, several)
    assert np.array_equal(model.predict(tuple(map(tuple, OBSERVATIONS))).action, several)
    assert model.predict(OBSERVATIONS[0].tolist()).action == several[0]
    assert model.predict(OBSERVATIONS[:0]).action.shape == (0,)
    assert model.predict(OBSERVATIONS[0]).state is None


def test_continuous_predictions_and_samples() -> None:
    model = pendulum().learn(10)
    assert model.predict([0.5, -1]).action.shape == (1,)
    np.testing.assert_array_equal(model.predict((0.5, -1)).action, model.predict([0.5, -1]).action)
    several = model.predict([[0.5, -1], [0, 0]]).action
    assert (several.shape, several.dtype) == ((2, 1), np.float32)
    samples = np.concatenate([model.predict(np.zeros((5, 2)), deterministic=False).action for _ in range(2)])
    assert len(np.unique(samples)) == 10
    assert (np.abs(samples) <= 2).all()


BOUNDED = spaces.Box(np.array([[-1, 3], [0, -9]], np.float32), np.array([[1, 4], [0.5, 9]], np.float32))
PARTS = spaces.Dict({"place": spaces.Box(-1, 1, (2,)), "room": spaces.Discrete(4)})


def test_observations_and_actions_of_other_forms() -> None:
    rooms = idler(Other(spaces.Discrete(4), BOUNDED)).learn(20)
    assert rooms.predict(3).action.shape == (2, 2)
    actions = rooms.predict([0, 1, 2, 3] * 25).action
    assert (actions.shape, actions.dtype) == ((100, 2, 2), np.float32)
    assert all(BOUNDED.contains(action) for action in actions)
    middle, half = (BOUNDED.high + BOUNDED.low) / 2, (BOUNDED.high - BOUNDED.low) / 2
    assert (
        np.abs(actions - middle).max(axis=0) > 0.9 * half
    ).all()  # 100 fill more than 90 %, but for a chance of 4e-5
    parts = idler(Other(PARTS)).learn(5)
    one = {"place": np.zeros(2, np.float32), "room": 2}
    assert parts.predict(one).action in (5, 6, 7)
    assert parts.predict([one, one, one]).action.shape == (3,)


@pytest.mark.parametrize(
    ("observations", "wrong", "allowed"),
    [
        (None, np.zeros(6), "(2, 3) or (batch, 2, 3)"),
        (None, np.zeros((3, 2)), "(2, 3) or (batch, 2, 3)"),
        (None, np.zeros((1, 1, 2, 3)), "(2, 3) or (batch, 2, 3)"),
        (None, np.full((2, 3), np.nan), "(2, 3) or (batch, 2, 3)"),
        (None, [[0, 0, 0], [0, 0]], "(2, 3) or (batch, 2, 3)"),
        (None, "a word\nor two", "(2, 3) or (batch, 2, 3)"),
        (None, None, "(2, 3) or (batch, 2, 3)"),
        (None, [None] * 3, "(2, 3) or (batch, 2, 3)"),
        (None, {"place": 1}, "(2, 3) or (batch, 2, 3)"),
        (spaces.Discrete(4), 4, "one of Discrete(4), or a list of such"),
        (spaces.Discrete(4), 0.5, "one of Discrete(4), or a list of such"),
        (spaces.Discrete(4), float("nan"), "one of Discrete(4), or a list of such"),
        (spaces.Discrete(4), "word", "one of Discrete(4), or a list of such"),
        (spaces.Discrete(4), None, "one of Discrete(4), or a list of such"),
        (spaces.Discrete(4), [[1], [2]], "one of Discrete(4), or a list of such"),
        (PARTS, {"place": np.zeros(2, np.float32)}, "one of Dict('place': Box(-1.0, 1.0, (2,), float32)"),
        (PARTS, np.zeros(6), "one of Dict('place': Box(-1.0, 1.0, (2,), float32)"),
        (PARTS, [None], "one of Dict('place': Box(-1.0, 1.0, (2,), float32)"),
    ],
)
def test_other_observations_are_refused(
    looked_at: dict[str, Model], observations: Any, wrong: Any, allowed: str
) -> None:
    assert_refused(lambda: looked_at[str(observations)].predict(wrong), f"is not allowed; allowed: {allowed}")


@pytest.fixture(scope="module")
def looked_at() -> dict[str, Model]:
    return {str(space): idler(Other(space)) for space in (None, spaces.Discrete(4), PARTS)}


# A user's own environments


def test_an_instance_is_trained_itself_and_evaluated_by_others() -> None:
    env = Walk()
    model = idler(env).learn(12)
    assert env.steps == 12
    assert 35 <= model.evaluate(3).mean <= 49
    assert env.steps == 12
    model.learn(3, callback=greedyac.Evaluate(1, 1))
    assert env.steps == 15
    assert Walk.made == [env]  # the others are copies


def test_an_instance_that_cant_be_copied() -> None:
    env = Plugged()
    model = idler(env).learn(12)
    why = "environment 'Plugged' can't be copied for an evaluation or another seed: TypeError: a socket can't be copied"
    assert_refused(lambda: model.evaluate(3), f"{why}; give a class or a function that makes environments")
    with pytest.raises(greedyac.InputError, match="'Plugged' can't be copied") as refused:
        model.learn(9, callback=greedyac.Evaluate(5))
    assert isinstance(refused.value.__cause__, TypeError)
    assert model.steps == env.steps == 12  # before the first step of nine
    assert model.learn(5).steps == env.steps == 17


def test_classes_and_functions_make_their_own() -> None:
    model = idler(Walk).learn(12)
    model.evaluate(2)
    assert [env.steps for env in Walk.made] == [0, 12, 14]
    assert 1 <= idler(lambda: gymnasium.make("CartPole-v1")).learn(5).evaluate(2).mean <= 500
    assert [float(reward) for reward in idler(lambda: Paying(0.5)).learn(7).curves["best_return"]] == [3.5]


def test_an_environment_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(env: Walk) -> None:
        if env.steps == 12:
            raise ValueError("fell into\na hole")

    monkeypatch.setattr(Walk, "trouble", fall)
    heard: list[int] = []
    model = idler(Walk)
    with pytest.raises(
        RuntimeError, match=re.escape("the environment failed at step 12: ValueError: fell into a hole")
    ):
        model.learn(500, callback=with_every(5, lambda model: heard.append(model.steps)))
    assert heard == [5, 10]
    assert model.steps == 12
    rows = model.curves.select("status", "steps", "error").rows()
    assert rows == [("failed", 12, "ValueError: fell into a hole")]
    assert model.predict(OBSERVATIONS[0]).action in (5, 6, 7)
    with pytest.raises(RuntimeError, match="it can't learn any more: the environment failed at step 12: ValueError"):
        model.learn(1)


def test_an_interruption_inside_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(env: Walk) -> None:
        if env.steps == 12:
            monkeypatch.setattr(Walk, "trouble", None)
            raise KeyboardInterrupt

    whole = walker().learn(40)
    monkeypatch.setattr(Walk, "trouble", interrupt)
    model = walker()
    with pytest.raises(KeyboardInterrupt):
        model.learn(100)
    assert model.steps == 12
    assert bits(model.learn(28)) == bits(whole)
    assert model.curves.select("status", "begun").rows() == [("interrupted", 0), ("done", 12)]


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("where", ["environment", "update"])
def test_ctrl_c_waits_for_the_step_under_way(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = walker().learn(8)

    def press(env: Walk) -> None:
        if env.steps == 12:
            signal.raise_signal(signal.SIGINT)

    if where == "environment":
        monkeypatch.setattr(Walk, "trouble", press)
    else:
        lanes: Any = model._lanes
        update = lanes._compiled.learn

        def learn(*arguments: Any) -> Any:
            updated = update(*arguments)  # which has taken the old numbers away
            press(Walk.made[-1])
            return updated

        lanes._compiled = lanes._compiled._replace(learn=learn)
    with pytest.raises(KeyboardInterrupt):
        model.learn(1_000_000)
    assert 12 <= model.steps < 1000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setattr(Walk, "trouble", None)
    assert bits(model) == bits(walker().learn(model.steps))


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_callback_or_twice_interrupts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, heard = idler(Walk), []

    def press(model: Model) -> None:
        heard.append(model.steps)
        signal.raise_signal(signal.SIGINT)
        heard.append(-1)

    with pytest.raises(KeyboardInterrupt):
        model.learn(100, callback=with_every(6, press))
    assert heard == [6]
    assert model.steps == 6

    def hang(env: Walk) -> None:
        if env.steps == 8:
            signal.raise_signal(signal.SIGINT)
            heard.append(0)
            signal.raise_signal(signal.SIGINT)
            heard.append(-1)

    monkeypatch.setattr(Walk, "trouble", hang)
    with pytest.raises(KeyboardInterrupt):
        model.learn(100)
    assert heard == [6, 0]
    assert model.steps == 8


# Callbacks


def test_callbacks_are_called_at_multiples_in_their_order() -> None:
    heard: list[tuple[str, int]] = []

    def hears(name: str) -> Callable[[Model], None]:
        return lambda model: heard.append((name, model.steps))

    ten, fifteen, default = with_every(10, hears("ten")), with_every(15, hears("fifteen")), hears("default")
    model = idler().learn(25, callback=[fifteen, ten, default]).learn(20, callback=(ten, fifteen))
    first = [("ten", 10), ("fifteen", 15), ("ten", 20)]
    assert heard == [*first, ("ten", 30), ("fifteen", 30), ("ten", 40), ("fifteen", 45)]
    heard.clear()
    model.learn(2000, callback=iter([default, with_every(1000, hears("too"))])).learn(955)
    assert heard == [("default", 1000), ("too", 1000), ("default", 2000), ("too", 2000)]


@pytest.mark.parametrize("said", [None, True, 0, 0.0, "", [], np.zeros(2), np.True_])
def test_what_does_not_stop(said: Any) -> None:
    assert idler().learn(25, callback=with_every(10, lambda model: said)).steps == 25


@pytest.mark.parametrize("said", [False, np.False_])
def test_false_stops(said: Any) -> None:
    heard: list[int] = []
    others = with_every(10, lambda model: heard.append(model.steps))
    stops = with_every(10, lambda model: said if model.steps == 20 else None)
    model = idler().learn(100, callback=[stops, others])
    assert model.steps == 20
    assert heard == [10, 20]
    assert model.curves["steps"].to_list() == [20]
    assert model.learn(5).steps == 25


def test_an_exception_passes_through_and_nothing_is_lost() -> None:
    def raises(model: Model) -> None:
        raise ZeroDivisionError("mine")

    model = pendulum()
    with pytest.raises(ZeroDivisionError, match="mine"):
        model.learn(100, callback=with_every(20, raises))
    assert model.steps == 20
    assert bits(model.learn(20)) == bits(pendulum().learn(40))


@MODELS
def test_evaluations_and_checkpoints_change_nothing(made: Callable[..., Model], tmp_path: Path) -> None:
    callbacks = [
        greedyac.Evaluate(20, 2, best=tmp_path / "best"),
        greedyac.Checkpoint(15, tmp_path / "{steps}", everything=True),
        with_every(10, lambda model: model.predict(model.policy.adapter._observations.sample(), False)),
    ]
    watched, alone = made().learn(40, callback=callbacks), made().learn(40)
    assert bits(watched) == bits(alone)
    assert rows(watched) == rows(alone)


def test_evaluate_keeps_the_best(tmp_path: Path) -> None:
    pays = iter([0, 0, 3, float("nan"), 1, 4, 4, 2])  # of those for a look, for training, and for five evaluations
    best, evaluate = tmp_path / "best", greedyac.Evaluate(10, 2, best=tmp_path / "best")
    saved: list[int] = []

    def look(model: Model) -> None:
        saved.append(greedyac.load(best).policy.run.config.steps)

    idler(lambda: Paying(next(pays))).learn(65, callback=[evaluate, with_every(10, look)])
    assert evaluate.steps == [10, 20, 30, 40, 50, 60]
    assert evaluate.returns == pytest.approx([21, float("nan"), 7, 28, 28, 14], nan_ok=True)  # seven steps each
    assert saved == [10, 10, 10, 40, 40, 40]


def test_a_first_evaluation_that_is_no_number_is_no_best(tmp_path: Path) -> None:
    pays = iter([0, 0, float("nan"), 3])
    idler(lambda: Paying(next(pays))).learn(20, callback=greedyac.Evaluate(10, 2, best=tmp_path / "best"))
    assert greedyac.load(tmp_path / "best").policy.run.config.steps == 20


@pytest.mark.parametrize(
    "stop", [greedyac.Evaluate(10, 2, stop_at=21), greedyac.StopAtReturn(21, every=10, episodes=2)]
)
def test_stopping_at_a_return(stop: Any) -> None:
    pays = iter([0, 0, 1, float("nan"), 2, 3, 4])
    model = idler(lambda: Paying(next(pays))).learn(100, callback=stop)
    assert model.steps == 40
    assert stop.returns == pytest.approx([7, float("nan"), 14, 21], nan_ok=True)


def test_checkpoints_at_their_steps(tmp_path: Path) -> None:
    kept, last = (
        greedyac.Checkpoint(20, tmp_path / "{steps}.st", everything=True),
        greedyac.Checkpoint(15, tmp_path / "l"),
    )
    model = pendulum().learn(40, callback=[kept, last])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20.st", "40.st", "l"]
    assert bits(greedyac.load(tmp_path / "20.st").learn(20)) == bits(model)
    assert greedyac.load(tmp_path / "l").policy.run.config.steps == 30


def test_refused_callbacks() -> None:
    model = idler().learn(5)
    wrong_callbacks: list[Any] = [3, "word", None, [print, 3]]
    for wrong in wrong_callbacks:
        assert_refused(partial(model.learn, 10, callback=wrong), "is not allowed; allowed: a function of the model")
    wrong_numbers: list[Any] = [0, -1, 1.5, "x", None]
    for every in wrong_numbers:
        wanted = f"every = {every!r} is not allowed; allowed: whole number ≥ 1"
        assert_refused(partial(model.learn, 10, callback=with_every(every, lambda model: None)), wanted)
        assert_refused(partial(greedyac.Evaluate, every), wanted)
        assert_refused(partial(greedyac.StopAtReturn, 0, every), wanted)
        assert_refused(partial(greedyac.Checkpoint, every, "x"), wanted)
    for path in ("{step}", "{}", "{0}", "{steps", "steps}", "{steps.x}", "{steps[0]}", "{steps:q}", "{steps!q}"):
        assert_refused(partial(greedyac.Checkpoint, 1, path), "allowed: a path, in which {steps} may stand")
    assert_refused(lambda: greedyac.Evaluate(1, 0), "episodes = 0 is not allowed")
    assert_refused(lambda: greedyac.Evaluate(1, seed=-1), "seed = -1 is not allowed")
    assert_refused(lambda: greedyac.Evaluate(1, stop_at=cast(Any, "high")), "stop_at = 'high' is not allowed")
    assert_refused(lambda: greedyac.StopAtReturn(float("nan")), "value = nan is not allowed")
    assert model.learn(10).steps == 15  # as if nothing had been asked


# What is refused, and how a model looks


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda: pendulum(hiden=(4,)), "unknown hyperparameter of greedy-ac 'hiden' (did you mean 'hidden'?)"),
        (lambda: pendulum(discount=2), "discount = 2 is not allowed"),
        (lambda: pendulum(greedyac.Random, discount=0.9), "allowed for random: no hyperparameters"),
        (lambda: pendulum(preset="papr"), "'papr' (did you mean 'paper'?)"),
        (lambda: pendulum(seed=-1), "seed = -1 is not allowed"),
        (lambda: pendulum(seed=0.5), "seed = 0.5 is not allowed"),
        (lambda: idler("Pendulum"), "unknown environment 'Pendulum' (did you mean 'Pendulum-"),
        (lambda: idler("CartPoel-v1"), "unknown environment 'CartPoel-v1' (did you mean 'CartPole-v1'?)"),
        (lambda: idler(3), "env = 3 is not allowed; allowed: a name, a gymnasium.Env, or a function that makes one"),
        (lambda: idler(None), "env = None is not allowed"),
        pytest.param(
            lambda: idler(lambda: 3),
            "environment '<lambda>' is a int; allowed: a gymnasium.Env",
        ),
        (lambda: idler(lambda: 1 / 0), "environment '<lambda>' can't be made: ZeroDivisionError"),
        (lambda: idler("Pendulum-CA", env_options={"wind": 1}), "unknown option of Pendulum-CA 'wind'"),
        (lambda: idler(Walk, env_options={"wind": 1}), "env_options = {'wind': 1} are not allowed here"),
        (lambda: idler(Other(spaces.Text(3))), "environment 'Other' has observations Text("),
        (lambda: idler(Other(spaces.Box(0, 1, (9999,)))), "has observations of 9,999 numbers; allowed: 1 to 4,096"),
        (
            lambda: idler(Other(actions=spaces.MultiDiscrete([2, 2]))),
            "has actions MultiDiscrete([2 2]); allowed: Discr",
        ),
        (
            lambda: idler(Other(actions=spaces.Box(0, np.inf, (1,)))),
            "has actions Box(0.0, inf, (1,), float32); allowed",
        ),
        (lambda: idler().learn(0), "steps = 0 is not allowed; allowed: whole number ≥ 1"),
        (lambda: idler().learn(cast(Any, 2.5)), "steps = 2.5 is not allowed"),
        (lambda: idler().learn(5).learn(2**31 - 1), f"allowed: whole number ≥ 1 and ≤ {2**31 - 6}"),
        (lambda: idler().evaluate(0), "episodes = 0 is not allowed"),
        (lambda: idler().evaluate(1, seed=-1), "seed = -1 is not allowed"),
    ],
)
def test_wrong_input_is_refused_in_one_line(ask: Callable[[], object], complaint: str) -> None:
    assert_refused(ask, complaint)


def test_reprs(tmp_path: Path) -> None:
    model = idler(seed=3)
    assert repr(model) == "Random('Pendulum-CA', seed=3) after 0 steps"
    assert repr(model.learn(1500)) == "Random('Pendulum-CA', seed=3) after 1,500 steps"
    assert repr(model.policy) == "Policy('random' on 'Pendulum-CA', seed 3, after 1,500 steps)"
    model.save(tmp_path / "all", everything=True)
    assert repr(greedyac.load(tmp_path / "all")) == repr(model)
    model.save(tmp_path / "networks")
    assert repr(greedyac.load(tmp_path / "networks")) == "Random('Pendulum-CA', seed=3) after 0 steps"
    assert repr(idler(gymnasium.make("CartPole-v1"))) == "Random('CartPole-v1', seed=0) after 0 steps"
    assert repr(greedyac.GreedyAC(Walk)) == "GreedyAC('Walk', seed=0) after 0 steps"
    assert repr(greedyac.SAC(Walk())) == "SAC('Walk', seed=0) after 0 steps"
    assert repr(greedyac.VanillaAC(lambda: Paying(1.0))) == "VanillaAC('<lambda>', seed=0) after 0 steps"


def test_parts_of_an_observation_keep_their_order(tmp_path: Path) -> None:
    """Gymnasium sorts the names of a plain dict, but not those that are given one by one."""
    box = spaces.Box(-1, 1, (1,), np.float32)
    unsorted = spaces.Dict(z=box, a=box)
    assert list(unsorted) == ["z", "a"]

    class Parts(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = unsorted

        def seen(self) -> Any:
            return {"z": np.array([0.9], np.float32), "a": np.array([-0.9], np.float32)}

    model = greedyac.SAC(Parts, hidden=(4,), batch_size=4)
    model.save(tmp_path / "parts")
    seen = Parts().seen()
    loaded = greedyac.load(tmp_path / "parts")
    assert np.array_equal(
        loaded.predict(seen, deterministic=False).action, model.predict(seen, deterministic=False).action
    )
    assert np.array_equal(loaded.policy.adapter.observation(seen), model.policy.adapter.observation(seen))
    assert greedyac.load(tmp_path / "parts", env=Parts).policy.adapter == model.policy.adapter


def test_options_of_an_environment_are_saved_with_it(tmp_path: Path) -> None:
    model = greedyac.Random(gymnasium.make("Pendulum-v1", g=1.0))
    model.save(tmp_path / "model")
    moved = greedyac.load(tmp_path / "model", env=gymnasium.make("Pendulum-v1", g=2.0))
    moved.save(tmp_path / "moved")
    told = [greedyac.load(tmp_path / name).policy.run.config.env_options for name in ("model", "moved")]
    assert told == [{"g": 1}, {"g": 2}]


def test_a_model_that_diverges_says_so() -> None:
    class Nowhere(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Box(-1, 1, (1,))

        def step(self, action: Any) -> Any:
            return self.seen() * np.nan, 0.0, False, False, {}

    model = greedyac.VanillaAC(Nowhere, hidden=(4,), batch_size=4)
    with pytest.warns(RuntimeWarning, match="diverged to NaN or infinity at step 0"):
        model.learn(20, progress=False)
    with pytest.raises(RuntimeError, match="it can't learn any more: it has diverged"):
        model.learn(20, progress=False)
