"""The figures and tables of docs/reproduction.md, from the runs that are kept in results/.

    python benchmarks/reproduction.py

Calls `greedyac report` for every study that is kept, copies the figures that the docs show to docs/images/, and writes
the tables into the document, between `<!-- name -->` and `<!-- end -->`. Verdicts and words are written by hand.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from greedyac.analysis.compare import differences
from greedyac.analysis.load import load
from greedyac.analysis.report import Analysis, analyse, tables
from greedyac.analysis.stats import Interval
from greedyac.analysis.words import brief, with_interval
from greedyac.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/reproduction.md"
BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
STUCK = -800
"""A final return below this, where an episode that never reaches the goal has −1,000; on Pendulum there is no goal."""
SLIPS = {"entropy_estimator=released", "soft_target=released"}


class Kept(NamedTuple):
    """A study whose runs are kept, and which figures of its report the docs show."""

    store: str
    study: str
    figures: dict[str, str]
    """Figure of the report → its name in docs/images."""

    @property
    def name(self) -> str:
        """The study's name in the docs."""
        return self.study.removeprefix("paper/")


KEPT = (
    Kept("per-env", "paper/per-env", {"learning_curves_by_env": "per-env"}),
    Kept("per-env", "paper/per-env-corrected", {"learning_curves_by_env": "per-env-corrected"}),
)


def analysed(store: str, study: str | None = None) -> Analysis:
    """What `greedyac report` would show of a store, or of one of its studies."""
    return analyse(load(ROOT / "results" / store, study))


def results_table(found: Analysis) -> Iterator[str]:
    """Mean average returns with their intervals, and what becomes of runs in the end."""
    yield "| environment | agent | average return | final return | its median | stuck |"
    yield "|---|---|---|---|---|---|"
    results = tables(found)["results"].filter(pl.col("by") == "env")
    for row, one in zip(results.iter_rows(named=True), found.chosen("env"), strict=True):
        average = with_interval(Interval(row["average_return"], row["low"], row["high"]))
        final = one.runs["final_value"]
        ends = f"{brief(row['final_return'])} | {brief(final.median())}"  # type: ignore[arg-type]
        stuck = "" if one.env.startswith("Pendulum") else f"{(final < STUCK).sum()} of {len(final)}"
        yield f"| {one.env} | {one.choice.agent} | {average} | {ends} | {stuck} |"


def slips_table(found: Analysis) -> Iterator[str]:
    """Every agent with a slip put right, less the same as published."""
    yield "| environment | agent | as published | put right | difference | of final returns | seeds |"
    yield "|---|---|---|---|---|---|---|"
    means = {(one.env, one.choice.agent): one.runs["value"].mean() for one in found.chosen("env")}
    for one in differences(found.chosen("env")):
        agent, _, slip = one.second.rstrip("]").partition("[")
        if one.first == agent and slip in SLIPS:
            right, published = (brief(means[one.env, name]) for name in (one.first, one.second))  # type: ignore[arg-type]
            apart = f"{with_interval(one.average_return)} | {with_interval(one.final_return)}"  # type: ignore[arg-type]
            yield f"| {one.env} | {agent} | {published} | {right} | {apart} | {one.runs} |"


def blocks() -> dict[str, str]:
    """Every table of the docs by its name."""
    made = {}
    for kept in KEPT:
        table = slips_table if kept.name.endswith("-corrected") else results_table
        made[kept.name] = "\n".join(table(analysed(kept.store, kept.study)))
    return made


def filled(document: str, texts: dict[str, str]) -> str:
    """The document with these tables in their places."""
    return BLOCK.sub(lambda match: f"{match[1]}{texts[match[2]]}\n{match[3]}", document)


def draw(kept: Kept) -> None:
    """The figures of a study, as `greedyac report` draws them."""
    with tempfile.TemporaryDirectory() as folder:
        code = main(["report", "--store", str(ROOT / "results" / kept.store), "--study", kept.study, "--out", folder])
        assert code == 0
        for name, image in kept.figures.items():
            (ROOT / "docs/images" / f"{image}.png").write_bytes((Path(folder) / "figures" / f"{name}.png").read_bytes())


if __name__ == "__main__":
    for kept in KEPT:
        draw(kept)
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), blocks()))
