"""`greedyac agents`: what learns, and every hyperparameter."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from greedyac.agents import AGENTS
from greedyac.cli.parser import Parser
from greedyac.core.fields import hypers_of, show


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")


def run(options: Any) -> int:
    """Print a table per agent."""
    if options.json:
        listing = {name: [hyper.to_json() for hyper in hypers_of(agent).values()] for name, agent in AGENTS.items()}
        print(json.dumps(listing, indent=2))
        return 0
    console = Console()
    for name, agent in AGENTS.items():
        console.print(f"[bold]{name}[/bold]  {(agent.__doc__ or '').splitlines()[0]}")
        hypers = hypers_of(agent)
        if not hypers:
            console.print("  no hyperparameters\n")
            continue
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("hyperparameter", "kind", "default", "allowed", "meaning"):
            table.add_column(heading, no_wrap=heading in ("hyperparameter", "kind", "default"))
        for hyper in hypers.values():
            table.add_row(hyper.name, hyper.kind, show(hyper.default), hyper.range, hyper.help)
        console.print(table)
        console.print()
    console.print("traced: may differ between runs of one compiled program; static: fixes the program")
    return 0
