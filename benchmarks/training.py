"""How fast `greedyac train` is, how much memory a lane takes, and how long `greedyac --help` waits.

    python benchmarks/training.py [--steps 20000] [--seeds 0-7] [ENV ...]

Figures of one machine on one day, and noisy: compare them within one run.
"""

import argparse
import subprocess
import sys
import time

import greedyac
from greedyac.core.machine import cores
from greedyac.envs import ENVS

MEMORY = """
import resource, sys
from greedyac.agents import make_agent
from greedyac.envs import make_env
from greedyac.training.program import LaneBatch
width = int(sys.argv[2])
lanes = LaneBatch([make_agent("greedy-ac")] * width, make_env(sys.argv[1]), range(width), 100_000)
lanes.advance(64)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def megabytes(env: str, width: int) -> float:
    """The largest memory of a process that trains that many lanes with a replay of 100,000."""
    script = [sys.executable, "-c", MEMORY, env, str(width)]
    return float(subprocess.run(script, check=True, capture_output=True, text=True).stdout)


def help_seconds() -> float:
    """How long `greedyac --help` takes; the best of five."""
    script = [sys.executable, "-c", "from greedyac.cli import main; main(['--help'])"]

    def once() -> float:
        began = time.perf_counter()
        subprocess.run(script, check=True, capture_output=True)
        return time.perf_counter() - began

    return min(once() for _ in range(5))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("envs", nargs="*", default=list(ENVS), metavar="ENV")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", default="0-7")
    options = parser.parse_args()
    print(f"{len(cores())} cores, seeds {options.seeds}, {options.steps} steps each")
    for env in options.envs:
        rate = greedyac.train("greedy-ac", env, steps=options.steps, seeds=options.seeds).run_steps_per_second
        lane = (megabytes(env, 34) - megabytes(env, 2)) / 32
        print(f"{env:15} {rate or 0:8,.0f} run-steps/s in all    {lane:5.1f} MB per lane", flush=True)
    print(f"greedyac --help {help_seconds():8.2f} s")


if __name__ == "__main__":
    main()
