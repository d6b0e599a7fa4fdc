"""Sweep: run what a study asks for and the store does not hold yet."""

import contextlib
import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from greedyac.study.spec import Study
from greedyac.study.store import Store
from greedyac.training.bench import Speed, measure
from greedyac.training.chunk import Chunk
from greedyac.training.cost import lane_bytes, nominal_seconds
from greedyac.training.loop import Program
from greedyac.training.plan import WORKER_BYTES, plan_chunks
from greedyac.training.pool import PINS, train_chunks
from greedyac.training.runs import Case

CHUNK_SECONDS = 450.0
"""How long a chunk should keep one core busy: what a kill can lose."""
ATTEMPTS = 3
"""How often a chunk is tried whose worker dies."""
RATE_SECONDS = 30.0
"""The time over which progress takes the mean of its speed."""
PROBES = 6
PROBE_SECONDS = 3.0


class Shard(NamedTuple):
    """One of several parts of a study, about equal in size; a run's id decides where it belongs."""

    part: int
    parts: int

    def holds(self, run_id: str) -> bool:
        """Whether a run is in this part."""
        return int(run_id, 16) % self.parts == self.part - 1


WHOLE = Shard(1, 1)


@dataclass(frozen=True)
class Plan:
    """What is to be done for a study: the state of its runs in the store, and chunks of those that are missing."""

    study: Study
    held: Counter[str]
    """Runs by status: done, diverged, failed (and not to be tried again)."""
    chunks: list[Chunk]
    workers: int
    shard: Shard

    @cached_property
    def missing(self) -> int:
        """Runs that are to be trained."""
        return sum(len(chunk.runs) for chunk in self.chunks)

    @cached_property
    def programs(self) -> dict[Program, list[Chunk]]:
        """The chunks by what has to be compiled for them."""
        programs: dict[Program, list[Chunk]] = {}
        for chunk in self.chunks:
            programs.setdefault(chunk.case.program, []).append(chunk)
        return programs

    @property
    def bytes(self) -> int:
        """Memory of all workers together, at the most."""
        lanes = max((chunk.width * lane_bytes(chunk.case.program) for chunk in self.chunks), default=0)
        return int(min(self.workers, len(self.chunks)) * (WORKER_BYTES + lanes)) if self.chunks else 0


def make_plan(
    study: Study,
    store: Store,
    workers: int,
    *,
    shard: Shard = WHOLE,
    retry_failed: bool = False,
    chunk_seconds: float = CHUNK_SECONDS,
) -> Plan:
    """What is missing, in chunks. It depends on nothing but these arguments and what the store holds."""
    known = store.statuses()
    runs = {run_id: run for run_id, run in study.runs().items() if shard.holds(run_id)}
    held = {run_id: known[run_id] for run_id in runs if run_id in known}
    if retry_failed:
        held = {run_id: status for run_id, status in held.items() if status != "failed"}
    missing = [run for run_id, run in runs.items() if run_id not in held]
    chunks = plan_chunks(missing, workers, store.chunks, seconds=chunk_seconds)
    return Plan(study, Counter(held.values()), chunks, workers, shard)


class Progress(NamedTuple):
    """How far a sweep has come; the runs that the store held before count as well."""

    runs: int
    done: int
    diverged: int
    failed: int
    share: float
    """Of the work of this sweep, by its nominal seconds."""
    rate: float | None
    """Run-steps per second of late."""
    seconds_left: float | None


def run_plan(
    plan: Plan, store: Store, on_progress: Callable[[Progress], None], on_message: Callable[[str], None]
) -> Progress:
    """Train the chunks of a plan and publish them; how it ended."""
    store.record_study(plan.study)
    meter = _Meter(plan)
    if not plan.chunks:
        return meter.progress()
    on_progress(meter.progress())
    if not PINS:
        on_message("this system does not pin processes to cores: workers run where it puts them")
    with contextlib.closing(train_chunks(plan.chunks, plan.workers, ATTEMPTS)) as events:
        for event in events:
            chunk: Chunk = event["chunk"]
            if event["event"] == "steps":
                meter.add_steps(chunk, event["steps"])
            elif event["event"] == "done":
                failed = event["failed"]
                for error in sorted(set(failed.values())):
                    runs = [run for run in chunk.runs if failed.get(run.run_id) == error]
                    store.record_failure(runs, error, attempts=1)
                    on_message(f"{len(runs)} of {_about(chunk)} failed: {error}")
                done = event["runs"] - event["diverged"]
                meter.end(chunk, diverged=event["diverged"], done=done, failed=len(failed))
                if not event["links"]:
                    meter.say_once(on_message, "this file system has no hard links: files are renamed into place")
            elif event["event"] in ("lost", "failed"):
                meter.lose_steps(chunk)
                on_message(f"chunk {chunk.chunk_id} ({_about(chunk)}): {event['error']}; {_then(event['event'])}")
                if event["event"] == "failed":
                    store.record_failure(chunk.runs, event["error"], event["attempts"])
                    meter.end(chunk, failed=len(chunk.runs))
            on_progress(meter.progress())
    return meter.progress()


def _about(chunk: Chunk) -> str:
    return f"{len(chunk.runs)} runs of {chunk.case.agent} on {chunk.case.env_label}"


def _then(event: str) -> str:
    return "tried again" if event == "lost" else f"recorded as failed after {ATTEMPTS} attempts"


class _Meter:
    """Counts what the events of a sweep say."""

    def __init__(self, plan: Plan):
        self._counts = Counter(plan.held)
        self._runs = plan.held.total() + plan.missing
        self._work = sum(map(_nominal_seconds, plan.chunks))
        self._ended, self._steps = 0.0, Counter[Chunk]()
        self._began: float | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self._said: set[str] = set()

    def add_steps(self, chunk: Chunk, steps: int) -> None:
        now = time.monotonic()
        self._began = self._began or now
        self._steps[chunk] += steps
        self._recent.append((now, steps))
        while now - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()

    def lose_steps(self, chunk: Chunk) -> None:
        del self._steps[chunk]

    def end(self, chunk: Chunk, **counts: int) -> None:
        """Count a chunk as worked off, however that came about."""
        self._ended += _nominal_seconds(chunk)
        del self._steps[chunk]
        self._counts.update(counts)

    def say_once(self, on_message: Callable[[str], None], message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            on_message(message)

    def progress(self) -> Progress:
        rate = left = None
        now = time.monotonic()
        under_way = (steps * nominal_seconds(chunk.case) / chunk.case.steps for chunk, steps in self._steps.items())
        worked = self._ended + sum(under_way)
        if self._began is not None and worked > 0 and now > self._began:
            rate = sum(steps for _, steps in self._recent) / min(RATE_SECONDS, now - self._began)
            left = max(0.0, (self._work - worked) * (now - self._began) / worked)
        settled = self._counts.total() == self._runs
        share = 1.0 if settled else min(0.999, worked / self._work)  # trained is not yet published
        counts = {status: self._counts[status] for status in ("done", "diverged", "failed")}
        return Progress(runs=self._runs, **counts, share=share, rate=rate, seconds_left=left)


class Probe(NamedTuple):
    """What a short training of a case showed."""

    case: Case
    speed: Speed


class Estimate(NamedTuple):
    """How long a plan will take here, and what was measured to tell."""

    seconds: float
    probes: list[Probe]


def estimate(plan: Plan, on_probe: Callable[[Case], None]) -> Estimate:
    """Train the plan's largest parts for some seconds each, and take the others in proportion to their nominal time.

    Programs of one agent on one kind of actions count as one part.
    """
    parts: dict[tuple[str, type], list[Chunk]] = {}
    for chunk in plan.chunks:
        parts.setdefault(_part(chunk.case), []).append(chunk)
    work = Counter({part: sum(map(_nominal_seconds, chunks)) for part, chunks in parts.items()})
    probes = []
    for part, _ in work.most_common(PROBES):
        chunk = parts[part][0]
        on_probe(chunk.case)
        probes.append(Probe(chunk.case, measure(chunk.case, _workers(plan), chunk.width, PROBE_SECONDS)))
    return Estimate(seconds_of(plan, probes), probes)


def seconds_of(plan: Plan, probes: Sequence[Probe]) -> float:
    """How long a plan takes where such probes were as fast as that, chunk by chunk on its workers."""
    if not plan.chunks:
        return 0.0
    workers, slowness = _workers(plan), {}
    for probe in probes:
        nominal_rate = workers * probe.case.steps / nominal_seconds(probe.case)
        slowness[_part(probe.case)] = nominal_rate / probe.speed.run_steps_per_second
    typical = sum(slowness.values()) / len(slowness)
    ends = [0.0] * workers
    for chunk in plan.chunks:
        lanes = chunk.width * math.ceil(len(chunk.runs) / chunk.width)  # padding takes its time, too
        seconds = lanes * nominal_seconds(chunk.case) * slowness.get(_part(chunk.case), typical)
        heapq.heapreplace(ends, ends[0] + seconds)
    compilation = sum(probe.speed.compile_seconds for probe in probes) / len(probes)
    return max(ends) + compilation * max(1.0, len(plan.programs) / workers)


def _workers(plan: Plan) -> int:
    return min(plan.workers, len(plan.chunks))


def _part(case: Case) -> tuple[str, type]:
    return case.agent, type(case.world.spaces.action)


def _nominal_seconds(chunk: Chunk) -> float:
    return nominal_seconds(chunk.case) * len(chunk.runs)
