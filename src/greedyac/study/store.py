"""The store: a folder of immutable Parquet files, the only truth about what was run.

A file counts if it is whole: sealed, with a store's columns, and with the runs that its name says. Equal rows may stand
in two files; every reader keeps one per run. Nothing is ever deleted that is not known to be kept elsewhere, but for
what a stop on purpose left half-written.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from greedyac.core.atomic import all_left_behind, put_if_absent, temporary_file, write_atomically
from greedyac.core.errors import EnvError, InputError
from greedyac.core.hashing import short_hash
from greedyac.core.lock import locked
from greedyac.execution.rows import failed_row
from greedyac.results.files import DamagedError, OtherVersionError, chunk_id, publish_rows, read_rows, rows_path
from greedyac.results.schema import SCHEMA
from greedyac.study.spec import Study, parse_study
from greedyac.training.config import Run

ROWS_PER_FILE = 10_000
"""How many runs `compact` puts into one file."""
FILES_AT_ONCE = 500
CIRCUMSTANCES = ("versions", "cpu", "seconds")
"""The columns in which two rows of the same run may differ."""


class Fault(NamedTuple):
    """A file that is not what it should be."""

    path: Path
    problem: str
    proven: bool = True
    """Whether it is damaged or foreign beyond doubt, and not just unreadable here and now."""
    whole: bool = False
    """Whether nothing is wrong with the file, but an environment that it names can't be made here."""

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name} {self.problem}"


class Contents(NamedTuple):
    """What a store holds, and what is wrong with it."""

    rows: pl.DataFrame
    """One row per run."""
    faults: list[Fault]


class Store:
    """A folder with `chunks/`, `studies/` and `failed/`; what was damaged lies in `aside/`."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self.chunks, self.studies, self.failed = (self.folder / part for part in ("chunks", "studies", "failed"))
        self.aside = self.folder / "aside"

    @classmethod
    def existing(cls, folder: str | os.PathLike[str]) -> "Store":
        """The store in a folder."""
        store = cls(folder)
        if not store._is_there():
            where = repr(str(store.folder))
            raise InputError(f"there is no store at {where}; allowed: a folder that `greedyac sweep` filled")
        return store

    @classmethod
    def planned(cls, folder: str | os.PathLike[str]) -> "Store":
        """The store in a folder, or one that could be made there; nothing is written."""
        store = cls(folder)
        folder = store.folder
        try:
            if not store._is_there() and folder.exists() and (not folder.is_dir() or store._holds_other_things()):
                known = "holds other things and no store" if folder.is_dir() else "is no folder"
                raise InputError(f"the store {str(folder)!r} {known}; allowed: a store, or a new folder")
        except OSError as error:
            raise InputError(f"the store {str(folder)!r} can't be used: {error.strerror}") from None
        return store

    def _is_there(self) -> bool:
        try:
            return self.chunks.is_dir() and self.studies.is_dir()
        except OSError:  # as for a name that is too long
            return False

    def _holds_other_things(self) -> bool:
        """Whether the folder, which is no store, has more in it than what a store begins with."""
        parts = (self.chunks, self.studies, self.failed)
        return any(path not in parts or not path.is_dir() or any(path.iterdir()) for path in self.folder.iterdir())

    @classmethod
    def create(cls, folder: str | os.PathLike[str]) -> "Store":
        """The store in a folder, which is made if it is not there."""
        store = cls.planned(folder)
        try:
            for part in (store.chunks, store.studies, store.failed):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"the store {str(store.folder)!r} can't be written: {error.strerror}") from None
        return store

    def check_writable(self) -> None:
        """Refuse a store to which nothing can be added, before something is trained for it."""
        try:
            for part in (self.chunks, self.studies, self.failed):
                with temporary_file(part / "trial", b""):
                    pass
        except OSError as error:
            raise InputError(f"the store {str(self.folder)!r} can't be written: {error.strerror}") from None

    def read(self, columns: list[str] | None = None) -> Contents:
        """All runs, or some columns of them with `run_id` among these; runs that only failed come last."""
        rows, _, faults = self._read_chunks(columns)
        failures, damaged = self._failures()
        failed = pl.DataFrame(failures, SCHEMA).select(rows.columns)
        return Contents(_one_per_run(pl.concat([rows, failed])), faults + damaged)

    def statuses(self) -> dict[str, str]:
        """Run → `done`, `diverged` or `failed`."""
        rows = self.read(["run_id", "status"]).rows
        return dict(zip(rows["run_id"], rows["status"], strict=True))

    def _read_chunks(self, columns: list[str] | None = None) -> tuple[pl.DataFrame, list[Path], list[Fault]]:
        """The rows of all whole files, in order of their names; those files; and the others.

        Files may come and go meanwhile, as when somebody else sweeps or compacts, and a listing may then miss both the
        old and the new: so it is repeated until there is nothing new in it.
        """
        read: dict[Path, pl.DataFrame | Fault] = {}
        fresh = _visible(self.chunks) or _visible(self.chunks)
        while fresh:
            with suppress(FileNotFoundError):  # merged with others since it was listed
                for first in range(0, len(fresh), FILES_AT_ONCE):
                    read |= _read_files(fresh[first : first + FILES_AT_ONCE], columns)
            fresh = [path for path in _visible(self.chunks) if path not in read]
        whole = {path: found for path, found in sorted(read.items()) if not isinstance(found, Fault)}
        faults = [found for found in read.values() if isinstance(found, Fault)]
        return pl.concat([read_rows([], columns), *whole.values()]), list(whole), sorted(faults)

    def _failures(self) -> tuple[list[dict[str, Any]], list[Fault]]:
        """The rows of runs whose chunks kept failing, and files that are not what they should be."""
        rows, faults = [], []
        for path in _visible(self.failed):
            try:
                told = json.loads(path.read_bytes())
                runs = [Run.from_json(run) for run in told["runs"]]
                if told.pop("checksum") != short_hash(json.dumps(told)) or path != self._failure_path(runs):
                    raise ValueError("it was changed")
                rows += [failed_row(run, told["error"]) for run in runs]
            except EnvError as error:
                faults.append(Fault(path, f"can't be used here: {error}", whole=True))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
                faults.append(Fault(path, "is no record of a failure, or was changed"))
        return rows, faults

    def _failure_path(self, runs: Sequence[Run]) -> Path:
        return self.failed / f"{chunk_id(run.run_id for run in runs)}.json"

    def record_failure(self, runs: Sequence[Run], error: str, attempts: int) -> None:
        """Remember that runs can't be trained."""
        told = {"error": error, "attempts": attempts, "runs": [run.to_json() for run in runs]}
        content = json.dumps({**told, "checksum": short_hash(json.dumps(told))}, indent=1) + "\n"
        write_atomically(self._failure_path(runs), content.encode())

    def record_study(self, study: Study) -> None:
        """Remember what was asked for."""
        path = self.studies / f"{short_hash(study.text)}.toml"
        if not path.exists():
            put_if_absent(path, study.text.encode())

    def asked(self) -> tuple[list[Study], list[Fault]]:
        """The studies that were swept here, and files that are none, at least here and for this version."""
        studies, faults = [], []
        for path in _visible(self.studies):
            if fault := _changed_text(path):
                faults.append(fault)
                continue
            try:
                studies.append(parse_study(path.read_bytes().decode()))
            except EnvError as error:
                faults.append(Fault(path, f"can't be used here: {error}", whole=True))
            except InputError as error:
                faults.append(Fault(path, f"can't be used by this version: {error}"))
        return studies, faults

    def set_aside(self) -> list[Fault]:
        """Move what is damaged, foreign or was left half-written out of the way, to `aside/`; what is empty goes."""
        studies = [fault for path in _visible(self.studies) if (fault := _changed_text(path))]
        failures = [fault for fault in self._failures()[1] if not fault.whole]
        found = [*self._read_chunks(["run_id"])[2], *failures, *studies, *self._left_behind()]
        for fault in found:
            if not fault.proven:
                raise InputError(f"the store {str(self.folder)!r} can't be used: {fault}")
        for path in filter(_is_empty, self._left()):
            path.unlink(missing_ok=True)
        for fault in found:
            self.aside.mkdir(exist_ok=True)
            target, number = self.aside / fault.path.name.lstrip("."), 1
            while target.exists():
                number += 1
                target = self.aside / f"{fault.path.name.lstrip('.')}.{number}"
            with suppress(FileNotFoundError):  # another sweep was faster
                fault.path.rename(target)
        return found

    def clear_left(self) -> None:
        """Remove what workers that were stopped on purpose left half-written."""
        for path in self._left():
            path.unlink(missing_ok=True)

    def _left(self) -> list[Path]:
        return [path for part in (self.chunks, self.studies, self.failed) for path in all_left_behind(part)]

    def _left_behind(self) -> list[Fault]:
        """What was left half-written; of an empty file there is nothing to tell."""
        return [Fault(path, "was left half-written") for path in self._left() if not _is_empty(path)]

    def verify(self) -> list[str]:
        """Everything that is wrong, in words."""
        rows, whole, faults = self._read_chunks()
        found = [*faults, *self._failures()[1], *self.asked()[1], *self._left_behind()]
        return [*(str(fault) for fault in found if not fault.whole), *_contradictions(rows, whole)]

    def compact(self) -> tuple[int, int]:
        """Merge the files of rows into few; returns how many there were and are.

        The new files are published before an old one goes, and only those go whose rows are all in the new ones.
        """
        with locked(self.chunks, f"the store {str(self.folder)!r} is being compacted by another process"):
            rows, whole, _ = self._read_chunks()
            if wrong := _contradictions(rows, whole):
                raise InputError(f"the store can't be compacted: {wrong[0]}")
            rows = _one_per_run(rows).sort("env", "agent", "setting_id", "seed", "run_id")
            merged = [rows[first : first + ROWS_PER_FILE] for first in range(0, rows.height, ROWS_PER_FILE)]
            for part in merged:
                publish_rows(self.chunks, part)
            kept = {rows_path(self.chunks, part["run_id"]) for part in merged}
            for path in set(whole) - kept:
                path.unlink(missing_ok=True)
        return len(whole), len(kept)


def _read_files(paths: list[Path], columns: list[str] | None) -> dict[Path, pl.DataFrame | Fault]:
    """The rows of files, or what is wrong with them, found by halving. Rows of several files stand with the first."""
    try:
        return {paths[0]: read_rows(paths, columns), **dict.fromkeys(paths[1:], read_rows([], columns))}
    except FileNotFoundError:
        if len(paths) == 1:
            if not paths[0].is_symlink():
                raise
            return {paths[0]: Fault(paths[0], "is a link to nowhere")}
    except (DamagedError, OSError) as error:
        if len(paths) == 1:
            return {paths[0]: _fault(paths[0], error)}
    half = len(paths) // 2
    return _read_files(paths[:half], columns) | _read_files(paths[half:], columns)


def _fault(path: Path, error: DamagedError | OSError) -> Fault:
    if isinstance(error, IsADirectoryError):
        return Fault(path, "is a folder")
    if isinstance(error, OSError):
        return Fault(path, f"can't be read: {error.strerror}", proven=False)
    return Fault(path, str(error), proven=not isinstance(error, OtherVersionError))


def _visible(folder: Path) -> list[Path]:
    """The files of a folder by name, without hidden ones."""
    return sorted(path for path in folder.glob("*") if not path.name.startswith("."))


def _is_empty(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_size == 0
    return True


def _changed_text(path: Path) -> Fault | None:
    """What is wrong with the file of a study, whose name is a hash of its text."""
    try:
        same = path.name == f"{short_hash(path.read_bytes().decode())}.toml"
    except (OSError, UnicodeDecodeError):
        same = False
    return None if same else Fault(path, "holds another text than its name says")


def _one_per_run(rows: pl.DataFrame) -> pl.DataFrame:
    """The first row of each run."""
    return rows.unique("run_id", keep="first", maintain_order=True)


def _contradictions(rows: pl.DataFrame, whole: list[Path]) -> list[str]:
    """Runs that stand in two of the files with different numbers, in words."""
    numbers = rows.filter(pl.col("run_id").is_duplicated()).drop(CIRCUMSTANCES).unique()
    wrong = numbers.filter(pl.col("run_id").is_duplicated())["run_id"].unique().sort()
    if wrong.is_empty():
        return []
    holders = {path.name: set(read_rows([path], ["run_id"])["run_id"]) for path in whole}
    told = []
    for run_id in wrong:
        files = " and ".join(name for name, run_ids in holders.items() if run_id in run_ids)
        made = rows.filter(pl.col("run_id") == run_id).select("versions", "cpu").n_unique()
        where = "on the same software and processor" if made == 1 else "on different software or processors"
        told.append(f"run {run_id} has different numbers in {files}, {where}")
    return told
