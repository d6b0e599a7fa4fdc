"""How progress is shown: in a real notebook, on a real terminal, in a pipe; and in which words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from greedyac.api.progress import Progress, ProgressReport, duration, speed

LEARN = 'import greedyac; model = greedyac.Random("Pendulum-CA").learn(20_000)'
TRAIN = 'import greedyac; greedyac.train("random", "Pendulum-CA", steps=20_000{}); None'
SHORT = 'import greedyac; model = greedyac.Random("Pendulum-CA").learn(300); model.learn(300); model.learn(900)'
CELLS = [
    LEARN,
    "model.learn(20_000, callback=lambda model: model.steps < 25_000)",
    "model.learn(20_000, progress=False); None",
    "import gymnasium; greedyac.Random(lambda: gymnasium.make('CartPole-v1')).learn(500); None",
    "model.learn(20_000, callback=lambda model: 1 / 0)",
    TRAIN.format(""),
    TRAIN.format(", progress=False"),
    TRAIN.format(", on_progress=lambda progress: None"),
]
NOTEBOOK = """
import json, sys, nbclient, nbformat
cells = [nbformat.v4.new_code_cell(source) for source in json.loads(sys.argv[1])]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, kernel_name="python3", allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in cells]))
"""


@pytest.mark.slow
def test_in_a_notebook(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    folders = {name: str(tmp_path) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    ran = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", NOTEBOOK, json.dumps(CELLS)],
        capture_output=True,
        text=True,
        env={**os.environ, **folders},
    )
    assert ran.returncode == 0, ran.stderr
    whole, half, silent, function, failed, trained, quiet, own = json.loads(ran.stdout)
    [shown] = whole  # one display, nothing on standard output and error
    assert shown["output_type"] == "display_data"
    assert shown["data"]["text/plain"].startswith(f"random on Pendulum-CA  {30 * '█'}  100 %  ")
    assert 'value="1.0000"' in shown["data"]["text/html"]
    shown, result = half  # stopped after 5,000 of 20,000
    assert f"{8 * '█'}{22 * '░'}  25 %" in shown["data"]["text/plain"]
    assert result["data"]["text/plain"] == "Random('Pendulum-CA', seed=0) after 25,000 steps"
    assert silent == []
    [shown] = function
    assert shown["data"]["text/html"].startswith("<div>random on &lt;lambda&gt; <progress")
    shown, error = failed  # at 46,000, where 1,000 were done
    assert "  5 %  " in shown["data"]["text/plain"]
    assert error["ename"] == "ZeroDivisionError"
    [shown] = trained
    assert shown["data"]["text/plain"].startswith(f"random on Pendulum-CA  {30 * '█'}  100 %  ")
    assert quiet == own == []


def test_a_notebook_hears_four_times_a_second_and_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, shown = [100.0], []

    def display(data: dict[str, str], **options: Any) -> Any:
        assert options == {"raw": True, "display_id": True}
        shown.append(["new", data["text/plain"]])
        return SimpleNamespace(update=lambda data, raw: shown.append(["update", data["text/plain"]]))

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("greedyac.api.progress.time.monotonic", lambda: now[0])
    with ProgressReport("work") as report:
        for done in range(101):
            report.show(done / 128, f"{done} done")  # whose time is exact in binary
            now[0] += 1 / 16
    assert [kind for kind, _ in shown] == ["new"] + 26 * ["update"]  # at 0, 4, 8, … 100, and once more
    assert shown[1] == ["update", f"work  {'█'}{29 * '░'}  3 %  0 s  4 done"]
    assert shown[-1] == ["update", f"work  {23 * '█'}{7 * '░'}  78 %  6 s  100 done"]


def run(code: str, **streams: Any) -> subprocess.Popen[bytes]:
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    return subprocess.Popen([sys.executable, "-c", code], env=env, **streams)


def on_a_terminal(code: str) -> str:
    """What a program writes to standard error, which is a terminal; there is nothing on standard output."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with run(code, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        told = b""
        while True:
            try:
                told += os.read(ours, 65536)
            except OSError:  # nobody writes any more
                break
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(ours)
    assert process.returncode == 0, told.decode()
    return told.decode()


@pytest.mark.parametrize("code", [LEARN, TRAIN.format("")])
def test_on_a_terminal(code: str) -> None:
    text = on_a_terminal(code)
    frames = text.split("random on Pendulum-CA")
    assert "compiling …" in text
    assert "100 %" in frames[-1]
    assert "run-steps/s" in frames[-1]
    assert "\x1b[2K" in text  # lines are written again in place
    assert "no episode ended" not in text


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (SHORT, ["within 300 steps, so there are no returns", "within 600 steps, so there are no returns"]),
        (
            TRAIN.format("").replace("20_000", "2_500"),
            ["in the last tenth of 2,500 steps, so there is no final return"],
        ),
    ],
)
def test_on_a_terminal_it_is_told_that_no_episode_ended(code: str, lines: list[str]) -> None:
    """Of a model only until one has, in whatever call of `learn`."""
    assert re.findall(r"no episode ended (.*?);", on_a_terminal(code)) == lines


@pytest.mark.parametrize("code", [LEARN, SHORT, TRAIN.format(""), TRAIN.format("").replace("20_000", "30")])
def test_in_a_pipe_learning_says_nothing(code: str) -> None:
    process = run(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.communicate() == (b"", b"")
    assert process.returncode == 0


def test_lines_where_there_is_no_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("greedyac.api.progress.time.monotonic", lambda: now[0])
    for lines in (True, False):
        with ProgressReport("[work]", lines=lines) as report:
            for done in range(5):
                report.training(Progress(done, 4, 0.25))
                now[0] += 4.0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "[work]  75 %  0 run-steps/s, 4 s left\n[work]  100 %  0 run-steps/s\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (99, "99 s"),
        (100, "2 min"),
        (99 * 60, "99 min"),
        (100 * 60, "1 h 40 min"),
        (47 * 3600 + 59 * 60, "47 h 59 min"),
        (48 * 3600, "2 d 0 h"),
        (76.5 * 3600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_speed() -> None:
    assert speed(None, None) == "compiling …"
    assert speed(1234.5, 61) == "1,234 run-steps/s, 61 s left"
    assert speed(1234.5, 0.5) == "1,234 run-steps/s"
