"""The local engine: worker processes on this machine, one per core and pinned."""

from collections.abc import Sequence
from pathlib import Path

from greedyac.core.atomic import clear_left
from greedyac.core.machine import PINS, places
from greedyac.execution.chunk import Chunk
from greedyac.execution.pool import Events, Worker, WorkerGroup, dispatch
from greedyac.execution.process import WorkerProcess


def train_chunks(chunks: Sequence[Chunk], workers: int, attempts: int = 1, cached: bool = True) -> Events:
    """Train all chunks on that many workers; a worker that dies is replaced. `cached`: as of a `WorkerProcess`."""
    return dispatch(chunks, _Processes(min(workers, len(chunks)), cached), attempts)


class _Processes(WorkerGroup):
    def __init__(self, workers: int, cached: bool):
        super().__init__()
        self._workers = [_LocalWorker(core, self, cached) for core in places(workers)]
        for worker in self._workers:
            self.put(worker, {"event": "joined"})
        if not PINS:
            message = "this system does not pin processes to cores: workers run where it puts them"
            self.put(None, {"event": "told", "message": message})

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.end()


class _LocalWorker(Worker):
    def __init__(self, core: int, crew: WorkerGroup, cached: bool):
        super().__init__()
        self._core, self._crew, self._cached = core, crew, cached
        self._process: WorkerProcess | None = None
        self._folders: set[Path] = set()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._process is None or self.died:  # one of whose death nobody has heard yet is not replaced before
            self.end()
            self.died = False
            self._process = WorkerProcess(self._core, lambda event: self._crew.put(self, event), self._cached)
        for chunk in chunks:
            self._folders.add(chunk.folder)
            self._process.send(chunk.to_json())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Wait until it is gone, and remove what it left half-written."""
        if self._process is not None:
            self._process.end()
            for folder in self._folders:
                clear_left(folder, self._process.pid)
