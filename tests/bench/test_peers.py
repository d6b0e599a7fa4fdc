"""Other libraries beside ours: what their scripts compute, how they are run, what is told, what counts as a fall."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.paths import ROOT
from helpers.processes import alive, wait_for
from numpy.typing import NDArray

from greedyac.agents.base import Batch
from greedyac.agents.greedy_ac import Draws, GreedyACAgent, State
from greedyac.bench import measure as measuring
from greedyac.bench import peers, ratios
from greedyac.bench.figures import OURS, THEIRS, peer_bars
from greedyac.bench.measure import Bench, Measured
from greedyac.bench.peers import PEERS, SCRIPTS, Peer, PeerResult, Told, measure_peer, parse_told
from greedyac.bench.ratios import Ratios, confirmed, fallen, ratios_of, read_ratios, to_json, verdict
from greedyac.cli import main
from greedyac.core.errors import InputError
from greedyac.core.machine import PINS, cores
from greedyac.core.spaces import Box, Spaces
from greedyac.execution.cost import PASSES
from greedyac.nn.policies import GaussianPolicy

PYTHON = Path(os.environ.get("GREEDYAC_PEERS_PYTHON", ROOT / ".venv-peers/bin/python"))
Numbers = dict[str, NDArray[np.float32]]

# --- What the PyTorch scripts compute ---------------------------------------------------------------------------------

UPDATES = 3
NETS = ("critic", "target", "actor", "proposal")
DRIVER = """
import sys
from importlib import import_module

import numpy as np
import torch

scripts, name, given, found = sys.argv[1:]
sys.path.insert(0, scripts)
peer = import_module(name)
numbers = {key: torch.from_numpy(value) for key, value in np.load(given).items()}
compiled = name.endswith("compiled")
torch.set_grad_enabled(not compiled)
agent = peer.GreedyAC()
learn = torch.compile(agent.learn, fullgraph=True) if compiled else agent.learn


def weights(net):
    return list(net.parameters()) if hasattr(net, "parameters") else getattr(net, "weights", net)


nets = {net: weights(getattr(agent, net)) for net in ("critic", "target", "actor", "proposal")}
with torch.no_grad():
    for net, own in nets.items():
        for place, weight in enumerate(own):
            weight.copy_(numbers[f"0 {net} {place}"])
for update in range(3):
    rows = numbers[f"{update} rows"]
    learn(peer.Batch(*rows.split(peer.ROW, 1)), numbers[f"{update} next"], numbers[f"{update} proposal"])
told = {f"{net} {place}": w.detach().numpy() for net, own in nets.items() for place, w in enumerate(own)}
np.savez(found, **told)
"""


def layers(net: Any) -> list[NDArray[np.float32]]:
    """Weights and biases, layer by layer, as PyTorch has them: outputs first, the two heads of a policy in one."""
    if isinstance(net, GaussianPolicy):
        pairs = [(one.weight, one.bias) for one in net.mlp.layers]
        heads = (net.mean, net.log_std)
        pairs.append((jnp.concatenate([one.weight for one in heads], 1), jnp.concatenate([one.bias for one in heads])))
    else:
        pairs = [(one.weight, one.bias) for one in (net.first, *net.mlp.layers, net.last)]
    return [np.asarray(part) for weight, bias in pairs for part in (weight.T, bias)]


def numbered(state: State) -> Numbers:
    return {f"{net} {place}": one for net in NETS for place, one in enumerate(layers(getattr(state, net)))}


def some_updates() -> tuple[Numbers, Numbers, Numbers]:
    """What is given to three updates, and all weights before and after."""
    rng, agent = np.random.default_rng(0), GreedyACAgent()
    learn = jax.jit(agent.learn)

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    spaces = Spaces(Box((-1.0, -1.0, -8.0), (1.0, 1.0, 8.0)), Box((-2.0,), (2.0,)))
    state = agent.init(jax.random.key(3), spaces)
    shaken = {net: jax.tree.map(lambda x: x + 0.05 * normal(*x.shape), getattr(state, net)) for net in NETS}
    state = state._replace(**shaken)  # no two networks are the same
    before, given = numbered(state), Numbers()
    for update in range(UPDATES):
        action, continues = normal(32, 1).clip(-2, 2), (rng.random((32, 1)) < 0.8).astype(np.float32)
        parts = normal(32, 3), action, normal(32, 1) - 3, normal(32, 3), continues
        next_noise, proposal_noise = normal(32, 1), rng.random((30, 32, 1), np.float32)
        given |= {f"{update} rows": np.concatenate(parts, 1)}
        given |= {f"{update} next": next_noise, f"{update} proposal": proposal_noise}
        observation, _, reward, next_observation, _ = parts
        batch = Batch(*map(jnp.asarray, (observation, action, reward[:, 0], next_observation, continues[:, 0])))
        state, _ = learn(state, batch, Draws(*map(jnp.asarray, (next_noise, proposal_noise, normal(32, 1)))))
    return given, before, numbered(state)


@pytest.mark.skipif(not PYTHON.exists(), reason=f"{PYTHON} does not exist; make bench sets it up")
@pytest.mark.parametrize(
    "script", ["greedy_ac_torch", pytest.param("greedy_ac_torch_compiled", marks=pytest.mark.slow)]
)
def test_a_script_in_pytorch_learns_what_ours_does(script: str, tmp_path: Path) -> None:
    given, before, after = some_updates()
    numbers, found = tmp_path / "given.npz", tmp_path / "found.npz"
    np.savez(numbers, **given, **{f"0 {name}": weight for name, weight in before.items()})  # type: ignore[arg-type]
    command = [str(word) for word in (PYTHON, "-c", DRIVER, SCRIPTS, script, numbers, found)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = np.load(found)
    assert set(theirs) == set(after)
    for name, weight in after.items():
        moved = np.abs(weight - before[name]).max()
        assert moved > (1e-4 if name.startswith("target") else 1e-3)
        np.testing.assert_allclose(theirs[name], weight, rtol=0, atol=2e-6, err_msg=name)


# --- How peers are run ------------------------------------------------------------------------------------------------

FAKES = {
    "good": """
import json, os, sys
print("a library says something")
core = sorted(os.sched_getaffinity(0))[0] if hasattr(os, "sched_getaffinity") else -1
seen = {"core": core, "omp": os.environ["OMP_NUM_THREADS"], "jax": os.environ["PJRT_NPROC"], "args": sys.argv[1:]}
print(json.dumps({"steps_per_second": 100 * (1 + core), "versions": {"torch": "2.1", "seen": json.dumps(seen)}}))
""",
    "crashing": "import sys; print('{}'); sys.stdout.flush(); raise RuntimeError('no [/luck] | today')",
    "silent": "import os; os._exit(3)",
    "nonsense": "print('hello [bold]')",
    "hanging": """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(__file__ + f".{child.pid}.pid", "w"):
    time.sleep(600)
""",
}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Peer]:
    """Peers by name: real processes, but of small scripts in a folder of their own."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name, text in FAKES.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(peers, "SCRIPTS", folder)
    monkeypatch.setattr(peers, "matmul_gflops", lambda: 50.0)
    return lambda name: Peer(f"A {name} one", "sac" if name == "good" else "greedy-ac", name, ("--runs", "4"))


def test_a_peer_runs_once_per_core_and_its_rate_is_the_mean(fakes: Callable[[str], Peer]) -> None:
    told = measure_peer(fakes("good"), sys.executable, 2, 60)
    assert told.error is None
    assert told.rate == pytest.approx(sum(100 * (1 + core) for core in cores()) / len(cores()))
    seen = json.loads(told.versions["seen"])
    assert seen["core"] in cores()
    assert (seen["omp"], seen["jax"], seen["args"]) == ("1", "1", ["--runs", "4", "--seconds", "2"])


@pytest.mark.skipif(not PINS, reason="this system does not pin processes")
def test_every_process_has_a_core_of_its_own(fakes: Callable[[str], Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    [first, *_] = cores()
    monkeypatch.setattr(peers, "cores", lambda: [first, -1])  # pinned, and anywhere
    told = measure_peer(fakes("good"), sys.executable, 2, 60)
    assert told.rate == pytest.approx(100 * (1 + first))  # `good` tells the first of its cores


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("crashing", "RuntimeError: no [/luck] | today"),
        ("silent", "exit code 3"),
        ("nonsense", "printed no result: 'hello [bold]'"),
    ],
)
def test_a_peer_that_fails(fakes: Callable[[str], Peer], name: str, error: str) -> None:
    assert measure_peer(fakes(name), sys.executable, 1, 60) == Told(None, error, {})


def test_a_peer_that_hangs_is_ended_with_all_that_it_started(fakes: Callable[[str], Peer], tmp_path: Path) -> None:
    assert measure_peer(fakes("hanging"), sys.executable, 1, 2) == Told(None, "no result after 2 s", {})
    assert list((tmp_path / "scripts").glob("*.pid"))
    for file in (tmp_path / "scripts").glob("*.pid"):
        child = int(file.suffixes[-2][1:])
        wait_for(lambda child=child: not alive(child), "the end of a child")  # type: ignore[misc]


def test_a_peer_without_an_interpreter(fakes: Callable[[str], Peer], tmp_path: Path) -> None:
    told = measure_peer(fakes("good"), str(tmp_path / "python"), 1, 60)
    assert told.rate is None
    assert "No such file" in str(told.error)


@pytest.mark.parametrize(
    "line",
    ["", "null", "3", "[1]", "{}", '{"steps_per_second": 0, "versions": {}}', '{"steps_per_second": 7}']
    + [f'{{"steps_per_second": {rate}, "versions": {{}}}}' for rate in ("NaN", "Infinity", "-3", '"fast"', "null")],
)
def test_lines_that_tell_nothing(line: str) -> None:
    assert parse_told(line) == Told(None, f"printed no result: {line!r}", {})


def test_every_peer_has_its_script_and_only_known_requirements() -> None:
    assert {peer.agent for peer in PEERS} == {"greedy-ac", "sac"}
    assert all((SCRIPTS / f"{peer.script}.py").is_file() for peer in PEERS)
    assert len({peer.key for peer in PEERS}) == len(PEERS)
    lines = (SCRIPTS / "requirements.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    assert "torch==2.13.0" in lines


# --- What is told -----------------------------------------------------------------------------------------------------


def canned(fractions: dict[str, float], matmul: float = 100.0) -> Bench:
    """Measurements of agents on Pendulum-CA with these shares of the matrix product, on two workers."""
    results = [
        Measured(agent, "Pendulum-CA", 10_000 * share, matmul * share, share, 8 if agent == "sac" else 4, 2)
        for agent, share in fractions.items()
    ]
    return Bench(2, matmul, results)


@pytest.fixture
def measured(fakes: Callable[[str], Peer], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Fast stand-ins for the measurement of ours; the list tells which agents were measured, time by time."""
    asked: list[list[str]] = []
    shares = {"greedy-ac": 0.6, "sac": 0.4, "vanilla-ac": 0.5}

    def stand_in(agents: Iterable[str], *_: Any) -> Bench:
        asked.append(list(agents))
        return canned({agent: shares[agent] for agent in asked[-1]})

    monkeypatch.setattr(measuring, "bench", stand_in)
    monkeypatch.setattr(peers, "PEERS", tuple(map(fakes, ("good", "crashing", "nonsense"))))
    monkeypatch.setattr(peers, "cores", lambda: [-1])
    monkeypatch.setenv("COLUMNS", "150")
    return asked


Capture = pytest.CaptureFixture[str]


def test_json_with_peers(measured: list[list[str]], capsys: Capture) -> None:
    assert main(["bench", "--json", "--peers", sys.executable]) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert list(told) == ["cores", "matmul_gflops", "results", "date", "machine", "peers", "peers_matmul_gflops"]
    assert list(told["machine"]) == ["cpu", "cores", "python", "jax", "greedyac"]
    good, crashing, nonsense = told["peers"]
    assert list(good) == list(PeerResult._fields)
    assert (good["peer"], good["key"], good["agent"], good["error"]) == ("A good one", "good --runs 4", "sac", None)
    assert good["ours_per_second"] == 2000.0  # 10,000 · 0.4, on two workers
    assert good["times_faster"] == pytest.approx(2000 / good["steps_per_second"])
    assert good["versions"]["torch"] == "2.1"
    assert (crashing["error"], crashing["times_faster"]) == ("RuntimeError: no [/luck] | today", None)
    assert nonsense["steps_per_second"] is None
    assert printed.err.splitlines() == [f"measuring A {name} one" for name in ("good", "crashing", "nonsense")]


def test_table_and_files(measured: list[list[str]], tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert main(["bench", "greedy-ac", "sac", "--peers", sys.executable, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^greedyac greedy-ac +greedyac .* 3,000 +$", text, re.MULTILINE)
    assert re.search(r"^A good one +torch 2\.1, ", text, re.MULTILINE)
    assert "A crashing one" in text
    assert "did not run: RuntimeError: no [/luck] | today" in text
    assert text.endswith(f"written to {out}/\n")
    names = ["bench.json", "bench.md", "peers.png", "peers.svg", "ratios.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert len(json.loads((out / "bench.json").read_text())["peers"]) == 3
    page = (out / "bench.md").read_text()
    assert "| greedy-ac | Pendulum-CA | 4 | 6,000 | 60.0 | 0.60 |" in page
    assert r"| A crashing one | did not run: RuntimeError: no [/luck] \| today | – | – |" in page
    assert (out / "peers.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(out / "peers.svg").getroot().tag.endswith("svg")
    kept = read_ratios(out / "ratios.json")
    assert kept.fraction_of_matmul == {"greedy-ac Pendulum-CA": 0.6, "sac Pendulum-CA": 0.4}
    assert kept.machine == HERE

    (out / "notes.txt").write_text("mine")
    assert main(["bench", "sac", "--out", str(out)]) == 0  # without peers: their picture of before goes
    assert sorted(path.name for path in out.iterdir()) == ["bench.json", "bench.md", "notes.txt", "ratios.json"]
    assert "peers" not in json.loads((out / "bench.json").read_text())
    assert "versions" not in (out / "bench.md").read_text()


def test_only_peers_of_agents_that_are_measured(measured: list[list[str]], capsys: Capture) -> None:
    assert main(["bench", "sac", "--json", "--peers", sys.executable]) == 0
    assert [one["peer"] for one in json.loads(capsys.readouterr().out)["peers"]] == ["A good one"]


def a_peer(times: float | None, key: str = "sac_sbx", agent: str = "sac") -> PeerResult:
    error = None if times else "ImportError: no"
    return PeerResult(f"peer {key}", key, agent, 2000 / times if times else None, 2000.0, times, error, {})


def test_bars_are_the_rates_fastest_first() -> None:
    results = [a_peer(100.0, "slow"), a_peer(None, "absent"), a_peer(4.0, "fast"), a_peer(10.0, "torch", "greedy-ac")]
    figure = peer_bars(canned({"greedy-ac": 0.4, "sac": 0.4, "vanilla-ac": 0.1}), results)
    panels = {panel.get_title(loc="left"): panel for panel in figure.axes}
    assert list(panels) == ["GreedyAC", "SAC"]
    bars = panels["SAC"].patches
    assert [bar.get_width() for bar in bars] == [2000, 500, 20, 0]  # type: ignore[attr-defined]
    names = [label.get_text() for label in panels["SAC"].get_yticklabels()]
    assert names == ["greedyac, 8 runs at once", "peer fast", "peer slow", "peer absent"]
    assert panels["GreedyAC"].get_yticklabels()[0].get_text() == "greedyac, 4 runs at once"
    texts = [text.get_text() for text in panels["SAC"].texts]
    assert [texts[0], texts[3]] == ["2,000", "did not run"]
    assert texts[1].startswith("500")
    assert "4.0×" in texts[1]
    assert "100×" in texts[2]
    assert OURS != THEIRS


# --- What counts as a fall --------------------------------------------------------------------------------------------

HERE = ratios_of(canned({})).machine
EARLIER = Ratios({"greedy-ac Pendulum-CA": 0.6, "sac Pendulum-CA": 0.4}, HERE)


def test_fifteen_per_cent_are_allowed_on_the_same_machine() -> None:
    now = Ratios({"greedy-ac Pendulum-CA": 0.5101, "sac Pendulum-CA": 0.3399}, HERE)
    assert fallen(EARLIER, now) == {"sac Pendulum-CA": 0.3399}
    assert verdict(EARLIER, now) == [
        "fell: fraction_of_matmul of sac Pendulum-CA: 0.34, 15 % below 0.4",
        "ratios compared: 2 of 2, fallen by more than 15 %: 1",
    ]
    assert fallen(EARLIER, EARLIER) == {}
    assert verdict(EARLIER, EARLIER) == ["ratios compared: 2 of 2, fallen by more than 15 %: 0"]


@pytest.mark.parametrize("machine", [None, "a Z80"])
def test_half_is_allowed_beside_another_machine(machine: str | None) -> None:
    """Where the matrix product uses wider instructions than we do, we reach less of it, and are no slower for that."""
    earlier = EARLIER._replace(machine=machine)
    now = Ratios({"greedy-ac Pendulum-CA": 0.301, "sac Pendulum-CA": 0.199}, HERE)
    assert fallen(earlier, now) == {"sac Pendulum-CA": 0.199}
    where = f"(measured on {machine or 'an unknown machine'})"
    assert verdict(earlier, now) == [
        "fell: fraction_of_matmul of sac Pendulum-CA: 0.199, 50 % below 0.4",
        f"ratios compared: 2 of 2 {where}, fallen by more than 50 %: 1",
    ]
    assert fallen(earlier, now._replace(machine=None)) == {"sac Pendulum-CA": 0.199}  # two unknown ones may differ


def test_what_was_not_measured_and_what_is_new_are_told_and_do_not_fail() -> None:
    now = ratios_of(canned({"greedy-ac": 0.9, "vanilla-ac": 0.1}))
    assert fallen(EARLIER, now) == {}
    assert verdict(EARLIER, now) == [
        "not measured: fraction_of_matmul of sac Pendulum-CA: 0.4 before",
        "new: fraction_of_matmul of vanilla-ac Pendulum-CA: 0.1",
        "ratios compared: 1 of 2, fallen by more than 15 %: 0",
    ]


@pytest.mark.parametrize(("again", "counts"), [(0.7, 0.7), (0.45, 0.45), (0.2, 0.3)])
def test_what_fell_is_measured_once_more_and_the_better_counts(again: float, counts: float) -> None:
    asked: list[Any] = []

    def measure(agents: Sequence[str]) -> Bench:
        asked.append(agents)
        return canned({"greedy-ac": again})

    now = confirmed(EARLIER, canned({"greedy-ac": 0.3, "sac": 0.4}), measure)
    assert asked == [["greedy-ac"]]
    assert now == Ratios({"greedy-ac Pendulum-CA": counts, "sac Pendulum-CA": 0.4}, HERE)
    assert bool(fallen(EARLIER, now)) == (again < 0.51)


def test_nothing_is_measured_again_without_a_fall() -> None:
    same = canned({"greedy-ac": 0.6, "sac": 0.5})
    assert confirmed(EARLIER, same, lambda _: pytest.fail("measured")) == ratios_of(same)


def test_ratios_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    for machine in (None, HERE):
        path.write_text(to_json(Ratios({"sac Pendulum-CA": 0.123456}, machine)))
        assert read_ratios(path) == Ratios({"sac Pendulum-CA": 0.123}, machine)


def test_the_ratios_in_the_repository_are_of_every_agent() -> None:
    kept = read_ratios(ROOT / "benchmarks/ratios.json")
    assert set(kept.fraction_of_matmul) == {f"{agent} {env}" for agent in PASSES for env in measuring.ENVS}


BAD_RATIOS = {
    "": "it is not JSON",
    "[]": "the file is not allowed; allowed: JSON object of names and values",
    "{}": "key 'fraction_of_matmul' is missing; allowed: fraction_of_matmul, machine",
    '{"fraction_of_matmul": {}, "machin": ""}': "unknown key 'machin' (did you mean 'machine'?); allowed: ",
    '{"fraction_of_matmul": {}, "machine": 3}': "machine = 3 is not allowed; allowed: a text",
    '{"fraction_of_matmul": 3}': "fraction_of_matmul is not allowed; allowed: JSON object",
    '{"fraction_of_matmul": {"sac Pendulum": 1}}': "name in fraction_of_matmul 'sac Pendulum' (did you mean",
    '{"fraction_of_matmul": {"sac Pendulum-CA": NaN}}': "of sac Pendulum-CA = NaN is not allowed; allowed",
    '{"fraction_of_matmul": {"sac Pendulum-CA": 1' + 400 * "0" + "}}": "allowed: number > 0",
    20_000 * "[": "it is not JSON",
    '{"fraction_of_matmul": {"sac Pendulum-CA": true}}': "= true is not allowed; allowed: number > 0",
    '{"fraction_of_matmul": {"sac Pendulum-CA": "9"}}': '= "9" is not allowed; allowed: number > 0',
}


@pytest.mark.parametrize("text", BAD_RATIOS)
def test_bad_ratios(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_ratios(path)
    assert str(caught.value).startswith(f"ratios {str(path)!r}")
    assert BAD_RATIOS[text] in str(caught.value)


@pytest.mark.parametrize(("fraction", "code", "times"), [(0.6, 0, 1), (0.9, 1, 2)])
def test_compare(
    measured: list[list[str]], tmp_path: Path, capsys: Capture, fraction: float, code: int, times: int
) -> None:
    path = tmp_path / "ratios.json"
    path.write_text(to_json(Ratios({"greedy-ac Pendulum-CA": fraction}, HERE)))
    assert main(["bench", "greedy-ac", "--compare", str(path)]) == code
    lines = capsys.readouterr().out.splitlines()
    assert measured == [["greedy-ac"]] * times
    fell = ["fell: fraction_of_matmul of greedy-ac Pendulum-CA: 0.6, 33 % below 0.9"] * code
    assert lines[-1 - code :] == [*fell, f"ratios compared: 1 of 1, fallen by more than 15 %: {code}"]
    assert main(["bench", "greedy-ac", "sac", "--json", "--compare", str(path)]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["cores"] == 2
    assert "new: fraction_of_matmul of sac Pendulum-CA: 0.4" in printed.err
    assert ratios.FALL == 0.15


def test_ratios_to_peers_are_told_and_not_judged(measured: list[list[str]], tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert main(["bench", "sac", "--peers", sys.executable, "--out", str(out)]) == 0
    assert json.loads((out / "bench.json").read_text())["peers"][0]["times_faster"] > 0
    assert read_ratios(out / "ratios.json") == Ratios({"sac Pendulum-CA": 0.4}, HERE)
    capsys.readouterr()
    assert main(["bench", "sac", "--peers", sys.executable, "--compare", str(out / "ratios.json")]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^A good one +torch 2\.1, ", text, re.MULTILINE)
    assert text.endswith("ratios compared: 1 of 1, fallen by more than 15 %: 0\n")
    assert measured == [["sac"], ["sac"]]
