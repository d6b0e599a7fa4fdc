"""What a report of 30,000 runs costs: seconds, memory, and the size of the page, without figures and with them.

    python benchmarks/report.py

The runs have the paper's grid over continuous actions and curves of noise, which nothing compresses.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from greedyac.execution.rows import failed_row
from greedyac.results.files import publish_rows
from greedyac.results.schema import BINS, SCHEMA
from greedyac.study.spec import load_study, parse_study
from greedyac.study.store import Store

RUNS = 30_000


def fill(store: Store) -> None:
    """Publish the runs in files of 16: 23 seeds of 150 settings of 3 agents on 3 environments, less some."""
    study = parse_study(load_study("paper/sweep-ca").text.replace('"0-9"', '"0-22"', 1))
    store.record_study(study)
    runs, rng = list(study.runs().values())[:RUNS], np.random.default_rng(0)
    for first in range(0, len(runs), 16):
        rows = []
        for run in runs[first : first + 16]:
            curve = rng.uniform(-1000, -50, BINS)
            told = {"average_return": curve.mean(), "final_return": curve[-10:].mean(), "best_return": curve.max()}
            about = {"status": "done", "error": None, "episodes": 100, "curve_steps": 1000.0, "seconds": 20.0}
            rows.append({**failed_row(run, ""), **about, **told, "curve": curve.tolist()})
        publish_rows(store.chunks, pl.DataFrame(rows, SCHEMA))


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        fill(Store.create(Path(folder) / "store"))
        for options in (["--no-figures"], []):
            call = ["report", "--store", f"{folder}/store", "--out", f"{folder}/report", *options]
            began = time.perf_counter()
            subprocess.run([Path(sys.executable).with_name("greedyac"), *call], check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - began
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            size = (Path(folder) / "report" / "report.html").stat().st_size / 1e6
            what = "page and tables" if options else "page, tables and figures"
            print(f"{RUNS:,} runs, {what}: {seconds:.1f} s, {memory:.0f} MB, report.html {size:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
