"""Figures for print and screen. They take frames with the columns of `training.rows` and return Matplotlib figures."""

import itertools
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""


def learning_curves(rows: pl.DataFrame) -> Figure:
    """One panel per environment: each agent's mean return over its runs ± one standard error, and single runs."""
    envs = rows["env"].unique(maintain_order=True).to_list()
    colours = dict(zip(rows["agent"].unique(maintain_order=True), itertools.cycle(COLOURS), strict=False))
    figure = Figure(figsize=(4.6 * len(envs) + 0.4, 3.6), dpi=150, layout="constrained")
    for panel, env in zip(figure.subplots(1, len(envs), squeeze=False)[0], envs, strict=True):
        there = rows.filter(pl.col("env") == env)
        for rank, agent in enumerate(there["agent"].unique(maintain_order=True)):
            _draw_agent(panel, there.filter(pl.col("agent") == agent), agent, colours[agent], 3 - rank / 100)
        panel.set_title(env, fontsize=11)
        panel.set_xlabel("environment steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        if panel.has_data():
            panel.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
        else:
            panel.text(0.5, 0.5, "no finished episodes", ha="center", transform=panel.transAxes)
    figure.axes[0].set_ylabel("return (mean ± standard error)")
    return figure


def _draw_agent(panel: Axes, runs: pl.DataFrame, agent: str, colour: str, layer: float) -> None:
    healthy = runs.filter(pl.col("status") == "done")
    curves = [carried_forward(curve) for curve in healthy["curve"]]
    if not curves or np.isnan(curves).all():
        return
    matrix = np.array(curves)
    steps = (np.arange(matrix.shape[1]) + 1) * healthy["curve_steps"][0]
    for curve in matrix:
        panel.plot(steps, curve, color=colour, linewidth=0.6, alpha=0.35, zorder=layer)
    counts = (~np.isnan(matrix)).sum(0)
    known = counts > 0
    mean = np.nanmean(matrix[:, known], axis=0)
    label = f"{agent}, {len(matrix)} runs" if len(matrix) > 1 else f"{agent}, one run"
    if diverged := len(runs) - len(healthy):
        label += f", {diverged} diverged"
    panel.plot(steps[known], mean, color=colour, linewidth=2, label=label, zorder=layer)
    if len(matrix) > 1:
        error = np.nanstd(matrix[:, known], axis=0) / np.sqrt(np.maximum(counts[known] - 1, 1))
        panel.fill_between(steps[known], mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)


def carried_forward(curve: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The curve with each empty bin at the last value before it; NaN before the first."""
    values, last = [], float("nan")
    for value in curve:
        last = last if value is None else value
        values.append(last)
    return np.array(values)
