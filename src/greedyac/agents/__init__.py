"""What learns: the agents, by name."""

from collections.abc import Mapping
from typing import cast

from greedyac.agents.agent import Agent, Metrics
from greedyac.agents.greedy_ac import GreedyAC
from greedyac.agents.random import Random
from greedyac.agents.sac import SAC
from greedyac.agents.vanilla_ac import VanillaAC
from greedyac.errors import unknown
from greedyac.hypers import checked

__all__ = ["AGENTS", "SAC", "Agent", "GreedyAC", "Metrics", "Random", "VanillaAC", "find_agent", "make_agent"]

AGENTS: dict[str, type[Agent]] = {agent.name: cast(type[Agent], agent) for agent in (GreedyAC, SAC, VanillaAC, Random)}


def find_agent(name: str) -> type[Agent]:
    """The agent of that name."""
    if name not in AGENTS:
        raise unknown("agent", name, AGENTS)
    return AGENTS[name]


def make_agent(name: str, hypers: Mapping[str, object] | None = None) -> Agent:
    """The agent of that name with these hyperparameters, checked; the others at their defaults."""
    agent = checked(find_agent(name), f"hyperparameter of {name}", hypers or {})
    agent.check()
    return agent
