"""A worker process: chunks come in as JSON lines on standard input, events go out as JSON lines.

Started by `process`, spawned and never forked, pinned to one core before JAX starts. It ends when its input does: when
the parent closes it, or dies, however that happens.
"""

import contextlib
import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

LATER = "later"
"""In place of a core, for a process that is started before it is known."""


def main() -> None:
    """Serve chunks until the input ends.

    The only argument is the core to run on, or −1 for any; or `later`, and the first line of the input is the core.
    """
    place = sys.argv[1]
    if place != LATER:
        _pin(int(place))
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not mix with the events
    chunks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(chunks,), daemon=True).start()

    def tell(event: str, **about: Any) -> None:
        print(json.dumps({"event": event, **about}), file=events)

    try:  # imports JAX
        from greedyac.core import xla
        from greedyac.core.errors import InputError
        from greedyac.execution.chunk import Chunk, train_chunk
        from greedyac.results.provenance import cpu, versions

        if place == LATER:
            _pin(int(chunks.get()))
        xla.start()
        tell("ready", cpu=cpu(), versions=versions())
    except Exception as error:
        tell("unfit", error=f"can't train: {_in_words(error)}")
        return
    while True:
        try:
            chunk = Chunk.from_json(chunks.get())
        except InputError as error:
            tell("unfit", error=f"can't train such runs: {error}")
            continue
        try:
            receipt = train_chunk(chunk, lambda steps: tell("steps", steps=steps))
        except OSError as error:
            tell("unwritable", error=str(error), errno=error.errno)  # nothing is wrong with the runs
        except Exception as error:
            tell("failed", error=_in_words(error))  # the parent decides what it means
        else:
            tell("done", **receipt._asdict())


def _pin(core: int) -> None:
    """Keep this process, with all of its threads, to a core; −1 is any."""
    if core < 0 or not hasattr(os, "sched_setaffinity"):
        return
    threads = Path("/proc/self/task")
    for thread in [int(path.name) for path in threads.iterdir()] if threads.exists() else [0]:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, {core})


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _read(chunks: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        chunks.put(line)
    os._exit(0)  # at once, even in the middle of a block: what is not published is not wanted


if __name__ == "__main__":
    main()
