"""Studies on a Dask cluster where something is wrong: workers of no use, chunks that kill, options, addresses."""

import errno
import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from helpers.clusters import Cluster, can, free_port, on
from helpers.processes import NEEDS_PROC
from helpers.sweeping import Sweeps, counts, faults_file, numbers, setting, when_training, write_study

from greedyac.cli import main
from greedyac.execution.dask import connect, member
from greedyac.study.store import Store

pytestmark = NEEDS_PROC

IN_TRAINER = "import sys\nif 'greedyac.execution.worker' in sys.orig_argv:\n "
FULL = IN_TRAINER + "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
UNLUCKY = "any(run.seed == 13 and run.config.env == 'Pendulum-CA' for run in chunk.runs)"
QUICK = setting("execution.dask.connect", CONNECT_SECONDS=2.0, FILE_SECONDS=2.0)


@pytest.mark.slow
def test_a_disk_that_is_full_on_one_worker(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    faults = faults_file(tmp_path / "faults", FULL)
    cluster.add_workers(1, faults=faults)
    cluster.add_workers(1)
    cluster.wait_for_workers(2)
    code, _, complaints = sweeps.run(study, tmp_path / "store", *on(cluster))
    assert code == 0
    [complaint] = complaints
    assert "could not write its results: [Errno 27] File too large" in complaint
    assert "tried again" in complaint
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
def test_a_disk_that_is_full_everywhere(cluster: Cluster, sweeps: Sweeps, study: Path, tmp_path: Path) -> None:
    faults = faults_file(tmp_path / "faults", FULL)
    cluster.add_workers(2, faults=faults)
    cluster.wait_for_workers(2)
    code, _, complaints = sweeps.run(study, tmp_path / "store", *on(cluster))
    assert code == 1
    assert len(complaints) == 2
    assert complaints[1].startswith("greedyac: error: worker tcp://127.0.0.1:")
    assert "could not write its results: [Errno 27] File too large" in complaints[1]
    assert list((tmp_path / "store" / "chunks").iterdir()) == []
    assert list((tmp_path / "store" / "failed").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not can("unshare", "--mount", "true"), reason="needs a mount namespace")
@pytest.mark.parametrize(
    ("mount", "complaint"),
    [
        (
            "mount --bind {store} {store} && mount -o remount,bind,ro {store}",
            "can't write to the store at '{store}': Read-only",
        ),
        (
            "mount -t tmpfs none {store} && mkdir {store}/chunks",
            "does not see the store at '{store}': is it on a file system",
        ),
    ],
    ids=["read-only", "another folder of that name"],
)
def test_a_store_that_one_worker_can_not_use(
    mount: str, complaint: str, cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    store = Store.create(tmp_path / "store").folder
    within = ["unshare", "--mount", "sh", "-c", mount.format(store=store) + ' && exec "$@"', "sh"]
    cluster.add_workers(1, within=within)
    cluster.add_workers(1)
    cluster.wait_for_workers(2)
    code, _, complaints = sweeps.run(study, store, *on(cluster))
    assert code == 0
    [told] = complaints
    assert ": worker tcp://127.0.0.1:" in told
    assert complaint.format(store=store) in told
    assert "tried again" in told
    assert numbers(store).equals(whole)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (
            "import greedyac.core.version as version\nversion.__version__ = '0.0.9'\n",
            "has greedyac 0.0.9, and is asked by ",
        ),
        pytest.param(
            IN_TRAINER + "from greedyac.agents import AGENTS; AGENTS['random'].numerics = 99\n",
            "can't train such runs: the numerics of random are 99 here and 1 where it was asked for",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            IN_TRAINER + "sys.modules['jax'] = None\n",
            "can't train: ModuleNotFoundError: import of jax halted",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import sys\nsys.modules['greedyac'] = None\n",
            "can't train: ModuleNotFoundError: ",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["version", "numerics", "JAX", "greedyac"],
)
def test_a_worker_that_is_not_fit_is_named_and_the_others_do_its_work(
    code: str, complaint: str, cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    cluster.add_workers(1, "--nthreads", "2", faults=faults_file(tmp_path / "faults", code))
    cluster.add_workers(1)
    cluster.wait_for_workers(2)
    ended, _, complaints = sweeps.run(study, tmp_path / "store", *on(cluster))
    [told] = complaints  # although it has two threads
    assert ended == 0
    assert ": worker tcp://127.0.0.1:" in told
    assert complaint in told
    assert told.endswith(", and gets no more chunks; tried again")
    assert numbers(tmp_path / "store").equals(whole)
    cluster.workers.pop().kill()  # and now only the other is there
    ended, _, complaints = sweeps.run(write_study(tmp_path / "more.toml", "40-43"), tmp_path / "store", *on(cluster))
    assert ended == 1
    assert complaints[-1].startswith("greedyac: error: worker tcp://127.0.0.1:")
    assert complaint in complaints[-1]


@pytest.mark.slow
def test_another_processor_is_told_and_recorded(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    other = IN_TRAINER + "import greedyac.results.provenance as provenance; provenance.cpu = lambda: 'Z80'\n"
    cluster.add_workers(2, faults=faults_file(tmp_path / "faults", other))
    code, _, complaints = sweeps.run(study, tmp_path / "store", *on(cluster))
    assert code == 0
    [told] = complaints
    assert "has processor Z80 (here " in told
    assert told.endswith("its numbers may differ in the last bits, its rows say so")
    assert set(Store.existing(tmp_path / "store").read().rows["cpu"]) == {"Z80"}
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "error", "attempts"),
    [("os.kill(os.getpid(), 9)", "died (signal 9)", 3), ("os.kill(os.getppid(), 9)", "left", 2)],
    ids=["its process", "the Dask worker"],
)
def test_a_chunk_that_keeps_killing_is_recorded_as_failed(
    deed: str,
    error: str,
    attempts: int,
    cluster: Cluster,
    sweeps: Sweeps,
    study: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.add_workers(2, faults=faults_file(tmp_path / "faults", when_training(UNLUCKY, deed)), nanny=True)
    fewer = faults_file(tmp_path / "fewer", setting("execution.pool", LOSSES=2))
    code, _, complaints = sweeps.run(study, tmp_path / "store", *on(cluster), faults=fewer)
    assert code == 1
    *failures, last = [line for line in complaints if line.startswith(("chunk", "greedyac"))]
    assert sum(error in line for line in failures) >= attempts
    assert any(line.endswith(f"recorded as failed after {attempts} attempts") for line in failures)
    assert "8 runs failed" in last
    assert counts(tmp_path / "store", capsys) == {"planned": 80, "done": 72, "diverged": 0, "failed": 8, "missing": 0}


def test_a_store_behind_a_closed_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    told = member._no_access(tmp_path / "store" / "chunks", ".sweep~1@host~01234567.tmp")
    assert told == f"can't write to the store at '{tmp_path / 'store'}': Permission denied"


@pytest.mark.slow
def test_results_that_are_too_large_to_travel(cluster: Cluster, sweeps: Sweeps, study: Path, tmp_path: Path) -> None:
    small = setting("execution.dask.member", MAX_BYTES=1000)
    cluster.add_workers(2, faults=faults_file(tmp_path / "faults", small))
    code, printed, complaints = sweeps.run(study, tmp_path / "store", *on(cluster, "--publish", "client"))
    assert code == 1
    assert "0 done, 0 diverged, 80 failed of 80 runs" in printed
    assert (
        "its rows take 0.0 MB, and at most 0.0 can be sent back; recorded as failed after 3 attempts" in complaints[-2]
    )


@pytest.mark.slow
def test_a_file_that_was_changed_on_its_way_is_not_published(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    flip = """
import greedyac.execution.dask.member as member
train, flipped = member.train, []
def faulty(order):
    said, files = train(order)
    if files and not flipped:
        name = next(iter(files))
        flipped.append(name)
        files[name] = files[name][:500] + bytes([files[name][500] ^ 4]) + files[name][501:]
    return said, files
faulty.__module__, faulty.__qualname__ = member.train.__module__, "train"
member.train = faulty
"""
    cluster.add_workers(1, faults=faults_file(tmp_path / "faults", flip))
    code, _, complaints = sweeps.run(study, tmp_path / "store", *on(cluster, "--publish", "client"))
    assert code == 0
    [told] = complaints
    assert "could not train its runs: the file that it sent does not match its checksum" in told
    assert numbers(tmp_path / "store").equals(whole)


@pytest.fixture
def refused(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a sweep that must be refused; gives the one line that it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(connect, "FILE_SECONDS", 0.1)
    monkeypatch.setattr(connect, "LOOK_SECONDS", 0.05)

    def run(*options: str) -> str:
        assert main(["sweep", str(study), "--store", "store", *options]) == 2
        printed, complaint = capfd.readouterr()
        assert printed == ""
        assert not Path("store").exists()
        [line] = complaint.splitlines()
        return line

    return run


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--engine", "dusk"], "argument --engine: invalid choice: 'dusk'"),
        (["--address", "tcp://127.0.0.1:1"], "--address is not allowed here; allowed: together with --engine dask"),
        (["--publish", "client"], "--publish client is not allowed here; allowed: together with --engine dask"),
        (["--engine", "dask", "--address", ""], "--address '' is neither an address nor a scheduler's file"),
        (["--engine", "dask", "--dry-run"], "--dry-run is not allowed with --engine dask"),
        (
            ["--engine", "dask", "--address", "tcp://127.0.0.1:1"],
            "no Dask scheduler answers at --address 'tcp://127.0.0.1:1' (Connection refused)",
        ),
        (
            ["--engine", "dask", "--address", "tpc://127.0.0.1:1"],
            "--address 'tpc://127.0.0.1:1' is neither an address nor a scheduler's file",
        ),
        (
            ["--engine", "dask", "--address", "tls://127.0.0.1:1"],
            "no Dask scheduler answers at --address 'tls://127.0.0.1:1' (",
        ),
        (
            ["--engine", "dask", "--address", "tcp://127.0.0.1:99999"],
            "--address 'tcp://127.0.0.1:99999' is neither an address nor a scheduler's file",
        ),
        (
            ["--engine", "dask", "--address", "none.json"],
            "--address 'none.json' is neither an address nor a scheduler's file, and there is no file of that name; ",
        ),
        (
            ["--engine", "dask", "--address", "bad.json"],
            "--address 'bad.json' is neither an address nor a scheduler's file",
        ),
    ],
)
def test_wrong_options_are_one_line(options: list[str], complaint: str, refused: Callable[..., str]) -> None:
    Path("bad.json").write_text("[]")
    assert complaint in refused(*options)


@pytest.mark.parametrize("listener", ["a page", "a Dask worker"])
def test_the_address_of_something_else(
    listener: str, cluster: Cluster, sweeps: Sweeps, study: Path, tmp_path: Path
) -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def log_message(self, *about: object) -> None: ...

    faults = faults_file(tmp_path / "faults", QUICK) if listener == "a page" else None  # a worker answers in the end
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        if listener == "a Dask worker":
            cluster.add_workers(1, "--worker-port", str(port := free_port()))
            cluster.wait_for_workers(1)
        address = f"tcp://127.0.0.1:{port}"
        code, _, complaints = sweeps.run(
            study, tmp_path / "store", "--engine", "dask", "--address", address, faults=faults
        )
        server.shutdown()
    [told] = complaints
    reason = "no word for 2 s" if listener == "a page" else "a Worker does"
    assert (code, told.partition(";")[0]) == (
        2,
        f"greedyac: error: no Dask scheduler answers at --address '{address}' ({reason})",
    )
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("held", "complaint"),
    [
        (
            "tcp://127.0.0.1:1",
            "no Dask scheduler answers at 'tcp://127.0.0.1:1', as --address 'it.json' says (Connection",
        ),
        (5, "--address 'it.json' is neither an address nor a scheduler's file; allowed: tcp://host:8786, host:8786"),
    ],
    ids=["of a scheduler that has ended", "of something else"],
)
def test_a_schedulers_file_that_leads_nowhere(held: object, complaint: str, refused: Callable[..., str]) -> None:
    Path("it.json").write_text(json.dumps({"address": held}))
    told = refused("--engine", "dask", "--address", "it.json")
    assert told.startswith(f"greedyac: error: {complaint}")


def test_without_dask_it_is_said_what_to_install(sweeps: Sweeps, study: Path, tmp_path: Path) -> None:
    without = faults_file(tmp_path / "faults", "import sys\nsys.modules['distributed'] = None\n")
    code, _, complaints = sweeps.run(study, tmp_path / "store", "--engine", "dask", faults=without)
    assert code == 2
    assert complaints == [
        "greedyac: error: --engine dask needs the package 'distributed': pip install 'greedyac[cluster]'"
    ]
