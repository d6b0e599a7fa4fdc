"""`greedyac rerun`: one run of a store again, alone, with diagnostics of every step."""

import os
from typing import Any

from greedyac.api.progress import ProgressReport
from greedyac.cli.parser import Parser, folder
from greedyac.cli.say import say
from greedyac.core.counting import counted
from greedyac.core.errors import InputError


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("run_id", metavar="RUN_ID", help="the run's id in the store, or enough of its first letters")
    parser.add_argument("--store", type=folder, required=True, metavar="DIR", help="folder that keeps the results")


def run(options: Any) -> int:
    """Run it, write the diagnostics, and say whether the numbers are the same."""
    os.environ["PJRT_NPROC"] = "1"  # as in a worker: the bits of large networks can depend on the number of threads

    from greedyac.study.rerun import find_row, rerun, run_of, write_diagnostics
    from greedyac.study.store import Store

    store = Store.existing(options.store)
    row = find_row(store, options.run_id)
    config = run_of(row).config
    if not os.access(store.folder, os.W_OK):
        raise InputError(
            f"the store {str(options.store)!r} can't be written, and keeps the diagnostics; allowed: a copy of it"
        )
    length = counted(config.steps, "step")
    print(f"{config.agent} on {config.env_label}, seed {row['seed']}, {length}; in the store: {row['status']}")
    print(f"hypers {row['hypers']}")
    with ProgressReport(f"run {row['run_id']}") as report:
        result = rerun(row, lambda steps: report.show(steps / config.steps, f"step {steps:,}"))
    path = write_diagnostics(store, result)
    average = result.row["average_return"]
    print(f"{result.row['status']}, average return {'–' if average is None else f'{average:.1f}'}")
    print(f"diagnostics of every step: {path}")
    if result.obstacles:
        print(f"not comparable with the store: {'; '.join(result.obstacles)}")
        return 0
    if result.differences:
        say(f"error: not as in the store: {', '.join(result.differences)}")
        return 1
    print("equal to the store, bit for bit")
    return 0
