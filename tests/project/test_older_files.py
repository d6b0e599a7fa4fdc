"""Files that version 0.1.0 wrote are read without a word, and mean what they meant."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.paths import TESTS

from greedyac import load
from greedyac.cli import main
from greedyac.study.store import Store
from greedyac.training.blocks import make_lanes, run_blocks
from greedyac.training.checkpoint import Policy, load_policy, read_checkpoint

OLD = TESTS / "data/0.1.0"


@pytest.mark.parametrize(
    ("agent", "actions"),
    [("greedy-ac", [[0.48388412594795227], [-0.11852696537971497], [-0.5737424492835999]]), ("sac", [0, 0, 1])],
)
def test_a_policy_acts_as_it_did(agent: str, actions: list[float]) -> None:
    policy = load_policy(OLD / f"{agent}.safetensors")
    size = policy.spaces.observation.size
    seen = np.linspace(-0.5, 0.5, 3 * size, dtype=np.float32).reshape(3, size)
    np.testing.assert_allclose(policy.predict(seen).action, actions, atol=1e-5)


def test_a_convolution_is_read() -> None:
    assert load(OLD / "vanilla-ac.safetensors").hypers["normalise_rewards"] is True


@pytest.mark.parametrize("agent", ["greedy-ac", "sac"])
def test_a_run_in_the_middle_goes_on_as_it_did(agent: str) -> None:
    """The optimizers' states and the replay play their part in what it comes to."""
    held = read_checkpoint(OLD / f"{agent}.middle.safetensors")
    run = held.policy.run
    assert held.snapshot is not None
    assert held.snapshot.time == 25
    lanes = make_lanes([run.config.learner], run.config.world, [run.seed], run.config.steps, snapshots=[held.snapshot])
    run_blocks(lanes, lambda _: None)
    went_on = Policy.of(run, lanes.outcomes()[0])
    lanes.close()
    ended = load_policy(OLD / f"{agent}.safetensors")
    assert went_on.run.run_id == ended.run.run_id
    for name in ("actor", "critic"):
        pairs = zip(*(jax.tree.leaves(getattr(policy.state, name)) for policy in (went_on, ended)), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_store_is_whole_and_nothing_in_it_is_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    shutil.copytree(OLD / "store", store)
    (store / "failed").mkdir(exist_ok=True)  # Git keeps no empty folder
    assert Store.existing(store).verify() == []
    assert main(["sweep", str(OLD / "study.toml"), "--store", str(store), "--dry-run"]) == 0
    assert "6 in the store, 0 to run" in capsys.readouterr().out
    assert main(["status", "--store", str(store), "--json"]) == 0
    [study] = json.loads(capsys.readouterr().out)["studies"]
    assert (study["runs"]["planned"], study["runs"]["done"]) == (6, 6)
