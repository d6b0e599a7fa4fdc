"""Looking at processes through /proc, for the tests that start and kill them."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 120.0
"""Seconds after which a wait has failed; every wait ends as soon as what it waits for is there."""
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


def alive(pid: int) -> bool:
    return stat(pid)[:1] not in ([], ["Z"], ["X"])


def parent(pid: int) -> int | None:
    numbers = stat(pid)[1:2]
    return int(numbers[0]) if numbers else None


def living() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and alive(int(path.name))]


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The living children of a process."""
    return [child for child in living() if parent(child) == pid]
