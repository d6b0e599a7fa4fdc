"""What runs in a Dask worker: it keeps worker processes, has them train chunks, and says how they fare.

Training happens in the same processes as on one machine, so a Dask worker stays responsive whatever they do, and
outlives them. It imports no JAX. Only JSON and the bytes of Parquet files go to and fro.
"""

import json
import queue
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from distributed import get_worker
from distributed.core import Status
from distributed.worker import thread_state

from greedyac.core import version
from greedyac.core.atomic import clear_left, temporary_file
from greedyac.core.machine import machine_bytes, places
from greedyac.execution.process import WorkerProcess

TOPIC = "greedyac"
"""Of Dask's events, under which progress is told."""
MAX_BYTES = 16 * 2**20
"""The largest file that travels back to whoever asked."""
HUNG_SECONDS = 60.0
"""A process that says nothing and uses no processor time for so long is killed."""
IDLE_SECONDS = 60.0
"""So long a process without work is kept, with the programs that it has compiled."""
LOOK_SECONDS = 0.25
_GOING = {Status.closing, Status.closed, Status.failed, Status.stopping}

Event = dict[str, Any]


def about() -> str:
    """What planning has to know of this machine, as JSON."""
    return json.dumps({"bytes": machine_bytes()})


def train(order: str) -> tuple[str, dict[str, bytes]]:
    """Have chunks trained, as an order of `engine` says, up to the first failure.

    Returns what is left to tell as JSON events, of which the last says how it ended, and, if whoever ordered publishes
    them, the files of rows.
    """
    asked = json.loads(order)
    asked["start"] = uuid.uuid4().hex
    _tell(asked, [])  # before anything that may hang, such as the store
    if asked["greedyac"] != version.__version__:
        error = f"has greedyac {version.__version__}, and is asked by {asked['greedyac']}: install the same"
        return _ended({"event": "unfit", "error": error})
    try:
        if asked["sign"] is not None:
            folder = Path(asked["chunks"][0]["folder"])
            if problem := _no_access(folder, asked["sign"]):
                return _ended({"event": "unfit", "error": problem})
            return _ended(*_train(asked, folder))
        with tempfile.TemporaryDirectory(dir=get_worker().local_directory, ignore_cleanup_errors=True) as own:
            return _with_files(_train(asked, Path(own)), Path(own))
    except OSError as error:
        return _ended({"event": "unfit", "error": f"can't train: {error}"})


def _ended(*events: Event) -> tuple[str, dict[str, bytes]]:
    return json.dumps(events), {}


def _with_files(events: list[Event], folder: Path) -> tuple[str, dict[str, bytes]]:
    """The same events, and what was published in the folder, up to a file that is too large."""
    files: dict[str, bytes] = {}
    for number, event in enumerate(events):
        if event["event"] == "done" and event["file"]:
            size = (folder / event["file"]).stat().st_size
            if size > MAX_BYTES:
                error = f"its rows take {size / 1e6:.1f} MB, and at most {MAX_BYTES / 1e6:.1f} can be sent back"
                return json.dumps([*events[:number], {"event": "failed", "error": error}]), files
            files[event["file"]] = (folder / event["file"]).read_bytes()
    return json.dumps(events), files


def _no_access(folder: Path, sign: str) -> str | None:
    """Why the store can't be used here, if it can't: it is not there, is another, or can't be written."""
    try:
        if not (folder / sign).exists():
            return f"does not see the store at {str(folder.parent)!r}: is it on a file system that it shares?"
        with temporary_file(folder / "trial", b""):
            return None
    except OSError as error:
        return f"can't write to the store at {str(folder.parent)!r}: {error.strerror}"


def _train(asked: dict[str, Any], folder: Path) -> list[Event]:
    """Have a process publish chunks in a folder; what it said after progress was last told, up to the end."""
    worker, key = get_worker(), thread_state.key
    told, untold = time.monotonic(), list[Event]()

    def unwanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state != "executing" or worker.status in _GOING

    def tell(first: bool) -> None:
        """Tell progress of the first chunk from time to time; of others, which are short, only that there is some."""
        nonlocal told, untold
        if time.monotonic() - told >= asked["interval"]:
            _tell(asked, untold if first else [])
            told, untold = time.monotonic(), [] if first else untold

    with _PROCESSES.lent(asked["slot"]) as process:
        for number, chunk in enumerate(asked["chunks"]):
            process.send(json.dumps(chunk | {"folder": str(folder)}))
            if process.ready and not number:
                untold.append(process.ready)
            event = None
            while event is None or event["event"] in ("ready", "steps"):
                tell(first=not number)
                if unwanted():
                    process.end()
                event = process.next_event(LOOK_SECONDS)
                untold = _merged(untold, event) if event else untold
            if event["event"] != "done":
                if event["event"] == "unfit":
                    process.end()  # what it has imported, or could not, stays as it is
                break
    if process.died:
        clear_left(folder, process.pid)
    return untold


def _tell(asked: dict[str, Any], events: list[Event]) -> None:
    """Tell whoever ordered this, and that it was begun, and by which start of it."""
    get_worker().log_event(TOPIC, {"ticket": asked["ticket"], "start": asked["start"], "events": events})


def _merged(events: list[Event], event: Event) -> list[Event]:
    """Events with one more; steps are added up."""
    if event["event"] == "steps" and events and events[-1]["event"] == "steps":
        return [*events[:-1], {"event": "steps", "steps": events[-1]["steps"] + event["steps"]}]
    return [*events, event]


class _Process(WorkerProcess):
    """A worker process with its events, which is watched."""

    def __init__(self, core: int) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        super().__init__(core, self._events.put)
        self.core = core
        self._seen, self._since = -1.0, time.monotonic()
        self.ready: Event | None = None
        """What it said when it was."""
        self.slot, self.busy = -1, False
        self.end_later: threading.Timer | None = None

    def send(self, chunk: str) -> None:
        self._since = time.monotonic()
        super().send(chunk)

    def next_event(self, seconds: float) -> Event | None:
        """What it says within so many seconds. One that hangs is killed."""
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return self._ended_if_hung()
        self._since = time.monotonic()
        if event["event"] == "ready":
            self.ready = event
        return event

    def _ended_if_hung(self) -> Event | None:
        with suppress(psutil.Error):
            times = psutil.Process(self.pid).cpu_times()
            if (used := times.user + times.system) != self._seen:
                self._seen, self._since = used, time.monotonic()
        if time.monotonic() - self._since < HUNG_SECONDS:
            return None
        self.end()
        return {"event": "died", "ending": f"it hung for {HUNG_SECONDS:.0f} s"}


class _Processes:
    """The processes of this Dask worker: those at work, and those that wait for more."""

    def __init__(self) -> None:
        self._living: list[_Process] = []
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, slot: int) -> Iterator[_Process]:
        """A process, rather the one that this slot had before; kept for later, if it lives."""
        with self._lock:
            self._living = [process for process in self._living if not process.died]
            idle = [process for process in self._living if not process.busy]
            same = [process for process in idle if process.slot == slot]
            process = next(iter(same or idle), None) or self._started()
            if process.end_later is not None:
                process.end_later.cancel()
            process.slot, process.busy = slot, True
        try:
            yield process
        except BaseException:
            process.end()
            raise
        if process.died:
            process.end()
            return
        with self._lock:
            process.busy = False
            process.end_later = threading.Timer(IDLE_SECONDS, self._end, [process])
            process.end_later.daemon = True
            process.end_later.start()

    def _started(self) -> _Process:
        """A new one, on a core that no other has, if this Dask worker has a thread for each of its cores."""
        free = Counter(places(get_worker().state.nthreads)) - Counter(process.core for process in self._living)
        self._living.append(process := _Process(next(iter(free), -1)))
        return process

    def _end(self, process: _Process) -> None:
        with self._lock:
            if process.busy:
                return  # it was lent again, just now
            self._living = [other for other in self._living if other is not process]
        process.end()


_PROCESSES = _Processes()
