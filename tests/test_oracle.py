"""GreedyAC against the published code: twenty updates from given weights, on given batches and draws."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from greedyac.agents import GreedyAC
from greedyac.agents.greedy_ac import Draws, State
from greedyac.replay import Batch
from greedyac.spaces import Box, Discrete, Spaces

FOLDER = Path(__file__).parent / "oracle"
COUNTS = (1, 5, 20)
TOLERANCE = 2e-6  # the largest differences measured: 6e-8 after one update, 4e-7 after twenty
CRITIC = ("0", "1", "2")
HEADS = {"continuous": ("0", "1", "mean", "log_std"), "discrete": ("0", "1", "logits")}
HYPERS = (
    "critic_step_size actor_step_size_scale entropy_scale discount polyak elite_fraction proposal_samples batch_size"
)


class Oracle:
    """One file of the published code's numbers."""

    def __init__(self, kind: str):
        with np.load(FOLDER / f"greedy-ac-{kind}.npz", allow_pickle=False) as file:
            self.numbers = dict(file)
        self.meta = json.loads(bytes(self.numbers["meta"]))
        self.continuous = kind == "continuous"
        self.layers = {"critic": CRITIC, "target": CRITIC, "actor": HEADS[kind]}
        if self.continuous:
            self.layers["proposal"] = HEADS[kind]

    def agent(self) -> GreedyAC:
        hypers = {name: self.meta[name] for name in HYPERS.split()}
        hidden = tuple(self.meta["hidden"])
        return GreedyAC(hidden=hidden, entropy_estimator="released", discrete_critic="index", **hypers)

    def spaces(self) -> Spaces:
        features = self.numbers["batch.observation"].shape[-1]
        action = Box(tuple(self.meta["low"]), tuple(self.meta["high"]))
        return Spaces(
            Box((-1.0,) * features, (1.0,) * features),
            action if self.continuous else Discrete(self.meta["actions"]),
        )

    def weights(self, when: str, net: str) -> list[Any]:
        """Weight and bias of each layer, in the order of our networks' leaves."""
        return [self.numbers[f"{when}.{net}.{layer}.{part}"] for layer in self.layers[net] for part in "wb"]

    def start(self) -> State:
        """The state before the first update: the given weights, and moments of zero."""
        shapes = jax.eval_shape(lambda: self.agent().init(jax.random.key(0), self.spaces()))
        nets = {}
        for net in self.layers:
            ours, structure = jax.tree.flatten(getattr(shapes, net))
            given = self.weights("init", net)
            assert [leaf.shape for leaf in ours] == [leaf.shape for leaf in given]
            nets[net] = jax.tree.unflatten(structure, given)
        zero: State = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        return zero._replace(**nets)

    def batch(self, index: int) -> Batch:
        return Batch(*(jnp.asarray(self.numbers[f"batch.{field}"][index]) for field in Batch._fields))

    def draws(self, index: int) -> Draws:
        if self.continuous:
            proposal = np.moveaxis(self.numbers["draw.proposal_noise"][index], 1, 0)  # [samples, batch, dims]
            return Draws(jnp.asarray(self.numbers["draw.next_action_noise"][index]), jnp.asarray(proposal))
        forced = np.eye(self.meta["actions"])[self.numbers["draw.next_action"][index]] * 1e9
        return Draws(jnp.asarray(forced, jnp.float32), None)


@functools.cache
def replayed(kind: str) -> dict[int, State]:
    """Our states after each of `COUNTS` updates on the oracle's inputs."""
    oracle = Oracle(kind)
    learn = jax.jit(oracle.agent().learn)
    state, states = oracle.start(), {}
    for index in range(max(COUNTS)):
        state, _ = learn(state, oracle.batch(index), oracle.draws(index))
        if index + 1 in COUNTS:
            states[index + 1] = state
    return states


CASES = [(kind, net) for kind in HEADS for net in Oracle(kind).layers]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("kind", "net"), CASES)
def test_updates_give_the_weights_of_the_published_code(kind: str, net: str, count: int) -> None:
    ours = jax.tree.leaves(getattr(replayed(kind)[count], net))
    theirs = Oracle(kind).weights(f"after{count}", net)
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("kind", "net"), CASES)
def test_twenty_updates_move_the_weights_far_beyond_the_tolerance(kind: str, net: str) -> None:
    oracle = Oracle(kind)
    moved = [
        np.abs(after - before).max()
        for before, after in zip(oracle.weights("init", net), oracle.weights("after20", net), strict=True)
    ]
    assert min(moved) > 20 * TOLERANCE


def test_few_discrete_actions_need_no_proposal() -> None:
    assert all(state.proposal is None for state in replayed("discrete").values())
