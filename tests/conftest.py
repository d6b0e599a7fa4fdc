"""Fixtures of the tests that run studies: a study, what it leaves when nothing happens, sweeps, a cluster."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers.clusters import Cluster
from helpers.processes import end_tree
from helpers.sweeping import Sweeps, numbers, write_study

from greedyac.cli import main
from greedyac.core import xla

os.environ.setdefault("GREEDYAC_CACHE", str(Path(__file__).parents[1] / ".cache"))  # and not the user's
xla.start()  # before a test does with JAX what we would not
xla.MIN_SECONDS = 0.0
xla._THREAD.is_ours = True  # what tests compile themselves is kept as well
xla._CONFIG.update("jax_persistent_cache_min_compile_time_secs", 0.0)
gc.set_threshold(100_000, 50, 1000)  # JAX has millions of objects, which live on


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Say at the end, in one line, what to install for tests that were skipped: their reasons begin with `install`."""
    yield
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    missing = [reason.removeprefix("Skipped: install ") for reason in skipped if reason.startswith("Skipped: install ")]
    if missing:
        packages = " ".join(dict.fromkeys(missing))
        tests = f"{len(missing)} {'test was' if len(missing) == 1 else 'tests were'}"
        terminalreporter.write_line(
            f"{tests} skipped because programs are missing; on Debian: apt-get install {packages}"
        )


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study") / "walks.toml")


@pytest.fixture(scope="session")
def filled(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the study, never interrupted; to be copied."""
    folder = tmp_path_factory.mktemp("whole") / "store"
    assert main(["sweep", str(study), "--store", str(folder), "--chunk-minutes", "0.01"]) == 0
    return folder


@pytest.fixture(scope="session")
def whole(filled: Path) -> pl.DataFrame:
    """The numbers of the study."""
    return numbers(filled)


@pytest.fixture
def sweeps() -> Iterator[Sweeps]:
    sweeps = Sweeps()
    yield sweeps
    for process in sweeps.processes:
        end_tree(process)
        process.communicate()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    cluster.close()
