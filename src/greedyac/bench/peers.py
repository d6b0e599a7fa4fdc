"""How fast other libraries train the same agents here: scripts in `greedyac/peers`, run by a Python that has them.

As for our own agents, one process per core, each pinned to it, all at once. What counts is the rate of one core.
"""

import json
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from greedyac.bench.measure import Bench, matmul_gflops
from greedyac.core.machine import cores

SCRIPTS = Path(__file__).parents[1] / "peers"
ENV = "Pendulum-CA"
"""The environment of ours that is like the one that the peers are trained on."""
PATIENCE = 240.0
"""Seconds that a peer may take to import, to compile and to warm up."""
LONGEST = 120
"""Letters of a peer's complaint that are told."""
PINNED = """
import os, sys
core, *command = sys.argv[1:]
if int(core) >= 0:
    os.sched_setaffinity(0, {int(core)})
os.execv(sys.executable, [sys.executable, *command])
"""


class Peer(NamedTuple):
    """A script, its options, and which of our agents it is compared with."""

    name: str
    agent: str
    script: str
    options: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What it is called in files: `sac_rejax --runs 4`."""
        return " ".join((self.script, *self.options))


PEERS = (
    Peer("PyTorch GreedyAC (eager)", "greedy-ac", "greedy_ac_torch"),
    Peer("PyTorch GreedyAC (torch.compile)", "greedy-ac", "greedy_ac_torch_compiled"),
    Peer("Stable-Baselines3 SAC", "sac", "sac_stable_baselines3"),
    Peer("SBX SAC", "sac", "sac_sbx"),
    Peer("rejax SAC, 1 run", "sac", "sac_rejax", ("--runs", "1")),
    Peer("rejax SAC, 4 runs at once", "sac", "sac_rejax", ("--runs", "4")),
)


class Told(NamedTuple):
    """What a peer's processes told: the mean of their rates, or why there is none."""

    rate: float | None
    error: str | None
    versions: Mapping[str, str]


class PeerResult(NamedTuple):
    """How fast a peer trains beside our agent, each on one core; the fields that `greedyac bench --json` prints."""

    peer: str
    key: str
    agent: str
    steps_per_second: float | None
    ours_per_second: float
    times_faster: float | None
    error: str | None
    versions: Mapping[str, str]


class PeersBench(NamedTuple):
    """All peers of one run of the benchmark, and the matrix product between them."""

    matmul_gflops: float
    results: list[PeerResult]


def peers_of(agents: Iterable[str]) -> list[Peer]:
    """Those that can be compared with one of these agents."""
    agents = set(agents)
    return [peer for peer in PEERS if peer.agent in agents]


def per_core(ours: Bench) -> dict[str, float]:
    """Agent → run-steps per second on one core, on the environment that the peers have, too."""
    return {one.agent: one.run_steps_per_second / one.workers for one in ours.results if one.env == ENV}


def factor(times: float) -> str:
    """How many times faster, with two digits or more: `9.6`, `23`, `112`."""
    return f"{times:.1f}" if times < 9.95 else f"{times:,.0f}"


def bench_peers(
    peers: Iterable[Peer], python: str, seconds: float, ours: Mapping[str, float], on_start: Callable[[str], None]
) -> PeersBench:
    """Measure these peers beside our agents' rates on one core, and matrix products in between."""
    results, products = [], [matmul_gflops()]
    for peer in peers:
        on_start(peer.name)
        told = measure_peer(peer, python, seconds, seconds + PATIENCE)
        times = ours[peer.agent] / told.rate if told.rate else None
        results.append(
            PeerResult(peer.name, peer.key, peer.agent, told.rate, ours[peer.agent], times, told.error, told.versions)
        )
        products.append(matmul_gflops())
    return PeersBench(median(products), results)


def measure_peer(peer: Peer, python: str, seconds: float, timeout: float) -> Told:
    """Run the peer on every core at once; it has no rate if any of its processes fails or takes too long."""
    command = [str(SCRIPTS / f"{peer.script}.py"), *peer.options, "--seconds", str(seconds)]
    deadline, processes, rates = time.monotonic() + timeout, list[_Process](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number, core in enumerate(cores()):
                processes.append(_Process(python, core, command, Path(folder, str(number))))
            for process in processes:
                told = process.told(deadline)
                if told.rate is None:
                    return told
                rates.append(told.rate)
            return told._replace(rate=mean(rates))
        except subprocess.TimeoutExpired:
            return Told(None, f"no result after {timeout:g} s", {})
        except OSError as error:
            return Told(None, str(error), {})
        finally:
            for process in processes:
                process.end()


class _Process:
    """A process on its core; what it prints goes to files, which never block it. Ctrl-C is for us, who then end it."""

    def __init__(self, python: str, core: int, command: Sequence[str], files: Path):
        self._out, self._err = files.with_suffix(".out"), files.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [python, "-c", PINNED, str(core), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={
                    **os.environ,
                    "PJRT_NPROC": "1",
                    "OMP_NUM_THREADS": "1",
                    "SB3_LOGDIR": str(files.parent),
                },
                start_new_session=True,
            )

    def told(self, deadline: float) -> Told:
        """Its result, when it has ended."""
        if code := self._process.wait(max(deadline - time.monotonic(), 0)):
            ending = f"signal {-code}" if code < 0 else f"exit code {code}"
            return Told(None, (_last_line(self._err) or ending)[:LONGEST], {})
        return parse_told(_last_line(self._out))

    def end(self) -> None:
        """Also what it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (AttributeError, OSError):  # not on every system, or ended
            self._process.kill()
        self._process.wait()


def _last_line(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def parse_told(line: str) -> Told:
    """What a peer's last line says: `{"steps_per_second": 594.9, "versions": {"torch": "2.13.0"}}`."""
    try:
        found = json.loads(line)
        rate, versions = float(found["steps_per_second"]), dict(found["versions"])
    except (ValueError, TypeError, KeyError):
        rate, versions = math.nan, {}
    if not 0 < rate < math.inf:
        return Told(None, f"printed no result: {line[:LONGEST]!r}", {})
    return Told(rate, None, {str(name): str(version) for name, version in versions.items()})
