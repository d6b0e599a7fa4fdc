"""`greedyac ccem`: the paper's Figure 1, its numbers, and the functions that it can be drawn for."""

import itertools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from greedyac.ccem.formula import FUNCTIONS, function_of
from greedyac.ccem.illustration import Illustration, gaussian_updates, uniform_updates
from greedyac.cli import main
from greedyac.core.errors import InputError
from greedyac.video.conditional_cem import Story, film, picture

ACTIONS = np.linspace(-1, 1, 2001)


def test_uniform_policies_by_hand() -> None:
    """On f(a) = a the best fifth of [l, u] is [u − (u − l)/5, u]."""
    told = Illustration(elite_fraction=0.2, actor_rate=0.5, proposal_rate=0.25)
    first, second, third = itertools.islice(uniform_updates(ACTIONS, ACTIONS, told), 3)
    np.testing.assert_array_equal([first.actor, first.proposal], [[-1, 1], [-1, 1]])
    np.testing.assert_allclose(first.threshold, 0.6, atol=2e-3)
    np.testing.assert_allclose(first.target[[0, -1]], [0.6, 1], atol=2e-3)
    np.testing.assert_allclose(second.actor, [-0.2, 1], atol=2e-3)
    np.testing.assert_allclose(second.proposal, [-0.6, 1], atol=2e-3)
    np.testing.assert_allclose(second.threshold, 1 - 1.6 / 5, atol=2e-3)
    np.testing.assert_allclose(third.actor, [(-0.2 + 0.68) / 2, 1], atol=2e-3)
    np.testing.assert_allclose(third.proposal, [-0.6 + 0.25 * (0.68 + 0.6), 1], atol=2e-3)


def test_a_target_can_have_two_parts_and_ends_on_the_higher_peak() -> None:
    values = np.asarray(function_of("two-peaks")(jnp.asarray(ACTIONS)), float)
    updates = list(itertools.islice(uniform_updates(ACTIONS, values, Illustration()), 25))
    gaps = np.diff(updates[0].target)
    assert (gaps > 0.1).sum() == 1  # both peaks
    share = len(updates[0].target) / len(ACTIONS)
    np.testing.assert_allclose(share, 0.2, atol=1e-3)
    for earlier, later in itertools.pairwise(updates):
        assert later.threshold >= earlier.threshold
        assert np.ptp(later.actor) < np.ptp(earlier.actor)
        assert np.ptp(later.actor) < np.ptp(later.proposal)  # the actor is faster
    np.testing.assert_allclose(updates[-1].actor, 0.5, atol=0.05)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (300.0, 700.0)])
def test_gaussian_policies_concentrate_on_the_best_action(low: float, high: float) -> None:
    middle, half = (low + high) / 2, (high - low) / 2
    told = gaussian_updates(
        lambda action: -(((action - middle) / half - 0.5) ** 2), low, high, Illustration(), updates=150, seed=0
    )
    assert told.sampled.shape == (150, 30)
    assert told.elite.shape == (150, 6)
    assert (told.actor_mean[0], told.actor_deviation[0], told.proposal_deviation[0]) == (middle, half, half)
    assert low <= told.sampled.min() < told.sampled.max() <= high
    assert (told.proposal_deviation[50:] > told.actor_deviation[50:]).all()
    np.testing.assert_allclose((told.actor_mean[-1] - middle) / half, 0.5, atol=0.05)
    assert told.actor_deviation[-1] < 0.15 * half
    better = -np.abs((told.sampled - middle) / half - 0.5)
    np.testing.assert_allclose(  # the elite are the best of the samples, best first
        -np.abs((told.elite - middle) / half - 0.5), np.sort(better)[:, ::-1][:, :6], atol=1e-6
    )


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("a", 0.5),
        ("slope", 0.5),
        ("2*a**2 - 1/4", 0.25),
        ("-a + (+3)", 2.5),
        ("max(a, 0.75, -a)", 0.75),
        ("min(a, 2)", 0.5),
        ("exp(log(a)) + cos(0*a) + sin(pi*a)", 2.5),
        ("sqrt(a*a) + abs(-a) + tanh(0*a)", 1.0),
        (" a ", 0.5),
        ("0*a + 2**-1", 0.5),
    ],
)
def test_formulas(formula: str, expected: float) -> None:
    values = function_of(formula)(jnp.full((2, 3), 0.5))
    assert values.shape == (2, 3)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_named_functions_are_finite_on_their_range(name: str) -> None:
    values = np.asarray(function_of(name)(jnp.asarray(ACTIONS)))
    assert np.isfinite(values).all()
    assert np.ptp(values) > 0.5


@pytest.mark.parametrize(
    "formula",
    ["", "1", "a +", "b", "a.real", "open('x')", "__import__('os')", "a if a else a", "[a]", "exp(a, a)", "a == a",
     "exp()", "lambda a: a", "a and 1", "'a' * 3", "True*a", "max(a, key=a)", "a[0]",
     "a*1" + "0" * 400, "a" + "+a" * 3000],
)  # fmt: skip
def test_what_is_not_a_formula_is_refused(formula: str) -> None:
    with pytest.raises(InputError, match="function") as error:
        function_of(formula)
    assert "two-peaks" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_function_close_to_a_known_one_is_suggested() -> None:
    with pytest.raises(InputError, match="did you mean 'two-peaks'"):
        function_of("two-peak")


def story(updates: int) -> Story:
    told = Illustration()
    function = function_of("needle")
    values = np.asarray(function(jnp.asarray(ACTIONS)), float)
    uniform = list(itertools.islice(uniform_updates(ACTIONS, values, told), 8))
    return Story("needle", told, ACTIONS, values, uniform, gaussian_updates(function, -1, 1, told, updates, 0))


def test_the_picture_shows_what_was_computed() -> None:
    told = story(5)
    figure = picture(told)
    *uniform, gaussian = figure.axes
    assert [panel.get_title("left") for panel in uniform] == ["update 1", "update 2", "update 4", "update 8"]
    lines = {line.get_label(): np.asarray(line.get_xdata()) for line in gaussian.lines}
    np.testing.assert_array_equal(lines["actor"], told.gaussians.actor_mean)
    np.testing.assert_array_equal(lines["proposal"], told.gaussians.proposal_mean)
    np.testing.assert_allclose(lines["best action"], 0.8, atol=1e-3)
    edges = [patch.get_path().get_extents() for patch in uniform[2].patches]  # target, proposal, actor
    for extent, policy in zip(edges[1:], (told.uniform[3].proposal, told.uniform[3].actor), strict=True):
        np.testing.assert_allclose([extent.x0, extent.x1], policy)


@pytest.mark.parametrize("updates", [1, 7, 130])
def test_a_film_has_a_frame_for_every_update_but_no_more_than_a_hundred(updates: int) -> None:
    frames = list(film(story(updates), height=100))
    assert len(frames) == min(updates, 100) + 15
    assert len({frame.shape for frame in frames}) == 1
    moving = sum((first != second).any() for first, second in itertools.pairwise(frames))
    assert moving == min(updates, 100) - 1


def test_the_command_writes_all_files_and_keeps_an_older_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["ccem", "--out", str(tmp_path / "new"), "--updates", "4", "--function", "-a**2", "--low", "-2"]
    assert main(call) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["ccem.gif", "ccem.pdf", "ccem.png"]
    assert "ccem.gif" in capsys.readouterr().out
    with Image.open(tmp_path / "new/ccem.gif") as gif:
        assert getattr(gif, "n_frames", 1) >= 4
    before = (tmp_path / "new/ccem.png").read_bytes()
    assert main([*call, "--function", "slope"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "new/ccem.png").read_bytes() == before
    assert main([*call, "--overwrite", "--elite-fraction", "0.5"]) == 0
    assert (tmp_path / "new/ccem.png").read_bytes() != before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--elite-fraction", "1.2"], "elite_fraction = 1.2 is not allowed; allowed: > 0 and < 1"),
        (["--proposal-samples", "0"], "proposal_samples = 0 is not allowed"),
        (["--low", "1", "--high", "-1"], "--low 1 and --high -1 are not allowed; allowed: low < high, as float32"),
        (["--function", "log(a)"], "function 'log(a)' is nan at a = -1; allowed: finite numbers"),
        (["--function", "2peaks"], "function '2peaks' is not allowed; allowed: two-peaks"),
        (["--entropy-estimator", "exakt"], "did you mean 'exact'?"),
        (["--actor-rate", "0"], "actor_rate = 0 is not allowed"),
        (["--low", "x"], "'x' is not allowed; allowed: a number between -1e30 and 1e30"),
        (["--seed", "-3"], "seed = -3 is not allowed"),
        (["--taus", "3"], "unknown option '--taus'"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], message: str
) -> None:
    assert main(["ccem", "--out", str(tmp_path / "new"), *given]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not (tmp_path / "new").exists()
