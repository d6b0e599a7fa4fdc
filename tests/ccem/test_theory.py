"""The paper's theory, in shorter versions of what docs/theory.md shows. Margins: what six other streams of random
numbers gave stands beside each of them.
"""

import runpy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT
from scipy.special import ndtri

from greedyac import ccem
from greedyac.analysis.stats import Floats

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")  # the second imports the first
    theory, tracking = (runpy.run_path(str(ROOT / f"benchmarks/{name}.py")) for name in ("theory", "theory_tracking"))
RIGHT, BOTTOM, THRESHOLD, OTHER_STATE = theory["BY_PERCENTILE"].values()
SEVERAL_RHO = (0.05, 0.2, 0.5, 0.7, 0.9)


@pytest.fixture(scope="module")
def mdps() -> Any:
    rng = np.random.default_rng(1)
    return [theory["random_mdp"](rng) for _ in range(300)]


def bandit(policy: list[float], rewards: list[float], rho: float = 0.5) -> Any:
    return theory["Mdp"](np.array([rewards]), np.ones((1, len(rewards), 1)), 0.0, np.array([policy]), rho)


# 1. Policy improvement


def test_values_of_a_chain_by_hand() -> None:
    """From state 0 action 0 leads to state 1, where every action has the reward 1; action 1 stays, all at γ = 1/2."""
    transitions = np.array([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    mdp = theory["Mdp"](np.array([[0.0, 0.0], [1.0, 1.0]]), transitions, 0.5, np.full((2, 2), 0.5), 0.5)
    np.testing.assert_allclose(theory["state_values"](mdp, mdp.policy), [2 / 3, 2.0])
    np.testing.assert_allclose(theory["action_values"](mdp, mdp.policy), [[1.0, 1 / 3], [2.0, 2.0]])
    np.testing.assert_allclose(theory["state_values"](mdp, mdp.policy, 1.0)[1], 2 * (1 + np.log(2)))
    np.testing.assert_allclose(theory["action_values"](mdp, mdp.policy, 1.0)[:, 0], [1 + np.log(2), 2 + np.log(2)])


def test_the_action_at_the_threshold_is_split() -> None:
    policy, values = np.array([0.5, 0.3, 0.2]), np.array([1.0, 3.0, 2.0])
    np.testing.assert_allclose(theory["percentile_greedy"](policy, values, 0.4), [0, 0.75, 0.25])
    np.testing.assert_allclose(theory["percentile_greedy"](policy, values, 0.3), [0, 1, 0], atol=1e-15)
    np.testing.assert_array_equal(theory["percentile_greedy"](policy, values, 1.0), policy)


def test_no_state_becomes_worse_and_each_gains_what_one_step_gains(mdps: Any) -> None:
    for mdp, gains in zip(mdps, theory["changes"](mdps, RIGHT), strict=True):
        values = theory["action_values"](mdp, mdp.policy)
        target = theory["percentile_greedy"](mdp.policy, values, mdp.rho)
        np.testing.assert_allclose(target.sum(-1), 1)
        assert (target <= mdp.policy / mdp.rho + 1e-12).all()
        one_step = ((target - mdp.policy) * values).sum(-1)
        assert one_step.min() >= -theory["ROUNDING"]
        assert (gains >= one_step - theory["ROUNDING"]).all()


def test_nothing_changes_where_actions_are_tied_or_all_are_kept(mdps: Any) -> None:
    tied = [mdp._replace(rewards=0 * mdp.rewards + 1) for mdp in mdps[:20]]
    every = [mdp._replace(rho=1.0) for mdp in mdps[:20]]
    for changes in theory["changes"](tied + every, RIGHT):
        np.testing.assert_allclose(changes, 0, atol=theory["ROUNDING"])


@pytest.mark.parametrize(
    ("slip", "least"), [(BOTTOM, 0.8), (THRESHOLD, 0.4), (OTHER_STATE, 0.4)], ids=["bottom", "threshold", "other state"]
)
def test_a_wrong_quantile_is_found_out(slip: Any, least: float, mdps: Any) -> None:
    """Measured shares: 0.85 to 0.91, 0.51 to 0.58, 0.51 to 0.60."""
    assert theory["share_worse"](theory["changes"](mdps, slip)) > least


@pytest.mark.parametrize("tau", [0.01, 0.1, 1.0, 10.0])
def test_the_boltzmann_policy_improves_soft_values(tau: float, mdps: Any) -> None:
    assert theory["share_worse"](theory["changes"](mdps, theory["boltzmann"](tau), tau, tau)) == 0


def test_the_boltzmann_policy_can_worsen_values(mdps: Any) -> None:
    """Measured shares: 0 to 0.01 at τ = 0.01, 0.49 to 0.52 at τ = 10."""
    low, high = (theory["share_worse"](theory["changes"](mdps, theory["boltzmann"](tau), tau)) for tau in (0.01, 10.0))
    assert low < 0.05
    assert high > 0.4


def test_the_bandit_of_the_docs() -> None:
    mdp = [bandit([0.9, 0.1], [1.0, 0.0])]
    e, entropy = np.e, -0.9 * np.log(0.9) - 0.1 * np.log(0.1)
    [value], [soft] = (theory["changes"](mdp, theory["boltzmann"](1.0), 1.0, counted) for counted in (0.0, 1.0))
    np.testing.assert_allclose(value, e / (1 + e) - 0.9)
    np.testing.assert_allclose(soft, np.log(1 + e) - 0.9 - entropy)
    np.testing.assert_allclose(theory["changes"](mdp, RIGHT), [[0.1]])


# 2. Sample quantiles


def test_the_theory_keeps_one_action_more_if_a_whole_number_is_kept() -> None:
    rng = np.random.default_rng(0)
    for samples in range(1, 41):
        values = rng.standard_normal(samples)
        for rho in {Fraction(part, whole) for whole in range(2, 12) for part in range(1, whole)}:
            kept = (values >= theory["sample_quantile"](values, float(rho))).sum()
            whole = (rho * samples).denominator == 1
            assert kept == ccem.elite_count(float(rho), samples) + whole


@pytest.mark.parametrize("rho", [0.1, 0.4])
def test_true_quantiles_and_densities(rho: float) -> None:
    """Against the distribution of Q(A) on a grid of equal probabilities."""
    for one in theory["sampled_values"](rho):
        values = one.value(one.policy.ppf((np.arange(10**5) + 0.5) / 10**5))
        assert (values >= one.quantile).mean() == pytest.approx(rho, abs=2e-5)
        if one.density:
            near = 0.01 / one.density
            assert (np.abs(values - one.quantile) < near).mean() / (2 * near) == pytest.approx(one.density, rel=0.02)


def test_errors_of_sample_quantiles_fall_as_they_should() -> None:
    """Exponents were −0.56 to −0.46 with a positive density, −0.19 to −0.16 without; ratios 0.91 to 1.08."""
    sizes, rho, repeats = (256, 1024, 4096), 0.2, 200
    for one in theory["sampled_values"](rho):
        errors = theory["root_mean_squares"](one, rho, sizes, repeats, 1)
        slope = theory["log_slope"](sizes, errors)
        if one.density:
            assert slope == pytest.approx(-1 / 2, abs=0.1)
            ratio = errors[-1] * one.density * np.sqrt(sizes[-1] / (rho * (1 - rho)))
            assert ratio == pytest.approx(1, abs=0.2)
        else:
            assert slope == pytest.approx(-1 / 6, abs=0.05)


@pytest.mark.parametrize("rho", SEVERAL_RHO)
def test_the_check_function(rho: float) -> None:
    rng = np.random.default_rng(0)
    grid, few = ndtri((np.arange(10**4) + 0.5) / 10**4), rng.standard_normal(10)
    assert theory["minimiser"](grid, rho) == pytest.approx(ndtri(1 - rho), abs=2e-3)
    assert theory["steepest"](few, rho, rng) == pytest.approx(max(rho, 1 - rho), abs=1e-6)
    first, second = rng.uniform(-3, 3, (2, 500))
    assert theory["convexity_gaps"](few, first, second, rho).min() > -1e-12
    at_samples = theory["mean_check"](few, few, rho)
    [least] = theory["mean_check"](few, theory["sample_quantile"](few, rho), rho)
    assert least == pytest.approx(at_samples.min(), abs=1e-12)


@pytest.mark.parametrize("samples", [10, 11])
def test_the_mean_of_check_functions_is_flat_where_no_sample_is(samples: int) -> None:
    """And its minimiser is not unique if (1−ρ)N is whole: 8 of 10, but not 8.8 of 11."""
    values = np.sort(np.random.default_rng(0).standard_normal(samples))
    np.testing.assert_allclose(theory["convexity_gaps"](values, values[:-1], values[1:], 0.2), 0, atol=1e-12)
    assert theory["convexity_gaps"](values, values[:-2], values[2:], 0.2).min() > 1e-4
    means = theory["mean_check"](values, values, 0.2)
    assert (means < means.min() + 1e-12).sum() == (2 if samples == 10 else 1)


def test_minimisers_draw_together_with_their_functions() -> None:
    """Exponents of sup|ϑ̂ − ϑ| were −0.55 to −0.45."""
    found = [theory["minimisers"](samples, 0.2, 50, 1) for samples in (16, 64, 256, 1024)]
    assert all((one.minimisers <= one.bound).all() for one in found)
    sups = np.array([one.functions.mean() for one in found])
    assert theory["log_slope"]([16, 64, 256, 1024], sups) == pytest.approx(-1 / 2, abs=0.12)


def test_beside_a_plateau_the_indicator_does_not_converge() -> None:
    """The true threshold keeps all actions, the sampled one all or a fifth, about as often: 0.59 to 0.61."""
    assert theory["plateau_share"](4000, 0.2, 1000, 1) == pytest.approx(0.6, abs=0.05)


# 3. CCEM beside its ODE

CENTRE, RADIUS, PROPOSAL, FIRST = (tracking[name] for name in ("CENTRE", "RADIUS", "PROPOSAL", "FIRST"))
STILL = np.zeros(())


@pytest.fixture(scope="module")
def target() -> Floats:
    return tracking["target_moments"](PROPOSAL, STILL)


def directions(count: int) -> Floats:
    """Random unit vectors."""
    drawn = np.random.default_rng(0).standard_normal((count, 2, 2))
    return drawn / tracking["length"](drawn)[:, None, None]


def log_partition(natural: Floats) -> Floats:
    """K of a Gaussian, less a constant."""
    return -(natural[..., 0] ** 2) / (4 * natural[..., 1]) - np.log(-2 * natural[..., 1]) / 2


def expected_log_likelihood(w: Floats, target: Floats) -> Floats:
    """Whose gradient the field has to be."""
    natural = tracking["natural_parameters"](w)
    return tracking["RHO"] * ((natural * target).sum(-1) - log_partition(natural)) @ tracking["NU"]


def test_moments_are_the_gradient_of_the_log_partition() -> None:
    natural, nudge = np.array([[0.7, -0.4], [-3.0, -12.0]]), 1e-6 * np.eye(2)
    slopes = [(log_partition(natural + one) - log_partition(natural - one)) / 2e-6 for one in nudge]
    np.testing.assert_allclose(tracking["moments"](natural), np.stack(slopes, -1), rtol=1e-7)
    np.testing.assert_allclose(tracking["gaussian"](np.array([0.5 / 0.04, -0.5 / 0.04])), [0.5, 0.2])


def test_the_field_is_the_gradient_of_the_expected_log_likelihood(target: Floats) -> None:
    for direction in directions(5):
        ahead, behind = (expected_log_likelihood(FIRST + step * direction, target) for step in (1e-6, -1e-6))
        slope = (tracking["field"](FIRST, target) * direction).sum()
        assert slope == pytest.approx((ahead - behind) / 2e-6, rel=1e-6)


def test_increments_are_the_field_on_average_but_for_a_bias_that_falls_with_samples() -> None:
    """‖g‖ is 0.59; ‖ℓ‖ was 0.042 to 0.047 at N = 30, about 1.3/N, and 0.004 to 0.005 at N = 300."""
    few, many = (tracking["length"](tracking["bias"](FIRST, PROPOSAL, samples, 3000, 1)) for samples in (30, 300))
    assert few == pytest.approx(1.3 / 30, rel=0.3)
    assert many < 0.01


def test_the_projection_is_onto_the_ball_where_policies_are_proper() -> None:
    boundary = CENTRE + RADIUS * directions(1000)
    for w in (CENTRE + 3 * (boundary - CENTRE), CENTRE + (boundary - CENTRE) / 2):
        nearest = tracking["projected"](w)
        assert (tracking["length"](nearest - CENTRE) <= RADIUS * (1 + 1e-12)).all()
        assert (
            np.einsum("ikf,jkf->ij", w - nearest, boundary) <= ((w - nearest) * nearest).sum((1, 2))[:, None] + 1e-9
        ).all()
    assert -1.5 < tracking["natural_parameters"](boundary)[..., 1].max() <= -1


@pytest.mark.parametrize("share", [0.1, 1.0], ids=["inside", "boundary"])
def test_the_right_side_of_the_ode_is_the_derivative_of_the_projection(share: float) -> None:
    target = tracking["target_moments"](tracking["FIXED"]["as in the theorem, ending on ∂W"].proposal, STILL)
    w = CENTRE + share * RADIUS * directions(200)
    push = tracking["field"](w, target)
    assert 5 < ((push * (w - CENTRE)).sum((1, 2)) > 0).sum() < 195  # lead outwards
    slope = (tracking["projected"](w + 1e-7 * push) - w) / 1e-7
    np.testing.assert_allclose(tracking["projected_field"](w, target), slope, atol=1e-4)


def test_samples_grow_by_a_percent_up_to_the_cap() -> None:
    counts = [tracking["sample_count"](step) for step in range(500)]
    assert (counts[0], counts[100], counts[-1]) == (10, 28, 400)
    assert tracking["sample_count"](10**9) == 400


@pytest.mark.parametrize("name", ["as in the theorem", "as in the theorem, ending on ∂W"])
def test_the_equilibrium_is_the_maximum_and_the_ode_ends_there(name: str) -> None:
    target = tracking["target_moments"](tracking["FIXED"][name].proposal, STILL)
    end = tracking["equilibrium"](target)
    outside = tracking["length"](end - CENTRE) > RADIUS - 1e-9
    assert outside == name.endswith("∂W")
    assert tracking["length"](tracking["projected_field"](end, target)) < 1e-8
    others = tracking["projected"](end + 0.05 * directions(100))
    assert (expected_log_likelihood(others, target) < expected_log_likelihood(end, target)).all()
    starts = CENTRE + 0.9 * RADIUS * directions(4)
    last = tracking["ode"](starts, np.array([0.0, 300.0]), target)[-1]
    np.testing.assert_allclose(last, np.broadcast_to(end, last.shape), atol=1e-4)


def test_the_recursion_follows_the_ode() -> None:
    """From t = 0, 100 and 1,000 the mean sup distances were 0.178 to 0.208, 0.071 to 0.084 and 0.024 to 0.031."""
    found = tracking["follow"](tracking["FIXED"]["as in the theorem"], 1700, 10, 1)
    first, second, third = (tracking["tracking_errors"](found, start).mean() for start in (0, 100, 1000))
    assert first > 1.5 * second
    assert second > 2 * third
    assert third < 0.04


def test_it_does_so_along_the_boundary() -> None:
    """There, the mean sup distance from t = 1,000 was 0.023 to 0.027."""
    found = tracking["follow"](tracking["FIXED"]["as in the theorem, ending on ∂W"], 1700, 10, 1)
    assert tracking["length"](found.actor[1000:] - CENTRE).mean() > RADIUS - 0.01
    assert tracking["tracking_errors"](found, 1000).mean() < 0.04


def test_dividing_by_the_kept_actions_changes_the_step_size_only() -> None:
    """They are as many in every state: 31 of 100."""
    rng, per_elite = np.random.default_rng(0), tracking["Setting"](per_elite=True)
    drawn = np.arange(5), rng.standard_normal((5, 100)), 0.0
    plain, divided = (tracking["increment"](FIRST, PROPOSAL, *drawn, *how) for how in ((), (per_elite,)))
    np.testing.assert_allclose(divided * 31, plain * 100)


def test_the_recursion_ends_near_the_equilibrium_and_with_the_bottom_far_from_it() -> None:
    """After 1,700 steps mean distances were 0.028 to 0.041, and 0.919 to 0.923."""
    near, far = (
        tracking["equilibrium_distances"](tracking["follow"](tracking["FIXED"][name], 1700, 10, 2), np.array([1700]))
        for name in ("as in the theorem", "bottom ρ instead of the top")
    )
    assert near.mean() < 0.06
    assert far.mean() > 0.8


def test_the_actor_stays_near_the_moving_equilibrium_only_if_timescales_differ() -> None:
    """Mean distances at these steps: 0.07 to 0.12 with three timescales; 0.34 to 0.50 if θ is as fast as w."""
    late = np.array([1000, 1200, 2800, 3000])
    near, far = (
        tracking["equilibrium_distances"](tracking["follow"](tracking["MOVING"][name], 3000, 6, 1), late).mean(1)
        for name in ("three timescales", "θ as fast as w")
    )
    assert near.max() < 0.16
    assert far.min() > 0.28


# The page


def test_the_page_has_every_table_and_that_of_improvements_is_what_the_script_makes() -> None:
    text = theory["DOCUMENT"].read_text()
    names = [name for _, name, _, _ in theory["BLOCK"].findall(text)]
    assert names[:6] == ["improvement", "quantiles", "lemmas", "tracking", "equilibria", "bias"]
    rng = np.random.default_rng(0)
    table = theory["improvement_table"]([theory["random_mdp"](rng) for _ in range(theory["MDPS"])])
    assert theory["filled"](text, {"improvement": table}) == text
