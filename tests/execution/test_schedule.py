"""The simulated schedule: what can be told by hand of a few chunks."""

import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from helpers.paths import ROOT

from greedyac.execution.chunk import Chunk
from greedyac.execution.cost import nominal_seconds
from greedyac.training.config import Run, RunConfig

FREE = {"compilation": {"random": 0.0}, "start": 0.0, "dispatch": 0.0}
"""Nothing but steps takes time."""


@pytest.fixture(scope="module")
def schedule() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks/schedule.py"))


def chunk_of(runs: int, env: str = "Pendulum-CA", width: int = 2) -> Chunk:
    """Runs of a million steps, too long to be sent together with others."""
    case = RunConfig("random", env, 1_000_000, {})
    return Chunk([Run(case, seed) for seed in range(runs)], width, Path())


def simulated(schedule: Mapping[str, Any], chunks: list[Chunk], workers: int, **costs: Any) -> Any:
    """How it goes if a run takes two seconds."""
    step = {("random", env): 2e-6 for env in ("Pendulum-CA", "MountainCar-DA")}
    return schedule["simulate"](chunks, workers, schedule["Costs"](step, **{**FREE, **costs}))


def test_two_workers_share_four_equal_chunks(schedule: dict[str, Any]) -> None:
    told = simulated(schedule, [chunk_of(4) for _ in range(4)], 2)
    assert told.seconds == pytest.approx(16)
    assert told.work == pytest.approx(32)
    assert told.efficiency == pytest.approx(1)


def test_three_chunks_on_two_workers_leave_one_idle(schedule: dict[str, Any]) -> None:
    told = simulated(schedule, [chunk_of(4) for _ in range(3)], 2)
    assert told.seconds == pytest.approx(16)
    assert told.efficiency == pytest.approx(0.75)
    assert told.losses == pytest.approx({"idle at the end": 0.25, "compilation": 0, "orders": 0, "empty lanes": 0})
    assert schedule["bounds"](told) == "work; idle at the end 25 %"


def test_one_worker_takes_the_sum(schedule: dict[str, Any]) -> None:
    told = simulated(schedule, [chunk_of(8), chunk_of(4, "MountainCar-DA"), chunk_of(2)], 1)
    assert told.seconds == pytest.approx(28)
    assert schedule["bounds"](told) == "work"


def test_more_workers_than_chunks_take_as_long_as_the_longest(schedule: dict[str, Any]) -> None:
    told = simulated(schedule, [chunk_of(4), chunk_of(8), chunk_of(2)], 10)
    assert told.seconds == told.longest == pytest.approx(16)


def test_empty_lanes_take_time(schedule: dict[str, Any]) -> None:
    told = simulated(schedule, [chunk_of(5, width=4)], 1)
    assert (told.work, told.padding, told.seconds, told.longest) == pytest.approx((10, 6, 16, 16))


def test_a_worker_compiles_each_program_once(schedule: dict[str, Any]) -> None:
    chunks = [chunk_of(2, env) for env in ("Pendulum-CA", "MountainCar-DA") for _ in range(2)]
    compiling = {"compilation": {"random": 10.0}, "start": 1.0}
    one = simulated(schedule, chunks, 1, **compiling)
    assert one.compilation == pytest.approx(1 + 10 + 10)
    assert one.seconds == pytest.approx(1 + 2 * (10 + 4 + 4))
    two = simulated(schedule, chunks, 2, **compiling)  # of which each keeps to its program
    assert two.compilation == pytest.approx(2 * (1 + 10))
    assert two.seconds == pytest.approx(1 + 10 + 4 + 4)
    same = simulated(schedule, chunks[:2], 2, **compiling)  # which both have to compile
    assert same.compilation == pytest.approx(2 * (1 + 10))
    assert same.seconds == pytest.approx(1 + 10 + 4)


def test_orders_are_given_one_after_another(schedule: dict[str, Any]) -> None:
    told = simulated(schedule, [chunk_of(2) for _ in range(3)], 3, dispatch=0.5)
    assert told.waiting == pytest.approx(0.5 + 1 + 1.5)
    assert told.seconds == pytest.approx(1.5 + 4)


def test_a_pair_that_is_not_kept_is_as_slow_as_others(schedule: dict[str, Any]) -> None:
    known, other = RunConfig("sac", "Pendulum-CA", 10, {}), RunConfig("greedy-ac", "Pendulum-CA", 20, {})
    found = schedule["step_seconds"]([known, other], {("sac", "Pendulum-CA"): [1.0, 9.0, 2.0]})
    assert found["sac", "Pendulum-CA"] == 2.0
    ratio = (nominal_seconds(other) / 20) / (nominal_seconds(known) / 10)
    assert found["greedy-ac", "Pendulum-CA"] == pytest.approx(2.0 * ratio)


def test_times_in_words(schedule: dict[str, Any]) -> None:
    told = [schedule["in_words"](seconds) for seconds in (45, 90, 5400, 2 * 86_400)]
    assert told == ["45.0 s", "1.5 min", "1.5 h", "2.0 days"]


def test_the_whole_study(
    schedule: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = schedule["kept_steps"](ROOT / "results")
    assert 200e-6 < median(kept["greedy-ac", "Pendulum-CA"]) < 400e-6
    monkeypatch.setattr(sys, "argv", ["schedule.py", "--workers", "3", "20", "--out", str(tmp_path / "figure.png")])
    schedule["main"]()
    steps, _, _, _, _, three, twenty = capsys.readouterr().out.splitlines()
    assert steps == "steps: from 4,683 kept runs, of 18 of 18 pairs"
    assert "4,683 runs" in schedule["__doc__"]
    hours = [float(line.split("|")[3]) for line in (three, twenty)]
    assert 0.95 * 20 / 3 < hours[0] / hours[1] < 20 / 3
    assert (tmp_path / "figure.png").stat().st_size > 10_000
