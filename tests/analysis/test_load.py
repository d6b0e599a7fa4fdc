"""What `load` makes of a store or of what `train` wrote: every run once, with its numbers or why it has none."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers.synthetic import Told, fill, grid_study, row_of
from polars.testing import assert_frame_equal

from greedyac.analysis.load import (
    curves_of,
    evaluated,
    is_number,
    kind_of,
    load,
    offline_curves,
    online_curves,
    settings_of,
    variants,
    with_values,
)
from greedyac.core.errors import InputError
from greedyac.execution.rows import missing_row
from greedyac.results.files import publish_rows
from greedyac.results.schema import BINS, SCHEMA
from greedyac.study.spec import Study, parse_study
from greedyac.study.store import Store
from greedyac.training.config import Run

STEP_SIZES = "critic_step_size = [1e-3, 1e-2]"
STUDY = grid_study(("sac",), ("Pendulum-CA",), "0-3", "0-1", sweep=STEP_SIZES)
TWO_ENVS = grid_study(("sac",), ("Pendulum-CA", "Acrobot-CA"), "0-3", sweep="critic_step_size = [1e-3]")


def by_seed(run: Run) -> Told:
    return Told(float(run.seed))


def blank_row(run: Run) -> dict[str, Any]:
    """The row of a run that is done and finished no episode."""
    nothing = {"average_return": None, "final_return": None, "best_return": None, "episodes": 0}
    return {**row_of(run, Told(0.0)), **nothing, "curve": [None] * BINS}


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, SCHEMA)


def statuses(runs: pl.DataFrame) -> dict[str, str]:
    return dict(runs.select("run_id", "status").rows())


def write_train(folder: Path, runs: list[Run], told: Callable[[Run], Told] = by_seed) -> Path:
    """A folder as `greedyac train` leaves it."""
    folder.mkdir(parents=True)
    frame([row_of(run, told(run)) for run in runs]).write_parquet(folder / "curves.parquet")
    return folder


def test_every_asked_run_is_there_once_with_what_became_of_it(tmp_path: Path) -> None:
    runs = list(STUDY.runs().values())
    assert len(runs) == 8
    store = fill(tmp_path, STUDY, lambda run: {0: Told(1.0), 1: Told(None)}.get(runs.index(run)))
    publish_rows(store.chunks, frame([blank_row(runs[2])]))
    store.record_failure(runs[3:5], "signal 9", 3)
    results = load(tmp_path)
    wanted = ["done", "diverged", "blank", "failed", "failed", "missing", "missing", "missing"]
    assert statuses(results.runs) == dict(zip(STUDY.runs(), wanted, strict=True))
    assert results.runs.height == 8
    assert results.faults == ()
    for run, row in ((run, results.runs.row(by_predicate=pl.col("run_id") == run.run_id, named=True)) for run in runs):
        assert (row["env"], row["seed"], row["steps"]) == ("Pendulum-CA", run.seed, 100_000)
        assert (row["setting_id"], row["agent"]) == (run.config.setting_id, "sac")
        assert json.loads(row["hypers"])["critic_step_size"] == run.config.hypers["critic_step_size"]
        assert (row["kind"], row["tuning"]) == ("continuous", run.seed < 2)
    values = with_values(results.runs)
    assert values.filter(pl.col("value").is_not_null())["status"].sort().to_list() == ["diverged", "done"]


def test_a_store_may_grow(tmp_path: Path) -> None:
    for held in range(1, 5):
        fill(tmp_path, STUDY, lambda run, held=held: by_seed(run) if run.seed < held else None)  # type: ignore[misc]
        runs = load(tmp_path).runs
        assert runs["status"].value_counts().sort("status").rows() == [
            ("done", 2 * held),
            *([("missing", 8 - 2 * held)] if held < 4 else []),
        ]
        assert runs["run_id"].n_unique() == runs.height == 8


def test_a_failed_run_that_was_done_later_is_done(tmp_path: Path) -> None:
    store = fill(tmp_path, STUDY, by_seed)
    store.record_failure(list(STUDY.runs().values())[:2], "signal 9", 3)
    assert set(load(tmp_path).runs["status"]) == {"done"}


def test_runs_that_no_study_asked_for_are_there_too(tmp_path: Path) -> None:
    store = fill(tmp_path, STUDY, by_seed)
    publish_rows(store.chunks, frame([row_of(Run(STUDY.configs[0], 77), Told(1.0))]))
    results = load(tmp_path)
    assert results.runs.height == 9
    assert results.runs.filter(seed=77)["tuning"].to_list() == [False]
    assert load(tmp_path, study="planted").runs.height == 8


def test_the_tuning_seeds_are_those_of_all_studies(tmp_path: Path) -> None:
    fill(tmp_path, STUDY, by_seed)
    fill(tmp_path, grid_study(("sac",), ("Pendulum-CA",), "3-5", "3,4", "more", sweep=STEP_SIZES), by_seed)
    results = load(tmp_path)
    assert results.tuning_seeds == {0, 1, 3, 4}
    assert sorted(results.studies) == ["more", "planted"]
    assert set(results.runs.filter("tuning")["seed"]) == {0, 1, 3, 4}
    assert_frame_equal(results.tuning(), results.runs.filter(pl.col("seed").is_in([0, 1, 3, 4])))
    assert results.runs.height == 2 * 6


def test_without_tuning_seeds_every_run_may_be_seen(tmp_path: Path) -> None:
    fill(tmp_path, TWO_ENVS, by_seed)
    results = load(tmp_path)
    assert results.tuning_seeds == frozenset()
    assert not results.runs["tuning"].any()
    assert_frame_equal(results.tuning(), results.runs)


def test_a_diverged_run_counts_as_the_lowest_run_on_its_environment(tmp_path: Path) -> None:
    told = {
        ("Pendulum-CA", 0): 5.0,
        ("Pendulum-CA", 1): -7.0,
        ("Pendulum-CA", 2): None,
        ("Pendulum-CA", 3): 2.0,
        ("Acrobot-CA", 0): None,
        ("Acrobot-CA", 1): -90.0,
        ("Acrobot-CA", 2): -80.0,
        ("Acrobot-CA", 3): None,
    }
    fill(tmp_path, TWO_ENVS, lambda run: Told(told[run.config.env, run.seed]))
    found = with_values(load(tmp_path).runs)
    values = {(env, seed): value for env, seed, value in found.select("env", "seed", "value").iter_rows()}
    diverged = {("Pendulum-CA", 2): -7.0, ("Acrobot-CA", 0): -90.0, ("Acrobot-CA", 3): -90.0}
    assert values == told | diverged


def test_where_all_runs_diverged_there_is_no_value(tmp_path: Path) -> None:
    fill(tmp_path, TWO_ENVS, lambda run: Told(None if run.config.env == "Acrobot-CA" else 1.0))
    found = with_values(load(tmp_path).runs)
    assert found.filter(env="Acrobot-CA")["value"].to_list() == [None] * 4
    assert found.filter(env="Pendulum-CA")["value"].to_list() == [1.0] * 4


def test_curves_carry_the_last_bin_forward_and_those_of_diverged_runs_are_flat(tmp_path: Path) -> None:
    study = grid_study(("sac",), ("Pendulum-CA",), "0-2", sweep="critic_step_size = [1e-3]")
    gaps: list[float | None] = [1.0, None, None, 4.0, None, 6.0, *[None] * (BINS - 6)]
    late: list[float | None] = [None, None, 3.0, *[5.0] * (BINS - 3)]
    told = {0: Told(-2.0, curve=gaps), 1: Told(3.0, curve=late), 2: Told(None)}
    fill(tmp_path, study, lambda run: told[run.seed])
    curves = curves_of(with_values(load(tmp_path).runs))
    assert curves.shape == (3, BINS)
    assert curves.dtype == np.float64
    assert curves[0].tolist() == [1.0, 1.0, 1.0, 4.0, 4.0, *[6.0] * (BINS - 5)]
    assert np.isnan(curves[1, :2]).all()
    assert curves[1, 2:].tolist() == [3.0, *[5.0] * (BINS - 3)]
    assert curves[2].tolist() == [-2.0] * BINS


def evaluations(status: str, every: int | None, told: list[float | None] | None, env: str = "Pendulum-CA") -> Any:
    """The row of a run of 12 steps with these evaluations."""
    known = {"env": env, "steps": 12, "status": status, "eval_steps": every, "eval_curve": told}
    known |= {"curve": [1.0] * BINS, "curve_steps": 0.12, "average_return": 1.0 if status == "done" else None}
    return {name: known.get(name) for name in SCHEMA}


def test_evaluations_carry_the_last_forward_to_every_step_at_which_a_run_has_one() -> None:
    rows = [
        evaluations("done", 3, [1.0, None, 3.0, float("nan")]),
        evaluations("done", 4, [10.0, 20.0, 30.0]),
        evaluations("done", 6, [-8.0, -9.0]),
        evaluations("diverged", 3, [-50.0, 5.0, None, None]),
        evaluations("done", None, None),
        evaluations("done", 3, [None] * 4),
        evaluations("failed", None, None),
        evaluations("done", 6, [-70.0, -70.0], "Acrobot-CA"),
    ]
    runs = with_values(frame(rows))
    assert runs["offline_value"].to_list() == [2.0, 20.0, -8.5, -8.5, None, None, None, -70.0]
    steps, values, diverged = offline_curves(runs.filter(env="Pendulum-CA"))
    # Of 3, 4, 6, 8, 9, 12: at 3 and 4 the third run has none yet.
    assert steps.tolist() == [6, 8, 9, 12]
    assert values.tolist() == [[1, 1, 3, 3], [10, 20, 20, 30], [-8, -8, -8, -9], [-8.5] * 4]
    assert diverged == 1
    assert evaluated(runs)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [evaluations("done", None, None), evaluations("failed", None, None)],
        [evaluations("diverged", 3, [1.0, None, None, None])],
        [evaluations("done", 3, [None] * 4)],
    ],
)
def test_where_nothing_was_evaluated_there_is_no_offline_curve(rows: list[dict[str, Any]]) -> None:
    runs = with_values(frame(rows))
    assert not evaluated(runs)
    assert [part.shape for part in offline_curves(runs)[:2]] == [(0,), (0, 0)]


def test_online_curves_are_of_the_runs_that_have_a_value() -> None:
    rows = [evaluations("done", None, None), evaluations("diverged", None, None), evaluations("failed", None, None)]
    steps, values, diverged = online_curves(with_values(frame(rows)))
    np.testing.assert_allclose(steps, 0.12 * np.arange(1, BINS + 1))
    assert values.tolist() == [[1.0] * BINS] * 2
    assert diverged == 1
    assert [part.shape for part in online_curves(with_values(frame(rows[2:])))[:2]] == [(0,), (0, 0)]


def test_of_the_same_run_with_and_without_evaluations_the_one_with_most_is_taken_that_is_there(tmp_path: Path) -> None:
    plain = grid_study(("sac",), ("Pendulum-CA",), "0-9", sweep="critic_step_size = [1e-3]")
    fill(tmp_path, plain, by_seed)
    for every, seeds in ((50_000, range(6)), (25_000, range(3))):
        study = parse_study(f"eval_every = {every}\n{plain.text}")
        store = fill(tmp_path, study, lambda _: None)
        there = [run for run in study.runs().values() if run.seed in seeds]
        told = {"eval_steps": every, "eval_curve": [1.0] * (100_000 // every)}
        publish_rows(store.chunks, frame([{**row_of(run, by_seed(run)), **told} for run in there]))
    runs = load(tmp_path).runs
    assert runs["status"].to_list() == ["done"] * 10
    assert runs.sort("seed")["eval_steps"].to_list() == [25_000] * 3 + [50_000] * 3 + [None] * 4


def test_the_order_and_the_files_of_rows_do_not_matter(tmp_path: Path) -> None:
    sweep = STEP_SIZES + ', policy = ["squashed", "gaussian"]'
    study = grid_study(("sac", "greedy-ac"), ("Pendulum-CA", "Acrobot-CA"), "0-3", "0-1", sweep=STEP_SIZES)
    study_2 = grid_study(("sac",), ("Pendulum-CA",), "0-3", name="policies", sweep=sweep)
    runs = list((study.runs() | study_2.runs()).values())
    assert len(runs) == 40
    rows = [row_of(run, Told(None if number % 7 == 0 else float(number))) for number, run in enumerate(runs)]
    rows = rows[:30]  # ten are missing

    def load_from(name: str, *files: list[dict[str, Any]]) -> pl.DataFrame:
        store = Store.create(tmp_path / name)
        for one in (study, study_2):
            store.record_study(one)
        for part in files:
            publish_rows(store.chunks, frame(part))
        return load(tmp_path / name).runs

    shuffled = random.Random(1).sample(rows, len(rows))
    usual = load_from("usual", rows)
    assert usual.height == 40
    assert usual.filter(status="missing").height == 10
    assert_frame_equal(usual, load_from("shuffled", shuffled))
    assert_frame_equal(usual, load_from("split", *(shuffled[first : first + 4] for first in range(0, 30, 4))))
    assert_frame_equal(usual, load_from("twice", shuffled[:20], rows, shuffled[5:]))
    keys = usual.select("kind", "env", "agent", "setting_id", "seed").rows()
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: os.truncate(path, path.stat().st_size // 2), "is cut short"),
        (lambda path: path.rename(path.with_name("other.parquet")), "does not match its checksum"),
    ],
)
def test_a_damaged_file_is_told_and_the_others_are_read(
    tmp_path: Path, spoil: Callable[[Path], object], complaint: str
) -> None:
    store = fill(tmp_path, STUDY, by_seed, rows_per_file=3)
    first = sorted(store.chunks.iterdir())[0]
    lost = set(pl.read_parquet(first)["run_id"])
    spoil(first)
    results = load(tmp_path)
    [fault] = results.faults
    assert fault.startswith("chunks/other.parquet" if complaint.startswith("does") else f"chunks/{first.name}")
    assert complaint in fault
    assert {run_id for run_id, status in statuses(results.runs).items() if status == "missing"} == lost
    assert results.runs.height == 8


def test_a_damaged_study_is_told(tmp_path: Path) -> None:
    store = fill(tmp_path, STUDY, by_seed)
    (store.studies / "0123.toml").write_text("")
    results = load(tmp_path)
    assert results.faults == ("studies/0123.toml holds another text than its name says",)
    assert results.studies == ("planted",)


def test_one_study_of_several(tmp_path: Path) -> None:
    other = grid_study(("greedy-ac",), ("Acrobot-CA",), "0-1", "0", "other", sweep=STEP_SIZES)
    fill(tmp_path, STUDY, by_seed)
    fill(tmp_path, other, lambda run: by_seed(run) if run.seed == 0 else None)
    results = load(tmp_path, study="other")
    assert statuses(results.runs) == {run_id: "missing" if run.seed else "done" for run_id, run in other.runs().items()}
    assert (results.studies, results.tuning_seeds) == (("other",), frozenset({0}))
    assert statuses(load(tmp_path, study="planted").runs) == dict.fromkeys(STUDY.runs(), "done")
    assert load(tmp_path).runs.height == 12


def test_a_study_that_was_swept_with_more_seeds_is_one_study(tmp_path: Path) -> None:
    for seeds in ("0-3", "0-5"):
        fill(tmp_path, grid_study(("sac",), ("Pendulum-CA",), seeds, sweep=STEP_SIZES), by_seed)
    results = load(tmp_path, study="planted")
    assert results.studies == ("planted",)
    assert results.runs.height == 2 * 6


def test_an_unknown_study_is_told_with_the_nearest(tmp_path: Path) -> None:
    fill(tmp_path, STUDY, by_seed)
    fill(tmp_path, grid_study(("sac",), ("Acrobot-CA",), "0", name="second", sweep=STEP_SIZES), by_seed)
    with pytest.raises(InputError) as caught:
        load(tmp_path, study="plantd")
    said = str(caught.value)
    assert said.startswith("unknown study in this store 'plantd' (did you mean 'planted'?); allowed: ")
    assert sorted(said.partition("allowed: ")[2].split(", ")) == ["planted", "second"]


def test_runs_of_different_length_on_one_environment_are_refused_unless_one_length_is_asked_for(tmp_path: Path) -> None:
    short = grid_study(("sac",), ("Pendulum-CA",), "0-1", name="short", steps=5000, sweep=STEP_SIZES)
    fill(tmp_path, STUDY, by_seed)
    fill(tmp_path, short, by_seed)
    complaint = (
        r"^the runs on Pendulum-CA differ in length \(5,000, 100,000 steps\); allowed: one, as with --steps 100000"
    )
    with pytest.raises(InputError, match=complaint):
        load(tmp_path)
    assert set(load(tmp_path, steps=5000).runs["run_id"]) == set(short.runs())
    assert set(load(tmp_path, steps=100_000).runs["run_id"]) == set(STUDY.runs())
    assert set(load(tmp_path, study="short").runs["run_id"]) == set(short.runs())
    with pytest.raises(InputError, match=r"^steps = 7 is not allowed; allowed: 5000, 100000, as the runs have$"):
        load(tmp_path, steps=7)
    with pytest.raises(InputError, match=r"^steps = 5000 is not allowed; allowed: 100000, as the runs have$"):
        load(tmp_path, study="planted", steps=5000)


def test_runs_that_are_only_asked_for_have_a_length_too(tmp_path: Path) -> None:
    fill(tmp_path, STUDY, by_seed)
    fill(
        tmp_path, grid_study(("sac",), ("Pendulum-CA",), "0", name="short", steps=50, sweep=STEP_SIZES), lambda _: None
    )
    with pytest.raises(InputError, match=r"differ in length \(50, 100,000 steps\)"):
        load(tmp_path)


def test_the_length_may_differ_between_environments(tmp_path: Path) -> None:
    fill(tmp_path, STUDY, by_seed)
    fill(tmp_path, grid_study(("sac",), ("Acrobot-CA",), "0", name="short", steps=50, sweep=STEP_SIZES), by_seed)
    assert load(tmp_path).runs.height == 10
    assert load(tmp_path, steps=50).runs.height == 2


def test_nothing_to_load_is_told(tmp_path: Path) -> None:
    empty, missing, failed = (Store.create(tmp_path / name) for name in ("empty", "missing", "failed"))
    with pytest.raises(InputError, match=rf"^there is no finished run in '{empty.folder}' \(0 failed, 0 missing\)$"):
        load(empty.folder)
    missing.record_study(STUDY)
    with pytest.raises(InputError, match=r"\(0 failed, 8 missing\)$"):
        load(str(missing.folder))
    failed.record_study(STUDY)
    failed.record_failure(list(STUDY.runs().values())[:3], "signal 9", 3)
    (failed.chunks / "notes").write_text("mine")
    with pytest.raises(InputError, match=r"\(3 failed, 5 missing\); chunks/notes is no Parquet file$"):
        load(failed.folder)


@pytest.mark.parametrize("name", ["nowhere", "notes.txt", 300 * "x", "folder"])
def test_a_folder_without_results_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        InputError, match=r"^there are no results at '.*; allowed: a folder that `greedyac sweep` filled, or "
    ):
        load(tmp_path / name)


def test_what_train_wrote_and_a_folder_of_that(tmp_path: Path) -> None:
    runs = list(STUDY.runs().values())
    write_train(tmp_path / "some", runs[:3])
    write_train(tmp_path / "others", runs[2:5])
    one = load(tmp_path / "some")
    assert statuses(one.runs) == dict.fromkeys(list(STUDY.runs())[:3], "done")
    assert (one.studies, one.tuning_seeds, one.faults) == ((), frozenset(), ())
    assert statuses(load(tmp_path).runs) == dict.fromkeys(list(STUDY.runs())[:5], "done")
    assert load(tmp_path).runs.height == 5
    assert_frame_equal(load(tmp_path).tuning(), load(tmp_path).runs)
    with pytest.raises(InputError, match=r"^unknown study in this store 'planted'; allowed: none$"):
        load(tmp_path, study="planted")


def test_train_and_sweep_give_the_same_runs(tmp_path: Path) -> None:
    fill(tmp_path / "store", grid_study(("sac",), ("Pendulum-CA",), "0-3", sweep=STEP_SIZES), by_seed)
    write_train(tmp_path / "train", list(STUDY.runs().values()))
    assert_frame_equal(load(tmp_path / "store").runs, load(tmp_path / "train").runs)


@pytest.mark.parametrize("kind", ["text", "empty", "cut", "other columns", "other types"])
def test_a_damaged_file_of_train_is_told_and_the_others_are_read(tmp_path: Path, kind: str) -> None:
    runs = list(STUDY.runs().values())
    write_train(tmp_path / "good", runs[:3])
    path = write_train(tmp_path / "bad", runs[3:]) / "curves.parquet"
    if kind == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif kind == "other columns":
        pl.DataFrame({"seed": [1]}).write_parquet(path)
    elif kind == "other types":
        pl.read_parquet(path).with_columns(steps=pl.lit("many")).write_parquet(path)
    else:
        path.write_text("seed,return\n" if kind == "text" else "")
    results = load(tmp_path)
    [fault] = results.faults
    assert fault.startswith("bad/curves.parquet can't be read (")
    assert "\n" not in fault
    assert set(results.runs["run_id"]) == {run.run_id for run in runs[:3]}
    with pytest.raises(InputError, match=r"there is no finished run in .*; bad/curves.parquet can't be read \("):
        load(tmp_path / "bad")


@pytest.mark.parametrize("name", ["seeds[1]", "step?"])
def test_a_folder_of_train_may_have_any_name(tmp_path: Path, name: str) -> None:
    runs = list(STUDY.runs().values())
    write_train(tmp_path / "steps", runs[4:])
    write_train(tmp_path / name, runs[:4])
    assert set(load(tmp_path / name).runs["run_id"]) == {run.run_id for run in runs[:4]}


def test_what_train_is_writing_is_not_read_yet(tmp_path: Path) -> None:
    runs = list(STUDY.runs().values())
    write_train(tmp_path / "done", runs[:4])
    write_train(tmp_path / ".writing-abc", runs[4:])
    assert set(load(tmp_path).runs["run_id"]) == {run.run_id for run in runs[:4]}


def cells(*told: tuple[str, str, str]) -> Study:
    """A study with one cell for each agent, environment and rest of the cell."""
    text = 'name = "cells"\nsteps = 1000\nseeds = "0"\n'
    for agent, env, rest in told:
        text += f'[[cells]]\nagents = ["{agent}"]\nenvs = ["{env}"]\n{rest}\n'
    return parse_study(text)


def labels(study: Study) -> dict[tuple[str, object, object], str]:
    """Environment, policy and critic's step size → label."""
    runs = study.runs().values()
    found = variants(frame([missing_row(run) for run in runs]))
    assert set(found) == {run.config.setting_id for run in runs}
    cases = [run.config for run in runs]
    return {
        (case.env, case.hypers.get("policy"), case.hypers["critic_step_size"]): found[case.setting_id] for case in cases
    }


def test_options_that_are_no_numbers_and_vary_make_variants() -> None:
    sweep = 'sweep = { critic_step_size = [1e-3, 1e-2], policy = ["squashed", "gaussian"] }'
    assert labels(cells(("sac", "Pendulum-CA", sweep))) == {
        ("Pendulum-CA", "squashed", 0.001): "sac",
        ("Pendulum-CA", "squashed", 0.01): "sac",
        ("Pendulum-CA", "gaussian", 0.001): "sac[policy=gaussian]",
        ("Pendulum-CA", "gaussian", 0.01): "sac[policy=gaussian]",
    }


def test_options_that_differ_only_between_environments_do_not() -> None:
    gaussian = 'fixed = { policy = "gaussian", critic_step_size = 1e-3 }'
    squashed = 'fixed = { policy = "squashed", critic_step_size = 1e-3 }'
    apart = cells(("sac", "Pendulum-CA", gaussian), ("sac", "Acrobot-CA", squashed))
    assert set(labels(apart).values()) == {"sac"}
    together = cells(("sac", "Pendulum-CA", gaussian), ("sac", "Acrobot-CA", squashed), ("sac", "Acrobot-CA", gaussian))
    assert labels(together) == {
        ("Pendulum-CA", "gaussian", 0.001): "sac[policy=gaussian]",
        ("Acrobot-CA", "squashed", 0.001): "sac",
        ("Acrobot-CA", "gaussian", 0.001): "sac[policy=gaussian]",
    }


def test_flags_and_layers_are_options_and_several_stand_in_order() -> None:
    sweep = "sweep = { hidden = [[64, 64], [8]], automatic_entropy = [true, false], batch_size = [32, 16] }"
    study = cells(("sac", "Pendulum-CA", sweep))
    found = variants(frame([missing_row(run) for run in study.runs().values()]))
    assert len(found) == 8
    assert sorted(set(found.values())) == [
        "sac",
        "sac[automatic_entropy=true,hidden=8]",
        "sac[automatic_entropy=true]",
        "sac[hidden=8]",
    ]


def test_an_option_that_differs_between_agents_does_not_vary() -> None:
    study = cells(
        ("sac", "Pendulum-CA", "fixed = { hidden = [8] }"), ("greedy-ac", "Pendulum-CA", "fixed = { hidden = [4] }")
    )
    assert sorted(variants(frame([missing_row(run) for run in study.runs().values()])).values()) == ["greedy-ac", "sac"]


def test_agents_that_are_not_known_here_are_named_with_all_that_varies() -> None:
    study = cells(("sac", "Pendulum-CA", 'sweep = { policy = ["squashed", "gaussian"] }'))
    rows = [{**missing_row(run), "agent": "mine"} for run in study.runs().values()]
    assert sorted(variants(frame(rows)).values()) == ["mine[policy=gaussian]", "mine[policy=squashed]"]


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ("Pendulum-CA", "continuous"),
        ("MountainCar-DA", "discrete"),
        ("Acrobot-CA[start=zero]", "continuous"),
        ("Acrobot-DA[start=zero,time_limit=200]", "discrete"),
    ],
)
def test_kinds_of_environments(env: str, kind: str) -> None:
    assert kind_of(env) == kind


def test_environments_with_options_are_environments_of_their_own(tmp_path: Path) -> None:
    zero = 'env_options = { start = "zero" }'
    fill(tmp_path, cells(("sac", "Acrobot-DA", ""), ("sac", "Acrobot-DA", zero)), by_seed)
    runs = load(tmp_path).runs
    assert runs.select("env", "kind").rows() == [("Acrobot-DA", "discrete"), ("Acrobot-DA[start=zero]", "discrete")]


def test_settings_have_their_hyperparameters() -> None:
    runs = list(STUDY.runs().values())
    found = settings_of(frame([missing_row(run) for run in runs]))
    assert list(found) == sorted({run.config.setting_id for run in runs})
    assert {setting: hypers["critic_step_size"] for setting, hypers in found.items()} == {
        case.setting_id: case.hypers["critic_step_size"] for case in STUDY.configs
    }


@pytest.mark.parametrize(
    ("value", "answer"), [(1, True), (0.5, True), (True, False), ("1", False), ([8], False), (None, False)]
)
def test_what_has_a_place_on_an_axis(value: object, answer: bool) -> None:
    assert is_number(value) is answer
