"""`greedyac status`: how much of what was asked for a store holds."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from greedyac.cli.parser import Parser, folder
from greedyac.cli.say import say


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("--store", type=folder, required=True, metavar="DIR", help="folder that keeps the results")
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")


def run(options: Any) -> int:
    """Print a line per study."""
    from greedyac.study.status import status
    from greedyac.study.store import Store

    studies, faults = status(Store.existing(options.store))
    for fault in faults:
        say(fault)
    if options.json:
        told = []
        for study in studies:
            runs = study._asdict()
            told.append({"name": runs.pop("name"), "runs": runs})
        print(json.dumps({"studies": told}, indent=2))
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("study", "planned", "done", "diverged", "failed", "missing"):
        table.add_column(heading, justify="left" if heading == "study" else "right", no_wrap=True)
    for name, *counts in studies:
        table.add_row(name, *("?" if count is None else f"{count:,}" for count in counts))
    Console(highlight=False).print(table)
    return 0
