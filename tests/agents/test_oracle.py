"""Every agent against the published code: twenty updates from given weights, on given batches and draws."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from greedyac.agents import Agent, greedy_ac, make_agent, sac, vanilla_ac
from greedyac.agents.base import Batch
from greedyac.core.fields import hypers_of
from greedyac.core.spaces import Box, Discrete, Spaces

FOLDER = Path(__file__).parent / "oracle"
FILES = sorted(path.stem for path in FOLDER.glob("*.npz"))
COUNTS = (1, 5, 20)
TOLERANCE = 2e-6  # the largest differences measured: 6e-8 after one update, 4e-7 after twenty
SQUASHED_TOLERANCE = {1: 2e-6, 5: 1e-3, 20: 1e-3}
"""Where a gradient vanishes, Adam makes whole steps of its rounding. Measured: 6e-8, 4e-4, 4e-4."""
CHOICES = {
    "greedy-ac": {"proposal_policy": "gaussian", "entropy_estimator": "released", "discrete_critic": "index"},
    "vanilla-ac": {"entropy_estimator": "released", "discrete_critic": "index"},
    "sac": {"soft_target": "released", "discrete_critic": "index"},
}
HEADS = {True: ("mean", "log_std"), False: ("logits",)}


class Oracle:
    """One file of the published code's numbers."""

    def __init__(self, name: str):
        with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
            self.numbers = dict(file)
        self.name, self.meta = name, json.loads(bytes(self.numbers["meta"]))
        self.continuous = "-continuous" in name
        self.agent_name = name.partition("-continuous")[0].partition("-discrete")[0]

    def agent(self) -> Agent:
        known = hypers_of(type(make_agent(self.agent_name)))
        hypers = {name: value for name, value in self.meta.items() if name in known}
        variant = {"policy": "gaussian"} if self.name.endswith("-gaussian") else {}
        automatic = {"automatic_entropy": True} if self.name.endswith("-automatic") else {}
        return make_agent(self.agent_name, {**hypers, **CHOICES[self.agent_name], **variant, **automatic})

    def spaces(self) -> Spaces:
        features = self.numbers["batch.observation"].shape[-1]
        action = Box(tuple(self.meta["low"]), tuple(self.meta["high"]))
        return Spaces(
            Box((-1.0,) * features, (1.0,) * features),
            action if self.continuous else Discrete(self.meta["actions"]),
        )

    @property
    def nets(self) -> list[str]:
        """The parts of our state that the file has numbers of."""
        known = {"critic", "target", "actor", "proposal", "log_entropy_scale"}
        return sorted(known & {key.split(".")[1].rstrip("12") for key in self.numbers if key.startswith("init.")})

    def weights(self, when: str, net: str) -> list[Any]:
        """The numbers of a net in the order of our leaves: weight and bias of each layer, those of twins stacked."""
        if net == "log_entropy_scale":
            return [self.numbers[f"{when}.{net}"][0]]
        if f"{when}.{net}1.0.w" in self.numbers:
            twins = [self.weights(when, f"{net}{number}") for number in (1, 2)]
            return [np.stack(pair) for pair in zip(*twins, strict=True)]
        layers = ("0", "1", "2") if net.startswith(("critic", "target")) else ("0", "1", *HEADS[self.continuous])
        return [self.numbers[f"{when}.{net}.{layer}.{part}"] for layer in layers for part in "wb"]

    def start(self) -> Any:
        """The state before the first update: the given weights, and moments of zero."""
        shapes = jax.eval_shape(lambda: self.agent().init(jax.random.key(0), self.spaces()))
        nets = {}
        for net in self.nets:
            ours, structure = jax.tree.flatten(getattr(shapes, net))
            given = self.weights("init", net)
            assert [leaf.shape for leaf in ours] == [leaf.shape for leaf in given]
            nets[net] = jax.tree.unflatten(structure, given)
        zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        return zero._replace(**nets)

    def batch(self, index: int) -> Batch:
        return Batch(*(jnp.asarray(self.numbers[f"batch.{field}"][index]) for field in Batch._fields))

    def draw(self, name: str, index: int) -> Any:
        """The noise of an update, samples first: `[samples, batch, dims]` or `[batch, dims]`."""
        noise = self.numbers[f"draw.{name}"][index]
        return jnp.asarray(np.moveaxis(noise, 1, 0) if noise.ndim == 3 else noise)

    def draws(self, index: int) -> Any:
        if not self.continuous:
            forced = np.eye(self.meta["actions"])[self.numbers["draw.next_action"][index]] * 1e9
            noise = jnp.asarray(forced, jnp.float32)
            return {"greedy-ac": greedy_ac, "sac": sac, "vanilla-ac": vanilla_ac}[self.agent_name].Draws(noise)
        noise = self.draw("next_action_noise", index)
        if self.agent_name == "greedy-ac":
            return greedy_ac.Draws(noise, self.draw("proposal_noise", index), jnp.zeros_like(noise))
        if self.agent_name == "sac":
            return sac.Draws(noise, self.draw("action_noise", index))
        samples = [self.draw("score_action_noise", index)[None], self.draw("further_noise", index)]
        return vanilla_ac.Draws(noise, jnp.concatenate(samples))


@functools.cache
def replayed(name: str) -> dict[int, Any]:
    """Our states after each of `COUNTS` updates on the oracle's inputs."""
    oracle = Oracle(name)
    learn = jax.jit(oracle.agent().learn)  # type: ignore[attr-defined]
    state, states = oracle.start(), {}
    for index in range(max(COUNTS)):
        state, _ = learn(state, oracle.batch(index), oracle.draws(index))
        if index + 1 in COUNTS:
            states[index + 1] = state
    return states


CASES = [(name, net) for name in FILES for net in Oracle(name).nets]


def test_every_file_is_there() -> None:
    assert len(FILES) == 8
    assert len(CASES) == 26


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("name", "net"), CASES)
def test_updates_give_the_weights_of_the_published_code(name: str, net: str, count: int) -> None:
    ours = jax.tree.leaves(getattr(replayed(name)[count], net))
    theirs = Oracle(name).weights(f"after{count}", net)
    tolerance = SQUASHED_TOLERANCE[count] if name in ("sac-continuous", "sac-continuous-automatic") else TOLERANCE
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("name", "net"), CASES)
def test_twenty_updates_move_the_weights_far_beyond_the_tolerance(name: str, net: str) -> None:
    oracle = Oracle(name)
    moved = [
        np.abs(after - before).max()
        for before, after in zip(oracle.weights("init", net), oracle.weights("after20", net), strict=True)
    ]
    assert min(moved) > 20 * TOLERANCE


def test_few_discrete_actions_need_no_proposal() -> None:
    assert all(state.proposal is None for state in replayed("greedy-ac-discrete").values())
