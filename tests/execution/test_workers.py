"""Worker processes: where they run, and how training ends when somebody, or something, stops it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from helpers.processes import NEEDS_PROC, PATIENCE, PROGRAM, alive, living, parent, stat, wait_for

from greedyac.core.machine import cores
from greedyac.execution.process import WorkerProcess
from greedyac.training.checkpoint import load_policy

pytestmark = NEEDS_PROC

ENDLESS = "2_000_000_000"


class Training(NamedTuple):
    """`greedyac train` in a process of its own, with folders of its own."""

    process: "subprocess.Popen[str]"
    out: Path
    temporary: Path

    def workers(self) -> list[int]:
        """The living children."""
        return [pid for pid in living() if parent(pid) == self.process.pid]

    def end(self) -> tuple[int, list[str]]:
        """Waits for the end; gives the exit code and what was complained about, without lines of progress."""
        _, complaints = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, [line for line in complaints.splitlines() if not line.startswith("random on ")]


Start = Callable[..., Training]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts trainings of the random agent; whatever of them is left at the end is killed."""
    begun: list[int] = []
    processes: list[subprocess.Popen[str]] = []

    def start(workers: int, seeds: str, steps: str = ENDLESS) -> Training:
        out, temporary = tmp_path / "made" / "out", tmp_path / "temporary"
        temporary.mkdir()
        options = ["--steps", steps, "--seeds", seeds, "--workers", str(workers), "--out", str(out)]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "train", "random", "Pendulum-CA", *options],
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        training = Training(process, out, temporary)
        wait_for(lambda: len(training.workers()) == workers, "the workers to start")
        begun.extend(training.workers())
        return training

    yield start
    for process in processes:
        process.kill()
        process.communicate()
    for pid in filter(alive, begun):
        os.kill(pid, signal.SIGKILL)


def assert_nothing_is_left(training: Training) -> None:
    """Neither the output folder, nor a staging folder, nor a folder of results under way."""
    assert not training.out.exists()
    assert list(training.temporary.glob("greedyac-*")) == []


def affinity(pid: int) -> set[int]:
    """The cores on which any thread of a process may run."""
    allowed = set[int]()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has just ended
            allowed |= os.sched_getaffinity(int(thread.name))
    return allowed


def test_workers_are_pinned_and_end_when_their_parent_is_killed(start: Start) -> None:
    training = start(workers=2, seeds="0-3")
    workers = training.workers()
    allowed = cores()
    wanted = sorted([{allowed[0]}, {allowed[1 % len(allowed)]}], key=min)
    wait_for(lambda: sorted(map(affinity, workers), key=min) == wanted, "the workers to be pinned")

    training.process.kill()
    wait_for(lambda: not any(map(alive, workers)), "the workers to end")


def test_a_wrong_word_leaves_no_process_though_one_was_started_ahead(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, "train", "random", "Pendulum-XX", "--out", str(tmp_path / "out")]
    done = subprocess.run(words, env={**os.environ, "MARK": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [pid for pid in living() if f"MARK={tmp_path}" in environment(pid)] == []


def environment(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    return []


def test_workers_in_the_middle_of_training_end_when_their_parent_is_killed(start: Start) -> None:
    training = start(workers=1, seeds="0")
    [worker] = training.workers()
    wait_for(lambda: processor_seconds(worker) > 3, "training to be under way")
    training.process.kill()
    wait_for(lambda: not alive(worker), "the worker to end")


def processor_seconds(pid: int) -> float:
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def test_ctrl_c_before_any_run_has_finished(start: Start) -> None:
    training = start(workers=2, seeds="0-3")
    workers = training.workers()
    training.process.send_signal(signal.SIGINT)
    code, complaints = training.end()
    assert complaints == ["greedyac: stopped; 0 of 4 runs had finished, nothing was written"]
    assert code == 130
    wait_for(lambda: not any(map(alive, workers)), "the workers to end")
    assert_nothing_is_left(training)


def test_ctrl_c_keeps_the_runs_that_had_finished(start: Start) -> None:
    # One worker trains nine runs as five and then four; the first five are published together.
    training = start(workers=1, seeds="0-8", steps="600_000")
    [worker] = training.workers()
    wait_for(lambda: list(training.temporary.glob("greedyac-*/*.parquet")), "the first runs to finish")
    training.process.send_signal(signal.SIGINT)
    code, complaints = training.end()
    assert complaints == ["greedyac: stopped; 5 of 9 runs had finished, they are kept"]
    assert code == 130
    assert not alive(worker)

    checkpoints = [f"seed-{seed}.safetensors" for seed in range(5)]
    assert sorted(path.name for path in training.out.iterdir()) == [
        "curves.parquet",
        "curves.png",
        *checkpoints,
        "summary.json",
    ]
    summary = json.loads((training.out / "summary.json").read_text())
    assert summary["seeds"] == [0, 1, 2, 3, 4]
    rows = pl.read_parquet(training.out / "curves.parquet")
    assert rows["seed"].to_list() == [0, 1, 2, 3, 4]
    assert rows["episodes"].to_list() == 5 * [600]
    assert [load_policy(training.out / name).run.seed for name in checkpoints] == [0, 1, 2, 3, 4]
    assert list(training.temporary.glob("greedyac-*")) == []


def test_a_killed_worker_is_told_in_one_line(start: Start) -> None:
    training = start(workers=2, seeds="0-3")
    workers = training.workers()
    os.kill(workers[0], signal.SIGKILL)
    code, complaints = training.end()
    [complaint] = complaints
    assert (
        complaint == "greedyac: error: a worker process died (signal 9); 0 of 4 runs had finished, nothing was written"
    )
    assert code == 1
    assert not any(map(alive, workers))
    assert_nothing_is_left(training)


@pytest.mark.parametrize("cached", [True, False])
def test_a_worker_that_is_not_cached_has_no_cache(cached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the ones that measure how long compiling takes, whichever cache it is."""
    monkeypatch.delenv("JAX_ENABLE_COMPILATION_CACHE", raising=False)
    process = WorkerProcess(-1, lambda event: None, cached)
    try:
        variables = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
        assert ("JAX_ENABLE_COMPILATION_CACHE=false" not in variables) is cached
    finally:
        process.end()
