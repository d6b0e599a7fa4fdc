"""Games of MinAtar (Young & Tian, 2019), compiled: small grids of bits instead of Atari's screens."""

from greedyac.envs.minatar.breakout import Breakout
from greedyac.envs.minatar.freeway import Freeway

__all__ = ["Breakout", "Freeway"]
