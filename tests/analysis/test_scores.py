"""Scores by hand, the paper's table as it is printed, and percentiles against NumPy's."""

import numpy as np
import polars as pl
import pytest

from greedyac.analysis.scores import (
    PAPER_BEST,
    Best,
    Scale,
    best_returns,
    paper_scale,
    paper_scales,
    percentile_scales,
)
from greedyac.core.errors import InputError


def told(env: str, *values: float | None, best: list[float | None] | None = None) -> pl.DataFrame:
    schema = {"env": pl.String, "value": pl.Float64, "best_return": pl.Float64}
    rows = {"env": [env] * len(values), "value": values, "best_return": values if best is None else best}
    return pl.DataFrame(rows, schema)


@pytest.mark.parametrize(
    ("best", "values", "scores"),
    [
        (10, [10, 5, 0, -10, 20], [1, 0.5, 0, -1, 2]),
        (-50, [-50, -75, -100, -150, 0], [1, 0.5, 0, -1, 2]),
        (930, [930, 465], [1, 0.5]),
        (-0.25, [-0.25, -0.5], [1, 0]),
    ],
)
def test_the_papers_score_by_hand(best: float, values: list[float], scores: list[float]) -> None:
    scale = paper_scale(best)
    assert scale is not None
    np.testing.assert_allclose(scale(np.array(values, np.float64)), scores, atol=1e-12)


@pytest.mark.parametrize("best", [930.0, -83.0])
def test_the_papers_score_is_the_papers_formula(best: float) -> None:
    scale = paper_scale(best)
    assert scale is not None
    values = np.random.default_rng(0).normal(best, 500, size=(3, 4))
    np.testing.assert_allclose(scale(values), 1 - (best - values) / abs(best))


@pytest.mark.parametrize("best", [0.0, -0.0])
def test_the_papers_score_is_not_defined_for_a_best_of_zero(best: float) -> None:
    runs = pl.DataFrame({"env": ["Pendulum-CA", "Acrobot-CA"], "best_return": [best, -50.0]})
    assert paper_scales(runs, "store") == {"Pendulum-CA": None, "Acrobot-CA": Scale(-100.0, 50.0)}


def test_a_scale_is_a_straight_line() -> None:
    np.testing.assert_allclose(Scale(zero=2, unit=4)(np.array([2.0, 6.0, 0.0])), [0, 1, -0.5])


def test_the_table_is_the_papers() -> None:
    assert PAPER_BEST == {
        "Acrobot-CA": -56,
        "Acrobot-DA": -56,
        "MountainCar-CA": -65,
        "MountainCar-DA": -83,
        "Pendulum-CA": 930,
        "Pendulum-DA": 932,
    }


def test_the_best_return_of_a_store_is_the_highest_of_any_episode() -> None:
    first = told("Pendulum-CA", 1, 2, None, best=[300, 250, None])
    second = told("Acrobot-CA", -99, -98, best=[-70, -80])
    assert best_returns(pl.concat([first, second]), "store") == {"Pendulum-CA": 300, "Acrobot-CA": -70}


def test_an_environment_without_an_episode_has_no_best_return() -> None:
    runs = pl.concat([told("Pendulum-CA", None, None), told("Acrobot-CA", -70)])
    assert best_returns(runs, "store") == {"Acrobot-CA": -70}
    assert paper_scales(runs, "store") == {"Acrobot-CA": Scale(-140, 70)}


def test_the_papers_best_returns_do_not_look_at_the_runs() -> None:
    runs = pl.concat([told("Pendulum-CA", 999), told("MountainCar-DA", None)])
    assert best_returns(runs, "paper") == {"Pendulum-CA": 930, "MountainCar-DA": -83}


def test_the_options_of_an_environment_do_not_change_the_papers_best() -> None:
    label = "Pendulum-CA[cutoff=500]"
    assert best_returns(told(label, 1), "paper") == {label: 930}


def test_an_environment_that_is_not_in_the_paper_is_refused_by_name() -> None:
    runs = pl.concat([told("Pendulum-CA", 1), told("Swimmer", 1)])
    allowed = "Acrobot-CA, Acrobot-DA, MountainCar-CA, MountainCar-DA, Pendulum-CA, Pendulum-DA"
    with pytest.raises(InputError, match=f"^the paper has no best return for Swimmer; allowed: {allowed}$"):
        best_returns(runs, "paper")
    assert best_returns(runs, "store") == {"Pendulum-CA": 1, "Swimmer": 1}


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ("store", {"Pendulum-CA": Scale(0, 400), "Acrobot-CA": Scale(-120, 60), "MountainCar-CA": None}),
        ("paper", {"Pendulum-CA": Scale(0, 930), "Acrobot-CA": Scale(-112, 56), "MountainCar-CA": Scale(-130, 65)}),
    ],
)
def test_the_papers_scales_are_those_of_the_best_returns(best: Best, expected: dict[str, Scale | None]) -> None:
    runs = pl.concat([told("Pendulum-CA", 400, 7), told("Acrobot-CA", -60), told("MountainCar-CA", 0, -9)])
    assert paper_scales(runs, best) == expected


def test_percentile_scales_by_hand() -> None:
    (scale,) = percentile_scales(told("Pendulum-CA", *range(101))).values()
    assert scale == pytest.approx(Scale(5, 90))


@pytest.mark.parametrize("size", [2, 7, 60])
def test_percentile_scales_are_numpys_percentiles(size: int) -> None:
    values = {
        env: np.random.default_rng(seed).normal(size=size) for seed, env in enumerate(("Pendulum-CA", "Acrobot-CA"))
    }
    runs = pl.concat([told(env, *found.tolist()) for env, found in values.items()])
    scales = percentile_scales(runs)
    assert set(scales) == set(values)
    for env, found in values.items():
        scale = scales[env]
        assert scale is not None
        np.testing.assert_allclose(scale(np.percentile(found, [5, 95])), [0, 1], atol=1e-12)


def test_percentiles_are_of_the_runs_that_have_a_value() -> None:
    runs = pl.concat([told("Pendulum-CA", None, 1, None, 2), told("Acrobot-CA", None)])
    scales = percentile_scales(runs)
    assert list(scales) == ["Pendulum-CA"]
    assert scales["Pendulum-CA"] == pytest.approx(Scale(1.05, 0.9))


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0, 3.0], [0.0, *[3.0] * 98, 9.0]])
def test_there_is_no_score_where_the_percentiles_agree(values: list[float]) -> None:
    assert percentile_scales(told("Pendulum-CA", *values)) == {"Pendulum-CA": None}
