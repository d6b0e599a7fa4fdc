import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greedyac.agents import make_agent
from greedyac.bench.profile import KINDS, OUTSIDE, PACKAGE, Kernel, Part, kernels_of, parts_of, profile
from greedyac.core.fields import values_of
from greedyac.training.config import MAX_STEPS, RunConfig

TEXT = f"""HloModule jit_block

FileNames
1 "{PACKAGE}/training/loop.py"
2 "{PACKAGE}/agents/actor_critic.py"
3 "{PACKAGE}/nn/optim.py"
4 "/somewhere/optax/transform.py"
5 "{PACKAGE}/nn/distributions.py"

FunctionNames
1 "Program.step"
2 "ActorCritic.fit_critic.<locals>.loss"
3 "Linear.__call__"
4 "adam_step"
5 "update"
6 "ClippedGaussian.noise"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=90 end_line=90 column=1 end_column=2}}
2 {{file_name_id=2 function_name_id=2 line=77 end_line=77 column=1 end_column=2}}
3 {{file_name_id=3 function_name_id=3 line=31 end_line=31 column=1 end_column=2}}
4 {{file_name_id=3 function_name_id=4 line=180 end_line=180 column=1 end_column=2}}
5 {{file_name_id=4 function_name_id=5 line=10 end_line=10 column=1 end_column=2}}
6 {{file_name_id=5 function_name_id=6 line=40 end_line=40 column=1 end_column=2}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}
3 {{file_location_id=3 parent_frame_id=3}}
4 {{file_location_id=4 parent_frame_id=3}}
5 {{file_location_id=5 parent_frame_id=5}}
6 {{file_location_id=6 parent_frame_id=2}}

%body (p: f32[2]) -> f32[2] {{
  %p = f32[2]{{0}} parameter(0)
  %dot.1 = f32[8,64]{{1,0}} dot(%p, %p), metadata={{op_name="jit(block)/transpose" stack_frame_id=3}}
  %ynn_fusion.2 = f32[8]{{0}} fusion(%p), kind=kCustom, metadata={{op_name="vmap()/dot_general" stack_frame_id=3}}
  %add_fusion.3 = f32[8]{{0}} fusion(%p), kind=kLoop, metadata={{op_name="jit(block)/add" stack_frame_id=5}}
  %log_fusion = f32[8]{{0}} fusion(%p), kind=kLoop, metadata={{op_name="jit(block)/log" stack_frame_id=6}}
  %custom-call = (f32[8,3]{{1,0}}, s32[8,3]{{1,0}}) custom-call(%p), metadata={{op_name="x/top_k" stack_frame_id=2}}
  %copy.4 = f32[8]{{0}} copy(%p)
  ROOT %max_fusion = f32[8]{{0}} fusion(%p), kind=kLoop, metadata={{op_name="jit(block)/max" stack_frame_id=1}}
}}
"""


def test_kernels_are_told_of_the_function_that_asked_for_them_and_by_kind() -> None:
    loss = "ActorCritic.fit_critic.loss"
    assert kernels_of(TEXT) == {
        "dot.1": Kernel(loss, "products"),
        "ynn_fusion.2": Kernel(loss, "products"),
        "add_fusion.3": Kernel(loss, "optimizer"),
        "log_fusion": Kernel("Program.step", "random"),
        "custom-call": Kernel(loss, "other"),
        "copy.4": Kernel(OUTSIDE, "other"),
        "max_fusion": Kernel("Program.step", "other"),
    }


def test_a_text_without_stack_frames_has_only_unknown_functions() -> None:
    text = TEXT[TEXT.index("%body") :]
    assert {kernel.function for kernel in kernels_of(text).values()} == {OUTSIDE}


def test_parts_add_up_the_events_of_a_step_of_one_run() -> None:
    kernels = {"a": Kernel("act", "products"), "b": Kernel("act", "other"), "c": Kernel("move", "random")}
    events = [("a", 30.0), ("a", 50.0), ("b", 20.0), ("c", 400.0), ("ThunkExecutor::Execute", 1e6)]
    nothing = dict.fromkeys(KINDS, 0.0)
    assert parts_of(events, kernels, steps=2, lanes=5) == [
        Part("move", {**nothing, "random": 40.0}, 0.5),
        Part("act", {**nothing, "products": 8.0, "other": 2.0}, 1.5),
    ]


@pytest.mark.parametrize(
    ("agent", "env"), [pytest.param("greedy-ac", "Pendulum-CA", marks=pytest.mark.slow), ("sac", "Pendulum-DA")]
)
def test_a_real_program_is_explained_by_our_functions(agent: str, env: str) -> None:
    hypers = values_of(make_agent(agent)) | {"hidden": (16, 16), "replay_capacity": 1000}
    found = profile(RunConfig(agent, env, MAX_STEPS, hypers), lanes=2, steps=20)
    parts = {part.function: part for part in found.parts}
    kernels = sum(part.kernels for part in found.parts)
    assert found.microseconds > 0
    assert found.parts == sorted(found.parts, key=lambda part: -part.total)
    assert {"ActorCritic.act", "ActorCritic.fit_critic.loss", "sample", "write"} <= parts.keys()
    assert parts[OUTSIDE].kernels < 0.35 * kernels  # 0.23 and 0.14 with the default settings
    assert parts["ActorCritic.fit_critic.loss"].microseconds["products"] > 0
    assert sum(part.microseconds["random"] for part in found.parts) > 0
    assert sum(part.microseconds["optimizer"] for part in found.parts) > 0
    if agent == "greedy-ac":
        assert parts["CCEM.follow_elite_actions.follow.loss"].microseconds["products"] > 0
        assert parts["GreedyACAgent.learn"].microseconds["products"] > 0  # the values of all samples
        assert "elites" in parts


@pytest.mark.slow
def test_the_command_prints_tables_and_json() -> None:
    main = "import sys; from greedyac.cli import main; sys.exit(main(sys.argv[1:]))"

    def told(*options: str) -> str:
        command = [sys.executable, "-c", main, "bench", "vanilla-ac", "--lanes", "2", "--profile", *options]
        environment = {**os.environ, "COLUMNS": "120"}  # else names take several lines
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    table = told()
    assert table.split()[:3] == ["function", "µs", "share"]
    assert "VanillaACAgent.learn.loss" in table
    assert "vanilla-ac on Pendulum-DA: " in table
    first, second = json.loads(told("--json"))
    assert (first["agent"], first["env"], second["env"], first["lanes"]) == (
        "vanilla-ac",
        "Pendulum-CA",
        "Pendulum-DA",
        2,
    )
    functions = {part["function"]: part["microseconds"] for part in first["parts"]}
    assert functions["VanillaACAgent._likelihood_ratio"]["products"] > 0
    assert set(functions["VanillaACAgent._likelihood_ratio"]) == set(KINDS)


PROFILE = """
from greedyac.agents import make_agent
from greedyac.core.fields import values_of
from greedyac.bench.profile import profile
from greedyac.training.config import MAX_STEPS, RunConfig

hypers = values_of(make_agent("vanilla-ac")) | {"hidden": (16, 16), "replay_capacity": 1000}
print(*(part.function for part in profile(RunConfig("vanilla-ac", "Pendulum-DA", MAX_STEPS, hypers), 2, 20).parts))
"""


@pytest.mark.slow
def test_a_program_that_was_kept_by_another_checkout_is_explained_by_this_one(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "elsewhere/greedyac")
    for place in (tmp_path / "elsewhere", PACKAGE.parent):
        environment = {**os.environ, "PYTHONPATH": str(place), "GREEDYAC_CACHE": str(tmp_path / "cache")}
        functions = subprocess.check_output([sys.executable, "-c", PROFILE], env=environment, text=True).split()
        assert {"ActorCritic.act", "ActorCritic.fit_critic.loss", "sample", "write"} <= set(functions)
