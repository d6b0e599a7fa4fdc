"""`greedyac demo`: GreedyAC with the paper's settings on two environments, in one picture."""

from typing import Any

import polars as pl
from rich.console import Console

from greedyac.analysis.figures import learning_curves
from greedyac.cli.output import first_free, output_folder, write_result
from greedyac.cli.parser import Parser, folder, whole_number
from greedyac.cli.progress import ProgressReport
from greedyac.cli.train import print_summary
from greedyac.errors import InputError
from greedyac.training.train import train

ENVS = ("Pendulum-CA", "MountainCar-CA")


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument("--steps", type=whole_number, default=40_000, metavar="N", help="steps per run (default 40000)")
    parser.add_argument("--seeds", default="0-3", metavar="LIST", help="as in 0-9 or 0,3,5-7 (default 0-3)")
    parser.add_argument("--out", type=folder, metavar="DIR", help="folder for the results (default runs/demo-<n>)")


def run(options: Any) -> int:
    """Train on each environment, write a folder per environment and one picture of all."""
    out = options.out or first_free("runs/demo")
    if taken := [name for name in (*ENVS, "curves.png") if (out / name).exists()]:
        raise InputError(f"output folder {str(out)!r} already holds {taken[0]}; allowed: a new or empty folder")
    summaries, curves = [], []
    with output_folder(out, overwrite=False) as output:
        for env in ENVS:
            with ProgressReport(f"greedy-ac on {env:14}") as report:
                result = train(
                    "greedy-ac", env, preset="paper", steps=options.steps, seeds=options.seeds, on_progress=report
                )
            (output.staging / env).mkdir()
            summaries.append(write_result(result, output.staging / env))
            curves.append(result.curves)
        learning_curves(pl.concat(curves)).savefig(output.staging / "curves.png")
        output.publish(complete=True)
    print_summary(Console(highlight=False), summaries)
    print(f"written to {out}/: curves.png, and for each environment a folder with its results and checkpoints")
    print(f"next: greedyac eval {out}/{ENVS[0]}/seed-{summaries[0]['seeds'][0]}.safetensors")
    return 0
