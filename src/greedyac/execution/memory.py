"""How much memory there is for lanes."""

import os
from pathlib import Path
from typing import NamedTuple


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
