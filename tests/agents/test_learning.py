"""Agents learn: with the paper's presets, eight seeds each, at once on all cores.

Which seeds learn, and when, depends on rounding and so on the type of processor: what is asserted is how many of the
eight reach a return, with a margin below what was measured. Final returns are means over the steps of the last tenth of
training; a run at −1,000 has not reached the goal in it.
"""

from typing import Any, NamedTuple

import pytest

import greedyac


class Case(NamedTuple):
    """What is trained for how long, a return that learned runs reach, and how many seeds must reach it."""

    agent: str
    env: str
    steps: int
    learned: float
    seeds: int
    options: tuple[tuple[str, Any], ...] = ()


TRUNCATED = (("proposal_policy", "truncated-gaussian"), ("entropy_estimator", "exact"))
QUICK = [  # with the final returns measured
    Case("sac", "Pendulum-CA", 20_000, 850.0, 7),  # 920, 920, 919, 918, 918, 917, 916, 890
]
SLOW = [  # likewise; in brackets, how many of 30 kept runs got there: on another processor a seed ends elsewhere
    Case("greedy-ac", "Pendulum-CA", 25_000, 600.0, 6, TRUNCATED),  # 862, 821, 793, 771, 752, 750, 717, 677
    Case("greedy-ac", "Pendulum-DA", 25_000, 800.0, 6),  # 921, 920, 916, 914, 907, 897, 885, 808
    Case("greedy-ac", "Pendulum-CA", 25_000, 500.0, 5),  # 894, 876, 868, 829, 785, 549, 535, 159
    Case("sac", "Pendulum-DA", 25_000, 700.0, 7),  # 887, 878, 874, 860, 839, 830, 820, 727
    Case("greedy-ac", "MountainCar-CA", 60_000, -200.0, 4),  # −94, −99, −128, −149, −167, −340, −1,000, −1,000 (27)
    Case("greedy-ac", "MountainCar-DA", 40_000, -200.0, 3),  # −145, −149, −150, −151, −161, −581, −996, −1,000
    Case("greedy-ac", "Acrobot-CA", 60_000, -200.0, 2),  # −90, −96, −100, −101, −103, −192, −251, −1,000 (21)
    Case("greedy-ac", "Acrobot-DA", 60_000, -200.0, 4),  # −87, −91, −94, −94, −96, −96, −131, −344 (24)
    Case("vanilla-ac", "Acrobot-DA", 40_000, -200.0, 5),  # −79, −81, −86, −89, −89, −93, −101, −1,000
    Case("vanilla-ac", "Pendulum-CA", 40_000, 0.0, 6),  # 906, 868, 845, 306, 290, 253, 146, 81 (28); random: −782
]
NEAR_OPTIMAL = {
    "Pendulum-CA": 933.6, "Pendulum-DA": 933.6, "MountainCar-CA": -65, "MountainCar-DA": -83,
    "Acrobot-CA": -56, "Acrobot-DA": -56,
}  # fmt: skip


CASES = [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.agent}-{case.env}")
def test_an_agent_learns_with_the_papers_settings(case: Case) -> None:
    result = greedyac.train(
        case.agent, case.env, preset="paper", seeds=range(8), steps=case.steps, **dict(case.options)
    )
    finals = result.curves["final_return"].to_list()
    assert result.curves["status"].to_list() == ["done"] * 8
    assert sum(final is not None and final >= case.learned for final in finals) >= case.seeds, sorted(finals)
    best = max(result.curves["best_return"].to_list())
    assert best <= NEAR_OPTIMAL[case.env]  # better than possible would be a wrong task


GAMES = [  # with the final returns of GreedyAC measured; those of random actions, eight seeds: up to 1.02, and up to 1
    ("MinAtar-Breakout", 12_000, 3.0, 4),  # 5.8, 5.6, 5.2, 5.0
    ("MinAtar-Freeway", 15_000, 10.0, 2),  # 22, 19, 15, 12, 1, 1: some have not yet found the other side
]


@pytest.mark.slow
@pytest.mark.parametrize(("env", "steps", "learned", "seeds"), GAMES)
def test_greedy_ac_beats_random_actions_on_minatar(env: str, steps: int, learned: float, seeds: int) -> None:
    random, greedy = (
        greedyac.train(agent, env, seeds=range(4), steps=steps).curves for agent in ("random", "greedy-ac")
    )
    assert max(random["final_return"]) < learned / 2
    assert sum(final >= learned for final in greedy["final_return"]) >= seeds, greedy["final_return"].to_list()
