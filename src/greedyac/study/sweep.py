"""Sweep: run what a study asks for and the store does not hold yet."""

import contextlib
import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from greedyac.core.counting import counted
from greedyac.core.machine import Machine
from greedyac.execution.chunk import Chunk
from greedyac.execution.cost import nominal_seconds
from greedyac.execution.local import train_chunks
from greedyac.execution.plan import WORKER_BYTES, plan_chunks
from greedyac.execution.pool import Events
from greedyac.execution.speed import Speed, measure
from greedyac.study.spec import Study
from greedyac.study.store import Store
from greedyac.training.config import Run, RunConfig
from greedyac.training.program import Program, lane_bytes

CHUNK_SECONDS = 450.0
"""How long a chunk should keep one core busy: what a kill can lose."""
ATTEMPTS = 3
"""How often a chunk is tried whose worker dies."""
RATE_SECONDS = 30.0
"""The time over which progress takes the mean of its speed."""
KNOWN_SECONDS = 1.0
"""No speed is told sooner: steps that were done before counting began may be told all at once."""
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
            programs.setdefault(chunk.config.program, []).append(chunk)
        return programs

    @property
    def bytes(self) -> int:
        """Memory of all workers together, at the most."""
        lanes = max((chunk.width * lane_bytes(chunk.config.program) for chunk in self.chunks), default=0)
        return int(min(self.workers, len(self.chunks)) * (WORKER_BYTES + lanes)) if self.chunks else 0


def make_plan(
    study: Study,
    store: Store,
    workers: int,
    *,
    shard: Shard = WHOLE,
    retry_failed: bool = False,
    chunk_seconds: float = CHUNK_SECONDS,
    machine: Machine | None = None,
    lanes: int = 0,
) -> Plan:
    """What is missing, in chunks. It depends on nothing but these arguments and what the store holds.

    `machine` is the one whose workers have the least memory, if they are elsewhere. On accelerators so many `lanes`
    advance side by side.
    """
    missing, held = look_up(study, store, shard, retry_failed)
    chunks = plan_chunks(missing, workers, store.chunks, seconds=chunk_seconds, machine=machine, lanes=lanes)
    return Plan(study, held, chunks, workers, shard)


def look_up(study: Study, store: Store, shard: Shard, retry_failed: bool) -> tuple[list[Run], Counter[str]]:
    """The runs that are missing, and how many are there by status."""
    known = store.statuses()
    runs = {run_id: run for run_id, run in study.runs().items() if shard.holds(run_id)}
    held = {run_id: known[run_id] for run_id in runs if run_id in known}
    if retry_failed:
        held = {run_id: status for run_id, status in held.items() if status != "failed"}
    return [run for run_id, run in runs.items() if run_id not in held], Counter(held.values())


class SweepProgress(NamedTuple):
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


Engine = Callable[[Sequence[Chunk], int], Events]
"""What trains chunks, and tries those up to so often whose processes die."""


def run_plan(
    plan: Plan,
    store: Store,
    on_progress: Callable[[SweepProgress], None],
    on_message: Callable[[str], None],
    engine: Engine | None = None,
) -> SweepProgress:
    """Train the chunks of a plan, by default on this machine, and publish them; how it ended."""
    store.record_study(plan.study)
    meter = _Meter(plan)
    if not plan.chunks:
        return meter.progress()
    on_progress(meter.progress())
    events = engine(plan.chunks, ATTEMPTS) if engine else train_chunks(plan.chunks, plan.workers, ATTEMPTS)
    with contextlib.closing(events):
        for event in events:
            if event["event"] == "told":
                on_message(event["message"])
                continue
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
                failed_for_good = event["event"] == "failed"
                then = "tried again"
                if failed_for_good:
                    then = f"recorded as failed after {counted(event['attempts'], 'attempt')}"
                if not event["again"]:
                    on_message(f"chunk {chunk.chunk_id} ({_about(chunk)}): {event['error']}; {then}")
                if failed_for_good:
                    store.record_failure(chunk.runs, event["error"], event["attempts"])
                    meter.end(chunk, failed=len(chunk.runs))
            on_progress(meter.progress())
    return meter.progress()


def _about(chunk: Chunk) -> str:
    return f"{counted(len(chunk.runs), 'run')} of {chunk.config.agent} on {chunk.config.env_label}"


class _Meter:
    """Counts what the events of a sweep say."""

    def __init__(self, plan: Plan):
        self._counts = Counter(plan.held)
        self._runs = plan.held.total() + plan.missing
        self._work = sum(map(_nominal_seconds, plan.chunks))
        self._ended = self._under_way = self._void = 0.0  # nominal seconds
        self._steps = Counter[Chunk]()
        self._began: float | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self._said: set[str] = set()

    def add_steps(self, chunk: Chunk, steps: int) -> None:
        now = time.monotonic()
        self._began = self._began or now
        self._steps[chunk] += steps
        self._under_way += _nominal_seconds_of_step(chunk) * steps
        self._recent.append((now, steps))
        while now - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()

    def lose_steps(self, chunk: Chunk) -> None:
        """Count a chunk as not begun. That its steps took their time is still known."""
        self._void += _nominal_seconds_of_step(chunk) * self._steps[chunk]
        self._forget_steps(chunk)

    def _forget_steps(self, chunk: Chunk) -> None:
        del self._steps[chunk]
        self._under_way = sum(_nominal_seconds_of_step(chunk) * steps for chunk, steps in self._steps.items())

    def end(self, chunk: Chunk, **counts: int) -> None:
        """Count a chunk as worked off, however that came about."""
        self._ended += _nominal_seconds(chunk)
        self._forget_steps(chunk)
        self._counts.update(counts)

    def say_once(self, on_message: Callable[[str], None], message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            on_message(message)

    def progress(self) -> SweepProgress:
        rate = left = None
        now = time.monotonic()
        worked = self._ended + self._under_way
        if self._began is not None and worked + self._void > 0 and now - self._began >= KNOWN_SECONDS:
            rate = sum(steps for _, steps in self._recent) / min(RATE_SECONDS, now - self._began)
            left = max(0.0, (self._work - worked) * (now - self._began) / (worked + self._void))
        settled = self._counts.total() == self._runs
        share = 1.0 if settled else min(0.99, worked / self._work)  # trained is not yet published
        counts = {status: self._counts[status] for status in ("done", "diverged", "failed")}
        return SweepProgress(runs=self._runs, **counts, share=share, rate=rate, seconds_left=left)


class Probe(NamedTuple):
    """What a short training of a configuration showed."""

    config: RunConfig
    speed: Speed


class Estimate(NamedTuple):
    """How long a plan will take here, and what was measured to tell."""

    seconds: float
    probes: list[Probe]


def estimate(plan: Plan, on_probe: Callable[[RunConfig], None]) -> Estimate:
    """Train the plan's largest parts for some seconds each, and take the others in proportion to their nominal time.

    Programs of one agent on one kind of actions count as one part.
    """
    parts: dict[tuple[str, type], list[Chunk]] = {}
    for chunk in plan.chunks:
        parts.setdefault(_part(chunk.config), []).append(chunk)
    work = Counter({part: sum(map(_nominal_seconds, chunks)) for part, chunks in parts.items()})
    probes = []
    for part, _ in work.most_common(PROBES):
        chunk = parts[part][0]
        on_probe(chunk.config)
        speed = measure(chunk.config, _workers(plan), chunk.width, PROBE_SECONDS, cached=False)
        probes.append(Probe(chunk.config, speed))
    return Estimate(seconds_of(plan, probes), probes)


def seconds_of(plan: Plan, probes: Sequence[Probe]) -> float:
    """How long a plan takes where such probes were as fast as that, chunk by chunk on its workers."""
    if not plan.chunks:
        return 0.0
    workers, slowness = _workers(plan), {}
    for probe in probes:
        nominal_rate = workers * probe.config.steps / nominal_seconds(probe.config)
        slowness[_part(probe.config)] = nominal_rate / probe.speed.run_steps_per_second
    typical = sum(slowness.values()) / len(slowness)
    ends = [0.0] * workers
    for chunk in plan.chunks:
        seconds = chunk.all_lanes * nominal_seconds(chunk.config) * slowness.get(_part(chunk.config), typical)
        heapq.heapreplace(ends, ends[0] + seconds)
    compilation = sum(probe.speed.compile_seconds for probe in probes) / len(probes)
    return max(ends) + compilation * max(1.0, len(plan.programs) / workers)


def _workers(plan: Plan) -> int:
    return min(plan.workers, len(plan.chunks))


def _part(config: RunConfig) -> tuple[str, type]:
    return config.agent, type(config.world.spaces.action)


def _nominal_seconds_of_step(chunk: Chunk) -> float:
    return nominal_seconds(chunk.config) / chunk.config.steps


def _nominal_seconds(chunk: Chunk) -> float:
    return nominal_seconds(chunk.config) * len(chunk.runs)
