"""Figures: that they draw whatever results hold, and that the lines are the numbers they claim to be."""

import io
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from greedyac.analysis.compare import Comparison, Profile
from greedyac.analysis.figures import (
    COLOURS,
    divergence,
    in_lines,
    intervals,
    learning_curves,
    profiles,
    sensitivity,
    variance,
)
from greedyac.analysis.grid import Grid
from greedyac.analysis.load import VIEWS
from greedyac.analysis.stats import Interval
from greedyac.results.schema import SCHEMA

Curve = Sequence[float | None]
RISING: Curve = [0.0, 1.0, 2.0, None]
FALLING: Curve = [4.0, 3.0, None, -2.0]
EMPTY: Curve = [None, None, None, None]


def row(agent: str, env: str, curve: Curve, status: str = "done", told: Curve | None = None) -> dict[str, Any]:
    """The row of a run of 100 steps, with these evaluations."""
    known = {"agent": agent, "env": env, "curve": curve, "status": status, "curve_steps": 25.0, "steps": 100}
    known |= {"eval_curve": told, "eval_steps": 100 // len(told) if told else None}
    values = [value for value in curve if value is not None]
    average = sum(values) / len(values) if values and status == "done" else None
    return {name: {**known, "average_return": average}.get(name) for name in SCHEMA}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, SCHEMA)


def drawn(figure: Figure) -> bytes:
    """The figure as it would be saved; warnings are errors."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def mean_line(panel: Axes, agent: str) -> tuple[NDArray[Any], NDArray[Any], str]:
    """Steps, values and label of the line of an agent's mean."""
    [line] = [line for line in panel.lines if str(line.get_label()).startswith(f"{agent},")]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), str(line.get_label())


def band(panel: Axes) -> dict[float, tuple[float, float]]:
    """Steps → lowest and highest value of the only band."""
    [area] = [area for area in panel.collections if isinstance(area, PolyCollection)]
    values: dict[float, list[float]] = {}
    for step, value in np.asarray(area.get_paths()[0].vertices):
        values.setdefault(float(step), []).append(float(value))
    return {step: (min(heights), max(heights)) for step, heights in values.items()}


def test_mean_and_one_standard_error() -> None:
    curves: list[Curve] = [[0.0, 1.0, 2.0, 3.0], [3.0, None, 5.0, None], [3.0, 1.0, 11.0, 3.0]]
    figure = learning_curves(frame(*(row("greedy-ac", "Pendulum-CA", curve) for curve in curves)), single_runs=True)
    [panel] = figure.axes
    # Carried forward: 0 1 2 3, 3 3 5 5, 3 1 11 3.
    steps, means, label = mean_line(panel, "greedy-ac")
    assert steps.tolist() == [25, 50, 75, 100]
    np.testing.assert_allclose(means, [2, 5 / 3, 6, 11 / 3])
    assert label == "greedy-ac, 3 runs"
    errors = [  # the sample standard deviation over √n
        math.sqrt((4 + 1 + 1) / 2) / math.sqrt(3),
        math.sqrt((2 * (2 / 3) ** 2 + (4 / 3) ** 2) / 2) / math.sqrt(3),
        math.sqrt((16 + 1 + 25) / 2) / math.sqrt(3),
        math.sqrt((2 * (2 / 3) ** 2 + (4 / 3) ** 2) / 2) / math.sqrt(3),
    ]
    edges = band(panel)
    for step, mean, error in zip(steps, means, errors, strict=True):
        assert edges[step] == pytest.approx((mean - error, mean + error))
    thin = [np.asarray(line.get_ydata()) for line in panel.lines if not str(line.get_label()).startswith("greedy-ac")]
    np.testing.assert_array_equal(thin, [[0, 1, 2, 3], [3, 3, 5, 5], [3, 1, 11, 3]])
    drawn(figure)


def test_bootstrap_and_tolerance_bands() -> None:
    rows = frame(*(row("random", "Pendulum-CA", [value] * 4) for value in (1.0, 2.0, 3.0, 6.0)))
    [panel] = learning_curves(rows, "tolerance").axes
    assert set(band(panel).values()) == {(1.0, 6.0)}
    _, means, label = mean_line(panel, "random")
    assert (means.tolist(), label) == ([3] * 4, "random, 4 runs, band holds ≥ 24 %")  # Beta(3, 2) at 0.05: 0.249
    [panel] = learning_curves(rows, "bootstrap").axes
    [(low, high)] = set(band(panel).values())
    assert 1 < low < 2 < 4 < high < 6


def test_single_runs_are_drawn_on_demand() -> None:
    rows = frame(row("random", "Pendulum-CA", FALLING), row("random", "Pendulum-CA", RISING))
    assert [len(learning_curves(rows, single_runs=single).axes[0].lines) for single in (False, True)] == [1, 3]


def test_a_run_without_a_finished_episode_is_left_out() -> None:
    [panel] = learning_curves(frame(row("random", "Pendulum-CA", RISING), row("random", "Pendulum-CA", EMPTY))).axes
    _, means, label = mean_line(panel, "random")
    assert (means.tolist(), label) == ([0, 1, 2, 2], "random, one run")


def test_a_single_run_has_no_band() -> None:
    figure = learning_curves(frame(row("random", "Pendulum-CA", FALLING)))
    [panel] = figure.axes
    steps, means, label = mean_line(panel, "random")
    assert (steps.tolist(), means.tolist(), label) == ([25, 50, 75, 100], [4, 3, 3, -2], "random, one run")
    assert all(low == high for low, high in band(panel).values())
    drawn(figure)


def test_a_diverged_run_counts_as_the_lowest_value_on_its_environment() -> None:
    rows = frame(
        row("random", "Pendulum-CA", [5.0] * 4),
        row("sac", "Pendulum-CA", [-3.0] * 4),
        row("random", "Pendulum-CA", [9.0, 9.0, None, None], "diverged"),
        row("random", "Acrobot-CA", [-50.0] * 4),
    )
    _, means, label = mean_line(learning_curves(rows).axes[0], "random")
    assert (means.tolist(), label) == ([(5 - 3) / 2] * 4, "random, 2 runs, 1 diverged")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(EMPTY, "done")], "no finished episodes"),
        ([(RISING, "diverged")], "every run diverged"),
        ([(EMPTY, "done"), (EMPTY, "diverged")], "no finished episodes"),
    ],
)
def test_nothing_to_draw_is_said(rows: list[tuple[Curve, str]], words: str) -> None:
    figure = learning_curves(frame(*(row("random", "Pendulum-CA", curve, status) for curve, status in rows)))
    [panel] = figure.axes
    assert [text.get_text() for text in panel.texts] == [words]
    assert panel.get_legend() is None
    drawn(figure)


def test_a_panel_per_environment_and_a_line_per_agent() -> None:
    rows = [
        row("greedy-ac", "Pendulum-CA", RISING),
        row("greedy-ac", "Pendulum-CA", FALLING),
        row("random", "Acrobot-DA[start=zero]", FALLING),
        row("random", "Pendulum-CA", EMPTY),
        row("random", "MountainCar-CA", EMPTY),
        row("greedy-ac", "Acrobot-DA[start=zero]", FALLING),
        row("greedy-ac", "Acrobot-DA[start=zero]", FALLING, "diverged"),
    ]
    figure = learning_curves(frame(*rows))
    assert [panel.get_title() for panel in figure.axes] == ["Pendulum-CA", "Acrobot-DA[start=zero]", "MountainCar-CA"]
    legends = [panel.get_legend() for panel in figure.axes]
    told = [[text.get_text() for text in legend.get_texts()] if legend else [] for legend in legends]
    assert told == [
        ["greedy-ac, 2 runs"],
        ["random, one run", "greedy-ac, 2 runs, 1 diverged"],
        [],
    ]
    picture = drawn(figure)
    assert picture.startswith(b"\x89PNG")
    assert drawn(learning_curves(frame(*rows))) == picture


def test_an_agent_keeps_its_colour_in_every_panel() -> None:
    rows = [row(agent, env, FALLING) for env, agents in (("A", "xy"), ("B", "yx"), ("C", "y")) for agent in agents]
    lines = [line for panel in learning_curves(frame(*rows)).axes for line in panel.lines]
    told = {(str(line.get_label()).partition(",")[0], line.get_color()) for line in lines}
    assert sorted(agent for agent, _ in told if agent in "xy") == ["x", "y"]


def test_more_agents_than_colours_are_all_drawn() -> None:
    agents = [f"agent-{index}" for index in range(len(COLOURS) + 1)]
    [panel] = learning_curves(frame(*(row(agent, "Pendulum-CA", FALLING) for agent in agents))).axes
    for agent in agents:
        mean_line(panel, agent)


def test_evaluations_are_drawn_beside_the_online_curve() -> None:
    told: list[Curve] = [[0.0, 4.0], [3.0, None], [9.0, 5.0]]
    rows = [row("sac", "Pendulum-CA", RISING, told=curve) for curve in told]
    rows += [row("random", "Pendulum-CA", FALLING), row("random", "Pendulum-CA", FALLING, told=[-7.0, -9.0])]
    rows += [row("random", "Pendulum-CA", FALLING, "diverged", [2.0, None])]
    rows += [row("sac", "Acrobot-CA", RISING), row("random", "MountainCar-CA", EMPTY, told=[1.0])]
    figure = learning_curves(frame(*rows), single_runs=True)
    titles = [f"{env}, {view}" for env in ("Pendulum-CA", "Acrobot-CA", "MountainCar-CA") for view in VIEWS]
    assert [panel.get_title() for panel in figure.axes] == titles
    online, offline, _, unknown, blank, single = figure.axes
    steps, means, label = mean_line(offline, "sac")
    curves = np.array([[0.0, 4.0], [3.0, 3.0], [9.0, 5.0]])
    assert (steps.tolist(), label) == ([50, 100], "sac, 3 runs")
    np.testing.assert_allclose(means, curves.mean(axis=0))
    errors = curves.std(axis=0, ddof=1) / math.sqrt(3)
    area = np.asarray(offline.collections[0].get_paths()[0].vertices)
    for step, mean, error in zip(steps, means, errors, strict=True):
        heights = area[area[:, 0] == step, 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [mean - error, mean + error])
    assert mean_line(offline, "random")[1].tolist() == [
        -7.5,
        -8.5,
    ]  # with the lowest mean, -8, of the one that diverged
    assert mean_line(offline, "random")[2] == "random, 2 runs, 1 diverged"
    assert mean_line(online, "random")[2] == "random, 3 runs, 1 diverged"
    for agent in ("sac", "random"):
        lines = [line for panel in (online, offline) for line in panel.lines if agent in str(line.get_label())]
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 1
    assert [line.get_ydata() for line in offline.lines if "sac" not in str(line.get_label())][:3] == pytest.approx(
        curves
    )
    for left, right in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        assert (left.get_ylim(), left.get_xlim()) == (right.get_ylim(), right.get_xlim())
        assert (bool(left.get_ylabel()), bool(right.get_ylabel())) == (True, False)
    assert [panel.texts[0].get_text() for panel in (unknown, blank)] == ["no evaluations", "no finished episodes"]
    assert mean_line(single, "random")[1].tolist() == [1]
    assert single.lines[0].get_marker() == "o"  # a line of one point would not be seen
    drawn(figure)


@pytest.mark.parametrize("lowest", [-2e6, -900.0, -0.001])
@pytest.mark.parametrize(("agent", "kind"), [("LONG", "standard-error"), ("sac", "tolerance")])
def test_pairs_of_panels_do_not_overlap(agent: str, kind: Any, lowest: float) -> None:
    agents, envs = (
        [LONG if agent == "LONG" else agent, "greedy-ac", "random"],
        ["Acrobot-DA[start=zero]", "Pendulum-CA"],
    )
    told = [(agent, env, value) for agent in agents for env in envs for value in (0.0, lowest)]
    figure = learning_curves(
        frame(*(row(agent, env, [value] * 4, told=[0.0, value]) for agent, env, value in told)), kind
    )
    drawn(figure)
    boxes = [box for panel in figure.axes if (box := panel.get_tightbbox())]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    for box in boxes:
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 - 1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1


LONG = "greedy-ac[entropy_estimator=exact,proposal_policy=truncated-gaussian]"


def grid(agent: str, env: str, values: Sequence[Sequence[float]], **axes: tuple[float, ...]) -> Grid:
    """A full grid over these axes, of which the last varies fastest."""
    hypers = tuple(dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values()))
    runs = np.array(values, np.float64)
    names = tuple(str(point) for point in hypers)
    return Grid(agent, env, axes, names, hypers, tuple(range(runs.shape[1])), runs, np.zeros(runs.shape, np.bool_), 0)


def test_a_label_has_a_line_for_each_option() -> None:
    assert in_lines("sac") == "sac"
    assert in_lines(LONG) == "greedy-ac\n[entropy_estimator=exact,\nproposal_policy=truncated-gaussian]"
    assert in_lines("sac over random") == "sac\nover random"


def test_without_lines_all_agents_share_a_panel() -> None:
    """The other hyperparameter is at its best at each point: 4 of 4 and 0, 7 of 7 and 1."""
    grids = [
        grid("sac", "Pendulum-CA", [[1, 3], [2, 6]], entropy_scale=(0.1, 10.0)),
        grid(LONG, "Pendulum-CA", [[4, 4], [0, 0], [6, 8], [1, 1]], entropy_scale=(0.1, 10.0), discount=(0.5, 0.9)),
        grid("sac", "Acrobot-CA", [[5, 5], [6, 6]], entropy_scale=(1.0, 10.0)),
    ]
    figure = sensitivity(grids, "entropy_scale")
    drawn(figure)
    assert [panel.get_title() for panel in figure.axes] == ["Pendulum-CA", "Acrobot-CA"]
    told = [[line.get_ydata() for line in panel.lines] for panel in figure.axes]
    np.testing.assert_array_equal(told[0], [[2, 4], [4, 7]])
    np.testing.assert_array_equal(told[1], [[5, 6]])
    edges = [np.asarray(area.get_paths()[0].vertices) for area in figure.axes[0].collections]
    # Of two runs the standard error is half of their difference.
    assert [(float(edge[:, 1].min()), float(edge[:, 1].max())) for edge in edges] == [(1, 6), (4, 8)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["sac", LONG]


@pytest.mark.parametrize("figure", ["intervals", "variance", "sensitivity", "one panel", "divergence", "profiles"])
def test_long_labels_leave_room_for_the_panels(figure: str) -> None:
    agents = [LONG, "sac", LONG.replace("exact", "score")]
    names = [f"{first} over {second}" for first, second in itertools.combinations(agents, 2)]
    grids = [
        grid(agent, env, [[0, 1], [2, 3], [4, 4], [7, 5]], critic_step_size=(0.1, 1.0), entropy_scale=(0.1, 1.0))
        for agent in agents
        for env in ("Acrobot-CA", "Pendulum-CA")
    ]
    steps = np.linspace(0, 1, 5)
    comparison = Comparison(
        "env",
        "continuous",
        ("Acrobot-CA",),
        {"Acrobot-CA": 2},
        False,
        dict.fromkeys(agents, Interval(0, 0, 0)),
        [],
        [Profile(agent, steps, steps, steps, steps) for agent in agents],
    )
    made = {
        "intervals": lambda: intervals({"actions": {name: Interval(0.5, 0.2, 0.8) for name in names}}, "probability"),
        "variance": lambda: variance(grids),
        "sensitivity": lambda: sensitivity(grids, "critic_step_size"),
        "one panel": lambda: sensitivity([grid(LONG, "Acrobot-CA", [[0, 1], [2, 3]], discount=(0.1, 1.0))], "discount"),
        "divergence": lambda: divergence(grids),
        "profiles": lambda: profiles([comparison]),
    }[figure]()
    drawn(made)
    whole = made.bbox
    assert all(panel.get_position().width * made.get_figwidth() > 2 for panel in made.axes[: len(grids)])
    for box in (
        *(panel.get_tightbbox() for panel in made.axes),
        *(legend.get_window_extent() for legend in made.legends),
    ):
        assert box is not None
        assert whole.x0 - 1 <= box.x0 < box.x1 <= whole.x1 + 1
        assert whole.y0 - 1 <= box.y0 < box.y1 <= whole.y1 + 1
    left = made.axes[: 2 * len(agents) : 2] if figure in ("sensitivity", "divergence") else made.axes[:1]
    ticks = sorted((tick.get_window_extent() for tick in made.axes[0].get_yticklabels()), key=lambda box: -box.y0)
    labels = [panel.yaxis.label.get_window_extent() for panel in left]
    for boxes in (ticks, labels):
        assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(boxes))
