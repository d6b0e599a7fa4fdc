"""`greedyac store`: check a store, or merge its files."""

from pathlib import Path
from typing import Any

from greedyac.cli.parser import Parser, folder
from greedyac.cli.say import say
from greedyac.core.counting import counted
from greedyac.core.errors import InputError, unknown_name

ACTIONS = ("verify", "compact")


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("action", metavar="|".join(ACTIONS), help="check every file, or merge many files into few")
    parser.add_argument("folder", type=folder, metavar="DIR", help="the store")


def run(options: Any) -> int:
    """Do it; a fault is exit code 1."""
    from greedyac.study.store import Store

    if options.action not in ACTIONS:
        raise unknown_name("action", options.action, ACTIONS)
    store = Store.existing(Path(options.folder))
    if options.action == "compact":
        try:
            before, after = store.compact()
        except PermissionError as error:
            raise InputError(f"the store {str(options.folder)!r} can't be written: {error.strerror}") from None
        print(f"files of runs: {before}, now {after}")
    faults = store.verify()
    for fault in faults:
        say(fault)
    if not faults:
        rows = store.read(["run_id", "status"]).rows
        print(f"{counted(rows.height, 'run')} in {options.folder}, every file whole")
    return 1 if faults else 0
