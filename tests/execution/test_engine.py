"""The Dask engine on a real cluster within this process, whose workers only pretend to train: what may go wrong."""

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster, Worker, get_worker
from distributed.core import Status
from distributed.worker import thread_state
from helpers.processes import wait_for
from helpers.sweeping import chunks_of

from greedyac.core.errors import WorkerError
from greedyac.execution.chunk import Chunk
from greedyac.execution.dask import connect, engine, member
from greedyac.execution.pool import dispatch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
DONE: dict[str, Any] = {"event": "done", "file": None, "runs": 1, "diverged": 0, "links": True, "failed": {}}
Start = Callable[..., list[Worker]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setattr(engine, "SILENCE_SECONDS", 2.0)
    connect._quieten()
    place = {"host": "127.0.0.1", "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=0, processes=False, silence_logs=logging.CRITICAL, **place) as cluster:
        yield cluster


@pytest.fixture
def start(cluster: LocalCluster) -> Iterator[Start]:
    """Starts workers with these names, and so many threads each."""
    started: list[Worker] = []

    def start(**threads: int) -> list[Worker]:
        async def up() -> list[Worker]:
            address, free = cluster.scheduler_address, {"memory_limit": 0}
            return [await Worker(address, nthreads=count, name=name, **free) for name, count in threads.items()]

        started.extend(cluster.sync(up))
        return started

    yield start
    for worker in started:
        cluster.sync(worker.close, timeout=2)


def swept(cluster: LocalCluster, folder: Path, chunks: int, **options: Any) -> list[dict[str, Any]]:
    """What is told of so many chunks, handed out one by one."""
    crew = engine._Members(engine.DaskEngine(cluster.scheduler_address, **options), folder)
    crew.batch_seconds = 0.0
    given = [Chunk(chunk.runs, 2, folder) for chunk in chunks_of(chunks)]
    return [event for event in dispatch(given, crew, 3) if event["event"] != "ready"]


def pretend(seconds: Callable[[str], float]) -> Callable[[dict[str, Any], Path], list[dict[str, Any]]]:
    """Training that takes so long on a worker of that name."""

    def train(asked: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
        time.sleep(seconds(get_worker().name))
        return [DONE] * len(asked["chunks"])

    return train


def denied(where: Callable[[Worker], bool]) -> Callable[[str], tuple[str, dict[str, bytes]]]:
    """Orders that such workers may not carry out."""

    def train(order: str) -> tuple[str, dict[str, bytes]]:
        if where(get_worker()):
            raise PermissionError(13, "Permission denied")
        return json.dumps(pretend(lambda name: 0.3)(json.loads(order), Path())), {}

    return train


def kinds(events: list[dict[str, Any]]) -> Counter[str]:
    return Counter(event["event"] for event in events)


def test_a_store_that_hangs_on_one_worker(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network file system does: its Dask worker is well, and its order has begun."""
    accessible, ended = member._no_access, threading.Event()

    def stuck(folder: Path, sign: str) -> str | None:
        if get_worker().name == "stuck":
            ended.wait()
        return accessible(folder, sign)

    monkeypatch.setattr(member, "_no_access", stuck)
    monkeypatch.setattr(member, "_train", pretend(lambda name: 0.2))
    start(stuck=1, well=1)
    events = swept(cluster, tmp_path, 6)
    ended.set()
    assert kinds(events) == {"done": 6, "lost": 1}
    assert [event["error"].split(" ", 2)[2] for event in events if event["event"] == "lost"] == ["was silent for 2 s"]


def test_an_error_of_the_system_on_a_worker_is_not_taken_for_a_loss(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(closed=1, well=1)
    monkeypatch.setattr(member, "train", denied(lambda worker: worker.name == "closed"))
    events = swept(cluster, tmp_path, 6)
    assert kinds(events) == {"done": 6, "lost": 1}
    [lost] = [event["error"] for event in events if event["event"] == "lost"]
    assert lost.endswith("can't train: PermissionError: [Errno 13] Permission denied, and gets no more chunks")


def test_a_sign_that_can_not_be_touched_is_no_loss_of_the_scheduler(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*given: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(member, "_train", pretend(lambda name: 1.0))
    monkeypatch.setattr(Path, "touch", closed)
    start(well=1)
    assert kinds(swept(cluster, tmp_path, 4)) == {"done": 4}


def test_no_more_workers_than_asked_for_when_a_silent_one_comes_back(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, most, lock, first = Counter[str](), 0, threading.Lock(), threading.Event()

    def train(asked: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
        nonlocal most
        if not first.is_set():
            first.set()
            time.sleep(4.0)  # silent, and then back
            return [DONE]
        with lock:
            at_work[get_worker().name] += 1
            most = max(most, at_work.total())
        time.sleep(0.5)
        with lock:
            at_work[get_worker().name] -= 1
        return [DONE] * len(asked["chunks"])

    monkeypatch.setattr(member, "_train", train)
    start(one=1, two=1)
    assert kinds(swept(cluster, tmp_path, 10, most=1)) == {"done": 10, "lost": 1}
    assert most == 1


def test_results_that_can_not_be_fetched_from_one_machine_hold_up_no_other(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask fetches several results at once: those of a machine that is gone, whose orders are dropped, and others."""
    scheduler, gone = cluster.scheduler, threading.Event()
    fetch = scheduler.handlers["gather"]

    async def gather(keys: list[str]) -> Any:
        held = (scheduler.tasks[key].who_has or () for key in keys if key in scheduler.tasks)
        if "gone" in {worker.name for workers in held for worker in workers}:
            await asyncio.sleep(15)  # nothing answers there
        return await fetch(keys=keys)

    monkeypatch.setitem(scheduler.handlers, "gather", gather)
    ended = itertools.count(1)  # one after another, so that the last of them are fetched together

    def seconds(name: str) -> float:
        return 0.5 + 0.3 * next(ended) if name == "gone" else 0.3 if gone.is_set() else 3.5

    monkeypatch.setattr(member, "_train", pretend(seconds))
    doomed, _ = start(gone=6, well=1)

    def leave() -> None:
        gone.set()
        cluster.sync(scheduler.remove_worker, doomed.address, stimulus_id="test", close=False)

    threading.Timer(6.0, leave).start()
    assert kinds(swept(cluster, tmp_path, 20))["done"] == 20


def test_one_that_dask_has_paused_holds_nothing_up(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, and its heart beats, but it begins nothing."""
    monkeypatch.setattr(member, "_train", pretend(lambda name: 0.2))
    paused, _ = start(paused=1, well=1)

    async def pause() -> None:
        paused.status = Status.paused

    cluster.sync(pause)
    events = swept(cluster, tmp_path, 6)
    assert kinds(events) == {"done": 6, "lost": 1}
    [lost] = [event["error"] for event in events if event["event"] == "lost"]
    assert lost.endswith("begins nothing: Dask says that it is paused")


def test_others_are_used_in_place_of_those_that_are_of_no_use(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no more are asked for than those that came first."""
    closed = min(worker.address for worker in start(one=1, two=1))  # the first that Dask names
    monkeypatch.setattr(member, "train", denied(lambda worker: worker.address == closed))
    assert kinds(swept(cluster, tmp_path, 6, most=1)) == {"done": 6, "lost": 1}


def test_those_that_the_pool_has_not_heard_of_yet_are_spare(
    cluster: LocalCluster, start: Start, tmp_path: Path
) -> None:
    """Or the last of those that it has could end it all, if that one is of no use."""
    start(one=1)
    with contextlib.closing(engine._Members(engine.DaskEngine(cluster.scheduler_address), tmp_path)) as crew:
        wait_for(lambda: crew._slots, "the worker")
        assert crew.spare
        worker, event = crew.next()
        assert event == {"event": "joined"}
        assert worker is not None
        worker.joined = True
        assert not crew.spare


def test_an_order_that_was_given_up_is_dropped_at_once(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped, first = threading.Event(), threading.Event()

    def train(asked: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
        if first.is_set():
            return [DONE] * len(asked["chunks"])
        first.set()
        worker, key = get_worker(), thread_state.key
        time.sleep(8.0)  # silent, given up, and then back
        member._tell(asked, [])
        end = time.monotonic() + 20.0
        while time.monotonic() < end and not dropped.is_set():
            task = worker.state.tasks.get(key)
            if task is None or task.state != "executing":
                dropped.set()
            time.sleep(0.05)
        return [DONE]

    monkeypatch.setattr(member, "_train", train)
    start(one=1)
    gc.disable()  # which would drop it some time
    try:
        assert kinds(swept(cluster, tmp_path, 2)) == {"done": 2, "lost": 1, "told": 2}
    finally:
        gc.enable()
    assert dropped.is_set()


def test_a_connection_that_can_not_be_closed_is_left_and_another_made(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a scheduler reads nothing any more."""
    look_around, close, lost = engine._Members._look_around, Client.close, threading.Event()

    async def lose(crew: Any, client: Client) -> None:
        if lost.is_set():
            await look_around(crew, client)
        raise OSError

    async def closed(client: Client) -> None:
        await close(client)
        if not lost.is_set():
            lost.set()
            raise TimeoutError

    monkeypatch.setattr(engine._Members, "_look_around", lose)
    monkeypatch.setattr(Client, "close", lambda client, *given: closed(client))
    monkeypatch.setattr(member, "_train", pretend(lambda name: 0.1))
    start(well=1)
    assert kinds(swept(cluster, tmp_path, 4)) == {"told": 2, "done": 4}


def test_an_error_that_nobody_thought_of_ends_the_sweep(
    cluster: LocalCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, lost = threading.Event(), list[dict[str, Any]]()

    def train(asked: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
        at_work.set()
        time.sleep(2.0)
        return [DONE]

    def show(crew: Any) -> None:
        if at_work.is_set():
            raise RuntimeError("unheard of")

    monkeypatch.setattr(member, "_train", train)
    monkeypatch.setattr(engine._Members, "_show_sign", show)
    start(one=1)
    crew = engine._Members(engine.DaskEngine(cluster.scheduler_address), tmp_path)
    events = dispatch([Chunk(chunk.runs, 2, tmp_path) for chunk in chunks_of(4)], crew, 3)
    with pytest.raises(WorkerError, match=r"^Dask: RuntimeError: unheard of$"):
        lost.extend(events)
    assert lost == []
