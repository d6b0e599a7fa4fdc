"""Comparison of agents: numbers that can be found by hand, and what is left out with a note."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from helpers.synthetic import Told, fill, grid_study

from greedyac.analysis.compare import Comparison, compare, differences
from greedyac.analysis.load import load
from greedyac.analysis.scores import Scale, Scales, paper_scales
from greedyac.analysis.select import By, Choice, Reported, choose, reported
from greedyac.training.config import Run

AS_IT_IS = Scale(0.0, 1.0)
PLAIN: Scales = {"Pendulum-CA": AS_IT_IS, "Acrobot-CA": AS_IT_IS, "Pendulum-DA": AS_IT_IS}


def report(
    agent: str,
    values: Sequence[float] | dict[int, float],
    env: str = "Pendulum-CA",
    by: By = "env",
    kind: str = "continuous",
    optimistic: bool = False,
) -> Reported:
    """The report of an agent with these values on seeds 0, 1, …, or on those that are named; twice that in the end."""
    by_seed = values if isinstance(values, dict) else dict(enumerate(values))
    runs = pl.DataFrame(
        {"seed": list(by_seed), "value": list(by_seed.values())}, {"seed": pl.Int64, "value": pl.Float64}
    ).with_columns(final_value=2 * pl.col("value"))
    choice = Choice(by, agent, kind, (env,), "0", "", {}, 0.0, 2, 0, 0, (0,), pl.DataFrame())
    return Reported(choice, env, runs, runs.height, not optimistic, optimistic)


def only(reports: Sequence[Reported], scales: Scales = PLAIN) -> Comparison:
    [found], notes = compare(reports, scales)
    assert notes == []
    return found


def test_interquartile_means_and_their_difference() -> None:
    """Of eight runs the middle four count: 2, 3, 4, 7 and 1, 1, 2, 2."""
    one, two = [0.0, 7.0, 1.0, 9.0, 2.0, 8.0, 3.0, 4.0], [-90.0, 2.0, 1.0, 1.0, 2.0, 99.0, 0.0, 3.0]
    found = only([report("sac", one), report("greedy-ac", two)])
    assert (found.by, found.kind, found.envs, found.runs) == ("env", "continuous", ("Pendulum-CA",), {"Pendulum-CA": 8})
    assert {agent: told.estimate for agent, told in found.means.items()} == {"sac": 4.0, "greedy-ac": 1.5}
    [pair] = found.pairs
    assert (pair.first, pair.second, pair.difference.estimate) == ("sac", "greedy-ac", 2.5)
    for told in (*found.means.values(), pair.difference, pair.improvement):
        assert told.low < told.estimate < told.high
    [other] = only([report("greedy-ac", two), report("sac", one)]).pairs
    assert (other.first, other.difference.estimate) == ("greedy-ac", -2.5)
    assert other.improvement.estimate == pytest.approx(1 - pair.improvement.estimate)


def test_the_mean_is_over_all_environments_runs_together_and_scores_are_scaled() -> None:
    """Scores 0, 1, 2, 9 and 10, 11, 12, 13: the middle four are 2, 9, 10, 11."""
    scales = {"Pendulum-CA": Scale(100.0, 10.0), "Acrobot-CA": Scale(-50.0, 5.0)}
    reports = [
        report("sac", [100.0, 110.0, 120.0, 190.0]),
        report("sac", [0.0, 5.0, 10.0, 15.0], "Acrobot-CA"),
        report("greedy-ac", [100.0] * 4),
        report("greedy-ac", [-50.0] * 4, "Acrobot-CA"),
    ]
    found = only(reports, scales)
    assert found.envs == ("Pendulum-CA", "Acrobot-CA")
    assert (found.means["sac"].estimate, found.means["greedy-ac"].estimate) == (8.0, 0.0)
    assert found.pairs[0].difference.estimate == 8.0
    assert found.pairs[0].improvement.estimate == (14 / 16 + 1) / 2  # of the 16 pairs on the first, 12 and 4 ties


@pytest.mark.parametrize(("shift", "better"), [(10.0, 0.0), (-10.0, 1.0), (0.0, 0.5)])
def test_the_probability_of_improvement_of_dominated_and_equal_agents(shift: float, better: float) -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    [pair] = only([report("sac", values), report("greedy-ac", [value + shift for value in values])]).pairs
    assert pair.improvement.estimate == better
    assert pair.difference.estimate == pair.difference.low == pair.difference.high == -shift
    if shift:
        assert pair.improvement == (better, better, better)


def test_each_environment_counts_the_same_for_the_probability_of_improvement() -> None:
    """Better in all of eight runs, worse in both of two."""
    reports = [
        report("sac", [1.0] * 8),
        report("sac", [0.0] * 2, "Acrobot-CA"),
        report("greedy-ac", [0.0] * 8),
        report("greedy-ac", [1.0] * 2, "Acrobot-CA"),
    ]
    found = only(reports)
    assert found.pairs[0].improvement.estimate == 0.5
    assert found.runs == {"Pendulum-CA": 8, "Acrobot-CA": 2}


def test_every_pair_of_agents_is_compared_once() -> None:
    found = only([report(agent, [float(place)] * 4) for place, agent in enumerate("abc")])
    assert [(pair.first, pair.second, pair.difference.estimate) for pair in found.pairs] == [
        ("a", "b", -1.0),
        ("a", "c", -2.0),
        ("b", "c", -1.0),
    ]
    assert [one.agent for one in found.profiles] == list(found.means) == ["a", "b", "c"]


def test_only_seeds_that_all_agents_have_are_used() -> None:
    one, two = {0: 1e6, 1: 5.0, 2: 7.0, 3: 1e6}, {2: 1.0, 1: 2.0, 4: -1e6}
    found = only([report("sac", one), report("greedy-ac", two)])
    assert found.runs == {"Pendulum-CA": 2}
    assert {agent: told.estimate for agent, told in found.means.items()} == {"sac": 6.0, "greedy-ac": 1.5}
    with_third = only([report("sac", one), report("greedy-ac", two), report("third", {2: 0.0, 3: 0.0, 1: 0.0})])
    assert with_third.runs == {"Pendulum-CA": 2}
    with_fourth = only([report("sac", one), report("third", {2: 0.0, 3: 0.0})])
    assert (with_fourth.runs, with_fourth.means["sac"].estimate) == ({"Pendulum-CA": 2}, (7.0 + 1e6) / 2)


def test_runs_of_the_same_seed_are_resampled_together() -> None:
    """Their difference is 1 for each seed, so it is in every resample, in whatever order the rows are."""
    one = {seed: float(seed * seed) for seed in range(8)}
    two = {seed: one[seed] - 1 for seed in reversed(range(8))}
    [pair] = only([report("sac", one), report("greedy-ac", two)]).pairs
    assert pair.difference == (1.0, 1.0, 1.0)


def test_an_environment_that_an_agent_lacks_is_left_out_with_a_note() -> None:
    reports = [
        report("sac", [1.0, 2.0]),
        report("sac", [1e6, 1e6], "Acrobot-CA", optimistic=True),
        report("greedy-ac", [3.0, 4.0]),
    ]
    [found], notes = compare(reports, PLAIN)
    assert notes == ["Acrobot-CA is not in the comparison of sac, greedy-ac: not all of them have results there"]
    assert (found.envs, found.means["sac"].estimate) == (("Pendulum-CA",), 1.5)
    assert not found.optimistic  # what is left out does not count


def test_one_common_seed_is_not_enough() -> None:
    note = "Pendulum-CA is not in the comparison of sac, greedy-ac: they have one seed in common there"
    assert compare([report("sac", [1.0, 2.0]), report("greedy-ac", {1: 1.0, 2: 2.0})], PLAIN) == ([], [note])


def test_an_environment_without_common_seeds_is_left_out_with_a_note() -> None:
    reports = [
        report("sac", {0: 1.0, 1: 2.0}),
        report("greedy-ac", {2: 1.0, 3: 2.0}),
        *(report(agent, [1.0, 2.0], "Acrobot-CA") for agent in ("sac", "greedy-ac")),
    ]
    note = "Pendulum-CA is not in the comparison of sac, greedy-ac: they have no seed in common there"
    [found], notes = compare(reports, PLAIN)
    assert (found.envs, found.runs, notes) == (("Acrobot-CA",), {"Acrobot-CA": 2}, [note])
    assert compare(reports[:2], PLAIN) == ([], [note])


def test_an_environment_without_a_score_is_left_out_with_a_note() -> None:
    reports = [
        report(agent, [1.0, 2.0], env) for agent in ("sac", "greedy-ac") for env in ("Pendulum-CA", "Acrobot-CA")
    ]
    note = "Acrobot-CA is not in the comparison of agents: no score is defined there"
    for scales in ({"Pendulum-CA": AS_IT_IS, "Acrobot-CA": None}, {"Pendulum-CA": AS_IT_IS}):
        [found], notes = compare(reports, scales)
        assert (found.envs, notes) == (("Pendulum-CA",), [note])


def test_one_agent_is_not_compared_and_kinds_and_ways_of_choosing_are_not_mixed() -> None:
    assert compare([], PLAIN) == compare([report("sac", [1.0])], PLAIN) == ([], [])
    reports = [
        *(report(agent, [1.0, 2.0]) for agent in ("sac", "greedy-ac")),
        *(report(agent, [3.0, 4.0], "Pendulum-DA", kind="discrete") for agent in ("sac", "greedy-ac")),
        *(report(agent, [5.0, 6.0], by="kind") for agent in ("sac", "vanilla-ac")),
        report("sac", [5.0, 6.0], "Pendulum-DA", "kind", "discrete"),
    ]
    found, notes = compare(reports, PLAIN)
    assert notes == []
    assert [(one.by, one.kind, one.envs, *one.means) for one in found] == [
        ("env", "continuous", ("Pendulum-CA",), "sac", "greedy-ac"),
        ("env", "discrete", ("Pendulum-DA",), "sac", "greedy-ac"),
        ("kind", "continuous", ("Pendulum-CA",), "sac", "vanilla-ac"),
    ]
    assert [one.means["sac"].estimate for one in found] == [1.5, 3.5, 5.5]


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
def test_a_comparison_with_an_optimistic_report_is_optimistic(flags: tuple[bool, bool]) -> None:
    reports = [report(agent, [1.0, 2.0], optimistic=flag) for agent, flag in zip(("a", "b"), flags, strict=True)]
    assert only(reports).optimistic == any(flags)


def test_profiles_are_shares_of_runs_above_thresholds() -> None:
    """From 0 to 100 there is a threshold at every whole number."""
    reports = [report("low", [0.0, 1.0, 2.0, 3.0]), report("high", [50.0, 100.0, 100.0, 100.0])]
    low, high = only(reports).profiles
    np.testing.assert_allclose(low.thresholds, np.arange(101.0))
    np.testing.assert_array_equal(low.thresholds, high.thresholds)
    assert low.share[:5].tolist() == [0.75, 0.5, 0.25, 0.0, 0.0]
    assert high.share[[0, 49, 50, 99, 100]].tolist() == [1.0, 1.0, 0.75, 0.75, 0.0]
    for one in (low, high):
        assert (np.diff(one.share) <= 0).all()
        assert (np.diff(one.low) <= 0).all()
        assert (np.diff(one.high) <= 0).all()
        assert ((one.low <= one.share) & (one.share <= one.high)).all()
    assert low.low[1] < 0.5 < low.high[1]


def test_each_environment_counts_the_same_in_a_profile() -> None:
    reports = [
        *(report(agent, [0.0] * 6 + [100.0] * 2) for agent in ("a", "b")),
        *(report(agent, [100.0] * 2, "Acrobot-CA") for agent in ("a", "b")),
    ]
    for one in only(reports).profiles:
        assert one.share[50] == (0.25 + 1) / 2


def test_agents_of_a_store_are_compared_by_the_papers_score(tmp_path: Path) -> None:
    """greedy-ac scores 8 / 10 on Pendulum and 2 - 12 / 10 on Acrobot, sac 5 / 10 and 2 - 15 / 10."""
    values = {("greedy-ac", "Pendulum-CA"): 8.0, ("sac", "Pendulum-CA"): 5.0}
    values |= {("greedy-ac", "Acrobot-CA"): -12.0, ("sac", "Acrobot-CA"): -15.0}

    def told(run: Run) -> Told:
        poor = 1.0 if run.config.hypers["critic_step_size"] == 1e-2 else 0.0
        best = 10.0 if run.config.env == "Pendulum-CA" else -10.0
        return Told(values[run.config.agent, run.config.env] - poor, best)

    sweep = "critic_step_size = [1e-3, 1e-2]"
    for tuning, counts in (("0-1", 4), ("0-5", 6)):
        folder = tmp_path / tuning
        fill(folder, grid_study(envs=("Pendulum-CA", "Acrobot-CA"), seeds="0-5", tuning=tuning, sweep=sweep), told)
        results = load(folder)
        found = only(reported(results, choose(results, "kind")[0]), paper_scales(results.runs, "store"))
        assert found.runs == {"Acrobot-CA": counts, "Pendulum-CA": counts}
        assert found.optimistic == (tuning == "0-5")
        means = {agent: told.estimate for agent, told in found.means.items()}
        assert means == pytest.approx({"greedy-ac": 0.8, "sac": 0.5})
        assert found.pairs[0].improvement == (1.0, 1.0, 1.0)


def test_an_agent_on_other_environments_does_not_spoil_the_comparison() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    reports = [report(agent, values, env) for agent in ("greedy-ac", "sac") for env in ("Pendulum-CA", "Acrobot-CA")]
    [found], notes = compare(
        [*reports, report("vanilla-ac", values, "MountainCar-CA")], {**PLAIN, "MountainCar-CA": AS_IT_IS}
    )
    assert (set(found.means), set(found.envs)) == ({"greedy-ac", "sac"}, {"Pendulum-CA", "Acrobot-CA"})
    assert len(notes) == 1
    assert notes[0].startswith("vanilla-ac is not in the comparison with greedy-ac, sac")


def test_agents_that_share_one_environment_are_compared_there() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    places = {"greedy-ac": ("Pendulum-CA", "Acrobot-CA"), "sac": ("Acrobot-CA", "MountainCar-CA")}
    reports = [report(agent, values, env) for agent, envs in places.items() for env in envs]
    [found], notes = compare(reports, {**PLAIN, "MountainCar-CA": AS_IT_IS})
    assert found.envs == ("Acrobot-CA",)
    assert len(notes) == 2


# Differences on each environment


def test_differences_by_hand() -> None:
    """Paired: whatever is drawn, the first is 3 above on every seed but one, and there 1 below."""
    one = report("sac", {4: 13.0, 0: 4.0, 1: 5.0, 2: 6.0, 3: 7.0})
    two = report("greedy-ac", {0: 1.0, 1: 2.0, 2: 3.0, 3: 8.0, 9: 99.0})
    [found] = differences([one, two])
    assert (found.by, found.env, found.first, found.second) == ("env", "Pendulum-CA", "sac", "greedy-ac")
    assert (found.runs, found.optimistic) == (4, False)
    assert found.average_return == (2.0, 0.0, 3.0)  # the odd seed is drawn 3 times in 5 %, 4 times in 0.4 %
    assert found.final_return == (4.0, 0.0, 6.0)
    assert found.improvement.estimate == (3 + 3 + 3 + 3) / 16
    [turned] = differences([two, one])
    assert turned.average_return == (-2.0, -3.0, 0.0)


def test_differences_are_of_every_two_agents_on_every_environment_and_way_of_choosing() -> None:
    values = [1.0, 2.0]
    reports = [report(agent, values, env) for env in ("Pendulum-CA", "Acrobot-CA") for agent in ("a", "b", "c")]
    reports += [report(agent, values, by="kind", optimistic=True) for agent in ("a", "b")]
    found = [(one.by, one.env, one.first, one.second, one.optimistic) for one in differences(reports)]
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    expected = [("env", env, *pair, False) for env in ("Pendulum-CA", "Acrobot-CA") for pair in pairs]
    assert found == [*expected, ("kind", "Pendulum-CA", "a", "b", True)]


def test_there_is_no_difference_without_two_common_seeds_and_none_of_final_returns_that_are_missing() -> None:
    assert differences([report("a", {0: 1.0, 1: 1.0}), report("b", {1: 1.0, 2: 1.0})]) == []
    blank = report("a", [1.0, 3.0])
    blank = blank._replace(runs=blank.runs.with_columns(final_value=pl.Series([None, 1.0])))
    [found] = differences([blank, report("b", [0.0, 0.0])])
    assert (found.average_return.estimate, found.final_return) == (2.0, None)
