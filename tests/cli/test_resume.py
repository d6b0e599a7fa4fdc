"""Resume: killed at any moment, a run ends like one that was not; damaged files are told, and nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest
from helpers import odd_envs
from helpers.paths import TESTS
from helpers.processes import PROGRAM, wait_for
from safetensors import safe_open
from safetensors.numpy import save_file

import greedyac
from greedyac.agents import make_agent
from greedyac.cli import main
from greedyac.cli.output import Asked
from greedyac.core.fields import values_of
from greedyac.envs import HostEnv, World, make_env
from greedyac.envs.gym.host import named_host_env
from greedyac.training.blocks import make_lanes
from greedyac.training.checkpoint import checksum, read_checkpoint, save_snapshot
from greedyac.training.config import Run, RunConfig
from greedyac.training.lanes import LaneBatch

STEPS = 120
TINY: dict[str, Any] = {"hidden": (4,), "batch_size": 8, "replay_capacity": 40}
WORLDS: dict[str, Callable[[], World]] = {
    "Pendulum-CA": lambda: make_env("Pendulum-CA", {"time_limit": 25}),
    "Acrobot-DA": lambda: make_env("Acrobot-DA", {"time_limit": 25}),
    "MinAtar-Breakout": lambda: make_env("MinAtar-Breakout", {"time_limit": 25}),
    "Diary": lambda: named_host_env(odd_envs.Diary),
    "Pictures": lambda: named_host_env(odd_envs.Pictures),
}


@cache
def world_of(env: str) -> World:
    return WORLDS[env]()


def run_of(agent: str, env: str, seed: int, **more: Any) -> Run:
    learner = make_agent(agent, {**({} if agent == "random" else TINY), **more})
    world = world_of(env)
    options = {} if isinstance(world, HostEnv) else {"time_limit": 25}
    case = RunConfig(agent, env, STEPS, values_of(learner), options)
    vars(case).update(learner=learner, world=world)
    return Run(case, seed)


def begin(runs: list[Run], *snapshots: Any) -> LaneBatch:
    case = runs[0].config
    return make_lanes([run.config.learner for run in runs], case.world, [run.seed for run in runs], STEPS, 0, snapshots)


def assert_same(one: Any, other: Any) -> None:
    mine, theirs = (jax.tree_util.tree_leaves_with_path(jax.device_get(tree)) for tree in (one, other))
    for (path, leaf), (_, same) in zip(mine, theirs, strict=True):
        assert np.asarray(leaf).tobytes() == np.asarray(same).tobytes(), path


@pytest.mark.parametrize(
    ("agent", "env", "more"),
    [
        ("greedy-ac", "Pendulum-CA", {}),
        pytest.param(
            "greedy-ac", "Diary", {"normalise_observations": True, "normalise_rewards": True}, marks=pytest.mark.slow
        ),
        ("sac", "Acrobot-DA", {}),
        pytest.param("sac", "Pendulum-CA", {"automatic_entropy": True}, marks=pytest.mark.slow),
        ("vanilla-ac", "Diary", {}),
        pytest.param("vanilla-ac", "Acrobot-DA", {"warm_up_steps": 30}, marks=pytest.mark.slow),
        ("random", "Pendulum-CA", {}),
        ("random", "Diary", {}),
        pytest.param("greedy-ac", "MinAtar-Breakout", {"normalise_observations": True}, marks=pytest.mark.slow),
        pytest.param("greedy-ac", "Pictures", {}, marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_as_if_nothing_had_happened(agent: str, env: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Saved before there is a batch, as learning begins, in the middle of an episode, and with a full replay."""
    runs = [run_of(agent, env, seed, **more) for seed in (1, 2)]
    whole = begin(runs)
    for stop in (3, 8, 37, 75, STEPS):
        for run, snapshot in zip(runs, whole.snapshots(), strict=True):
            save_snapshot(tmp_path / f"{run.seed}-{whole.time}", run, snapshot)
        whole.advance(stop - whole.time)
        whole.evaluate(2)
    for time in (0, 3, 8, 37, 75):
        held = [read_checkpoint(tmp_path / f"{run.seed}-{time}") for run in runs]
        assert [one.policy.run.run_id for one in held] == [run.run_id for run in runs]
        again = begin(runs, *(one.snapshot for one in held))
        assert again.time == time
        while again.time < STEPS:
            again.advance(next(stop for stop in (3, 8, 37, 75, STEPS) if stop > again.time) - again.time)
            again.evaluate(2)
        assert_same(again.state, whole.state)
        assert again.evaluations == whole.evaluations
        for mine, theirs in zip(again.outcomes(), whole.outcomes(), strict=True):
            assert mine.summary == theirs.summary
            assert not mine.restarted


@pytest.mark.slow
def test_one_of_several_goes_on_alone(tmp_path: Path) -> None:
    runs = [run_of("sac", "Pendulum-CA", seed) for seed in (1, 2, 3)]
    whole = begin(runs)
    whole.advance(50)
    save_snapshot(tmp_path / "two", runs[1], whole.snapshots()[1])
    whole.advance(STEPS)
    again = begin([runs[1]], read_checkpoint(tmp_path / "two").snapshot)
    again.advance(STEPS)
    assert_same(again.outcomes()[0].agent, whole.outcomes()[1].agent)


def test_an_environment_that_cannot_be_brought_back_begins_a_new_episode(tmp_path: Path) -> None:
    world = named_host_env(odd_envs.Forgetful)
    run = run_of("random", "Diary", 0)
    vars(run.config)["world"] = world
    lanes = begin([run])
    lanes.advance(10)  # an episode of 7, and 3 of the next
    save_snapshot(tmp_path / "run", run, lanes.snapshots()[0])
    again = begin([run], read_checkpoint(tmp_path / "run").snapshot)
    again.advance(STEPS)
    [outcome] = again.outcomes()
    assert outcome.restarted
    assert outcome.summary.episodes == 1 + 1 + (STEPS - 10) // 7  # one of them was never finished
    told = np.asarray(again.state.curve.steps[0]).sum()
    assert told == 7 + 7 * ((STEPS - 10) // 7)
    save_snapshot(tmp_path / "later", run, again.snapshots()[0])
    held = read_checkpoint(tmp_path / "later").snapshot
    assert held is not None
    assert held.restarted


def test_a_run_that_has_failed_stays_failed(tmp_path: Path) -> None:
    run = run_of("random", "Diary", next(seed for seed in range(9) if greedyac_odd(seed)))
    vars(run.config)["world"] = named_host_env(odd_envs.Breaks)
    lanes = begin([run])
    lanes.advance(60)
    save_snapshot(tmp_path / "run", run, lanes.snapshots()[0])
    again = begin([run], read_checkpoint(tmp_path / "run").snapshot)
    again.advance(STEPS)
    assert again.outcomes()[0].error == "BrokenError: at step 40"


def greedyac_odd(seed: int) -> bool:
    from greedyac.core.streams import Stream, host_seed

    return bool(host_seed(seed, Stream.START, 0) % 2)


def test_a_run_that_has_diverged_stays_so(tmp_path: Path) -> None:
    run = run_of("vanilla-ac", "Diary", 0)
    vars(run.config)["world"] = named_host_env(odd_envs.OutOfSight)
    lanes = begin([run])
    lanes.advance(60)
    save_snapshot(tmp_path / "run", run, lanes.snapshots()[0])
    again = begin([run], read_checkpoint(tmp_path / "run").snapshot)
    assert not again.live
    again.advance(STEPS)
    assert [one.outcomes()[0].diverged_at for one in (lanes, again)] == [39, 39]
    assert not again.outcomes()[0].restarted


def test_a_run_that_is_just_diverging_does_so(tmp_path: Path) -> None:
    """The first action is no number, and nobody has noticed yet."""
    run = run_of("vanilla-ac", "Diary", 0)
    vars(run.config)["world"] = named_host_env(odd_envs.Blind)
    lanes = begin([run])
    save_snapshot(tmp_path / "run", run, lanes.snapshots()[0])
    again = begin([run], read_checkpoint(tmp_path / "run").snapshot)
    for one in (lanes, again):
        one.advance(STEPS)
        assert one.outcomes()[0].diverged_at == 0


# --- damaged files


@pytest.fixture(scope="module")
def middle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run in the middle."""
    path = tmp_path_factory.mktemp("middle") / "run"
    run = run_of("random", "Diary", 1)
    lanes = begin([run])
    lanes.advance(10)
    save_snapshot(path, run, lanes.snapshots()[0])
    return path


def test_every_flipped_bit_is_noticed(middle: Path, tmp_path: Path) -> None:
    whole, damaged = middle.read_bytes(), tmp_path / "damaged"
    noise = np.random.default_rng(0)
    for place in {*range(0, len(whole), max(1, len(whole) // 300)), *range(len(whole) - 40, len(whole))}:
        content = bytearray(whole)
        content[place] ^= 1 << int(noise.integers(8))
        damaged.write_bytes(content)
        with pytest.raises(greedyac.InputError) as caught:
            read_checkpoint(damaged)
        assert "\n" not in str(caught.value)
    assert read_checkpoint(middle).snapshot is not None


def test_cut_short_anywhere(middle: Path, tmp_path: Path) -> None:
    whole, damaged = middle.read_bytes(), tmp_path / "damaged"
    for length in range(0, len(whole), 97):
        damaged.write_bytes(whole[:length])
        with pytest.raises(greedyac.InputError, match="it is cut short, damaged or no safetensors file"):
            read_checkpoint(damaged)


def test_a_snapshot_of_another_time_than_its_replay_is_refused(tmp_path: Path) -> None:
    run = run_of("vanilla-ac", "Pendulum-CA", 1)
    lanes = begin([run])
    lanes.advance(10)
    [snapshot] = lanes.snapshots()
    save_snapshot(tmp_path / "run", run, snapshot._replace(time=5, lane=snapshot.lane._replace(replay=None)))
    with pytest.raises(greedyac.InputError, match=r"the weight 'lane\.replay' is missing"):
        read_checkpoint(tmp_path / "run")


@pytest.mark.parametrize("time", [-3, 10**15, 2.5, "x"])
def test_a_forged_time_is_refused(time: Any, middle: Path, tmp_path: Path) -> None:
    with safe_open(middle, framework="numpy") as file:
        about = json.loads(file.metadata()["greedyac"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del about["sha256"]
    about["middle"]["time"] = time
    sealed = about | {"sha256": checksum(about, weights)}
    save_file(weights, tmp_path / "forged", {"greedyac": json.dumps(sealed)})
    with pytest.raises(greedyac.InputError, match="time = "):
        read_checkpoint(tmp_path / "forged")


def test_a_failed_write_leaves_the_last_checkpoint(middle: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = Path(shutil.copy(middle, tmp_path / "run"))
    held = read_checkpoint(path)
    assert held.snapshot is not None
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # as a full disk: the write stops half-way
    try:
        with pytest.raises(OSError, match="File too large"):
            save_snapshot(path, held.policy.run, held.snapshot)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == middle.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


# --- the commands, with real processes and real kills


HYPERS = ("--hidden", "4", "--batch-size", "8", "--replay-capacity", "100")
ASKED = ("Pendulum-CA", "--seeds", "0-2", "--steps", "20000", "--env-option", "time_limit=70", *HYPERS)


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *words]


def train_words(out: Path, *more: str) -> list[str]:
    return ["train", "vanilla-ac", *ASKED, "--eval-every", "8000", "--eval-episodes", "2", "--out", str(out), *more]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted") / "out"
    assert main(train_words(out)) == 0
    return out


def rows_of(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "curves.parquet").drop("seconds")


@pytest.mark.parametrize(
    ("saved", "workers"),
    [pytest.param(1000, 2, marks=pytest.mark.slow), (7000, 1), pytest.param(16_000, 2, marks=pytest.mark.slow)],
)
def test_killed_and_resumed(saved: int, workers: int, uninterrupted: Path, tmp_path: Path) -> None:
    """Killed as soon as a file of some run has come as far as `saved` steps."""
    out = tmp_path / "out"
    words = train_words(out, "--checkpoint-every", "1000", "--workers", str(workers))
    training = subprocess.Popen(command(*words), stderr=subprocess.DEVNULL, start_new_session=True)
    wait_for(lambda: max(times(out), default=0) >= saved, "a checkpoint")
    os.killpg(training.pid, signal.SIGKILL)
    training.wait()
    assert not (out / "summary.json").exists()
    assert main(["resume", str(out), "--workers", "1"]) == 0
    assert rows_of(out).equals(rows_of(uninterrupted), null_equal=True)
    for seed in range(3):
        name = f"seed-{seed}.safetensors"
        assert (out / name).read_bytes() == (uninterrupted / name).read_bytes()
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in uninterrupted.iterdir())
    told, wanted = (json.loads((folder / "summary.json").read_text()) for folder in (out, uninterrupted))
    assert {**told, "run_steps_per_second": 0} == {**wanted, "run_steps_per_second": 0}


def times(out: Path) -> list[int]:
    """How far the saved runs have come; a file that is just being replaced is whole all the same."""
    held = [read_checkpoint(path).snapshot for path in (out / "unfinished").glob("*.middle.safetensors")]
    return [snapshot.time for snapshot in held if snapshot]


def test_ctrl_c_says_how_to_go_on(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    training = subprocess.Popen(
        command(*train_words(out, "--checkpoint-every", "1000")), stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: times(out), "a checkpoint")
    training.send_signal(signal.SIGINT)
    _, said = training.communicate()
    assert training.returncode == 130
    assert f"`greedyac resume {out}` goes on" in said
    assert main(["resume", str(out)]) == 0
    assert rows_of(out).equals(rows_of(uninterrupted), null_equal=True)


def test_what_can_not_be_resumed(uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(folder: Path, complaint: str, *words: str) -> None:
        assert main(list(words) or ["resume", str(folder)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert complaint in line

    assert main(["resume", str(uninterrupted)]) == 0
    assert "is finished: there is nothing to do" in capsys.readouterr().out
    refused(tmp_path / "nowhere", "can't be resumed: it holds no training; allowed: the folder of a `greedyac train …")
    out = tmp_path / "out"
    (out / "unfinished").mkdir(parents=True)
    for text in ("", "[]", "{}", '{"runs": [{}], "overwrite": false, "checkpoint_every": 5}', '{"runs": 3}'):
        (out / "unfinished" / "train.json").write_text(text)
        refused(out, "train.json' can't be read (")
        assert (out / "unfinished" / "train.json").read_text() == text
    refused(out, "holds an unfinished result: `greedyac resume", *train_words(out))


def test_what_can_not_be_trained_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "sac", "Pendulum-CA", "--checkpoint-every", "5", "--steps", "10", "--out", str(tmp_path / "out")]
    assert main([*words, "--replay-capacity", "100000000000000"]) == 2
    assert "replay_capacity" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_of_rows_stops_a_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    asked = Asked([Run(RunConfig("random", "Pendulum-CA", 10), 0)], False, 5)
    (out / "unfinished").mkdir(parents=True)
    (out / "unfinished" / "train.json").write_text(asked.to_json())
    (out / "unfinished" / "x.parquet").write_bytes(b"PAR1 and so on PAR1")
    assert main(["resume", str(out)]) == 2
    assert "a file of rows in" in capsys.readouterr().err


def test_a_damaged_file_stops_a_resume_and_nothing_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    training = subprocess.Popen(command(*train_words(out, "--checkpoint-every", "1000")), stderr=subprocess.DEVNULL)
    wait_for(lambda: times(out), "a checkpoint")
    training.kill()
    training.wait()
    path = next((out / "unfinished").glob("*.middle.safetensors"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    before = {entry.name: entry.read_bytes() for entry in (out / "unfinished").iterdir()}
    assert main(["resume", str(out)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert path.name in line
    assert "checksum" in line
    assert {entry.name: entry.read_bytes() for entry in (out / "unfinished").iterdir()} == before
    path.write_bytes(whole)
    assert main(["resume", str(out)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "restarted"), [("helpers.odd_envs:odd/Diary-v0", []), ("helpers.odd_envs:odd/Forgetful-v0", [0, 1])]
)
def test_a_host_environment_is_resumed(
    env: str, restarted: list[int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Real processes, with an id whose module is found in the working folder."""
    folder = TESTS
    asked = ["random", env, "--seeds", "0-1", "--steps", "20000"]
    out, plain = tmp_path / env[-10:], tmp_path / f"{env[-10:]}-plain"
    subprocess.run(command("train", *asked, "--out", str(plain)), cwd=folder, check=True)
    words = command("train", *asked, "--out", str(out), "--checkpoint-every", "1500", "--workers", "1")
    training = subprocess.Popen(words, cwd=folder, start_new_session=True)
    wait_for(lambda: len([time for time in times(out) if time % 7]) == 2, "two checkpoints")
    os.killpg(training.pid, signal.SIGKILL)
    training.wait()
    subprocess.run(command("resume", str(out)), cwd=folder, check=True)
    assert json.loads((out / "summary.json").read_text())["restarted"] == restarted
    if not restarted:
        assert rows_of(out).equals(rows_of(plain), null_equal=True)
    else:
        assert "a new episode" in capfd.readouterr().out
