"""The local engine: worker processes, one per core and pinned. Hands out chunks as JSON, passes on what they say."""

import contextlib
import errno
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Sequence
from typing import Any

from greedyac.errors import WorkerError
from greedyac.training.chunk import Chunk
from greedyac.training.loop import Program

Events = Generator[dict[str, Any], None, None]
"""What an engine tells, each event with its `chunk`:

- `ready`: its worker has started.
- `steps`: run-steps done since the last time; 0 when lanes start and their program is compiled.
- `done`: it is published; with the fields of its `Receipt`.
- `lost`: its worker died or gave up; so many `steps` are void, and it will be tried again.
- `failed`: likewise, but it will not; with the `error` and the number of `attempts`.
"""


_NO_USE_TO_TRY_AGAIN = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM}


PINS = hasattr(os, "sched_setaffinity")
"""Whether this system pins processes to cores."""


def cores() -> list[int]:
    """The cores that this process may use; on systems without affinity as many −1 as there are cores."""
    if PINS:
        return sorted(os.sched_getaffinity(0))
    return [-1] * (os.cpu_count() or 1)


def train_chunks(chunks: Sequence[Chunk], workers: int, attempts: int = 1) -> Events:
    """Train all chunks on that many workers, in this order except where another one saves a compilation.

    A worker that dies is replaced, and its chunk tried again, up to that many attempts. Closing the iterator, or an
    exception in the consumer, ends the workers at once; published chunks stay.
    """
    with contextlib.closing(_Pool(chunks, workers, attempts)) as pool:
        yield from pool.events()


class _Pool:
    """Workers, and the chunks that wait for them."""

    def __init__(self, chunks: Sequence[Chunk], workers: int, attempts: int):
        self._attempts, self._tries = attempts, Counter[Chunk]()
        self._stillborn = self._unwritten = 0  # in a row
        self._waiting: dict[Program, deque[tuple[int, Chunk]]] = defaultdict(deque)
        for rank, chunk in enumerate(chunks):
            self._waiting[chunk.case.program].append((rank, chunk))
        self._queue: _Queue = queue.SimpleQueue()
        self._places = _places(min(workers, len(chunks)))
        self._workers: list[_Worker] = []

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.end()

    def events(self) -> Events:
        for core in self._places:
            self._start(core)
        while any(worker.chunk for worker in self._workers):
            try:
                worker, event = self._queue.get(timeout=0.2)  # often: a wait without end can shut out Ctrl-C
            except queue.Empty:
                continue
            chunk, kind = worker.chunk, event["event"]
            if kind == "ready":
                worker.ready, self._stillborn = True, 0
                yield event | {"chunk": chunk}
            elif kind == "steps":
                worker.steps += event["steps"]
                yield event | {"chunk": chunk}
            elif kind == "done":
                self._unwritten = 0
                yield event | {"chunk": chunk}
                self._employ(worker)
            else:
                worker.chunk = None
                if kind == "died":
                    worker.end()
                    self._workers.remove(worker)
                if chunk is not None:
                    yield self._setback(worker, chunk, event)
                for idle in [worker for worker in self._workers if worker.chunk is None]:
                    self._employ(idle)
                if kind == "died" and any(self._waiting.values()) and not (self._stillborn and self._workers):
                    self._start(worker.core)

    def _setback(self, worker: "_Worker", chunk: Chunk, event: dict[str, Any]) -> dict[str, Any]:
        """What to tell of a chunk whose worker died or could not train or publish it: it waits again, or has failed.

        A worker that dies before it is ready, and a file that can't be written, are no fault of the chunk; but several
        of them in a row, and nobody else at work, or a disk that is full, end it all.
        """
        kind = event["event"]
        if kind == "died":
            error = f"a worker process died ({worker.ending()})"
            self._stillborn += not worker.ready
            if self._stillborn >= self._attempts > 1 and not self._workers:
                raise WorkerError(error)
        elif kind == "unwritable":
            error = f"a worker could not write its results: {event['error']}"
            self._unwritten += 1
            if self._unwritten >= self._attempts or event["errno"] in _NO_USE_TO_TRY_AGAIN:
                raise WorkerError(error)
        else:
            error = f"a worker could not train its runs: {event['error']}"
        told = {"event": "lost", "chunk": chunk, "steps": worker.steps, "error": error}
        if kind != "unwritable" and (worker.ready or self._attempts == 1):
            self._tries[chunk] += 1
            if self._tries[chunk] == self._attempts:
                return told | {"event": "failed", "attempts": self._attempts}
        self._waiting[chunk.case.program].appendleft((-1, chunk))
        return told

    def _start(self, core: int) -> None:
        self._workers.append(_Worker(core, self._queue))
        self._employ(self._workers[-1])

    def _employ(self, worker: "_Worker") -> None:
        """Give the worker its next chunk, if any: of a program that it has compiled, else of one that nobody has."""
        worker.chunk, worker.steps = None, 0
        compiled = {program for other in self._workers for program in other.programs}

        def preference(program: Program) -> tuple[int, int]:
            rank, _ = self._waiting[program][0]
            return 0 if program in worker.programs else 2 if program in compiled else 1, rank

        if programs := [program for program, chunks in self._waiting.items() if chunks]:
            program = min(programs, key=preference)
            worker.programs.add(program)
            worker.send(self._waiting[program].popleft()[1])


def _places(workers: int) -> list[int]:
    """A core for each worker. Fewer workers than cores are not pinned: others may be at work on the first ones."""
    available = cores()
    return [available[index % len(available)] if workers >= len(available) else -1 for index in range(workers)]


class _Worker:
    """One worker process, seen from its parent. Its events go to a queue; the last one is `died`."""

    def __init__(self, core: int, events: "_Queue"):
        self.core = core
        self.chunk: Chunk | None = None
        self.steps = 0
        self.ready = False
        self.programs: set[Program] = set()
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
        self.chunk = chunk
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the listener tells
            self._process.stdin.write(chunk.to_json() + "\n")
            self._process.stdin.flush()

    def _listen(self, events: "_Queue") -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                events.put((self, json.loads(line)))
        except json.JSONDecodeError:
            self.kill()  # it was, in the middle of a line, or it talks nonsense
        finally:
            events.put((self, {"event": "died"}))

    def ending(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._process:  # closes the pipes and waits
            self._process.kill()
            self._listener.join()


_Queue = queue.SimpleQueue[tuple[_Worker, dict[str, Any]]]
