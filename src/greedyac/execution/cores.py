"""The cores of this machine, and which worker gets which. Nothing here imports JAX."""

import os

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
