"""Finding a Dask cluster, or starting one on this machine, and what planning has to know of it."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from dask import config
from distributed import Client, LocalCluster, Security, wait
from distributed.comm import get_address_host, get_address_host_port
from distributed.core import rpc

from greedyac.core.errors import InputError, WorkerError
from greedyac.core.machine import Machine
from greedyac.execution.dask.call import call

ALLOWED = (
    "allowed: tcp://host:8786, host:8786, tls://host:8786, or the file that `dask scheduler --scheduler-file` wrote"
)
CONNECT_SECONDS = 10.0
FILE_SECONDS = 10.0
"""So long a scheduler's file is waited for: schedulers take a moment to start."""
LOOK_SECONDS = 0.5
CALM = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system_monitor.interval": "5s",
    "distributed.worker.profile.enabled": False,
}
"""How Dask looks after itself less often, which takes it several percent of a core otherwise."""
WORKER_OPTIONS = ("--memory-limit", "0", "--no-dashboard", "--death-timeout", "60")
"""No limit, as the processes that train are not Dask's own."""
_ADDRESS = re.compile(r"((tcp|tls)://)?[^\s/]+:(?P<port>\d{1,5})")


class Cluster(NamedTuple):
    """A cluster as it was found."""

    address: str
    dashboard: str | None
    workers: int
    """Chunks that it can train at once."""
    machine: Machine
    """The one with the least memory for each of its workers."""


@contextmanager
def existing(address: str, on_message: Callable[[str], None]) -> Iterator[Cluster]:
    """A cluster by its scheduler's address or the file in which that is written; waits for its first worker."""
    _quieten()
    found = _address(address)
    named = f"--address {address!r}" if found == address else f"{found!r}, as --address {address!r} says"
    yield _look(found, named, 1, on_message)


@contextmanager
def local(workers: int) -> Iterator[Cluster]:
    """A cluster of this machine for so many chunks at once. No other machine reaches it, and it ends with the block."""
    _quieten()
    place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    settings = CALM | {"distributed.comm.require-encryption": False}  # which is for clusters that others reach
    with config.set(settings), LocalCluster(n_workers=0, **place) as cluster:
        words = [cluster.scheduler_address, "--nthreads", str(workers), *WORKER_OPTIONS]
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", "worker", *words],
            env=os.environ | variables(settings),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
        )
        try:
            address = cluster.scheduler_address
            yield _look(address, address, workers, lambda message: None, lambda: process.poll() is None)
        finally:
            process.terminate()
            process.wait()


def variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings of Dask's as environment variables."""
    return {f"DASK_{name.replace('.', '__').replace('-', '_')}".upper(): str(value) for name, value in settings.items()}


def _quieten() -> None:
    """Keep Dask from telling the user what we tell ourselves."""
    for name in ("distributed", "tornado", "asyncio", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _address(text: str) -> str:
    """The address that was given, or that stands in a file that a scheduler wrote, or is about to write."""
    if _is_address(text):
        return text
    end = time.monotonic() + (FILE_SECONDS if text.endswith(".json") else 0.0)
    while True:
        with suppress(OSError, ValueError, KeyError, TypeError):
            if _is_address(held := json.loads(Path(text).read_text())["address"]):
                return str(held)
        if time.monotonic() > end:
            break
        time.sleep(LOOK_SECONDS)
    missing = "" if Path(text).exists() else ", and there is no file of that name"
    raise InputError(f"--address {text!r} is neither an address nor a scheduler's file{missing}; {ALLOWED}")


def _is_address(text: str) -> bool:
    given = _ADDRESS.fullmatch(text)
    return given is not None and 0 < int(given["port"]) < 65536


def _look(
    address: str,
    named: str,
    least: int,
    on_message: Callable[[str], None],
    is_alive: Callable[[], bool] = lambda: True,
) -> Cluster:
    """What a cluster has, as soon as it can train so many chunks at once; `named` is its address in complaints."""
    try:
        kind = asyncio.run(_kind(address))
        reason = "" if kind == "Scheduler" else f"a {kind} does"
    except TimeoutError:
        reason = f"no word for {CONNECT_SECONDS:.0f} s"
    except OSError as error:
        number = error.errno or 0  # below 0: of a name that is not found
        reason = os.strerror(number) if number > 0 else error.strerror or " ".join(str(error).split())
    except Exception:  # it speaks, and what it says is nonsense to Dask; or we can't speak as we should
        tls = address.startswith("tls:")
        reason = "is TLS set up here? see Security in docs/cluster.md" if tls else "something else listens there"
    if reason:
        raise InputError(f"no Dask scheduler answers at {named} ({reason}); {ALLOWED}")
    try:
        with Client(address, timeout=CONNECT_SECONDS, set_as_default=False) as client:
            return _found(client, address, least, on_message, is_alive)
    except (OSError, TimeoutError, CancelledError, AttributeError):  # the last of a client that has closed itself
        raise WorkerError(f"the scheduler at {address} was lost") from None


async def _kind(address: str) -> str:
    """Which part of Dask listens there. A client would wait without end where it is none."""
    host, port = get_address_host_port(address)
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_SECONDS)
            break
        except ConnectionRefusedError:  # it may be about to start
            if time.monotonic() > end:
                raise
        await asyncio.sleep(LOOK_SECONDS)
    writer.close()
    async with asyncio.timeout(CONNECT_SECONDS):
        async with rpc(address, connection_args=Security().get_connection_args("client")) as listener:
            return str((await listener.identity())["type"])


def _found(
    client: Client, address: str, least: int, on_message: Callable[[str], None], is_alive: Callable[[], bool]
) -> Cluster:
    if not client.nthreads():
        on_message(f"there are no workers at {address}; waiting for some")
    while sum((threads := client.nthreads()).values()) < least:
        if not is_alive():
            raise WorkerError(
                "the workers of the Dask cluster could not be started: try `python -m dask worker --help`"
            )
        time.sleep(LOOK_SECONDS)
    memory = _memory(client, list(threads))
    hosts: Counter[str] = Counter()
    for worker, count in threads.items():
        hosts[get_address_host(worker)] += count
    machines = [Machine(memory.get(host), count) for host, count in hosts.items()]
    dashboard = client.dashboard_link if "dashboard" in client.scheduler_info()["services"] else None
    return Cluster(address, dashboard, sum(threads.values()), min(machines, key=_memory_each))


def _memory(client: Client, workers: Sequence[str]) -> dict[str, int]:
    """The memory of the workers' machines, of those that can tell."""
    asked = {worker: call(client, worker, "about") for worker in workers}
    with suppress(TimeoutError), client.as_current():
        wait(list(asked.values()), timeout=CONNECT_SECONDS)
    known: dict[str, int] = {}
    for worker, future in asked.items():
        if future.status == "finished":
            with suppress(TimeoutError):  # of one that was lost just now
                said = json.loads(future.result(timeout=CONNECT_SECONDS))
                known |= {} if said["bytes"] is None else {get_address_host(worker): said["bytes"]}
    return known


def _memory_each(machine: Machine) -> float:
    return sys.maxsize if machine.bytes is None else machine.bytes / machine.workers
