"""What names a run, and what is said of values that can't be used."""

import json
import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greedyac.agents import AGENTS, GreedyACAgent, make_agent
from greedyac.core.errors import InputError, unknown_name
from greedyac.core.fields import Hyper, checked, hashed_values, hypers_of, show, stack, static, traced, traced_names
from greedyac.core.streams import MAX_SEED
from greedyac.envs import Pendulum, make_env
from greedyac.execution.seeds import parse_seeds
from greedyac.training.config import Run, RunConfig, check_seeds, check_steps

PROPERTY = settings(deadline=None, derandomize=True, max_examples=60)
CASE = RunConfig("greedy-ac", "Pendulum-CA", 100_000)
FIRST: dict[str, Any] = {"proposal_policy": "gaussian", "entropy_estimator": "score"}
"""What was the default before it was measured: the ids of such runs are still the same."""
OTHER: dict[str, Any] = {
    "critic_step_size": 0.5,
    "actor_step_size_scale": 0.5,
    "entropy_scale": 0.5,
    "discount": 0.5,
    "polyak": 0.5,
    "elite_fraction": 0.5,
    "proposal_samples": 31,
    "entropy_estimator": "released",
    "discrete_critic": "index",
    "proposal_policy": "gaussian",
    "proposal_update": "average",
    "proposal_average_rate": 0.5,
    "actor_entropy_scale": 0.5,
    "policy": "gaussian",
    "automatic_entropy": True,
    "entropy_step_size": 0.5,
    "soft_target": "released",
    "baseline_samples": 29,
    "batch_size": 33,
    "replay_capacity": 1000,
    "hidden": (64,),
    "warm_up_steps": 100,
    "updates_per_step": 2,
    "normalise_observations": True,
    "normalise_rewards": True,
}


def ids(case: RunConfig, seed: int = 0) -> tuple[str, str]:
    return Run(case, seed).run_id, case.setting_id


def test_ids_are_the_ones_that_stores_hold() -> None:
    # These never change, unless `numerics` was raised: a change here orphans every result on disk.
    assert ids(CASE) == ("5ccd83361a7c9701eca8", "8ea6ba504d7e9b4eea3a")
    assert ids(replace(CASE, hypers=FIRST)) == ("eb16d2a758d11f031dec", "34484218a2775ec9ebad")
    others = [RunConfig(agent, "Pendulum-DA", 1000, {"entropy_scale": 0.1}) for agent in ("sac", "vanilla-ac")]
    assert [ids(case, seed=3) for case in others] == [
        ("77357f30364775c5324d", "03b64a6ef6b269b3132c"),
        ("4ab60c7e60d22b11404b", "e8f418cf66859cbd4094"),
    ]
    hypers = FIRST | {"critic_step_size": 0.01, "hidden": [32]}
    tuned = RunConfig("greedy-ac", "Acrobot-DA", 5000, hypers, {"start": "zero"})
    assert ids(tuned, seed=7) == ("91555f221b32e9f4fa4b", "4a67310555c844a416ee")


def test_every_field_of_a_run_changes_its_id_and_only_the_agents_the_settings() -> None:
    others = [
        replace(CASE, env="Pendulum-DA"),
        replace(CASE, steps=99_999),
        replace(CASE, env_options={"time_limit": 999}),
        replace(CASE, eval_every=1000, eval_episodes=10),
        replace(CASE, eval_every=1000, eval_episodes=9),
    ]
    assert {case.setting_id for case in others} == {CASE.setting_id}
    others.append(replace(CASE, agent="random"))
    assert others[-1].setting_id != CASE.setting_id
    assert len({case.run_id(seed) for case in (CASE, *others) for seed in (0, 1)}) == 2 * (len(others) + 1)
    evaluation = ("eval_every", "eval_episodes")
    assert {field.name for field in fields(RunConfig)} == {
        "agent",
        "env",
        "steps",
        "hypers",
        "env_options",
        *evaluation,
    }


@pytest.mark.parametrize(("agent", "name"), [(agent, name) for agent in AGENTS for name in hypers_of(AGENTS[agent])])
def test_every_hyperparameter_changes_both_ids(agent: str, name: str) -> None:
    case = replace(CASE, agent=agent)
    other = replace(case, hypers={name: OTHER[name]})
    assert other.run_id(0) != case.run_id(0)
    assert other.setting_id != case.setting_id


@pytest.mark.parametrize("owner", [GreedyACAgent, Pendulum])
def test_numerics_change_the_id_of_the_run(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = replace(CASE).run_id(0)
    monkeypatch.setattr(owner, "numerics", owner.numerics + 1)
    assert replace(CASE).run_id(0) != before


def test_ids_depend_neither_on_order_nor_on_defaults_being_spelled_out_nor_on_how_a_number_is_written() -> None:
    values = {name: getattr(GreedyACAgent(), name) for name in hypers_of(GreedyACAgent)}
    spelled = replace(CASE, hypers=values, env_options={"time_limit": 1000.0})
    backwards = replace(CASE, hypers=dict(reversed(values.items())))
    written = {"actor_step_size_scale": 1, "batch_size": 32.0, "hidden": [64, 64.0], "discount": np.float64(0.99)}
    for same in (spelled, backwards, replace(CASE, hypers=written)):
        assert ids(same) == ids(CASE)


def test_a_run_survives_json_values() -> None:
    run = Run(RunConfig("greedy-ac", "Acrobot-CA", 10, {"hidden": [8, 8]}, {"start": "zero"}), 3)
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run
    assert run.config.env_label == "Acrobot-CA[start=zero]"
    assert CASE.env_label == "Pendulum-CA"


@dataclass(frozen=True)
class Old:
    rate: float = traced(0.5, above=0, help="a rate")


@dataclass(frozen=True)
class New:
    """The same with an option that came later, absent at "plain", and whose default was changed since."""

    rate: float = traced(0.5, above=0, help="a rate")
    mode: str = static("fancy", choices=("plain", "fancy"), absent="plain", help="a mode")
    layers: tuple[int, ...] = static((4,), at_least=1, absent=(4,), help="widths")


def test_an_option_at_its_absent_value_is_left_out_and_a_changed_default_is_not() -> None:
    assert hashed_values(New(mode="plain")) == hashed_values(Old())
    assert hashed_values(New()) == {"rate": 0.5, "mode": "fancy"}
    assert hashed_values(New(mode="plain", layers=(4, 4))) == {"rate": 0.5, "layers": (4, 4)}


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("0,3,5-7", [0, 3, 5, 6, 7]),
        (" 4 , 2-2", [4, 2]),
        (str(MAX_SEED), [MAX_SEED]),
    ],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@PROPERTY
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8, unique=True))
def test_seeds_come_in_the_order_given(seeds: list[int]) -> None:
    assert parse_seeds(",".join(map(str, seeds))) == seeds


def refused(words: str, call: Any, *arguments: Any) -> None:
    """The call is refused in one line that holds `words`."""
    with pytest.raises(InputError) as caught:
        call(*arguments)
    assert words in str(caught.value)
    assert "allowed:" in str(caught.value) or "backwards" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "a", "-1", "1-", "1,,2", "1-2-3", "1.5", "1e3", "٣", "0x1", "1;2"])
def test_seeds_that_are_no_numbers_are_refused(text: str) -> None:
    refused(f"seeds {text!r} are not allowed", parse_seeds, text)


def test_seeds_backwards_twice_too_large_or_too_many_are_refused() -> None:
    refused("the range 3-1 runs backwards", parse_seeds, "0,3-1")
    refused("seed 2 was given twice", parse_seeds, "0-3,2")
    refused("seed = 4294967296 is not allowed; allowed: whole number ≥ 0 and ≤ 4294967295", parse_seeds, "4294967296")
    refused("too many", parse_seeds, "0-1000000")
    assert len(parse_seeds("1-1000000")) == 1_000_000
    refused("no seeds", check_seeds, [])
    for seed in (-1, True, 1.5, MAX_SEED + 1):
        refused(f"seed = {show(seed)} is not allowed", check_seeds, [seed])
    refused("seed = '1' is not allowed", check_seeds, ["1"])


def test_steps_are_a_whole_number_that_a_counter_holds() -> None:
    assert [check_steps(steps) for steps in (1, 100, 2**31 - 1)] == [1, 100, 2**31 - 1]
    for steps in (0, -5, 2**31, True, "10", 2.5, None):
        shown = repr(steps) if isinstance(steps, str) else show(steps)
        refused(f"steps = {shown} is not allowed; allowed: whole number ≥ 1 and ≤ 2147483647", check_steps, steps)


RATE = Hyper("rate", float, 0.5, "traced", "", above=0, at_most=1)
FREE = Hyper("free", float, 0.5, "traced", "")
COUNT = Hyper("count", int, 3, "static", "", at_least=1, below=10)
FLAG = Hyper("flag", bool, False, "static", "")
WIDTHS = Hyper("widths", tuple[int, ...], (64, 64), "static", "", at_least=1)
MODE = Hyper("mode", str, "score", "static", "", choices=("score", "exact", "released"))


@pytest.mark.parametrize(
    ("hyper", "value", "expected"),
    [
        *[(RATE, 1, 1.0), (RATE, 1e-9, 1e-9), (RATE, np.float32(0.5), 0.5), (FREE, -3, -3.0)],
        *[(COUNT, 9, 9), (COUNT, 3.0, 3), (COUNT, np.int64(4), 4), (FLAG, True, True), (MODE, "exact", "exact")],
        *[(WIDTHS, [8, 4.0], (8, 4)), (WIDTHS, (1,), (1,))],
    ],
)
def test_an_allowed_value_is_given_back_in_the_fields_own_type(hyper: Hyper, value: object, expected: object) -> None:
    checked_value = hyper.check(value)
    assert checked_value == expected
    assert type(checked_value) is type(expected)


@pytest.mark.parametrize(
    ("hyper", "text", "expected"),
    [
        *[(RATE, "1e-3", 0.001), (RATE, "1", 1.0), (COUNT, "7", 7), (WIDTHS, "32", (32,)), (WIDTHS, "8,4", (8, 4))],
        *[(FLAG, "true", True), (FLAG, "False", False), (MODE, "released", "released")],
    ],
)
def test_text_is_read_as_the_fields_own_type(hyper: Hyper, text: str, expected: object) -> None:
    parsed = hyper.parse(text)
    assert parsed == expected
    assert type(parsed) is type(expected)


ALLOWED = {
    "rate": "> 0 and ≤ 1",
    "free": "any number",
    "count": "whole number ≥ 1 and < 10",
    "flag": "true | false",
    "widths": "whole numbers ≥ 1, as in 64,64",
}


@pytest.mark.parametrize(
    ("hyper", "value"),
    [
        *[(RATE, value) for value in (0, 1.5, -1, math.nan, math.inf, "0.5", None, True, [0.5])],
        *[(FREE, value) for value in (math.nan, math.inf, -math.inf, "x")],
        *[(COUNT, value) for value in (0, 10, 2.5, True, np.True_, "3", math.nan)],
        *[(FLAG, value) for value in (0, 1, "true", None)],
        *[(WIDTHS, value) for value in ((), (0,), (8, 2.5), 8, "8,8", (True,), None)],
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(hyper: Hyper, value: object) -> None:
    listed = isinstance(value, (list, tuple)) and value and hyper is WIDTHS
    shown = repr(value) if isinstance(value, (str, list, tuple)) and not listed else show(value)
    refused(f"{hyper.name} = {shown} is not allowed; allowed: {ALLOWED[hyper.name]}", hyper.check, value)


@pytest.mark.parametrize(
    ("hyper", "text"),
    [
        *[(RATE, text) for text in ("", "2", "a", "nan", "inf", "1,2")],
        *[(COUNT, text) for text in ("", "2.5", "0", "three")],
        *[(FLAG, text) for text in ("", "yes", "1")],
        *[(WIDTHS, text) for text in ("", "8,", "8;8", "0,8", "8,2.5")],
    ],
)
def test_text_that_means_no_allowed_value_is_refused_as_it_was_written(hyper: Hyper, text: str) -> None:
    refused(f"{hyper.name} = {text} is not allowed; allowed: {ALLOWED[hyper.name]}", hyper.parse, text)


@pytest.mark.parametrize("call", [MODE.check, MODE.parse])
def test_an_unknown_choice_is_refused_with_the_nearest_match(call: Any) -> None:
    refused("unknown mode 'relesed' (did you mean 'released'?", call, "relesed")
    refused("unknown mode 'Exact' (did you mean 'exact'?", call, "Exact")
    refused("unknown mode 'zzz'; ", call, "zzz")
    refused("allowed: score, exact, released", call, "zzz")


def test_unknown_names_are_refused_with_the_nearest_match() -> None:
    refused("unknown agent 'greedyac' (did you mean 'greedy-ac'?", make_agent, "greedyac")
    refused("unknown environment 'pendulum-ca' (did you mean 'Pendulum-CA'?", make_env, "pendulum-ca")
    refused("'critic_stepsize' (did you mean 'critic_step_size'?", make_agent, "greedy-ac", {"critic_stepsize": 1})
    refused("unknown option of Acrobot-CA 'strat' (did you mean 'start'?", make_env, "Acrobot-CA", {"strat": "zero"})
    refused("rate = 0 is not allowed", checked, New, "option", {"rate": 0})
    assert isinstance(unknown_name("thing", "a", ["b"]), ValueError)


def test_options_carry_dashes_on_the_command_line_and_ranges_in_words() -> None:
    known = hypers_of(GreedyACAgent)
    assert known["critic_step_size"].option == "--critic-step-size"
    assert (known["polyak"].range, known["hidden"].range) == ("> 0 and ≤ 1", "whole numbers ≥ 1, as in 64,64")
    assert known["discrete_critic"].range == "heads | index"


def test_swept_fields_of_lanes_are_stacked_in_order_and_static_ones_left_out() -> None:
    lanes = [New(rate=0.25), New(rate=0.75, mode="plain")]
    assert list(traced_names(lanes[0])) == ["rate"]
    stacked = stack(lanes)
    assert {name: array.tolist() for name, array in stacked.items()} == {"rate": [0.25, 0.75]}
    assert stacked["rate"].dtype == np.float32
