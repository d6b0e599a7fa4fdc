"""What XLA may use of a processor, and what is recorded of it, so that bits that should be equal are."""

import os
import platform
import subprocess
import sys

import pytest

from greedyac import instructions
from greedyac.instructions import cap, flag, without_cap
from greedyac.training.rows import processor_of

CAP = flag()


@pytest.mark.parametrize(
    ("machine", "jaxlib", "given", "then"),
    [
        ("x86_64", "0.10.2", None, "--xla_cpu_max_isa=AVX2"),
        ("AMD64", "0.11.2", "", "--xla_cpu_max_isa=AVX2"),
        ("x86_64", "0.12.0.1", None, "--xla_cpu_max_isa=AVX"),
        ("x86_64", "1.0.0", None, "--xla_cpu_max_isa=AVX"),
        ("x86_64", "0.10.2", "--xla_dump_to=/tmp/x", "--xla_dump_to=/tmp/x --xla_cpu_max_isa=AVX2"),
        ("x86_64", "0.12.0", "--xla_cpu_max_isa=SSE4_2", "--xla_cpu_max_isa=SSE4_2"),
        ("x86_64", "0.12.0", "--xla_cpu_max_isa=AVX", "--xla_cpu_max_isa=AVX"),
        ("aarch64", "0.12.0", None, None),
    ],
)
def test_xla_does_without_what_makes_bits_depend_on_the_lanes_unless_it_is_said_otherwise(
    machine: str, jaxlib: str, given: str | None, then: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(instructions, "version", lambda name: {"jaxlib": jaxlib}[name])
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if given is not None:
        monkeypatch.setenv("XLA_FLAGS", given)
    cap()
    assert os.environ.get("XLA_FLAGS") == then


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is nothing to do without elsewhere")
def test_importing_greedyac_is_enough_and_comes_before_jax() -> None:
    code = "import sys, os, greedyac; print('jax' in sys.modules, os.environ['XLA_FLAGS'])"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", CAP]


@pytest.mark.parametrize(("given", "then"), [(CAP, ""), (f"--xla_a=1 {CAP}", "--xla_a=1"), ("--xla_a=1", "--xla_a=1")])
def test_programs_of_others_use_what_they_like(given: str, then: str) -> None:
    assert without_cap({"XLA_FLAGS": given, "HOME": "x"}) == {"XLA_FLAGS": then, "HOME": "x"}


def test_processors_of_one_name_differ_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "processor", lambda: "")
    info = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel\t\t: 18\n"
    assert processor_of(info) == "x86_64 AMD EPYC, cpu family 25, model 17"
    arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert processor_of(arm) == "aarch64 CPU implementer 0x41, CPU part 0xd0c"
    assert processor_of("") == "aarch64"
