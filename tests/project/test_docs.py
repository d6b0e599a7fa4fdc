"""Every command and code block of README and docs runs, shortened where it is long."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT

from greedyac.study.spec import parse_study

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "results/README.md"]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}


def shortened(code: str) -> str:
    """The same code with few steps and seeds; `make demo` as the command that it calls."""
    code = re.sub(r"(--steps |steps=)([\d_]+)", lambda match: match[1] + str(min(int(match[2]), 300)), code)
    code = re.sub(r"--eval-every \d+ --eval-episodes \d+", "--eval-every 100 --eval-episodes 1", code)
    code = re.sub(r"--seeds 0-9", "--seeds 0-1", code).replace("range(10)", "range(2)").replace("range(4)", "range(2)")
    code = re.sub(r"(greedyac train (?!.*--steps).*)", r"\1 --steps 300", code)
    code = re.sub(r"greedyac bench( --seconds \d+)?", "greedyac bench vanilla-ac --seconds 1 --lanes 2", code)
    code = re.sub(r"greedyac bench.*--peers.*", "greedyac bench --help", code)  # needs other libraries
    code = re.sub(r"greedyac sweep \S+ --store (?!results/)", "greedyac sweep study.toml --store ", code)
    code = re.sub(r"greedyac sweep \S+ --store results/\S+", r"\g<0> --dry-run", code)  # kept: test_results.py
    return code.replace("make demo", "greedyac demo --steps 300 --seeds 0-1")


def commands(code: str) -> list[str]:
    """The lines of a bash block without comments; `make test` would be this test itself, `make bench` sets up much."""
    lines = [line.partition("#")[0].strip() for line in code.splitlines()]
    return [line for line in lines if line and line not in ("make test", "make bench")]


STUDY = """
name = "short"
steps = 3_000
seeds = "0-2"
tuning_seeds = "0-1"
[[cells]]
agents = ["random"]
envs = ["Pendulum-CA"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_runs(document: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)  # in place of every study that is swept, unless its runs are kept
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("reruns"))
    for language, block in BLOCK.findall(document.read_text()):
        code = shortened(block)
        for command in commands(code) if language == "bash" else [code]:
            call = ["bash", "-c", command] if language == "bash" else [sys.executable, "-c", command]
            done = subprocess.run(call, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_study_in_the_docs_is_one() -> None:
    [block] = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/studies.md").read_text(), re.MULTILINE | re.DOTALL)
    study = parse_study(block)
    assert (study.name, len(study.runs()), study.tuning_seeds) == ("pendulum-example", 240, tuple(range(10)))


@pytest.mark.slow
def test_the_table_of_pushes_is_what_its_code_prints() -> None:
    text = (ROOT / "docs/entropy.md").read_text()
    [code] = [code for language, code in BLOCK.findall(text) if language == "python"]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 8
    assert done.stdout in text


def test_code_blocks_are_found() -> None:
    assert sum(len(BLOCK.findall(document.read_text())) for document in DOCUMENTS) >= 6
