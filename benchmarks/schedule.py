"""How long the paper's two sweeps together, 23,400 runs, would take on 1 to 1,000 workers: a simulated schedule.

    python benchmarks/schedule.py [--workers 1 10 100] [--probe] [--out docs/images/cluster-schedule.png]

Real are the plan, made for each number of workers, and the rule by which chunks are handed out (`training.pool`), which
here has a crew with a clock of its own. Measured are the times. A step of a run takes the median over the kept runs of
its agent on its environment: 4,683 runs in `results/`, each on one of two cores. The start of a worker's process and
the compilation of a program in it take what `--probe` found, and an order to a worker what `benchmarks/cluster.py` did.
Not in it: workers that come late, differ in speed or die, and chunks that take longer than others of their program.
"""

import argparse
import heapq
import itertools
import queue
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import polars as pl
import psutil
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from greedyac.analysis.figures import COLOURS
from greedyac.core.machine import Machine, cores
from greedyac.execution.chunk import Chunk
from greedyac.execution.cost import nominal_seconds
from greedyac.execution.dask.engine import _Members
from greedyac.execution.plan import best_width
from greedyac.execution.pool import Worker, WorkerGroup, dispatch
from greedyac.execution.process import WorkerProcess
from greedyac.study.spec import Study, load_study
from greedyac.study.store import Store
from greedyac.study.sweep import ATTEMPTS, make_plan
from greedyac.training.config import Run, RunConfig
from greedyac.training.program import Program

ROOT = Path(__file__).parents[1]
STUDIES = ("paper/sweep-ca", "paper/sweep-da")
WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
MACHINE = Machine(16 * 2**30, 8)
"""16 GB for every eight workers."""
START_SECONDS = 1.9
COMPILE_SECONDS = {"greedy-ac": 15.0, "sac": 14.4, "vanilla-ac": 13.8}
"""Of a worker's process, and of a program by its agent: as `--probe` printed on a core of an AMD EPYC, beside other
work."""
DISPATCH_SECONDS = 0.0145
"""Of an order, in the one process that gives them one after another, and in Dask's scheduler: their processor time, as
`benchmarks/cluster.py rate` finds."""
LOSSES = {"idle at the end": COLOURS[4], "compilation": COLOURS[2], "orders": COLOURS[3], "empty lanes": COLOURS[5]}
"""What workers spend time on beside the work, and its colour."""

Pair = tuple[str, str]
"""An agent, and an environment with its options."""


class Costs(NamedTuple):
    """Seconds of all that takes time."""

    step: Mapping[Pair, float]
    """Of a step of one lane, among others."""
    compilation: Mapping[str, float] = COMPILE_SECONDS
    """Of a program, by its agent."""
    start: float = START_SECONDS
    dispatch: float = DISPATCH_SECONDS

    def run(self, config: RunConfig) -> float:
        """Of one run."""
        return self.step[pair_of(config)] * config.steps


class Schedule(NamedTuple):
    """How it went, in seconds."""

    workers: int
    chunks: int
    seconds: float
    """From the first order to the last result."""
    longest: float
    """Of the longest chunk, once its program is compiled."""
    work: float
    """Of all runs, on one worker."""
    padding: float
    """Of lanes without a run."""
    compilation: float
    """Of all processes, from their start."""
    waiting: float
    """For orders."""

    @property
    def ideal(self) -> float:
        """If the workers did nothing but train runs, up to the end."""
        return self.work / self.workers

    @property
    def efficiency(self) -> float:
        """The part of the workers' time that is work."""
        return self.ideal / self.seconds

    @property
    def losses(self) -> dict[str, float]:
        """The other parts."""
        whole, known = self.seconds * self.workers, (self.compilation, self.waiting, self.padding)
        idle = whole - self.work - sum(known)
        return {name: seconds / whole for name, seconds in zip(LOSSES, (idle, *known), strict=True)}


class SimulatedWorker(Worker):
    """One that trains nothing, and takes the time for it."""

    def __init__(self, crew: "SimulatedCrew"):
        super().__init__()
        self._crew = crew
        self.compiled: set[Program] = set()

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Tell the crew, which knows the time."""
        self._crew.order(self, chunks)


class SimulatedCrew(WorkerGroup):
    """Workers that are there from the beginning, and a clock that goes from event to event."""

    same_machine = False
    batch_seconds = _Members.batch_seconds

    def __init__(self, workers: int, costs: Costs):
        super().__init__()
        self._costs, self._number = costs, itertools.count()
        self._coming: list[tuple[float, int, Worker, dict[str, Any]]] = []
        self.now = self._ordered = self.padding = self.compilation = self.waiting = 0.0
        for _ in range(workers):
            self._expect(0.0, SimulatedWorker(self), "joined")

    def _expect(self, when: float, worker: Worker, event: str) -> None:
        heapq.heappush(self._coming, (when, next(self._number), worker, {"event": event}))

    def next(self) -> tuple[Worker | None, dict[str, Any]]:
        """The earliest of what is to come."""
        self.now, _, worker, event = heapq.heappop(self._coming)
        return worker, event

    def order(self, worker: SimulatedWorker, chunks: Sequence[Chunk]) -> None:
        """Have a worker train chunks, once all orders before have been given."""
        self._ordered = max(self.now, self._ordered) + self._costs.dispatch
        self.waiting += self._ordered - self.now
        end = self._ordered
        for chunk in chunks:
            compilation = 0.0 if worker.compiled else self._costs.start
            if chunk.config.program not in worker.compiled:
                compilation += self._costs.compilation[chunk.config.agent]
                worker.compiled.add(chunk.config.program)
            self.compilation += compilation
            self.padding += (chunk.all_lanes - len(chunk.runs)) * self._costs.run(chunk.config)
            end += compilation + chunk.all_lanes * self._costs.run(chunk.config)
            self._expect(end, worker, "done")

    def close(self) -> None:
        """There is nothing to end."""


def pair_of(config: RunConfig) -> Pair:
    """What kept runs of such a case are found by."""
    return config.agent, config.env_label


def simulate(chunks: Sequence[Chunk], workers: int, costs: Costs) -> Schedule:
    """How so many workers would work off the chunks."""
    crew = SimulatedCrew(workers, costs)
    for _ in dispatch(chunks, crew, ATTEMPTS):
        pass
    longest = max(chunk.all_lanes * costs.run(chunk.config) for chunk in chunks)
    work = sum(len(chunk.runs) * costs.run(chunk.config) for chunk in chunks)
    return Schedule(workers, len(chunks), crew.now, longest, work, crew.padding, crew.compilation, crew.waiting)


def united(names: Sequence[str]) -> Study:
    """Studies of the same seeds as one."""
    first, *others = map(load_study, names)
    assert all(other.seeds == first.seeds for other in others)
    return replace(first, configs=sum((other.configs for other in others), first.configs))


def kept_steps(results: Path) -> dict[Pair, list[float]]:
    """Seconds of a step in each run of all stores in a folder, but for the sweep, which gives way to all other work."""
    kept: dict[Pair, list[float]] = {}
    for chunks in sorted(set(results.glob("*/chunks")) - {results / "sweep/chunks"}):
        rows = Store.existing(chunks.parent).read(["run_id", "agent", "env", "steps", "seconds", "status"]).rows
        trained = rows.filter(pl.col("status") != "failed").select("agent", "env", pl.col("seconds") / pl.col("steps"))
        for agent, env, seconds in trained.iter_rows():
            kept.setdefault((agent, env), []).append(seconds)
    return kept


def step_seconds(configs: Sequence[RunConfig], kept: Mapping[Pair, Sequence[float]]) -> dict[Pair, float]:
    """A step's median for each pair among the cases; for one that was not kept, in proportion to its nominal time.

    Not the mean: some kept runs bear a compilation, or empty lanes beside them.
    """
    nominal = {pair_of(config): nominal_seconds(config) / config.steps for config in configs}
    known = {pair: median(kept[pair]) for pair in nominal if pair in kept}
    slowness = median(seconds / nominal[pair] for pair, seconds in known.items())
    return {pair: known.get(pair, slowness * seconds) for pair, seconds in nominal.items()}


class Probe(NamedTuple):
    """Processor seconds of a worker's process."""

    start: float
    compilation: float


def probe(config: RunConfig) -> Probe:
    """Start a process on one core, and end it once it has compiled.

    What it used of the processor is what it takes on a core that it has for itself.
    """
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    process, used, width = WorkerProcess(cores()[-1], events.put, cached=False), dict[str, float](), best_width(config)
    try:
        process.send(Chunk([Run(config, seed) for seed in range(width)], width, Path()).to_json())
        while "steps" not in used:
            event = events.get()["event"]
            assert event in ("ready", "steps"), event
            times = psutil.Process(process.pid).cpu_times()
            used[event] = times.user + times.system
    finally:
        process.end()
    return Probe(used["ready"], used["steps"] - used["ready"])


def probed(costs: Costs, configs: Sequence[RunConfig]) -> Costs:
    """The costs with what a start takes here, and the compilation of the first program of each agent."""
    probes = {agent: probe(next(config for config in configs if config.agent == agent)) for agent in costs.compilation}
    start = median(one.start for one in probes.values())
    return costs._replace(start=start, compilation={agent: one.compilation for agent, one in probes.items()})


def in_words(seconds: float) -> str:
    """`8.4 min`, `5.7 h`, `4.7 days`."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def bounds(schedule: Schedule) -> str:
    """What takes time beside the work, the largest part first, if it is a percent or more."""
    losses = sorted(schedule.losses.items(), key=lambda loss: -loss[1])
    told = [f"{name} {100 * share:.0f} %" for name, share in losses if share >= 0.01]
    return f"work; {', '.join(told)}" if told else "work"


def table(schedules: Sequence[Schedule]) -> Iterator[str]:
    """One line for each number of workers, in Markdown."""
    yield "| workers | chunks | hours | efficiency | longest chunk | what bounds it |"
    yield "|---:|---:|---:|---:|---:|---|"
    for one in schedules:
        hours, longest = f"{one.seconds / 3600:.3g}", in_words(one.longest)
        numbers = f"{one.workers:,} | {one.chunks:,} | {hours} | {one.efficiency:.2f} | {longest}"
        yield f"| {numbers} | {bounds(one)} |"


def draw(schedules: Sequence[Schedule]) -> Figure:
    """The time, beside what bounds it from below, and what workers do with it that is not work."""
    figure = Figure(figsize=(11, 4.2), dpi=150, layout="constrained")
    times, losses = figure.subplots(1, 2, width_ratios=(1.2, 1))
    _draw_times(times, schedules)
    _draw_losses(losses, schedules)
    for panel in (times, losses):
        panel.set_axisbelow(True)
        panel.set_xlabel("workers")
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=9, loc="lower left" if panel is times else "upper left")
    return figure


def _draw_times(panel: Axes, schedules: Sequence[Schedule]) -> None:
    workers = [one.workers for one in schedules]
    panel.loglog(workers, [one.seconds for one in schedules], "o-", color=COLOURS[0], linewidth=2, label="simulated")
    panel.loglog(workers, [one.ideal for one in schedules], "--", color="0.35", linewidth=1.2, label="work / workers")
    panel.loglog(workers, [one.longest for one in schedules], "-.", color=COLOURS[1], label="longest chunk")
    for one in schedules:
        place = one.workers, one.seconds
        panel.annotate(in_words(one.seconds), place, (6, 4), textcoords="offset points", fontsize=8.5)
    ticks = {"1 min": 60, "10 min": 600, "1 h": 3600, "10 h": 36_000, "1 day": 86_400, "5 days": 432_000}
    panel.set_yticks(list(ticks.values()), list(ticks))
    panel.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_xlim(0.8, 2000)
    panel.set_ylim(60, 700_000)
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.set_title("the paper's two sweeps: 23,400 runs of 100,000 steps", fontsize=11)


def _draw_losses(panel: Axes, schedules: Sequence[Schedule]) -> None:
    places, bottom = range(len(schedules)), [0.0] * len(schedules)
    for name, colour in LOSSES.items():
        heights = [one.losses[name] for one in schedules]
        panel.bar(places, heights, 0.7, bottom, color=colour, label=name)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    panel.set_xticks(places, [f"{one.workers:,}" for one in schedules])
    panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    panel.grid(axis="y", alpha=0.25, linewidth=0.6)
    panel.set_title("the workers' time that is not work", fontsize=11)


def main() -> None:
    """Simulate, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--probe", action="store_true", help="measure here how long compilation takes")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/cluster-schedule.png")
    options = parser.parse_args()
    study, kept = united(STUDIES), kept_steps(ROOT / "results")
    costs = Costs(step_seconds(study.configs, kept))
    if options.probe:
        costs = probed(costs, study.configs)
    runs = sum(len(kept.get(pair, ())) for pair in costs.step)
    compilation = ", ".join(f"{agent} {seconds:.1f} s" for agent, seconds in costs.compilation.items())
    print(f"steps: from {runs:,} kept runs, of {len(costs.step.keys() & kept)} of {len(costs.step)} pairs")
    print(f"start of a process: {costs.start:.1f} s; compilation: {compilation}; order: {costs.dispatch:.3f} s\n")
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "store")
        plans = (make_plan(study, store, workers, machine=MACHINE) for workers in options.workers)
        schedules = [simulate(plan.chunks, plan.workers, costs) for plan in plans]
    print("\n".join(table(schedules)))
    draw(schedules).savefig(options.out)


if __name__ == "__main__":
    main()
