"""Files that are there whole or not at all: put in place if absent, sealed by a checksum, checked when they are read.

A file of rows is an ordinary Parquet file. Between its data and its footer, where no reader looks, stands the SHA-256
of its name and all other bytes: one flipped bit anywhere is noticed, and so is another name.
"""

import errno
import hashlib
import io
import os
import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from greedyac.training.rows import SCHEMA
from greedyac.training.runs import short_hash

_MAGIC = b"PAR1"
_TAIL = 4 + len(_MAGIC)
"""A Parquet file ends with its footer, the footer's length in four bytes, and the magic word."""
_SEAL = hashlib.sha256().digest_size
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_TEMPORARY = re.compile(r"\..+~(\d+)@(.*)~[0-9a-f]{8}\.tmp")
_STALE_SECONDS = 3600.0
"""Writing takes moments: a temporary file of another machine that is older than this was left behind."""


class DamagedError(Exception):
    """A file that is not what it should be; the message says how."""


class OtherVersionError(DamagedError):
    """A file that is whole, but of another version."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that its name shows the old content or the new, never a part."""
    with _written(path, content) as temporary:
        temporary.replace(path)
        _flush_folder(path.parent)


def put_if_absent(path: Path, content: bytes) -> bool:
    """Publish a file for good, unless its name is taken: write, flush to disk, read back, link, flush the folder.

    Returns whether the file system has hard links. Where it has none, a name that was free a moment ago is renamed to.
    """
    with _written(path, content) as temporary:
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
def _written(path: Path, content: bytes) -> Iterator[Path]:
    """A temporary file beside `path` with this content, on disk; gone at the end."""
    owner = f"{os.getpid()}@{socket.gethostname()}"
    temporary = path.with_name(f".{path.name}~{owner}~{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb", buffering=0) as file:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


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


def chunk_id(run_ids: Iterable[str]) -> str:
    """What a file of these runs is called: a hash of their ids, in whatever order."""
    return short_hash("\n".join(sorted(run_ids)))


def rows_path(folder: Path, run_ids: Iterable[str]) -> Path:
    """Where the rows of these runs are published."""
    return folder / f"{chunk_id(run_ids)}.parquet"


def publish_rows(folder: Path, rows: pl.DataFrame) -> bool:
    """Publish rows as one file of the folder, unless it is there; returns whether the file system has hard links."""
    path, buffer = rows_path(folder, rows["run_id"]), io.BytesIO()
    rows.write_parquet(buffer)
    links = put_if_absent(path, seal(path.name, buffer.getvalue()))
    with suppress(FileNotFoundError):  # merged with others already
        try:
            read_rows([path])
        except DamagedError as error:
            raise OSError(errno.EIO, f"the file {error}", str(path)) from None
    return links


def read_rows(paths: Iterable[Path], columns: list[str] | None = None) -> pl.DataFrame:
    """The rows of published files, or some columns of them, in order; `DamagedError` if one is not whole."""
    contents = [unseal(path.name, path.read_bytes()) for path in paths]
    if any(list(_schema(content).items()) != list(SCHEMA.items()) for content in contents):
        raise OtherVersionError("has other columns: it was written by another version of greedyac")
    if not contents:
        return pl.DataFrame(schema=SCHEMA).select(columns or SCHEMA.names())
    return pl.read_parquet(contents, columns=columns)


def _schema(content: bytes) -> Mapping[str, object]:
    try:
        return pl.read_parquet_schema(io.BytesIO(content))
    except pl.exceptions.PolarsError as error:
        raise DamagedError(f"can't be read ({str(error).splitlines()[0]})") from None


def seal(name: str, content: bytes) -> bytes:
    """Parquet bytes with a checksum of the file's name and themselves before their footer."""
    data = len(content) - _TAIL - int.from_bytes(content[-_TAIL : -len(_MAGIC)], "little")
    return content[:data] + _checksum(name, content) + content[data:]


def unseal(name: str, content: bytes) -> bytes:
    """The bytes that were sealed under this name, or `DamagedError`."""
    if not content:
        raise DamagedError("is empty")
    if not content.startswith(_MAGIC):
        raise DamagedError("is no Parquet file")
    end = len(content) - _TAIL - int.from_bytes(content[-_TAIL : -len(_MAGIC)], "little")
    if not content.endswith(_MAGIC) or end < len(_MAGIC) + _SEAL:
        raise DamagedError("is cut short or damaged")
    plain = content[: end - _SEAL] + content[end:]
    if _checksum(name, plain) != content[end - _SEAL : end]:
        raise DamagedError("does not match its checksum: it was changed, renamed, or not written by greedyac")
    return plain


def _checksum(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + content).digest()
