"""The recipes of docs/cluster.md, run for real on this machine, which plays all parts."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which

import pytest
import yaml
from helpers.clusters import free_port
from helpers.paths import ROOT
from helpers.processes import NEEDS_PROC, PATIENCE, children, end_tree, living, stat, wait_for
from helpers.sweeping import write_study

from greedyac.execution.dask.connect import CALM
from greedyac.study.store import Store

pytestmark = [
    pytest.mark.slow,
    NEEDS_PROC,
]
os.environ["PATH"] += f"{os.pathsep}/usr/sbin"


def recipe(name: str) -> str:
    """A block of the page by the word after its language."""
    [code] = re.findall(rf"^```\w+ {name}\n(.*?)^```", (ROOT / "docs/cluster.md").read_text(), re.MULTILINE | re.DOTALL)
    return str(code)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with its environment and a study."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    write_study(tmp_path / "study.toml", seeds="0-7", steps=3000)
    return tmp_path


def here(code: str) -> str:
    """A recipe for smaller machines, all of which are this one."""
    code = code.replace("10.0.0.1", "127.0.0.1").replace("8786", str(free_port()))
    code = re.sub(r"(--nthreads|--cpus-per-task=|cores=)( ?)\d+", r"\g<1>\g<2>1", code)
    return code.replace("array=1-16", "array=1-2").replace("jobs=16", "jobs=2").replace('"16GB"', '"1GB"')


def run(command: list[str], folder: Path, **environment: str) -> str:
    """What it prints, both ways; nothing that it started is left at the end."""
    paths = f"{folder}{os.pathsep}{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    with (folder / "printed").open("w") as printed:  # no pipe, which a worker that was killed too soon may hold open
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PATH": paths, **environment},
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.wait(PATIENCE)
        with suppress(AssertionError):
            wait_for(lambda: not _group(process.pid), "what was told to end", seconds=10.0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return (folder / "printed").read_text()


def _group(leader: int) -> list[int]:
    """The living processes of a group."""
    return [pid for pid in living() if stat(pid)[2:3] == [str(leader)]]


def assert_swept(folder: Path, printed: str) -> None:
    assert "16 done, 0 diverged, 0 failed of 16 runs in runs/example" in printed, printed
    assert "no more chunks" not in printed
    assert Store.existing(folder / "runs/example").read().rows.height == 16


def test_loopback(folder: Path) -> None:
    assert_swept(folder, run(["bash", "-c", here(recipe("loopback"))], folder))


def test_tls(folder: Path) -> None:
    assert_swept(folder, run(["bash", "-c", here(recipe("tls"))], folder))


def test_tls_without_a_certificate(folder: Path) -> None:
    code = here(recipe("tls"))
    before, sweep = code[: code.index(".venv/bin/greedyac")], code[code.index(".venv/bin/greedyac") :]
    started = 'until grep --quiet "Scheduler at" scheduler.log; do sleep 0.1; done'
    printed = run(["bash", "-c", f"{before} unset ${{!DASK_*}}\n{started}\n{sweep}"], folder)
    complaint = (
        r"^greedyac: error: no Dask scheduler answers at --address 'tls://127\.0\.0\.1:\d+' \(is TLS set up here\?"
    )
    assert re.search(complaint, printed, re.MULTILINE), printed
    assert not (folder / "runs").exists()


@pytest.mark.skipif(which("sshd") is None, reason="install openssh-server")
def test_ssh(folder: Path) -> None:
    port, keys = free_port(), folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    options = {"Port": port, "ListenAddress": "127.0.0.1", "HostKey": keys / "host", "StrictModes": "no"}
    options |= {"AuthorizedKeysFile": keys / "user.pub", "PidFile": "none", "UsePAM": "no"}
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    server = subprocess.Popen([str(which("sshd")), "-D", "-f", os.devnull, *words])
    (folder / "ssh").write_text(
        f"#!/bin/sh\nexec {which('ssh')} -p {port} -i {keys}/user -o HostName=127.0.0.1 "
        f'-o StrictHostKeyChecking=no -o UserKnownHostsFile={keys}/known "$@"\n'
    )
    (folder / "ssh").chmod(0o755)
    try:
        wait_for(lambda: _listens(port), "the SSH server")  # a node that refuses is not asked again
        assert_swept(folder, run(["bash", "-c", here(recipe("ssh"))], folder))
        wait_for(lambda: not any(map(children, children(server.pid))), "the workers to end with their scheduler")
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _node(environment: dict[str, str]) -> str:
    """The state of SLURM's node."""
    ask = ["sinfo", "--noheader", "--format=%T"]
    return subprocess.run(ask, env=environment, capture_output=True, text=True, check=False).stdout.strip()


@pytest.fixture
def slurm(folder: Path) -> Iterator[str]:
    """A SLURM with one node, this machine; its configuration."""
    place = folder / "slurm"
    for part in ("munge", "state", "spool"):
        (place / part).mkdir(parents=True, mode=0o755)
    (place / "munge/key").write_bytes(os.urandom(1024))
    (place / "munge/key").chmod(0o400)
    settings = {
        "ClusterName": "test",
        "SlurmctldHost": f"{socket.gethostname()}(127.0.0.1)",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={place}/munge/socket",
        "CredType": "cred/munge",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "SlurmctldPort": free_port(),
        "SlurmdPort": free_port(),
        "StateSaveLocation": place / "state",
        "SlurmdSpoolDir": place / "spool",
        "SlurmctldPidFile": place / "slurmctld.pid",
        "SlurmdPidFile": place / "slurmd.pid",
        "SlurmctldLogFile": place / "slurmctld.log",
        "SlurmdLogFile": place / "slurmd.log",
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "MpiDefault": "none",
        "NodeName": f"{socket.gethostname()} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory=4000 State=UNKNOWN",
        "PartitionName": "all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    }
    (place / "slurm.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
    files = {name: f"--{name}-file={place}/munge/{name}" for name in ("key", "pid", "log", "seed")}
    daemons = [["munged", "-F", "--force", f"--socket={place}/munge/socket", *files.values()]]
    daemons += [["slurmctld", "-D"], ["slurmd", "-D"]]
    running = []
    try:
        for daemon in daemons:
            with (place / f"{daemon[0]}.out").open("w") as log:
                running.append(subprocess.Popen(daemon, env=environment, stdout=log, stderr=log))
            if daemon[0] == "munged":
                wait_for((place / "munge/socket").exists, "munge")
        wait_for(lambda: _node(environment) == "idle", "SLURM")
        yield str(place / "slurm.conf")
    finally:
        subprocess.run(["scancel", "--user=root"], env=environment, check=False)
        for process in reversed(running):
            end_tree(process)


HAS_SLURM = all(map(which, ("slurmctld", "slurmd", "munged")))
NEEDS_SLURM = pytest.mark.skipif(
    not HAS_SLURM or os.getuid() != 0, reason="needs root" if HAS_SLURM else "install slurm-wlm munge"
)


@NEEDS_SLURM
def test_slurm(folder: Path, slurm: str) -> None:
    (folder / "workers.sh").write_text(here(recipe("workers.sh")))
    assert_swept(folder, run(["bash", "-c", here(recipe("slurm"))], folder, SLURM_CONF=slurm))


@NEEDS_SLURM
def test_jobqueue(folder: Path, slurm: str) -> None:
    (folder / "sweep.py").write_text(here(recipe("jobqueue")))
    interface = {"DASK_JOBQUEUE__SLURM__INTERFACE": "lo"}
    assert_swept(folder, run([sys.executable, "sweep.py"], folder, SLURM_CONF=slurm, **interface))


@NEEDS_SLURM
def test_job_array(folder: Path, slurm: str) -> None:
    [job] = re.findall(r"^```slurm\n(.*?)^```", (ROOT / "docs/studies.md").read_text(), re.MULTILINE | re.DOTALL)
    (folder / "job.sh").write_text(job.replace("1-16", "1-2").replace("/16", "/2").replace("task=8", "task=1"))
    run(["sbatch", "--wait", "job.sh"], folder, SLURM_CONF=slurm)
    assert Store.existing(folder / "runs/example").read().rows.height == 16


def test_kubernetes(folder: Path) -> None:
    """Its commands do what they should together; that there is one of each, and that they find each other."""
    service, scheduler, worker, job = yaml.safe_load_all(recipe("kubernetes"))
    pods = [part["spec"]["template"]["spec"] for part in (scheduler, worker, job)]
    commands = [pod["containers"][0]["command"] for pod in pods]
    assert service["spec"]["selector"] == scheduler["spec"]["template"]["metadata"]["labels"]
    assert f"tcp://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}" in commands[1]
    for part in (scheduler, worker):
        assert part["spec"]["selector"]["matchLabels"] == part["spec"]["template"]["metadata"]["labels"]
    for pod in pods[1:]:
        [mount], [volume] = pod["containers"][0]["volumeMounts"], pod["volumes"]
        assert mount["name"] == volume["name"]
        assert mount["mountPath"] == commands[2][commands[2].index("--store") + 1]
    script = "\n".join(" ".join(command) + (" &" if command is not commands[2] else "") for command in commands)
    script = script.replace("//dask:", "//127.0.0.1:").replace(" --store /store", " --store runs/example")
    script = script.replace("dask scheduler", "dask scheduler --host 127.0.0.1")
    assert_swept(folder, run(["bash", "-c", here(script) + "\nkill $(jobs -p)"], folder))


def test_what_keeps_dask_calm_are_settings_that_it_has(folder: Path) -> None:
    known = "import dask, distributed; print(*(dask.config.get(name) for name in " + repr(list(CALM)) + "))"
    settings = run(["bash", "-c", f'{recipe("calm")}\npython -c "{known}"'], folder).split()
    assert settings == list(map(str, CALM.values()))
    assert run([sys.executable, "-c", known], folder).split() == ["20ms", "500ms", "True"]  # without them


def test_every_recipe_is_tried() -> None:
    blocks = re.findall(r"^```(\w+ ?\S*)\n", (ROOT / "docs/cluster.md").read_text(), re.MULTILINE)
    named = {
        "sh loopback",
        "sh ssh",
        "slurm workers.sh",
        "sh slurm",
        "python jobqueue",
        "yaml kubernetes",
        "sh tls",
        "sh calm",
    }
    assert set(blocks) == {"bash", *named}
