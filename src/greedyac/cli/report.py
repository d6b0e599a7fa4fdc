"""`greedyac report`: a store as an interactive page, figures and tables."""

import csv
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greedyac.cli.parser import Parser, folder, one_of
from greedyac.cli.select import add_choices
from greedyac.core.counting import counted
from greedyac.core.errors import InputError

if TYPE_CHECKING:
    from greedyac.analysis.report import Analysis

FORMATS = ("svg", "png", "pdf")
CONTENTS = "tables/contents.csv"
OURS = re.compile(r"report\.html|(figures|tables)/[\w=-]+\.(svg|png|pdf|csv)")
"""Names that a report gives its files. Only such are ever removed, whatever a list of contents says."""


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument(
        "--store", type=folder, required=True, metavar="DIR", help="a store, or a folder that train or demo wrote"
    )
    parser.add_argument(
        "--out", type=folder, required=True, metavar="DIR", help="folder to write to; an older report in it is replaced"
    )
    add_choices(parser)
    parser.add_argument(
        "--band",
        type=one_of("standard-error", "bootstrap", "tolerance"),
        default="standard-error",
        metavar="BAND",
        help="around learning curves: standard-error (as in the paper), bootstrap or tolerance",
    )
    parser.add_argument("--single-runs", action="store_true", help="draw single runs in the learning curves, too")
    parser.add_argument("--no-figures", action="store_true", help="only the page and the tables, which is faster")


def run(options: Any) -> int:
    """Analyse, write, and say in words what was found."""
    from greedyac.analysis.load import load
    from greedyac.analysis.page import make_page
    from greedyac.analysis.report import TABLES, analyse, tables
    from greedyac.analysis.words import summary
    from greedyac.cli.output import output_folder

    results = load(options.store, options.study, options.steps)
    for name, fits in (("report.html", Path.is_file), ("tables", Path.is_dir), ("figures", Path.is_dir)):
        if os.path.lexists(path := options.out / name) and not fits(path):
            raise InputError(f"output folder {str(options.out)!r} holds something else called {name!r}")
    with output_folder(options.out, overwrite=True, ours=_listed_files(options.out)) as output:
        found = analyse(results, options.best)
        made = tables(found, options.band)
        title = f"Report on {', '.join(results.studies) or options.store.resolve().name}"
        page = make_page(found, made, title)
        (output.staging / "report.html").write_text(page, encoding="utf-8")
        contents = [("report.html", "This report as an interactive page.")]
        (output.staging / "tables").mkdir()
        for name, frame in made.items():
            frame.write_csv(output.staging / "tables" / f"{name}.csv")
            contents.append((f"tables/{name}.csv", TABLES[name]))
        if not options.no_figures:
            contents += _write_figures(found, output.staging, options)
        with (output.staging / CONTENTS).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("file", "what it shows"), *contents, (CONTENTS, "This list.")])
        output.publish(complete=True)
    for heading, sentences in summary(found).items():
        print("\n".join([heading, *(f"- {sentence}" for sentence in sentences)]))
    drawn = (len(contents) - len(made) - 1) // len(FORMATS)
    figures = "" if options.no_figures else f", {counted(drawn, 'figure')}"
    print(f"written to {options.out}/: report.html, {counted(len(made), 'table')}{figures}")
    return 0


def _write_figures(found: "Analysis", out: Path, options: Any) -> Iterator[tuple[str, str]]:
    from greedyac.analysis.gallery import gallery

    (out / "figures").mkdir()
    for name, caption, figure in gallery(found, options.band, options.single_runs):
        if sys.stderr.isatty():
            print(f"\r\033[Kdrawing {name}", end="", file=sys.stderr, flush=True)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is found once for all formats
        for suffix in FORMATS:
            figure.savefig(out / "figures" / f"{name}.{suffix}", dpi=200)
            yield f"figures/{name}.{suffix}", caption
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _listed_files(out: Path) -> list[str]:
    """The files of an older report in this folder, by its own list."""
    try:
        with (out / CONTENTS).open(newline="", encoding="utf-8") as file:
            return [row[0] for row in csv.reader(file) if row and OURS.fullmatch(row[0])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []
