"""Grids and images: how they are told from vectors, what is refused, and that every agent learns from pixels."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces as theirs
from helpers.probes import TwoPixels

import greedyac
from greedyac.agents import AGENTS, make_agent
from greedyac.cli import main
from greedyac.core import spaces
from greedyac.core.errors import InputError
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.envs import HostEnv, make_env, make_world
from greedyac.envs.gym.adapter import SpaceAdapter
from greedyac.execution.cost import operations
from greedyac.execution.plan import expand_configs, plan_chunks, widest
from greedyac.training.config import Run
from greedyac.training.lanes import LaneBatch

ACTIONS = theirs.Discrete(3)
GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")


def box(*shape: int, dtype: Any = np.float32, high: float = 1) -> theirs.Box:
    return theirs.Box(0, high, shape, dtype)


# --- which observations are grids


@pytest.mark.parametrize(
    ("space", "grid", "stored"),
    [
        (box(4, 5, 2), (4, 5, 2), "float32"),
        (box(4, 5, 2, dtype=np.float64), (4, 5, 2), "float32"),
        (box(4, 5, 2, dtype=np.bool_), (4, 5, 2), "bool"),
        (box(4, 5, 3, dtype=np.uint8, high=255), (4, 5, 3), "uint8"),
        (box(4, 5, dtype=np.uint8, high=255), (4, 5, 1), "uint8"),
        (box(4, 5, dtype=np.bool_), (4, 5, 1), "bool"),
        (box(2, 5, dtype=np.uint8, high=255), None, "uint8"),
        (box(4, 5), None, "float32"),
        (box(128, dtype=np.uint8, high=255), None, "uint8"),
        (box(7, dtype=np.bool_), None, "bool"),
        (box(3, dtype=np.int16, high=9), None, "float32"),
        (theirs.Dict({"image": box(4, 5, 2)}), None, "float32"),
    ],
)
def test_boxes_of_three_axes_and_pictures_are_grids(space: Any, grid: Any, stored: str) -> None:
    seen = SpaceAdapter(space, ACTIONS).spaces.observation
    assert (seen.grid, seen.stored) == (grid, stored)
    assert seen.size == theirs.flatdim(space)


def test_pixels_become_numbers_between_0_and_1_and_bytes_of_vectors_stay() -> None:
    image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3) * 4
    told = SpaceAdapter(box(4, 5, 3, dtype=np.uint8, high=255), ACTIONS)
    np.testing.assert_allclose(told.observation(image), image.ravel() / 255, rtol=1e-6)
    assert told.spaces.observation.high == (1.0,) * 60
    vector = np.arange(7, dtype=np.uint8)
    told = SpaceAdapter(box(7, dtype=np.uint8, high=255), ACTIONS)
    np.testing.assert_array_equal(told.observation(vector), vector)
    assert told.spaces.observation.high == (255.0,) * 7


@pytest.mark.parametrize("kind", ["bool", "uint8", "float32"])
def test_spaces_of_grids_survive_json_and_gymnasium(kind: str) -> None:
    ours = Spaces(Box((0.0,) * 40, (1.0,) * 40, (4, 5, 2), kind), Discrete(3))
    assert spaces.from_json(spaces.to_json(ours)) == ours
    again = SpaceAdapter.from_json(SpaceAdapter.of(ours).to_json()).spaces
    assert again.observation.grid == (4, 5, 2)
    assert again.observation.stored == kind
    np.testing.assert_allclose(again.observation.high, 1, rtol=1e-6)


@pytest.mark.parametrize("change", [{"grid": [4, 5, 3]}, {"stored": "int64"}, {"grid": [4, 10]}])
def test_forged_spaces_are_refused(change: dict[str, Any]) -> None:
    told = spaces.to_json(Spaces(Box((0.0,) * 40, (1.0,) * 40, (4, 5, 2), "bool"), Discrete(3)))
    with pytest.raises(ValueError, match=r"grid|stored|unpack"):
        spaces.from_json({**told, "observation": {**told["observation"], **change}})


# --- what is refused


class Shows(gymnasium.Env[Any, Any]):
    """Shows nothing but zeros of one shape."""

    def __init__(self, *shape: int) -> None:
        self.observation_space, self.action_space = box(*shape, dtype=np.uint8, high=255), ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(self.observation_space.shape, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *self.reset()[:1], 0.0, False, False, {}


def test_a_grid_smaller_than_the_kernel_is_refused_in_one_line() -> None:
    words = r"^environment 'Shows' has grids of 2 × 9; allowed: 3 × 3, the size of the kernels, or larger; .*Flatten.*$"
    with pytest.raises(InputError, match=words):
        greedyac.GreedyAC(Shows(2, 9, 3))


def test_an_image_too_large_for_the_network_is_refused_in_one_line() -> None:
    words = r"^environment 'Shows' has observations of 21,168 numbers; allowed: 1 to 4,096; images can .*$"
    with pytest.raises(InputError, match=words):
        greedyac.GreedyAC(Shows(84, 84, 3))


def test_what_an_extra_would_bring_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in gymnasium.registry if name.startswith("MinAtar/")]:
        monkeypatch.delitem(gymnasium.registry, name)
    for module in ("minatar", "minatar.gym"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["train", "greedy-ac", "MinAtar/Asterix-v1", "--steps", "10"]) == 2
    told = capsys.readouterr().err.strip()
    assert told == "greedyac: error: environment 'MinAtar/Asterix-v1' needs minatar: pip install 'greedyac[minatar]'"


@pytest.mark.parametrize(("env", "extra"), [("Swimmer-v5", "mujoco"), ("LunarLander-v3", "box2d")])
def test_a_missing_engine_is_named(
    env: str, extra: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise gymnasium.error.DependencyNotInstalled("it is not there")

    monkeypatch.setattr(gymnasium, "make", missing)
    assert main(["train", "greedy-ac", env, "--steps", "10"]) == 2
    told = capsys.readouterr().err.strip()
    assert told == f"greedyac: error: environment {env!r} needs {extra}: pip install 'greedyac[{extra}]'"


# --- how they are trained


def test_the_layer_after_a_convolution_has_128_units_unless_told() -> None:
    asked: list[dict[str, Any]] = [{}, {"hidden": (32, 16)}]
    hidden = [expand_configs("sac", "MinAtar-Breakout", 10, None, {}, {}, more)[0].hypers["hidden"] for more in asked]
    assert hidden == [(128,), (32, 16)]
    assert expand_configs("random", "MinAtar-Breakout", 10, None, {}, {}, {})[0].hypers == {}
    assert expand_configs("sac", "Pendulum-CA", 10, None, {}, {}, {})[0].hypers["hidden"] == (64, 64)


def test_operations_count_the_convolution() -> None:
    """By hand: 64 places × 36 inputs × 16 kernels, 1,024 × 128 and 128 × 3; ten passes, one of them of one state."""
    agent = make_agent("greedy-ac", {"hidden": (128,)})
    one = 2 * (64 * 36 * 16 + 1024 * 128 + 128 * 3)
    assert operations(agent, make_env("MinAtar-Breakout").spaces) == one * (1 + 32 * (4 + 5))


def test_runs_with_a_convolution_are_trained_one_by_one(tmp_path: Path) -> None:
    [case] = expand_configs("greedy-ac", "MinAtar-Freeway", 1000, None, {}, {}, {})
    assert widest(case) == 1
    chunks = plan_chunks([Run(case, seed) for seed in range(5)], 2, tmp_path, 1.0)
    assert {chunk.width for chunk in chunks} == {1}
    assert sum(len(chunk.runs) for chunk in chunks) == 5


SMALL: dict[str, Any] = {
    "hidden": (16,), "critic_step_size": 3e-3, "actor_step_size_scale": 0.3, "entropy_scale": 1e-3,
    "replay_capacity": 2000, "discount": 0.5,
}  # fmt: skip
LEARNERS = [name for name in AGENTS if name != "random"]


@pytest.mark.parametrize("agent", LEARNERS)
@pytest.mark.parametrize(
    "kind", ["heads", pytest.param("continuous", marks=pytest.mark.slow), pytest.param("index", marks=pytest.mark.slow)]
)
def test_every_agent_learns_which_of_two_pixels_is_lit(agent: str, kind: str) -> None:
    more = {} if kind == "continuous" else {"discrete_critic": kind}
    env = TwoPixels(continuous=kind == "continuous")
    lanes = LaneBatch([make_agent(agent, {**SMALL, **more})], env, [0], steps=2500)
    assert len(lanes.state.diverged_at) == 1  # no lane beside it
    lanes.advance(lanes.steps)
    learned = jax.tree.map(lambda leaf: leaf[0], lanes.state.agent)
    pictures = jax.vmap(env.begin)(jax.random.split(jax.random.key(9), 200))
    observations = jax.vmap(env.observe)(pictures)
    force = jax.vmap(lambda seen: env._force(learned.actor(seen).mode()))(observations)
    assert np.mean(np.asarray(force) * np.asarray(pictures[0])) > 0.9  # where any wrong picture costs 0.01


@pytest.mark.parametrize("game", GAMES)
def test_all_games_of_the_package_run_on_the_host(game: str) -> None:
    world = make_world(f"MinAtar/{game}-v1")
    assert isinstance(world, HostEnv)
    assert not world.is_local
    assert world.spaces.observation.stored == "bool"
    assert world.spaces.observation.grid is not None
    assert world.spaces.observation.grid[:2] == (10, 10)
    env = world.make()
    seen, _ = env.reset(seed=1)
    assert world.adapter.observation(seen).shape == (world.spaces.observation.size,)
    world.close(env)


def test_a_model_trains_on_a_game_of_the_package_and_is_loaded_again(tmp_path: Path) -> None:
    model = greedyac.GreedyAC("MinAtar/SpaceInvaders-v1", hidden=(8,), batch_size=4, replay_capacity=50).learn(30)
    model.save(tmp_path / "model.safetensors")
    again = greedyac.load(tmp_path / "model.safetensors")
    seen, _ = gymnasium.make("MinAtar/SpaceInvaders-v1").reset(seed=0)
    several = np.stack([seen, ~seen])
    np.testing.assert_array_equal(again.predict(several)[0], model.predict(several)[0])
    with pytest.raises(InputError, match=r"of shape \(10, 10\) is not allowed"):
        model.predict(seen[..., 0])


@pytest.mark.parametrize(("options", "limit"), [({}, 2500), ({"max_episode_steps": 50}, 50)])
def test_the_packages_games_are_cut_unless_told(options: dict[str, Any], limit: int) -> None:
    world = make_world("MinAtar/Seaquest-v1", options)
    assert isinstance(world, HostEnv)
    assert world.make().spec.max_episode_steps == limit


def test_a_grid_on_the_host_is_another_run_than_the_vector_that_it_once_was() -> None:
    numerics = [make_world(name).numerics for name in ("MinAtar/Breakout-v1", "CartPole-v1")]
    assert numerics == [2, 1]


class Ram(Shows):
    """Bytes in a vector."""

    def __init__(self) -> None:
        super().__init__(5)


def test_a_file_that_does_not_tell_how_numbers_are_stored_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(told: Spaces) -> dict[str, Any]:
        values = original(told)
        assert values["observation"].pop("stored") == "uint8"
        return values

    original = spaces.to_json
    model = greedyac.GreedyAC(Ram, hidden=(4,), batch_size=2, replay_capacity=9).learn(3, progress=False)
    with monkeypatch.context() as patched:
        patched.setattr(spaces, "to_json", before)
        model.save(tmp_path / "old.safetensors")
    seen = np.arange(5, dtype=np.uint8)
    assert greedyac.load(tmp_path / "old.safetensors").predict(seen)[0] == model.predict(seen)[0]
