"""Handing out chunks: whoever is free gets the next one, and what is lost is tried again. The same for every engine."""

import contextlib
import errno
import queue
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Hashable, Iterable, Sequence
from itertools import islice, takewhile
from typing import Any

from greedyac.core.errors import WorkerError
from greedyac.execution.chunk import Chunk
from greedyac.execution.cost import nominal_seconds
from greedyac.training.program import Program

Events = Generator[dict[str, Any], None, None]
"""What an engine tells, each event but `told` with its `chunk`:

- `ready`: its worker has started.
- `steps`: run-steps done since the last time; 0 when lanes start and their program is compiled.
- `done`: it is published; with the fields of its `Receipt`.
- `lost`: its worker died, left or gave up; so many `steps` are void, and it will be tried again. `again`: the same
  was said before, of the same worker.
- `failed`: likewise, but it will not; with the `error` and the number of `attempts`.
- `told`: a `message` for whoever looks on.
"""

MOST_TOGETHER = 50
"""Chunks that are sent together, however short they are."""
LOSSES = 10
"""How often a chunk's worker may leave or fall silent after it began it: then it may be the chunk's own fault."""
_NO_USE_TO_TRY_AGAIN = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM}


class Worker(ABC):
    """Where chunks are trained, one after another, by a process that is started anew if it dies."""

    name = "a worker"
    process = "a worker process"

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        """Those that it was given and has not finished; the first is under way."""
        self.steps = 0
        self.ready = False
        self.programs: set[int] = set()
        """Those that its process has compiled, by the pool's numbers."""
        self.failed_starts = self.unwritten = 0  # times in a row
        self.joined = self.died = self.dismissed = False
        """Whether the pool has heard of it; that its process died, and no other was started since; whether it gets no
        more."""

    @property
    def identity(self) -> Hashable:
        """By which one that left is known again."""
        return self

    @abstractmethod
    def send(self, chunks: Sequence[Chunk]) -> None:
        """Have chunks trained, in this order, up to the first failure."""


class WorkerGroup(ABC):
    """The workers of an engine: tells of those that come and go, and what they say."""

    same_machine = True
    """Whether a file that one of them can't write, none can."""
    batch_seconds = 0.0
    """Chunks that together take no longer than this, nominally, are sent together."""

    @property
    def spare(self) -> bool:
        """Whether others are there that are not used yet, and will be if those that are turn out to be of no use."""
        return False

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[tuple[Worker | None, dict[str, Any]]] = queue.SimpleQueue()

    def put(self, worker: Worker | None, event: dict[str, Any]) -> None:
        """Tell something of a worker, from any thread.

        `joined`: it is here, or here again. `left`, `silent`: it is not; `begun` tells whether it trained its chunks.
        `ready`, `steps`, `done`, `unwritable`, `failed`, `unfit`: as its process said; `died`: of that. Of no worker:
        `told`, which is passed on, and `error`, which ends it all.
        """
        self._events.put((worker, event))

    def next(self) -> tuple[Worker | None, dict[str, Any]]:
        """What was told next."""
        while True:
            try:
                return self._events.get(timeout=0.2)  # often: a wait without end can shut out Ctrl-C
            except queue.Empty:
                continue

    @abstractmethod
    def close(self) -> None:
        """End all work at once."""


def dispatch(chunks: Sequence[Chunk], crew: WorkerGroup, attempts: int) -> Events:
    """Have a crew train all chunks, in this order except where another one saves a compilation.

    A chunk whose worker's process dies is tried again, up to that many attempts. Closing the iterator, or an exception
    in the consumer, ends the work at once; published chunks stay.
    """
    with contextlib.closing(crew):
        yield from _Pool(chunks, crew, attempts).events()


class _Pool:
    """The workers at hand, and the chunks that wait for them."""

    def __init__(self, chunks: Sequence[Chunk], crew: WorkerGroup, attempts: int):
        self._crew, self._attempts = crew, attempts
        self._tries, self._losses = Counter[Chunk](), Counter[Chunk]()
        self._open = len(chunks)
        numbers: dict[Program, int] = {}
        self._program = {chunk: numbers.setdefault(chunk.config.program, len(numbers)) for chunk in chunks}
        self._waiting: dict[int, deque[tuple[int, Chunk]]] = defaultdict(deque)
        for rank, chunk in enumerate(chunks):
            self._waiting[self._program[chunk]].append((rank, chunk))
        self._workers: list[Worker] = []
        self._away: set[Hashable] = set()  # workers of use that left or fell silent, and may come back
        self._said: set[str] = set()

    def events(self) -> Events:
        while self._open:
            worker, event = self._crew.next()
            kind = event["event"]
            if worker is None:
                if kind == "error":
                    raise WorkerError(event["error"])
                yield event
                continue
            chunk = worker.chunks[0] if worker.chunks else None
            if kind == "joined":
                worker.joined = True
                self._workers.append(worker)
                self._away.discard(worker.identity)
                self._assign(worker)
            elif worker not in self._workers:
                continue  # it was dismissed
            elif kind == "ready":
                worker.ready, worker.failed_starts = True, 0
                yield event | {"chunk": chunk}
            elif kind == "steps":
                worker.steps += event["steps"]
                yield event | {"chunk": chunk}
            elif kind == "done":
                self._open -= 1
                worker.unwritten = worker.steps = 0
                worker.chunks.popleft()
                yield event | {"chunk": chunk}
                if not worker.chunks:
                    self._assign(worker)
            else:
                yield from self._handle_failure(worker, event)

    def _handle_failure(self, worker: Worker, event: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """What to tell of a worker that went, or could not train or publish its chunk: that waits again, or has failed.

        A process that dies before it is ready, and a file that can't be written, are no fault of the chunk. Several of
        them in a row, or a disk that is full, are the last of that worker; and if no other is there, or may come back,
        it all ends.
        """
        kind, error = event["event"], _in_words(worker, event)
        dismissed = self._is_last_of(worker, event)
        others = [other for other in self._workers if other is not worker]
        if dismissed and (
            not (others or self._away or self._crew.spare) or (self._crew.same_machine and kind == "unwritable")
        ):
            raise WorkerError(error)
        worker.dismissed, worker.died = dismissed, kind == "died"
        if gone := kind in ("left", "silent"):
            self._away.add(worker.identity)
        if worker.chunks:
            if gone and event["begun"]:
                self._losses.update(worker.chunks)
            first, *rest = worker.chunks
            worker.chunks.clear()
            self._waiting[self._program[first]].extendleft((-1, chunk) for chunk in reversed(rest))
            yield self._verdict(worker, first, kind, error)
        if kind == "died":
            worker.ready = False
            worker.programs.clear()
        if dismissed or gone:
            self._workers = others
        for idle in [*others, *([worker] if worker in self._workers else [])]:
            if not idle.chunks:
                self._assign(idle)

    def _is_last_of(self, worker: Worker, event: dict[str, Any]) -> bool:
        """Whether a worker should not be tried again."""
        kind = event["event"]
        if kind == "unwritable":
            worker.unwritten += 1
            times = sum(one.unwritten for one in self._workers) if self._crew.same_machine else worker.unwritten
            return times >= self._attempts or event["errno"] in _NO_USE_TO_TRY_AGAIN
        if kind == "died" and not worker.ready:
            worker.failed_starts += 1
            return worker.failed_starts >= self._attempts > 1
        return kind == "unfit" and self._attempts > 1

    def _verdict(self, worker: Worker, chunk: Chunk, kind: str, error: str) -> dict[str, Any]:
        """A chunk's failure in words: it waits again, or has failed."""
        last = ", and gets no more chunks" if worker.dismissed and not self._crew.same_machine else ""
        told: dict[str, Any] = {"event": "lost", "chunk": chunk, "steps": worker.steps, "error": error + last}
        told["again"] = worker.dismissed and told["error"] in self._said  # as of each thread of one that is of no use
        self._said.add(told["error"])
        if self._attempts == 1 or kind == "failed" or (kind == "died" and worker.ready):
            self._tries[chunk] += 1
        for count, most in ((self._tries[chunk], self._attempts), (self._losses[chunk], LOSSES)):
            if count >= most:
                self._open -= 1
                return told | {"event": "failed", "attempts": most}
        self._waiting[self._program[chunk]].appendleft((-1, chunk))
        return told

    def _assign(self, worker: Worker) -> None:
        """Give the worker its next chunk, if any: of a program that it has compiled, else of one that nobody has.

        Very short ones go together, where that leaves enough for the others.
        """
        compiled = {program for other in self._workers for program in other.programs}

        def preference(program: int) -> tuple[int, int]:
            rank, _ = self._waiting[program][0]
            return 0 if program in worker.programs else 2 if program in compiled else 1, rank

        if programs := [program for program, chunks in self._waiting.items() if chunks]:
            program = min(programs, key=preference)
            worker.programs.add(program)
            waiting = self._waiting[program]
            worker.steps, worker.chunks = 0, deque(waiting.popleft()[1] for _ in range(self._batch(waiting)))
            worker.send(worker.chunks)

    def _batch(self, waiting: Sequence[tuple[int, Chunk]]) -> int:
        """How many of the chunks that wait are sent together; those that were lost go alone: one of them may be why."""
        chunk = waiting[0][1]
        short = int(self._crew.batch_seconds / (nominal_seconds(chunk.config) * len(chunk.runs)))
        most = min(short, MOST_TOGETHER, len(waiting) // (2 * len(self._workers)))
        return max(1, len(list(takewhile(lambda ranked: not self._losses[ranked[1]], islice(waiting, most)))))


def _in_words(worker: Worker, event: dict[str, Any]) -> str:
    """What happened, in one line."""
    if event["event"] == "died":
        return f"{worker.process} died ({event['ending']})"
    could_not = {"unwritable": "could not write its results: ", "failed": "could not train its runs: "}
    return f"{worker.name} {could_not.get(event['event'], '')}{' '.join(event['error'].split())}"
