"""A worker process, seen from whoever started it: lines of JSON go in, events come out."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any


class WorkerProcess:
    """One `greedyac.training.worker`. Its events go to `on_event`, from another thread; the last one is `died`."""

    def __init__(self, core: int, on_event: Callable[[dict[str, Any]], None]):
        self.died = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "greedyac.training.worker", str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PJRT_NPROC": "1"},
            start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
        )
        self._listener = threading.Thread(target=self._listen, args=(on_event,), daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its number in the system."""
        return self._process.pid

    def send(self, chunk: str) -> None:
        """Have a chunk trained, given as JSON."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it died, or was ended: the listener tells
            self._process.stdin.write(chunk + "\n")
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
