"""`greedyac envs`: where agents learn, and every option."""

import json
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from greedyac.cli.parser import Parser
from greedyac.core.fields import hypers_of, show
from greedyac.core.spaces import to_json
from greedyac.envs import ENVS, make_env


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")


def run(options: Any) -> int:
    """Print a table of all environments."""
    if options.json:
        listing = {
            name: {
                **to_json(make_env(name).spaces),
                "about": (env.__doc__ or "").splitlines()[0],
                "options": [hyper.to_json() for hyper in hypers_of(env).values()],
            }
            for name, (env, _) in ENVS.items()
        }
        print(json.dumps(listing, indent=2))
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("environment", "observation", "action", "reward and end"):
        table.add_column(heading, no_wrap=heading in ("environment", "action"))
    for name, (env, _) in ENVS.items():
        spaces = make_env(name).spaces
        table.add_row(name, str(spaces.observation), str(spaces.action), (env.__doc__ or "").splitlines()[0])
    console = Console()
    console.print(table)
    console.print("\nOptions, given as --env-option name=value:")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("environment", "option", "default", "allowed", "meaning"):
        table.add_column(heading, no_wrap=heading in ("environment", "option", "default"))
    for env, named in groupby(ENVS, key=lambda name: ENVS[name][0]):
        first, *others = named
        names = ", ".join([first, *(name[name.rindex("-") :] for name in others)])
        for hyper in hypers_of(env).values():
            table.add_row(names, hyper.name, show(hyper.default), hyper.range, hyper.help)
    console.print(table)
    return 0
