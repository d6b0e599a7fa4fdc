"""Training as a user sees it: the folder that the command writes, and `greedyac.train` in Python."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest
from rich.console import Console

import greedyac
from greedyac.agents import AGENTS
from greedyac.api.returns import missing_returns
from greedyac.api.train import TrainResult, plan_runs
from greedyac.cli import main
from greedyac.cli.output import write_result
from greedyac.cli.train import print_summary
from greedyac.core.fields import hypers_of
from greedyac.execution.plan import plan_chunks
from greedyac.results.schema import SCHEMA
from greedyac.training.config import Run

TINY: dict[str, Any] = {
    "steps": 400,
    "env_options": {"time_limit": 50},
    "hidden": (4,),
    "proposal_samples": 4,
    "batch_size": 4,
}
STEP_SIZES = [1e-3, 1e30]  # the second diverges
FILES = ["curves.parquet", "curves.png", "seed-0.safetensors", "seed-1.safetensors", "seed-2.safetensors"]


def plan(agent: str = "greedy-ac", env: str = "Pendulum-CA", **options: Any) -> list[Run]:
    """The runs that `greedyac.train` would train."""
    given = {"steps": 10, "seeds": 0, "preset": None, "env_options": {}, "sweep": {}, **options}
    rest = {name: given.pop(name) for name in ("steps", "seeds", "preset", "env_options", "sweep")}
    return plan_runs(agent, env, hypers=given, **rest)


def refuse_constant(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command wrote for three seeds of 2,500 steps: two whole episodes each, none in the last tenth."""
    out = tmp_path_factory.mktemp("train") / "deep" / "out"
    assert main(["train", "random", "Pendulum-CA", "--steps", "2500", "--seeds", "0-2", "--out", str(out)]) == 0
    return out


def train_tiny(**options: Any) -> TrainResult:
    return greedyac.train("greedy-ac", "Pendulum-CA", **TINY, **options)


@pytest.fixture(scope="module")
def one_worker() -> TrainResult:
    return train_tiny(seeds=[0, 1], sweep={"critic_step_size": STEP_SIZES}, workers=1)


@pytest.fixture(scope="module")
def two_workers() -> TrainResult:
    return train_tiny(seeds=[0, 1], sweep={"critic_step_size": STEP_SIZES}, workers=2)


@pytest.fixture(scope="module")
def alone() -> TrainResult:
    return train_tiny(seeds=1, critic_step_size=1e-3, workers=2)


def test_command_writes_exactly_its_files(folder: Path) -> None:
    assert names(folder) == [*FILES, "summary.json"]
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_curves_have_the_columns_of_a_store(folder: Path) -> None:
    rows = pl.read_parquet(folder / "curves.parquet")
    assert rows.schema == SCHEMA
    assert rows["seed"].to_list() == [0, 1, 2]
    assert rows["run_id"].n_unique() == 3
    assert rows["setting_id"].n_unique() == 1
    for column, value in {
        "agent": "random",
        "env": "Pendulum-CA",
        "steps": 2500,
        "hypers": "{}",
        "status": "done",
    }.items():
        assert rows[column].to_list() == 3 * [value]
    for column in ("error", "diverged_at", "final_return", "eval_curve", "eval_steps"):
        assert rows[column].null_count() == 3
    assert rows["episodes"].to_list() == [2, 2, 2]
    assert rows["curve_steps"].to_list() == [25.0, 25.0, 25.0]
    for curve, average, best in rows.select("curve", "average_return", "best_return").iter_rows():
        assert len(curve) == 100
        assert curve[80:] == 20 * [None]  # the third episode is cut by the end of the run
        assert len(set(curve[:40])) == len(set(curve[40:80])) == 1  # every step carries the return of its episode
        assert average == pytest.approx(np.mean(curve[:80]), rel=1e-6)
        assert best == max(curve[:80])


def test_summary_tells_what_the_curves_tell(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text(), parse_constant=refuse_constant)
    rows = pl.read_parquet(folder / "curves.parquet")
    assert summary.pop("run_steps_per_second") > 0
    for column in ("average_return", "best_return"):
        values = rows[column].to_list()
        told = summary.pop(column)
        assert told == {"mean": pytest.approx(np.mean(values)), "seeds": dict(zip("012", values, strict=True))}
    assert summary.pop("final_return") == {"mean": None, "seeds": {"0": None, "1": None, "2": None}}
    assert summary == {
        "agent": "random",
        "env": "Pendulum-CA",
        "env_options": {},
        "steps": 2500,
        "seeds": [0, 1, 2],
        "hypers": {},
        "diverged": [],
        "failed": {},
        "restarted": [],
    }


def test_checkpoints_are_of_their_seeds(folder: Path) -> None:
    for seed in range(3):
        policy = greedyac.load(folder / f"seed-{seed}.safetensors").policy
        assert (policy.run.config.agent, policy.run.seed, policy.run.config.steps) == ("random", seed, 2500)


def test_overwrite_replaces_the_old_result_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder, tmp_path / "out")
    (out / "notes.txt").write_text("mine")
    command = ["train", "random", "Pendulum-CA", "--steps", "300", "--seeds", "2", "--out", str(out)]
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == 0
    assert names(out) == ["curves.parquet", "curves.png", "notes.txt", "seed-2.safetensors", "summary.json"]
    assert (out / "notes.txt").read_text() == "mine"
    assert json.loads((out / "summary.json").read_text())["seeds"] == [2]
    assert pl.read_parquet(out / "curves.parquet")["steps"].to_list() == [300]
    assert greedyac.load(out / "seed-2.safetensors").policy.run.config.steps == 300


def test_default_folder_is_the_first_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for taken in (0, 2):
        (tmp_path / f"runs/random-Acrobot-DA-{taken}").mkdir(parents=True)
    options = ["--steps", "20", "--env-option", "time_limit=10", "--env-option", "start=zero"]
    assert main(["train", "random", "Acrobot-DA", *options]) == 0
    assert names(tmp_path / "runs") == [f"random-Acrobot-DA-{index}" for index in range(3)]
    out = tmp_path / "runs/random-Acrobot-DA-1"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["env_options"] == {"time_limit": 10, "start": "zero"}
    assert summary["average_return"]["mean"] == -10
    assert pl.read_parquet(out / "curves.parquet")["env"].to_list() == ["Acrobot-DA[start=zero,time_limit=10]"]


def test_rows_and_policies_are_in_the_order_of_settings_and_seeds(two_workers: TrainResult) -> None:
    rows = two_workers.curves
    assert rows.schema == SCHEMA
    assert rows["seed"].to_list() == [0, 1, 0, 1]
    assert [json.loads(text)["critic_step_size"] for text in rows["hypers"]] == [1e-3, 1e-3, 1e30, 1e30]
    assert rows["setting_id"].n_unique() == 2
    runs = plan(**TINY, seeds=[0, 1], sweep={"critic_step_size": STEP_SIZES})
    assert rows["run_id"].to_list() == [run.run_id for run in runs]
    assert [policy.run.run_id for policy in two_workers.policies] == [run.run_id for run in runs]


def test_sweep_multiplies_settings_and_seeds() -> None:
    runs = plan(sweep={"critic_step_size": [1e-3, 1e-2], "discount": (0.9, 0.8)}, seeds="3-4", polyak=0.5)
    wanted = [(size, discount, seed) for size in (1e-3, 1e-2) for discount in (0.9, 0.8) for seed in (3, 4)]
    assert [(run.config.hypers["critic_step_size"], run.config.hypers["discount"], run.seed) for run in runs] == wanted
    assert {run.config.hypers["polyak"] for run in runs} == {0.5}
    assert len({run.run_id for run in runs}) == len(runs)


def test_a_swept_grid_is_one_program_and_a_static_one_several() -> None:
    swept = plan(sweep={"critic_step_size": [1e-3, 1e-2], "entropy_scale": [0, 1]}, seeds=range(2))
    chunks = plan_chunks(swept, workers=1, folder=Path())
    assert [(len(chunk.runs), chunk.width) for chunk in chunks] == [(4, 4), (4, 4)]
    assert len({chunk.config.program for chunk in chunks}) == 1
    static = plan(sweep={"batch_size": [16, 32]}, seeds=range(2))
    assert [len(chunk.runs) for chunk in plan_chunks(static, workers=1, folder=Path())] == [2, 2]


def test_workers_share_a_program_only_if_there_are_too_few_programs() -> None:
    static = plan(sweep={"batch_size": [32, 33]}, seeds=range(4))
    sizes = {count: [len(chunk.runs) for chunk in plan_chunks(static, count, Path())] for count in (1, 2, 3, 4, 8)}
    assert sizes == {1: [4, 4], 2: [4, 4], 3: [2] * 4, 4: [2] * 4, 8: [2] * 4}


@pytest.mark.parametrize("seeds", [range(1), range(3), range(9), range(17), range(100)])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_chunks_hold_every_run_once(seeds: range, workers: int) -> None:
    runs = plan(seeds=seeds)
    chunks = plan_chunks(runs, workers, Path())
    assert [run.seed for chunk in chunks for run in chunk.runs] == list(seeds)
    assert all(max(len(chunk.runs), 2) <= chunk.width <= 8 for chunk in chunks)
    assert len({chunk.chunk_id for chunk in chunks}) == len(chunks)


@pytest.mark.parametrize(
    ("env", "options", "complaint"),
    [
        (
            "Pendulum-DA",
            {"sweep": {"entropy_scale": [0, 1]}},
            "sweeping entropy_scale is not allowed: it has no effect",
        ),
        (
            "Pendulum-CA",
            {"sweep": {"discrete_critic": ["heads", "index"]}},
            "discrete_critic is not allowed: it has no",
        ),
        ("Pendulum-CA", {"sweep": {"critic_stepsize": [1]}}, "'critic_stepsize'"),
        ("Pendulum-CA", {"sweep": {"discount": []}}, "sweep of discount = .. is not allowed; allowed: a list"),
        ("Pendulum-CA", {"sweep": {"discount": 0.9}}, "sweep of discount = 0.9 is not allowed; allowed: a list"),
        ("Pendulum-CA", {"sweep": {"entropy_estimator": "score"}}, "= 'score' is not allowed; allowed: a list"),
        ("Pendulum-CA", {"sweep": {"discount": [1, 0.5, 1.0]}}, "discount = 1,0.5,1 is not allowed; allowed: each"),
        ("Pendulum-CA", {"sweep": {"discount": [0.9, 2]}}, "discount = 2 is not allowed; allowed: ≥ 0 and ≤ 1"),
        (
            "Pendulum-CA",
            {"sweep": {"discount": [0.9]}, "discount": 0.8},
            "discount is given both as a value and in the",
        ),
        ("Pendulum-CA", {"sweep": {"batch_size": [4, 200_000]}}, "batch_size = 200000 is not allowed with replay"),
        (
            "Pendulum-CA",
            {"sweep": ["discount"]},
            r"sweep = \['discount'\] is not allowed; allowed: hyperparameters and",
        ),
        ("Pendulum-CA", {"seeds": []}, "no seeds were given"),
        ("Pendulum-CA", {"seeds": [0, True]}, "seed = true is not allowed"),
        ("Pendulum-CA", {"seeds": 1.5}, "1.5"),
        ("Pendulum-CA", {"seeds": "0-x"}, "seeds '0-x' are not allowed"),
        ("Pendulum-CA", {"steps": 2.5}, "steps = 2.5 is not allowed; allowed: whole number ≥ 1"),
        ("Pendulum-CA", {"steps": 0}, "steps = 0 is not allowed; allowed: whole number ≥ 1"),
        ("Pendulum-CA", {"hidden": (64, 0)}, "hidden = 64,0 is not allowed"),
        ("Pendulum-CA", {"env_options": {"start": "zero"}}, "unknown option of Pendulum-CA 'start'"),
    ],
)
def test_refused_before_anything_starts(env: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(greedyac.InputError, match=complaint):
        greedyac.train("greedy-ac", env, **options)


@pytest.mark.parametrize(
    ("agent", "env", "name", "hypers"),
    [
        ("sac", "Pendulum-CA", "entropy_step_size", {}),
        ("sac", "Pendulum-CA", "entropy_scale", {"automatic_entropy": True}),
        ("sac", "Pendulum-DA", "soft_target", {"entropy_scale": 0}),
        ("vanilla-ac", "Pendulum-CA", "entropy_estimator", {"entropy_scale": 0}),
        ("greedy-ac", "Pendulum-CA", "entropy_estimator", {"entropy_scale": 0}),
        ("greedy-ac", "Pendulum-CA", "entropy_estimator", {"proposal_update": "average"}),
    ],
)
def test_a_sweep_of_what_has_no_effect_with_the_other_values_is_refused(
    agent: str, env: str, name: str, hypers: dict[str, Any]
) -> None:
    hyper = hypers_of(AGENTS[agent])[name]
    sweep = {name: hyper.choices or [0.5, 1.0]}
    complaint = f"^sweeping {name} is not allowed: it has no effect for {agent} on {env} with these values$"
    with pytest.raises(greedyac.InputError, match=complaint):
        plan(agent, env, sweep=sweep, **hypers)
    used = {"entropy_scale": 0.1, "actor_entropy_scale": 0.1, "automatic_entropy": name == "entropy_step_size"}
    values = {
        **hypers,
        **{key: value for key, value in used.items() if key in hypers_of(AGENTS[agent]) and key != name},
    }
    assert len(plan(agent, env, sweep=sweep, **values)) == len(sweep[name])


def test_refused_workers() -> None:
    with pytest.raises(greedyac.InputError, match="workers = 0 is not allowed; allowed: whole number ≥ 1"):
        greedyac.train("random", "Pendulum-CA", workers=0)


def test_close_values_generators_and_arrays() -> None:
    assert len(plan(sweep={"discount": [0.99, 0.9900001]})) == 2
    assert len(plan(sweep={"discount": (value for value in (0.9, 0.8))})) == 2
    assert len(plan(sweep={"discount": np.array([0.9, 0.8])}, seeds=np.arange(3))) == 6


def assert_same_bits(one: TrainResult, other: TrainResult) -> None:
    """Equal numbers for every run that both have. (Of a diverged run, NaN is NaN, whatever its sign bit.)"""
    columns = ("run_id", "status", "diverged_at", "average_return", "final_return", "best_return", "episodes", "curve")
    both = one.curves.select("run_id").join(other.curves.select("run_id"), on="run_id")
    assert both.height
    first, second = (both.join(result.curves, on="run_id").select(columns).sort("run_id") for result in (one, other))
    assert first.equals(second)
    actors = {policy.run.run_id: policy.state.actor for policy in other.policies}
    for policy in one.policies:
        if policy.run.run_id in actors:
            pairs = zip(jax.tree.leaves(policy.state.actor), jax.tree.leaves(actors[policy.run.run_id]), strict=True)
            assert all(np.array_equal(weights, others, equal_nan=True) for weights, others in pairs)


def test_one_worker_and_two_give_the_same_bits(one_worker: TrainResult, two_workers: TrainResult) -> None:
    assert one_worker.curves.height == 4
    assert_same_bits(one_worker, two_workers)


def test_a_run_alone_gives_the_same_bits(alone: TrainResult, one_worker: TrainResult) -> None:
    assert alone.curves["episodes"].to_list() == [8]
    assert_same_bits(alone, one_worker)


def test_seeds_differ(one_worker: TrainResult) -> None:
    first, second = one_worker.curves["curve"].to_list()[:2]
    assert first != second


def test_a_diverged_run_is_a_result(one_worker: TrainResult) -> None:
    assert one_worker.curves["status"].to_list() == ["done", "done", "diverged", "diverged"]
    assert one_worker.curves["diverged_at"].to_list()[:2] == [None, None]
    diverged = one_worker.curves[2:]
    # The first update, at step 3, makes the weights huge; with them the second overflows.
    assert diverged["diverged_at"].to_list() == [4, 4]
    assert diverged["average_return", "final_return", "best_return"].null_count().row(0) == (2, 2, 2)
    assert diverged["curve"].to_list() == 2 * [100 * [None]]


def test_what_is_written_and_printed_of_diverged_runs(
    one_worker: TrainResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Seed 1 of the healthy setting and seed 0 of the other, as if they were of one.
    curves = one_worker.curves[[1, 2]]
    summary = write_result(
        TrainResult(curves, [one_worker.policies[1], one_worker.policies[2]], one_worker.config, None), tmp_path
    )
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert summary["diverged"] == [0]
    average = curves["average_return"][0]
    assert summary["average_return"] == {"mean": average, "seeds": {"1": average, "0": None}}
    print_summary(Console(width=200), [summary])
    assert (
        "diverged to NaN or infinity, and left out of the means: seed 0 of greedy-ac on Pendulum-CA"
        in capsys.readouterr().out
    )


def test_values_beside_a_preset_override_it() -> None:
    [run] = plan(preset="paper", critic_step_size=0.5, hidden=(8,))
    assert run.config.hypers["critic_step_size"] == 0.5
    assert run.config.hypers["hidden"] == (8,)
    assert run.config.hypers["entropy_scale"] == 10.0
    swept = plan(preset="paper", sweep={"entropy_scale": [1.0, 2.0]})
    assert [run.config.hypers["entropy_scale"] for run in swept] == [1.0, 2.0]
    assert {run.config.hypers["critic_step_size"] for run in swept} == {1e-2}


@pytest.mark.parametrize(("seeds", "words"), [([3], "seed 3"), ([2, 0, 1, 7], "seeds 0-2,7")])
def test_seeds_are_named_together(seeds: list[int], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    unknown: dict[str, Any] = {
        key: {"mean": None, "seeds": {}} for key in ("average_return", "final_return", "best_return")
    }
    about: dict[str, Any] = {
        "agent": "sac",
        "env": "Pendulum-CA",
        "seeds": seeds,
        "run_steps_per_second": None,
        "failed": {},
        "steps": 10,
    }
    print_summary(Console(width=200), [{**unknown, **about, "diverged": seeds, "restarted": seeds}])
    said = capsys.readouterr().out
    assert f"left out of the means: {words} of sac on Pendulum-CA\n" in said
    assert f"could not be brought back: {words}\n" in said


LIMIT = "a time limit (max_episode_steps or gymnasium.wrappers.TimeLimit)"
OWN_LIMIT = "a shorter time limit (its option time_limit)"


@pytest.mark.parametrize(
    ("env", "returns", "lines"),
    [
        ("CartPole-v1", [(1.0, 2.0)], []),
        ("CartPole-v1", [], []),
        (
            "CartPole-v1",
            [(None, None)],
            [f"within 10 steps, so there are no returns; train for longer, or give the environment {LIMIT}"],
        ),
        (
            "Pendulum-CA",
            [(None, None), (1.0, None), (1.0, 2.0)],
            [
                f"within 10 steps in 1 of 3 runs, so there are no returns; train for longer, or give the environment "
                f"{OWN_LIMIT}",
                f"in the last tenth of 10 steps in 1 of 3 runs, so there is no final return; train for longer, or give "
                f"the environment {OWN_LIMIT}",
            ],
        ),
    ],
)
def test_why_there_are_no_returns(env: str, returns: list[tuple[float | None, float | None]], lines: list[str]) -> None:
    assert missing_returns(env, 10, returns) == [f"no episode ended {line}" for line in lines]


def test_the_command_says_why_there_are_no_returns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "random", "Pendulum-CA", "--steps", "30", "--seeds", "0-1", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    [line] = [line for line in lines if "no episode" in line]
    assert line.startswith("random on Pendulum-CA: no episode ended within 30 steps, so there are no returns; ")


def test_runs_that_diverged_or_failed_need_no_other_reason(capsys: pytest.CaptureFixture[str]) -> None:
    ended = {"mean": 1.0, "seeds": {"0": None, "1": None, "2": 1.0}}
    summary = dict.fromkeys(("average_return", "final_return", "best_return"), ended)
    about = {"agent": "sac", "env": "Pendulum-CA", "steps": 10, "seeds": [0, 1, 2], "run_steps_per_second": None}
    print_summary(Console(width=200), [{**summary, **about, "diverged": [0], "failed": {"1": "it"}, "restarted": []}])
    assert "no episode" not in capsys.readouterr().out


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import greedyac\n"
        "result = greedyac.train('random', 'Pendulum-CA', seeds='0,1', steps=1000, workers=2)\n"
        "print(result.curves['seed'].to_list(), result.curves['episodes'].to_list())\n"
        "print(result.policies[1].predict([0.0, 0.0]).action.shape)\n"
    )
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout == "[0, 1] [1, 1]\n(1,)\n"
    assert (ran.returncode, ran.stderr) == (0, "")
    assert names(tmp_path) == ["script.py"]
