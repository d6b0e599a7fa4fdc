"""A lock on a folder, for one process at a time. It ends with its process, however that ends, and is never stale."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from greedyac.core.errors import InputError

LOCK = ".greedyac-lock"
"""An empty file in the folder. Only the system's lock on it counts: one that a killed process left is harmless."""

ATTEMPTS = 100

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
        is_ours = _is_at(descriptor, path)
        os.close(descriptor)
        with suppress(OSError):
            if is_ours:
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
            if _is_at(descriptor, path):
                path.unlink()
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one of that name: the folder can have been removed, and made again by another."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


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
    """The locked file, which child processes don't inherit; None if there can be none."""
    for _ in range(ATTEMPTS):
        foreign = False
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            if (found := _open_to_read(path)) is None:
                return None
            descriptor, foreign = found, True
        except OSError:
            return None
        try:
            free = _take(descriptor)
        except OSError:  # a file system without locks, or without any on files that are open to read
            if foreign:  # which may be locked: it is not ours to remove
                os.close(descriptor)
                return None
            return descriptor
        if not free:
            os.close(descriptor)
            raise InputError(complaint)
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # whoever held the lock has just removed this file
    return None  # a file system whose files can't be told apart


def _open_to_read(path: Path) -> int | None:
    """The file of another user, which can be locked all the same."""
    with suppress(OSError):
        return os.open(path, os.O_RDONLY)
    return None
