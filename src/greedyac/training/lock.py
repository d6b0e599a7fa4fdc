"""A lock on a folder, for one process at a time. It ends with its process, however that ends, and is never stale."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from greedyac.errors import InputError

LOCK = ".greedyac-lock"
"""An empty file in the folder. Only the system's lock on it counts: one that a killed process left is harmless."""

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> bool:
        """Lock an open file unless another process has; returns whether it could."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _give_back(descriptor: int, path: Path) -> None:
        """Unlock the file and remove it: it can be removed only when nobody has it open."""
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
else:
    import fcntl

    def _take(descriptor: int) -> bool:
        """Lock an open file unless another process has; returns whether it could."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _give_back(descriptor: int, path: Path) -> None:
        """Remove the file and unlock it, in this order: it may be another's as soon as it is unlocked."""
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


@contextmanager
def locked(folder: Path, complaint: str) -> Iterator[None]:
    """Hold the lock of a folder, or raise an `InputError` with this complaint if another process holds it.

    Where there can be none (no such folder, a read-only one, a file system without locks), go on without.
    """
    path = folder / LOCK
    descriptor = _open(path, complaint)
    try:
        yield
    finally:
        if descriptor is not None:
            _give_back(descriptor, path)


def _open(path: Path, complaint: str) -> int | None:
    """The locked file, which child processes don't inherit; None if it can't be opened."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            return None
        try:
            free = _take(descriptor)
        except OSError:  # a file system without locks
            return descriptor
        if not free:
            os.close(descriptor)
            raise InputError(complaint)
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # whoever held the lock has just removed this file
