"""The cache of compiled programs: the same numbers with it, and nothing that befalls its files is ever an error."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from greedyac.core import program_cache
from greedyac.core.program_cache import ProgramCache, cache_folder

HASH = """
import hashlib, sys, jax, numpy as np
from greedyac.core import xla
xla.MIN_SECONDS = 0.0
from greedyac.training.blocks import make_lanes, run_blocks
from greedyac.execution.plan import expand_configs
small = {"hidden": (8,), "batch_size": 4, "replay_capacity": 50}
[case] = expand_configs(*sys.argv[1:], 40, None, {}, {}, small)
lanes = make_lanes([case.learner] * 2, case.world, [0, 1], 40)
run_blocks(lanes, lambda _: None)
lanes.evaluate(1)
parts = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((lanes.state.agent, lanes.evaluations))]
print(hashlib.sha256(b"".join(parts)).hexdigest())
lanes.close()
"""
MAIN = "import sys; from greedyac.cli import main; sys.exit(main())"
TRAIN = [
    *(MAIN, "train", "vanilla-ac", "Pendulum-CA"),
    *("--steps", "40", "--hidden", "8", "--batch-size", "4", "--replay-capacity", "50", "--seeds", "0-1"),
]


def run(*call: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", *call], env=env, capture_output=True, text=True, check=False)


def numbers(folder: Path | str, agent: str = "vanilla-ac", env: str = "Pendulum-CA") -> str:
    done = run(HASH, agent, env, GREEDYAC_CACHE=str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def programs(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.program"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache, and the numbers of the runs whose programs were compiled for it."""
    folder = tmp_path_factory.mktemp("filled")
    return folder, numbers(folder)


def test_the_bits_are_the_same_with_a_cold_cache_and_a_warm_one(filled: tuple[Path, str]) -> None:
    folder, cold = filled
    kept = {path: path.stat().st_ino for path in programs(folder)}
    assert len(kept) >= 4
    assert numbers(folder) == cold
    assert {path: path.stat().st_ino for path in programs(folder)} == kept  # nothing was compiled again


def test_the_bits_are_the_same_without_a_cache(filled: tuple[Path, str]) -> None:
    assert numbers("") == filled[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "env"), [("greedy-ac", "Pendulum-CA"), ("sac", "Acrobot-DA"), ("greedy-ac", "Pendulum-v1")]
)
def test_the_bits_of_every_agent_are_the_same_with_a_cache_and_without(agent: str, env: str, tmp_path: Path) -> None:
    cold, warm, none = (numbers(folder, agent, env) for folder in (tmp_path, tmp_path, ""))
    assert cold == warm == none


@pytest.mark.slow
@pytest.mark.parametrize(("compiles", "reads"), [("1", "8"), ("8", "1")])
def test_the_bits_do_not_depend_on_the_threads_for_which_a_program_was_compiled(
    compiles: str, reads: str, tmp_path: Path
) -> None:
    """With layers so large that XLA cuts their work for threads."""
    code = HASH.replace("(8,)", "(512, 512)")
    assert code != HASH
    call = (code, "greedy-ac", "Pendulum-CA")
    run(*call, GREEDYAC_CACHE=str(tmp_path), PJRT_NPROC=compiles)
    kept, alone = (run(*call, GREEDYAC_CACHE=cache, PJRT_NPROC=reads).stdout for cache in (str(tmp_path), ""))
    assert len(kept) == 65
    assert kept == alone


def test_damaged_programs_are_compiled_again(filled: tuple[Path, str]) -> None:
    folder, cold = filled
    for number, path in enumerate(programs(folder)):
        content = bytearray(path.read_bytes())
        if number % 3 == 0:
            content[len(content) // 2] ^= 1
        path.write_bytes((bytes(content), bytes(content[:1000]), b"")[number % 3])
    before = {path: path.read_bytes() for path in programs(folder)}
    assert numbers(folder) == cold
    after = {path: path.read_bytes() for path in programs(folder)}
    assert after.keys() == before.keys()
    assert all(after[path] != before[path] for path in before)


def test_a_program_in_the_place_of_another_is_not_used(tmp_path: Path) -> None:
    cache, other = ProgramCache(tmp_path, "AVX2"), ProgramCache(tmp_path, "AVX")
    cache.put("one", b"first")
    cache.put("two", b"second")
    other.put("one", b"third")
    assert (cache.get("one"), cache.get("two"), other.get("one"), other.get("two")) == (
        *(b"first", b"second", b"third"),
        None,
    )
    ours, theirs = cache._entry("one"), other._entry("one")
    assert ours.name == theirs.name  # of the same key
    ours.write_bytes(theirs.read_bytes())  # of another processor, jaxlib or limit
    assert cache.get("one") is None
    ours.write_bytes(cache._entry("two").read_bytes())
    assert cache.get("one") is None
    cache.put("one", b"first")
    assert cache.get("one") == b"first"


def test_each_processor_jaxlib_and_limit_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {ProgramCache(tmp_path, limit)._path for limit in ("AVX", "AVX2")}
    for name, value in (("instructions", "fpu sse"), ("processor", "an abacus")):
        monkeypatch.setattr(program_cache, name, lambda value=value: value)
        folders.add(ProgramCache(tmp_path, "AVX")._path)
    monkeypatch.setattr(program_cache, "version", lambda name: "9.9")
    folders.add(ProgramCache(tmp_path, "AVX")._path)
    assert len(folders) == 5


def test_those_not_used_for_longest_are_removed_first_and_nothing_else(tmp_path: Path) -> None:
    size = len(b"x" * 100) + 32
    cache = ProgramCache(tmp_path, "AVX", max_bytes=3 * size)
    older = ProgramCache(tmp_path, "AVX2")
    foreign = tmp_path / "programs" / "notes.program"
    for time, (owner, key) in enumerate([(older, "a"), (cache, "b"), (cache, "c")]):
        owner.put(key, b"x" * 100)
        os.utime(owner._entry(key), (time, time))
    foreign.write_bytes(b"y" * 1000)
    left = cache._path / ".gone~999999999@nowhere~00000000.tmp"
    left.write_bytes(b"z")
    os.utime(left, (0, 0))
    assert cache.get("b") is not None  # now it is the one that was used last
    cache.put("d", b"x" * 100)
    assert older.get("a") is None
    assert cache.get("c") is not None
    os.utime(cache._entry("c"), (5, 5))
    cache.put("e", b"x" * 100)
    assert [key for key in "bcde" if cache.get(key)] == ["b", "d", "e"]
    assert foreign.exists()
    assert not left.exists()


def test_there_is_never_more_than_there_may_be(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, "AVX", max_bytes=5_000)
    for number in range(60):
        cache.put(f"{number}", b"x" * (1 + 37 * number % 300))
        assert sum(path.stat().st_size for path in programs(tmp_path)) <= 5_000
    assert cache.get("59") is not None
    assert sum(path.stat().st_size for path in programs(tmp_path)) > 4_000


def test_many_processes_together_keep_to_what_there_may_be(tmp_path: Path) -> None:
    caches = [ProgramCache(tmp_path, "AVX", max_bytes=5_000) for _ in range(30)]
    for round in range(3):
        for number, cache in enumerate(caches):
            cache.put(f"{round} {number}", b"x" * 300)
    assert sum(path.stat().st_size for path in programs(tmp_path)) <= 5_000


def test_what_another_version_left_half_written_is_removed(tmp_path: Path) -> None:
    older, cache = ProgramCache(tmp_path, "AVX2"), ProgramCache(tmp_path, "AVX")
    older.put("one", b"first")
    left = older._path / ".gone~999999999@nowhere~00000000.tmp"
    left.write_bytes(b"z")
    os.utime(left, (0, 0))
    cache.put("two", b"second")
    assert not left.exists()
    assert older.get("one") == b"first"


def test_one_file_that_cannot_be_removed_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ProgramCache(tmp_path, "AVX", max_bytes=400)
    for time, key in enumerate("abc"):
        cache.put(key, b"x" * 100)
        os.utime(cache._entry(key), (time, time))
    stuck, unlink = cache._entry("a"), Path.unlink

    def removed(path: Path, missing_ok: bool = False) -> None:
        if path == stuck:
            raise PermissionError
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", removed)
    cache.put("d", b"x" * 100)
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


@pytest.mark.skipif(os.name == "nt", reason="permissions are others on Windows")
def test_a_folder_into_which_others_can_write_is_not_used(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, "AVX")
    cache.put("one", b"first")
    assert cache._path.stat().st_mode & 0o777 == 0o700
    assert cache.get("one") == b"first"
    cache._path.chmod(0o777)
    assert cache.get("one") is None
    cache.put("two", b"second")
    assert len(programs(tmp_path)) == 1


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(*TRAIN, "--out", str(tmp_path / "out"), GREEDYAC_CACHE=str(tmp_path / "file"))
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("vanilla-ac on Pendulum-CA") for line in done.stderr.splitlines()), done.stderr
    assert (tmp_path / "out/summary.json").exists()


def test_a_full_disk_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(program_cache, "write_atomically", full)
    cache = ProgramCache(tmp_path, "AVX")
    cache.put("one", b"first")
    assert cache.get("one") is None


def test_processes_that_fill_it_at_once_leave_it_whole(tmp_path: Path) -> None:
    """Threads here, processes with the same names there: what keeps them apart are the names of temporary files."""
    cache, small = ProgramCache(tmp_path, "AVX"), ProgramCache(tmp_path, "AVX", max_bytes=5_000)
    wrong: list[bytes] = []

    def work(own: ProgramCache, number: int) -> None:
        for round in range(40):
            key = f"{(number + round) % 7}"
            own.put(key, key.encode() * 900)
            if (got := own.get(key)) not in (None, key.encode() * 900):
                wrong.append(got or b"")

    threads = [threading.Thread(target=work, args=([cache, small][number % 2], number)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not list(cache._path.glob(".*.tmp"))
    for path in programs(tmp_path):
        assert len(path.read_bytes()) == 932


@pytest.mark.parametrize(
    ("system", "environment", "folder"),
    [
        ("linux", {"HOME": "/h"}, "/h/.cache/greedyac"),
        ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/greedyac"),
        ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/greedyac"),
        ("darwin", {"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/h/Library/Caches/greedyac"),
        ("win32", {"HOME": "/h", "LOCALAPPDATA": "/local"}, "/local/greedyac"),
        ("linux", {"HOME": "/h", "GREEDYAC_CACHE": "/own"}, "/own"),
        ("linux", {"HOME": "/h", "GREEDYAC_CACHE": "~/own"}, "/h/own"),
        ("linux", {"HOME": "/h", "GREEDYAC_CACHE": ""}, None),
        ("linux", {"HOME": "/h", "GREEDYAC_CACHE": " "}, None),
        ("linux", {"HOME": "/h", "GREEDYAC_CACHE": "~nobody-of-that-name/own"}, None),
    ],
)
def test_it_is_where_caches_are_on_the_system(
    system: str, environment: dict[str, str], folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "GREEDYAC_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    assert cache_folder() == (None if folder is None else Path(folder))


STUDY = """
name = "small"
steps = 40
seeds = "0-1"
[[cells]]
agents = ["vanilla-ac"]
envs = ["Pendulum-CA"]
fixed = { hidden = [8], batch_size = 4, replay_capacity = 50 }
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the cache of two trainings that began at once, what they wrote, and a study of the same runs."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "study.toml").write_text(STUDY)
    environment = {**os.environ, "GREEDYAC_CACHE": str(folder / "cache")}
    calls = [[sys.executable, "-c", *TRAIN, "--out", str(folder / name)] for name in ("first", "second")]
    both = [subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True) for call in calls]
    for process in both:
        _, said = process.communicate()
        assert process.returncode == 0, said
    return folder


def test_processes_that_fill_it_at_once_have_the_same_numbers(trained: Path) -> None:
    weights = [(trained / name / "seed-0.safetensors").read_bytes() for name in ("first", "second")]
    assert weights[0] == weights[1]
    assert programs(trained / "cache")
    assert not list((trained / "cache").rglob("*.tmp"))


def greedyac(folder: Path, *words: str, code: str = MAIN) -> None:
    done = run(code, *words, GREEDYAC_CACHE=str(folder / "cache"))
    assert done.returncode == 0, done.stderr


LEARN = """
import greedyac
greedyac.VanillaAC("Pendulum-CA", hidden=(8,), batch_size=4, replay_capacity=50).learn(40, progress=False)
"""


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "learn",
        "sweep --workers 1",
        "rerun",
        pytest.param("sweep --engine dask --workers 1", marks=pytest.mark.slow),
    ],
)
def test_everyone_finds_the_programs_of_others(command: str, trained: Path, tmp_path: Path) -> None:
    """The largest is the training loop: it is read, which changes its time, and not written, which would its number."""
    words = {"train": [*TRAIN[1:], "--out", str(tmp_path / "out")], "learn": []}.get(command)
    if command == "rerun":
        greedyac(trained, "sweep", str(trained / "study.toml"), "--store", str(tmp_path), "--workers", "1")
        [file] = (tmp_path / "chunks").glob("*.parquet")
        words = ["rerun", pl.read_parquet(file)["run_id"][0], "--store", str(tmp_path)]
    elif words is None:
        words = [*command.split(), str(trained / "study.toml"), "--store", str(tmp_path)]
    loop = max(programs(trained / "cache"), key=lambda path: path.stat().st_size)
    os.utime(loop, (0, 0))
    before = loop.stat().st_ino
    greedyac(trained, *words, code=LEARN if command == "learn" else MAIN)
    assert loop.stat().st_mtime > 0
    assert loop.stat().st_ino == before
