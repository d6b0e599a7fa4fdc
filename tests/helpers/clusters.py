"""Dask clusters of real processes on this machine, for the tests that use and kill them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from helpers.processes import end_tree, trainers_of, wait_for


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def can(*words: str) -> bool:
    """Whether a command is there and works."""
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Cluster:
    """A scheduler and workers, each a process; whatever of them is left at the end is killed."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", within: list[str] | None = None):
        folder.mkdir()
        self.folder, self.host, self.port, self._within = folder, host, free_port(), within or []
        self.address = f"tcp://{host}:{self.port}"
        self._started: list[subprocess.Popen[str]] = []
        self.workers: list[subprocess.Popen[str]] = []
        self.scheduler = self.start_scheduler()

    def start_scheduler(self) -> "subprocess.Popen[str]":
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        words = ["--host", self.host, "--port", str(self.port), "--no-dashboard", "--scheduler-file", str(file)]
        self.scheduler = self._start("scheduler", words, within=self._within)
        wait_for(file.exists, "the scheduler")
        return self.scheduler

    def add_workers(
        self,
        count: int = 1,
        *options: str,
        nanny: bool = False,
        faults: Path | None = None,
        within: list[str] | None = None,
    ) -> None:
        alone = () if nanny else ("--no-nanny",)
        for _ in range(count):
            words = [self.address, "--nthreads", "1", "--memory-limit", "0", "--no-dashboard", *alone, *options]
            self.workers.append(self._start("worker", words, faults, within))

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many have come to the scheduler."""
        log = self.folder / "scheduler-0.log"
        wait_for(lambda: log.read_text().count("Register worker") >= count, "the workers")

    def _start(
        self, kind: str, options: list[str], faults: Path | None = None, within: list[str] | None = None
    ) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PYTHONPATH": str(faults)} if faults else dict(os.environ)
        with (self.folder / f"{kind}-{len(self._started)}.log").open("w") as log:
            process = subprocess.Popen(
                [*(within or []), sys.executable, "-m", "dask", kind, *options],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def kill_workers(self, count: int | None = None) -> None:
        """Kill Dask workers and nothing else: what they started has to notice."""
        for worker in self.workers[:count]:
            worker.kill()
            worker.wait()
        del self.workers[:count]

    def trainers(self) -> list[int]:
        """The processes that train."""
        return [trainer for worker in self.workers for trainer in trainers_of(worker.pid)]

    def close(self) -> None:
        for process in self._started:
            end_tree(process)


def on(cluster: Cluster, *options: str) -> list[str]:
    return ["--engine", "dask", "--address", cluster.address, *options]
