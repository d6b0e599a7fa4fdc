"""What a model says of itself: while it learns, after an interruption, in `help`, and how it predicts."""

import inspect
import math
import pydoc
import subprocess
import sys
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import greedyac
from greedyac.agents import AGENTS
from greedyac.api.model import FRONTS, Model
from greedyac.core.fields import hypers_of
from greedyac.training.normalize import normal_observation

SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 4, "replay_capacity": 100}


class Steps(gymnasium.Env[Any, Any]):
    """Episodes of ten steps whose rewards are the number of the episode."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.episode = self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode, self.time = self.episode + 1, 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.ones(2, np.float32), float(self.episode), self.time == 10, False, {}


class Watch:
    """Remembers what a callback can know."""

    every = 25

    def __init__(self) -> None:
        self.metrics: list[dict[str, float | None]] = []
        self.rows: list[dict[str, Any]] = []

    def __call__(self, model: Model) -> None:
        self.metrics.append(model.metrics)
        self.rows.append(model.curves.row(-1, named=True))


def test_a_callback_sees_steps_episodes_returns_and_speed() -> None:
    watch, model = Watch(), greedyac.GreedyAC(Steps(), **SMALL)
    assert model.metrics == {
        "steps": 0,
        "episodes": 0,
        "average_return": None,
        "recent_return": None,
        "best_return": None,
        "steps_per_second": None,
    }
    model.learn(75, callback=watch)
    assert [seen["steps"] for seen in watch.metrics] == [25, 50, 75]
    assert [seen["episodes"] for seen in watch.metrics] == [2, 5, 7]
    # ten steps each of episodes whose returns are 10, 20, …
    assert [seen["average_return"] for seen in watch.metrics] == [15, 30, 40]
    assert [seen["recent_return"] for seen in watch.metrics] == [20, 50, 70]
    assert [seen["best_return"] for seen in watch.metrics] == [20, 50, 70]
    assert all(isinstance(seen["steps_per_second"], float) and seen["steps_per_second"] > 0 for seen in watch.metrics)
    assert [(row["status"], row["begun"], row["steps"], row["episodes"]) for row in watch.rows] == [
        ("learning", 0, 25, 2),
        ("learning", 0, 50, 5),
        ("learning", 0, 75, 7),
    ]
    assert [row["average_return"] for row in watch.rows] == [15, 30, 40]
    assert model.metrics | {"steps_per_second": 0} == watch.metrics[-1] | {"steps_per_second": 0}
    model.learn(25, callback=watch)
    assert watch.metrics[-1]["episodes"] == 10
    assert watch.metrics[-1]["average_return"] == 92  # five steps of 80, ten of 90, ten of 100
    assert (watch.rows[-1]["begun"], watch.rows[-1]["steps"], watch.rows[-1]["episodes"]) == (75, 25, 3)
    assert model.curves["status"].to_list() == ["done", "done"]


def test_watching_changes_no_number() -> None:
    watched, alone = (greedyac.SAC("Pendulum-CA", **SMALL) for _ in range(2))
    watched.learn(40, callback=Watch())
    alone.learn(40)
    for ours, theirs in zip(jax.tree.leaves(watched.policy.state), jax.tree.leaves(alone.policy.state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("env", ["Pendulum-CA", Steps], ids=["compiled", "host"])
def test_an_interrupted_call_leaves_its_row(env: Any) -> None:
    def interrupt(model: Model) -> None:
        if model.steps == 30:
            raise KeyboardInterrupt

    interrupt.every = 10  # type: ignore[attr-defined]
    model = greedyac.GreedyAC(env, **SMALL).learn(20)
    with pytest.raises(KeyboardInterrupt):
        model.learn(100, callback=interrupt)
    rows = model.curves.select("status", "begun", "steps").rows()
    assert rows == [("done", 0, 20), ("interrupted", 20, 10)]
    assert model.metrics["steps"] == 30
    model.learn(5)
    assert model.curves.height == 3


@pytest.mark.parametrize("name", AGENTS)
def test_help_and_signature_list_the_hyperparameters(name: str) -> None:
    model, known = FRONTS[name], hypers_of(AGENTS[name])
    text = pydoc.render_doc(model, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    for hyper in known.values():
        assert f"{hyper.name}: {hyper.help}; {hyper.range}" in text
    parameters = inspect.signature(model).parameters
    assert list(parameters) == ["env", "seed", "preset", "env_options", *known]
    assert {name: parameters[name].default for name in known} == {name: known[name].default for name in known}
    assert 'a name (`"Pendulum-CA"`, any Gymnasium id)' in text


def test_a_users_subclass_is_left_as_it_is() -> None:
    class Mine(greedyac.GreedyAC):
        """My own."""

    assert Mine.__doc__ == "My own."
    assert inspect.signature(Mine) == inspect.signature(greedyac.GreedyAC)

    class OnPort(greedyac.GreedyAC):
        def __init__(self, port: int = 7):
            super().__init__("Pendulum-CA", seed=port)

    assert list(inspect.signature(OnPort).parameters) == ["port"]
    assert OnPort(3).seed == 3


def test_reading_metrics_brings_no_network_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = greedyac.GreedyAC("Pendulum-CA", **{**SMALL, "hidden": (32,)}), list[Any]()
    get = jax.device_get

    def watched(tree: Any) -> Any:
        seen.append(sum(np.size(leaf) for leaf in jax.tree.leaves(tree)))
        return get(tree)

    def look(model: Model) -> None:
        monkeypatch.setattr(jax, "device_get", watched)
        model.metrics, model.curves  # noqa: B018
        monkeypatch.undo()

    look.every = 5  # type: ignore[attr-defined]
    model.learn(10, callback=look)
    numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(model.policy.state))
    assert seen
    assert max(seen) < 500 < numbers  # those of two curves


def test_the_public_names_are_listed_before_they_are_used() -> None:
    code = "import greedyac, sys; print(sorted(set(greedyac.__all__) - set(dir(greedyac))), 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


def test_a_model_knows_what_it_was_made_of(tmp_path: Any) -> None:
    env = Steps()
    model = greedyac.GreedyAC(env, seed=7, entropy_scale=0.5, **SMALL)
    assert model.env is env
    assert model.seed == 7
    assert model.hypers["entropy_scale"] == 0.5
    assert model.hypers.keys() == hypers_of(AGENTS["greedy-ac"]).keys()
    model.hypers["entropy_scale"] = 1.0  # of a copy
    assert model.hypers["entropy_scale"] == 0.5
    model.save(tmp_path / "model.safetensors")
    assert greedyac.load(tmp_path / "model.safetensors", env=Steps).env is Steps
    named = greedyac.Random("Pendulum-CA")
    named.save(tmp_path / "random.safetensors")
    assert named.env == greedyac.load(tmp_path / "random.safetensors").env == "Pendulum-CA"


@pytest.mark.parametrize(
    ("agent", "env"), [("greedy-ac", "Pendulum-CA"), ("sac", "Acrobot-DA"), ("sac", "Pendulum-CA")]
)
def test_a_prediction_is_the_compiled_policys_action(agent: str, env: str) -> None:
    model = FRONTS[agent](env, normalise_observations=True, **SMALL).learn(20)
    policy = model.policy
    observations = np.random.default_rng(0).normal(size=(5, policy.spaces.observation.size)).astype(np.float32)

    @jax.jit
    def act(observation: Any) -> Any:
        return policy.agent.act(policy.state, normal_observation(policy.scales, observation), jax.random.key(0), True)

    for observation in observations:
        np.testing.assert_allclose(model.predict(observation)[0], act(observation), rtol=0, atol=1e-6)
    together = np.stack([act(observation) for observation in observations])
    np.testing.assert_allclose(model.predict(observations)[0], together, rtol=0, atol=1e-6)


def test_predictions_follow_what_is_learned() -> None:
    model = greedyac.GreedyAC("Pendulum-CA", critic_step_size=0.1, **SMALL)
    before = model.predict([1.0, 0.0])[0]
    after = model.learn(60).predict([1.0, 0.0])[0]
    assert not math.isclose(float(before[0]), float(after[0]), abs_tol=1e-6)


def test_samples_differ_from_each_other_and_are_repeated_by_an_equal_model() -> None:
    one, other = (greedyac.GreedyAC("Pendulum-CA", **SMALL) for _ in range(2))
    samples = [float(one.predict([1.0, 0.0], deterministic=False)[0][0]) for _ in range(4)]
    assert len(set(samples)) > 1
    assert samples == [float(other.predict([1.0, 0.0], deterministic=False)[0][0]) for _ in range(4)]
