"""Published rows: files that are put in place if absent, sealed by a checksum, checked when they are read.

A file of rows is an ordinary Parquet file. Between its data and its footer, where no reader looks, stands the SHA-256
of its name and all other bytes: one flipped bit anywhere is noticed, and so is another name.
"""

import errno
import hashlib
import io
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import polars as pl

from greedyac.core.atomic import put_if_absent
from greedyac.core.hashing import short_hash
from greedyac.results.schema import SCHEMA

_MAGIC = b"PAR1"
_TAIL = 4 + len(_MAGIC)
"""A Parquet file ends with its footer, the footer's length in four bytes, and the magic word."""
_SEAL = hashlib.sha256().digest_size


class DamagedError(Exception):
    """A file that is not what it should be; the message says how."""


class OtherVersionError(DamagedError):
    """A file that is whole, but of another version."""


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
    return _publish(path, seal(path.name, buffer.getvalue()))


def publish_sealed(folder: Path, name: str, content: bytes, run_ids: Iterable[str]) -> bool:
    """The same for a file that was made elsewhere; `DamagedError` if it is not whole, or has not some of these runs."""
    held = _rows([(name, content)])["run_id"]
    if rows_path(folder, held).name != name or not set(held) <= set(run_ids):
        raise DamagedError("has other runs than it should")
    return _publish(folder / name, content)


def _publish(path: Path, content: bytes) -> bool:
    links = put_if_absent(path, content)
    with suppress(FileNotFoundError):  # merged with others already
        try:
            read_rows([path])
        except DamagedError as error:
            raise OSError(errno.EIO, f"the file {error}", str(path)) from None
    return links


def read_rows(paths: Iterable[Path], columns: list[str] | None = None) -> pl.DataFrame:
    """The rows of published files, or some columns of them, in order; `DamagedError` if one is not whole."""
    return _rows([(path.name, path.read_bytes()) for path in paths], columns)


def _rows(sealed: Iterable[tuple[str, bytes]], columns: list[str] | None = None) -> pl.DataFrame:
    contents = [unseal(name, content) for name, content in sealed]
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
