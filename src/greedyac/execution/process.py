"""A worker process, seen from whoever started it: lines of JSON go in, events come out."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from greedyac.execution.worker import LATER

_ahead: list[subprocess.Popen[str]] = []


@contextlib.contextmanager
def one_ahead() -> Iterator[None]:
    """Start the process of the first worker at once, while this one still imports and plans."""
    _ahead.append(_start(LATER))
    try:
        yield
    finally:
        end_ahead()


def end_ahead() -> None:
    """End the process that no worker took, if there is one."""
    while _ahead:
        with _ahead.pop() as process:
            process.kill()


def _start(core: str, cached: bool = True) -> subprocess.Popen[str]:
    uncached = {} if cached else {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "greedyac.execution.worker", core],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # NumPy may be imported before the pinning
        env={"OPENBLAS_NUM_THREADS": "1", **os.environ, "PJRT_NPROC": "1", **uncached},
        start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
    )


class WorkerProcess:
    """One `greedyac.execution.worker`. Its events go to `on_event`, from another thread; the last one is `died`.

    One that is not `cached` compiles all its programs itself.
    """

    def __init__(self, core: int, on_event: Callable[[dict[str, Any]], None], cached: bool = True):
        self.died = False
        is_ahead = cached and bool(_ahead)
        self._process = _ahead.pop() if is_ahead else _start(str(core), cached)
        if is_ahead:
            self.send(str(core))
        self._listener = threading.Thread(target=self._listen, args=(on_event,), daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its number in the system."""
        return self._process.pid

    def send(self, line: str) -> None:
        """Send a line: a chunk to be trained, as JSON."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it died, or was ended: the listener tells
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                on_event(json.loads(line))
        except json.JSONDecodeError:
            self.kill()  # it was, in the middle of a line, or it talks nonsense
        finally:
            ending = self._ending()
            self.died = True
            on_event({"event": "died", "ending": ending})

    def _ending(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """End it at once and wait until it is gone."""
        with contextlib.suppress(BrokenPipeError), self._process:  # closes the pipes and waits
            self._process.kill()
            self._listener.join()
