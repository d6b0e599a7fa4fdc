"""The files of a store: published whole or not at all, whatever fails on the way, and every damage is noticed."""

import errno
import io
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pytest

from greedyac.core.atomic import clear_left, left_behind, put_if_absent, write_atomically
from greedyac.execution.chunk import Chunk, Receipt, train_chunk
from greedyac.results.files import (
    DamagedError,
    chunk_id,
    publish_rows,
    publish_sealed,
    read_rows,
    rows_path,
    seal,
    unseal,
)
from greedyac.results.schema import SCHEMA
from greedyac.training.config import Run, RunConfig

CONTENT = bytes(range(256)) * 40
KEYS = ["run_id", "status"]
Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of two real runs."""
    runs = [Run(RunConfig("random", "Pendulum-CA", steps=1000), seed) for seed in range(2)]
    chunk = Chunk(runs, 2, tmp_path_factory.mktemp("chunks"))
    assert train_chunk(chunk, lambda steps: None) == Receipt(f"{chunk.chunk_id}.parquet", 2, 0, True, {})
    [path] = chunk.folder.iterdir()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a neighbour that nothing may touch."""
    (tmp_path / "neighbour").write_bytes(b"mine")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "neighbour")


def failing(number: int) -> Callable[..., NoReturn]:
    """What to put in the place of a system call."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


class Full(io.FileIO):
    """A file on a disk that is full after 100 bytes."""

    def write(self, content: Any) -> int:
        if self.tell():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(content[:100])


class Slow(io.FileIO):
    """A file that takes 1000 bytes at a time."""

    def write(self, content: Any) -> int:
        return super().write(content[:1000])


def opening(kind: type[io.FileIO]) -> Break:
    """Have files that are written be of this kind."""
    plain = Path.open

    def open_other(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        return kind(path, mode) if mode == "xb" else plain(path, mode, *rest, **options)

    return lambda patch: patch.setattr(Path, "open", open_other)


def flushing(folders: bool) -> Break:
    """Have the flushing of folders, or else of files, fail."""
    plain = os.fsync

    def flush(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == folders:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        plain(descriptor)

    return lambda patch: patch.setattr(os, "fsync", flush)


BEFORE: dict[str, tuple[int, Break]] = {
    "open": (errno.EMFILE, lambda patch: patch.setattr(Path, "open", failing(errno.EMFILE))),
    "write": (errno.ENOSPC, opening(Full)),
    "fsync of the file": (errno.EIO, flushing(folders=False)),
}
"""Breaks every way of writing, before anything is visible."""
LINK: dict[str, tuple[int, Break]] = {
    "read back": (errno.EIO, lambda patch: patch.setattr(Path, "read_bytes", lambda path: CONTENT[:-1] + b"!")),
    "link, EIO": (errno.EIO, lambda patch: patch.setattr(os, "link", failing(errno.EIO))),
    "link, ENOSPC": (errno.ENOSPC, lambda patch: patch.setattr(os, "link", failing(errno.ENOSPC))),
    "link, EACCES": (errno.EACCES, lambda patch: patch.setattr(os, "link", failing(errno.EACCES))),
}
AFTER: dict[str, tuple[int, Break]] = {
    "open of the folder": (errno.EACCES, lambda patch: patch.setattr(os, "open", failing(errno.EACCES))),
    "fsync of the folder": (errno.EIO, flushing(folders=True)),
}
"""Breaks when the new content is visible, and whole."""


@pytest.mark.parametrize("content", [b"", b"x", CONTENT])
def test_content_lands_and_nothing_else(folder: Path, content: bytes) -> None:
    assert put_if_absent(folder / "a", content) is True
    assert (folder / "a").read_bytes() == content
    assert names(folder) == ["a"]


def test_a_taken_name_keeps_its_content(folder: Path) -> None:
    (folder / "a").write_bytes(b"old")
    assert put_if_absent(folder / "a", CONTENT) is True
    assert (folder / "a").read_bytes() == b"old"
    write_atomically(folder / "a", CONTENT)
    assert (folder / "a").read_bytes() == CONTENT
    assert names(folder) == ["a"]


@pytest.mark.parametrize("kind", ["bytes", "rows"])
@pytest.mark.parametrize("step", [*BEFORE, *LINK, *AFTER])
def test_a_failed_system_call_leaves_nothing_half_visible(folder: Path, published: Path, step: str, kind: str) -> None:
    rows = read_rows([published])
    path = folder / "a" if kind == "bytes" else rows_path(folder, rows["run_id"])

    def publish() -> bool:
        return put_if_absent(path, CONTENT) if kind == "bytes" else publish_rows(folder, rows)

    def assert_whole() -> None:
        assert path.read_bytes() == CONTENT if kind == "bytes" else read_rows([path]).equals(rows)
        assert names(folder) == [path.name]

    number, break_it = {**BEFORE, **LINK, **AFTER}[step]
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        with pytest.raises(OSError) as caught:  # noqa: PT011  # any text will do
            publish()
    assert caught.value.errno == number
    if step in AFTER:
        assert_whole()
    assert step in AFTER or names(folder) == []
    assert publish() is True
    assert_whole()
    assert (folder / "neighbour").read_bytes() == b"mine"


@pytest.mark.parametrize("step", [*BEFORE, "replace", *AFTER])
def test_a_failed_overwriting_shows_the_old_or_the_new(folder: Path, step: str) -> None:
    (folder / "a").write_bytes(b"old")
    replacing: Break = lambda patch: patch.setattr(Path, "replace", failing(errno.EIO))  # noqa: E731
    number, break_it = {**BEFORE, "replace": (errno.EIO, replacing), **AFTER}[step]
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        with pytest.raises(OSError) as caught:  # noqa: PT011  # any text will do
            write_atomically(folder / "a", CONTENT)
    assert caught.value.errno == number
    assert (folder / "a").read_bytes() == (CONTENT if step in AFTER else b"old")
    assert names(folder) == ["a"]
    write_atomically(folder / "a", CONTENT)
    assert (folder / "a").read_bytes() == CONTENT


def test_a_temporary_file_that_can_not_be_removed_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "unlink", failing(errno.EIO))
    assert put_if_absent(folder / "a", CONTENT) is True
    assert (folder / "a").read_bytes() == CONTENT
    assert len(names(folder)) == 2


def test_short_writes_are_gone_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening(Slow)(monkeypatch)
    put_if_absent(folder / "a", CONTENT)
    assert (folder / "a").read_bytes() == CONTENT


def test_everything_is_flushed_before_it_is_visible_and_the_folder_after(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, happened = os.fsync, []

    def note(descriptor: int) -> None:
        flush(descriptor)
        info = os.fstat(descriptor)
        happened.append((stat.S_ISDIR(info.st_mode) or info.st_size, (folder / "a").exists()))

    monkeypatch.setattr(os, "fsync", note)
    put_if_absent(folder / "a", CONTENT)
    assert happened == [(len(CONTENT), False), (True, True)]
    happened.clear()
    write_atomically(folder / "b", CONTENT)
    assert [size for size, _ in happened] == [len(CONTENT), True]


def test_doing_it_again_after_the_folder_was_not_flushed_flushes_it(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        flushing(folders=True)(patch)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            put_if_absent(folder / "a", CONTENT)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):  # else success would not survive a loss of power
            put_if_absent(folder / "a", CONTENT)


@pytest.mark.parametrize("lack", [errno.EPERM, errno.ENOTSUP, None])
def test_without_hard_links_files_are_renamed(folder: Path, monkeypatch: pytest.MonkeyPatch, lack: int | None) -> None:
    if lack is None:
        monkeypatch.delattr(os, "link")
    else:
        monkeypatch.setattr(os, "link", failing(lack))
    (folder / "b").write_bytes(b"old")
    assert put_if_absent(folder / "a", CONTENT) is False
    assert put_if_absent(folder / "b", CONTENT) is False
    assert [(folder / name).read_bytes() for name in names(folder)] == [CONTENT, b"old"]


LIMITED = """
import pathlib, resource, sys
from greedyac.core.atomic import put_if_absent
folder = pathlib.Path(sys.argv[1])
for limit in (5000, resource.RLIM_INFINITY):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        told = put_if_absent(folder / "a", bytes(100_000))
    except OSError as error:
        told = error.errno
    print(told, sorted(path.name for path in folder.iterdir()))
"""


def test_running_out_of_space(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False)
    assert ran.stdout == f"{errno.EFBIG} []\nTrue ['a']\n", ran.stderr
    assert (tmp_path / "a").read_bytes() == bytes(100_000)


KILLED = """
import io, os, pathlib, random, signal, sys, time
from greedyac.core.atomic import put_if_absent
folder, chance = pathlib.Path(sys.argv[1]), random.Random(0)
class Slow(io.FileIO):
    def write(self, content):
        time.sleep(0.0002)
        return super().write(content[:10_000])
for attempt in range(20):
    child = os.fork()
    if not child:
        plain = pathlib.Path.open
        pathlib.Path.open = lambda path, mode, **rest: (Slow if mode == "xb" else plain)(path, mode)
        for number in range(10**9):
            put_if_absent(folder / f"{attempt}-{number}", bytes([number % 256]) * 1_000_000)
    while not (folder / f"{attempt}-0").exists():
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_what_killed_processes_leave_is_whole_or_recognised(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", KILLED, tmp_path], check=True)
    visible = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    hidden = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    for path in visible:
        assert path.read_bytes() == bytes([int(path.name.partition("-")[2]) % 256]) * 1_000_000
    assert len(visible) >= 20
    assert any(path.stat().st_size < 1_000_000 for path in hidden)  # the test has caught some in the middle
    assert all(map(left_behind, hidden))
    assert not any(map(left_behind, visible))


def abandoned(folder: Path, process: int, host: str) -> Path:
    """A temporary file that this process of this machine did not come to remove."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: process)
        patch.setattr(socket, "gethostname", lambda: host)
        patch.setattr(Path, "unlink", failing(errno.EIO))
        patch.setattr(os, "link", failing(errno.EIO))
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            put_if_absent(folder / "a.parquet", CONTENT)
    [name] = names(folder)
    return folder / name


def test_a_temporary_file_is_left_behind_once_its_process_is_dead(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        path = abandoned(folder, process.pid, socket.gethostname())
        os.utime(path, (0, 0))  # however old it is
        assert not left_behind(path)
    finally:
        process.kill()
        process.communicate()
    assert left_behind(path)


@pytest.mark.parametrize(("age", "verdict"), [(0, False), (3500, False), (3700, True)])
def test_a_temporary_file_of_another_machine_is_left_behind_after_an_hour(
    folder: Path, age: float, verdict: bool
) -> None:
    path = abandoned(folder, os.getpid(), "else.where-1~2")
    os.utime(path, 2 * (time.time() - age,))
    assert left_behind(path) is verdict
    path.unlink()
    assert not left_behind(path)


@pytest.mark.parametrize(
    "name",
    ["a.parquet", ".nfs0001", ".a.tmp", "a~1@b~01234567.tmp", f".a~{10**30}@{socket.gethostname()}~01234567.tmp.x"],
)
def test_other_files_were_not_left_behind(folder: Path, name: str) -> None:
    (folder / name).touch()
    os.utime(folder / name, (0, 0))
    assert not left_behind(folder / name)


def test_a_process_number_that_can_not_be_is_no_crash(folder: Path) -> None:
    assert left_behind(folder / f".a~{10**30}@{socket.gethostname()}~01234567.tmp")


def test_the_name_depends_on_the_set_of_runs() -> None:
    ids = ["aa", "b", "ab"]
    assert chunk_id(ids) == chunk_id(reversed(ids))
    assert len({chunk_id(some) for some in ([], ["a", "ab"], ["aa", "b"], ["aab"], ids)}) == 5


def is_noticed(path: Path) -> bool:
    try:
        read_rows([path])
    except DamagedError:
        return True
    return False


def test_every_flipped_bit_is_noticed(published: Path, folder: Path) -> None:
    path, chance = Path(shutil.copy(published, folder)), random.Random(0)
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(published.read_bytes()):
            for value in (byte ^ 1 << chance.randrange(8), byte):
                file.seek(place)
                file.write(bytes([value]))
                assert value == byte or is_noticed(path), place
    assert read_rows([path]).equals(read_rows([published]))


def test_every_truncation_and_extension_is_noticed(published: Path, folder: Path) -> None:
    content, path = published.read_bytes(), Path(shutil.copy(published, folder))
    for length in reversed(range(len(content))):
        os.truncate(path, length)
        assert is_noticed(path), length
    for other in [content[1:], *(content + more for more in (b"\0", b"PAR1", content, content[-8:], bytes(4096)))]:
        path.write_bytes(other)
        assert is_noticed(path)
    assert seal(path.name, unseal(path.name, content)) == content


def parquet(rows: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    return buffer.getvalue()


FOREIGN: dict[str, tuple[Callable[[pl.DataFrame, str], bytes], str]] = {
    "empty": (lambda rows, name: b"", "is empty"),
    "text": (lambda rows, name: b"seed,return\n0,1\n", "is no Parquet file"),
    "cut": (lambda rows, name: seal(name, parquet(rows))[:-1], "is cut short"),
    "no seal": (lambda rows, name: parquet(rows), "does not match its checksum"),
    "another's seal": (lambda rows, name: seal("other.parquet", parquet(rows)), "does not match its checksum"),
    "no Parquet": (lambda rows, name: seal(name, b"PAR1" + bytes(99) + b"\1\0\0\0PAR1"), r"can't be read \(.+\)$"),
    "a column less": (lambda rows, name: seal(name, parquet(rows.drop("curve"))), "has other columns"),
    "a column more": (lambda rows, name: seal(name, parquet(rows.with_columns(more=1))), "has other columns"),
    "another type": (lambda rows, name: seal(name, parquet(rows.cast({"seed": pl.Int32}))), "has other columns"),
    "another order": (lambda rows, name: seal(name, parquet(rows[rows.columns[::-1]])), "has other columns"),
    "no run_id": (lambda rows, name: seal(name, parquet(rows.drop("run_id"))), "has other columns|can't be read"),
}


@pytest.mark.parametrize("columns", [None, KEYS])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_noticed(published: Path, folder: Path, kind: str, columns: list[str] | None) -> None:
    make, complaint = FOREIGN[kind]
    path = folder / published.name
    path.write_bytes(make(read_rows([published]), published.name))
    with pytest.raises(DamagedError, match=complaint):
        read_rows([path], columns)


def test_a_whole_file_under_another_name_is_noticed(published: Path, folder: Path) -> None:
    for name in (f"{chunk_id(['other'])}.parquet", f"{published.name}.parquet", published.name[:-1]):
        shutil.copy(published, folder / name)
        with pytest.raises(DamagedError, match=r"^does not match its checksum: it was changed, renamed,"):
            read_rows([folder / name])


def test_any_reader_of_parquet_can_read_the_files(published: Path) -> None:
    rows = read_rows([published])
    assert rows.schema == SCHEMA
    assert pl.read_parquet(published).equals(rows)
    assert pl.scan_parquet(published.parent).collect().equals(rows)


@pytest.mark.parametrize("columns", [KEYS, KEYS[::-1], ["seed", "curve", "run_id"]])
def test_some_columns_can_be_read_alone(published: Path, columns: list[str]) -> None:
    assert read_rows([published], columns).equals(read_rows([published])[columns])


def test_a_damaged_file_under_the_name_is_kept_and_told(published: Path, folder: Path) -> None:
    path = folder / published.name
    path.write_bytes(b"damaged")
    with pytest.raises(OSError, match="the file is no Parquet file") as caught:
        publish_rows(folder, read_rows([published]))
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(path))
    assert path.read_bytes() == b"damaged"
    assert names(folder) == [path.name]


def test_what_one_process_left_is_cleared_and_nothing_else(folder: Path) -> None:
    host = socket.gethostname()
    (folder / f".a~12345@{host}~01234567.tmp").write_text("half")
    kept = [f".a~1234@{host}~01234567.tmp", ".a~12345@elsewhere~01234567.tmp", "a.parquet"]
    for name in kept:
        (folder / name).write_text("kept")
    clear_left(folder, 12345)
    assert names(folder) == sorted(kept)


def test_a_file_from_elsewhere_is_published_as_it_is(published: Path, folder: Path) -> None:
    content, run_ids = published.read_bytes(), read_rows([published])["run_id"].to_list()
    assert publish_sealed(folder, published.name, content, [*run_ids, "another"]) is True
    assert (folder / published.name).read_bytes() == content


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda name, content, ids: (name, content[:300] + b"x" + content[301:], ids), "does not match its checksum"),
        (lambda name, content, ids: (name, content[:-9], ids), "is cut short or damaged"),
        (lambda name, content, ids: (f"../{name}", content, ids), "does not match its checksum"),
        (lambda name, content, ids: ("../a", seal("../a", unseal(name, content)), ids), "has other runs"),
        (lambda name, content, ids: (name, content, ids[:1]), "has other runs than it should"),
    ],
    ids=["changed", "cut", "renamed", "sealed under another name", "other runs"],
)
def test_a_file_from_elsewhere_that_is_not_as_it_should_be_is_refused(
    change: Callable[[str, bytes, list[str]], tuple[str, bytes, list[str]]],
    complaint: str,
    published: Path,
    tmp_path: Path,
) -> None:
    (folder := tmp_path / "inner").mkdir()
    given = change(published.name, published.read_bytes(), read_rows([published])["run_id"].to_list())
    with pytest.raises(DamagedError, match=complaint):
        publish_sealed(folder, *given)
    assert [path.name for path in tmp_path.rglob("*")] == ["inner"]
