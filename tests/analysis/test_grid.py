"""Grids: which settings and seeds are in them, in what order, and what is left out."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from helpers.synthetic import Told, fill, grid_study

from greedyac.analysis.grid import Grid, axes_of, make_grids, same_settings
from greedyac.analysis.load import load, with_values
from greedyac.study.spec import Study
from greedyac.training.config import Run

SWEEP = "entropy_scale = [10.0, 0.1], critic_step_size = [1e-2, 1e-4, 1e-3]"
ENTROPY, CRITIC = (0.1, 10.0), (1e-4, 1e-3, 1e-2)


def study_of(
    sweep: str = "critic_step_size = [1e-4, 1e-3, 1e-2]",
    seeds: str = "0-2",
    name: str = "planted",
    agents: tuple[str, ...] = ("sac",),
    envs: tuple[str, ...] = ("Pendulum-CA",),
) -> Study:
    return grid_study(agents, envs, seeds, name=name, sweep=sweep)


def coded(run: Run) -> Told:
    """Tens: the place of the critic's step size; ones: that of the entropy scale, if it is swept; tenths: the seed."""
    entropy = ENTROPY.index(run.config.hypers["entropy_scale"]) if run.config.hypers["entropy_scale"] in ENTROPY else 0
    return Told(10.0 * CRITIC.index(run.config.hypers["critic_step_size"]) + entropy + run.seed / 10)


def grids_of(folder: Path) -> list[Grid]:
    return make_grids(with_values(load(folder).runs))


def critics(grid: Grid) -> list[float]:
    return [hypers["critic_step_size"] for hypers in grid.hypers]


def setting_id(study: Study, critic: float) -> str:
    [found] = {case.setting_id for case in study.configs if case.hypers["critic_step_size"] == critic}
    return found


def test_a_grid_lies_along_its_axes(tmp_path: Path) -> None:
    study = study_of(SWEEP)
    fill(tmp_path, study, coded)
    [grid] = grids_of(tmp_path)
    assert (grid.agent, grid.env, grid.seeds, grid.left_out) == ("sac", "Pendulum-CA", (0, 1, 2), 0)
    assert grid.axes == {"critic_step_size": CRITIC, "entropy_scale": ENTROPY}
    assert list(grid.axes) == ["critic_step_size", "entropy_scale"]
    assert grid.places.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    for setting, hypers, (critic, entropy) in zip(grid.settings, grid.hypers, grid.places.tolist(), strict=True):
        [case] = [case for case in study.configs if case.setting_id == setting]
        assert case.hypers["critic_step_size"] == hypers["critic_step_size"] == CRITIC[critic]
        assert case.hypers["entropy_scale"] == hypers["entropy_scale"] == ENTROPY[entropy]
        assert hypers["batch_size"] == 32
    tens = np.array([0, 1, 10, 11, 20, 21])
    np.testing.assert_array_equal(grid.values, tens[:, None] + np.array([0, 0.1, 0.2]))
    np.testing.assert_allclose(grid.means, tens + 0.1)
    assert not grid.diverged.any()
    assert grid.full
    assert grid.tensor(tens * 1.0).tolist() == [[0, 1], [10, 11], [20, 21]]
    assert grid.describe(1) == "critic_step_size=0.0001, entropy_scale=10"


def test_the_papers_axes_come_first_in_its_order_and_then_the_others_by_name() -> None:
    others = ["batch_size", "elite_fraction", "polyak", "proposal_samples", "replay_capacity", "zeta"]
    papers = ["critic_step_size", "actor_step_size_scale", "entropy_scale", "entropy_step_size"]
    names = [*others[::-1], *papers[::-1]]
    low, high = (dict.fromkeys(names, value) | {"policy": "squashed", "discount": 0.9} for value in (1, 2))
    axes = axes_of([high, low, high])
    assert list(axes) == papers + others
    assert set(axes.values()) == {(1, 2)}
    assert axes_of([]) == axes_of([low]) == {}


def test_a_setting_by_itself_has_no_axes(tmp_path: Path) -> None:
    fill(tmp_path, study_of("critic_step_size = [1e-3]"), coded)
    [grid] = grids_of(tmp_path)
    assert grid.axes == {}
    assert grid.places.shape == (1, 0)
    assert grid.full
    assert grid.describe(0) == "the only setting"


def test_the_tensor_of_a_setting_by_itself_is_its_number(tmp_path: Path) -> None:
    fill(tmp_path, study_of("critic_step_size = [1e-3]"), coded)
    [grid] = grids_of(tmp_path)
    assert grid.full
    assert float(grid.tensor(np.array([7.0]))) == 7.0


def test_a_grid_with_a_hole_is_not_full(tmp_path: Path) -> None:
    hole = (1e-4, 0.1)
    study = study_of(SWEEP)
    fill(
        tmp_path,
        study,
        lambda run: (
            None if (run.config.hypers["critic_step_size"], run.config.hypers["entropy_scale"]) == hole else coded(run)
        ),
    )
    [grid] = grids_of(tmp_path)
    assert (len(grid.settings), grid.left_out, grid.full) == (5, 1, False)
    assert grid.axes == {"critic_step_size": CRITIC, "entropy_scale": ENTROPY}


@pytest.mark.parametrize(("values", "full"), [((1e-3, 1e-2), True), ((1e-3, 1e-3), False), ((1e-3, 1e-2, 1e-2), False)])
def test_a_full_grid_has_one_setting_at_each_place(values: tuple[float, ...], full: bool) -> None:
    """Made by hand: an option that is no number may differ between two settings at one place."""
    hypers = tuple({"critic_step_size": value} for value in values)
    shape = (len(values), 1)
    axes: dict[str, tuple[float, ...]] = {"critic_step_size": (1e-3, 1e-2)}
    names = tuple("abc"[: len(values)])
    assert Grid("sac", "Pendulum-CA", axes, names, hypers, (0,), np.zeros(shape), np.zeros(shape, bool), 0).full is full


def test_there_is_a_grid_for_each_agent_on_each_environment(tmp_path: Path) -> None:
    envs = ("Pendulum-DA", "Pendulum-CA", "Acrobot-DA")
    fill(tmp_path, study_of(agents=("sac", "greedy-ac"), envs=envs), coded)
    grids = grids_of(tmp_path)
    assert [(grid.env, grid.agent) for grid in grids] == [
        ("Pendulum-CA", "greedy-ac"),
        ("Pendulum-CA", "sac"),
        ("Acrobot-DA", "greedy-ac"),
        ("Acrobot-DA", "sac"),
        ("Pendulum-DA", "greedy-ac"),
        ("Pendulum-DA", "sac"),
    ]
    assert {grid.values.shape for grid in grids} == {(3, 3)}


@pytest.mark.parametrize("fate", ["missing", "failed", "blank"])
def test_a_setting_without_all_of_its_runs_is_left_out_and_counted(tmp_path: Path, fate: str) -> None:
    study = study_of()
    lost = Run(study.configs[1], 2)
    store = fill(tmp_path, study, lambda run: None if run == lost else coded(run))
    if fate == "failed":
        store.record_failure([lost], "signal 9", 3)
    runs = load(tmp_path).runs
    if fate == "blank":
        blank = pl.when(pl.col("run_id") == lost.run_id).then(pl.lit("blank")).otherwise(pl.col("status"))
        runs = runs.with_columns(status=blank)
    assert runs.filter(run_id=lost.run_id)["status"].to_list() == [fate]
    [grid] = make_grids(with_values(runs))
    assert critics(grid) == [1e-4, 1e-2]
    assert grid.axes == {"critic_step_size": (1e-4, 1e-2)}
    assert (grid.seeds, grid.left_out) == ((0, 1, 2), 1)
    np.testing.assert_array_equal(grid.values, [[0, 0.1, 0.2], [20, 20.1, 20.2]])


def test_diverged_runs_are_in_the_grid_and_marked(tmp_path: Path) -> None:
    fill(tmp_path, study_of(), lambda run: Told(None) if coded(run).value == 10.1 else coded(run))
    [grid] = grids_of(tmp_path)
    assert grid.left_out == 0
    assert grid.values[1].tolist() == [10.0, 0.0, 10.2]
    assert grid.diverged.tolist() == [[False] * 3, [False, True, False], [False] * 3]


def test_nothing_complete_is_a_grid_of_nothing(tmp_path: Path) -> None:
    fill(tmp_path, study_of(), lambda run: coded(run) if run.seed else None)
    [grid] = grids_of(tmp_path)
    assert (grid.settings, grid.axes, grid.left_out, grid.seeds) == ((), {}, 3, (0, 1, 2))
    assert grid.values.shape == grid.diverged.shape == (0, 3)


def test_a_setting_with_fresh_seeds_stays_with_the_usual_ones(tmp_path: Path) -> None:
    fill(tmp_path, study_of(), coded)
    fill(tmp_path, study_of("critic_step_size = [1e-3]", "10-14", "fresh"), coded)
    [grid] = grids_of(tmp_path)
    assert (critics(grid), grid.seeds, grid.left_out) == ([*CRITIC], (0, 1, 2), 0)
    assert grid.values[1].tolist() == [10.0, 10.1, 10.2]


def test_a_setting_with_other_seeds_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, study_of("critic_step_size = [1e-4, 1e-2]"), coded)
    fill(tmp_path, study_of("critic_step_size = [1e-3]", "10-14", "other"), coded)
    [grid] = grids_of(tmp_path)
    assert (critics(grid), grid.seeds, grid.left_out) == ([1e-4, 1e-2], (0, 1, 2), 1)


def test_of_two_usual_sets_of_seeds_the_larger_counts(tmp_path: Path) -> None:
    fill(tmp_path, study_of("critic_step_size = [1e-2]", "4-5"), coded)
    fill(tmp_path, study_of("critic_step_size = [1e-3]", "0-3", "larger"), coded)
    [grid] = grids_of(tmp_path)
    assert (critics(grid), grid.seeds, grid.left_out) == ([1e-3], (0, 1, 2, 3), 1)


def test_seeds_that_are_missing_everywhere_still_count_as_asked_for(tmp_path: Path) -> None:
    fill(tmp_path, study_of(), lambda run: coded(run) if run.seed < 2 else None)
    [grid] = grids_of(tmp_path)
    assert (grid.seeds, grid.left_out) == ((0, 1, 2), 3)


def test_each_agent_and_environment_has_its_own_usual_seeds(tmp_path: Path) -> None:
    fill(tmp_path, study_of(envs=("Pendulum-CA",)), coded)
    fill(tmp_path, study_of(envs=("Acrobot-CA",), seeds="5-6", name="other"), coded)
    assert {grid.env: grid.seeds for grid in grids_of(tmp_path)} == {"Pendulum-CA": (0, 1, 2), "Acrobot-CA": (5, 6)}


def test_some_settings_of_a_grid_in_the_order_they_are_named(tmp_path: Path) -> None:
    study = study_of(SWEEP)
    fill(tmp_path, study, lambda run: Told(None) if coded(run).value == 21.0 else coded(run))
    [grid] = grids_of(tmp_path)
    chosen = [grid.settings[5], grid.settings[1]]
    part = grid.only(chosen)
    assert part.settings == tuple(chosen)
    assert part.hypers == (grid.hypers[5], grid.hypers[1])
    assert part.axes == {"critic_step_size": (1e-4, 1e-2)}  # both have an entropy scale of 10
    assert part.places.tolist() == [[1], [0]]
    assert part.values.tolist() == [[0.0, 21.1, 21.2], [1.0, 1.1, 1.2]]
    assert part.diverged.tolist() == [[True, False, False], [False] * 3]
    assert part.full
    assert part.tensor(np.array([21.0, 1.0])).tolist() == [1.0, 21.0]
    assert (part.agent, part.env, part.seeds, part.left_out) == ("sac", "Pendulum-CA", (0, 1, 2), 4)


def test_the_settings_that_all_grids_have(tmp_path: Path) -> None:
    study = study_of(envs=("Pendulum-CA", "Acrobot-CA", "MountainCar-CA"))
    lost = {("Pendulum-CA", 1e-4), ("Acrobot-CA", 1e-2)}
    fill(
        tmp_path,
        study,
        lambda run: None if (run.config.env, run.config.hypers["critic_step_size"]) in lost else coded(run),
    )
    grids = same_settings(grids_of(tmp_path))
    assert [grid.env for grid in grids] == ["Acrobot-CA", "MountainCar-CA", "Pendulum-CA"]
    assert {grid.settings for grid in grids} == {(setting_id(study, 1e-3),)}
    assert [grid.left_out for grid in grids] == [2, 2, 2]
    assert [grid.values.tolist() for grid in grids] == 3 * [[[10.0, 10.1, 10.2]]]
    [alone] = same_settings(grids_of(tmp_path)[:1])
    assert critics(alone) == [1e-4, 1e-3]


def test_grids_without_a_setting_in_common(tmp_path: Path) -> None:
    lost = {("Pendulum-CA", 1e-4), ("Acrobot-CA", 1e-3)}
    fill(
        tmp_path,
        study_of("critic_step_size = [1e-4, 1e-3]", envs=("Pendulum-CA", "Acrobot-CA")),
        lambda run: None if (run.config.env, run.config.hypers["critic_step_size"]) in lost else coded(run),
    )
    assert [(grid.settings, grid.left_out) for grid in same_settings(grids_of(tmp_path))] == 2 * [((), 2)]


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    fill(tmp_path, study_of(SWEEP, agents=("sac", "greedy-ac"), envs=("Pendulum-CA", "Acrobot-CA")), coded)
    runs = with_values(load(tmp_path).runs)
    for one, other in zip(make_grids(runs), make_grids(runs.sample(fraction=1, shuffle=True, seed=3)), strict=True):
        assert (one.agent, one.env, one.settings, one.seeds) == (other.agent, other.env, other.settings, other.seeds)
        assert one.hypers == other.hypers
        np.testing.assert_array_equal(one.values, other.values)
