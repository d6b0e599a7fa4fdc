"""`greedyac resume`: go on with a training that was interrupted."""

from typing import Any

from greedyac.cli.parser import Parser, folder, whole_number
from greedyac.cli.train import train_to


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument(
        "folder", metavar="DIR", type=folder, help="the folder of a `greedyac train … --checkpoint-every N`"
    )
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes (default: one per core)")


def run(options: Any) -> int:
    """Train what is left, write the folder and print a small table."""
    from greedyac.api.train import worker_count
    from greedyac.cli.output import read_unfinished, reserved

    workers = worker_count(options.workers)
    with reserved(options.folder):
        asked = read_unfinished(options.folder)
        if asked is None:
            print(f"{options.folder}/ is finished: there is nothing to do")
            return 0
        return train_to(options.folder, asked, workers)
