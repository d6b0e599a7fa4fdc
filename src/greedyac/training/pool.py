"""Worker processes, one per core and pinned: hands out chunks as JSON, passes on their events."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from greedyac.errors import WorkerError
from greedyac.training.chunk import Chunk


def cores() -> list[int]:
    """The cores that this process may use; on systems without affinity as many −1 as there are cores."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return [-1] * (os.cpu_count() or 1)


def train_chunks(chunks: Sequence[Chunk], workers: int) -> Generator[dict[str, Any], None, None]:
    """Train all chunks on that many workers; yields events `steps` and `done` as they come.

    Closing the iterator, or an exception in the consumer, ends the workers at once. Published chunks stay.
    """
    waiting, left = deque(chunks), len(chunks)
    events: _Events = queue.SimpleQueue()
    pool: list[_Worker] = []
    try:
        for core in _places(min(workers, left)):
            pool.append(_Worker(core, events))
            pool[-1].send(waiting.popleft())
        while left:
            try:
                worker, event = events.get(timeout=0.2)  # come back often: a wait without end can shut out Ctrl-C
            except queue.Empty:
                continue
            if event is None:
                raise WorkerError(f"a worker process died ({worker.ending()})")
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


def _places(workers: int) -> list[int]:
    """A core for each worker. Fewer workers than cores are not pinned: others may be at work on the first ones."""
    available = cores()
    return [available[index % len(available)] if workers >= len(available) else -1 for index in range(workers)]


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
        try:
            for line in self._process.stdout:
                events.put((self, json.loads(line)))
        except json.JSONDecodeError:
            pass  # it was killed in the middle of a line
        finally:
            events.put((self, None))

    def ending(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._process:  # closes the pipes and waits
            self._process.kill()
            self._listener.join()


_Events = queue.SimpleQueue[tuple[_Worker, dict[str, Any] | None]]
