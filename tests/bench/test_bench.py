"""The benchmark: what it counts, and what it prints. How fast anything is, is not tested."""

import itertools
import json
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from greedyac.agents import AGENTS, make_agent
from greedyac.agents.base import Batch
from greedyac.bench import measure as measuring
from greedyac.cli import main
from greedyac.core.machine import cores
from greedyac.core.spaces import Box
from greedyac.envs import make_env
from greedyac.execution import speed
from greedyac.execution.cost import PASSES, operations
from greedyac.training.config import RunConfig


def test_operations_by_hand() -> None:
    """Networks 2 → 64 → 64 → 2 (mean, log-std), 3 → 64 → 64 → 1 and 2 → 64 → 64 → 3; batches of 32, 30 samples."""
    policy, critic, discrete = 2 * (128 + 4096 + 128), 2 * (192 + 4096 + 64), 2 * (128 + 4096 + 192)
    continuous, few = make_env("Pendulum-CA").spaces, make_env("Pendulum-DA").spaces
    assert operations(make_agent("greedy-ac"), continuous) == policy + 32 * (7 * policy + 34 * critic) == 11_428_352
    assert operations(make_agent("vanilla-ac"), continuous) == policy + 32 * (4 * policy + 33 * critic)
    assert operations(make_agent("sac"), continuous) == policy + 32 * (4 * policy + 12 * critic)
    assert (
        operations(make_agent("greedy-ac"), few) == operations(make_agent("vanilla-ac"), few) == discrete * (1 + 32 * 9)
    )
    assert operations(make_agent("sac"), few) == discrete * (1 + 32 * 14)


@pytest.mark.parametrize("env", measuring.ENVS)
@pytest.mark.parametrize("agent", PASSES)
def test_operations_are_what_the_compiler_counts_in_an_update(agent: str, env: str) -> None:
    """XLA counts everything, not only matrix products: 5 to 8 % more were measured."""
    learner, spaces, key = make_agent(agent), make_env(env).spaces, jax.random.key(0)
    numbers, features = jnp.zeros(32), jnp.zeros((32, spaces.observation.size))
    action = jnp.zeros((32, 1)) if isinstance(spaces.action, Box) else numbers
    state = jax.eval_shape(lambda: learner.init(key, spaces))
    batch = Batch(features, action, numbers, features, numbers)
    counted: Any = jax.jit(learner.update).lower(state, batch, key).compile().cost_analysis()
    assert 1.0 < counted["flops"] / operations(learner, spaces) < 1.1


def test_every_agent_that_learns_is_measured() -> None:
    assert set(PASSES) == {name for name in AGENTS if make_agent(name).batch_size}


def test_the_rate_is_that_of_a_window_after_all_workers_have_compiled_and_warmed_up() -> None:
    alone = [(0.0, 0), (0.5, 10_000), (1.5, 10_000), (2.0, 0)]  # the second worker compiles longer
    warming = [(2.25 + 0.25 * n, 500) for n in range(3)]
    steady = [(3.0 + 0.5 * n, 70 + n) for n in range(5)]  # the first marks the beginning
    later = [(9.0, 10_000)]
    rate = speed.sustained(iter(alone + warming + steady + later), workers=2, seconds=2.0)
    assert rate == (71 + 72 + 73 + 74) / 2.0


def test_a_window_with_few_and_long_blocks() -> None:
    events = [(0.0, 0), (1.0, 10), (4.0, 100), (5.5, 300), (6.0, 1)]
    assert speed.sustained(iter(events), workers=1, seconds=1.0) == 100 / 3.0
    assert speed.sustained(iter(events), workers=1, seconds=3.5) == 400 / 4.5


def test_matmul_rate_counts_two_operations_per_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=0.25)
    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert measuring.matmul_gflops(seconds=1.0, size=8) == 3 * 2 * 8**3 / 1e9  # three products, then a second is over


def test_lanes_are_those_of_a_study_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(case: RunConfig, workers: int, lanes: int, seconds: float) -> speed.Speed:
        return speed.Speed(1000.0 * lanes, 0.0)

    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.setattr(measuring, "matmul_gflops", lambda: 100.0)
    for lanes, used in [(None, [4, 8, 8, 8]), (3, [3, 3, 3, 3])]:
        results = measuring.bench(["greedy-ac", "sac"], 1.0, lanes, lambda agent, env: None).results
        assert [one.lanes for one in results] == used
        assert [one.run_steps_per_second for one in results] == [1000.0 * width for width in used]


@pytest.mark.slow
def test_json_of_a_short_bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(measuring, "ENVS", ("Pendulum-DA",))
    assert main(["bench", "vanilla-ac", "--seconds", "1", "--lanes", "2", "--json"]) == 0
    printed = capsys.readouterr()
    measured = json.loads(printed.out)
    assert set(measured) == {"cores", "matmul_gflops", "results", "date", "machine"}
    [result] = measured["results"]
    names = ["agent", "env", "run_steps_per_second", "gflops", "fraction_of_matmul", "lanes", "workers"]
    assert list(result) == names
    assert (result["agent"], result["env"], result["lanes"]) == ("vanilla-ac", "Pendulum-DA", 2)
    assert result["workers"] == measured["cores"] == len(cores())
    per_step = operations(make_agent("vanilla-ac"), make_env("Pendulum-DA").spaces)
    assert result["gflops"] == pytest.approx(result["run_steps_per_second"] * per_step / 1e9)
    assert result["fraction_of_matmul"] == pytest.approx(result["gflops"] / measured["matmul_gflops"])
    assert result["run_steps_per_second"] > 0
    assert printed.err == "measuring vanilla-ac on Pendulum-DA\n"
