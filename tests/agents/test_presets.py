"""The paper's settings, typed from its tables once more: environment or agent, then κ, α, τ."""

from typing import Any

import pytest
from helpers.controls import CONTROL

from greedyac.agents import make_agent
from greedyac.agents.presets import PRESETS, preset

AGENTS = {"GreedyAC": "greedy-ac", "VanillaAC": "vanilla-ac", "SAC": "sac"}
PER_ENVIRONMENT = """
GreedyAC   Acrobot-CA      1e-1  1e-3  1e-2
GreedyAC   Acrobot-DA      1e-1  1e-2  -
GreedyAC   MountainCar-CA  1.0   1e-3  10.0
GreedyAC   MountainCar-DA  2.0   1e-3  -
GreedyAC   Pendulum-CA     1e-1  1e-2  10.0
GreedyAC   Pendulum-DA     1.0   1e-3  -
VanillaAC  Acrobot-CA      2.0   1e-3  1e-3
VanillaAC  Acrobot-DA      1e-1  1e-2  1e-2
VanillaAC  MountainCar-CA  2.0   1e-3  1e-3
VanillaAC  MountainCar-DA  1.0   1e-3  1e-2
VanillaAC  Pendulum-CA     1e-2  1e-2  1e-2
VanillaAC  Pendulum-DA     2.0   1e-3  1.0
SAC        Acrobot-CA      10.0  1e-5  10.0
SAC        Acrobot-DA      2.0   1e-5  10.0
SAC        MountainCar-CA  1.0   1e-3  1e-3
SAC        MountainCar-DA  1.0   1e-3  1e-2
SAC        Pendulum-CA     1e-1  1e-2  1e-1
SAC        Pendulum-DA     1.0   1e-3  1.0
"""
ACROSS = """
GreedyAC   CA  1.0   1e-3  1e-3
VanillaAC  CA  2.0   1e-3  1e-3
SAC        CA  1.0   1e-3  1e-3
GreedyAC   DA  10.0  1e-3  -
VanillaAC  DA  1e-1  1e-3  1e-2
SAC        DA  10    1e-5  10
"""
PUBLISHED = {
    "greedy-ac": {"proposal_policy": "gaussian", "entropy_estimator": "released", "discrete_critic": "index"},
    "vanilla-ac": {"entropy_estimator": "released", "discrete_critic": "index"},
    "sac": {"soft_target": "released", "discrete_critic": "index"},
}


def rows(table: str) -> dict[tuple[str, str], tuple[str, ...]]:
    words = [line.split() for line in table.strip().splitlines()]
    return {(AGENTS[agent], place): tuple(numbers) for agent, place, *numbers in words}


@pytest.mark.parametrize("name", ["paper", "paper-across"])
@pytest.mark.parametrize("agent", AGENTS.values())
@pytest.mark.parametrize("env", CONTROL)
def test_a_preset_is_the_papers_row_with_the_published_codes_choices(name: str, agent: str, env: str) -> None:
    kappa, alpha, tau = rows(PER_ENVIRONMENT)[agent, env] if name == "paper" else rows(ACROSS)[agent, env[-2:]]
    expected = {"actor_step_size_scale": float(kappa), "critic_step_size": float(alpha), **PUBLISHED[agent]}
    if tau != "-":
        expected["entropy_scale"] = float(tau)
    assert preset(name, agent, env) == expected
    make_agent(agent, expected)  # every name and value is one that the agent takes


LARGER: dict[tuple[str, str], dict[str, Any]] = {
    ("greedy-ac", "MinAtar-Breakout"): {},
    ("greedy-ac", "MinAtar-Freeway"): {},
    ("sac", "MinAtar-Breakout"): {"entropy_scale": 1e-3},
    ("sac", "MinAtar-Freeway"): {"entropy_scale": 1e-3},
    ("greedy-ac", "Swimmer-v5"): {
        "critic_step_size": 1e-4, "actor_step_size_scale": 1e-2, "entropy_scale": 0.1,
        "hidden": (256, 256), "batch_size": 100,
    },
}  # fmt: skip


@pytest.mark.parametrize(("agent", "env"), LARGER)
def test_the_larger_worlds_have_the_settings_of_the_papers_scaling_section(agent: str, env: str) -> None:
    common = {"critic_step_size": 1e-3, "actor_step_size_scale": 1.0, "replay_capacity": 1_000_000}
    expected = {**common, **PUBLISHED[agent], "discrete_critic": "heads", **LARGER[agent, env]}
    assert preset("paper", agent, env) == expected


def test_presets_cover_three_agents_on_six_environments_and_the_larger_worlds() -> None:
    assert {name: len(table) for name, table in PRESETS.items()} == {"paper": 18 + len(LARGER), "paper-across": 18}
