"""How runs become chunks of work, what they are expected to cost, and how progress is counted."""

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import jax
import numpy as np
import pytest
from helpers.paths import TESTS
from helpers.probes import ManyActions

from greedyac.agents import AGENTS, Agent, VanillaACAgent, make_agent
from greedyac.api.progress import duration
from greedyac.cli.sweep import _words as progress_in_words
from greedyac.core.errors import InputError
from greedyac.core.fields import values_of
from greedyac.core.machine import Machine, machine_bytes
from greedyac.envs import make_env
from greedyac.execution import chunk as chunk_module
from greedyac.execution import plan
from greedyac.execution.chunk import Chunk
from greedyac.execution.cost import nominal_seconds, operations
from greedyac.execution.plan import plan_chunks
from greedyac.execution.speed import Speed
from greedyac.results.provenance import cpu
from greedyac.study import sweep
from greedyac.study.spec import Study, load_study, parse_study
from greedyac.study.store import Store
from greedyac.study.sweep import CHUNK_SECONDS, Shard, make_plan
from greedyac.training.blocks import make_lanes
from greedyac.training.config import Run, RunConfig
from greedyac.training.lanes import LaneBatch
from greedyac.training.program import lane_bytes

PAPER = ["paper/per-env", "paper/sweep-ca", "paper/sac-ablation"]


def planned(study: Study, folder: Path, workers: int = 2, **options: Any) -> list[Chunk]:
    return make_plan(study, Store.planned(folder / "store"), workers, **options).chunks


def runs_of(agent: str, env: str, steps: int, seeds: int, **hypers: Any) -> list[Run]:
    config = RunConfig(agent, env, steps, values_of(make_agent(agent, hypers)))
    return [Run(config, seed) for seed in range(seeds)]


@pytest.mark.parametrize("name", PAPER)
def test_every_run_is_in_one_chunk_of_its_program_and_the_longest_come_first(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    chunks = planned(study, tmp_path)
    told = Counter(run.run_id for chunk in chunks for run in chunk.runs)
    assert set(told) == set(study.runs())
    assert set(told.values()) == {1}
    for chunk in chunks:
        assert len({run.config.program for run in chunk.runs}) == 1
    seconds = [nominal_seconds(chunk.config) * len(chunk.runs) for chunk in chunks]
    assert seconds == sorted(seconds, reverse=True)
    assert len({chunk.chunk_id for chunk in chunks}) == len(chunks)


@pytest.mark.parametrize("name", PAPER)
def test_chunks_of_the_papers_studies_are_some_minutes_of_some_tens_of_runs(name: str, tmp_path: Path) -> None:
    sizes = []
    for chunk in planned(load_study(name), tmp_path):
        seconds = nominal_seconds(chunk.config) * len(chunk.runs)
        sizes.append(len(chunk.runs))
        assert seconds <= CHUNK_SECONDS
        sampled = chunk.config.agent != "sac" and chunk.config.env.endswith("-CA")
        assert chunk.width in ((3, 4, 5) if sampled else (6, 7, 8))
    assert 14 <= sum(sizes) / len(sizes) <= 60


def test_the_plan_is_the_same_every_time_and_depends_on_the_store(tmp_path: Path) -> None:
    study = load_study("paper/per-env-small")
    one, other = (make_plan(study, Store.planned(tmp_path / "store"), 2) for _ in range(2))
    assert [chunk.to_json() for chunk in one.chunks] == [chunk.to_json() for chunk in other.chunks]
    assert (one.missing, one.held.total(), len(one.programs)) == (24, 0, 6)


def test_shards_are_disjoint_about_equal_and_complete() -> None:
    run_ids = list(load_study("paper/sweep-ca").runs())
    parts = [[run_id for run_id in run_ids if Shard(part, 16).holds(run_id)] for part in range(1, 17)]
    assert sorted(itertools.chain(*parts)) == sorted(run_ids)
    assert all(700 < len(part) < 1000 for part in parts)


@pytest.mark.parametrize(
    ("agent", "seeds", "workers", "sizes", "width"),
    [
        ("sac", 1, 2, [1], 2),  # padded
        ("sac", 8, 2, [4, 4], 4),  # a share for each worker
        ("sac", 16, 2, [8, 8], 8),
        ("sac", 20, 2, [5, 5, 5, 5], 5),  # even rounds: none is nearly empty
        ("sac", 40, 1, [16, 16, 8], 8),  # whole rounds
        ("greedy-ac", 10, 2, [5, 5], 5),
        ("greedy-ac", 16, 2, [4, 4, 4, 4], 4),  # its 30 samples for each of more lanes outgrow the cache
        ("greedy-ac", 20, 2, [5, 5, 5, 5], 5),
        ("greedy-ac", 22, 2, [4, 4, 4, 4, 4, 2], 4),
        ("greedy-ac", 40, 1, [16, 16, 8], 4),
    ],
)
def test_a_small_study_keeps_all_workers_busy(
    agent: str, seeds: int, workers: int, sizes: list[int], width: int
) -> None:
    chunks = plan_chunks(runs_of(agent, "Pendulum-CA", 100_000, seeds), workers, Path(), CHUNK_SECONDS)
    assert [len(chunk.runs) for chunk in chunks] == sizes
    assert {chunk.width for chunk in chunks} == {width}


def test_short_runs_make_chunks_of_64_and_long_ones_narrow_chunks() -> None:
    short = plan_chunks(runs_of("random", "Pendulum-CA", 10, 1000), 2, Path(), CHUNK_SECONDS)
    assert len(short[0].runs) <= 64
    long = plan_chunks(runs_of("greedy-ac", "Pendulum-CA", 1_000_000, 16), 2, Path(), CHUNK_SECONDS)
    assert {(len(chunk.runs), chunk.width) for chunk in long} == {(4, 4)}


def test_large_layers_are_trained_two_at_a_time_so_that_their_bits_are_always_the_same() -> None:
    configs: list[tuple[dict[str, Any], int]] = [
        ({"batch_size": 64}, 8),
        ({"batch_size": 65}, 2),
        ({"hidden": (64, 129)}, 2),
    ]
    for hypers, width in configs:
        for seeds in (16, 5):
            chunks = plan_chunks(runs_of("sac", "Pendulum-CA", 1000, seeds, **hypers), 1, Path(), CHUNK_SECONDS)
            assert {chunk.width for chunk in chunks} == {min(width, seeds)}


@pytest.mark.parametrize(
    ("agent", "env", "hypers", "width"),
    [
        ("greedy-ac", "Pendulum-CA", {}, 4),  # 4 bytes × 64 units × 32 in a batch × 30 samples: 2^20 / 245,760
        ("greedy-ac", "Pendulum-CA", {"proposal_samples": 20}, 6),
        ("greedy-ac", "Pendulum-CA", {"proposal_samples": 200}, 2),
        ("greedy-ac", "Pendulum-DA", {}, 8),
        ("vanilla-ac", "Pendulum-CA", {}, 4),
        ("vanilla-ac", "Pendulum-CA", {"hidden": (8, 8)}, 8),
        ("random", "Pendulum-CA", {}, 8),
    ],
)
def test_lanes_that_fit_into_the_cache(agent: str, env: str, hypers: dict[str, object], width: int) -> None:
    assert plan.best_width(RunConfig(agent, env, 1000, hypers)) == width


NARROW: list[tuple[str, str, dict[str, object], int]] = [
    ("greedy-ac", "Pendulum-CA", {"hidden": (32, 32)}, 3),  # 32 in a batch × 32 units: 4 × 1,024 are 4,096
    ("sac", "Pendulum-DA", {"hidden": (20,)}, 3),  # two critics: 3 × 1,280 = 3,840
    ("greedy-ac", "Pendulum-CA", {"hidden": (8, 8), "elite_fraction": 0.6}, 7),  # 18 of 30 samples: 7 × 576 = 4,032
    ("vanilla-ac", "MountainCar-DA", {"hidden": (4,), "batch_size": 1000, "discrete_critic": "index"}, 4),
    ("sac", "Pendulum-DA", {"hidden": (4,), "batch_size": 1000, "automatic_entropy": True}, 2),
]
ALSO_NARROW: list[tuple[str, str, dict[str, object], int]] = [
    ("greedy-ac", "MountainCar-DA", {"hidden": (8, 24)}, 5),  # 5 × 768 = 3,840
    ("vanilla-ac", "Pendulum-CA", {"batch_size": 8}, 7),  # 7 × 512 = 3,584
    ("sac", "Pendulum-CA", {"batch_size": 20}, 3),  # an actor of 1,280; two critics of 2,560, too many at every width
]


@pytest.mark.parametrize(("agent", "env", "hypers", "width"), [*NARROW, *ALSO_NARROW])
def test_sums_are_of_few_numbers_at_every_width_or_of_many_at_every_width(
    agent: str, env: str, hypers: dict[str, object], width: int
) -> None:
    assert plan.widest(RunConfig(agent, env, 1000, hypers)) == width


def test_sums_over_many_actions_count_too() -> None:
    config = RunConfig("greedy-ac", "Pendulum-DA", 1000, {})
    vars(config).update(world=ManyActions())
    assert plan.widest(config) == 5  # 32 in a batch × 25 actions: 5 × 800 = 4,000


@pytest.mark.parametrize("size", [480, 768, 1024, 2048])
def test_the_order_of_a_sum_depends_on_how_many_numbers_there_are(size: int) -> None:
    """What `MANY_NUMBERS` says of XLA: the same bits at every width below it, and at every width from it on."""
    numbers = np.random.default_rng(0).normal(size=(plan.MAX_WIDTH, 32, size // 32)).astype(np.float32)
    added = jax.jit(jax.vmap(lambda lane: lane.sum(0)))
    sums = {width: np.asarray(added(numbers[:width]))[0] for width in range(2, plan.MAX_WIDTH + 1)}
    for many in (False, True):
        alike = [total for width, total in sums.items() if (width * size >= plan.MANY_NUMBERS) is many]
        assert all(np.array_equal(total, alike[0]) for total in alike)


LARGEST = [(agent, "Acrobot-DA", {"batch_size": 64}, 8) for agent in ("greedy-ac", "sac", "vanilla-ac")]


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "env", "hypers", "widest"), [*LARGEST, *NARROW[:-1]])
def test_runs_have_the_same_bits_at_the_narrowest_and_the_widest_width(
    agent: str, env: str, hypers: dict[str, object], widest: int
) -> None:
    config = RunConfig(agent, env, 1100, {"replay_capacity": 1100, **hypers})
    weights = []
    for width in (2, widest):
        lanes = LaneBatch([config.learner] * width, config.world, list(range(3, 3 + width)), config.steps)
        lanes.advance(config.steps)
        kept = jax.tree.leaves((lanes.state.agent.actor, lanes.state.agent.critic))
        weights.append([np.asarray(leaf[0]) for leaf in kept])
    assert all(np.array_equal(*pair) for pair in zip(*weights, strict=True))


def test_an_agent_that_nobody_has_counted_can_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(VanillaACAgent):
        name: ClassVar[str] = "mine"

    monkeypatch.setitem(AGENTS, "mine", cast(type[Agent], Mine))
    chunks = plan_chunks(runs_of("mine", "Pendulum-CA", 1000, 4), 2, Path(), CHUNK_SECONDS)
    assert sum(len(chunk.runs) for chunk in chunks) == 4


def test_lanes_that_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of("sac", "Pendulum-CA", 100_000, 16, replay_capacity=10_000_000)
    lane = lane_bytes(runs[0].config.program)
    assert 28e7 < lane < 32e7  # 7 numbers of 4 bytes each, ten million times
    for memory, width in [(40e9, 8), (6e9, 3), (2e9, 2)]:
        monkeypatch.setattr(plan, "machine_bytes", lambda memory=memory: memory)
        assert {chunk.width for chunk in plan_chunks(runs, 2, Path(), CHUNK_SECONDS)} == {width}
    monkeypatch.setattr(plan, "machine_bytes", lambda: 0.4e9)
    complaint = "replay_capacity = 10000000 is not allowed here: a run of sac on Pendulum-CA would take 0.3 GB"
    with pytest.raises(InputError, match=complaint):
        plan_chunks(runs, 2, Path(), CHUNK_SECONDS)


def test_memory_of_a_lane_is_what_a_lane_holds() -> None:
    config = RunConfig("sac", "Acrobot-DA", 10)
    lanes = LaneBatch([config.learner] * 2, config.world, [0, 1], 10)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(lanes.state))
    assert 2 * lane_bytes(config.program) == held
    memory = machine_bytes()
    assert memory is None or memory > 100e6


def test_nominal_time_follows_the_work() -> None:
    plain = nominal_seconds(RunConfig("greedy-ac", "Pendulum-CA", 100_000))
    assert 15 < plain < 35
    assert nominal_seconds(RunConfig("greedy-ac", "Pendulum-CA", 200_000)) == pytest.approx(2 * plain)
    assert nominal_seconds(RunConfig("greedy-ac", "Pendulum-CA", 100_000, {"hidden": (256, 256)})) > 5 * plain
    assert nominal_seconds(RunConfig("greedy-ac", "Pendulum-CA", 100_000, {"proposal_samples": 60})) > 1.4 * plain
    assert nominal_seconds(RunConfig("random", "Pendulum-CA", 100_000)) < 1
    spaces = make_env("Pendulum-CA").spaces
    more = operations(make_agent("vanilla-ac", {"baseline_samples": 29}), spaces)
    assert more - operations(make_agent("vanilla-ac"), spaces) == 32 * 2 * (3 * 64 + 64 * 64 + 64)


def test_progress_counts_steps_runs_and_setbacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = parse_study(
        'name = "x"\nsteps = 100\nseeds = "0-3"\n[[cells]]\nagents = ["random"]\nenvs = ["Pendulum-CA"]'
    )
    made = make_plan(study, Store.planned(tmp_path / "store"), 1)
    [chunk] = made.chunks
    clock = [10.0]
    monkeypatch.setattr(sweep, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    meter = sweep._Meter(made)
    assert meter.progress() == sweep.SweepProgress(4, 0, 0, 0, 0.0, None, None)
    meter.add_steps(chunk, 0)
    clock[0] = 10.001
    for steps in (10, 78, 12):  # whose sum is not that of 100, to the last bit
        meter.add_steps(chunk, steps)
    assert meter.progress()[-2:] == (None, None)  # nobody is that fast: they were done before they were told
    clock[0] = 12.0
    assert tuple(meter.progress()) == pytest.approx((4, 0, 0, 0, 0.25, 50.0, 6.0))
    meter.lose_steps(chunk)  # its worker died
    assert meter.progress()[4:] == pytest.approx((0.0, 50.0, 8.0))  # all of it, at the speed that it had
    clock[0] = 20.0
    meter.add_steps(chunk, 400)
    assert meter.progress().share == 0.99  # trained, not yet published
    meter.end(chunk, done=3, diverged=1)
    assert meter.progress()[:5] == (4, 3, 1, 0, 1.0)
    assert meter.progress().seconds_left == 0


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (sweep.SweepProgress(4, 1, 0, 0, 0.25, None, None), "1 of 4 runs, 0 diverged, 0 failed, compiling …"),
        (
            sweep.SweepProgress(4, 1, 1, 0, 0.25, 50.0, 6.0),
            "2 of 4 runs, 1 diverged, 0 failed, 50 run-steps/s, 6 s left",
        ),
        (sweep.SweepProgress(4, 4, 0, 0, 1.0, 50.0, 0.0), "4 of 4 runs, 0 diverged, 0 failed, 50 run-steps/s"),
        (sweep.SweepProgress(4, 4, 0, 0, 1.0, None, None), "4 of 4 runs, 0 diverged, 0 failed"),
    ],
)
def test_progress_in_words(progress: sweep.SweepProgress, words: str) -> None:
    assert progress_in_words(progress) == words


def test_work_that_ends_without_training_is_not_waited_for(tmp_path: Path) -> None:
    study = load_study("paper/per-env-small")
    made = make_plan(study, Store.planned(tmp_path / "store"), 2)
    meter = sweep._Meter(made)
    for chunk in made.chunks[:-1]:  # as if somebody else had published them, or they had failed
        meter.add_steps(chunk, 0)
        meter.end(chunk, done=len(chunk.runs))
    last = made.chunks[-1]
    meter.add_steps(last, len(last.runs) * last.config.steps // 2)
    left = nominal_seconds(last.config) * len(last.runs) / 2
    work = sum(nominal_seconds(chunk.config) * len(chunk.runs) for chunk in made.chunks)
    assert meter.progress().share == pytest.approx(1 - left / work)


def test_time_is_estimated_by_the_schedule_of_the_chunks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []

    def measure(config: RunConfig, workers: int, lanes: int, seconds: float, cached: bool) -> Speed:
        assert not cached  # compiling is part of a sweep's time, whatever was compiled before
        asked.append((workers, lanes))
        return Speed(
            workers * config.steps / nominal_seconds(config) / 2, compile_seconds=7.0
        )  # half as fast as nominal

    monkeypatch.setattr(sweep, "measure", measure)
    cell = '[[cells]]\nagents = ["greedy-ac"]\nenvs = ["Pendulum-CA"]'
    study = parse_study(f'name = "x"\nsteps = 100_000\nseeds = "0-2"\n{cell}')
    made = make_plan(study, Store.planned(tmp_path / "store"), 8)
    told = sweep.estimate(made, lambda config: None)
    # Three runs for eight workers: one chunk of two lanes, and one that is padded to two.
    assert [len(chunk.runs) for chunk in made.chunks] == [2, 1]
    assert asked == [(2, 2)]
    assert told.seconds == pytest.approx(2 * 2 * nominal_seconds(made.chunks[0].config) + 7.0)
    many = make_plan(load_study("paper/sweep-ca"), Store.planned(tmp_path / "store"), 2)
    work = sum(nominal_seconds(chunk.config) * len(chunk.runs) for chunk in many.chunks)
    assert sweep.estimate(many, lambda config: None).seconds == pytest.approx(2 * work / 2 + 7 * 4.5, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.2, "3 s"), (99.9, "100 s"), (119, "2 min"), (5990, "1 h 40 min"), (7200, "2 h 0 min"), (200_000, "2 d 7 h")],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_memory_is_that_of_the_machine_of_the_workers() -> None:
    runs = runs_of("sac", "Pendulum-CA", 100_000, 16, replay_capacity=10_000_000)
    for machine, width in [(Machine(160 * 10**9, 8), 2), (Machine(6 * 10**9, 2), 3), (Machine(None, 1000), 2)]:
        [chunk, *_] = plan_chunks(runs, 8 if width == 2 else 2, Path(), CHUNK_SECONDS, machine=machine)
        assert chunk.width == width
    with pytest.raises(InputError, match=r"would take 0\.3 GB, and the machine has 0\.4"):
        plan_chunks(runs, 2, Path(), CHUNK_SECONDS, machine=Machine(4 * 10**8, 1))


def test_chunks_for_accelerators_have_many_lanes_there_and_few_on_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_of("random", "Pendulum-CA", 1000, 40)
    plain, wide = (plan_chunks(runs, 2, tmp_path, CHUNK_SECONDS, lanes=lanes) for lanes in (0, 32))
    assert [len(chunk.runs) for chunk in wide] == [32, 8]
    assert {chunk.width for chunk in wide} == {chunk.width for chunk in plain} == {7}
    again = Chunk.from_json(wide[0].to_json())
    assert (again.lanes, again.width, again.chunk_id) == (32, 7, wide[0].chunk_id)
    widths: list[int] = []

    def noted(*given: Any) -> LaneBatch:
        widths.append(given[4])
        return make_lanes(*given)

    monkeypatch.setattr(chunk_module, "make_lanes", noted)
    chunk_module.train_chunk(wide[1], lambda steps: None)
    monkeypatch.setattr(chunk_module, "on_accelerator", lambda: True)
    chunk_module.train_chunk(wide[0], lambda steps: None)
    assert widths == [7, 7, 32]  # eight runs, and 32


def test_a_chunk_of_other_numerics_is_refused() -> None:
    [chunk] = plan_chunks(runs_of("random", "Pendulum-CA", 1000, 2), 1, Path(), CHUNK_SECONDS)
    for numbers, name in [([7, 1], "random"), ([1, 7], "Pendulum-CA")]:
        text = json.dumps(json.loads(chunk.to_json()) | {"numerics": numbers})
        with pytest.raises(InputError, match=f"the numerics of {name} are 1 here and 7 where it was asked for"):
            Chunk.from_json(text)


def test_the_accelerator_is_recorded_in_place_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(device_kind="NVIDIA A100")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert cpu() == "gpu NVIDIA A100"


PLANS = """
import sys
from pathlib import Path
from jax._src import xla_bridge
from greedyac.execution.plan import expand_configs, plan_chunks
from greedyac.training.checkpoint import read_checkpoint
from greedyac.training.config import Run

for env in ("Pendulum-CA", "Pendulum-v1"):
    [config] = expand_configs("greedy-ac", env, 100, None, {}, {}, {})
    run = Run(config, 0)
    plan_chunks([run], 2, Path(run.run_id))
for path in sys.argv[1:]:
    read_checkpoint(path)
print(xla_bridge.backends_are_initialized())
"""


def test_planning_and_reading_checkpoints_do_not_start_jax() -> None:
    """It would take an accelerator's memory from the workers."""
    files = [str(TESTS / "data/0.1.0" / name) for name in ("sac.safetensors", "sac.middle.safetensors")]
    assert subprocess.check_output([sys.executable, "-c", PLANS, *files], text=True) == "False\n"
