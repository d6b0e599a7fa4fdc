"""`greedyac eval`: episodes with a trained policy."""

import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console

from greedyac.cli.parser import Parser, whole_number


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=Path, help="a file that training wrote, seed-0.safetensors"
    )
    parser.add_argument("--episodes", type=whole_number, default=10, metavar="N", help="how many (default 10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the start states (default 0)")
    parser.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the most likely")
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")


def run(options: Any) -> int:
    """Evaluate and print."""
    from greedyac.training.checkpoint import load_policy
    from greedyac.training.evaluate import evaluate

    policy = load_policy(options.checkpoint)
    result = evaluate(policy, options.episodes, options.seed, deterministic=not options.stochastic)
    if options.json:
        returns = [value if math.isfinite(value) else None for value in result.returns]
        known = {"mean": result.mean, "interval": result.interval} if None not in returns else {}
        told = {"checkpoint": str(options.checkpoint), "returns": returns, "mean": None, "interval": None, **known}
        print(json.dumps(told, allow_nan=False))
        return 0
    console = Console(highlight=False)
    actions = "sampled actions" if options.stochastic else "the most likely action"
    config = policy.run.config
    about = f"{config.agent} on {config.env_label}, seed {policy.run.seed}, with {actions}"
    console.print(about, markup=False, soft_wrap=True)
    console.print("returns   " + "  ".join(f"{value:.1f}" for value in result.returns), soft_wrap=True)
    between = "" if result.interval is None else "   95 % interval {:.1f} … {:.1f}".format(*result.interval)
    console.print(f"mean      [bold]{result.mean:.1f}[/bold]{between}")
    return 0
