"""How our programs are compiled: what XLA may use of a processor, when JAX starts, and whose cache is asked."""

import os
import platform
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import pytest
from jax._src import compilation_cache

from greedyac.core import xla
from greedyac.core.processor import processor_of
from greedyac.core.program_cache import ProgramCache
from greedyac.core.xla import configured, our_limit

CONFIG: Any = jax.config
OURS = f"--xla_cpu_max_isa={our_limit()}"
NEEDS_LIMIT = pytest.mark.skipif(not our_limit(), reason="there is nothing to do without on this processor")
USES_CACHE = """
import jax, jax.numpy as jnp
from greedyac.core import xla
xla.MIN_SECONDS = 0.0
print(xla.configured(jax.jit(lambda x: jnp.tanh(x) + 1))(2.0))
"""


def run(code: str, **environment: str | None) -> list[str]:
    """The lines that a fresh process prints; a variable that is None is not set there."""
    changed = {**os.environ, "XLA_FLAGS": None, **environment}
    env = {name: value for name, value in changed.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("machine", "jaxlib", "limit"),
    [
        ("x86_64", "0.10.2", "AVX2"),
        ("AMD64", "0.11.2", "AVX2"),
        ("x86_64", "0.12.0.1", "AVX"),
        ("x86_64", "1.0.0", "AVX"),
        ("aarch64", "0.12.0", ""),
    ],
)
def test_xla_does_without_what_makes_bits_depend_on_the_lanes(
    machine: str, jaxlib: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(xla, "version", lambda name: {"jaxlib": jaxlib}[name])
    assert our_limit() == limit


def test_importing_greedyac_changes_nothing_and_imports_no_jax() -> None:
    code = "import sys, os, greedyac; print('jax' in sys.modules, os.environ.get('XLA_FLAGS'))"
    assert run(code) == ["False None"]
    assert run(code, XLA_FLAGS="--xla_dump_to=/x") == ["False --xla_dump_to=/x"]


def test_importing_everything_does_not_start_jax() -> None:
    code = """
import importlib, pkgutil, greedyac
for module in pkgutil.walk_packages(greedyac.__path__, "greedyac."):
    if not module.name.startswith(("greedyac.peers", "greedyac.execution.dask", "greedyac.video.play")):
        importlib.import_module(module.name)
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized())
"""
    assert run(code) == ["False"]


@NEEDS_LIMIT
@pytest.mark.parametrize(
    "first",
    [
        "import gymnasium; gymnasium.make('greedyac/Pendulum-CA-v0').reset()",
        "from greedyac.ccem.formula import function_of; function_of('a**2')",
        "from greedyac.core.streams import seed_keys; seed_keys([3])",
        "greedyac.Random('Pendulum-v1').predict([0.0, 0.0, 0.0])",
        "greedyac.ccem.maximize(lambda x, a: -(a**2), [0.1], -1.0, 1.0, steps=1)",
    ],
    ids=["environment", "formula", "keys", "model", "maximize"],
)
def test_whatever_comes_first_sets_the_limit(first: str) -> None:
    assert run(f"import greedyac\n{first}\nfrom greedyac.core import xla\nprint(xla.start())") == [our_limit()]


@NEEDS_LIMIT
@pytest.mark.parametrize("relative", [False, True])
def test_a_file_of_flags_is_left_alone(relative: bool, tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("--xla_cpu_enable_fast_math=false\n")
    code = f"""
import os
os.chdir({str(tmp_path)!r})
from greedyac.core import xla
print(xla.start(), os.environ["XLA_FLAGS"])
"""
    file = "flags" if relative else str(tmp_path / "flags")
    assert run(code, XLA_FLAGS=file) == [f"{xla.UNKNOWN} {file}"]


@pytest.mark.parametrize("between", [" ", "\n", "\t"])
def test_the_last_limit_that_is_named_is_the_one_that_xla_takes(between: str) -> None:
    flags = between.join(["--xla_cpu_max_isa=AVX2", "--xla_cpu_max_isa=SSE4_2", "--xla_cpu_enable_fast_math=false"])
    assert run("from greedyac.core import xla; print(xla.start())", XLA_FLAGS=flags) == ["SSE4_2"]


@NEEDS_LIMIT
def test_the_limit_is_set_where_we_start_jax_and_only_for_that_moment() -> None:
    code = """
import os, re, zlib
import jax, jax.numpy as jnp
from greedyac.core import xla
print(xla.start(), xla.deviation(), os.environ["XLA_FLAGS"])
program = jax.jit(lambda x: jnp.tanh(x) @ x).lower(jnp.ones((40, 40))).compile()
machine = program.runtime_executable().serialize().partition(b"-prefer-256-bit")[0]
print(b"+avx512f" in machine, b"-avx512f" in machine)
"""
    held, features = run(code, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert held == f"{our_limit()} {{}} --xla_cpu_enable_fast_math=false"
    assert features == "False True"


@NEEDS_LIMIT
@pytest.mark.parametrize(
    ("flags", "before", "held"),
    [
        ("--xla_cpu_max_isa=SSE4_2 --xla_cpu_enable_fast_math=false", "", "SSE4_2"),
        (None, "import jax; jax.devices()", xla.UNKNOWN),
        (None, f"import jax, os; jax.devices(); os.environ['XLA_FLAGS'] = {OURS!r}", xla.UNKNOWN),
    ],
    ids=["another was named", "JAX had started", "named too late"],
)
def test_rows_say_what_limit_there_was_if_not_ours(flags: str | None, before: str, held: str) -> None:
    code = f"""
{before}
import json
import greedyac
from greedyac.training.blocks import make_lanes, run_blocks
from greedyac.execution.plan import expand_configs
from greedyac.execution.rows import make_row
from greedyac.training.config import Run
[case] = expand_configs("random", "Pendulum-CA", 10, None, {{}}, {{}}, {{}})
lanes = make_lanes([case.learner], case.world, [0], 10)
run_blocks(lanes, lambda _: None)
row = make_row(Run(case, 0), lanes.outcomes()[0], 0.0)
print(json.loads(row["versions"]).get("xla_cpu_max_isa"))
from greedyac.study.rerun import rerun
ours = json.dumps({{k: v for k, v in json.loads(row["versions"]).items() if k != "xla_cpu_max_isa"}})
print(rerun(row, lambda _: None).obstacles, rerun(row | {{"versions": ours}}, lambda _: None).obstacles)
"""
    said, obstacles = run(code, XLA_FLAGS=flags)
    assert said == held
    assert obstacles == f"[] ['xla_cpu_max_isa None then, {held} now']"


def test_rows_do_not_mention_our_own_limit() -> None:
    assert xla.start() == our_limit()
    assert xla.deviation() == {}


def test_programs_are_kept_where_the_variable_says(tmp_path: Path) -> None:
    assert run(USES_CACHE, GREEDYAC_CACHE=str(tmp_path / "here")) == ["1.9640276"]
    [kept] = (tmp_path / "here").rglob("*.program")
    before = kept.stat()
    assert run(USES_CACHE, GREEDYAC_CACHE=str(tmp_path / "here")) == ["1.9640276"]
    assert kept.stat().st_ino == before.st_ino  # read, and not written again
    assert kept.stat().st_mtime_ns > before.st_mtime_ns


@NEEDS_LIMIT
@pytest.mark.parametrize("flags", [None, "--xla_cpu_max_isa=AVX512"], ids=["JAX had started", "AVX-512"])
def test_without_our_limit_nothing_is_kept_and_xla_is_silent(flags: str | None, tmp_path: Path) -> None:
    """With AVX-512 XLA complains of the features of each program that it reads: JAX issue 38445."""
    started = "" if flags else "import jax; jax.devices()"
    for _ in range(2):
        assert len(run(started + USES_CACHE, GREEDYAC_CACHE=str(tmp_path), XLA_FLAGS=flags)) == 1
    assert not list(tmp_path.rglob("*.program"))


def test_an_empty_variable_turns_the_cache_off(tmp_path: Path) -> None:
    run(USES_CACHE, GREEDYAC_CACHE="", HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert not list(tmp_path.rglob("*.program"))


def test_a_cache_that_the_user_has_set_up_in_jax_is_used_in_place_of_ours(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    given = {"JAX_COMPILATION_CACHE_DIR": str(theirs), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    run(USES_CACHE, GREEDYAC_CACHE=str(ours), **given)
    assert list(theirs.iterdir())
    assert not ours.exists()


def test_a_users_own_programs_are_not_kept_nor_is_a_cache_set_up_later_in_the_way(tmp_path: Path) -> None:
    code = f"""{USES_CACHE}
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: jnp.sin(x) - 3)(2.0)
jax.config.update("jax_compilation_cache_dir", {str(tmp_path / "theirs")!r})
jax.jit(lambda x: jnp.cos(x) * 3)(2.0)
xla.configured(jax.jit(lambda x: jnp.cos(x) * 7))(2.0)
"""
    run(code, GREEDYAC_CACHE=str(tmp_path / "ours"))
    assert len(list((tmp_path / "ours").rglob("*.program"))) == 1
    assert len(list((tmp_path / "theirs").glob("*-cache"))) == 2


@pytest.fixture
def not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in any other process: conftest.py keeps what tests compile as well."""
    monkeypatch.setattr(xla._THREAD, "is_ours", False)


def cache_of_this_thread() -> object:
    return compilation_cache._get_cache(jax.devices()[0].client)


@pytest.mark.usefixtures("not_ours")
def test_jax_is_as_it_was_after_a_call_even_one_that_fails() -> None:
    def inside(depth: int) -> None:
        assert not CONFIG.jax_enable_x64
        assert CONFIG.jax_persistent_cache_min_compile_time_secs == xla.MIN_SECONDS
        assert isinstance(cache_of_this_thread(), ProgramCache)
        if depth:
            configured(inside)(depth - 1)
        raise KeyError

    def outside() -> tuple[object, ...]:
        return CONFIG.jax_enable_x64, CONFIG.jax_persistent_cache_min_compile_time_secs, cache_of_this_thread()

    before = outside()
    assert before[-1] is None
    with pytest.raises(KeyError):
        configured(inside)(1)
    assert outside() == before


@pytest.mark.usefixtures("not_ours")
def test_other_threads_are_as_they_were_during_a_call() -> None:
    """Programs that a user compiles meanwhile are not kept in our folder, and keep to the user's settings."""
    seen: list[object] = []

    def look() -> None:
        seen.extend([cache_of_this_thread(), CONFIG.jax_persistent_cache_min_compile_time_secs])

    @configured
    def inside() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    CONFIG.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    try:
        inside()
    finally:
        CONFIG.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    assert seen == [None, 0.5]


@pytest.mark.usefixtures("not_ours")
def test_nothing_is_left_of_a_call_that_is_interrupted_anywhere() -> None:
    """Wherever Python looks for signals: as a function is called, and as it returns."""
    call = configured(lambda: None)
    left = 0

    def interrupt(frame: FrameType, event: str, about: object) -> Any:
        nonlocal left
        left -= event in ("call", "return")
        if left == 0:
            raise KeyboardInterrupt
        return interrupt

    for moment in range(1, 60):
        left = moment
        with suppress(KeyboardInterrupt):
            sys.settrace(interrupt)
            try:
                call()
            finally:
                sys.settrace(None)
        call()
        assert cache_of_this_thread() is None
        assert not CONFIG.jax_enable_x64
    assert left > 0, "the last ones came after the call"


def test_processors_of_one_name_differ_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "processor", lambda: "")
    info = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel\t\t: 18\n"
    assert processor_of(info) == "x86_64 AMD EPYC, cpu family 25, model 17"
    arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert processor_of(arm) == "aarch64 CPU implementer 0x41, CPU part 0xd0c"
    assert processor_of("") == "aarch64"
