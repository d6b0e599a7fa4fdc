"""How throughput depends on lanes and workers, and how long a short `greedyac train` takes, the first time and again.

    python benchmarks/scaling.py [lanes] [workers] [start] [--seconds 6] [--rounds 3]

Rounds are interleaved and ratios taken within a round: figures of one machine on one day, and noisy.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

from greedyac.bench.measure import default_config, matmul_gflops
from greedyac.core.machine import cores
from greedyac.execution.plan import best_width
from greedyac.execution.speed import measure

LANES = (2, 3, 4, 6, 8)
"""A worker trains at least two side by side, and at most eight (where actions are sampled about four), however large a
chunk is."""
TRAIN = ["train", "greedy-ac", "Pendulum-CA", "--steps", "300", "--seeds", "0-1", "--out", "run", "--overwrite"]
ONE_THREAD = "from greedyac.bench.measure import matmul_gflops; print(matmul_gflops())"


def lanes(seconds: float, rounds: int) -> None:
    """Run-steps per second with so many lanes in each worker, in units of the round's best."""
    for env in ("Pendulum-CA", "Pendulum-DA"):
        config, shares = default_config("greedy-ac", env), {width: list[float]() for width in LANES}
        for _ in range(rounds):
            rates = {}
            for width in LANES:
                rates[width] = measure(config, len(cores()), width, seconds).run_steps_per_second
            for width, rate in rates.items():
                shares[width].append(rate / max(rates.values()))
        told = ", ".join(f"{width} lanes {median(share):.2f}" for width, share in shares.items())
        print(f"{env}, of the best of {rounds} rounds (median): {told}", flush=True)


def workers(seconds: float, rounds: int) -> None:
    """What all workers train beside one, and what the matrix product gains from as many threads."""
    config, gains, products = default_config("greedy-ac", "Pendulum-CA"), [], []
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for _ in range(rounds):
        one, all_of_them = (measure(config, count, best_width(config), seconds) for count in (1, len(cores())))
        gains.append(all_of_them.run_steps_per_second / one.run_steps_per_second)
        told = subprocess.run([sys.executable, "-c", ONE_THREAD], env=alone, check=True, capture_output=True, text=True)
        products.append(matmul_gflops() / float(told.stdout))
    print(
        f"1 → {len(cores())} workers: × {median(gains):.2f} ({min(gains):.2f}…{max(gains):.2f}); "
        f"the matrix product: × {median(products):.2f} ({min(products):.2f}…{max(products):.2f})",
        flush=True,
    )


def start(rounds: int) -> None:
    """A whole command that trains almost nothing: with an empty cache of programs, with a filled one, and without."""
    command = [sys.executable, "-c", "import sys; from greedyac.cli import main; sys.exit(main())", *TRAIN]
    took: dict[str, list[float]] = {"first": [], "again": [], "without a cache": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, seconds in took.items():
                cache = "" if name == "without a cache" else f"{folder}/cache"
                began = time.perf_counter()
                environment = {**os.environ, "GREEDYAC_CACHE": cache}
                done = subprocess.run(command, env=environment, cwd=folder, check=False, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(done.stderr)
                seconds.append(time.perf_counter() - began)
    for name, seconds in took.items():
        spread = f"{min(seconds):.1f}…{max(seconds):.1f}"
        print(f"greedyac {' '.join(TRAIN[:7])}, {name}: {median(seconds):.1f} s ({spread})", flush=True)


def main() -> None:
    """Measure and print."""
    parts: dict[str, Callable[[], None]] = {
        "lanes": lambda: lanes(options.seconds, options.rounds),
        "workers": lambda: workers(options.seconds, options.rounds),
        "start": lambda: start(options.rounds),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(parts)} (default: all)")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in parts]:
        parser.error(f"unknown part {unknown[0]!r}; allowed: {', '.join(parts)}")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds} is not allowed; allowed: whole number ≥ 1")
    for name in options.parts or parts:
        parts[name]()


if __name__ == "__main__":
    main()
