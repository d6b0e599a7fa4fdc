"""`greedyac sweep`: run what a study asks for and the store does not hold yet."""

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any

from greedyac.cli.parser import Parser, folder, whole_number
from greedyac.errors import InputError
from greedyac.progress import ProgressReport, duration, speed

if TYPE_CHECKING:
    from greedyac.study.sweep import Plan, Progress

MAX_SHARDS = 1_000_000


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    from greedyac.study.spec import shipped_studies

    parser.add_argument("study", metavar="STUDY", help="a .toml file, or the name of a shipped study")
    parser.add_argument("--store", type=folder, required=True, metavar="DIR", help="folder that keeps the results")
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes (default: one per core)")
    parser.add_argument(
        "--shard", metavar="I/N", default="1/1", help="only the I-th of N equal parts, as for a job array: 3/16"
    )
    parser.add_argument("--retry-failed", action="store_true", help="try runs again that kept crashing")
    parser.add_argument(
        "--chunk-minutes", type=minutes, metavar="M", help="work that a kill may cost, on one core (default 7.5)"
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
    from greedyac.study.sweep import CHUNK_SECONDS, make_plan
    from greedyac.training.train import worker_count

    study, shard, workers = load_study(options.study), _shard(options.shard), worker_count(options.workers)
    if options.json and not options.dry_run:
        raise InputError("--json is not allowed here; allowed: together with --dry-run")
    seconds = options.chunk_minutes * 60 if options.chunk_minutes else CHUNK_SECONDS
    store = Store.planned(options.store)
    plan = make_plan(study, store, workers, shard=shard, retry_failed=options.retry_failed, chunk_seconds=seconds)
    if options.dry_run:
        return _tell(plan, options.json)
    for fault in Store.create(options.store).set_aside():
        missing = ", its runs count as missing" if fault.path.parent == store.chunks else ""
        print(f"greedyac: {fault}; moved to {store.aside}/{missing}", file=sys.stderr)
    return _sweep(plan, store, options)


def _shard(text: str) -> Any:
    from greedyac.study.sweep import Shard

    numbers = re.fullmatch(r"(\d{1,7})/(\d{1,7})", text, re.ASCII)
    if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]) <= MAX_SHARDS:
        raise InputError(f"--shard {text!r} is not allowed; allowed: I/N with 1 ≤ I ≤ N ≤ {MAX_SHARDS:,}, as in 3/16")
    return Shard(int(numbers[1]), int(numbers[2]))


def _sweep(plan: "Plan", store: Any, options: Any) -> int:
    from greedyac.errors import WorkerError
    from greedyac.study.sweep import run_plan

    print(_outline(plan))
    try:
        with ProgressReport(plan.study.name) as report:
            ended = run_plan(plan, store, lambda progress: report.show(progress.share, _words(progress)), report.say)
    except KeyboardInterrupt:
        store.clear_left()
        print("greedyac: stopped; published runs are kept, the same command goes on", file=sys.stderr)
        return 130
    except (WorkerError, OSError) as error:
        told = " ".join(str(error).splitlines())
        print(f"greedyac: error: {told}; published runs are kept, the same command goes on", file=sys.stderr)
        return 1
    counts = f"{ended.done:,} done, {ended.diverged:,} diverged, {ended.failed:,} failed"
    print(f"{counts} of {_count(ended.runs, 'run')} in {options.store}")
    if ended.failed:
        print(
            f"greedyac: {ended.failed:,} runs failed: {store.failed}/ says why; --retry-failed tries them again",
            file=sys.stderr,
        )
    return 0 if ended.done + ended.diverged == ended.runs else 1


def _outline(plan: "Plan") -> str:
    from greedyac.study.sweep import WHOLE

    held = plan.held.total()
    shard = "" if plan.shard == WHOLE else f", shard {plan.shard.part}/{plan.shard.parts}"
    runs = f"{_count(held + plan.missing, 'run')}, {held:,} in the store, {plan.missing:,} to run"
    runs = f"study {plan.study.name}{shard}: {runs}"
    if not plan.missing:
        return runs
    work = (len(plan.programs), "program"), (len(plan.chunks), "chunk"), (plan.workers, "worker")
    return f"{runs}\n{', '.join(_count(number, noun) for number, noun in work)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _words(progress: "Progress") -> str:
    finished = progress.done + progress.diverged
    runs = f"{finished:,} of {progress.runs:,} runs, {progress.diverged:,} diverged, {progress.failed:,} failed"
    return f"{runs}, {speed(progress.rate, progress.seconds_left)}"


def _tell(plan: "Plan", as_json: bool) -> int:
    """Print what a sweep would do and, after a short measurement, how long it would take."""
    from greedyac.study.sweep import estimate

    def report(case: Any) -> None:
        print(f"measuring {case.agent} on {case.env}", file=sys.stderr, flush=True)

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
                {"agent": probe.case.agent, "env": probe.case.env, **probe.speed._asdict()} for probe in expected.probes
            ],
        }
        print(json.dumps(told, indent=2))
        return 0
    for probe in expected.probes:
        rate = f"{probe.speed.run_steps_per_second:,.0f} run-steps/s"
        print(f"{probe.case.agent} on {probe.case.env}: {rate}, compiled in {probe.speed.compile_seconds:.0f} s")
    print(f"time on this machine: about {duration(expected.seconds)}")
    return 0
