"""`greedyac bench`: how fast every agent trains here, how much of the machine that is, and how fast others are."""

import itertools
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from greedyac.cli.parser import Parser, file, folder, whole_number
from greedyac.core.counting import counted
from greedyac.core.errors import InputError, unknown_name
from greedyac.core.fields import check_int

if TYPE_CHECKING:
    from greedyac.bench.measure import Bench
    from greedyac.bench.profile import Profile
    from greedyac.bench.ratios import Found

PEERS_PYTHON = ".venv-peers/bin/python"
WIDE = 160
"""Columns of tables in a file or pipe."""
SMALL = 0.005
"""Functions with a smaller share of a step are left out of the table."""


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="which agents (default: all that learn)")
    parser.add_argument(
        "--seconds", type=whole_number, default=10, metavar="N", help="length of each measurement (default 10)"
    )
    parser.add_argument(
        "--lanes",
        type=whole_number,
        metavar="N",
        help="runs side by side in each worker, 2 to 1000 (default: as in a study)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")
    parser.add_argument(
        "--profile", action="store_true", help="instead, show where the time of a step goes; --seconds has no effect"
    )
    parser.add_argument(
        "--peers",
        nargs="?",
        const=PEERS_PYTHON,
        metavar="PYTHON",
        help=f"also PyTorch, SB3, SBX and rejax, by a Python that has them (default {PEERS_PYTHON}: make bench)",
    )
    parser.add_argument(
        "--out",
        type=folder,
        metavar="DIR",
        help="folder to write tables, ratios and, with --peers, a picture to; replaces older ones",
    )
    parser.add_argument(
        "--compare",
        type=file,
        metavar="FILE",
        help="exit with 1 if an agent's share of the matrix product is far below that in this ratios.json, twice",
    )


def run(options: Any) -> int:
    """Measure, then print tables or JSON, write files, and compare."""
    from greedyac.bench.measure import bench
    from greedyac.bench.peers import bench_peers, peers_of, per_core
    from greedyac.bench.ratios import Found, comparable, confirmed, fallen, ratios_of, read_ratios, verdict
    from greedyac.cli.bench_files import FILES, write_files
    from greedyac.cli.output import output_folder
    from greedyac.execution.cost import PASSES
    from greedyac.training.program import MIN_WIDTH

    agents = options.agents or list(PASSES)
    lanes = None if options.lanes is None else check_int("lanes", options.lanes, MIN_WIDTH, 1000)
    seconds = check_int("seconds", options.seconds, 1, 3600)
    for agent in agents:
        if agent not in PASSES:
            raise unknown_name("agent to measure", agent, PASSES)
    if options.profile:
        return _profile(agents, lanes, options)
    python = _interpreter(options.peers) if options.peers is not None else ""
    peers = peers_of(agents) if python else []
    if python and not peers:
        raise InputError(f"no peers of {', '.join(agents)} are known; --peers is allowed with greedy-ac and sac")
    earlier = read_ratios(options.compare) if options.compare else None
    if earlier and not comparable(earlier, agents):
        raise InputError(f"ratios {str(options.compare)!r} have none of what is measured: {', '.join(agents)}")

    def measure(agents: Sequence[str]) -> "Bench":
        return bench(dict.fromkeys(agents), seconds, lanes, lambda agent, env: _say(f"{agent} on {env}"))

    with output_folder(options.out, True, FILES) if options.out else nullcontext() as output:
        for name in FILES if output else ():
            if (options.out / name).is_dir():
                raise InputError(f"output folder {str(options.out)!r} holds something else called {name!r}")
        ours = measure(agents)
        found = Found(ours, bench_peers(peers, python, seconds, per_core(ours), _say) if peers else None)
        _print(found, options.json)
        if output:
            write_files(found, output.staging)
            output.publish(complete=True)
            _tell(f"written to {output.out}/", options.json)
    if not earlier:
        return 0
    if fallen(earlier, ratios_of(ours)):
        print("some ratios fell: these once more", file=sys.stderr, flush=True)
    now = confirmed(earlier, ours, measure)
    for line in verdict(earlier, now):
        _tell(line, options.json)
    return 1 if fallen(earlier, now) else 0


def _profile(agents: Sequence[str], lanes: int | None, options: Any) -> int:
    """Profile the agents on one core, as a worker trains them, and print tables or JSON."""
    from greedyac.bench.measure import ENVS, default_config
    from greedyac.bench.profile import profile
    from greedyac.core.machine import PINS, cores
    from greedyac.execution.plan import best_width

    for name in ("peers", "out", "compare"):
        if getattr(options, name) is not None:
            raise InputError(f"--profile is not allowed with --{name}; allowed: one of them")
    os.environ["PJRT_NPROC"] = "1"
    if PINS:
        os.sched_setaffinity(0, {cores()[0]})
    profiles = []
    for agent, env in itertools.product(dict.fromkeys(agents), ENVS):
        _say(f"{agent} on {env}")
        config = default_config(agent, env)
        profiles.append(profile(config, lanes or best_width(config)))
        if not options.json:
            _print_profile(profiles[-1])
    if options.json:
        told = [one._asdict() | {"parts": [part._asdict() for part in one.parts]} for one in profiles]
        print(json.dumps(told, indent=2))
    return 0


def _print_profile(found: "Profile") -> None:
    """A row per function that matters: microseconds of one run's step, in all and by kind, and its share."""
    from greedyac.bench.profile import KINDS

    table, whole_time = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0)), sum(part.total for part in found.parts)
    for heading in ("function", "µs", "share", *KINDS, "kernels"):
        name = heading == "function"
        table.add_column(heading, justify="left" if name else "right", no_wrap=not name, overflow="fold")
    for part in found.parts:
        if part.total >= SMALL * whole_time:
            kinds = [f"{part.microseconds[kind]:.1f}" if part.microseconds[kind] >= 0.05 else "" for kind in KINDS]
            share = f"{100 * part.total / whole_time:.0f} %"
            table.add_row(part.function, f"{part.total:.1f}", share, *kinds, f"{part.kernels:.0f}")
    console, kernels = _console(), sum(part.kernels for part in found.parts)
    console.print(table)
    console.print(
        f"{found.agent} on {found.env}: {found.microseconds:.0f} µs per step of one of {counted(found.lanes, 'lane')}; "
        f"watched, {whole_time:.0f} µs in {kernels:.0f} kernels, which serve all lanes\n",
        soft_wrap=True,
    )


def _console() -> Console:
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE
    return Console(highlight=False, width=wide)


def _interpreter(given: str) -> str:
    """The peers' Python, by its path or as the shell finds it."""
    if found := shutil.which(given):
        return found
    hint = "make bench sets it up" if given == PEERS_PYTHON else f"allowed: path of a Python (default {PEERS_PYTHON})"
    raise InputError(f"the peers' interpreter {given!r} does not exist or can't be run; {hint}")


def _say(what: str) -> None:
    print(f"measuring {what}", file=sys.stderr, flush=True)


def _tell(line: str, as_json: bool) -> None:
    """Beside tables; JSON stays alone on standard output."""
    print(line, file=sys.stderr if as_json else sys.stdout)


def _print(found: "Found", as_json: bool) -> None:
    from greedyac.cli import bench_files as files

    if as_json:
        print(json.dumps(files.as_json(found), indent=2))
        return
    console, notes = _console(), files.footnotes(found)
    console.print(_table(files.OUR_HEADINGS, files.our_rows(found)))
    console.print(notes[0], soft_wrap=True)
    if found.peers:
        console.print()
        console.print(_table(files.PEER_HEADINGS, files.peer_rows(found)))
        console.print(notes[1], soft_wrap=True)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Two columns of names, of which the second may take several lines, and columns of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < 2 else "right", no_wrap=place != 1, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # not markup, whatever a peer said
    return table
