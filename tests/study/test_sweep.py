"""Studies as a user runs them, in real processes: killed, resumed, extended, sharded, damaged, and always the same."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from helpers.clusters import can
from helpers.paths import TESTS
from helpers.processes import NEEDS_PROC, PATIENCE, PROGRAM, alive, trainers_of, wait_for
from helpers.sweeping import (
    RUNS,
    STUDY,
    Sweeps,
    chunks,
    counts,
    faults_file,
    numbers,
    visible_numbers,
    when_training,
    write_study,
)

from greedyac.cli import main
from greedyac.execution.speed import Speed
from greedyac.study.spec import load_study, parse_study
from greedyac.study.store import Store
from greedyac.study.sweep import Estimate, Probe, make_plan

pytestmark = NEEDS_PROC
MORTAL = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
"""What takes from root the right to write anywhere."""


def test_what_an_uninterrupted_study_leaves(whole: pl.DataFrame, study: Path) -> None:
    assert whole.height == RUNS
    assert whole["run_id"].to_list() == sorted(parse_study(study.read_text()).runs())
    assert set(whole["status"]) == {"done"}
    assert whole["episodes"].to_list() == [12] * RUNS


def kill_at_random(sweeps: Sweeps, study: Path, folder: Path, chance: random.Random) -> bool:
    """Start the study, kill something at a random moment of its life; whether it came to its end nevertheless."""
    process = sweeps.start(study, folder)
    begun, moment = time.monotonic(), chance.uniform(0.0, 9.0)
    while process.poll() is None and time.monotonic() - begun < moment:
        time.sleep(0.01)
    if process.poll() is not None:
        assert process.communicate()[0].endswith(f"{RUNS} done, 0 diverged, 0 failed of {RUNS} runs in {folder}\n")
        return True
    workers = trainers_of(process.pid)
    victims = {"supervisor": [process.pid], "worker": workers[:1], "all": [process.pid, *workers]}
    for victim in victims[chance.choice(list(victims))]:
        os.kill(victim, signal.SIGKILL)
    if process.poll() is None and chance.random() < 0.5:
        process.kill()
    process.communicate(timeout=PATIENCE)  # a supervisor that lost a worker goes on to the end
    wait_for(lambda: not any(map(alive, workers)), "the workers to end")
    return process.returncode == 0


@pytest.mark.parametrize("kills", [1, pytest.param(16, marks=pytest.mark.slow)])
def test_killed_at_random_moments_and_resumed(
    kills: int, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    def check_resumed(folder: Path) -> None:
        code, _, complaints = sweeps.run(study, folder)
        assert code == 0
        assert all("left half-written; moved to" in complaint for complaint in complaints)
        assert numbers(folder).equals(whole)

    chance, folder = random.Random(kills), tmp_path / "store-0"
    for kill in range(kills):
        if kill_at_random(sweeps, study, folder, chance):
            assert visible_numbers(folder).equals(whole)
            check_resumed(folder)  # a killed worker may have been writing
            folder = tmp_path / f"store-{kill + 1}"  # it was finished: the next one starts anew
    check_resumed(folder)


def test_a_killed_worker_is_replaced_and_the_study_goes_on(
    sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    process = sweeps.start(study, tmp_path / "store")
    wait_for(lambda: chunks(tmp_path / "store"), "the first chunk")
    worker = trainers_of(process.pid)[0]
    half = tmp_path / "store/chunks" / f".x.parquet~{worker}@{socket.gethostname()}~0123abcd.tmp"
    half.write_bytes(b"as if it were killed while it writes")
    os.kill(worker, signal.SIGKILL)
    printed, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert printed.endswith(f"80 done, 0 diverged, 0 failed of 80 runs in {tmp_path / 'store'}\n")
    assert "a worker process died (signal 9); tried again" in told
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, id="as batch systems do", marks=pytest.mark.slow),
    ],
)
def test_a_sweep_that_is_stopped_is_gone_on_with(
    stop: signal.Signals, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    process = sweeps.start(study, tmp_path / "store")
    wait_for(lambda: chunks(tmp_path / "store"), "the first chunk")
    workers = trainers_of(process.pid)
    process.send_signal(stop)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    [complaint] = [line for line in told.splitlines() if not line.startswith("walks  ")]
    assert complaint == "greedyac: stopped; published runs are kept, the same command goes on"
    assert not any(map(alive, workers))
    kept = chunks(tmp_path / "store")
    assert 0 < len(kept) < 10
    code, printed, complaints = sweeps.run(study, tmp_path / "store")
    assert (code, complaints) == (0, [])
    assert f"{8 * len(kept)} in the store, {80 - 8 * len(kept)} to run" in printed
    assert chunks(tmp_path / "store").items() > kept.items()
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
def test_two_supervisors_at_once(sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path) -> None:
    both = [sweeps.start(study, tmp_path / "store") for _ in range(2)]
    for process in both:
        process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == 0
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
def test_shards_together_are_the_whole(sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path) -> None:
    parts = []
    for part in (1, 2, 3):
        code, printed, _ = sweeps.run(study, tmp_path / str(part), "--shard", f"{part}/3")
        assert code == 0
        assert printed.startswith(f"study walks, shard {part}/3: ")
        parts.append(numbers(tmp_path / str(part)))
    assert all(part.height > 10 for part in parts)
    assert pl.concat(parts).sort("run_id").equals(whole)


def test_only_what_is_new_is_run(
    filled: Path, study: Path, whole: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = shutil.copytree(filled, tmp_path / "store"), chunks(filled)
    longer = write_study(tmp_path / "walks.toml", seeds="0-43")
    assert main(["sweep", str(longer), "--store", str(folder)]) == 0
    assert "study walks: 88 runs, 80 in the store, 8 to run" in capsys.readouterr().out
    assert chunks(folder).items() > before.items()
    assert numbers(folder).join(whole.select("run_id"), on="run_id").equals(whole)
    assert numbers(folder)["seed"].sort().unique().to_list() == list(range(44))
    assert counts(folder, capsys) == {"planned": 88, "done": 88, "diverged": 0, "failed": 0, "missing": 0}
    after = chunks(folder)
    (other := tmp_path / "other.toml").write_text(study.read_text().replace('"walks"', '"other"'))
    assert main(["sweep", str(other), "--store", str(folder)]) == 0
    assert "study other: 80 runs, 80 in the store, 0 to run" in capsys.readouterr().out
    assert chunks(folder) == after


def test_damaged_files_are_set_aside_and_their_runs_run_again(
    filled: Path, whole: pl.DataFrame, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(filled, tmp_path / "store")
    cut_short, flipped, foreign, missing, *_ = sorted((folder / "chunks").iterdir())
    cut_short.write_bytes(cut_short.read_bytes()[:-100])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 3] ^= 4
    flipped.write_bytes(content)
    foreign.write_text("not ours")
    missing.unlink()
    damaged = {path.name: path.read_bytes() for path in (cut_short, flipped, foreign)}
    assert main(["store", "verify", str(folder)]) == 1
    assert capsys.readouterr().err.count("greedyac: chunks/") == 3
    assert counts(folder, capsys)["missing"] == 32
    assert main(["sweep", str(study), "--store", str(folder)]) == 0
    printed, complaints = capsys.readouterr()
    assert "48 in the store, 32 to run" in printed
    for name, old in damaged.items():
        assert f"greedyac: chunks/{name} " in complaints
        assert (folder / "aside" / name).read_bytes() == old
    assert numbers(folder).equals(whole)


@pytest.mark.parametrize(
    ("deed", "error"),
    [
        ("os.kill(os.getpid(), 9)", "a worker process died (signal 9)"),
        pytest.param(
            "raise RuntimeError('no luck')",
            "a worker could not train its runs: RuntimeError: no luck",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_chunk_that_always_fails_is_recorded_and_the_rest_goes_on(
    deed: str,
    error: str,
    sweeps: Sweeps,
    study: Path,
    whole: pl.DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "store"
    unlucky = "any(run.seed == 13 and run.config.env == 'Pendulum-CA' for run in chunk.runs)"
    faults = faults_file(tmp_path / "faults", when_training(unlucky, deed))
    code, printed, complaints = sweeps.run(study, folder, faults=faults)
    assert code == 1
    assert printed.endswith(f"72 done, 0 diverged, 8 failed of 80 runs in {folder}\n")
    *failures, last = complaints
    assert len(failures) == 3
    assert all(f"(8 runs of random on Pendulum-CA): {error}; tried again" in line for line in failures[:2])
    assert failures[2].endswith(f"{error}; recorded as failed after 3 attempts")
    assert last.startswith("greedyac: 8 runs failed: ")
    rows = Store.existing(folder).read().rows
    failed = rows.filter(pl.col("status") == "failed")
    assert 13 in failed["seed"]
    assert set(failed["error"]) == {error}
    assert counts(folder, capsys) == {"planned": 80, "done": 72, "diverged": 0, "failed": 8, "missing": 0}

    code, printed, _ = sweeps.run(study, folder)  # it could be trained now, but was not asked for
    assert code == 1
    assert "80 in the store, 0 to run" in printed
    code, printed, complaints = sweeps.run(study, folder, "--retry-failed")
    assert (code, complaints) == (0, [])
    assert numbers(folder).equals(whole)


def test_workers_that_die_at_their_start_are_no_fault_of_the_chunks(
    sweeps: Sweeps, study: Path, tmp_path: Path
) -> None:
    faults = faults_file(tmp_path / "faults", "import os, sys\nif sys.argv[:1] == ['-m']: os._exit(7)\n")
    code, _, complaints = sweeps.run(study, tmp_path / "store", faults=faults)
    assert code == 1
    assert complaints[-1].startswith("greedyac: error: a worker process died (exit code 7); published runs are kept")
    assert list((tmp_path / "store" / "failed").iterdir()) == []


def test_the_last_chunk_of_a_worker_that_can_not_be_replaced_goes_to_an_idle_one(
    sweeps: Sweeps, tmp_path: Path, whole: pl.DataFrame
) -> None:
    study, folder, marker = write_study(tmp_path / "walks.toml", seeds="0-15"), tmp_path / "store", tmp_path / "dead"
    published = f"len(list(pathlib.Path({str(folder / 'chunks')!r}).glob('*.parquet')))"
    unlucky = "not marker.exists() and any(run.seed == 0 and run.config.env == 'Pendulum-CA' for run in chunk.runs)"
    deed = f"marker.touch(); [time.sleep(0.05) for _ in iter(lambda: {published} < 3, False)]; os.kill(os.getpid(), 9)"
    start = f"import os, pathlib, sys, time\nmarker = pathlib.Path({str(marker)!r})\n"
    start += "if sys.argv[:1] == ['-m'] and marker.exists(): os._exit(7)\n"
    faults = faults_file(tmp_path / "faults", start + when_training(unlucky, deed))
    code, printed, complaints = sweeps.run(study, folder, faults=faults)
    assert code == 0, complaints
    assert printed.endswith(f"32 done, 0 diverged, 0 failed of 32 runs in {folder}\n")
    assert "died (signal 9); tried again" in complaints[0]
    assert numbers(folder).equals(whole.join(numbers(folder).select("run_id"), on="run_id"))


@pytest.mark.slow
def test_a_full_disk_stops_the_study_and_the_next_start_goes_on(
    sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"  # a real write fails for real
    code, _, complaints = sweeps.run(study, tmp_path / "store", faults=faults_file(tmp_path / "faults", limit))
    assert code == 1
    [complaint] = complaints
    assert "a worker could not write its results: [Errno 27] File too large" in complaint
    assert list((tmp_path / "store" / "chunks").iterdir()) == []
    assert list((tmp_path / "store" / "failed").iterdir()) == []
    assert sweeps.run(study, tmp_path / "store")[0] == 0
    assert numbers(tmp_path / "store").equals(whole)


def test_a_system_without_hard_links_or_affinity_is_told_once(
    sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    lacking = "import os\ndel os.link, os.sched_getaffinity, os.sched_setaffinity\n"
    lacking += "os.process_cpu_count = os.cpu_count\n"  # which Python 3.13 asks, and which would ask for affinity
    code, _, complaints = sweeps.run(study, tmp_path / "store", faults=faults_file(tmp_path / "faults", lacking))
    pinning = "this system does not pin processes to cores: workers run where it puts them"
    assert complaints == [pinning, "this file system has no hard links: files are renamed into place"]
    assert code == 0
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ["paper/per-evn"],
            "unknown study 'paper/per-evn' (did you mean 'paper/per-env'?); allowed: paper/",
        ),
        (["none.toml"], "study 'none.toml': it can't be read: No such file or directory"),
        (
            ["bad.toml"],
            "study 'bad.toml': unknown key 'stpes' (did you mean 'steps'?); allowed: name, steps,",
        ),
        (["good.toml", "--shard", "4/3"], "--shard '4/3' is not allowed; allowed: I/N with 1 ≤ I ≤ N"),
        (["good.toml", "--shard", "0/3"], "--shard '0/3' is not allowed; allowed: I/N with 1 ≤ I ≤ N"),
        (["good.toml", "--shard", "1"], "--shard '1' is not allowed; allowed: I/N with 1 ≤ I ≤ N"),
        (["good.toml", "--workers", "0"], "'0' is not allowed; allowed: whole number ≥ 1"),
        (["good.toml", "--chunk-minutes", "0"], "'0' is not allowed; allowed: > 0"),
        (["good.toml", "--json"], "--json is not allowed here; allowed: together with --dry-run"),
        (["good.toml", "--retry"], "unknown option '--retry' (did you mean '--retry-failed'?)"),
        (
            ["good.toml", "--store", "taken"],
            "'taken' holds other things and no store; allowed: a store,",
        ),
        (["good.toml", "--store", "taken/file"], "'taken/file' is no folder; allowed: a store, or a new folder"),
        (["good.toml", "--store", ""], "'' is not allowed; allowed: the path of a folder"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    options: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    (tmp_path / "bad.toml").write_text(STUDY.format(steps=10, seeds="0").replace("steps", "stpes"))
    write_study(tmp_path / "good.toml")
    before = sorted(tmp_path.rglob("*"))
    assert main(["sweep", *options, *([] if "--store" in options else ["--store", "new"])]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(bool(MORTAL) and not can(*MORTAL, "true"), reason="root may write anywhere")
def test_a_store_that_can_not_be_written_any_more_is_refused_before_anything_is_trained(
    filled: Path, sweeps: Sweeps, study: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(filled, tmp_path / "store")
    for part in folder.iterdir():
        part.chmod(0o500)
    code, printed, complaints = sweeps.run(study, folder, within=MORTAL)
    assert (code, complaints) == (0, [])  # there is nothing to add
    longer = write_study(tmp_path / "longer.toml", seeds="0-41")
    code, printed, complaints = sweeps.run(longer, folder, within=MORTAL)
    assert (code, printed) == (2, "")
    assert complaints == [f"greedyac: error: the store '{folder}' can't be written: Permission denied"]


@pytest.mark.slow
def test_a_dry_run_tells_what_would_be_done_and_writes_nothing(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer, before = write_study(tmp_path / "walks.toml", seeds="0-59"), chunks(filled)
    assert main(["sweep", str(longer), "--store", str(filled), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    [probe] = [probe for probe in told["probes"] if probe["env"] == "Pendulum-CA"]
    assert probe["run_steps_per_second"] > 1000
    assert told["runs"] == {"planned": 120, "new": 40, "held": 80}
    assert (told["programs"], told["study"], told["workers"] > 0) == (2, "walks", True)
    assert 0 < told["seconds"] < 60
    assert told["bytes"] > 400e6
    assert chunks(filled) == before


def test_a_dry_run_in_words(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_plan(load_study(str(study)), Store.planned(tmp_path / "new"), 3)
    probe = Probe(made.chunks[0].config, Speed(1234.5, 6.7))
    monkeypatch.setattr("greedyac.study.sweep.estimate", lambda plan, on_probe: Estimate(7000.0, [probe]))
    assert main(["sweep", str(study), "--store", str(tmp_path / "new"), "--dry-run", "--workers", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "study walks: 80 runs, 0 in the store, 80 to run",
        f"2 programs, {len(made.chunks)} chunks, 3 workers",
        "memory: 1.8 GB",
        "random on Pendulum-CA: 1,234 run-steps/s, compiled in 7 s",
        "time on this machine: about 1 h 57 min",
    ]
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_environments_on_the_host(tmp_path: Path) -> None:
    """One of them raises in some runs, which are recorded as failed, and tried again when that is asked for."""
    study, store = tmp_path / "host.toml", tmp_path / "store"
    study.write_text(
        'name = "host"\nsteps = 300\nseeds = "0-5"\neval_every = 100\neval_episodes = 2\n'
        '[[cells]]\nagents = ["random"]\nenvs = ["helpers.odd_envs:odd/Breaks-v0", "CartPole-v1", "Pendulum-CA"]\n'
        "env_options = {}\n"
    )

    def run(*words: str) -> str:
        command = [sys.executable, "-c", PROGRAM, *words, "--store", str(store)]
        return subprocess.run(command, cwd=TESTS, check=False, capture_output=True, text=True).stdout

    run("sweep", str(study))
    rows = Store.existing(store).read().rows
    assert rows.height == 18
    failed = rows.filter(pl.col("status") == "failed")
    assert 0 < failed.height < 6
    assert set(failed["env"]) == {"helpers.odd_envs:odd/Breaks-v0"}
    assert all(error.endswith("BrokenError: at step 40") for error in failed["error"])
    done = rows.filter(pl.col("status") == "done")
    assert set(done["eval_steps"]) == {100}
    assert set(done["eval_curve"].list.len()) == {3}
    assert json.loads(run("status", "--json"))["studies"][0]["runs"]["failed"] == failed.height
    run("sweep", str(study))
    again = Store.existing(store).read().rows
    assert again.drop("seconds").equals(rows.drop("seconds"), null_equal=True)
    run("sweep", str(study), "--retry-failed")
    assert Store.existing(store).read().rows.filter(pl.col("status") == "failed").height == failed.height
    [cart, *_] = done.filter(pl.col("env") == "CartPole-v1")["run_id"]
    assert "equal to the store, bit for bit" in run("rerun", cart)
