"""The agents, by name, and the checks of their hyperparameters."""

from collections.abc import Mapping
from typing import Any, cast

from greedyac.agents.base import Agent
from greedyac.agents.greedy_ac import GreedyACAgent
from greedyac.agents.random import RandomAgent
from greedyac.agents.sac import SACAgent
from greedyac.agents.vanilla_ac import VanillaACAgent
from greedyac.core.errors import InputError, unknown_name
from greedyac.core.fields import check_values, hypers_of

AGENTS: dict[str, type[Agent]] = {
    agent.name: cast(type[Agent], agent) for agent in (GreedyACAgent, SACAgent, VanillaACAgent, RandomAgent)
}


def find_agent(name: str) -> type[Agent]:
    """The agent of that name."""
    if name not in AGENTS:
        raise unknown_name("agent", name, AGENTS)
    return AGENTS[name]


def make_agent(name: str, hypers: Mapping[str, object] | None = None) -> Agent:
    """The agent of that name with these hyperparameters, checked; the others at their defaults."""
    agent = find_agent(name)(**check_hypers(name, hypers or {}))
    agent.check()
    return agent


def check_hypers(name: str, hypers: Mapping[str, object]) -> dict[str, Any]:
    """These hyperparameters of an agent, each by itself known and in range."""
    agent = find_agent(name)
    for hyper in hypers.keys() - hypers_of(agent).keys():
        if owners := [other for other in AGENTS if hyper in hypers_of(AGENTS[other])]:
            allowed = ", ".join(hypers_of(agent)) or "no hyperparameters"
            raise InputError(f"{hyper} is a hyperparameter of {', '.join(owners)}; allowed for {name}: {allowed}")
    return check_values(agent, f"hyperparameter of {name}", hypers)
