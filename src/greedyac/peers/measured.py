"""What the peers' scripts share: the arguments, the measurement, and the line that tells its result."""

import argparse
import json
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter


def arguments(description: str | None, runs: bool = False) -> argparse.Namespace:
    """`--seconds N` and, for a peer that trains several runs at once, `--runs N`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=10, metavar="N", help="how long to measure (default 10)")
    if runs:
        parser.add_argument("--runs", type=int, default=1, metavar="N", help="runs trained at once (default 1)")
    return parser.parse_args()


def steps_per_second(seconds: float, train: Callable[[], int]) -> float:
    """The rate of a warm `train`, which trains a little and returns how many steps, repeated for about `seconds`."""
    steps, start = 0, perf_counter()
    while (elapsed := perf_counter() - start) < seconds:
        steps += train()
    return steps / elapsed


def tell(rate: float, libraries: tuple[str, ...]) -> None:
    """Print the result as one line of JSON, with the versions of the libraries that it depends on."""
    print(json.dumps({"steps_per_second": round(rate, 1), "versions": {name: version(name) for name in libraries}}))
