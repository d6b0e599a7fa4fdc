"""What one call of `predict` for one observation takes, beside the same network in plain NumPy.

    python benchmarks/predict.py [--agent greedy-ac] [--env Pendulum-v1]

Microseconds, the median of several rounds. Figures of one machine on one day: compare them within one run.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

ROUNDS, CALLS = 15, 400


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="greedy-ac")
    parser.add_argument("--env", default="Pendulum-v1")
    options = parser.parse_args()

    from greedyac.api.model import FRONTS

    model = FRONTS[options.agent](options.env)
    observation = np.zeros(model.policy.spaces.observation.size, np.float32)
    timed: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict(observation),
        "predict, a sample": lambda: model.predict(observation, deterministic=False),
        "the hidden layers in plain NumPy": lambda: _hidden(model.policy.state.actor, observation),
    }
    taken = {name: [_microseconds(call) for _ in range(ROUNDS)] for name, call in timed.items()}
    for name, rounds in taken.items():
        print(f"{median(rounds):8.0f} µs  {name}")


def _microseconds(call: Callable[[], Any]) -> float:
    call()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


def _hidden(actor: Any, x: Any) -> Any:
    for layer in actor.mlp.layers:
        x = np.maximum(x @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    return x


if __name__ == "__main__":
    main()
