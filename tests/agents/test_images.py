"""Images inside dicts and tuples: where they are, how they are scaled, and that every network looks at them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces as theirs
from helpers.odd_envs import Cameras, ChosenCameras, InPieces
from helpers.probes import TwoPixels
from jax import Array

import greedyac
from greedyac.agents import make_agent
from greedyac.api.model import FRONTS
from greedyac.core import spaces
from greedyac.core.errors import InputError
from greedyac.core.spaces import Box, Image
from greedyac.envs.gym import host
from greedyac.envs.gym.adapter import SpaceAdapter
from greedyac.envs.gym.host import named_host_env
from greedyac.execution.cost import operations
from greedyac.execution.plan import expand_configs
from greedyac.nn.layers import KERNELS, Encoder, encoded_size
from greedyac.training import bits
from greedyac.training.lanes import LaneBatch

ACTIONS = theirs.Discrete(3)
PIXELS: Any = theirs.Box(0, 255, (4, 5, 3), np.uint8)
BITS: Any = theirs.Box(0, 1, (3, 4), np.bool_)
REALS: Any = theirs.Box(-1, 1, (3, 3, 2), np.float32)
SMALL: Any = theirs.Box(0, 255, (2, 3, 1), np.uint8)
LINE: Any = theirs.Box(-9, 9, (2,), np.float32)
BYTES: Any = theirs.Box(0, 255, (5,), np.uint8)
TINY: dict[str, Any] = {"hidden": (4,), "batch_size": 4, "replay_capacity": 50, "critic_step_size": 1e-2}


def flat(*parts: Any) -> Any:
    return np.concatenate([np.asarray(part, np.float32).ravel() for part in parts])


# --- which parts are images


NESTED = theirs.Dict(
    a=LINE, b=theirs.Tuple([theirs.Discrete(3), theirs.Dict(c=BITS, d=theirs.Tuple([PIXELS]))]), e=LINE
)


@pytest.mark.parametrize(
    ("space", "images", "stored"),
    [
        (theirs.Dict(image=PIXELS), [Image(0, (4, 5, 3), True)], "uint8"),
        (theirs.Dict(line=LINE, image=PIXELS), [Image(2, (4, 5, 3), True)], "float32"),
        (theirs.Tuple([PIXELS, LINE, REALS]), [Image(0, (4, 5, 3), True), Image(62, (3, 3, 2))], "float32"),
        (theirs.Tuple([BITS, BITS]), [Image(0, (3, 4, 1)), Image(12, (3, 4, 1))], "bool"),
        (theirs.Dict(bytes=BYTES, image=PIXELS), [Image(5, (4, 5, 3), True)], "uint8"),
        (NESTED, [Image(5, (3, 4, 1)), Image(17, (4, 5, 3), True)], "float32"),
        (theirs.Tuple([LINE, SMALL]), [Image(2, (2, 3, 1), True)], "float32"),
        (theirs.Tuple([LINE, theirs.Box(0, 1, (2, 3, 1))]), [], "float32"),  # too small for a kernel, and not of bytes
        (theirs.Tuple([LINE, theirs.Box(0, 255, (2, 9), np.uint8)]), [], "float32"),  # as by itself
        (theirs.Tuple([LINE, theirs.Box(0, 1, (4, 5))]), [], "float32"),
        (theirs.Tuple([LINE, theirs.Box(0, 255, (5, 5, 0), np.uint8)]), [], "float32"),
        (theirs.Dict(line=LINE, bytes=BYTES), [], "float32"),
        (PIXELS, [], "uint8"),
    ],
    ids=str,
)
def test_images_are_found_among_the_parts(space: Any, images: list[Image], stored: str) -> None:
    known = SpaceAdapter(space, ACTIONS)
    seen = known.spaces.observation
    assert (seen.images, seen.stored) == (tuple(images), stored)
    assert seen.size == theirs.flatdim(space)
    assert spaces.from_json(spaces.to_json(known.spaces)) == known.spaces
    again = SpaceAdapter.from_json(known.to_json())
    assert again == known
    assert again.spaces == known.spaces


def test_a_space_without_images_is_written_as_ever() -> None:
    known = SpaceAdapter(theirs.Dict(line=LINE, bytes=BYTES), ACTIONS)
    assert spaces.to_json(known.spaces)["observation"].keys() == {"low", "high"}
    assert known.to_json().keys() == {"observation", "action"}


@pytest.mark.parametrize("start", [-1, 3])
def test_forged_images_are_refused(start: int) -> None:
    known = spaces.to_json(SpaceAdapter(theirs.Tuple([LINE, PIXELS]), ACTIONS).spaces)
    [image] = known["observation"]["images"]
    with pytest.raises(ValueError, match="images at"):
        spaces.from_json({**known, "observation": {**known["observation"], "images": [{**image, "start": start}]}})


def test_an_image_in_a_dict_that_is_too_large_is_refused_in_one_line() -> None:
    class Large(Cameras):
        observation_space = theirs.Dict(image=theirs.Box(0, 255, (84, 84, 1), np.uint8), line=LINE)

    with pytest.raises(InputError, match=r"^environment 'Large' has observations of 7,058 numbers; allowed: .*$"):
        greedyac.GreedyAC(Large())


# --- how they are scaled


def test_pixels_are_scaled_and_all_else_stays() -> None:
    NESTED.seed(0)
    given = [NESTED.sample() for _ in range(3)]
    known = SpaceAdapter(NESTED, ACTIONS)
    expected = [
        flat(one["a"], np.arange(3) == one["b"][0], one["b"][1]["c"], one["b"][1]["d"][0] / 255, one["e"])
        for one in given
    ]
    np.testing.assert_allclose([known.observation(one) for one in given], expected, rtol=1e-6)
    batch, single = known.batch(given)
    assert not single
    np.testing.assert_array_equal(batch, [known.observation(one) for one in given])
    one, single = known.batch(given[1])
    assert single
    np.testing.assert_array_equal(one, batch[1:2])
    bounds = known.spaces.observation
    assert bounds.low == (-9.0,) * 2 + (0.0,) * 75 + (-9.0,) * 2
    assert bounds.high == (9.0,) * 2 + (1.0,) * 75 + (9.0,) * 2


def test_pixels_are_what_they_are_in_an_image_by_itself() -> None:
    image = PIXELS.sample()
    alone = SpaceAdapter(PIXELS, ACTIONS).observation(image)
    np.testing.assert_array_equal(
        SpaceAdapter(theirs.Tuple([LINE, PIXELS]), ACTIONS).observation(((0, 0), image))[2:], alone
    )


def test_a_small_image_is_scaled_too() -> None:
    seen = SpaceAdapter(theirs.Tuple([SMALL, LINE]), ACTIONS).observation((np.full((2, 3, 1), 51), (7, 8)))
    np.testing.assert_allclose(seen, [0.2] * 6 + [7, 8], rtol=1e-6)


@pytest.mark.parametrize(
    "space", [theirs.Dict(bytes=BYTES, image=PIXELS), theirs.Tuple([PIXELS]), theirs.Tuple([BITS])]
)
def test_a_replay_packs_bytes_and_bits_and_gives_them_back(space: Any) -> None:
    space.seed(1)
    known = SpaceAdapter(space, ACTIONS)
    box, seen = known.spaces.observation, np.stack([known.observation(space.sample()) for _ in range(4)])
    packed = jax.jit(bits.pack, static_argnums=1)(jnp.asarray(seen), box)
    assert packed.dtype == jnp.uint32
    again = jax.jit(bits.unpack, static_argnums=1)(packed, box)
    assert again.dtype == jnp.float32
    np.testing.assert_array_equal(again, seen)


# --- what networks see


@jax.jit
def call(eye: Encoder, observation: Any) -> Array:
    return eye(observation)


def with_random_weights(eye: Encoder) -> Encoder:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape).astype(np.float32)), eye)


def test_a_network_sees_images_as_if_each_were_alone_then_the_other_numbers() -> None:
    NESTED.seed(2)
    given = [NESTED.sample() for _ in range(3)]
    known = SpaceAdapter(NESTED, ACTIONS)
    eye = with_random_weights(Encoder(known.spaces.observation))
    assert len(eye.convolutions) == 2
    alone = []
    for place, space, images in [
        (0, BITS, [one["b"][1]["c"] for one in given]),
        (1, PIXELS, [one["b"][1]["d"][0] for one in given]),
    ]:
        by_itself = SpaceAdapter(space, ACTIONS)
        lone = eqx.tree_at(
            lambda lone: lone.convolution, Encoder(by_itself.spaces.observation), eye.convolutions[place]
        )
        alone.append(call(lone, by_itself.batch(images)[0]))
    others = [flat(one["a"], np.arange(3) == one["b"][0], one["e"]) for one in given]
    seen = call(eye, known.batch(given)[0])
    assert seen.shape == (3, eye.size) == (3, encoded_size(known.spaces.observation))
    np.testing.assert_allclose(seen, np.concatenate([*alone, others], -1), rtol=1e-5, atol=1e-5)
    assert all((np.asarray(part) > 0).any() for part in alone)


def test_small_images_and_lone_grids_have_no_more_convolutions() -> None:
    small = Encoder(SpaceAdapter(theirs.Tuple([SMALL, LINE]), ACTIONS).spaces.observation)
    assert (jax.tree.leaves(small), small.size) == ([], 8)
    lone = Encoder(SpaceAdapter(PIXELS, ACTIONS).spaces.observation)
    assert [leaf.shape for leaf in jax.tree.leaves(lone)] == [(3, 3, 3, KERNELS), (KERNELS,)]
    assert lone.convolutions == ()


def test_one_layer_of_128_units_follows_unless_another_is_asked_for() -> None:
    def hidden(kind: Any, **more: Any) -> Any:
        return expand_configs("sac", named_host_env(kind), 10, None, {}, {}, more)[0].hypers["hidden"]

    assert hidden(Cameras) == (128,)
    assert hidden(Cameras, hidden=(32, 16)) == (32, 16)
    assert hidden(InPieces) == (64, 64)


def test_operations_count_every_convolution() -> None:
    """By hand: 6 and 2 places, 27 and 9 inputs, 16 kernels; 128 numbers found and 7 others; ten passes, one of one."""
    known = SpaceAdapter(NESTED, ACTIONS).spaces
    one = 2 * (6 * 27 * 16 + 2 * 9 * 16 + (128 + 7) * 20 + 20 * 3)
    assert operations(make_agent("greedy-ac", {"hidden": (20,)}), known) == one * (1 + 32 * (4 + 5))


# --- how they are trained


@dataclass(frozen=True)
class Framed(TwoPixels):
    """The two pixels between plain numbers, as those of a dict would be."""

    observation_space = Box((0.0,) * 43, (1.0,) * 43, images=(Image(1, (4, 5, 2)),))

    def observe(self, physics: tuple[Array, Array]) -> Array:
        return jnp.pad(super().observe(physics), (1, 2), constant_values=0.5)


def test_an_agent_learns_from_an_image_among_other_numbers() -> None:
    hypers = {
        "hidden": (16,), "critic_step_size": 3e-3, "actor_step_size_scale": 0.3, "entropy_scale": 1e-3,
        "replay_capacity": 2000, "discount": 0.5,
    }  # fmt: skip
    env = Framed(continuous=False)
    lanes = LaneBatch([make_agent("greedy-ac", hypers)], env, [0], steps=2500)
    assert len(lanes.state.diverged_at) == 1  # no lane beside it, as of any convolution
    lanes.advance(lanes.steps)
    learned = jax.tree.map(lambda leaf: leaf[0], lanes.state.agent)
    pictures = jax.vmap(env.begin)(jax.random.split(jax.random.key(9), 200))
    force = jax.vmap(lambda seen: env._force(learned.actor(seen).mode()))(jax.vmap(env.observe)(pictures))
    assert np.mean(np.asarray(force) * np.asarray(pictures[0])) > 0.9


@pytest.mark.parametrize(
    ("agent", "kind", "more"),
    [
        ("greedy-ac", Cameras, {}),
        pytest.param("greedy-ac", ChosenCameras, {"discrete_critic": "heads"}, marks=pytest.mark.slow),
        pytest.param("vanilla-ac", ChosenCameras, {"discrete_critic": "index"}, marks=pytest.mark.slow),
        pytest.param("sac", Cameras, {}, marks=pytest.mark.slow),
        pytest.param("sac", ChosenCameras, {}, marks=pytest.mark.slow),
    ],
)
def test_every_convolution_learns(agent: str, kind: type[Cameras], more: dict[str, Any], tmp_path: Path) -> None:
    """From end to end, with each kind of actions and critic."""
    fresh = FRONTS[agent](kind, **TINY, **more)
    fresh.save(tmp_path / "fresh", everything=True)
    model = greedyac.load(tmp_path / "fresh", env=kind).learn(40, progress=False)
    before, after = fresh.policy.state, model.policy.state
    for part in ("actor", "critic"):
        weights = [
            {
                jax.tree_util.keystr(path): np.asarray(leaf)
                for path, leaf in jax.tree_util.tree_leaves_with_path(getattr(state, part))
                if "convolutions" in jax.tree_util.keystr(path)
            }
            for state in (before, after)
        ]
        assert len(weights[0]) == 4  # weight and bias of two
        for name in weights[0]:
            assert not np.array_equal(weights[0][name], weights[1][name]), f"{part}{name}"
    assert len(model.evaluate(2).returns) == 2


def test_a_run_does_not_depend_on_those_beside_it() -> None:
    asked: dict[str, Any] = {"steps": 60, **TINY}
    several = greedyac.train("greedy-ac", ChosenCameras, seeds=[3, 4, 5], **asked)
    alone = greedyac.train("greedy-ac", ChosenCameras, seeds=[4], **asked)
    assert several.curves["run_id"][1] == alone.curves["run_id"][0]
    for mine, other in zip(
        *(jax.tree.leaves(policy.state) for policy in (several.policies[1], alone.policies[0])), strict=True
    ):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_normalisation_is_of_scaled_pixels() -> None:
    model = greedyac.VanillaAC(ChosenCameras, normalise_observations=True, **TINY).learn(40, progress=False)
    assert model.policy.scales is not None
    assert model.policy.scales.observation is not None
    mean = np.asarray(model.policy.scales.observation.mean)
    assert 17 / 255 <= mean[:72].reshape(4, 9, 2)[..., 1].max() <= 1
    assert mean[:72].reshape(4, 9, 2)[0, 0, 1] == pytest.approx(17 / 255)
    assert mean[-1] > 1  # the time, as it is


def test_only_runs_with_images_among_their_parts_are_other_runs_now() -> None:
    small: Any = Cameras()
    small.observation_space = theirs.Tuple([SMALL, LINE])
    assert [named_host_env(kind).numerics for kind in (Cameras, small, InPieces)] == [2, 2, 1]


# --- files


@pytest.mark.parametrize("kind", [Cameras, ChosenCameras])
def test_saved_loaded_and_asked_again(kind: type[Cameras], tmp_path: Path) -> None:
    model = greedyac.GreedyAC(kind, **TINY).learn(30, progress=False)
    kind.observation_space.seed(0)
    several = [kind.observation_space.sample() for _ in range(5)]
    for everything in (False, True):
        model.save(tmp_path / "model", everything=everything)
        loaded = greedyac.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(several).action, model.predict(several).action)
        for one, action in zip(several, model.predict(several).action, strict=True):
            np.testing.assert_allclose(loaded.predict(one).action, action, rtol=1e-5)
    whole = model.learn(20, progress=False).policy.state
    gone_on = greedyac.load(tmp_path / "model", env=kind).learn(20, progress=False).policy.state
    assert eqx.tree_equal(*jax.tree.map(np.asarray, (whole, gone_on)), typematch=False)


def test_a_file_of_an_agent_that_saw_images_as_numbers_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on seeing them so, also when it learns and is evaluated on an environment that is given."""

    def before(_: str, env: Any) -> SpaceAdapter:
        return SpaceAdapter(env.observation_space, env.action_space, images=False)

    with monkeypatch.context() as patched:
        patched.setattr(host, "adapter_of", before)
        old = greedyac.GreedyAC(Cameras, **TINY).learn(20, progress=False)
        old.save(tmp_path / "old", everything=True)
    assert old.policy.run.config.world.numerics == 1
    assert old.policy.state.actor.encoder.size == theirs.flatdim(Cameras.observation_space)
    seen = Cameras.observation_space.sample()
    assert greedyac.load(tmp_path / "old").predict(seen).action == old.predict(seen).action
    loaded = greedyac.load(tmp_path / "old", env=Cameras)
    assert loaded.predict(seen).action == old.predict(seen).action
    assert loaded.learn(20, progress=False).evaluate(1).mean < 0
    whole, gone_on = old.learn(20, progress=False).policy.state, loaded.policy.state
    assert eqx.tree_equal(*jax.tree.map(np.asarray, (whole, gone_on)), typematch=False)


def test_images_among_other_numbers_are_refused_where_a_file_tells_otherwise(tmp_path: Path) -> None:
    model = greedyac.Random(Cameras)
    model.save(tmp_path / "model")

    class Other(Cameras):
        observation_space = theirs.Dict({**Cameras.observation_space, "front": theirs.Box(0, 1, (4, 9, 2), np.bool_)})

    with pytest.raises(InputError, match="has other observations and actions than"):
        greedyac.load(tmp_path / "model", env=Other)
