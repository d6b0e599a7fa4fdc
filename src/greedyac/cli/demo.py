"""`greedyac demo`: all agents with the paper's settings on two environments, in one picture."""

import itertools
from pathlib import Path
from typing import Any

from rich.console import Console

from greedyac.agents import AGENTS
from greedyac.agents.presets import PRESETS
from greedyac.analysis.figures import learning_curves
from greedyac.api.progress import ProgressReport
from greedyac.api.train import TrainResult, plan_runs, train_runs, worker_count
from greedyac.cli.output import claimed, output_folder, write_result
from greedyac.cli.parser import Parser, folder, whole_number
from greedyac.cli.train import print_summary
from greedyac.core.errors import InputError

ENVS = ("Pendulum-CA", "MountainCar-CA")


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("--steps", type=whole_number, default=40_000, metavar="N", help="steps per run (default 40000)")
    parser.add_argument("--seeds", default="0-3", metavar="LIST", help="as in 0-9 or 0,3,5-7 (default 0-3)")
    parser.add_argument("--out", type=folder, metavar="DIR", help="folder for the results (default runs/demo-<n>)")


def run(options: Any) -> int:
    """Train every agent on each environment, write a folder for each pair and one picture of all."""
    with claimed(options.out, "runs/demo") as out:
        return _compare_to(out, options)


def _compare_to(out: Path, options: Any) -> int:
    pairs = {f"{agent}-{env}": (agent, env) for agent, env in itertools.product(AGENTS, ENVS)}
    if taken := [name for name in (*pairs, "curves.png") if (out / name).exists()]:
        raise InputError(
            f"output folder {str(out)!r} already holds {taken[0]}; allowed: a folder without a demo's results"
        )
    runs = []
    for agent, env in pairs.values():
        preset = "paper" if (agent, env) in PRESETS["paper"] else None
        runs += plan_runs(agent, env, options.steps, options.seeds, preset, {}, {}, {})
    summaries, count = [], len(runs) // len(pairs)
    with output_folder(out, overwrite=False) as output:
        with ProgressReport(f"{len(AGENTS)} agents on {' and '.join(ENVS)}") as report:
            result = train_runs(runs, worker_count(None), report.training)
        for index, name in enumerate(pairs):
            part = slice(index * count, (index + 1) * count)
            (output.staging / name).mkdir()
            summaries.append(
                write_result(
                    TrainResult(result.curves[part], result.policies[part], result.policies[part][0].run.config, None),
                    output.staging / name,
                )
            )
        learning_curves(result.curves, single_runs=True).savefig(output.staging / "curves.png")
        output.publish(complete=True)
    print_summary(Console(highlight=False), summaries)
    print(f"written to {out}/: curves.png, and for each agent and environment a folder with results and checkpoints")
    print(f"next: greedyac eval {out}/{next(iter(pairs))}/seed-{summaries[0]['seeds'][0]}.safetensors")
    return 0
