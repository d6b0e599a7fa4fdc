"""The package as users get it: a wheel that works away from the checkout, files that agree with each other."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from helpers.paths import ROOT

import greedyac


def test_a_wheel_builds_and_trains_outside_the_checkout(tmp_path: Path) -> None:
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = wheels.glob("*.whl")
    packed = zipfile.ZipFile(wheel).namelist()
    assert {f"greedyac/analysis/assets/page.{kind}" for kind in ("html", "css", "js")} <= set(packed)
    assert {"greedyac/peers/requirements.txt", "greedyac/peers/measured.py"} <= set(packed)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    script = (
        "import greedyac; print(greedyac.__file__); "
        "result = greedyac.train('random', 'Acrobot-DA', steps=1200, env_options={'time_limit': 50}); "
        "print(result.curves['episodes'][0])"
    )
    elsewhere = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, env=elsewhere, check=True, capture_output=True, text=True
    )
    where, episodes = done.stdout.split()
    assert Path(where).is_relative_to(site)
    assert int(episodes) >= 24
    assert (site / "greedyac" / "py.typed").exists()


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == greedyac.__version__
    assert f"version: {greedyac.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {greedyac.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("constraints", ["constraints.txt", "constraints-latest.txt"])
def test_the_constraints_name_every_dependency_with_its_version_and_nothing_else(constraints: str) -> None:
    lines = (ROOT / constraints).read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line) for line in lines)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    assert {re.split(r"[<>=[]", name)[0] for name in asked} - {"greedyac"} <= pinned


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What `make` would do."""
    call = ["make", "--dry-run", "--always-make", *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "PYTHON")}
    return subprocess.run(call, cwd=ROOT, env=clean, capture_output=True, text=True, check=False)


def test_every_interpreter_and_set_of_versions_has_a_virtual_environment_of_its_own() -> None:
    version = "{}.{}".format(*sys.version_info)
    pinned = "--constraint constraints.txt"
    for arguments, folder, constraint in (
        ([], ".venv", pinned),
        ([f"PYTHON={sys.executable}"], f".venv-{version}", pinned),
        ([f"PYTHON={sys.executable}", "CONSTRAINTS=constraints-latest.txt"], f".venv-{version}-latest", "-latest.txt"),
        (["CONSTRAINTS="], ".venv-unpinned", ""),
    ):
        done = make("setup", *arguments)
        assert f" -m venv {folder}\n" in done.stdout
        assert f"{folder}/bin/python -m pip install" in done.stdout
        assert constraint in done.stdout
        assert bool(constraint) == ("--constraint" in done.stdout)


def test_an_interpreter_that_does_not_run_is_named() -> None:
    done = make("setup", "PYTHON=no-such-python")
    assert done.returncode == 2
    assert "PYTHON=no-such-python does not run" in done.stderr
