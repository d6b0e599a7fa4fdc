"""Conditional CEM: what GreedyAC's actor learns by, and an optimizer of its own."""

from greedyac.ccem.elite import elite_count, elite_loss, elites, greedy_loss, greedy_shares, greedy_suffices
from greedyac.ccem.maximize import Maximum, maximize
from greedyac.ccem.search import Search
from greedyac.ccem.update import CCEM

__all__ = [
    "CCEM",
    "Maximum",
    "Search",
    "elite_count",
    "elite_loss",
    "elites",
    "greedy_loss",
    "greedy_shares",
    "greedy_suffices",
    "maximize",
]
