"""The runs kept in results/: whole, complete, of the studies as they are shipped, and what the docs say they are."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers.paths import ROOT

from greedyac.analysis import report
from greedyac.analysis.stats import Interval
from greedyac.analysis.words import with_interval
from greedyac.cli import main
from greedyac.study.spec import load_study

made = runpy.run_path(str(ROOT / "benchmarks/reproduction.py"))
KEPT, DOCUMENTS = made["KEPT"], made["DOCUMENTS"]
INTERVAL = re.compile(r"−?[\d.,]+ \[−?[\d.,]+, −?[\d.,]+\]")


def rows(store: str) -> pl.DataFrame:
    return pl.read_parquet(ROOT / "results" / store / "chunks/*.parquet")


@pytest.mark.parametrize("store", sorted({kept.store for kept in KEPT}))
def test_a_kept_store_is_whole_and_compact(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "verify", str(ROOT / "results" / store)]) == 0
    assert len(list((ROOT / "results" / store / "chunks").iterdir())) == 1
    assert rows(store)["versions"].n_unique() == 1
    assert sum(path.stat().st_size for path in (ROOT / "results" / store / "chunks").iterdir()) < 5e6


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.study)
def test_a_kept_study_is_complete_and_of_todays_numerics(kept: Any) -> None:
    """A change of a shipped study, of a default or of numerics changes ids: then the runs have to be made again."""
    done = rows(kept.store).filter(pl.col("status").is_in(["done", "diverged"]))
    assert set(load_study(kept.study).runs()) <= set(done["run_id"])


def test_every_kept_run_belongs_to_a_study() -> None:
    for store in {kept.store for kept in KEPT}:
        studies = [load_study(kept.study) for kept in KEPT if kept.store == store]
        assert set(rows(store)["run_id"]) == set().union(*(study.runs() for study in studies))


def test_chosen_settings_are_those_that_select_writes(tmp_path: Path) -> None:
    best = tmp_path / "best.toml"
    call = ["select", "--store", str(ROOT / "results/sensitivity"), "--study", "paper/sac-ablation-reduced"]
    assert main([*call, "--by", "env", "--seeds", "10-39", "--out", str(best)]) == 0
    assert set(load_study(str(best)).runs()) == set(load_study("paper/sac-ablation-chosen").runs())


@pytest.fixture(scope="module")
def tables() -> list[pl.DataFrame]:
    """Those of the reports on every kept study, and on every store."""
    reports = {(kept.store, study) for kept in KEPT for study in (kept.study, None)}
    return [frame for store, study in reports for frame in report.tables(made["analysed"](store, study)).values()]


def test_tables_of_the_docs_are_those_of_the_kept_runs() -> None:
    texts = made["blocks"]()
    assert sorted(texts) == sorted(
        name for document in DOCUMENTS for _, name, _ in made["BLOCK"].findall(document.read_text())
    )
    for document in DOCUMENTS:
        text = document.read_text()
        assert made["filled"](text, texts) == text


def test_every_interval_in_the_docs_is_one_of_a_report_or_a_table(tables: list[pl.DataFrame]) -> None:
    known = {text for frame in tables for text in intervals(frame)}
    known |= {text for block in made["blocks"]().values() for text in INTERVAL.findall(block)}
    told = [text for document in DOCUMENTS for text in INTERVAL.findall(document.read_text())]
    assert told
    assert [text for text in told if text not in known] == []


def intervals(frame: pl.DataFrame) -> set[str]:
    """Every interval of a table of a report, as the docs write it."""
    ends = [name.removesuffix("low") for name in frame.columns if name.endswith("low")]
    estimates = {"": ("average_return", "interquartile_mean")}
    found = set()
    for end in ends:
        for name in estimates.get(end, (end.rstrip("_"),)):
            if name in frame.columns:
                found |= {
                    with_interval(Interval(*numbers))
                    for numbers in frame.select(name, f"{end}low", f"{end}high").drop_nulls().rows()
                }
    return found


@pytest.mark.slow
def test_a_kept_run_can_be_repeated(tmp_path: Path) -> None:
    """Bit for bit where software and processor are the same; elsewhere it says that it can't be compared."""
    store = tmp_path / "store"
    shutil.copytree(ROOT / "results/sensitivity", store, ignore=shutil.ignore_patterns("reruns"))
    quickest = rows("sensitivity").sort("seconds")["run_id"][0]
    call = [str(Path(sys.executable).with_name("greedyac")), "rerun", quickest, "--store", str(store)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search("equal to the store, bit for bit|not comparable with the store", done.stdout)
