"""Worker processes, one per core and pinned: hands out chunks as JSON, passes on their events."""

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greedyac.errors import WorkerError
from greedyac.training.runs import Run


@dataclass(frozen=True)
class Chunk:
    """Runs of one program, trained `width` lanes wide and published in `folder` under `name`."""

    name: str
    runs: Sequence[Run]
    width: int
    folder: Path

    def to_json(self) -> str:
        """One line that a worker understands."""
        return json.dumps(
            {
                "name": self.name,
                "runs": [run.to_json() for run in self.runs],
                "width": self.width,
                "folder": str(self.folder.absolute()),
            }
        )


def cores() -> list[int]:
    """The cores that this process may use; on systems without affinity as many −1 as there are cores."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [-1] * (os.cpu_count() or 1)


def train_chunks(chunks: Sequence[Chunk], workers: int) -> Iterator[dict[str, Any]]:
    """Train all chunks on that many workers; yields events `steps` and `done` as they come.

    Closing the iterator, or an exception in the consumer, ends the workers at once. Published chunks stay.
    """
    waiting, left = deque(chunks), len(chunks)
    events: _Events = queue.SimpleQueue()
    pool: list[_Worker] = []
    try:
        for core in itertools.islice(itertools.cycle(cores()), min(workers, left)):
            pool.append(_Worker(core, events))
            pool[-1].send(waiting.popleft())
        while left:
            worker, event = events.get()
            if event is None:
                raise WorkerError(f"a worker process died ({worker.ending()}) and took its runs with it")
            if event["event"] == "failed":
                raise WorkerError(f"a worker could not train its runs: {event['error']}")
            if event["event"] == "done":
                left -= 1
                if waiting:
                    worker.send(waiting.popleft())
            yield event
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """One worker process, seen from its parent. Its events go to a queue; None says that it ended."""

    def __init__(self, core: int, events: "_Events"):
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "greedyac.training.worker", str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PJRT_NPROC": "1"},
            start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
        )
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()

    def send(self, chunk: Chunk) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the listener tells
            self._process.stdin.write(chunk.to_json() + "\n")
            self._process.stdin.flush()

    def _listen(self, events: "_Events") -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            events.put((self, json.loads(line)))
        events.put((self, None))

    def ending(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def end(self) -> None:
        self._process.kill()
        self._listener.join()
        with contextlib.suppress(BrokenPipeError):
            self._process.__exit__(None, None, None)  # closes the pipes and waits


_Events = queue.SimpleQueue[tuple[_Worker, dict[str, Any] | None]]
