"""`greedyac sweep`: run what a study asks for and the store does not hold yet."""

import argparse
import json
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from greedyac.api.progress import ProgressReport, duration, speed
from greedyac.cli import engine
from greedyac.cli.parser import Parser, folder, whole_number
from greedyac.cli.say import say
from greedyac.core.counting import counted
from greedyac.core.errors import InputError

if TYPE_CHECKING:
    from greedyac.study.sweep import Plan, SweepProgress

MAX_SHARDS = 1_000_000


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    from greedyac.study.spec import shipped_studies

    parser.add_argument("study", metavar="STUDY", help="a .toml file, or the name of a shipped study")
    parser.add_argument("--store", type=folder, required=True, metavar="DIR", help="folder that keeps the results")
    engine.add_arguments(parser)
    parser.add_argument(
        "--shard", metavar="I/N", default="1/1", help="only the I-th of N equal parts, as for a job array: 3/16"
    )
    parser.add_argument("--retry-failed", action="store_true", help="try runs again that kept crashing")
    parser.add_argument(
        "--chunk-minutes", type=minutes, metavar="M", help="work that a kill may cost, on one core (default 7.5)"
    )
    parser.add_argument(
        "--lanes",
        type=whole_number,
        metavar="N",
        help="runs side by side on a GPU (a core has its own number)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be run and how long it would take")
    parser.add_argument("--json", action="store_true", help="with --dry-run: print JSON for a machine to read")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "shipped studies:\n" + "\n".join(f"  {name}" for name in shipped_studies())


def minutes(text: str) -> float:
    """A positive number of minutes."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: > 0")
    return value


def run(options: Any) -> int:
    """Plan, then run or only tell."""
    from greedyac.study.spec import load_study
    from greedyac.study.store import Store
    from greedyac.study.sweep import CHUNK_SECONDS, look_up, make_plan

    study, shard = load_study(options.study), _shard(options.shard)
    if options.json and not options.dry_run:
        raise InputError("--json is not allowed here; allowed: together with --dry-run")
    seconds = options.chunk_minutes * 60 if options.chunk_minutes else CHUNK_SECONDS
    store = Store.planned(options.store)

    def is_needed() -> bool:
        return bool(look_up(study, store, shard, options.retry_failed)[0])

    with _ended_like_ctrl_c(), engine.place(options, say, is_needed) as place:
        plan = make_plan(
            study,
            store,
            place.workers,
            shard=shard,
            retry_failed=options.retry_failed,
            chunk_seconds=seconds,
            machine=place.machine,
            lanes=options.lanes or 0,
        )
        if options.dry_run:
            return _tell(plan, options.json)
        store = Store.create(options.store)
        if plan.chunks:
            store.check_writable()
        for fault in store.set_aside():
            missing = ", its runs count as missing" if fault.path.parent == store.chunks else ""
            say(f"{fault}; moved to {store.aside}/{missing}")
        return _sweep(plan, store, place, options)


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Have SIGTERM, which batch systems send before they kill, be as Ctrl-C: what is kept is told, nothing runs on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _shard(text: str) -> Any:
    from greedyac.study.sweep import Shard

    numbers = re.fullmatch(r"(\d{1,7})/(\d{1,7})", text, re.ASCII)
    if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]) <= MAX_SHARDS:
        raise InputError(f"--shard {text!r} is not allowed; allowed: I/N with 1 ≤ I ≤ N ≤ {MAX_SHARDS:,}, as in 3/16")
    return Shard(int(numbers[1]), int(numbers[2]))


def _sweep(plan: "Plan", store: Any, place: engine.Place, options: Any) -> int:
    from greedyac.core.errors import WorkerError
    from greedyac.study.sweep import run_plan

    print(_outline(plan))
    if place.about:
        print(place.about)

    def show(progress: "SweepProgress") -> None:
        report.show(progress.share, _words(progress))

    try:
        with ProgressReport(plan.study.name) as report:
            ended = run_plan(plan, store, show, report.say, place.engine)
    except KeyboardInterrupt:
        store.clear_left()
        say("stopped; published runs are kept, the same command goes on")
        return 130
    except (WorkerError, OSError) as error:
        say(f"error: {error}; published runs are kept, the same command goes on")
        return 1
    counts = f"{ended.done:,} done, {ended.diverged:,} diverged, {ended.failed:,} failed"
    print(f"{counts} of {counted(ended.runs, 'run')} in {options.store}")
    if ended.failed:
        say(f"{counted(ended.failed, 'run')} failed: {store.failed}/ says why; --retry-failed tries again")
    return 0 if ended.done + ended.diverged == ended.runs else 1


def _outline(plan: "Plan") -> str:
    from greedyac.study.sweep import WHOLE

    held = plan.held.total()
    shard = "" if plan.shard == WHOLE else f", shard {plan.shard.part}/{plan.shard.parts}"
    runs = f"{counted(held + plan.missing, 'run')}, {held:,} in the store, {plan.missing:,} to run"
    runs = f"study {plan.study.name}{shard}: {runs}"
    if not plan.missing:
        return runs
    work = (len(plan.programs), "program"), (len(plan.chunks), "chunk"), (plan.workers, "worker")
    return f"{runs}\n{', '.join(counted(number, noun) for number, noun in work)}"


def _words(progress: "SweepProgress") -> str:
    finished = progress.done + progress.diverged
    counts = f"{progress.diverged:,} diverged, {progress.failed:,} failed"
    runs = f"{finished:,} of {counted(progress.runs, 'run')}, {counts}"
    over = progress.share == 1 and progress.rate is None  # so soon that no speed is known
    return runs if over else f"{runs}, {speed(progress.rate, progress.seconds_left)}"


def _tell(plan: "Plan", as_json: bool) -> int:
    """Print what a sweep would do and, after a short measurement, how long it would take."""
    from greedyac.study.sweep import estimate

    def report(config: Any) -> None:
        print(f"measuring {config.agent} on {config.env}", file=sys.stderr, flush=True)

    if not as_json:
        print(_outline(plan))
        print(f"memory: {plan.bytes / 1e9:.1f} GB")
    expected = estimate(plan, report)
    if as_json:
        told = {
            "study": plan.study.name,
            "runs": {"planned": plan.held.total() + plan.missing, "new": plan.missing, "held": plan.held.total()},
            "programs": len(plan.programs),
            "chunks": len(plan.chunks),
            "workers": plan.workers,
            "bytes": plan.bytes,
            "seconds": expected.seconds,
            "probes": [
                {"agent": probe.config.agent, "env": probe.config.env, **probe.speed._asdict()}
                for probe in expected.probes
            ],
        }
        print(json.dumps(told, indent=2))
        return 0
    for probe in expected.probes:
        rate = f"{probe.speed.run_steps_per_second:,.0f} run-steps/s"
        print(f"{probe.config.agent} on {probe.config.env}: {rate}, compiled in {probe.speed.compile_seconds:.0f} s")
    print(f"time on this machine: about {duration(expected.seconds)}")
    return 0
