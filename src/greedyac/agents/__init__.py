"""What learns: the contract of an agent, and the agents, by name."""

from greedyac.agents.base import NETWORKS, Agent, Batch, Metrics
from greedyac.agents.greedy_ac import GreedyAC
from greedyac.agents.random import Random
from greedyac.agents.registry import AGENTS, check_hypers, find_agent, make_agent
from greedyac.agents.sac import SAC
from greedyac.agents.vanilla_ac import VanillaAC

__all__ = [
    "AGENTS",
    "NETWORKS",
    "SAC",
    "Agent",
    "Batch",
    "GreedyAC",
    "Metrics",
    "Random",
    "VanillaAC",
    "check_hypers",
    "find_agent",
    "make_agent",
]
