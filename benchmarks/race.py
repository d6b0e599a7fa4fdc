"""Two versions of the source, training in turns on one core: which one is faster, on a machine that is never quiet.

    git worktree add ../before c5f44a4
    python benchmarks/race.py ../before/src src [--agent greedy-ac] [--env Pendulum-CA] [--lanes 8] [--rounds 25]

    python benchmarks/race.py src src --pythons .venv/bin/python .venv-3.13-latest/bin/python

Both are trained with the libraries of this environment, or of the environments of two interpreters: so two versions of
JAX can race. A ratio is taken in every round.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles

SECONDS = 0.4


def runner(agent: str, env: str, lanes: int) -> None:
    """In a process of its own: train for a moment whenever a line comes in, and tell the run-steps per second."""
    from greedyac.agents import make_agent
    from greedyac.envs import make_env
    from greedyac.training.lanes import LaneBatch

    ran = LaneBatch([make_agent(agent)] * lanes, make_env(env), range(lanes), 10**8)
    ran.advance(300)
    began = time.perf_counter()
    ran.advance(100)
    steps = int(100 * SECONDS / (time.perf_counter() - began))
    print("ready", flush=True)
    for _ in sys.stdin:
        ran.advance(steps // 4)  # its data are in the cache again
        began = time.perf_counter()
        ran.advance(steps)
        print(steps * lanes / (time.perf_counter() - began), flush=True)


class Racer:
    """A process that trains with one version of the source."""

    def __init__(self, source: Path, python: str, core: int, arguments: list[str]):
        environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "PJRT_NPROC": "1"}
        self._process = subprocess.Popen(
            ["taskset", "-c", str(core), python, __file__, "--runner", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._told() == "ready"

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def lap(self) -> float:
        """Run-steps per second of a moment."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._told())

    def end(self) -> None:
        """Stop it."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Race and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path, metavar="SRC")
    parser.add_argument("--pythons", nargs=2, default=[sys.executable] * 2, metavar="PYTHON", help="older, newer")
    parser.add_argument("--agent", default="greedy-ac")
    parser.add_argument("--env", default="Pendulum-CA")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--runner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.runner:
        runner(options.agent, options.env, options.lanes)
        return
    if len(options.sources) != 2 or not all((source / "greedyac").is_dir() for source in options.sources):
        parser.error("two folders that hold the package greedyac are needed: the older src, the newer src")
    core = min(os.sched_getaffinity(0))
    arguments = ["--agent", options.agent, "--env", options.env, "--lanes", str(options.lanes)]
    pairs = zip(options.sources, options.pythons, strict=True)
    racers = [Racer(source, python, core, arguments) for source, python in pairs]
    laps = [[racer.lap() for racer in racers] for _ in range(options.rounds)]
    for racer in racers:
        racer.end()
    low, _, high = quantiles([new / old for old, new in laps], n=4)
    ratio = median(new / old for old, new in laps)
    print(
        f"{options.agent} on {options.env}, {options.lanes} lanes: {median(old for old, _ in laps):,.0f} → "
        f"{median(new for _, new in laps):,.0f} run-steps/s on one core, × {ratio:.2f} (quartiles {low:.2f}…{high:.2f})"
    )


if __name__ == "__main__":
    main()
