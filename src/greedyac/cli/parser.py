"""The commands and their options. An agent's hyperparameters become options once the agent is named."""

import argparse
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from greedyac.core.errors import InputError, unknown_name
from greedyac.core.version import __version__

COMMANDS = {
    "train": "train an agent on an environment: curves, a picture and a checkpoint per seed",
    "resume": "go on with a training that was interrupted, as if it had not been",
    "eval": "run episodes with a trained policy and print their returns",
    "play": "watch a trained policy, in a window or as a film, with or without what its agent thinks",
    "sweep": "run what a study asks for and the store does not hold yet; go on after any interruption",
    "status": "say how much of what was asked for a store holds",
    "select": "choose the best settings of a store and write them as a study on other seeds",
    "report": "turn a store into an interactive page, figures and tables",
    "rerun": "run one run of a store again, with diagnostics of every step, and compare bit for bit",
    "store": "check every file of a store, or merge many files into few",
    "ccem": "draw the paper's Figure 1: how conditional CEM concentrates on the best actions of a function",
    "agents": "list the agents with every hyperparameter, its range, default and meaning",
    "envs": "list the environments with their observations, actions and options",
    "bench": "measure how fast every agent trains on this machine, beside a large matrix product",
    "demo": "compare the agents on two environments in some minutes and draw their learning curves",
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are one line each, by way of `InputError`."""

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, **options)
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf|nan|a\b|[a-z]*\()")  # -1e-3 or -a**2 is a value

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise InputError(f"{message}; see {self.prog} --help")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse, and name the nearest match of an unknown option."""
        parsed, extra = self.parse_known_args(args, namespace)
        for text in extra:
            if text.startswith("--"):
                raise unknown_name("option", text.partition("=")[0], parsed.parser.option_names())
        if extra:
            raise InputError(f"unexpected argument {extra[0]!r}; see {parsed.parser.prog} --help")
        return parsed

    def option_names(self) -> list[str]:
        """All long options, without `--help` and those that help does not show."""
        shown = (action for action in self._actions if action.help != argparse.SUPPRESS)
        names = (name for action in shown for name in action.option_strings if name.startswith("--"))
        return [name for name in names if name != "--help"]


def make_parser(given: Sequence[str]) -> Parser:
    """The parser for these arguments: only the commands named in them are filled in."""
    parser = Parser(prog="greedyac", description="Greedy Actor-Critic, compiled: train, compare and study agents.")
    parser.add_argument("--version", action="version", version=f"greedyac {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    words = [word for word in given if not word.startswith("-")]
    for name, help in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        if name in words[:1]:
            module = import_module(f"greedyac.cli.{name}")
            module.add_arguments(command, list(given))
            command.set_defaults(run=module.run, parser=command)
    if words and words[0] not in COMMANDS:
        raise unknown_name("command", words[0], COMMANDS)
    return parser


def folder(text: str) -> Path:
    """A folder's path; an empty one is most likely an unset variable."""
    if not text.strip():
        raise argparse.ArgumentTypeError("'' is not allowed; allowed: the path of a folder")
    return Path(text)


def file(text: str) -> Path:
    """A file's path; an empty one is most likely an unset variable."""
    if not text.strip():
        raise argparse.ArgumentTypeError("'' is not allowed; allowed: the path of a file")
    return Path(text)


def one_of(*allowed: str) -> Callable[[str], str]:
    """A text that is one of these words."""

    def check(text: str) -> str:
        if text not in allowed:
            raise argparse.ArgumentTypeError(str(unknown_name("value", text, allowed)))
        return text

    return check


def whole_number(text: str) -> int:
    """A whole number ≥ 1, also as 50_000 or 1e5."""
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = 0.0
    if not (value >= 1 and value.is_integer()):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: whole number ≥ 1")
    return int(value)
