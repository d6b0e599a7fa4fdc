"""CCEM by itself on functions with several peaks: shorter versions of what docs/theory.md tells."""

import runpy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.paths import ROOT


@pytest.fixture(scope="module")
def peaks() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "benchmarks"))
        return runpy.run_path(str(ROOT / "benchmarks/peaks.py"))


def test_the_value_by_hand(peaks: dict[str, Any]) -> None:
    of = peaks["Bumps"](*map(jnp.array, ([0.5, -0.5], [0.1, 0.0], [0.0, 0.0], [1.0, 0.6], [0.1, 0.2])))
    context = jnp.float32(0.4)
    centre = 0.5 + 0.1 * np.sin(0.8)
    np.testing.assert_allclose(peaks["value"](of, context, centre), 1.0, rtol=1e-6)
    np.testing.assert_allclose(peaks["value"](of, context, centre + 0.1), np.exp(-0.5), rtol=1e-5)
    np.testing.assert_allclose(peaks["value"](of, context, -0.7), 0.6 * np.exp(-0.5), rtol=1e-5)
    there = peaks["found"](of, jnp.array([[0.4], [0.4]]), jnp.array([[centre + 0.03], [centre + 0.04]]))
    assert there == 0.5  # exp(−0.045) = 0.956 is on the peak, exp(−0.08) = 0.923 is not


def test_random_functions_have_one_highest_peak_within_the_range(peaks: dict[str, Any]) -> None:
    actions = jnp.linspace(-1, 1, 401)
    for seed in range(20):
        of = peaks["bumps"](jax.random.key(seed))
        for context in (-1.0, 0.3):
            values = np.asarray(jax.vmap(lambda action, of=of, c=context: peaks["value"](of, c, action))(actions))
            high = actions[values >= peaks["NEAR"]]
            assert 0.999 <= values.max() <= 1
            assert np.ptp(high) < 0.1


def test_evaluations_until_a_share_is_reached(peaks: dict[str, Any]) -> None:
    cost = peaks["Cost"](np.array([[0.0, 0.4, 1.0], [0.2, 0.6, 1.0]]), 30)
    assert peaks["to_reach"](cost, 0.5) == 60
    assert peaks["to_reach"](cost, 0.9) == 90
    assert peaks["to_reach"](peaks["Cost"](np.array([[0.0, 0.4]]), 30), 0.5) == np.inf


def test_a_narrow_proposal_misses_what_changes_and_a_wide_one_finds_it(peaks: dict[str, Any]) -> None:
    """With 1,000 problems and τ = 0.001, 1: 0.88 and 0.73 found at first, 0.33 and 0.71 after the change."""
    told = jax.device_get(peaks["variant"]("truncated", 60, 2000))
    little, much = peaks["SCALES"].index(1e-3), peaks["SCALES"].index(1.0)
    first, second = told.first.mean(1), told.second.mean(1)
    assert first[little] > 0.7
    assert second[little] < 0.55
    assert second[much] > second[little] + 0.15
    assert np.median(told.proposal[little, :, -1]) < 0.02
    assert 0.15 < np.median(told.proposal[much, :, -1]) < 0.4
    assert np.median(told.actor[much, :, -1]) < 0.15


@pytest.mark.slow
def test_methods_on_several_peaks(peaks: dict[str, Any]) -> None:
    costs = peaks["methods"](10, 400)
    ends = {name: float(np.asarray(cost.share)[:, -1].mean()) for name, cost in costs.items()}
    assert ends["CCEM"] > 0.85
    assert ends["gradient ascent"] < 0.55
    assert ends["gradient ascent"] < ends["gradient ascent, best of 10"] - 0.2
    assert ends["network by gradient ascent"] < 0.7
    assert 0.7 < ends["CEM for each context"] <= 1
    assert peaks["to_reach"](costs["CEM for each context"], 0.5) < peaks["to_reach"](costs["CCEM"], 0.5)
