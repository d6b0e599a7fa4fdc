"""Locks on folders: one process at a time, gone with the process, and without a trace."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import NEEDS_PROC, PROGRAM, alive, end_tree, trainers_of, wait_for

from greedyac.cli import main
from greedyac.core import lock
from greedyac.core.errors import InputError
from greedyac.core.lock import LOCK, locked
from greedyac.study.store import Store

HOLDER = """
import sys
from pathlib import Path
from greedyac.core.lock import locked
with locked(Path(sys.argv[1]), "it is taken"):
    print("held", flush=True)
    sys.stdin.read()
"""
TRAIN = ["train", "vanilla-ac", "Pendulum-CA", "--hidden", "4", "--batch-size", "8", "--replay-capacity", "100"]


@contextmanager
def held_elsewhere(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process holds the lock of a folder."""
    words = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_lock_is_for_one_process_and_leaves_no_trace(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path), pytest.raises(InputError, match=r"^taken$"), locked(tmp_path, "taken"):
        pass
    with locked(tmp_path, "taken"):  # that process was killed
        assert (tmp_path / LOCK).exists()
    assert contents(tmp_path) == {}


def test_who_held_a_folder_that_was_removed_leaves_the_next_ones_lock_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with locked(folder, "taken"):
        shutil.rmtree(folder)
        folder.mkdir()
        with held_elsewhere(folder) as other:
            with pytest.raises(InputError), locked(folder, "taken"):
                pass
            assert other.poll() is None
            assert (folder / LOCK).exists()
            held = (folder / LOCK).stat().st_ino
    assert (folder / LOCK).stat().st_ino == held  # that process was killed, and its file is not ours to remove


def test_the_file_of_another_user_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LOCK).touch()
    opened = os.open

    def only_to_read(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_RDWR and Path(path).name == LOCK:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", only_to_read)
    with held_elsewhere(tmp_path), pytest.raises(InputError), locked(tmp_path, "taken"):
        pass
    with locked(tmp_path, "taken"):
        pass


def test_where_files_cannot_be_told_apart_there_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with locked(tmp_path, "taken"), locked(tmp_path, "taken"):
        pass


def test_a_lock_whose_file_its_holder_has_just_removed_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, times = lock._take, []

    def slow(descriptor: int) -> bool:
        times.append(descriptor)
        if len(times) == 1:  # the holder ends between opening and locking
            (tmp_path / LOCK).unlink()
        return take(descriptor)

    monkeypatch.setattr(lock, "_take", slow)
    with locked(tmp_path, "taken"):
        assert len(times) == 2
        monkeypatch.undo()
        with pytest.raises(InputError, match="taken"), locked(tmp_path, "taken"):
            pass


def test_a_file_that_can_only_be_read_and_not_be_locked_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of another user on NFS, who holds the lock."""

    def refused(path: object, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError
        return os_open(path, flags, *mode)  # type: ignore[arg-type]

    def unsupported(descriptor: int) -> bool:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    os_open = os.open
    with locked(tmp_path, "taken"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refused)
            patch.setattr(lock, "_take", unsupported)
            with locked(tmp_path, "taken"):
                pass
        with pytest.raises(InputError, match="taken"), locked(tmp_path, "taken"):
            pass


def test_without_locks_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int) -> bool:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(lock, "_take", unsupported)
    with locked(tmp_path, "taken"), locked(tmp_path, "taken"):
        pass
    assert contents(tmp_path) == {}
    with locked(tmp_path / "nowhere", "taken"):
        assert not (tmp_path / "nowhere").exists()


def test_a_store_that_is_being_compacted_is_told(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store")
    with held_elsewhere(store.chunks), pytest.raises(InputError, match="is being compacted by another process"):
        store.compact()
    assert store.compact() == (0, 0)


# --- the commands


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    train = [*TRAIN, "--steps", "50", "--checkpoint-every", "10", "--out", str(out)]
    with held_elsewhere(out):
        before = contents(tmp_path)
        for words in (train, [*train, "--overwrite"], ["resume", str(out)], ["demo", "--out", str(out)]):
            assert main(words) == 2
            [line] = capsys.readouterr().err.splitlines()
            assert f"output folder {str(out)!r} is in use by another greedyac train, resume or demo" in line
            assert contents(tmp_path) == before
    assert main(train) == 0
    assert not (out / LOCK).exists()


@NEEDS_PROC
def test_a_training_holds_its_folder_until_it_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its workers, stopped where they are, don't keep the lock."""
    out = tmp_path / "out"
    words = [*TRAIN, "--steps", "1000000", "--checkpoint-every", "1000", "--workers", "1", "--out", str(out)]
    training = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.DEVNULL)
    workers: list[int] = []
    try:
        wait_for(lambda: list((out / "unfinished").glob("*.middle.safetensors")), "a checkpoint")
        for again in (["resume", str(out)], words, [*words, "--overwrite"]):
            assert main(again) == 2
            assert "is in use by another greedyac train" in capsys.readouterr().err
        assert training.poll() is None
        workers = trainers_of(training.pid)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        training.kill()
        training.wait()
        assert workers
        assert all(map(alive, workers))
        with locked(out, "the workers keep it"):
            pass
    finally:
        end_tree(training)
        for worker in filter(alive, workers):
            os.kill(worker, signal.SIGKILL)


def test_trainings_started_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, "train", "random", "Pendulum-CA", "--steps", "300"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    both = [subprocess.Popen([*words, "--seeds", str(seed)], cwd=tmp_path, **quiet) for seed in range(2)]
    assert [training.wait() for training in both] == [0, 0]
    folders = [tmp_path / "runs" / f"random-Pendulum-CA-{index}" for index in range(2)]
    seeds = [json.loads((folder / "summary.json").read_text())["seeds"] for folder in folders]
    assert sorted(seeds) == [[0], [1]]
