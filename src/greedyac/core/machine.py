"""The machine: its memory, its cores, and which worker gets which. Nothing here imports JAX."""

import os
from pathlib import Path
from typing import NamedTuple

PINS = hasattr(os, "sched_setaffinity")
"""Whether this system pins processes to cores."""


def cores() -> list[int]:
    """The cores that this process may use; on systems without affinity as many −1 as there are cores."""
    if PINS:
        return sorted(os.sched_getaffinity(0))
    return [-1] * (os.cpu_count() or 1)


def places(workers: int) -> list[int]:
    """A core for each worker, or −1 for any: fewer workers than cores are not pinned, others may use the first ones."""
    available = cores()
    return [available[index % len(available)] if workers >= len(available) else -1 for index in range(workers)]


class Machine(NamedTuple):
    """A machine and how many workers share it."""

    bytes: int | None
    """Its memory; None where it can't be told."""
    workers: int


def machine_bytes() -> int | None:
    """The memory of this machine, or of the group of processes that we are limited to; None where it can't be told."""
    try:
        known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, ValueError, OSError):
        return None
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            known.append(int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return min(known)
