"""The interactive page: one HTML file with everything in it, which needs no network and no server.

Text and tables are written here; the figures are drawn in the browser by `assets/page.js` from numbers computed here.
"""

import base64
import gzip
import io
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

import polars as pl

from greedyac.analysis.gallery import Picture, curves_picture
from greedyac.analysis.payload import make_payload
from greedyac.analysis.report import Analysis
from greedyac.analysis.sensitivity import shares_of
from greedyac.analysis.stats import Interval
from greedyac.analysis.words import brief, few_words, listed, summary, tuned_words, with_interval
from greedyac.core.counting import counted, plural

INTERVALS = ("average_return", "final_return", "interquartile_mean", "improvement", "difference", "mean_score", "Φ")
NAMES = ("env", "agent", "first", "second", *INTERVALS)
"""Columns of tables that are not to be broken into lines."""


def make_page(found: Analysis, tables: Mapping[str, pl.DataFrame], title: str) -> str:
    """The whole page."""
    from plotly.offline import get_plotlyjs  # only here: it takes a moment

    data, curves = make_payload(found)
    sections = _sections(found, tables, data)
    parts = {
        "title": escape(title),
        "about": escape(_about(found)),
        "contents": "".join(f'<a href="#{name}">{escape(heading)}</a>' for name, heading, _ in sections),
        "sections": "".join(f'<h2 id="{name}">{escape(head)}</h2>{body}' for name, head, body in sections),
        "footer": _footer(found),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "plotly": _packed(get_plotlyjs().encode()),
        "data": _packed(json.dumps(data, allow_nan=False).encode()),
        "curves": _packed(curves.tobytes()),
    }
    first, *pieces = _asset("page.html").split("{{")
    split = (piece.partition("}}") for piece in pieces)
    return first + "".join(parts[name] + rest for name, _, rest in split)


def _asset(name: str) -> str:
    return (resources.files("greedyac.analysis") / "assets" / name).read_text(encoding="utf-8")


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def _about(found: Analysis) -> str:
    runs, studies = found.results.runs, found.results.studies
    asked = f" of {listed(list(studies))}" if studies else ""
    agents, envs = counted(runs["agent"].n_unique(), "agent"), counted(runs["env"].n_unique(), "environment")
    return f"{counted(runs.height, 'run')}{asked}; {agents}, {envs}."


def _footer(found: Analysis) -> str:
    made = found.results.runs.select("versions", "cpu").drop_nulls().unique().sort("versions", "cpu")
    told = [
        f"{', '.join(f'{name} {version}' for name, version in json.loads(versions).items())}; {cpu}"
        for versions, cpu in made.rows()
    ]
    return f"<p>Runs made with: {escape(' | '.join(told) or 'unknown software')}.</p>"


def _sections(
    found: Analysis, tables: Mapping[str, pl.DataFrame], data: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Anchor, heading and content of each part of the page."""
    sections = [("summary", "What the numbers show", _summary(found))]
    curves = _figure("learning-curves") if data["curves"] else "<p>No run has a return.</p>"
    left = data["curvesLeftOut"]
    note = (
        f'<p class="faint">The page holds the curves of the best settings; those of {left:,} more are in the store.</p>'
    )
    sections.append(("curves", "Learning curves", curves + (note if left else "") + _offline(found, tables)))
    if "results" in tables:
        sections.append(("results", "Results", _results(found, tables["results"]) + _differences(found, tables)))
    if any(choice.compared > 1 for choice in found.choices):
        sections.append(("selection", "Selection", _selection(tables["selection"], found)))
    sections.append(("sensitivity-part", "Sensitivity", _sensitivity(found, tables, data)))
    if data["comparisons"]:
        sections.append(("comparison-part", "Comparison of agents", _figure("comparison") + _compared(tables)))
    sections.append(("inventory", "What is there", _table(tables["inventory"], "Runs by what became of them.")))
    return sections


def _summary(found: Analysis) -> str:
    parts = (
        f"<h3>{escape(heading)}</h3><ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"
        for heading, sentences in summary(found).items()
    )
    return "".join(parts)


def _figure(name: str) -> str:
    inside = (
        '<div class="controls"></div><div class="plot"></div><figcaption></figcaption><div class="downloads"></div>'
    )
    return f'<figure id="{name}">{inside}</figure>'


def _offline(found: Analysis, tables: Mapping[str, pl.DataFrame]) -> str:
    """The learning curves online and offline as they are for print, where runs were evaluated."""
    if "offline_curves" not in tables:
        return ""
    drawn = tables["offline_curves"].select("by", "band").unique(maintain_order=True)
    return "".join(_picture(curves_picture(found, by, band)) for by, band in drawn.iter_rows())


def _picture(one: Picture) -> str:
    content, caption = io.BytesIO(), escape(one.caption)
    one.figure.savefig(content, format="png")
    source = f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
    image = f'<img src="{source}" alt="{caption}" style="max-width: 100%">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _results(found: Analysis, results: pl.DataFrame) -> str:
    parts = []
    columns = ["env", "agent", "average_return", "standard_error", "low", "high", "final_return", "runs", "runs_asked"]
    for (by,), rows in results.group_by("by", maintain_order=True):
        frame = _with_intervals(
            rows.select([*columns, "diverged", "seeds", "fresh", "setting"]), {"average_return": ""}
        )
        tuned = tuned_words(found, str(by))
        caption = f"Mean average return over runs, with 95 % bootstrap intervals{tuned}."
        if seeds := int(rows.filter("optimistic")["runs"].max() or 0):  # type: ignore[arg-type]
            caption += f" Chosen and reported on the same {plural(seeds, 'seed')}: optimistic."
        parts.append(_table(frame, caption + few_words(int(rows["runs"].min()))))  # type: ignore[arg-type]
    return "".join(parts)


def _differences(found: Analysis, tables: Mapping[str, pl.DataFrame]) -> str:
    if "differences" not in tables:
        return ""
    parts = []
    for (by,), rows in tables["differences"].group_by("by", maintain_order=True):
        names = {name: f"{name}_" for name in ("average_return", "final_return", "improvement")}
        words = (
            "Differences on each environment: mean average return of the first less that of the second, the same of "
            "final returns, and the probability that a run of the first is better, on the seeds that both have, with "
            f"95 % bootstrap intervals{tuned_words(found, str(by))}."
        )
        few = few_words(int(rows["runs"].min()))  # type: ignore[arg-type]
        parts.append(_table(_with_intervals(rows.drop("by"), names), words + few))
    return "".join(parts)


def _selection(selection: pl.DataFrame, found: Analysis) -> str:
    columns = ["envs", "agent", "score", "seeds", "settings_compared", "settings_left_out", "tied", "indistinguishable"]
    columns += ["setting"]
    best = "the paper's table" if found.best == "paper" else "the highest return of any episode on the seeds chosen by"
    told = {
        "env": "By the mean average return on each environment.",
        "kind": f"By the mean over environments of the score 1 − (best − value)/|best|, with best from {best}.",
    }
    parts = [
        _table(part.select(columns), told[str(by)]) for (by,), part in selection.group_by("by", maintain_order=True)
    ]
    words = (
        "Indistinguishable: settings that can't be told from the chosen one, itself included, by repeating the "
        "selection on resampled seeds: the fewest that together win 95 % of these, and all not behind in 97.5 %."
        + few_words(min(len(choice.seeds) for choice in found.choices))
    )
    return f"{''.join(parts)}<p class='faint'>{words} All settings: <code>tables/rivals.csv</code>.</p>"


def _sensitivity(found: Analysis, tables: Mapping[str, pl.DataFrame], data: Mapping[str, Any]) -> str:
    if not data["sensitivity"]:
        return "<p>No hyperparameter varies between complete settings of an agent on an environment.</p>"
    body = _figure("sensitivity")
    if "regions" in tables:
        words = (
            "Sensitivity regions: mean height of the band between the entropy scales' lines (width), and the mean of "
            "these lines (level), as return and in scores. Noise makes the width larger, and the held-out width "
            "smaller, for which lines are chosen on one half of the seeds and judged by the other."
        )
        body += _table(tables["regions"], words)
    if "measures" in tables:
        words = (
            "Mean score: of all settings on all environments; what a setting picked at random gets. Φ: what one "
            "setting for all environments of a kind costs against the best for each, in score. Effective "
            "dimensionality: how many hyperparameters must be tuned per environment to keep 95 % of the score of "
            "tuning all (none is given where that score is not positive). Noise makes both larger, and their 95 % "
            "bootstrap intervals with them; held-out Φ chooses on one half of the seeds and judges by the other."
        )
        names = {"mean_score": "mean_score_", "phi": "phi_", "effective_dimensionality": "effective_dimensionality_"}
        body += _table(
            _with_intervals(tables["measures"].drop("envs"), names).rename({"phi": "Φ", "held_out_phi": "held-out Φ"}),
            words,
        )
    if "mean_score_differences" in tables:
        words = (
            "Mean score of the first agent less that of the second, of two that have the same grid on the same seeds, "
            "with 95 % bootstrap intervals over seeds."
        )
        few = few_words(min(len(grid.seeds) for grid in found.swept))
        rows = tables["mean_score_differences"].drop("envs")
        body += _table(_with_intervals(rows, {"mean_score": "mean_score_"}), words + few)
    shares = tables["near_best"].select(
        "env",
        "agent",
        "settings",
        "own_best",
        *(_percent(f"within_{near}_percent_of_own_best", near) for near in (5, 10, 25)),
        "any_best",
        *(_percent(f"within_{near}_percent_of_any_best", near, " ") for near in (5, 10, 25)),
    )
    words = "Shares of settings with a mean within 5, 10, 25 % of the agent's own best, and of the best of any agent."
    body += _table(shares, words)
    if data["variance"]:
        body += _figure("variance")
    if lacking := [f"{grid.agent} on {grid.env}" for grid in found.swept if not shares_of(grid)]:
        words = "No variance shares: they need every combination of the values, and returns that differ"
        body += f"<p>{words}; not so for {escape(listed(lacking))}.</p>"
    return body + (_figure("heat-maps") if data["pairs"] else "")


def _compared(tables: Mapping[str, pl.DataFrame]) -> str:
    frame = _with_intervals(tables["interquartile_means"].drop("envs"), {"interquartile_mean": ""})
    best = ", ".join(
        f"{row['env']} {brief(row['best_return'])}" for row in tables["best_returns"].iter_rows(named=True)
    )
    means = _table(
        frame, f"Interquartile means of the normalised score, with 95 % intervals. 1 is a return of: {best}."
    )
    words = (
        "Probability that a run of the first agent is better than one of the second; difference of interquartile means."
    )
    names = {"improvement": "improvement_", "difference": "difference_"}
    return means + _table(_with_intervals(tables["improvement"], names), words)


def _with_intervals(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """The frame with the ends of intervals, whose columns have these prefixes, in the columns of the estimates."""
    texts = {
        name: [
            _interval_text(row[name], row[f"{prefix}low"], row[f"{prefix}high"]) for row in frame.iter_rows(named=True)
        ]
        for name, prefix in names.items()
    }
    ends = [f"{prefix}{end}" for prefix in names.values() for end in ("low", "high")]
    return frame.with_columns(pl.Series(name, text, pl.String) for name, text in texts.items()).drop(ends)


def _interval_text(estimate: float | None, low: float | None, high: float | None) -> str | None:
    if estimate is None or low is None or high is None:
        return None if estimate is None else brief(estimate)
    return with_interval(Interval(estimate, low, high))


def _percent(column: str, near: int, mark: str = "") -> pl.Expr:
    return (pl.col(column) * 100).round(0).cast(pl.Int64).cast(pl.String).add(" %").alias(f"{mark}within {near} %")


def _table(frame: pl.DataFrame, caption: str) -> str:
    numbers = {name for name, dtype in frame.schema.items() if dtype.is_numeric()}
    marks = {
        name: ' class="number"' if name in numbers else ' class="name"' if name in NAMES else ""
        for name in frame.columns
    }
    head = "".join(f"<th{marks[name]}>{escape(name.replace('_', ' '))}</th>" for name in frame.columns)
    rows = (
        "<tr>" + "".join(f"<td{marks[name]}>{escape(_cell(value))}</td>" for name, value in row.items()) + "</tr>"
        for row in frame.iter_rows(named=True)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<p class="caption">{escape(caption)}</p><div class="table" tabindex="0">{table}</div>'


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return brief(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
