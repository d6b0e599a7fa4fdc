"""Looking at processes through /proc, for the tests that start and kill them."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120.0
"""Seconds after which a wait has failed; every wait ends as soon as what it waits for is there."""
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may have had it ignored
from greedyac.cli import main
sys.exit(main())
"""


def stat(pid: int) -> list[str]:
    """State, parent and so on of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def command(pid: int) -> list[str]:
    """The words that a process was started with; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def alive(pid: int) -> bool:
    return stat(pid)[:1] not in ([], ["Z"], ["X"])


def parent(pid: int) -> int | None:
    numbers = stat(pid)[1:2]
    return int(numbers[0]) if numbers else None


def living() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and alive(int(path.name))]


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The living children of a process."""
    return [child for child in living() if parent(child) == pid]


def trainers_of(pid: int) -> list[int]:
    """Its children that train; a Dask worker also runs `uname` when it starts."""
    return [child for child in children(pid) if "greedyac.execution.worker" in command(child)]


def end_tree(process: "subprocess.Popen[Any]") -> None:
    """Kill a process and all that it started."""
    left = [process.pid] if process.poll() is None else []  # otherwise the number may be another's by now
    for pid in left:  # it grows
        left += children(pid)
    for pid in filter(alive, left):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def wait_for_complaint(process: "subprocess.Popen[str]", words: str) -> None:
    """Read what a process complains of, up to a line with these words; `communicate` gets most of what follows."""
    assert process.stderr is not None
    in_vain, said = threading.Timer(PATIENCE, process.kill), list[str]()
    in_vain.start()
    try:
        for line in process.stderr:
            said.append(line)
            if words in line:
                return
    finally:
        in_vain.cancel()
    raise AssertionError(f"never said {words!r}, ended with {process.wait()}, but said:\n{''.join(said)}")
