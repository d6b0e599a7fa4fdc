"""What tests of studies share: a study of random walks, sweeps in processes of their own, and what they leave."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from greedyac.cli import main
from greedyac.execution.chunk import Chunk
from greedyac.study.store import CIRCUMSTANCES, Store
from greedyac.training.config import Run, RunConfig
from helpers.processes import PATIENCE, PROGRAM

STUDY = """
name = "walks"
steps = {steps}
seeds = "{seeds}"
[[cells]]
agents = ["random"]
envs = ["Pendulum-CA", "MountainCar-DA"]
"""
RUNS = 80
"""40 seeds on two environments: ten chunks of eight runs with `--chunk-minutes 0.01`."""


def write_study(path: Path, seeds: str = "0-39", steps: int = 12_000) -> Path:
    path.write_text(STUDY.format(seeds=seeds, steps=steps))
    return path


class Sweeps:
    """Starts `greedyac sweep` in processes of their own; whatever of them is left at the end is killed."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, study: Path, store: Path, *options: str, faults: Path | None = None, within: Sequence[str] = ()
    ) -> "subprocess.Popen[str]":
        words = ["sweep", str(study), "--store", str(store), "--chunk-minutes", "0.01", *options]
        if "--engine" not in options:
            words += ["--workers", "2"]
        environment = dict(os.environ) if faults is None else {**os.environ, "PYTHONPATH": str(faults)}
        process = subprocess.Popen(
            [*within, sys.executable, "-c", PROGRAM, *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def run(
        self, study: Path, store: Path, *options: str, faults: Path | None = None, within: Sequence[str] = ()
    ) -> tuple[int, str, list[str]]:
        """Exit code, what was printed, and the complaints, without lines of progress."""
        process = self.start(study, store, *options, faults=faults, within=within)
        printed, told = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in told, told
        return process.returncode, printed, [line for line in told.splitlines() if not line.startswith("walks  ")]


def numbers(folder: Path) -> pl.DataFrame:
    """What a store holds, without when and where it was made. One row per run, or it fails."""
    assert Store.existing(folder).verify() == []
    return visible_numbers(folder)


def visible_numbers(folder: Path) -> pl.DataFrame:
    """The same of a store in which a killed process may have left a half-written file."""
    rows = Store.existing(folder).read().rows
    assert rows["run_id"].is_unique().all()
    return rows.drop(CIRCUMSTANCES).sort("run_id")


def chunks(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "chunks").glob("*.parquet")}


def counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    capsys.readouterr()
    assert main(["status", "--store", str(folder), "--json"]) == 0
    [study] = json.loads(capsys.readouterr().out)["studies"]
    assert study["name"] == "walks"
    return study["runs"]


def chunks_of(count: int, steps: int = 100, agents: Sequence[str] = ("random",)) -> list[Chunk]:
    """One run each, with its place as its seed; agents in turn."""
    cases = [RunConfig(agent, "Pendulum-CA", steps) for agent in agents]
    return [Chunk([Run(cases[seed % len(cases)], seed)], 2, Path()) for seed in range(count)]


def faults_file(folder: Path, code: str) -> Path:
    """A folder for PYTHONPATH whose code runs at the start of every Python process."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return folder


def setting(module: str, **values: object) -> str:
    """Code that changes constants of one of our modules."""
    changes = "".join(f"module.{name} = {value!r}\n" for name, value in values.items())
    return f"import greedyac.{module} as module\n{changes}"


def when_training(condition: str, deed: str) -> str:
    """Code that does a deed in a worker that is about to train a chunk for which the condition holds."""
    return f"""
import os, sys
if sys.argv[:1] == ["-m"]:  # a worker: its module is not yet known
    import greedyac.execution.chunk as module
    train = module.train_chunk
    def faulty(chunk, on_steps):
        if {condition}:
            {deed}
        return train(chunk, on_steps)
    module.train_chunk = faulty
"""
