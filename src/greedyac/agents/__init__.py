"""What learns: the contract of an agent, and the agents, by name."""

from greedyac.agents.base import NETWORKS, Agent, Batch, Metrics
from greedyac.agents.greedy_ac import GreedyACAgent
from greedyac.agents.random import RandomAgent
from greedyac.agents.registry import AGENTS, check_hypers, find_agent, make_agent
from greedyac.agents.sac import SACAgent
from greedyac.agents.vanilla_ac import VanillaACAgent

__all__ = [
    "AGENTS",
    "NETWORKS",
    "Agent",
    "Batch",
    "GreedyACAgent",
    "Metrics",
    "RandomAgent",
    "SACAgent",
    "VanillaACAgent",
    "check_hypers",
    "find_agent",
    "make_agent",
]
