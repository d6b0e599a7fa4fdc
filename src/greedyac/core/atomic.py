"""Files that are there whole or not at all: written beside their place, flushed, and put there at once."""

import errno
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_TEMPORARY = re.compile(r"\..+~(\d+)@(.*)~[0-9a-f]{8}\.tmp")
_STALE_SECONDS = 3600.0
"""Writing takes moments: a temporary file of another machine that is older than this was left behind."""


def write_atomically(path: Path, content: bytes, durable: bool = True) -> None:
    """Write a file so that its name shows the old content or the new, never a part.

    Unless it is `durable`, that may not survive a loss of power.
    """
    with temporary_file(path, content, durable) as temporary:
        temporary.replace(path)
        if durable:
            _flush_folder(path.parent)


def put_if_absent(path: Path, content: bytes) -> bool:
    """Publish a file for good, unless its name is taken: write, flush to disk, read back, link, flush the folder.

    Returns whether the file system has hard links. Where it has none, a name that was free a moment ago is renamed to.
    """
    with temporary_file(path, content) as temporary:
        if temporary.read_bytes() != content:
            raise OSError(errno.EIO, "what was written reads back differently", str(temporary))
        links = True
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass  # but perhaps not yet flushed
        except (OSError, AttributeError) as error:  # a system without them may lack the very function
            if isinstance(error, OSError) and error.errno not in _NO_LINKS:
                raise
            links = False
            if not path.exists():
                temporary.replace(path)
        _flush_folder(path.parent)
        return links


@contextmanager
def temporary_file(path: Path, content: bytes, durable: bool = True) -> Iterator[Path]:
    """A temporary file beside `path` with this content, on disk if it is `durable`; gone at the end."""
    temporary = path.with_name(f".{path.name}~{_owner(os.getpid())}~{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb", buffering=0) as file:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
            if durable:
                os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _owner(process: int) -> str:
    return f"{process}@{socket.gethostname()}"


def clear_left(folder: Path, process: int) -> None:
    """Remove what a process of this machine, which has ended, left half-written in a folder."""
    for path in folder.glob(f".*~{_owner(process)}~*.tmp"):
        with suppress(OSError):
            path.unlink()


def _flush_folder(folder: Path) -> None:
    """Make a new name in the folder survive a loss of power, where the system lets a folder be flushed."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def left_behind(path: Path) -> bool:
    """Whether this is a temporary file of a process that has ended, as far as can be told."""
    named = _TEMPORARY.fullmatch(path.name)
    if named is None:
        return False
    process, host = int(named[1]), named[2]
    if host != socket.gethostname() or os.name == "nt":  # where asking for a process would end it
        with suppress(FileNotFoundError):
            return time.time() - path.stat().st_mtime > _STALE_SECONDS
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # the second of a number that no process can have
        return True
    except OSError:
        return False  # it lives, and is somebody else's
    return False


def all_left_behind(folder: Path) -> list[Path]:
    """The temporary files of a folder whose processes have ended."""
    return [path for path in sorted(folder.glob(".*.tmp")) if left_behind(path)]
