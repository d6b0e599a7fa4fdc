"""Checkpoints and what is done with them: round trip, predictions, every kind of damage, evaluation."""

import json
import pickle
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy import stats

import greedyac
from greedyac.agents import make_agent
from greedyac.cli import main
from greedyac.core.fields import values_of
from greedyac.core.streams import Stream, stream_key
from greedyac.envs import Env
from greedyac.training.checkpoint import FORMAT, Policy, checksum, load_policy, save_checkpoint
from greedyac.training.config import Run, RunConfig
from greedyac.training.evaluate import evaluate

HYPERS = values_of(make_agent("greedy-ac", {"hidden": (4, 3), "discount": 0.9}))
OBSERVATIONS = np.array([[0.5, -1.0], [-3.0, 7.5], [0.0, 0.0]], np.float32)


def a_run(env: str = "Pendulum-CA", **options: Any) -> Run:
    return Run(RunConfig("greedy-ac", env, steps=10, hypers=HYPERS, env_options=options), seed=7)


def saved(path: Path, run: Run) -> Path:
    """The checkpoint of a fresh, untrained policy."""
    state = run.config.learner.init(jax.random.key(run.seed), run.config.world.spaces)
    save_checkpoint(path, Policy(run, state))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path / "policy.safetensors", a_run(time_limit=20))


def about(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="numpy") as file:
        return {name: value for name, value in json.loads(file.metadata()["greedyac"]).items() if name != "sha256"}


def weights_in(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def rewritten(path: Path, metadata: str | None = None, weights: dict[str, Any] | None = None) -> Path:
    """The same file with other metadata, or other weights (None takes one away)."""
    kept = {name: weight for name, weight in {**weights_in(path), **(weights or {})}.items() if weight is not None}
    text = json.dumps(about(path)) if metadata is None else metadata
    with suppress(ValueError, TypeError, RecursionError):
        values = json.loads(text)
        text = json.dumps({**values, "sha256": checksum(values, kept)})
    save_file(kept, path, {"greedyac": text})
    return path


def assert_refused(path: Path, complaint: str) -> None:
    """One line that names the file."""
    with pytest.raises(greedyac.InputError) as caught:
        load_policy(path)
    assert str(caught.value).startswith(f"checkpoint {str(path)!r}: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("env", ["Pendulum-CA", "Pendulum-DA"])
def test_round_trip(tmp_path: Path, env: str) -> None:
    run = a_run(env, time_limit=20)
    path = saved(tmp_path / "policy.safetensors", run)
    policy = load_policy(path)
    agent = run.config.learner
    state = agent.init(jax.random.key(7), run.config.world.spaces)
    for mine, theirs in zip(jax.tree.leaves(state.actor), jax.tree.leaves(policy.state.actor), strict=True):
        assert np.asarray(mine).tobytes() == theirs.tobytes()
    assert policy.run.run_id == run.run_id
    assert policy.spaces == run.config.world.spaces
    assert policy.agent == agent
    actions = policy.predict(OBSERVATIONS).action
    np.testing.assert_allclose(actions, agent.act(state, jnp.asarray(OBSERVATIONS), jax.random.key(0), True), rtol=1e-6)

    again = tmp_path / "again.safetensors"
    save_checkpoint(again, policy)
    assert again.read_bytes() == path.read_bytes()


def test_metadata(path: Path) -> None:
    values = about(path)
    versions = values.pop("versions")
    assert set(versions) == {"python", "greedyac", "jax", "jaxlib", "equinox", "optax", "numpy"}
    assert versions["jax"] == jax.__version__
    assert values == {
        "format": FORMAT,
        "agent": "greedy-ac",
        "env": "Pendulum-CA",
        "env_options": {"time_limit": 20},
        "seed": 7,
        "steps": 10,
        "eval_every": 0,
        "eval_episodes": 0,
        "hypers": {**HYPERS, "hidden": [4, 3]},
        "spaces": {
            "observation": {"low": [-np.pi, -8.0], "high": [np.pi, 8.0]},
            "action": {"low": [-2.0], "high": [2.0]},
        },
    }
    others = {name: weight.shape for name, weight in weights_in(path).items()}
    assert others == {
        "actor.mlp.layers.0.weight": (2, 4),
        "actor.mlp.layers.0.bias": (4,),
        "actor.mlp.layers.1.weight": (4, 3),
        "actor.mlp.layers.1.bias": (3,),
        "actor.mean.weight": (3, 1),
        "actor.mean.bias": (1,),
        "actor.log_std.weight": (3, 1),
        "actor.log_std.bias": (1,),
        **{name: shape for name, shape in others.items() if name.startswith(("critic.", "proposal."))},
    }
    assert {name: others[name] for name in ("critic.first.weight", "proposal.log_std.bias")} == {
        "critic.first.weight": (3, 4),
        "proposal.log_std.bias": (1,),
    }


@pytest.mark.parametrize(
    ("env", "shape", "kind"), [("Pendulum-CA", (1,), np.floating), ("Pendulum-DA", (), np.integer)]
)
def test_predict_one_and_several(tmp_path: Path, env: str, shape: tuple[int, ...], kind: type) -> None:
    policy = load_policy(saved(tmp_path / "policy.safetensors", a_run(env)))
    action, state = policy.predict(OBSERVATIONS[0])
    assert (action.shape, state) == (shape, None)
    assert np.issubdtype(action.dtype, kind)
    several = policy.predict(OBSERVATIONS.tolist()).action
    assert several.shape == (3, *shape)
    singles = np.stack([policy.predict(observation).action for observation in OBSERVATIONS])
    np.testing.assert_allclose(several, singles, rtol=1e-6)
    assert policy.predict(np.zeros((0, 2))).action.shape == (0, *shape)


def test_predict_samples(path: Path) -> None:
    policy, same = load_policy(path), load_policy(path)
    batch = np.zeros((5, 2))
    first, second = (policy.predict(batch, deterministic=False).action for _ in range(2))
    assert len(np.unique(np.concatenate([first, second]))) == 10
    assert (np.abs([first, second]) <= 2).all()
    assert np.array_equal(same.predict(batch, deterministic=False).action, first)
    assert np.array_equal(same.predict(batch, deterministic=False).action, second)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (2, 1), (1, 1, 2)])
def test_predict_refuses_other_shapes(path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(greedyac.InputError, match=re.escape(f"{shape} is not allowed; allowed: (2,) or (batch, 2)")):
        load_policy(path).predict(np.zeros(shape))


def test_truncated_anywhere(path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert_refused(path, "it is cut short, damaged or no safetensors file")


def test_damaged_header(path: Path) -> None:
    whole = path.read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    other_type = whole.replace(b'"F32","shape":[1]', b'"F8_E4M3","shape":[4]', 1)
    wide = [
        struct.pack("<Q", 2**63) + whole[8:],
        struct.pack("<Q", size - 8) + whole[8:],
        whole[:8] + b"\xff" + whole[9:],
        whole[:8] + b"[" + whole[9:],
        whole + b"\0",
        struct.pack("<Q", size + len(other_type) - len(whole)) + other_type[8:],
    ]
    for content in wide:
        path.write_bytes(content)
        assert_refused(path, "")


def test_a_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    trap, sprung = tmp_path / "policy.safetensors", tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (sprung,)

    trap.write_bytes(pickle.dumps(Trap()))
    assert_refused(trap, "no safetensors file")
    assert not sprung.exists()
    pickle.loads(trap.read_bytes())
    assert sprung.exists()  # it was a trap


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert_refused(tmp_path / "missing", "there is no such file; allowed: a .safetensors file that greedyac wrote")
    assert_refused(tmp_path, "there is no such file; allowed: a .safetensors file that greedyac wrote")


def test_foreign_file(tmp_path: Path) -> None:
    for metadata in (None, {"format": "pt"}):
        save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "foreign", metadata)
        assert_refused(tmp_path / "foreign", "it was not written by greedyac")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"actor.mean.bias": None}, "the weight 'actor.mean.bias' is missing"),
        ({"actor.more": np.zeros(1, np.float32)}, "the weight 'actor.more' does not belong to"),
        ({"actor.mean.bias": np.zeros(2, np.float32)}, "the weight 'actor.mean.bias' has shape (2,)"),
        ({"actor.mean.bias": np.zeros(1, np.float64)}, "the weight 'actor.mean.bias' has"),
    ],
)
def test_wrong_weights(path: Path, changes: dict[str, Any], complaint: str) -> None:
    assert_refused(rewritten(path, weights=changes), complaint)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": FORMAT + 1}, "format"),
        ({"format": ...}, "format"),
        ({"agent": "greedy-a"}, "unknown agent 'greedy-a'"),
        ({"agent": ["greedy-ac"]}, ""),
        ({"hypers": {**HYPERS, "discont": 0.5}}, "'discont'"),
        ({"hypers": {**HYPERS, "discount": float("nan")}}, "discount = nan is not allowed"),
        ({"hypers": {**HYPERS, "hidden": [64, 64]}}, "it should have (2, 64)"),
        ({"hypers": {**HYPERS, "hidden": [10**9, 10**9]}}, ""),
        ({"hypers": {**HYPERS, "batch_size": 10**400}}, ""),
        ({"spaces": ...}, ""),
        ({"spaces": {}}, ""),
        ({"spaces": {"observation": {"low": [0, 0], "high": [1, 1]}, "action": {"count": float("inf")}}}, ""),
        ({"versions": ...}, "versions"),
        ({"more": 1}, "more"),
        ({"seed": "x"}, ""),
        ({"seed": -1}, ""),
    ],
)
def test_wrong_metadata(path: Path, changes: dict[str, Any], complaint: str) -> None:
    values = {name: value for name, value in {**about(path), **changes}.items() if value is not ...}
    assert_refused(rewritten(path, json.dumps(values)), complaint)


@pytest.mark.parametrize("metadata", ["", "{", "[]", "3", "null", '"text"', pytest.param(100_000 * "[", id="deep")])
def test_metadata_of_another_form(path: Path, metadata: str) -> None:
    assert_refused(rewritten(path, metadata), "")


@pytest.mark.parametrize("changes", [{"env": "Pendulum"}, {"env": "Acrobot-CA"}, {"env_options": {"wind": 1}}])
def test_an_environment_that_does_not_fit_the_policy(path: Path, changes: dict[str, Any]) -> None:
    rewritten(path, json.dumps({**about(path), **changes}))
    with pytest.raises(greedyac.InputError):
        evaluate(load_policy(path), episodes=2)


def test_a_failed_write_leaves_the_old_file_and_no_other(path: Path) -> None:
    old, policy = path.read_bytes(), load_policy(path)
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as a full disk: the write stops half-way
    try:
        with pytest.raises(OSError, match="File too large"):
            save_checkpoint(path, policy)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == old
    with pytest.raises(FileNotFoundError):
        save_checkpoint(path.parent / "missing" / path.name, policy)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    save_checkpoint(path, policy)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def constant_policy(path: Path, torque: float) -> Policy:
    """A policy that always pushes the pendulum with this torque."""
    blank = {name: np.zeros_like(weight) for name, weight in weights_in(path).items()}
    blank["actor.mean.bias"] = np.array([np.arctanh(torque / 2)], np.float32)
    return load_policy(rewritten(path, weights=blank))


def test_evaluate_is_a_plain_loop_over_the_environment(path: Path) -> None:
    policy = constant_policy(path, 1.5)
    env = policy.run.config.world
    assert isinstance(env, Env)
    state, observation = env.reset(jax.random.key(0))
    total, steps, ended = 0.0, 0, False
    while not ended:
        action = policy.predict(observation).action
        np.testing.assert_allclose(action, [1.5], rtol=1e-6)
        state, moved = env.step(state, jnp.asarray(action), jax.random.key(0))
        observation, total, steps = moved.observation, total + float(moved.reward), steps + 1
        ended = bool(moved.terminated | moved.truncated)
    assert steps == 20
    result = evaluate(policy, episodes=3)
    assert result.returns == pytest.approx(3 * [total], rel=1e-5)


def test_evaluate_episodes_of_different_lengths(tmp_path: Path) -> None:
    # A car pushed the way it rolls, by tanh(1000 · velocity), climbs out; how soon depends on where it starts.
    run = Run(RunConfig("greedy-ac", "MountainCar-CA", steps=10, hypers={**HYPERS, "hidden": (2,)}), seed=7)
    path = saved(tmp_path / "car.safetensors", run)
    pump = {name: np.zeros_like(weight) for name, weight in weights_in(path).items()}
    pump["actor.mlp.layers.0.weight"] = np.array([[0, 0], [1000, -1000]], np.float32)
    pump["actor.mean.weight"] = np.array([[1], [-1]], np.float32)
    policy = load_policy(rewritten(path, weights=pump))
    env = run.config.world
    assert isinstance(env, Env)
    step = jax.jit(env.step)
    lengths = []
    for episode in range(5):
        key = stream_key(jax.random.key(3), Stream.EVALUATE, episode)
        state, observation = env.reset(jax.random.fold_in(key, 0))
        ended, length = False, 0
        while not ended:
            push = jnp.tanh(1000 * observation[1:])
            state, (observation, _, terminated, truncated) = step(state, push, key)
            length, ended = length + 1, bool(terminated | truncated)
        lengths.append(length)
    assert len(set(lengths)) > 1
    assert max(lengths) < 1000
    assert evaluate(policy, episodes=5, seed=3).returns == [-length for length in lengths]


def test_interval_is_students(path: Path) -> None:
    result = evaluate(load_policy(path), episodes=7, deterministic=False)
    assert len(set(result.returns)) == 7
    assert result.mean == pytest.approx(np.mean(result.returns))
    wanted = stats.t.interval(0.95, 6, np.mean(result.returns), stats.sem(result.returns))
    assert result.interval == pytest.approx(wanted)
    one = evaluate(load_policy(path), episodes=1, deterministic=False)
    assert (one.returns, one.mean, one.interval) == (result.returns[:1], result.returns[0], None)
    assert evaluate(load_policy(path), episodes=1, seed=1, deterministic=False).mean not in result.returns


@pytest.mark.parametrize("episodes", [0, -1, 1.5])
def test_evaluate_refuses_other_numbers_of_episodes(path: Path, episodes: Any) -> None:
    with pytest.raises(greedyac.InputError, match=f"{episodes} is not allowed"):
        evaluate(load_policy(path), episodes)


def test_eval_of_a_diverged_policy_prints_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    rewritten(path, weights={"actor.mean.bias": np.array([np.nan], np.float32)})
    assert main(["eval", str(path), "--episodes", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert (told["returns"], told["mean"], told["interval"]) == ([None, None], None, None)
