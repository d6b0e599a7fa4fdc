"""Sensitivity by hand on tiny grids, against plain Python, and on stores in which it was planted."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
from helpers import synthetic

from greedyac.analysis.grid import Grid, make_grids
from greedyac.analysis.load import load, with_values
from greedyac.analysis.scores import Scale, percentile_scales
from greedyac.analysis.sensitivity import (
    KEPT,
    WITHIN,
    Measures,
    best_settings,
    effective_dimensionality,
    held_out_phi,
    held_out_width,
    line_axis,
    mean_differences,
    measures,
    pair_means,
    phi,
    region_width,
    sensitivity_curves,
    shares_near_best,
    variance_shares,
)
from greedyac.analysis.stats import Floats, Interval
from greedyac.training.config import Run

NAMES = ("actor_step_size_scale", "critic_step_size", "entropy_scale")
AS_IT_IS = Scale(0, 1)
ENVS = ("Acrobot-CA", "Pendulum-CA")
SQUARE = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


def make_grid(
    table: Mapping[tuple[float, ...], float | Sequence[float] | Floats],
    names: Sequence[str] = NAMES,
    env: str = "Pendulum-CA",
    agent: str = "greedy-ac",
) -> Grid:
    """A grid of settings, each told as its hyperparameters' values and its runs'."""
    values = np.array([np.atleast_1d(runs) for runs in table.values()], np.float64)
    axes = {name: tuple(sorted(set(found))) for name, found in zip(names, zip(*table, strict=True), strict=True)}
    return Grid(
        agent=agent,
        env=env,
        axes={name: found for name, found in axes.items() if len(found) > 1},
        settings=tuple(str(point) for point in table),
        hypers=tuple(dict(zip(names, point, strict=True)) for point in table),
        seeds=tuple(range(values.shape[1])),
        values=values,
        diverged=np.zeros(values.shape, np.bool_),
        left_out=0,
    )


def line(*runs: float | Sequence[float] | Floats, env: str = "Pendulum-CA", agent: str = "greedy-ac") -> Grid:
    """A grid with one axis: the first setting, the second, and so on."""
    return make_grid({(float(place),): one for place, one in enumerate(runs)}, ("critic_step_size",), env, agent)


# (actor_step_size_scale, critic_step_size, entropy_scale) → the mean of two runs; there is no setting (·, 2, 10)
TINY = make_grid(
    {
        (0.1, 1, 5): (0, 2),
        (1.0, 1, 5): (3, 5),
        (0.1, 2, 5): (6, 8),
        (1.0, 2, 5): (-1, 1),
        (0.1, 1, 10): (-4, -2),
        (1.0, 1, 10): (-9, -9),
        (0.1, 3, 10): (2, 2),
    }
)


# Curves over one hyperparameter


def test_a_curve_takes_the_other_step_size_at_its_best_at_each_point() -> None:
    curves = sensitivity_curves(TINY, "critic_step_size", "entropy_scale")
    np.testing.assert_array_equal(curves, [[4, 7, np.nan], [-3, np.nan, 2]])
    np.testing.assert_array_equal(sensitivity_curves(line(-2, -1), "critic_step_size", None), [[-2, -1]])


def test_a_curve_over_the_actors_step_size() -> None:
    curves = sensitivity_curves(TINY, "actor_step_size_scale", "entropy_scale")
    np.testing.assert_array_equal(curves, [[7, 4], [2, -9]])


def test_without_lines_all_others_are_at_their_best() -> None:
    np.testing.assert_array_equal(sensitivity_curves(TINY, "critic_step_size", None), [[4, 7, 2]])
    np.testing.assert_array_equal(sensitivity_curves(TINY, "entropy_scale", None), [[7, 2]])


def test_the_best_settings_of_a_curve_are_named() -> None:
    best = best_settings(TINY, "critic_step_size", "entropy_scale", TINY.means)
    places = [[TINY.hypers[place] if place >= 0 else None for place in row] for row in best]
    told = [[place and tuple(place[name] for name in NAMES) for place in row] for row in places]
    assert told == [[(1.0, 1, 5), (0.1, 2, 5), None], [(0.1, 1, 10), None, (0.1, 3, 10)]]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("critic_step_size", "entropy_scale"), "entropy_scale"),
        (("entropy_scale", "entropy_step_size"), "entropy_scale"),
        (("critic_step_size", "entropy_step_size"), "entropy_step_size"),
        (("actor_step_size_scale", "critic_step_size"), None),
    ],
)
def test_the_lines_are_those_of_the_entropy_or_what_stands_for_it(names: tuple[str, str], expected: str | None) -> None:
    grid = make_grid({(1, 1): 0, (1, 2): 0, (2, 1): 0, (2, 2): 0}, names)
    assert line_axis(grid, "another") == expected
    assert line_axis(grid, str(expected)) in (None, *(name for name in names if name != expected))


def test_there_are_no_lines_for_an_entropy_that_does_not_vary() -> None:
    grid = make_grid({(1, 1): 0, (2, 1): 0}, ("critic_step_size", "entropy_scale"))
    assert line_axis(grid, "critic_step_size") is None


def test_held_out_phi_by_hand() -> None:
    first, second = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.0]]), np.array([[1.0, 2.0, 0.0], [5.0, 4.0, 0.0]])
    # Chosen by the first: settings 0 and 1 for each, and setting 0 or 1 (both 1.5) for both: setting 0.
    assert held_out_phi(first, second) == (1 + 4) / 2 - (1 + 5) / 2
    # By the second: 1 and 0; for both setting 0 or 1 (both 3): setting 0.
    assert held_out_phi(second, first) == (1 + 0) / 2 - (3 + 0) / 2


def test_noise_makes_phi_larger_and_held_out_phi_not() -> None:
    """Without any effect, means over 20 grids of noise: 0.16 to 0.20, and -0.06 to 0.01, in four measurements."""
    rng, plain, fair = np.random.default_rng(0), [], []
    for _ in range(20):
        grids = [line(*(tuple(rng.normal(size=10)) for _ in range(40)), env=env) for env in ENVS]
        (found,) = measures(grids, {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
        assert found.held_out_phi is not None
        plain.append(found.phi.estimate)
        fair.append(found.held_out_phi)
    assert np.mean(plain) > 0.13
    assert abs(np.mean(fair)) < 0.1


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        ([[1, 5], [3, 2]], 2.5),
        ([[1, 5], [3, 2], [2, 9]], 4.5),
        ([[-1, -5], [-3, -2]], 2.5),
        ([[4, 7, 2]], 0),  # one line
        ([[4, np.nan, 1], [-3, np.nan, 2]], 4),  # a point without settings does not count
        ([[4, 7, np.nan], [-3, np.nan, 2]], 7 / 3),  # at one with a single line there is no height
    ],
)
def test_region_width_by_hand(curves: list[list[float]], expected: float) -> None:
    assert region_width(np.array(curves, np.float64)) == pytest.approx(expected)


def test_region_width_does_not_depend_on_the_order_of_lines_or_the_level() -> None:
    curves = np.random.default_rng(0).normal(size=(4, 6))
    assert region_width(curves[::-1] + 100) == pytest.approx(region_width(curves))
    assert region_width(3 * curves) == pytest.approx(3 * region_width(curves))


def test_held_out_width_by_hand() -> None:
    """Two seeds, so that a half is one of them, and every random half is the same two."""
    grid = make_grid(
        {(1, 1): (0, 5), (1, 2): (3, 1), (2, 1): (7, 7), (2, 2): (4, 6)}, ("critic_step_size", "entropy_scale")
    )
    # At 1 the first seed has the second line above, by 3, which is below by 4 on the other, and so the other way
    # round: −4 and −3. At 2 it has the first above, by 3, as has the other, by 1: 1 and 3.
    assert held_out_width(grid, "critic_step_size", "entropy_scale") == pytest.approx((-4 - 3 + 1 + 3) / 4)
    assert region_width(sensitivity_curves(grid, "critic_step_size", "entropy_scale")) == pytest.approx((0.5 + 2) / 2)


def test_held_out_width_chooses_other_hyperparameters_as_well() -> None:
    """Which step size of the actor is better depends on the seed; at the second point all is 0."""
    grid = make_grid(
        {
            (0.1, 1, 5): (9, 0),
            (1.0, 1, 5): (0, 7),
            (0.1, 1, 10): (1, 1),
            (1.0, 1, 10): (-1, -1),
            (0.1, 2, 5): (0, 0),
            (0.1, 2, 10): (0, 0),
        }
    )
    # By the first seed 9 and 1, which on the second are 0 and 1; by the second 7 and 1, on the first 0 and 1.
    assert held_out_width(grid, "critic_step_size", "entropy_scale") == pytest.approx((-1 + 0) / 2)


def test_held_out_width_leaves_out_what_is_not_there() -> None:
    grid = make_grid({key: (mean, mean) for key, mean in {(1, 5): 4, (1, 10): -3, (2, 5): 7}.items()}, NAMES[1:])
    assert held_out_width(grid, "critic_step_size", "entropy_scale") == pytest.approx((7 + 0) / 2)


def test_there_is_no_held_out_width_of_one_seed() -> None:
    grid = make_grid({(1, 5): (4,), (1, 10): (3,), (2, 5): (1,), (2, 10): (1,)}, NAMES[1:])
    assert held_out_width(grid, "critic_step_size", "entropy_scale") is None


def test_noise_makes_the_width_larger_and_the_held_out_width_not() -> None:
    """Without any effect, means over 40 grids of noise: 1.14 to 1.23, and -0.07 to 0.09, in four measurements."""
    rng, plain, fair = np.random.default_rng(0), [], []
    for _ in range(40):
        grid = make_grid({key: tuple(rng.normal(size=4)) for key in itertools.product((1, 2, 3), range(5))}, NAMES[1:])
        plain.append(region_width(sensitivity_curves(grid, "critic_step_size", "entropy_scale")))
        width = held_out_width(grid, "critic_step_size", "entropy_scale")
        assert width is not None
        fair.append(width)
    assert np.mean(plain) > 1
    assert abs(np.mean(fair)) < 0.2


def test_the_width_lies_between_the_held_out_one_and_the_plain_one() -> None:
    """Lines from 0 to 1 with noise, means over 40 grids: 0.41 to 0.53, and 1.44 to 1.52, in four measurements."""
    rng, plain, fair = np.random.default_rng(0), [], []
    for _ in range(40):
        points = itertools.product((1, 2, 3), range(5))
        grid = make_grid({point: point[1] / 4 + rng.normal(size=4) for point in points}, NAMES[1:])
        plain.append(region_width(sensitivity_curves(grid, "critic_step_size", "entropy_scale")))
        width = held_out_width(grid, "critic_step_size", "entropy_scale")
        assert width is not None
        fair.append(width)
    assert 0.3 < np.mean(fair) < 0.7
    assert 1.3 < np.mean(plain) < 1.7


# Shares near the best


@pytest.mark.parametrize(
    ("best", "means", "expected"),
    [
        (100, [100, 95, 94, 90, 89, 75, 74, 0], [2 / 8, 4 / 8, 6 / 8]),
        (-100, [-100, -105, -106, -110, -111, -125, -126, -1000], [2 / 8, 4 / 8, 6 / 8]),
        (0, [0, 0, -1, -2], [0.5, 0.5, 0.5]),
        (200, [100, 120, 140, 149], [0, 0, 0]),  # the best is another agent's
        (7, [7], [1, 1, 1]),
    ],
)
def test_shares_near_best_by_hand(best: float, means: list[float], expected: list[float]) -> None:
    assert WITHIN == (0.05, 0.10, 0.25)
    assert shares_near_best(np.array(means, np.float64), best) == pytest.approx(expected)


# Functional ANOVA


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        # variance 5/4; rows ±1, columns ±1/2
        ([[0, 1], [2, 3]], {(0,): 0.8, (1,): 0.2, (0, 1): 0}),
        ([[0, 1], [1, 0]], {(0,): 0, (1,): 0, (0, 1): 1}),
        # variance 3/16; rows ±1/4, columns ±1/4, and ±1/4 is left
        ([[1, 0], [0, 0]], {(0,): 1 / 3, (1,): 1 / 3, (0, 1): 1 / 3}),
        # variance 2; rows all 1, columns -1, 1/2, 1/2 around 1
        ([[0, 0, 3], [0, 3, 0]], {(0,): 0, (1,): 0.25, (0, 1): 0.75}),
        # variance 8/3 + 1; rows ±1, columns -2, 0, 2
        ([[0, 2, 4], [2, 4, 6]], {(0,): 3 / 11, (1,): 8 / 11, (0, 1): 0}),
        ([1, 5, 5, 9], {(0,): 1}),
    ],
)
def test_variance_shares_by_hand(tensor: list[list[float]], expected: dict[tuple[int, ...], float]) -> None:
    found = variance_shares(np.array(tensor, np.float64))
    assert list(found) == list(expected)
    assert found == pytest.approx(expected)


def test_parity_belongs_to_all_three_axes_together() -> None:
    shares = variance_shares(np.indices((2, 2, 2)).sum(axis=0) % 2 + 0.0)
    assert len(shares) == 7
    assert shares.pop((0, 1, 2)) == pytest.approx(1)
    assert list(shares.values()) == pytest.approx([0] * 6)


def test_a_pair_among_three_axes() -> None:
    first, second, third = np.indices((2, 2, 3))
    shares = variance_shares((first ^ second) + 2.0 * (third == 2))
    # variances: 1/4 of the pair, 4 · (1/3 · 2/3) = 8/9 of the third
    expected = {(0, 1): 9 / 41, (2,): 32 / 41}
    assert shares == pytest.approx({chosen: expected.get(chosen, 0) for chosen in shares})


@pytest.mark.parametrize("shape", [(2, 2), (4, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_variance_shares_sum_to_one_whatever_the_unit_and_the_level(shape: tuple[int, ...]) -> None:
    tensor = np.random.default_rng(1).normal(size=shape)
    shares = variance_shares(tensor)
    assert len(shares) == 2 ** len(shape) - 1
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= 0
    assert variance_shares(5 - 3 * tensor) == pytest.approx(shares)


def test_what_is_additive_has_no_interactions() -> None:
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=size) for size in (2, 3, 5)]
    shares = variance_shares(parts[0][:, None, None] + parts[1][:, None] + parts[2])
    own = np.array([part.var() for part in parts])
    assert [shares[axis,] for axis in range(3)] == pytest.approx(own / own.sum())
    assert [share for chosen, share in shares.items() if len(chosen) > 1] == pytest.approx([0] * 4)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 2, 3)])
@pytest.mark.parametrize("value", [0.0, -1000.0, 0.5])
def test_a_constant_has_no_variance_to_share(shape: tuple[int, ...], value: float) -> None:
    assert variance_shares(np.full(shape, value)) == {}


@pytest.mark.parametrize("value", [0.1, -56.3])
def test_a_constant_that_binary_fractions_miss_has_no_variance_either(value: float) -> None:
    assert variance_shares(np.full((2, 3), value)) == {}


# Means over pairs


def test_pair_means_by_hand() -> None:
    found = pair_means(TINY, "critic_step_size", "entropy_scale", TINY.means)
    np.testing.assert_array_equal(found, [[2.5, -6], [3.5, np.nan], [np.nan, 2]])
    np.testing.assert_array_equal(pair_means(TINY, "entropy_scale", "critic_step_size", TINY.means), found.T)


def test_pair_means_are_of_the_numbers_that_are_given() -> None:
    found = pair_means(TINY, "actor_step_size_scale", "entropy_scale", np.arange(7.0))
    np.testing.assert_array_equal(found, [[1, 5], [2, 5]])


# Φ


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[1, 0], [0, 1]], 0.5),
        ([[3, 1], [0, 2], [1, 1]], 2 / 3),  # 2 by each environment's best, 4/3 by either setting
        ([[1, 0, 0.9], [0, 1, 0.9]], 0.1),
        ([[5, 1, 2], [9, 8, 7]], 0),  # one setting is best everywhere
        ([[1], [7]], 0),
        ([[-1, -3], [-4, -2]], 1),
    ],
)
def test_phi_by_hand(scores: list[list[float]], expected: float) -> None:
    assert float(phi(np.array(scores, np.float64))) == pytest.approx(expected)


def test_phi_of_many_samples_is_that_of_each() -> None:
    scores = np.random.default_rng(3).normal(size=(20, 3, 7))
    np.testing.assert_allclose(phi(scores), [float(phi(one)) for one in scores])
    assert (phi(scores) >= 0).all()


# Effective dimensionality


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[100, 0, 0, 0], [100, 50, 50, 50]], 0),
        ([[100, 0, 0, 0], [90, 100, 0, 0]], 0),  # 95 of 100 are kept
        ([[100, 0, 0, 0], [89, 100, 0, 0]], 1),  # 94.5 are not; tuning the second gives 100
        ([[100, 0, 0, 0], [50, 0, 100, 0]], 1),  # the first
        ([[100, 0, 0, 10], [50, 0, 0, 100]], 2),
        # tuning the first would do if the second were not at the value that is best across environments
        ([[89, 100, 0, 0], [89, 0, 0, 100]], 2),
        ([[-1, -2, -3, -4], [-9, -8, -7, -6]], np.nan),
        ([[0, 0, -1, -1], [0, -1, -1, -1]], np.nan),
        ([[-5, -5, -5, -5], [8, 8, 8, 8]], 0),
    ],
)
def test_effective_dimensionality_by_hand(scores: list[list[float]], expected: float) -> None:
    assert KEPT == 0.95
    found = effective_dimensionality(np.array([scores], np.float64), SQUARE)
    np.testing.assert_array_equal(found, [expected])


def needed(scores: Floats, places: Sequence[tuple[int, ...]]) -> float:
    """Effective dimensionality as its definition reads."""
    settings, axes = range(len(places)), range(len(places[0]))
    goal = sum(max(row) for row in scores) / len(scores)
    fixed = places[max(settings, key=lambda setting: sum(row[setting] for row in scores))]
    for size in range(len(axes) + 1):
        for tuned in itertools.combinations(axes, size):
            kept = [
                one for one in settings if all(places[one][axis] == fixed[axis] for axis in axes if axis not in tuned)
            ]
            if goal > 0 and sum(max(row[one] for one in kept) for row in scores) / len(scores) >= 0.95 * goal:
                return size
    return np.nan


@pytest.mark.parametrize("envs", [2, 3])
def test_effective_dimensionality_is_what_its_definition_says(envs: int) -> None:
    places = list(itertools.product(range(2), range(3), range(3)))
    scores = np.random.default_rng(4).normal(size=(60, envs, len(places))) * np.linspace(0.01, 1, 60)[:, None, None]
    scores += np.where(np.arange(60) % 10, 1, -9)[:, None, None]
    found = effective_dimensionality(scores, np.array(places))
    np.testing.assert_array_equal(found, [needed(one, places) for one in scores])
    assert set(found[~np.isnan(found)]) == {0, 1, 2, 3}
    assert np.isnan(found).sum() == 6


def test_settings_that_are_absent_can_not_be_tuned_to() -> None:
    scores = np.array([[[100.0, 0.0, 0.0], [50.0, 0.0, 100.0]]])
    np.testing.assert_array_equal(effective_dimensionality(scores, SQUARE[[0, 1, 3]]), [2])


# Measures


def test_measures_of_two_environments_by_hand() -> None:
    grids = [line((2, 4), (0, 0), env="Acrobot-CA"), line((1, 1), (2, 2), env="Pendulum-CA")]
    (found,) = measures(grids, {"paper": {"Acrobot-CA": AS_IT_IS, "Pendulum-CA": AS_IT_IS}})
    # 3 and 2 by each environment's best; 2 and 1 by either setting; resampled, the 3 is 2, 3 or 4
    known = (found.phi, found.held_out_phi, found.effective_dimensionality)
    assert found == Measures("continuous", "greedy-ac", "paper", ENVS, 2, 1, found.mean_score, *known)
    assert found.mean_score == pytest.approx(((3 + 0 + 1 + 2) / 4, (2 + 0 + 1 + 2) / 4, (4 + 0 + 1 + 2) / 4))
    assert found.held_out_phi == pytest.approx(0.5)
    assert found.phi == pytest.approx((0.5, 0.5, 0.5))
    assert found.effective_dimensionality == Interval(1, 1, 1)


def test_measures_are_of_the_scores() -> None:
    grids = [line(100, 0, env="Acrobot-CA"), line(1, 3, env="Pendulum-CA")]
    scales = {"Acrobot-CA": Scale(0, 100), "Pendulum-CA": Scale(1, 2)}  # scores of (1, 0) and (0, 1)
    (found,) = measures(grids, {"percentiles": scales})
    assert found.phi == pytest.approx((0.5, 0.5, 0.5))
    assert found.mean_score == pytest.approx((0.5, 0.5, 0.5))


def test_every_kind_agent_and_score_has_its_measures() -> None:
    envs = (*ENVS, "Acrobot-DA", "Pendulum-DA")
    grids = [line(2, 1, env=env, agent=agent) for agent in ("greedy-ac", "sac") for env in envs]
    scales = dict.fromkeys(envs, AS_IT_IS)
    found = measures(grids, {"paper": scales, "percentiles": scales})
    told = {(one.kind, one.agent, one.score, one.envs) for one in found}
    kinds = {"continuous": ENVS, "discrete": ("Acrobot-DA", "Pendulum-DA")}
    scores = ("paper", "percentiles")
    assert len(found) == 8
    assert told == {
        (kind, agent, score, own) for kind, own in kinds.items() for agent in ("greedy-ac", "sac") for score in scores
    }


def test_only_settings_that_all_environments_have_are_compared_each_with_itself() -> None:
    names = ("critic_step_size",)
    first = make_grid({(1,): 5, (2,): 1, (3,): 99}, names, "Acrobot-CA")
    second = make_grid({(4,): 99, (2,): 0, (1,): 7}, names, "Pendulum-CA")
    (found,) = measures([first, second], {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    assert found.settings == 2
    assert found.phi.estimate == 0
    (swapped,) = measures([second, first], {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    assert swapped.envs == ENVS[::-1]
    assert swapped.phi.estimate == 0


@pytest.mark.parametrize(
    ("grids", "scales"),
    [
        ([line(1, 2)], dict.fromkeys(ENVS, AS_IT_IS)),  # one environment
        ([line(1, env="Acrobot-CA"), line(1)], dict.fromkeys(ENVS, AS_IT_IS)),  # one setting
        ([line(1, 2, env="Acrobot-CA"), line(1)], dict.fromkeys(ENVS, AS_IT_IS)),  # one shared setting
        ([line(1, 2, env="Acrobot-DA"), line(1, 2)], dict.fromkeys((*ENVS, "Acrobot-DA"), AS_IT_IS)),  # two kinds
        ([line(1, 2, env="Acrobot-CA"), line(1, 2)], {"Acrobot-CA": AS_IT_IS, "Pendulum-CA": None}),
        ([line(1, 2, env="Acrobot-CA"), line(1, 2)], {"Acrobot-CA": AS_IT_IS}),
    ],
)
def test_there_are_no_measures_without_two_settings_on_two_environments_with_scores(
    grids: list[Grid], scales: dict[str, Scale | None]
) -> None:
    assert measures(grids, {"paper": scales}) == []


def test_an_environment_without_a_score_is_left_out() -> None:
    grids = [line(1, 2, env="Acrobot-CA"), line(9, 1, env="MountainCar-CA"), line(2, 1)]
    (found,) = measures(grids, {"paper": {**dict.fromkeys(ENVS, AS_IT_IS), "MountainCar-CA": None}})
    assert found.envs == ENVS
    assert found.phi.estimate == pytest.approx(0.5)  # (2 + 2) / 2 - (1 + 2) / 2


def test_mean_scores_are_compared_on_the_same_seeds() -> None:
    luck = np.random.default_rng(5).normal(size=10)
    grids = [line(5 + luck, luck, env=env, agent="greedy-ac") for env in ENVS]
    grids += [line(1 + luck, luck, env=env, agent="sac") for env in ENVS]
    scales = {"paper": dict.fromkeys(ENVS, AS_IT_IS), "half": dict.fromkeys(ENVS, Scale(7, 2))}
    found = mean_differences(grids, scales)
    assert [one[:5] for one in found] == [("continuous", score, ENVS, "greedy-ac", "sac") for score in scales]
    # Luck moves both agents alike: (5 + 0) / 2 - (1 + 0) / 2, whatever is resampled, and half of it on the other scale
    assert found[0].mean_score == pytest.approx((2, 2, 2))
    assert found[1].mean_score == pytest.approx((1, 1, 1))


def test_ends_of_a_mean_difference_are_of_resampled_seeds() -> None:
    grids = [line((2, 4), (0, 0), env="Acrobot-CA"), line((1, 1), (2, 2))]
    grids += [line((1, 1), (1, 1), env=env, agent="sac") for env in ENVS]
    (found,) = mean_differences(grids, {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    assert found.mean_score == pytest.approx((6 / 4 - 1, 5 / 4 - 1, 7 / 4 - 1))


def test_mean_scores_of_other_seeds_environments_or_grids_are_not_compared() -> None:
    grids = [line(1, 2, env=env, agent="greedy-ac") for env in ENVS]
    other = [line((1, 1, 1), (2, 2, 2), env=env, agent="sac") for env in ENVS]
    more = [line(1, 2, env=env, agent="vanilla-ac") for env in (*ENVS, "MountainCar-CA")]
    wider = [line(1, 2, 3, env=env, agent="random") for env in ENVS]
    scales = dict.fromkeys((*ENVS, "MountainCar-CA"), AS_IT_IS)
    assert mean_differences([*grids, *other, *more, *wider], {"paper": scales}) == []


def test_dimensionality_is_not_told_where_the_score_is_not_positive() -> None:
    grids = [line(-1, -2, env="Acrobot-CA"), line(-2, -1)]
    (found,) = measures(grids, {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    assert found.phi == pytest.approx((0.5, 0.5, 0.5))
    assert found.effective_dimensionality is None


def test_dimensionality_is_not_told_where_some_resamples_are_not_positive() -> None:
    grids = [line((-9, 10), (-9, -9), env="Acrobot-CA"), line((0, 0), (0, 0))]
    (found,) = measures(grids, {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    assert found.effective_dimensionality is None


def test_seeds_are_resampled_for_all_settings_alike() -> None:
    luck = np.random.default_rng(5).normal(size=10)
    grids = [line(5 + luck, luck, env="Acrobot-CA"), line(luck, 5 + luck)]
    (found,) = measures(grids, {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    assert found.phi == pytest.approx((2.5, 2.5, 2.5))  # luck moves all settings of an environment


def test_seeds_are_resampled_for_each_environment_by_itself() -> None:
    luck = np.random.default_rng(6).normal(size=40)
    luck -= luck.mean()
    grids = [line(20 + luck, [0] * 40, [16] * 40, env="Acrobot-CA"), line([0] * 40, 20 - luck, [16] * 40)]
    (found,) = measures(grids, {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    # Φ is 20 - 16 and half of what one environment's luck exceeds the other's; that was 0 if they shared it
    error = np.sqrt(2) * luck.std() / np.sqrt(40) / 2
    assert found.phi == pytest.approx((4, 4 - 1.96 * error, 4 + 1.96 * error), abs=0.25 * error)


@pytest.mark.parametrize("seed", range(5))
def test_estimates_are_of_the_runs_themselves_and_ends_of_resamples(seed: int) -> None:
    luck = 3 * np.random.default_rng(seed).normal(size=10)
    luck -= luck.mean()  # of all runs either setting is as good; of resamples, often one here and the other there
    grids = [line(1 + luck, 1 - luck, env="Acrobot-CA"), line(1 + luck, 1 - luck)]
    (found,) = measures(grids, {"paper": dict.fromkeys(ENVS, AS_IT_IS)})
    assert found.phi[:2] == pytest.approx((0, 0))
    assert found.phi.high > 0.3  # 0.7 to 1.9
    assert found.effective_dimensionality == Interval(0, 0, 1)


# Planted in a store


def planted(run: Run) -> synthetic.Told:
    """SAC's best critic step size differs between environments, and its entropy matters; greedy AC's hardly do."""
    hypers = run.config.hypers
    effect = {"sac": 100, "greedy-ac": 5}[run.config.agent]
    place = (1e-4, 1e-3, 1e-2).index(hypers["critic_step_size"])
    entropy = (1e-3, 0.1, 10.0).index(hypers["entropy_scale"])
    right = place == synthetic.CA.index(run.config.env)
    value = 500 + effect * right - effect * entropy - 10 * (hypers["actor_step_size_scale"] == 1.0)
    return synthetic.Told(value + synthetic.noise(run))


@pytest.fixture(scope="module")
def planted_runs(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    store = tmp_path_factory.mktemp("planted") / "store"
    synthetic.fill(store, synthetic.grid_study(seeds="0-4"), planted)
    return with_values(load(store).runs)


@pytest.fixture(scope="module")
def planted_grids(planted_runs: pl.DataFrame) -> list[Grid]:
    return make_grids(planted_runs)


@pytest.mark.parametrize("env", synthetic.CA)
def test_the_planted_insensitive_agent_has_the_smaller_region(env: str, planted_grids: list[Grid]) -> None:
    width = {}
    for grid in (grid for grid in planted_grids if grid.env == env):
        lines = line_axis(grid, "critic_step_size")
        assert lines == "entropy_scale"
        width[grid.agent] = region_width(sensitivity_curves(grid, "critic_step_size", lines))
    # two steps of the entropy; the best of two actor step sizes, 10 apart, is clear of the noise of 1 / √5
    assert width == pytest.approx({"greedy-ac": 10, "sac": 200}, abs=2)


def test_the_planted_insensitive_agent_has_the_smaller_phi(planted_grids: list[Grid]) -> None:
    found = {one.agent: one for one in measures(planted_grids, {"return": dict.fromkeys(synthetic.CA, AS_IT_IS)})}
    assert {agent: one.phi.estimate for agent, one in found.items()} == pytest.approx(
        {"greedy-ac": 5 * 2 / 3, "sac": 100 * 2 / 3}, abs=2
    )
    assert found["greedy-ac"].phi.high < found["sac"].phi.low
    for one in found.values():
        assert (one.kind, set(one.envs), one.settings, one.hyperparameters) == ("continuous", set(synthetic.CA), 18, 3)
        assert one.phi.low <= one.phi.estimate <= one.phi.high
    # 95 % of a best of 600 is 570; without tuning SAC has 533, and greedy AC 502 of 505
    assert found["greedy-ac"].effective_dimensionality == Interval(0, 0, 0)
    assert found["sac"].effective_dimensionality == Interval(1, 1, 1)


def test_the_order_holds_by_percentiles_too(planted_runs: pl.DataFrame, planted_grids: list[Grid]) -> None:
    found = measures(planted_grids, {"percentiles": percentile_scales(planted_runs)})
    width = {one.agent: one.phi for one in found}
    assert width["greedy-ac"].high < width["sac"].low


def test_the_planted_variance_belongs_to_what_was_planted(planted_grids: list[Grid]) -> None:
    (grid,) = (grid for grid in planted_grids if (grid.agent, grid.env) == ("sac", "Pendulum-CA"))
    assert set(grid.axes) == set(NAMES)
    shares = variance_shares(grid.tensor(grid.means))
    # variances: 5² of the actor's, 100² · 2/9 of the critic's, 100² · 2/3 of the entropy's
    own = np.array([25, 20_000 / 9, 20_000 / 3])
    assert [shares[list(grid.axes).index(name),] for name in NAMES] == pytest.approx(own / own.sum(), abs=0.005)
    assert sum(share for chosen, share in shares.items() if len(chosen) > 1) < 0.001
