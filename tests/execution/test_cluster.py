"""Studies on a Dask cluster of real processes on loopback: the rows of one machine, whoever is killed or stopped."""

import json
import os
import random
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from helpers.clusters import Cluster, can, free_port, on
from helpers.processes import NEEDS_PROC, PATIENCE, alive, children, trainers_of, wait_for, wait_for_complaint
from helpers.sweeping import RUNS, Sweeps, chunks, counts, faults_file, numbers, setting, visible_numbers, write_study

from greedyac.cli import main
from greedyac.core.machine import PINS, cores
from greedyac.execution.pool import LOSSES
from greedyac.study.store import Store
from greedyac.study.sweep import ATTEMPTS

pytestmark = NEEDS_PROC

SILENT = setting("execution.dask.engine", SILENCE_SECONDS=4.0)
LONG = 3_000_000
"""Steps of runs that take a worker a few seconds."""


@pytest.mark.parametrize(
    ("workers", "options"),
    [(2, []), (2, ["--publish", "client"]), pytest.param(4, [], marks=pytest.mark.slow)],
    ids=["two", "two, published here", "four"],
)
def test_rows_are_those_of_one_machine(
    workers: int,
    options: list[str],
    cluster: Cluster,
    sweeps: Sweeps,
    study: Path,
    whole: pl.DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.add_workers(workers)
    code, printed, complaints = sweeps.run(study, tmp_path / "store", *on(cluster, *options))
    assert (code, complaints) == (0, [])
    assert f"Dask cluster {cluster.address}, dashboard " in printed
    assert printed.endswith(f"80 done, 0 diverged, 0 failed of 80 runs in {tmp_path / 'store'}\n")
    assert numbers(tmp_path / "store").equals(whole)
    assert counts(tmp_path / "store", capsys)["done"] == RUNS
    assert list((tmp_path / "store" / "chunks").glob(".*")) == []
    cluster.close()  # it is not needed any more
    code, printed, complaints = sweeps.run(study, tmp_path / "store", *on(cluster, *options))
    assert (code, complaints) == (0, [])
    assert "80 in the store, 0 to run" in printed


@pytest.mark.slow
def test_a_learning_agent_has_the_same_rows_and_is_repeated(cluster: Cluster, sweeps: Sweeps, tmp_path: Path) -> None:
    (study := tmp_path / "learn.toml").write_text(
        'name = "walks"\nsteps = 1500\nseeds = "0-5"\n[[cells]]\nagents = ["greedy-ac"]\nenvs = ["Pendulum-CA"]\n'
    )
    cluster.add_workers(2)
    assert sweeps.run(study, tmp_path / "there", *on(cluster))[0] == 0
    assert sweeps.run(study, tmp_path / "here")[0] == 0
    assert numbers(tmp_path / "there").equals(numbers(tmp_path / "here"))
    run_id = numbers(tmp_path / "there")["run_id"][0]
    assert main(["rerun", run_id, "--store", str(tmp_path / "there")]) == 0


@pytest.mark.slow
@pytest.mark.skipif(not PINS, reason="this system does not pin processes")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_dask_worker_has_a_process_for_each_thread_with_a_core_of_its_own_if_there_are_as_many(
    threads: int, cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    both = set(cores()[:2])
    within = ["taskset", "-c", ",".join(map(str, both))]
    cluster.add_workers(1, "--nthreads", str(threads), within=within)
    process = sweeps.start(study, tmp_path / "store", *on(cluster))
    wait_for(lambda: len(cluster.trainers()) == threads and chunks(tmp_path / "store"), "processes at work")
    their_cores = [os.sched_getaffinity(trainer) for trainer in cluster.trainers()]
    assert sorted(map(tuple, their_cores)) == ([tuple(both)] if threads < len(both) else [(core,) for core in both])
    assert process.wait(PATIENCE) == 0
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, LOSSES - 1])
def test_workers_killed_at_random_moments(
    kills: int, cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    chance, mercy = random.Random(kills), ATTEMPTS
    cluster.add_workers(2)
    process, folder = sweeps.start(study, tmp_path / "store", *on(cluster)), tmp_path / "store"
    for kill in range(kills):
        time.sleep(chance.uniform(0.0, 5.0))
        trainers = cluster.trainers()
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()
            assert visible_numbers(folder).equals(whole)
            folder, mercy = tmp_path / f"store-{kill}", ATTEMPTS
            process = sweeps.start(study, folder, *on(cluster))
        if chance.random() < 0.5 and trainers and mercy > 1:  # one kill more, and a chunk may rightly fail
            os.kill(trainers[0], signal.SIGKILL)  # the process that trains, and not the Dask worker
            mercy -= 1
        else:
            cluster.kill_workers(chance.choice([1, 2]))
            wait_for(lambda first=trainers[:1]: not any(map(alive, first)), "processes to end with their Dask worker")  # type: ignore[misc]
            cluster.add_workers(2 - len(cluster.workers))
    printed, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert printed.endswith(f"80 done, 0 diverged, 0 failed of 80 runs in {folder}\n")
    assert visible_numbers(folder).equals(whole)


@pytest.mark.slow
def test_all_workers_and_then_the_scheduler_are_killed_and_come_back(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    cluster.add_workers(2)
    process = sweeps.start(study, tmp_path / "store", *on(cluster))
    wait_for(lambda: chunks(tmp_path / "store"), "the first chunk")
    cluster.kill_workers()
    wait_for_complaint(process, f"there are no workers at {cluster.address}; waiting for some")
    cluster.add_workers(2)
    wait_for_complaint(process, f"there are workers at {cluster.address} again")
    wait_for(cluster.trainers, "work to go on")
    cluster.scheduler.kill()
    cluster.scheduler.wait()
    cluster.kill_workers()
    wait_for_complaint(process, f"the scheduler at {cluster.address} was lost; trying again")
    cluster.start_scheduler()
    cluster.add_workers(2)
    wait_for_complaint(process, f"the scheduler at {cluster.address} is back")
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert "Traceback" not in told
    assert visible_numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
def test_a_nanny_brings_back_a_worker_at_its_old_address(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    cluster.add_workers(1, "--worker-port", str(free_port()), nanny=True)
    process = sweeps.start(study, tmp_path / "store", *on(cluster))
    for _ in range(2):
        already = len(chunks(tmp_path / "store"))
        wait_for(lambda already=already: len(chunks(tmp_path / "store")) > already, "a chunk")  # type: ignore[misc]
        [worker] = [child for child in children(cluster.workers[0].pid) if trainers_of(child)]
        os.kill(worker, signal.SIGKILL)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert visible_numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
def test_a_scheduler_that_stays_away_is_given_up(cluster: Cluster, sweeps: Sweeps, study: Path, tmp_path: Path) -> None:
    faults = faults_file(tmp_path / "faults", setting("execution.dask.engine", GONE_SECONDS=3.0))
    cluster.add_workers(1)
    process = sweeps.start(study, tmp_path / "store", *on(cluster), faults=faults)
    wait_for(cluster.trainers, "work")
    cluster.scheduler.kill()
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert told.splitlines()[-1] == (
        f"greedyac: error: the scheduler at {cluster.address} has not answered for 3 s; "
        "published runs are kept, the same command goes on"
    )


@pytest.mark.slow
def test_ctrl_c_while_the_scheduler_is_lost(cluster: Cluster, sweeps: Sweeps, study: Path, tmp_path: Path) -> None:
    cluster.add_workers(1)
    process = sweeps.start(study, tmp_path / "store", *on(cluster))
    wait_for(cluster.trainers, "work")
    cluster.scheduler.kill()
    cluster.scheduler.wait()
    wait_for_complaint(process, f"the scheduler at {cluster.address} was lost; trying again, for 10 minutes\n")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert told.splitlines()[-1].startswith("greedyac: stopped")
    assert "Warning" not in told


@pytest.mark.slow
def test_a_worker_that_joins_late_is_used(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    process = sweeps.start(study, tmp_path / "store", *on(cluster))
    assert process.stderr is not None
    assert process.stderr.readline() == f"greedyac: there are no workers at {cluster.address}; waiting for some\n"
    cluster.add_workers(1)
    wait_for(cluster.trainers, "the first to be used")
    cluster.add_workers(1)
    wait_for(lambda: len(cluster.trainers()) == 2, "the second to be used")
    assert process.wait(PATIENCE) == 0
    assert numbers(tmp_path / "store").equals(whole)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["the Dask worker", "the process that trains"])
def test_one_that_hangs_does_not_hold_up_the_study(who: str, cluster: Cluster, sweeps: Sweeps, tmp_path: Path) -> None:
    study = write_study(tmp_path / "walks.toml", steps=LONG, seeds="0-7")
    hung = setting("execution.dask.member", HUNG_SECONDS=4.0)
    faults = faults_file(tmp_path / "faults", SILENT), faults_file(tmp_path / "member", hung)
    cluster.add_workers(2, faults=faults[1])
    process = sweeps.start(study, tmp_path / "store", *on(cluster), faults=faults[0])
    wait_for(lambda: trainers_of(cluster.workers[0].pid), "work")
    time.sleep(2)
    [trainer] = trainers_of(cluster.workers[0].pid)
    os.kill(cluster.workers[0].pid if who == "the Dask worker" else trainer, signal.SIGSTOP)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    said = "was silent for 4 s; tried again" if who == "the Dask worker" else "died (it hung for 4 s); tried again"
    assert said in told
    assert visible_numbers(tmp_path / "store").height == 16
    if who == "the Dask worker":
        os.kill(cluster.workers[0].pid, signal.SIGCONT)
        wait_for(lambda: not alive(trainer), "the process to end, as it is not wanted any more")


@pytest.mark.slow
@pytest.mark.parametrize("begun", [True, False], ids=["after it began", "before it began"])
def test_a_worker_that_hung_is_used_again_when_it_goes_on(
    begun: bool, cluster: Cluster, sweeps: Sweeps, tmp_path: Path
) -> None:
    study, store = write_study(tmp_path / "walks.toml", steps=LONG, seeds="0-7"), tmp_path / "store"
    cluster.add_workers(1)
    if not begun:
        cluster.wait_for_workers(1)
        lazy = "import greedyac.execution.dask.engine as engine\ncall = engine.call\n"
        lazy += f"def slow(*given):\n import os, signal; os.kill({cluster.workers[0].pid}, signal.SIGSTOP)\n"
        lazy += " engine.call = call\n return call(*given)\nengine.call = slow\n"
    faults = faults_file(tmp_path / "faults", SILENT + ("" if begun else lazy))
    process = sweeps.start(study, store, *on(cluster), faults=faults)
    if begun:
        wait_for(lambda: list(cluster.trainers()), "work")
        time.sleep(1.0)
        os.kill(cluster.workers[0].pid, signal.SIGSTOP)
    wait_for_complaint(process, "was silent for 4 s; tried again")
    os.kill(cluster.workers[0].pid, signal.SIGCONT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told  # there is no other
    assert visible_numbers(store).height == 16


@pytest.mark.slow
def test_an_order_that_waits_its_turn_is_not_given_up(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    cluster.add_workers(1)
    other = write_study(tmp_path / "walks.toml", steps=2 * LONG, seeds="100-103")
    faults = faults_file(tmp_path / "faults", SILENT)
    first = sweeps.start(other, tmp_path / "other", *on(cluster), faults=faults)
    wait_for(cluster.trainers, "work")
    code, _, complaints = sweeps.run(study, tmp_path / "store", *on(cluster), faults=faults)
    assert (code, complaints) == (0, [])
    assert numbers(tmp_path / "store").equals(whole)
    assert first.wait(PATIENCE) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)], ids=["Ctrl-C", "kill -9"]
)
def test_a_sweep_that_is_stopped_leaves_no_work_behind_and_is_gone_on_with(
    stop: signal.Signals, cluster: Cluster, sweeps: Sweeps, tmp_path: Path
) -> None:
    study, folder = write_study(tmp_path / "walks.toml", steps=LONG // 3, seeds="0-15"), tmp_path / "store"
    impatient = setting("execution.dask.member", IDLE_SECONDS=2.0)
    cluster.add_workers(2, faults=faults_file(tmp_path / "faults", impatient))
    process = sweeps.start(study, folder, *on(cluster))
    wait_for(lambda: chunks(folder), "the first chunk")
    trainers = cluster.trainers()
    assert trainers
    process.send_signal(stop)
    _, told = process.communicate(timeout=PATIENCE)
    if stop == signal.SIGINT:
        assert process.returncode == 130
        [complaint] = [line for line in told.splitlines() if not line.startswith("walks  ")]
        assert complaint.startswith("greedyac: stopped")
    wait_for(lambda: not any(map(alive, trainers)), "the processes to end")
    kept = chunks(folder)
    held = Store.existing(folder).read().rows.height
    assert 0 < held < 32
    code, printed, complaints = sweeps.run(study, folder, *on(cluster))
    assert (code, complaints) == (0, [])
    assert f"{held} in the store, {32 - held} to run" in printed
    assert chunks(folder).items() > kept.items()
    assert numbers(folder).height == 32


@pytest.mark.slow
def test_others_see_that_the_sweep_is_alive(cluster: Cluster, sweeps: Sweeps, tmp_path: Path) -> None:
    study = write_study(tmp_path / "walks.toml", steps=LONG, seeds="0-15")
    cluster.add_workers(1)
    sweeps.start(study, tmp_path / "store", *on(cluster))
    wait_for(cluster.trainers, "work")
    [sign] = (tmp_path / "store" / "chunks").glob(".sweep~*.tmp")
    os.utime(sign, (0, 0))
    wait_for(lambda: sign.stat().st_mtime > 0, "a sign of life")


@pytest.mark.slow
def test_at_most_so_many_workers_are_used(cluster: Cluster, sweeps: Sweeps, study: Path, tmp_path: Path) -> None:
    cluster.add_workers(2)
    process = sweeps.start(study, tmp_path / "store", *on(cluster), "--workers", "1")
    most = 0
    while process.poll() is None:
        most = max(most, len(cluster.trainers()))
        time.sleep(0.05)
    assert (process.returncode, most) == (0, 1)


def test_a_cluster_of_our_own_tells_its_dashboard(
    sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    process = sweeps.start(study, tmp_path / "store", "--engine", "dask")
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(3)]
    link = printed[2].split()[-1]
    assert link.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(link) as page:
        assert b"Dask" in page.read()
    below = children(process.pid)
    assert process.wait(PATIENCE) == 0
    assert process.stderr is not None
    assert all(line.startswith("walks  ") for line in process.stderr.read().splitlines())
    assert numbers(tmp_path / "store").equals(whole)
    wait_for(lambda: not any(map(alive, below)), "the cluster to end")


@pytest.mark.slow
def test_a_schedulers_file_is_as_good_as_its_address(
    cluster: Cluster, sweeps: Sweeps, study: Path, whole: pl.DataFrame, tmp_path: Path
) -> None:
    cluster.add_workers(1)
    file = tmp_path / "cluster" / "scheduler.json"
    assert json.loads(file.read_text())["address"] == cluster.address
    assert sweeps.run(study, tmp_path / "store", *on(cluster), "--address", str(file))[0] == 0
    assert numbers(tmp_path / "store").equals(whole)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Three hosts with addresses of their own, 10.203.77.1 to 3, joined by a switch, each a network namespace."""
    names = [f"greedyac-{os.getpid()}-{number}" for number in range(4)]
    switch, *hosts = names

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "switch", "type", "bridge")
        ip("-n", switch, "link", "set", "switch", "up")
        for number, host in enumerate(hosts, 1):
            ip("-n", switch, "link", "add", f"port{number}", "type", "veth", "peer", "name", "net0", "netns", host)
            ip("-n", switch, "link", "set", f"port{number}", "master", "switch", "up")
            ip("-n", host, "addr", "add", f"10.203.77.{number}/24", "dev", "net0")
            ip("-n", host, "link", "set", "net0", "up")
        yield hosts
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


@pytest.mark.slow
@pytest.mark.skipif(
    not can("unshare", "--net", "ip", "link", "add", "x", "type", "bridge"), reason="needs network namespaces"
)
def test_several_hosts_of_which_one_is_cut_off(
    hosts: list[str], sweeps: Sweeps, whole: pl.DataFrame, study: Path, tmp_path: Path
) -> None:
    within = [["ip", "netns", "exec", host] for host in hosts]
    cluster, faults = Cluster(tmp_path / "cluster", "10.203.77.1", within[0]), faults_file(tmp_path / "faults", SILENT)
    try:
        for host in within[1:]:
            cluster.add_workers(1, within=host)
        process = sweeps.start(study, tmp_path / "store", *on(cluster), faults=faults, within=within[0])
        wait_for(lambda: len(cluster.trainers()) == 2 and chunks(tmp_path / "store"), "both to be at work")
        subprocess.run(["ip", "-n", hosts[2], "link", "set", "net0", "down"], check=True)
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told
        assert "worker tcp://10.203.77.3:" in told
        assert visible_numbers(tmp_path / "store").equals(whole)
    finally:
        cluster.close()
