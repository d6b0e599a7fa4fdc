"""`greedyac bench`: how fast every agent trains here, and how much of the machine that is."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from greedyac.cli.parser import Parser, whole_number
from greedyac.errors import unknown
from greedyac.hypers import whole


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="which agents (default: all that learn)")
    parser.add_argument(
        "--seconds", type=whole_number, default=10, metavar="N", help="length of each measurement (default 10)"
    )
    parser.add_argument(
        "--lanes", type=whole_number, default=8, metavar="N", help="runs side by side in each worker (default 8)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")


def run(options: Any) -> int:
    """Measure, then print a table or JSON."""
    from greedyac.training.bench import bench
    from greedyac.training.cost import PASSES
    from greedyac.training.loop import MIN_WIDTH

    agents, lanes = options.agents or list(PASSES), whole("lanes", options.lanes, MIN_WIDTH, 1000)
    seconds = whole("seconds", options.seconds, 1, 3600)
    for agent in agents:
        if agent not in PASSES:
            raise unknown("agent to measure", agent, PASSES)

    def report(agent: str, env: str) -> None:
        print(f"measuring {agent} on {env}", file=sys.stderr, flush=True)

    measured = bench(dict.fromkeys(agents), seconds, lanes, report)
    if options.json:
        results = [result._asdict() for result in measured.results]
        print(json.dumps(measured._asdict() | {"results": results}, indent=2))
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("agent", "environment", "run-steps/s", "GFLOP/s", "of matmul"):
        name = heading in ("agent", "environment")
        table.add_column(heading, justify="left" if name else "right", no_wrap=True)
    for result in measured.results:
        rate, gflops = f"{result.run_steps_per_second:,.0f}", f"{result.gflops:.1f}"
        table.add_row(result.agent, result.env, rate, gflops, f"{result.fraction_of_matmul:.2f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"{measured.cores} workers, one per core, with {lanes} lanes each; "
        f"2048×2048 float32 matrix product on {measured.cores} threads: {measured.matmul_gflops:.0f} GFLOP/s",
        soft_wrap=True,
    )
    return 0
