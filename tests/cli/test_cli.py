"""The command line: help, tables, and what bad input gets: one line, exit code 2, nothing started, nothing written."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from greedyac import __version__
from greedyac.agents import AGENTS
from greedyac.cli import main
from greedyac.cli.parser import COMMANDS
from greedyac.core.fields import hypers_of, show
from greedyac.envs import ENVS
from greedyac.training.checkpoint import Policy, save_checkpoint
from greedyac.training.config import Run, RunConfig

Capture = pytest.CaptureFixture[str]
Refused = Callable[..., str]
TRAIN = ("train", "greedy-ac", "Pendulum-CA", "--steps", "1000", "--out", "new")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below the folder with its bytes; None for a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Refused:
    """Runs a command that must be refused, in an empty folder; gives the one line that it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        before, children = contents(tmp_path), os.times()[2:4]
        assert main(words) == 2
        printed, complaint = capsys.readouterr()
        assert printed == ""
        assert complaint.endswith("\n")
        [line] = complaint.splitlines()
        assert line.startswith("greedyac: error: ")
        assert contents(tmp_path) == before
        assert os.times()[2:4] == children, "a worker was started"
        return line

    return run


def assert_says(line: str, parts: str) -> None:
    """The line holds the parts, which are separated by an ellipsis, in that order."""
    at = 0
    for part in parts.split(" … "):
        assert part in line[at:], line
        at = line.index(part, at) + len(part)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: greedyac {command}")


def test_help_of_train_names_every_hyperparameter(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit, match="0"):
        main(["train", "greedy-ac", "--help"])
    text = capsys.readouterr().out
    for hyper in hypers_of(AGENTS["greedy-ac"]).values():
        assert f"{hyper.help}; {hyper.range} (default {show(hyper.default)})" in text
        assert f"{hyper.option} V" in text


def test_help_imports_nothing_slow() -> None:
    program = """
import sys
from greedyac.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
slow = sorted({"jax", "equinox", "polars", "matplotlib", "scipy"} & sys.modules.keys())
sys.exit(f"imported {slow}" if slow else 0)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert all(command in ran.stdout for command in COMMANDS)


def test_console_script() -> None:
    script = Path(sys.executable).with_name("greedyac")
    ran = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"greedyac {__version__}\n"
    ran = subprocess.run([script, "trian"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)


def test_a_complaint_is_written_whole() -> None:
    """Others write to the same terminal, as Dask's scheduler: a line must not be torn apart."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps apart what is written apart
    with here, there:
        unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
        script = str(Path(sys.executable).with_name("greedyac"))
        subprocess.run([script, "tr\nain"], stderr=there.fileno(), env=unbuffered, check=False)
        written = here.recv(4096).decode()
    assert written.startswith("greedyac: error: unknown command 'tr")
    assert written.endswith("\n")
    assert len(written.splitlines()) == 1


def test_agents_lists_every_hyperparameter(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["agents"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, agent in AGENTS.items():
        assert any(line.startswith(name) for line in lines)
        for hyper in hypers_of(agent).values():
            parts = (hyper.kind, show(hyper.default), hyper.range, hyper.help)
            assert any(line.startswith(hyper.name) and all(part in line for part in parts) for line in lines)


def test_agents_as_json(capsys: Capture) -> None:
    assert main(["agents", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == ["greedy-ac", "sac", "vanilla-ac", "random"]
    assert listed["random"] == []
    assert listed["greedy-ac"][0] == {
        "name": "critic_step_size",
        "kind": "traced",
        "default": 0.001,
        "allowed": "> 0",
        "meaning": "α: Adam step size of the critic",
    }
    assert [entry["name"] for entry in listed["greedy-ac"]] == list(hypers_of(AGENTS["greedy-ac"]))


def test_envs_lists_every_option(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, (env, _) in ENVS.items():
        assert any(line.startswith(name) and (env.__doc__ or "").splitlines()[0] in line for line in lines)
        for option in hypers_of(env).values():
            parts = (option.name, show(option.default), option.range, option.help)
            assert any(line.startswith(name[:-3]) and all(part in line for part in parts) for line in lines)


def test_envs_as_json(capsys: Capture) -> None:
    assert main(["envs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == list(ENVS)
    assert listed["Pendulum-CA"]["action"] == {"low": [-2.0], "high": [2.0]}
    assert listed["Pendulum-DA"]["action"] == {"count": 3}
    for name, (env, _) in ENVS.items():
        options = json.dumps(listed[name]["options"], ensure_ascii=False)
        for option in hypers_of(env).values():
            assert all(part in options for part in (option.name, str(option.default), option.range, option.help))


@pytest.mark.parametrize("value", ["-1", "-1e-3", "0", "nan", "inf", "-inf", "abc", ""])
def test_bad_step_size(refused: Refused, value: str) -> None:
    line = refused(*TRAIN, "--critic-step-size", value)
    shown = "-0.001" if value == "-1e-3" else value
    assert line == f"greedyac: error: critic_step_size = {shown} is not allowed; allowed: > 0"


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--elite-fraction", "0", "elite_fraction = 0 is not allowed; allowed: > 0 and < 1"),
        ("--elite-fraction", "1", "elite_fraction = 1 is not allowed; allowed: > 0 and < 1"),
        ("--elite-fraction", "-0.1", "elite_fraction = -0.1 is not allowed; allowed: > 0 and < 1"),
        ("--discount", "1.01", "discount = 1.01 is not allowed; allowed: ≥ 0 and ≤ 1"),
        ("--hidden", "64,x", "hidden = 64,x is not allowed; allowed: whole numbers ≥ 1, as in 64,64"),
        ("--hidden", "0", "hidden = 0 is not allowed; allowed: whole numbers ≥ 1, as in 64,64"),
        ("--hidden", "64,-64", "hidden = 64,-64 is not allowed; allowed: whole numbers ≥ 1, as in 64,64"),
        ("--batch-size", "3.5", "batch_size = 3.5 is not allowed; allowed: whole number ≥ 1"),
        ("--batch-size", "100001", "batch_size = 100001 is not allowed with replay_capacity = 100000"),
        ("--batch-size", "1" + 400 * "0", "is not allowed"),
        ("--entropy-estimator", "scor", "'scor' … mean 'score'? … score, exact, released"),
        ("--critc-step-size", "1", "option '--critc-step-size' … mean '--critic-step-size'? … --preset,"),
        ("--critic-step-size", "1\n2", "is not allowed; allowed: > 0"),
        ("--preset", "papr", "unknown preset 'papr' … mean 'paper'? … paper, paper-across"),
        ("--env-option", "tme_limit=3", "option of Pendulum-CA 'tme_limit' … mean 'time_limit'? … time_limit"),
        ("--env-option", "time_limit=x", "time_limit = x is not allowed; allowed: whole number ≥ 1"),
        ("--env-option", "time_limit=0", "time_limit = 0 is not allowed; allowed: whole number ≥ 1"),
        ("--env-option", "time_limit", "--env-option 'time_limit' is not allowed; allowed: name=value"),
        ("--workers", "0", "'0' is not allowed; allowed: whole number ≥ 1"),
        ("--workers", "two", "'two' is not allowed; allowed: whole number ≥ 1"),
    ],
)
def test_bad_option(refused: Refused, option: str, value: str, complaint: str) -> None:
    assert_says(refused(*TRAIN, option, value), complaint)


def test_batch_larger_than_the_given_replay(refused: Refused) -> None:
    line = refused(*TRAIN, "--batch-size", "33", "--replay-capacity", "32")
    assert "batch_size = 33 is not allowed with replay_capacity = 32; allowed: whole number ≥ 1 and ≤ 32" in line


@pytest.mark.parametrize(
    "value", ["3-1", "a", "1,,2", "-1", "0,0", "", "1.5", "0-", "0-2,1", "4294967296", "0-9999999"]
)
def test_bad_seeds(refused: Refused, value: str) -> None:
    line = refused(*TRAIN, "--seeds", value)
    twice = {"0,0": "seed 0 was given twice", "0-2,1": "seed 1 was given twice"}
    assert twice.get(value, value) in line
    assert "allowed" in line


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "nan", "inf", "many", "1e10"])
def test_bad_steps(refused: Refused, value: str) -> None:
    line = refused("train", "random", "Pendulum-CA", "--out", "new", "--steps", value)
    assert ("10000000000" if value == "1e10" else f"'{value}'") in line
    assert "allowed: whole number ≥ 1" in line


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["trian"],
            "command 'trian' … mean 'train'? … train, resume, eval, play, sweep, status, select, report, rerun, store, "
            "ccem, agents, envs, bench, demo",
        ),
        ([], "required: COMMAND; see greedyac --help"),
        (["train", "random"], "required: ENV; see greedyac train --help"),
        (["envs", "more"], "unexpected argument 'more'; see greedyac envs --help"),
        (["agents", "--jsn"], "unknown option '--jsn' … mean '--json'? … --json"),
        (
            ["train", "gredy-ac", "Pendulum-CA"],
            "unknown agent 'gredy-ac' … mean 'greedy-ac'? … greedy-ac, sac, vanilla-",
        ),
        (["train", "gredy-ac", "Pendulum-CA", "--polyak", "1"], "unknown agent 'gredy-ac' … mean 'greedy-ac'?"),
        (["train", "random", "pendulum-ca"], "environment 'pendulum-ca' … mean 'Pendulum-CA'? … MountainCar-CA, "),
        (["train", "random", "xyz"], "unknown environment 'xyz' … MountainCar-CA, MountainCar-DA, "),
        (
            ["train", "random", "Acrobot-CA", "--polyak", "1"],
            "option '--polyak' is of greedy-ac, sac, vanilla-ac; allowed for random: no hyperparameters",
        ),
        (["train", "random", "Acrobot-CA", "--preset", "paper"], "'paper' has no settings for random on Acrobot-CA"),
        (
            ["train", "vanilla-ac", "MinAtar-Freeway", "--preset", "paper"],
            "no settings for vanilla-ac on MinAtar-Freeway; allowed: vanilla-ac on Acrobot-CA, Acrobot-DA",
        ),
        (["train", "random", "Acrobot-CA", "--env-option", "start=zer"], "'zer' … mean 'zero'? … uniform, zero"),
        (["train", "--out", "random", "greedy-ac", "Acrobot-CA", "--seeds", "x"], "seeds 'x' are not allowed"),
        (["demo", "--seeds", "x"], "seeds 'x' are not allowed"),
        (
            ["train", "sac", "Pendulum-CA", "--baseline-samples", "3"],
            "option '--baseline-samples' is of vanilla-ac; allowed for sac: --critic-step-size, … --soft-target",
        ),
        (
            ["train", "random", "Pendulum-CA", "--entropy-estimator", "exact"],
            "option '--entropy-estimator' is of greedy-ac, vanilla-ac; allowed for random: no hyperparameters",
        ),
        (["bench", "--seconds", "1e9"], "seconds = 1000000000 is not allowed; allowed: whole number ≥ 1 and ≤ 3600"),
        (["bench", "--seconds", "0"], "'0' is not allowed; allowed: whole number ≥ 1"),
        (["bench", "SAC"], "unknown agent to measure 'SAC' … mean 'sac'? … greedy-ac, sac, vanilla-ac"),
        (["bench", "random"], "unknown agent to measure 'random'; allowed: greedy-ac, sac, vanilla-ac"),
        (["bench", "--lanes", "1"], "lanes = 1 is not allowed; allowed: whole number ≥ 2 and ≤ 1000"),
        (["bench", "--lanes", "many"], "'many' is not allowed; allowed: whole number ≥ 1"),
        (["bench", "--workers", "2"], "unknown option '--workers' … --seconds, --lanes, --json"),
        (
            ["bench", "--peers"],
            "interpreter '.venv-peers/bin/python' does not exist or can't be run; make bench sets it up",
        ),
        (
            ["bench", "--peers", "sac"],
            "interpreter 'sac' does not exist or can't be run; allowed: path of a Python (default .venv",
        ),
        (
            ["bench", "--peers", ""],
            "interpreter '' does not exist or can't be run; allowed: path of a Python (default .venv-peers",
        ),
        (
            ["bench", "vanilla-ac", "--peers", sys.executable],
            "no peers of vanilla-ac are known; --peers is allowed",
        ),
        (["bench", "--compare", "none.json"], "ratios 'none.json' can't be read: No such file or directory"),
        (["bench", "--profile", "--out", "x"], "--profile is not allowed with --out; allowed: one of them"),
        (["bench", "--compare", ""], "'' is not allowed; allowed: the path of a file"),
        (["bench", "--out", ""], "'' is not allowed; allowed: the path of a folder"),
        (["demo", "--steps", "0"], "'0' is not allowed; allowed: whole number ≥ 1"),
    ],
)
def test_bad_words(refused: Refused, words: list[str], complaint: str) -> None:
    assert_says(refused(*words), complaint)


def test_folder_with_a_result(refused: Refused, tmp_path: Path) -> None:
    for name in ("summary.json", "curves.parquet", "curves.png", "seed-7.safetensors"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_bytes(b"old")
        (folder / "notes.txt").write_bytes(b"mine")
        line = refused("train", "random", "Pendulum-CA", "--steps", "10", "--out", str(folder))
        assert f"output folder {str(folder)!r} already holds a result ({name}); --overwrite replaces it" in line


@pytest.mark.parametrize("out", ["file", "file/below", "file/far/below", 300 * "x"])
@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_folder_that_cannot_be_written(refused: Refused, tmp_path: Path, out: str, more: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"old")
    assert f"output folder {out!r} can't be written: " in refused(
        "train", "random", "Pendulum-CA", "--steps", "10", "--out", out, *more
    )


def test_bench_refuses_bad_files_before_it_measures(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "ratios.json").write_text("{}")
    assert "key 'fraction_of_matmul' is missing" in refused("bench", "--compare", "ratios.json", "--out", "new")
    (tmp_path / "ratios.json").write_text('{"fraction_of_matmul": {"sac Pendulum-CA": 0.4}}')
    complaint = "ratios 'ratios.json' have none of what is measured: greedy-ac, vanilla-ac"
    assert complaint in refused("bench", "greedy-ac", "vanilla-ac", "--compare", "ratios.json")
    (tmp_path / "bench.md").mkdir()
    assert "output folder '.' holds something else called 'bench.md'" in refused("bench", "--out", ".")
    assert "output folder 'ratios.json' can't be written: " in refused("bench", "--out", "ratios.json")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "seed-3.safetensors"
    run = Run(RunConfig("random", "Pendulum-CA", steps=10, env_options={"time_limit": 5}), seed=3)
    agent = run.config.learner
    save_checkpoint(path, Policy(run, agent.init(None, run.config.world.spaces)))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "truncated", "text", "foreign", "not JSON", "other"])
def test_eval_of_what_is_no_checkpoint(refused: Refused, checkpoint: Path, kind: str) -> None:
    path = checkpoint.with_name("given.safetensors")
    if kind == "folder":
        path.mkdir()
    elif kind == "truncated":
        path.write_bytes(checkpoint.read_bytes()[:-9])
    elif kind in ("empty", "text"):
        path.write_bytes(b"" if kind == "empty" else b"no safetensors file at all\n")
    elif kind != "missing":
        about = {"foreign": {"format": "pt"}, "not JSON": {"greedyac": "{"}, "other": {"greedyac": '{"format": 1}'}}
        save_file({"weight": np.zeros(3, np.float32)}, path, about[kind])
    assert f"checkpoint {str(path)!r}: " in refused("eval", str(path))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--episodes", "0"], "'0' is not allowed; allowed: whole number ≥ 1"),
        (["--episodes", "-3"], "'-3' is not allowed; allowed: whole number ≥ 1"),
        (["--episodes", "2.5"], "'2.5' is not allowed; allowed: whole number ≥ 1"),
        (["--seed", "-1"], "seed = -1 is not allowed; allowed: whole number ≥ 0 and ≤ 4294967295"),
        (["--seed", "x"], "'x'"),
        (["--epsodes", "3"], "unknown option '--epsodes' … mean '--episodes'?"),
    ],
)
def test_bad_option_of_eval(refused: Refused, checkpoint: Path, words: list[str], complaint: str) -> None:
    assert_says(refused("eval", str(checkpoint), *words), complaint)


def test_eval_prints_mean_interval_and_each_return(checkpoint: Path, capsys: Capture) -> None:
    assert main(["eval", str(checkpoint), "--episodes", "3", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert list(numbers) == ["checkpoint", "returns", "mean", "interval"]
    assert numbers["checkpoint"] == str(checkpoint)
    assert len(set(numbers["returns"])) == 3
    assert numbers["mean"] == pytest.approx(np.mean(numbers["returns"]))
    low, high = numbers["interval"]
    assert low < numbers["mean"] < high

    assert main(["eval", str(checkpoint), "--episodes", "3"]) == 0
    heading, returns, mean = capsys.readouterr().out.splitlines()
    assert heading == "random on Pendulum-CA[time_limit=5], seed 3, with the most likely action"
    assert returns.split() == ["returns", *(f"{value:.1f}" for value in numbers["returns"])]
    assert mean.split() == ["mean", f"{numbers['mean']:.1f}", "95", "%", "interval", f"{low:.1f}", "…", f"{high:.1f}"]

    assert main(["eval", str(checkpoint), "--episodes", "1"]) == 0
    assert "interval" not in capsys.readouterr().out
