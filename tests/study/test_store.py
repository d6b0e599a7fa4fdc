"""The store: what it holds whatever its files went through, and `greedyac store` and `greedyac status`."""

import errno
import io
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import polars as pl
import pytest

from greedyac.cli import main
from greedyac.core.atomic import put_if_absent
from greedyac.core.errors import InputError
from greedyac.core.hashing import short_hash
from greedyac.execution.chunk import Chunk, train_chunk
from greedyac.results.files import publish_rows, read_rows, rows_path, seal
from greedyac.results.schema import SCHEMA
from greedyac.study import store as store_module
from greedyac.study.spec import parse_study
from greedyac.study.status import StudyStatus, status
from greedyac.study.store import Store
from greedyac.training.config import Run, RunConfig

CASE = RunConfig("random", "Pendulum-CA", steps=1000)
RUNS = [Run(CASE, seed) for seed in range(10)]
IDS = [run.run_id for run in RUNS]
STUDY = 'name = "tiny"\nsteps = 1000\nseeds = "{}"\n[[cells]]\nagents = ["random"]\nenvs = ["Pendulum-CA"]\n'


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with seeds 0 to 3 in one file and 4 and 5 in another, of a study of seeds 0 to 7."""
    store = Store.create(tmp_path_factory.mktemp("original") / "store")
    for runs in (RUNS[:4], RUNS[4:6]):
        train_chunk(Chunk(runs, 2, store.chunks), lambda steps: None)
    store.record_study(parse_study(STUDY.format("0-7")))
    return store.folder


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Store:
    return Store.existing(shutil.copytree(original, tmp_path / "store"))


def files(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def spread(store: Store) -> None:
    """Put every run into a file of its own."""
    rows = store.read().rows
    for path in list(store.chunks.iterdir()):
        path.unlink()
    for number in range(rows.height):
        publish_rows(store.chunks, rows[number : number + 1])


def chunk_file(store: Store, runs: list[Run]) -> Path:
    return rows_path(store.chunks, [run.run_id for run in runs])


def fail(store: Store, *runs: Run, error: str = "signal 9") -> Path:
    chunk = Chunk(runs, 2, store.chunks)
    store.record_failure(chunk.runs, error, 3)
    return store.failed / f"{chunk.chunk_id}.json"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def other_columns(path: Path) -> None:
    path.unlink()
    path.write_bytes(seal(path.name, parquet(pl.DataFrame({"run_id": IDS[:4], "status": 4 * ["done"]}))))


def parquet(rows: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    return buffer.getvalue()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: path.write_bytes(b""), "is empty"),
    "text": (lambda path: path.write_text("seed,return\n"), "is no Parquet file"),
    "cut": (lambda path: os.truncate(path, path.stat().st_size // 2), "is cut short"),
    "flipped": (flip, "does not match its checksum"),
    "renamed": (lambda path: path.rename(path.with_name("a.parquet")), "does not match its checksum"),
    "unsealed": (lambda path: path.write_bytes(parquet(read_rows([path]))), "does not match its checksum"),
}


def test_a_new_store_has_its_folders_and_a_planned_one_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "store"
    assert Store.planned(folder).statuses() == {}
    assert list(tmp_path.iterdir()) == []
    store = Store.create(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["chunks", "failed", "studies"]
    assert Store.existing(folder).read().rows.schema == SCHEMA
    assert Store.create(folder).verify() == store.verify() == []
    assert store.compact() == (0, 0)


def test_a_store_is_found_by_any_kind_of_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(os.PathLike[str]):
        def __fspath__(self) -> str:
            return str(tmp_path / "store")

    paths: tuple[str | os.PathLike[str], ...] = ("store", str(tmp_path / "store"), Elsewhere())
    monkeypatch.chdir(tmp_path)
    for path in paths:
        for make in (Store.planned, Store.create, Store.existing, Store):
            assert make(path).statuses() == {}
    for path in paths:
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        (tmp_path / "store").write_text("mine")
        for make in (Store.planned, Store.create, Store.existing):
            with pytest.raises(InputError, match=r"store' is no folder|no store at '.*store'"):
                make(path)
        (tmp_path / "store").unlink()


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for make in (Store.planned, Store.create):
        for path in (tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(
                InputError, match=f"'{path}' (holds other things and no store|is no folder); allowed: a store, or"
            ):
                make(path)
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "nowhere"):
        with pytest.raises(InputError, match=f"there is no store at '{path}'; allowed: a folder that `greedyac sweep`"):
            Store.existing(path)
    assert files(tmp_path) == {"notes.txt": b"mine"}


def test_an_unwritable_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/store' can't be written: Not a directory$"):
        Store.create(tmp_path / "file" / "store")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(InputError, match=r"store' can't be written: Read-only file system$"):
        Store.create(tmp_path / "store")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=r"can't be written: Permission denied$"):
        Store.create(tmp_path / "store")


def test_every_run_is_read_once_from_whichever_files_hold_it(store: Store) -> None:
    before = store.read()
    assert sorted(before.rows["run_id"]) == sorted(IDS[:6])
    assert before.faults == []
    later = before.rows.with_columns(seconds=pl.lit(7.0))
    publish_rows(store.chunks, later[1:5])
    rows = store.read().rows
    assert sorted(rows["run_id"]) == sorted(IDS[:6])
    first = {run_id: path for path in sorted(store.chunks.iterdir())[::-1] for run_id in read_rows([path])["run_id"]}
    for run_id, path in first.items():
        wanted = read_rows([path]).filter(pl.col("run_id") == run_id)
        assert rows.filter(pl.col("run_id") == run_id).equals(wanted)
    assert store.read().rows.equals(rows)
    for columns in (["run_id", "status"], ["status", "run_id"], ["curve", "run_id"]):
        assert store.read(columns).rows.equals(rows[columns])


def test_failed_runs_are_rows_until_they_are_done(store: Store) -> None:
    fail(store, RUNS[7], RUNS[0])
    fail(store, RUNS[6], error="it was\nkilled")
    rows = store.read().rows
    assert rows.schema == SCHEMA
    assert rows["status"].to_list() == 6 * ["done"] + 2 * ["failed"]
    assert dict(rows.filter(status="failed").select("run_id", "error").iter_rows()) == {
        IDS[6]: "it was\nkilled",
        IDS[7]: "signal 9",
    }
    last = rows.filter(run_id=IDS[6]).row(0, named=True)
    assert (last["seed"], last["agent"], last["env"], last["steps"]) == (6, "random", "Pendulum-CA", 1000)
    assert store.statuses() == {**dict.fromkeys(IDS[:6], "done"), **dict.fromkeys(IDS[6:8], "failed")}
    assert store.verify() == []


def unreadable(path: Path) -> None:
    """Reading it fails, as on a disk or a network with trouble: a loop of links does so even for root."""
    path.rename(path.with_name(".true"))
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [(other_columns, "written by another version of greedyac"), (unreadable, "can't be read: Too many levels of symb")],
)
def test_what_may_be_good_elsewhere_or_later_stops_a_sweep_and_is_not_moved(
    store: Store, spoil: Callable[[Path], object], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spoil(chunk_file(store, RUNS[:4]))
    before = sorted(store.folder.rglob("*"))
    (study := tmp_path / "study.toml").write_text(STUDY.format("0-7"))
    assert main(["sweep", str(study), "--store", str(store.folder)]) == 2
    assert complaint in capsys.readouterr().err
    assert sorted(store.folder.rglob("*")) == before
    assert main(["store", "verify", str(store.folder)]) == 1


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_told_and_set_aside_as_it_is(store: Store, kind: str) -> None:
    spoil, complaint = DAMAGE[kind]
    spoil(chunk_file(store, RUNS[:4]))
    before = files(store.folder)
    [fault] = store.read().faults
    assert complaint in fault.problem
    assert store.verify() == [str(fault)]
    assert str(fault) == f"chunks/{fault.path.name} {fault.problem}"
    assert store.set_aside() == [fault]
    moved = before.pop(f"chunks/{fault.path.name}")
    assert files(store.folder) == {**before, f"aside/{fault.path.name}": moved}
    assert store.statuses() == dict.fromkeys(IDS[4:6], "done")
    assert (store.verify(), store.set_aside()) == ([], [])
    assert train_chunk(Chunk(RUNS[:4], 2, store.chunks), lambda steps: None).runs == 4
    assert sorted(store.statuses()) == sorted(IDS[:6])


@pytest.mark.parametrize("kind", DAMAGE)
def test_runs_of_a_damaged_file_do_not_count(store: Store, kind: str) -> None:
    DAMAGE[kind][0](chunk_file(store, RUNS[:4]))
    assert store.statuses() == dict.fromkeys(IDS[4:6], "done")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        '{"error": "x"}',
        '{"error": "x", "runs": ["y"]}',
        '{"error": "x", "runs": 3}',
        '{"error": "x", "runs": [{"agent": "greedy"}]}',
        json.dumps({"error": "x", "runs": [{**RUNS[8].to_json(), "agent": "greedy"}]}),
        json.dumps({"error": "x", "runs": [{**RUNS[8].to_json(), "seed": "8"}]}),
        json.dumps({"error": "x", "runs": [{**RUNS[8].to_json(), "steps": 1.5}]}),
        json.dumps({"error": "x", "runs": [RUNS[9].to_json()]}),
        100_000 * "[",
        "\0",
    ],
)
def test_a_damaged_record_of_a_failure_is_told_and_set_aside(store: Store, content: str) -> None:
    fail(store, RUNS[7])
    path = fail(store, RUNS[8])
    path.write_text(content)
    assert store.statuses() == {**dict.fromkeys(IDS[:6], "done"), IDS[7]: "failed"}
    assert store.verify() == [f"failed/{path.name} is no record of a failure, or was changed"]
    assert [fault.path for fault in store.set_aside()] == [path]
    assert (store.aside / path.name).read_text() == content
    assert store.verify() == []


def test_what_is_set_aside_never_replaces_what_is_there(store: Store) -> None:
    for number, name in enumerate(["a", "a.2", "a", "a", "a.2"]):
        (store.chunks / name).write_text(str(number))
        store.set_aside()
    (store.chunks / "a").mkdir()
    (store.chunks / "a" / "inside").write_text("5")
    store.set_aside()
    assert sorted(files(store.aside).values()) == [str(number).encode() for number in range(6)]
    assert sorted(store.statuses()) == sorted(IDS[:6])


def test_hidden_files_are_left_alone_unless_they_were_left_behind(store: Store) -> None:
    for part in (store.chunks, store.studies, store.failed):
        (part / ".nfs0001").write_text("in use")
        (part / f".a~{os.getpid()}@{os.uname().nodename}~01234567.tmp").write_text("being written")
        (part / ".b~7@elsewhere~01234567.tmp").write_text("half")
    assert (store.verify(), store.set_aside()) == ([], [])
    for part in (store.chunks, store.studies, store.failed):
        os.utime(part / ".b~7@elsewhere~01234567.tmp", (0, 0))
    named = [f"{part}/.b~7@elsewhere~01234567.tmp was left half-written" for part in ("chunks", "studies", "failed")]
    assert store.verify() == named
    assert list(map(str, store.set_aside())) == named
    assert list(files(store.aside).values()) == 3 * [b"half"]
    assert store.verify() == []
    assert len(list(store.folder.glob("*/.*"))) == 6


def test_what_stopped_workers_left_is_removed_and_what_is_being_written_stays(store: Store) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    host = os.uname().nodename
    (store.chunks / f".a~{gone.pid}@{host}~01234567.tmp").write_text("half")
    (store.chunks / f".b~{os.getpid()}@{host}~01234567.tmp").write_text("being written")
    before = store.statuses()
    store.clear_left()
    assert [path.name[:2] for path in store.chunks.glob(".*")] == [".b"]
    assert store.statuses() == before


def test_an_empty_file_that_was_left_goes_without_a_word(store: Store) -> None:
    (store.chunks / ".sweep~7@elsewhere~01234567.tmp").touch()
    os.utime(store.chunks / ".sweep~7@elsewhere~01234567.tmp", (0, 0))
    assert (store.verify(), store.set_aside()) == ([], [])
    assert list(store.chunks.glob(".*")) == []
    assert not store.aside.exists()


def test_two_sweeps_may_set_the_same_file_aside(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(chunk_file(store, RUNS[:4]))
    (store.chunks / "foreign").touch()
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        monkeypatch.undo()
        Store(store.folder).set_aside()  # the other sweep is faster
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    store.set_aside()
    assert sorted(files(store.aside)) == sorted([chunk_file(store, RUNS[:4]).name, "foreign"])


def test_a_link_to_nowhere_is_a_fault(store: Store) -> None:
    (store.chunks / "foreign").symlink_to(store.folder / "nowhere")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(store.verify()), daemon=True)
    thread.start()
    thread.join(3)
    (store.chunks / "foreign").unlink()  # lets a reader go on that tries again and again
    thread.join(3)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("column", "value", "wrong"),
    [
        ("average_return", 1.0, True),
        ("final_return", None, True),
        ("episodes", 5, True),
        ("curve", [1.0], True),
        ("status", "diverged", True),
        ("seconds", 7.0, False),
        ("cpu", "other", False),
        ("versions", "{}", False),
    ],
)
def test_runs_with_different_numbers_are_told(
    store: Store, column: str, value: Any, wrong: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    values = pl.Series([value], dtype=SCHEMA[column])
    publish_rows(store.chunks, store.read().rows.filter(run_id=IDS[0]).with_columns(values.alias(column)))
    assert main(["store", "verify", str(store.folder)]) == int(wrong)
    before = files(store.folder)
    said = capsys.readouterr()
    if wrong:
        one, other = sorted(path.name for path in (chunk_file(store, RUNS[:4]), chunk_file(store, RUNS[:1])))
        told = f"run {IDS[0]} has different numbers in {one} and {other}, on the same software and processor"
        assert (said.out, said.err) == ("", f"greedyac: {told}\n")
        with pytest.raises(InputError, match=f"^the store can't be compacted: {told}$"):
            store.compact()
        assert files(store.folder) == before
    else:
        assert (said.out, said.err) == (f"6 runs in {store.folder}, every file whole\n", "")
        assert store.compact() == (3, 1)


def test_numbers_that_are_no_numbers_are_equal(store: Store) -> None:
    nan = pl.lit(float("nan"))
    rows = store.read().rows[:2].with_columns(best_return=nan, curve=pl.concat_list(nan.cast(pl.Float32)))
    other = Store.create(store.folder / "other")
    publish_rows(other.chunks, rows)
    publish_rows(other.chunks, rows[:1])
    assert other.verify() == []
    assert other.compact() == (2, 1)


def test_compacting_keeps_every_row_and_twice_is_once(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    spread(store)
    fail(store, RUNS[7])
    before = store.read().rows.sort("run_id")
    publish_rows(store.chunks, before.filter(pl.col("status") == "done")[:3])
    assert main(["store", "compact", str(store.folder)]) == 0
    assert capsys.readouterr().out == f"files of runs: 7, now 1\n7 runs in {store.folder}, every file whole\n"
    compacted = files(store.folder)
    assert [name for name in compacted if name.startswith("chunks/")] == [f"chunks/{chunk_file(store, RUNS[:6]).name}"]
    assert store.read().rows.sort("run_id").equals(before)
    assert store.compact() == (1, 1)
    assert files(store.folder) == compacted


def test_files_have_a_largest_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "ROWS_PER_FILE", 4)
    spread(store)
    assert store.compact() == (6, 2)
    assert sorted(store.chunks.iterdir()) == sorted(chunk_file(store, runs) for runs in (RUNS[:4], RUNS[4:6]))


@pytest.mark.parametrize("published", [0, 1, 2])
def test_compacting_that_fails_or_is_killed_loses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, published: int
) -> None:
    """With 2: between publishing and removing."""
    spread(store)
    before, rows = files(store.folder), store.read().rows.sort("run_id")

    def stop(*_: object, **__: object) -> None:
        raise OSError("stop")

    def publish(folder: Path, rows: pl.DataFrame) -> bool:
        if len(list(folder.glob("*.parquet"))) == 6 + published:
            stop()
        return publish_rows(folder, rows)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "ROWS_PER_FILE", 3)
        patch.setattr(store_module, "publish_rows", publish)
        if published == 2:
            patch.setattr(store_module, "rows_path", stop)
        with pytest.raises(OSError, match="stop"):
            store.compact()
    after = files(store.folder)
    assert len(after) == len(before) + published
    assert before.items() <= after.items()
    assert store.verify() == []
    assert store.read().rows.sort("run_id").equals(rows)
    assert store.compact() == (6 + published, 1)
    assert store.read().rows.sort("run_id").equals(rows)


def test_compacting_leaves_damaged_files_alone(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    spread(store)
    flip(chunk_file(store, RUNS[:1]))
    damaged = chunk_file(store, RUNS[:1]).read_bytes()
    assert main(["store", "compact", str(store.folder)]) == 1
    assert "does not match its checksum" in capsys.readouterr().err
    assert sorted(store.chunks.iterdir()) == sorted([chunk_file(store, RUNS[:1]), chunk_file(store, RUNS[1:6])])
    assert chunk_file(store, RUNS[:1]).read_bytes() == damaged


def test_a_reader_sees_every_run_while_files_are_merged(store: Store) -> None:
    """Files are merged and spread again, as by many compactions, while another thread reads."""
    rows, seen, ended = store.read().rows, list[list[str]](), threading.Event()

    def read() -> None:
        while not ended.is_set():
            seen.append(sorted(store.read(["run_id"]).rows["run_id"]))

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(15):
        for number in range(rows.height):
            publish_rows(store.chunks, rows[number : number + 1])
        store.compact()
    ended.set()
    thread.join()
    assert len(seen) > 15
    assert [run_ids for run_ids in seen if run_ids != sorted(IDS[:6])] == []


@pytest.mark.parametrize("told", ["old", "none"])
def test_a_reader_whose_listing_is_outdated_lists_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Of a large folder the system tells names bit by bit: those that come and go meanwhile may both be missing."""
    spread(store)
    listing = Path.glob

    def slow(folder: Path, pattern: str) -> list[Path]:
        names = list(listing(folder, pattern))
        if folder != store.chunks:
            return names
        monkeypatch.undo()
        store.compact()
        return names if told == "old" else []

    monkeypatch.setattr(Path, "glob", slow)
    assert sorted(store.statuses()) == sorted(IDS[:6])


def test_two_compactions_at_once_lose_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = store.read().rows.sort("seed")
    for path in list(store.chunks.iterdir()):
        path.unlink()
    for part in (rows[0:1], rows[2:4]):
        publish_rows(store.chunks, part)
    monkeypatch.setattr(store_module, "ROWS_PER_FILE", 2)
    calls = []

    def publish(folder: Path, part: pl.DataFrame) -> bool:
        links = publish_rows(folder, part)
        calls.append(part["seed"].to_list())
        if len(calls) == 2:  # the last before the first compaction removes its files
            publish_rows(folder, rows[1:2])
            with pytest.raises(InputError, match=r"is being compacted by another process$"):
                Store(store.folder).compact()
        return links

    monkeypatch.setattr(store_module, "publish_rows", publish)
    store.compact()
    assert calls[:2] == [[0, 2], [3]]
    assert sorted(store.statuses()) == sorted(IDS[:4])


def test_status_counts_every_run_of_a_study_once(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.record_study(parse_study(STUDY.format("6-9")))  # 0-7 before
    store.record_study(parse_study(STUDY.format("4,20").replace("tiny", "another")))
    diverged = store.read().rows[:1].with_columns(run_id=pl.lit(IDS[6]), status=pl.lit("diverged"))
    publish_rows(store.chunks, diverged)
    fail(store, *RUNS[5:8])
    studies, faults = status(store)
    assert studies == [StudyStatus("another", 2, 1, 0, 0, 1), StudyStatus("tiny", 10, 6, 1, 1, 2)]
    assert faults == []
    assert main(["status", "--store", str(store.folder), "--json"]) == 0
    counts = ("planned", "done", "diverged", "failed", "missing")
    assert json.loads(capsys.readouterr().out) == {
        "studies": [{"name": study.name, "runs": dict(zip(counts, study[1:], strict=True))} for study in studies]
    }
    assert main(["status", "--store", str(store.folder)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["study", *counts], ["another", *"21001"], ["tiny", "10", *"6112"]]


ABSENT = {
    "mujoco": ("Swimmer-v5", "environment 'Swimmer-v5' needs mujoco: pip install 'greedyac[mujoco]'"),
    "module": ("no_such_module:X-v0", "module 'no_such_module' can't be imported: ModuleNotFoundError"),
    "id": ("Lost-v7", "unknown environment 'Lost-v7'"),
}


@pytest.mark.parametrize("absent", ABSENT)
def test_a_study_whose_environment_can_not_be_made_here_is_told_apart(
    store: Store, absent: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is named, the counts are unknown, and no file is blamed or moved."""
    env, reason = ABSENT[absent]
    old = STUDY.format("0").replace("tiny", "absent")
    new = old.replace("Pendulum-CA", env)
    for text in (old, new):
        put_if_absent(store.studies / f"{short_hash(text)}.toml", text.encode())
    fail(store, *RUNS[5:8])
    [record] = store.failed.iterdir()
    told = json.loads(record.read_text())
    for run in told["runs"]:
        run["env"] = env
    del told["checksum"]
    record.write_text(json.dumps({**told, "checksum": short_hash(json.dumps(told))}))

    def missing(*_: Any, **__: Any) -> None:
        raise gymnasium.error.DependencyNotInstalled("it is not there")

    monkeypatch.setattr(gymnasium, "make", missing)
    assert main(["status", "--store", str(store.folder)]) == 0
    said = capsys.readouterr()
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[1:] == [["absent", *"?????"], ["tiny", *"86002"]]
    complaints = said.err.splitlines()
    places = [f"failed/{record.name}", f"studies/{short_hash(new)}.toml"]
    starts = [f"greedyac: {place} can't be used here: " for place in places]
    assert [line.startswith(start) for line, start in zip(complaints, starts, strict=True)] == [True, True]
    assert all(reason in line for line in complaints)
    assert main(["status", "--store", str(store.folder), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["studies"][0]["runs"].values()) == {None}
    before = files(store.folder)
    assert (store.verify(), store.set_aside()) == ([], [])
    assert files(store.folder) == before
    assert record.exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            STUDY.format("0-1").replace("random", "agent-of-tomorrow"),
            "can't be used by this version: cell 1: unknown agent",
        ),
        (STUDY.format("0-1").replace("steps", "stops"), "can't be used by this version: unknown key 'stops'"),
        ("[" * 5000, "can't be used by this version: it is not valid TOML"),
        (None, "holds another text than its name says"),
        (b"\xff", "holds another text than its name says"),
    ],
)
def test_a_study_that_can_not_be_used_is_told(
    store: Store, content: str | bytes | None, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{short_hash(content)}.toml" if isinstance(content, str) else "0123.toml"
    put_if_absent(store.studies / name, (content or "").encode() if not isinstance(content, bytes) else content)
    [study], [fault] = status(store)
    assert study.name == "tiny"
    assert str(fault).startswith(f"studies/{name} {complaint}")
    assert main(["status", "--store", str(store.folder), "--json"]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)["studies"]) == 1
    assert said.err == f"greedyac: {fault}\n"
    assert store.verify() == [str(fault)]
    assert main(["store", "verify", str(store.folder)]) == 1


def test_a_changed_study_is_told_and_recorded_again(store: Store) -> None:
    [path] = store.studies.iterdir()
    path.write_text(path.read_text().replace("0-7", "0-6"))
    [told] = store.verify()
    assert f"studies/{path.name} " in told
    store.set_aside()
    store.record_study(parse_study(STUDY.format("0-7")))  # as a sweep does
    assert store.verify() == []
    assert [study.planned for study in status(store)[0]] == [8]


@pytest.mark.parametrize("command", [["status", "--store"], ["store", "verify"], ["store", "compact"]])
@pytest.mark.parametrize("folder", ["nowhere", "", "notes.txt", "two\nlines", 300 * "x"])
def test_a_folder_that_is_no_store_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch()
    assert main([*command, folder]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("greedyac: error: ")
    assert said.err.count("\n") == 1


def test_an_unknown_action_is_told(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "verfy", str(store.folder)]) == 2
    assert capsys.readouterr().err.startswith("greedyac: error: unknown action 'verfy' (did you mean 'verify'?)")
