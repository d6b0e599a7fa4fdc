"""The picture of `greedyac bench --peers`: steps per second on one core, ours and other libraries'."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from greedyac.analysis.figures import COLOURS
from greedyac.bench.measure import Bench
from greedyac.bench.peers import ENV, PeerResult, factor, per_core
from greedyac.core.counting import counted

TITLES = {"greedy-ac": "GreedyAC", "sac": "SAC"}
OURS, THEIRS = COLOURS[0], "0.65"


def peer_bars(ours: Bench, peers: Sequence[PeerResult]) -> Figure:
    """A panel per agent: a bar for its rate on one core, and one for each of its peers, the fastest first."""
    own, lanes = per_core(ours), {one.agent: one.lanes for one in ours.results if one.env == ENV}
    groups = {agent: [one for one in peers if one.agent == agent] for agent in own}
    groups = {agent: sorted(group, key=_rate, reverse=True) for agent, group in groups.items() if group}
    lines = [len(group) + 1 for group in groups.values()]
    figure = Figure(figsize=(8, 0.36 * sum(lines) + 0.4 * len(lines) + 0.6), dpi=150, layout="constrained")
    panels = figure.subplots(len(lines), 1, squeeze=False, sharex=True, height_ratios=lines)[:, 0]
    for panel, (agent, group) in zip(panels, groups.items(), strict=True):
        rates = [own[agent], *map(_rate, group)]
        panel.barh(range(len(rates)), rates, color=[OURS, *[THEIRS] * len(group)], height=0.72)
        for place, label in enumerate([f"{own[agent]:,.0f}", *map(_label, group)]):
            weight = "normal" if place else "bold"
            at = (rates[place], place)
            panel.annotate(label, at, (5, -1), textcoords="offset points", va="center", fontweight=weight)
        names = [f"greedyac, {counted(lanes[agent], 'run')} at once", *(one.peer for one in group)]
        panel.set_yticks(range(len(rates)), names)
        panel.get_yticklabels()[0].set_fontweight("bold")
        panel.set_ylim(len(rates) - 0.5, -0.5)
        panel.set_title(TITLES.get(agent, agent), fontsize=11, fontweight="bold", loc="left")
        panel.tick_params(axis="both", length=0)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
        panel.xaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}")
    panels[-1].set_xlim(0, 1.12 * max(max(own[agent], *map(_rate, group)) for agent, group in groups.items()))
    panels[-1].set_xlabel("steps per second on one core, each with one update")
    return figure


def _rate(one: PeerResult) -> float:
    return one.steps_per_second or 0.0


def _label(one: PeerResult) -> str:
    if one.times_faster is None:
        return "did not run"
    return f"{_rate(one):,.0f}: greedyac is {factor(one.times_faster)}× as fast"
