"""One run of a store again: its numbers, its diagnostics, and what is said when they can't be the same."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers.paths import ROOT

from greedyac.cli import main
from greedyac.core.errors import InputError
from greedyac.envs import make_world
from greedyac.execution.chunk import Chunk, train_chunk
from greedyac.nn.layers import Linear
from greedyac.results.files import publish_rows
from greedyac.results.provenance import software, versions
from greedyac.study.rerun import Rerun, find_row, rerun, run_of
from greedyac.study.spec import parse_study
from greedyac.study.store import CIRCUMSTANCES, Store
from greedyac.training.lanes import LaneBatch

Capture = pytest.CaptureFixture[str]
STUDY = """
name = "tiny"
steps = 400
seeds = "0-2"
[[cells]]
agents = ["greedy-ac"]
envs = ["Pendulum-CA"]
env_options = { time_limit = 50 }
fixed = { hidden = [4], proposal_samples = 4, batch_size = 4, proposal_policy = "gaussian" }
sweep = { critic_step_size = [1e-3, 1e30] }  # the second diverges
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.toml").write_text(STUDY)
    assert main(["sweep", str(folder / "tiny.toml"), "--store", str(folder / "store"), "--workers", "1"]) == 0
    return Store.existing(folder / "store")


@pytest.fixture(scope="module")
def healthy(store: Store) -> str:
    rows = store.read().rows
    return str(rows.filter((pl.col("seed") == 1) & (pl.col("status") == "done"))["run_id"].item())


@pytest.fixture(scope="module")
def again(store: Store, healthy: str) -> Rerun:
    return rerun(find_row(store, healthy), lambda step: None)


def test_a_diverging_setting_is_recorded_as_such(store: Store, capsys: Capture) -> None:
    rows = store.read().rows
    by_step_size = {
        json.loads(hypers)["critic_step_size"]: status for hypers, status in rows.select("hypers", "status").iter_rows()
    }
    assert by_step_size == {1e-3: "done", 1e30: "diverged"}
    assert main(["status", "--store", str(store.folder), "--json"]) == 0
    [study] = json.loads(capsys.readouterr().out)["studies"]
    assert study == {"name": "tiny", "runs": {"planned": 6, "done": 3, "diverged": 3, "failed": 0, "missing": 0}}


@pytest.mark.parametrize("width", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_neighbours_of_a_diverging_run_are_as_without_it_at_any_width(store: Store, width: int, tmp_path: Path) -> None:
    runs = list(parse_study(STUDY.replace(", 1e30", "")).runs().values())
    receipt = train_chunk(Chunk(runs, width, tmp_path), lambda steps: None)
    assert (receipt.runs, receipt.diverged) == (3, 0)
    alone = pl.read_parquet(tmp_path / str(receipt.file)).drop(CIRCUMSTANCES).sort("run_id")
    together = store.read().rows.filter(pl.col("status") == "done").drop(CIRCUMSTANCES).sort("run_id")
    assert together.equals(alone)


def test_the_same_numbers_bit_for_bit(again: Rerun) -> None:
    assert (again.differences, again.obstacles) == ([], [])


def test_diagnostics_of_every_step(again: Rerun) -> None:
    told = again.diagnostics
    names = ["actor_deviation", "actor_entropy", "proposal_deviation", "proposal_entropy", "q"]
    assert told.columns == ["step", "episode", "return_so_far", *names]
    assert told["step"].to_list() == list(range(400))
    assert told["episode"].to_list() == [(step + 1) // 50 for step in range(400)]
    assert told.filter(pl.col("step") % 50 == 49)["return_so_far"].to_list() == [0.0] * 8
    assert told["q"].n_unique() > 300
    for policy in ("actor", "proposal"):
        entropy = 0.5 * np.log(2 * np.pi * np.e) + np.log(told[f"{policy}_deviation"].to_numpy())
        assert np.allclose(told[f"{policy}_entropy"].to_numpy(), entropy, atol=1e-5)
    same = pl.col("actor_deviation") == pl.col("proposal_deviation")
    assert told[:3].select(same.all()).item()  # the proposal starts as a copy, and learning starts at step 3
    unclipped = told.filter((pl.col("step") > 3) & pl.col("actor_deviation").is_between(0.0011, 999))
    assert unclipped.height > 100
    assert unclipped.select(same.mean()).item() < 0.05  # they may meet


def hidden_units(layers: Sequence[Linear], inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for layer in layers:
        inputs = np.maximum(linear(layer, inputs), 0)
    return inputs


def linear(layer: Linear, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """That of the first lane, in float64."""
    return inputs @ np.asarray(layer.weight[0], np.float64) + np.asarray(layer.bias[0], np.float64)


def test_diagnostics_are_those_of_the_networks_at_that_step(store: Store, healthy: str, again: Rerun) -> None:
    case = run_of(find_row(store, healthy)).config
    lanes = LaneBatch([case.learner], case.world, [1], case.steps)
    lanes.advance(124)
    observation, agent = np.asarray(lanes.state.observation[0], np.float64), lanes.state.agent
    for policy, net in {"actor": agent.actor, "proposal": agent.proposal}.items():
        deviation = np.exp(linear(net.log_std, hidden_units(net.mlp.layers, observation)))
        assert again.diagnostics[f"{policy}_deviation"][123] == pytest.approx(deviation[0], rel=1e-5)
    mode = 2 * np.tanh(linear(agent.actor.mean, hidden_units(agent.actor.mlp.layers, observation)))
    hidden = hidden_units([agent.critic.first, *agent.critic.mlp.layers], np.concatenate([observation, mode]))
    value = linear(agent.critic.last, hidden)
    assert again.diagnostics["q"][123] == pytest.approx(value[0], rel=1e-5)


def test_a_diverged_run_comes_out_diverged_again(store: Store) -> None:
    row = store.read().rows.filter(pl.col("status") == "diverged").row(0, named=True)
    result = rerun(row, lambda step: None)
    assert (result.row["status"], result.row["diverged_at"]) == ("diverged", 4)
    assert result.differences == []


def published(store: Store, folder: Path, healthy: str, **changes: object) -> Path:
    """A store with one row that differs from the true one."""
    altered = Store.create(folder)
    row = {**find_row(store, healthy), **changes}
    publish_rows(altered.chunks, pl.DataFrame([row], store.read().rows.schema))
    return folder


def test_the_command_says_that_they_are_equal(store: Store, healthy: str, tmp_path: Path, capsys: Capture) -> None:
    folder = shutil.copytree(store.folder, tmp_path / "store")
    assert main(["rerun", healthy[:8], "--store", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "greedy-ac on Pendulum-CA[time_limit=50], seed 1, 400 steps; in the store: done" in printed
    assert printed.endswith("equal to the store, bit for bit\n")
    kept = pl.read_parquet(folder / "reruns" / f"{healthy}.parquet")
    assert kept.height == 400


def test_the_command_says_what_differs(store: Store, healthy: str, tmp_path: Path, capsys: Capture) -> None:
    average = find_row(store, healthy)["average_return"]
    folder = published(store, tmp_path / "store", healthy, average_return=np.nextafter(average, 0.0))
    assert main(["rerun", healthy, "--store", str(folder)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "greedyac: error: not as in the store: average_return"


@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        ({"cpu": "x86_64 Other"}, "processor x86_64 Other then, "),
        ({"versions": json.dumps({**versions(), "jax": "0.1"})}, "jax 0.1 then, "),
        ({"versions": None, "status": "failed", "error": "it died"}, "the store has no numbers of it"),
        ({"run_id": "0123456789abcdef0123"}, "the numerics of greedy-ac or Pendulum-CA have changed since"),
    ],
)
def test_not_comparable(
    store: Store, healthy: str, changes: dict[str, str], obstacle: str, tmp_path: Path, capsys: Capture
) -> None:
    folder = published(store, tmp_path / "store", healthy, average_return=0.0, **changes)
    assert main(["rerun", changes.get("run_id", healthy), "--store", str(folder)]) == 0
    assert f"not comparable with the store: {obstacle}" in capsys.readouterr().out


def test_a_run_by_its_beginning(store: Store) -> None:
    run_ids = store.read().rows["run_id"].to_list()
    first = [run_id[0] for run_id in run_ids]
    for letter in set(first):
        if first.count(letter) == 1:
            assert find_row(store, letter.upper())["run_id"] == run_ids[first.index(letter)]
        else:
            with pytest.raises(
                InputError, match=f"^run '{letter}' can't be found .*: {first.count(letter)} runs begin so"
            ):
                find_row(store, letter)


@pytest.mark.parametrize("run_id", ["", "zzzzzzzz", "no such run"])
def test_a_run_that_is_not_there(store: Store, run_id: str) -> None:
    known = "it is none of the 6 runs there; allowed: a run_id, such as [0-9a-f]{20}, or its beginning"
    with pytest.raises(InputError, match=f"^run '{run_id}' can't be found in .*: {known}$"):
        find_row(store, run_id)


def test_software_is_called_as_in_kept_rows() -> None:
    """Several distributions share the package `mujoco`; which one is found first must not make runs not comparable."""
    pytest.importorskip("mujoco")
    kept = Store.existing(ROOT / "results/swimmer").read(["run_id", "versions"]).rows
    names = {name for versions in kept["versions"] for name in json.loads(versions)}
    assert software(make_world("Swimmer-v5").packages).keys() == names
