"""The store: a folder of immutable Parquet files, the only truth about what was run.

A file counts if it is whole: sealed, with a store's columns, and with the runs that its name says. Equal rows may stand
in two files; every reader keeps one per run. Nothing is ever deleted that is not known to be kept elsewhere.
"""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from greedyac.errors import InputError
from greedyac.study.spec import Study, parse_study
from greedyac.training.chunk import Chunk
from greedyac.training.files import (
    DamagedError,
    left_behind,
    publish_rows,
    put_if_absent,
    read_rows,
    rows_path,
    write_atomically,
)
from greedyac.training.rows import SCHEMA, failed_row
from greedyac.training.runs import Run

ROWS_PER_FILE = 10_000
"""How many runs `compact` puts into one file."""
FILES_AT_ONCE = 500
CIRCUMSTANCES = ("versions", "cpu", "seconds")
"""The columns in which two rows of the same run may differ."""
_ID_LENGTH = 20


class Fault(NamedTuple):
    """A file that is not what it should be."""

    path: Path
    problem: str

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name} {self.problem}"


class Contents(NamedTuple):
    """What a store holds, and what is wrong with it."""

    rows: pl.DataFrame
    """One row per run."""
    faults: list[Fault]


class Store:
    """A folder with `chunks/`, `studies/` and `failed/`; what was damaged lies in `aside/`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.chunks, self.studies, self.failed = folder / "chunks", folder / "studies", folder / "failed"
        self.aside = folder / "aside"

    @classmethod
    def existing(cls, folder: Path) -> "Store":
        """The store in a folder."""
        if not (folder / "chunks").is_dir():
            raise InputError(f"there is no store at {str(folder)!r}; allowed: a folder that `greedyac sweep` filled")
        return cls(folder)

    @classmethod
    def planned(cls, folder: Path) -> "Store":
        """The store in a folder, or one that could be made there; nothing is written."""
        if folder.exists() and not (folder / "chunks").is_dir() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"the folder {str(folder)!r} holds other things and no store; allowed: a store, or a new folder"
            )
        return cls(folder)

    @classmethod
    def create(cls, folder: Path) -> "Store":
        """The store in a folder, which is made if it is not there."""
        try:
            store = cls.planned(folder)
            for part in (store.chunks, store.studies, store.failed):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"the store {str(folder)!r} can't be written: {error.strerror}") from None
        return store

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
        """The rows of all whole files, in order of their names; those files; and the others."""
        while True:
            paths, parts = _visible(self.chunks), [([read_rows([], columns)], list[Path](), list[Fault]())]
            try:
                for first in range(0, len(paths), FILES_AT_ONCE):
                    parts.append(_read_whole(paths[first : first + FILES_AT_ONCE], columns))
            except FileNotFoundError:
                continue  # compacted since the folder was listed: its rows are in another file now
            frames, whole, faults = (list(itertools.chain(*lists)) for lists in zip(*parts, strict=True))
            return pl.concat(frames), whole, faults

    def _failures(self) -> tuple[list[dict[str, Any]], list[Fault]]:
        """The rows of runs whose chunks kept failing, and files that are not what they should be."""
        rows, faults = [], []
        for path in _visible(self.failed):
            try:
                told = json.loads(path.read_bytes())
                rows += [failed_row(Run.from_json(run), str(told["error"])) for run in told["runs"]]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
                faults.append(Fault(path, "is no record of a failure"))
        return rows, faults

    def record_failure(self, chunk: Chunk, error: str, attempts: int) -> None:
        """Remember that a chunk can't be trained."""
        told = {"error": error, "attempts": attempts, "runs": [run.to_json() for run in chunk.runs]}
        content = json.dumps(told, indent=1) + "\n"
        write_atomically(self.failed / f"{chunk.chunk_id}.json", content.encode())

    def record_study(self, study: Study) -> None:
        """Remember what was asked for."""
        put_if_absent(self.studies / _study_name(study.text), study.text.encode())

    def asked(self) -> tuple[dict[Path, Study], list[Fault]]:
        """The studies that were swept here, and files that are none."""
        studies, faults = {}, []
        for path in _visible(self.studies):
            try:
                text = path.read_bytes().decode()
                if path.name != _study_name(text):
                    raise InputError("holds another text than its name says")
                studies[path] = parse_study(text)
            except UnicodeDecodeError:
                faults.append(Fault(path, "is no text"))
            except (InputError, OSError) as error:
                faults.append(Fault(path, f"can't be used: {error}"))
        return studies, faults

    def set_aside(self) -> list[Fault]:
        """Move what is damaged, foreign or was left half-written out of the way, to `aside/`."""
        found = [*self._read_chunks(["run_id", "status"])[2], *self._failures()[1], *self._left_behind()]
        for fault in found:
            self.aside.mkdir(exist_ok=True)
            target, number = self.aside / fault.path.name.lstrip("."), 1
            while target.exists():
                number += 1
                target = self.aside / f"{fault.path.name.lstrip('.')}.{number}"
            fault.path.rename(target)
        return found

    def _left_behind(self) -> list[Fault]:
        paths = [path for part in (self.chunks, self.studies, self.failed) for path in sorted(part.glob(".*.tmp"))]
        return [Fault(path, "was left half-written") for path in paths if left_behind(path)]

    def verify(self) -> list[str]:
        """Everything that is wrong, in words."""
        rows, whole, faults = self._read_chunks()
        found = [*faults, *self._failures()[1], *self.asked()[1], *self._left_behind()]
        return [*map(str, found), *_contradictions(rows, whole)]

    def compact(self) -> tuple[int, int]:
        """Merge the files of rows into few; returns how many there were and are.

        The new files are published before an old one goes, and only those go whose rows are all in the new ones.
        """
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


def _read_whole(paths: list[Path], columns: list[str] | None) -> tuple[list[pl.DataFrame], list[Path], list[Fault]]:
    """The rows of those files that are whole, those files, and the others: found by halving."""
    try:
        return [read_rows(paths, columns)], paths, []
    except (DamagedError, IsADirectoryError) as error:
        if len(paths) == 1:
            problem = str(error) if isinstance(error, DamagedError) else "is a folder"
            return [], [], [Fault(paths[0], problem)]
    half = len(paths) // 2
    first, second = _read_whole(paths[:half], columns), _read_whole(paths[half:], columns)
    return first[0] + second[0], first[1] + second[1], first[2] + second[2]


def _visible(folder: Path) -> list[Path]:
    """The files of a folder by name, without hidden ones."""
    return sorted(path for path in folder.glob("*") if not path.name.startswith("."))


def _study_name(text: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]}.toml"


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
