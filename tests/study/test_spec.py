"""Studies: the cases of a TOML file, what bad ones get (one line that says where), and the shipped ones by hand."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from helpers.controls import CONTROL

from greedyac.agents import AGENTS, Agent, RandomAgent, make_agent
from greedyac.agents.presets import PRESETS
from greedyac.core.errors import InputError
from greedyac.core.fields import values_of
from greedyac.core.spaces import Box, Discrete
from greedyac.study import spec
from greedyac.study.spec import load_study, parse_study, shipped_studies
from greedyac.training.config import Run, RunConfig

Refused = Callable[[str | bytes], str]
EXAMPLE = """\
name = "pendulum-example"
steps = 100_000
seeds = "0-39"
tuning_seeds = "0-9"          # selection sees only these; reports use the others
[[cells]]
agents = ["greedy-ac", "sac"]
envs = ["Pendulum-CA"]
sweep = { critic_step_size = [1e-4, 1e-3, 1e-2] }
fixed = { actor_step_size_scale = 1.0 }
"""
REFUSED = r"""
sedes = 0 | unknown key 'sedes' (did you mean 'seeds'?); allowed: name, steps, seeds, cells, tuning_seeds
name = | the key 'name' is missing
steps = | the key 'steps' is missing
seeds = | the key 'seeds' is missing
name = 3 | name = 3 is not allowed; allowed: one line of text
name = " " | name = ' ' is not allowed; allowed: one line of text
name = "a\nb" | name = 'a\nb' is not allowed; allowed: one line of text
steps = "a\nb" | steps = … a\nb … is not allowed; allowed: whole number ≥ 1 and ≤ 2147483647
steps = -5 | steps = -5 is not allowed; allowed: whole number ≥ 1
steps = 0 | steps = 0 is not allowed; allowed: whole number ≥ 1
steps = true | steps = true is not allowed; allowed: whole number ≥ 1
seeds = 1.5 | seeds = 1.5 is not allowed; allowed: a text such as "0-9", or a list of numbers
seeds = [0, 1.5] | seeds … 1.5 is not allowed; allowed: whole number ≥ 0
seeds = true | seeds … true is not allowed; allowed
seeds = -1 | seeds … -1 is not allowed; allowed: whole number ≥ 0 and ≤ 4294967295
seeds = [] | seeds … no seeds were given; allowed: one or more
seeds = "0-x" | seeds … '0-x' … allowed: whole numbers and ranges, as in 0,3,5-7
seeds = "3-1" | seeds … '3-1' … the range 3-1 runs backwards
seeds = "0-2,1" | seed 1 was given twice; allowed: each seed once
seeds = [4, 4.0] | seeds … seed 4 was given twice; allowed: each seed once
tuning_seeds = "2-5" | tuning seed 4 is not among the seeds; allowed: some of … 0-3
tuning_seeds = [] | tuning_seeds … no seeds were given; allowed: one or more
tuning_seeds = 1.5 | tuning_seeds = 1.5 is not allowed; allowed: a text such as
"""
REFUSED_IN_A_CELL = r"""
sweeps = {} | unknown key 'sweeps' (did you mean 'sweep'?); allowed: agents, envs, sweep, fixed, preset, env_options
agents = | the key 'agents' is missing
envs = | the key 'envs' is missing
agents = "sac" | agents = 'sac' is not allowed; allowed: a list of one or more names
agents = [] | agents = [] is not allowed; allowed: a list of one or more names
agents = ["random", "sac", "random"] | 'random' is twice among the agents; allowed: each once
agents = ["sac", "gredy-ac"] | unknown agent 'gredy-ac' (did you mean 'greedy-ac'?); allowed: greedy-ac, sac, vanilla-ac
envs = [1] | envs = [1] is not allowed; allowed: a list of one or more names
envs = ["Acrobot-CA", "Acrobot-CA"] | 'Acrobot-CA' is twice among the envs; allowed: each once
envs = ["pendulum-ca"] | unknown environment 'pendulum-ca' (did you mean 'Pendulum-CA'?); allowed: MountainCar-CA,
sweep = ["discount"] | sweep = ['discount'] is not allowed; allowed: a table
fixed = 1 | fixed = 1 is not allowed; allowed: a table
env_options = "a\nb" | env_options = 'a\nb' is not allowed; allowed: a table
preset = 1 | preset = 1 is not allowed; allowed:
preset = "papr" | unknown preset 'papr' (did you mean 'paper'?); allowed: paper, paper-across
preset = "paper"; agents = ["random"] | preset 'paper' has no settings for random on Pendulum-CA; allowed: greedy-ac
env_options = { tme_limit = 3 } | unknown option of Pendulum-CA 'tme_limit' (did you mean 'time_limit'?); allowed: time
env_options = { time_limit = 0 } | time_limit = 0 is not allowed; allowed: whole number ≥ 1
env_options = { start = "zero" }; envs = ["Acrobot-CA", "Pendulum-CA"] | unknown option of Pendulum-CA 'start'; allowed
sweep = { polyk = [1] } | unknown hyperparameter of greedy-ac 'polyk' (did you mean 'polyak'?); allowed: critic_step_s
fixed = { polyk = 1 } | unknown hyperparameter of greedy-ac 'polyk' (did you mean 'polyak'?); allowed: critic_step_size
sweep = { baseline_samples = [1] } | baseline_samples is a hyperparameter of vanilla-ac; allowed for greedy-ac: crit
fixed = { baseline_samples = 1 } | baseline_samples is a hyperparameter of vanilla-ac; allowed for greedy-ac: crit
sweep = { discount = [] } | the sweep of discount = [] is not allowed; allowed: a list of one or more values
sweep = { discount = 0.9 } | the sweep of discount = 0.9 is not allowed; allowed: a list of one or more values
sweep = { entropy_estimator = "score" } | the sweep of entropy_estimator = 'score' is not allowed; allowed: a list of
sweep = { discount = [1, 0.5, 1.0] } | the sweep of discount = 1,0.5,1 is not allowed; allowed: each value once
sweep = { discount = [0.9, 2] } | discount = 2 is not allowed; allowed: ≥ 0 and ≤ 1
fixed = { discount = nan } | discount = nan is not allowed; allowed: ≥ 0 and ≤ 1
fixed = { entropy_estimator = "scor" } | unknown entropy_estimator 'scor' (did you mean 'score'?); allowed: score, exact
sweep = { discount = [1] }; fixed = { discount = 0.8 } | discount is given both as a value and in the sweep; allowed:
sweep = { entropy_scale = [1] }; envs = ["Pendulum-DA"] | sweeping entropy_scale … effect for greedy-ac on Pendulum-DA
fixed = { entropy_scale = 1 }; envs = ["Pendulum-DA"] | fixing entropy_scale … no effect for greedy-ac on Pendulum-DA
fixed = { entropy_scale = 1 }; envs = ["Pendulum-CA", "Pendulum-DA"] | fixing … no effect for greedy-ac on Pendulum-DA
sweep = { entropy_step_size = [1] }; agents = ["sac"] | sweeping entropy_step_size … no effect for sac on Pendulum-CA
fixed = { entropy_step_size = 1 }; agents = ["sac"] | fixing entropy_step_size … no effect for sac on Pendulum-CA
sweep = { batch_size = [4, 200_000] } | batch_size = 200000 is not allowed with replay_capacity = 100000; allowed: whole
fixed = { batch_size = 33, replay_capacity = 32 } | batch_size = 33 is not allowed with replay_capacity = 32; allowed
"""
Grid = dict[str, tuple[float, ...]]
CRITIC: Grid = {"critic_step_size": (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)}
ACTOR: Grid = {"actor_step_size_scale": (1e-3, 1e-2, 0.1, 1, 2, 10)}
ENTROPY: Grid = {"entropy_scale": (1e-3, 1e-2, 0.1, 1, 10)}
BETA: Grid = {"entropy_step_size": (1e-4, 1e-3, 1e-2)}
FULL = CRITIC | ACTOR | ENTROPY
INDEX, ESTIMATOR = {"discrete_critic": "index"}, {"entropy_estimator": "released"}
GAUSSIAN = {"proposal_policy": "gaussian"}
SOFT, AUTOMATIC = {**INDEX, "soft_target": "released"}, {"automatic_entropy": True}
SWEEPS: dict[str, list[tuple[str, str, Grid, dict[str, Any]]]] = {
    "sweep-ca": [
        ("greedy-ac", "CA", FULL, GAUSSIAN | ESTIMATOR),
        ("vanilla-ac", "CA", FULL, ESTIMATOR),
        ("sac", "CA", FULL, {}),
    ],
    "sweep-da": [
        ("greedy-ac", "DA", CRITIC | ACTOR, INDEX),
        ("vanilla-ac", "DA", FULL, INDEX),
        ("sac", "DA", FULL, SOFT),
    ],
    "sac-ablation": [
        ("sac", "CA", CRITIC | ACTOR | BETA, AUTOMATIC),
        ("sac", "DA", CRITIC | ACTOR | BETA, {**SOFT, **AUTOMATIC}),
        ("sac", "CA", FULL, {"policy": "gaussian"}),
    ],
}
THREE: Grid = {"critic_step_size": (1e-4, 1e-3, 1e-2), "actor_step_size_scale": (0.1, 1, 10)}
TAUS: Grid = {"entropy_scale": (1e-3, 0.1, 10)}
REDUCED = CRITIC | {"actor_step_size_scale": (0.1, 1, 10)}
TRUNCATED = {"proposal_policy": "truncated-gaussian", "entropy_estimator": "exact"}
OURS: dict[str, list[tuple[str, str, Grid, dict[str, Any]]]] = {
    "entropy-estimators": [
        *(("greedy-ac", "CA", TAUS, GAUSSIAN | {"entropy_estimator": name}) for name in ("score", "exact", "released")),
        ("greedy-ac", "CA", TAUS, TRUNCATED),
    ],
    "entropy-estimators-extended": [
        ("greedy-ac", "CA", ENTROPY, GAUSSIAN | {"entropy_estimator": "score"}),
        ("greedy-ac", "CA", ENTROPY, TRUNCATED),
    ],
    "sensitivity-reduced": [
        ("greedy-ac", "CA", REDUCED | ENTROPY, GAUSSIAN | ESTIMATOR),
        ("greedy-ac", "CA", REDUCED | ENTROPY, TRUNCATED),
        ("sac", "CA", REDUCED | ENTROPY, {}),
    ],
    "sac-ablation-reduced": [
        ("sac", "CA", REDUCED | ENTROPY, {}),
        ("sac", "CA", REDUCED | BETA, AUTOMATIC),
        ("sac", "CA", THREE | TAUS, {"policy": "gaussian"}),
    ],
}
LARGE = [name for name in shipped_studies() if not name.endswith("-small")]
shipped = cache(load_study)


def lines(values: dict[str, str]) -> str:
    """TOML of values that are TOML already; an empty one leaves its key out."""
    return "".join(f"{name} = {value}\n" for name, value in values.items() if value)


def cell(**values: str) -> str:
    return "[[cells]]\n" + lines({"agents": '["greedy-ac"]', "envs": '["Pendulum-CA"]', **values})


def study(*cells: str, **values: str) -> str:
    """TOML of a study, sound but for what is given: one cell of GreedyAC on Pendulum-CA, four seeds."""
    return lines({"name": '"x"', "steps": "10", "seeds": '"0-3"', **values}) + "".join(cells or [cell()])


def config(agent: str, env: str, steps: int = 10, **hypers: Any) -> RunConfig:
    return RunConfig(agent, env, steps, values_of(make_agent(agent, hypers)))


def by_id(configs: Iterable[RunConfig]) -> dict[str, RunConfig]:
    return {config.run_id(0): config for config in configs}


def rows(table: str) -> list[tuple[dict[str, str], str]]:
    """What is given, by key, and the complaint."""
    pairs = [line.split(" | ") for line in table.strip().splitlines()]
    return [(dict(part.split(" =", 1) for part in given.split("; ")), complaint) for given, complaint in pairs]


def assert_says(line: str, parts: str) -> None:
    """One line that starts with the first of the parts, which are separated by an ellipsis, and holds all in order."""
    assert line.isprintable()
    assert line.startswith(parts.split(" … ")[0]), line
    at = 0
    for part in parts.split(" … "):
        assert part in line[at:], line
        at = line.index(part, at) + len(part)


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Loads a study that must be refused; gives the complaint, after the file's name."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | bytes) -> str:
        Path("bad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(InputError, match=r"^study 'bad\.toml': ") as caught:
            load_study("bad.toml")
        return str(caught.value).removeprefix("study 'bad.toml': ")

    return load


def test_example_of_the_blueprint() -> None:
    example = parse_study(EXAMPLE)
    assert (example.name, example.text) == ("pendulum-example", EXAMPLE)
    assert (example.seeds, example.tuning_seeds) == (tuple(range(40)), tuple(range(10)))
    wanted = product(("greedy-ac", "sac"), (1e-4, 1e-3, 1e-2))
    assert example.configs == tuple(
        config(agent, "Pendulum-CA", 100_000, critic_step_size=size) for agent, size in wanted
    )
    assert len(example.runs()) == 2 * 3 * 40


def test_runs_are_in_order_of_cell_agent_env_sweep_seed() -> None:
    grid = "{ entropy_scale = [1, 0.5], discount = [0.9, 0.8] }"
    first = cell(agents='["vanilla-ac", "greedy-ac"]', envs='["Pendulum-CA", "Acrobot-CA"]', sweep=grid)
    given = parse_study(study(first, cell(agents='["random"]', envs='["Acrobot-DA"]'), seeds='"5,1-2"'))
    wanted = product(("vanilla-ac", "greedy-ac"), ("Pendulum-CA", "Acrobot-CA"), (1, 0.5), (0.9, 0.8))
    configs = [config(agent, env, entropy_scale=scale, discount=discount) for agent, env, scale, discount in wanted]
    configs.append(config("random", "Acrobot-DA"))
    runs = given.runs()
    assert [(run.config, run.seed) for run in runs.values()] == [(each, seed) for each in configs for seed in (5, 1, 2)]
    assert list(runs) == [run.run_id for run in runs.values()]
    assert given.tuning_seeds == ()


@pytest.mark.parametrize(("seeds", "wanted"), [("7", (7,)), ("[3, 1]", (3, 1)), ('"0, 4-5"', (0, 4, 5))])
def test_seeds_are_a_number_a_list_or_a_text(seeds: str, wanted: tuple[int, ...]) -> None:
    given = parse_study(study(seeds=seeds, tuning_seeds=seeds))
    assert given.seeds == given.tuning_seeds == wanted


def test_fixed_values_and_env_options_reach_every_setting() -> None:
    names = {"agents": '["sac", "vanilla-ac"]', "envs": '["Acrobot-CA", "Acrobot-DA"]'}
    values = {"sweep": "{ hidden = [[32], [64, 64]] }", "fixed": "{ polyak = 0.5, batch_size = 8 }"}
    options = {"time_limit": 7, "start": "zero"}
    given = parse_study(study(cell(**names, **values, env_options='{ time_limit = 7, start = "zero" }'), cell()))
    wanted = product(("sac", "vanilla-ac"), ("Acrobot-CA", "Acrobot-DA"), ((32,), (64, 64)))
    configs = [config(agent, env, hidden=hidden, polyak=0.5, batch_size=8) for agent, env, hidden in wanted]
    assert given.configs == (
        *(replace(each, env_options=options) for each in configs),
        config("greedy-ac", "Pendulum-CA"),
    )


@pytest.mark.parametrize("name", PRESETS)
def test_fixed_and_swept_values_override_a_preset(name: str) -> None:
    values = {"fixed": "{ entropy_scale = 0.5 }", "sweep": "{ critic_step_size = [0.25, 0.125] }"}
    given = cell(agents='["sac", "greedy-ac"]', envs='["Pendulum-CA", "Acrobot-CA"]', preset=f'"{name}"', **values)
    wanted = product(("sac", "greedy-ac"), ("Pendulum-CA", "Acrobot-CA"), (0.25, 0.125))
    assert parse_study(study(given)).configs == tuple(
        config(agent, env, **PRESETS[name][agent, env] | {"entropy_scale": 0.5, "critic_step_size": size})
        for agent, env, size in wanted
    )


def test_evaluations_reach_every_run() -> None:
    names = {"envs": '["Pendulum-CA", "CartPole-v1"]'}
    plain, told, fewer = (
        parse_study(study(cell(**names), **values))
        for values in ({}, {"eval_every": "5"}, {"eval_every": "5", "eval_episodes": "2"})
    )
    assert told.configs == tuple(replace(each, eval_every=5, eval_episodes=10) for each in plain.configs)
    assert fewer.configs == tuple(replace(each, eval_every=5, eval_episodes=2) for each in plain.configs)
    assert [each.env for each in plain.configs] == ["Pendulum-CA", "CartPole-v1"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"eval_every": "0"}, "eval_every = 0 is not allowed; allowed: whole number ≥ 1 and ≤ 10"),
        ({"eval_every": "11"}, "eval_every = 11 is not allowed"),
        ({"eval_every": '"x"'}, "eval_every = 'x' is not allowed"),
        ({"eval_every": "5", "eval_episodes": "0"}, "eval_episodes = 0 is not allowed"),
        ({"eval_episodes": "3"}, "eval_episodes without eval_every is not allowed"),
    ],
)
def test_refused_evaluations(refused: Refused, values: dict[str, str], complaint: str) -> None:
    assert complaint in refused(study(**values))


def test_a_run_that_several_cells_name_is_there_once() -> None:
    same = [cell(), cell(fixed="{ discount = 0.99 }"), cell(env_options="{ time_limit = 1000 }")]
    given = parse_study(study(*same, cell(sweep="{ discount = [1, 0.99] }"), seeds="[2, 0]"))
    wanted = [(0.99, 2), (0.99, 0), (1.0, 2), (1.0, 0)]
    assert [(run.config.hypers["discount"], run.seed) for run in given.runs().values()] == wanted


def test_a_fixed_value_may_have_an_effect_in_a_part_of_the_sweep_only() -> None:
    mixed = cell(agents='["sac"]', sweep="{ automatic_entropy = [true, false] }", fixed="{ entropy_step_size = 0.5 }")
    assert [config.hypers["automatic_entropy"] for config in parse_study(study(mixed)).configs] == [True, False]


@pytest.mark.parametrize(
    ("fixed", "sweep"),
    [
        ("replay_capacity = 16", "batch_size = [8, 16]"),
        ("batch_size = 200_000", "replay_capacity = [200_000, 1e6]"),
    ],
)
def test_values_need_to_go_together_only_with_the_swept_ones(fixed: str, sweep: str) -> None:
    assert len(parse_study(study(cell(fixed=f"{{ {fixed} }}", sweep=f"{{ {sweep} }}"))).configs) == 2


@pytest.mark.parametrize(("values", "complaint"), rows(REFUSED))
def test_refused_value(refused: Refused, values: dict[str, str], complaint: str) -> None:
    assert_says(refused(study(**values)), complaint)


@pytest.mark.parametrize(("values", "complaint"), rows(REFUSED_IN_A_CELL))
def test_refused_value_in_a_cell(refused: Refused, values: dict[str, str], complaint: str) -> None:
    assert_says(refused(study(cell(), cell(), cell(**values), cell(agents="1"))), f"cell 3: {complaint}")


@pytest.mark.parametrize("cells", ["1", '"x"', "[]", "[1]", "{ agents = 1 }"])
def test_refused_cells(refused: Refused, cells: str) -> None:
    assert_says(refused(study(f"cells = {cells}")), "cells … not allowed … allowed: one or more tables [[cells]]")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the key 'name' is missing"),
        (study("\n"), "the key 'cells' is missing"),
        (study() + "steps = = 1", "it is not valid TOML: … (at line 7, column 9)"),
        ("a = " + 100_000 * "[", "it is not valid TOML: "),
        (b'name = "caf\xe9"', "it is not UTF-8 text"),
    ],
    ids=["empty", "no cells", "syntax", "deep", "latin-1"],
)
def test_refused_text(refused: Refused, text: str | bytes, complaint: str) -> None:
    assert_says(refused(text), complaint)


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000], ids=["decimal", "hexadecimal"])
def test_refused_numbers_of_thousands_of_digits(refused: Refused, number: str) -> None:
    assert refused(study(steps=number)).isprintable()


def test_too_many_runs_are_refused_before_the_grid_is_expanded(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunConfig, "__init__", lambda *_: pytest.fail("a setting of the grid was made"))
    names, values = (*FULL, "discount"), [index / 1000 for index in range(1, 1001)]
    line = refused(study(cell(sweep=f"{{ {', '.join(f'{name} = {values}' for name in names)} }}")))
    assert line == "cell 1: these are too many runs; allowed: up to 1,000,000 in a study"


@pytest.mark.parametrize(("most", "where"), [(48, None), (47, "cell 2"), (24, "cell 2"), (23, "cell 1")])
def test_the_runs_of_all_cells_are_counted(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, most: int, where: str | None
) -> None:
    monkeypatch.setattr(spec, "MAX_RUNS", most)
    many = {"agents": '["greedy-ac"]', "sweep": "{ discount = [0.5, 0.75, 1] }"}  # × 2 = 6 settings, each with 4 seeds
    first, second = cell(**many, envs='["MountainCar-CA", "Pendulum-CA"]'), {**many, "agents": '["vanilla-ac", "sac"]'}
    if where:
        assert_says(refused(study(first, cell(**second))), f"{where}: these are too many runs; allowed: up to {most}")
    else:
        assert len(parse_study(study(first, cell(**second))).runs()) == most


@dataclass(frozen=True)
class Pusher(RandomAgent):
    name: ClassVar[str] = "pusher"
    actions: ClassVar[tuple[type[Box] | type[Discrete], ...]] = (Box,)


def test_refused_actions(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AGENTS, "pusher", cast(type[Agent], Pusher))
    assert parse_study(study(cell(agents='["pusher"]'))).configs == (config("pusher", "Pendulum-CA"),)
    line = refused(study(cell(agents='["random", "pusher"]', envs='["Pendulum-CA", "Acrobot-DA"]')))
    assert_says(line, "cell 1: pusher can't choose the actions of Acrobot-DA, {0, 1, 2}; allowed: ")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_load_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newline: str) -> None:
    text = EXAMPLE.replace("\n", newline) + "# κ α τ"
    (tmp_path / "mine.toml").write_bytes(text.encode())
    monkeypatch.chdir(tmp_path)
    assert load_study("mine.toml") == load_study(str(tmp_path / "mine.toml")) == parse_study(text)


@pytest.mark.parametrize(
    ("which", "complaint"),
    [
        ("none.toml", "study 'none.toml': it can't be read: "),
        ("x.toml", "study 'x.toml': it can't be read: "),
        ("paper/per-evn", "unknown study 'paper/per-evn' (did you mean 'paper/per-env'?); allowed: … paper/sweep-da,"),
        ("zz\n", "unknown study 'zz\\n'; allowed: paper/across-env, … or the path of a .toml file"),
    ],
)
def test_refused_file_or_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.toml").mkdir()
    with pytest.raises(InputError) as caught:
        load_study(which)
    assert_says(str(caught.value), complaint)


def test_every_large_shipped_study_has_a_small_twin() -> None:
    assert sorted(shipped_studies()) == sorted([*LARGE, *(f"{name}-small" for name in LARGE)])


@pytest.mark.parametrize("name", shipped_studies())
def test_a_shipped_study_has_its_own_name_and_text(name: str) -> None:
    assert shipped(name).name == name
    assert shipped(name).text.encode() == shipped_studies()[name].read_bytes()


@pytest.mark.parametrize(("name", "preset"), [("paper/per-env", "paper"), ("paper/across-env", "paper-across")])
def test_learning_curves_are_of_the_presets_on_fresh_seeds(name: str, preset: str) -> None:
    pairs = product(("greedy-ac", "sac", "vanilla-ac"), CONTROL)
    assert by_id(shipped(name).configs) == by_id(config(*pair, 100_000, **PRESETS[preset][pair]) for pair in pairs)
    assert (shipped(name).seeds, shipped(name).tuning_seeds) == (tuple(range(10, 40)), ())
    assert len(shipped(name).runs()) == 3 * 6 * 30


@pytest.mark.parametrize(("name", "count"), [("sweep-ca", 13_500), ("sweep-da", 9_900), ("sac-ablation", 9_900)])
def test_sweeps_are_the_full_grids_with_the_published_codes_choices(name: str, count: int) -> None:
    given = shipped(f"paper/{name}")
    assert by_id(given.configs) == by_id(cases_of(SWEEPS[name], 100_000))
    assert given.seeds == given.tuning_seeds == tuple(range(10))
    assert len(given.runs()) == len(given.configs) * 10 == count


def cases_of(cells: list[tuple[str, str, Grid, dict[str, Any]]], steps: int) -> list[RunConfig]:
    return [
        config(agent, f"{env}-{kind}", steps, **choices, **dict(zip(grid, values, strict=True)))
        for agent, kind, grid, choices in cells
        for env in ("MountainCar", "Pendulum", "Acrobot")
        for values in product(*grid.values())
    ]


@pytest.mark.parametrize(
    ("name", "steps", "seeds", "count"),
    [
        ("entropy-estimators", 60_000, 5, 180),
        ("entropy-estimators-extended", 60_000, 10, 300),
        ("sensitivity-reduced", 50_000, 3, 2025),
        ("sac-ablation-reduced", 50_000, 3, 675 + 405 + 243),
    ],
)
def test_studies_of_our_own_are_these_grids(name: str, steps: int, seeds: int, count: int) -> None:
    given = shipped(f"paper/{name}")
    assert by_id(given.configs) == by_id(cases_of(OURS[name], steps))
    assert (given.seeds, given.tuning_seeds) == (tuple(range(seeds)), ())
    assert len(given.runs()) == count


@pytest.mark.parametrize(("name", "preset"), [("per-env", "paper"), ("across-env", "paper-across")])
def test_the_slips_put_right_are_paired_with_the_published_choices(name: str, preset: str) -> None:
    """On seeds that the larger study has, too: what is published is in both, and is run once."""
    given = shipped(f"paper/{name}-corrected")
    right = [(agent, env) for agent in ("greedy-ac", "vanilla-ac") for env in CONTROL if env.endswith("CA")]
    own = [("sac", env) for env in CONTROL if env.endswith("DA")]
    estimator, target = {"entropy_estimator": "score"}, {"soft_target": "own"}
    corrected = [config(*pair, 100_000, **PRESETS[preset][pair] | estimator) for pair in right]
    corrected += [config(*pair, 100_000, **PRESETS[preset][pair] | target) for pair in own]
    published = [config(*pair, 100_000, **PRESETS[preset][pair]) for pair in (*right, *own)]
    assert by_id(given.configs) == by_id([*corrected, *published])
    assert set(given.runs()) & set(shipped(f"paper/{name}").runs()) == {
        Run(config, seed).run_id for config in published for seed in range(10, 20)
    }


def test_open_choices_are_paired_with_those_of_the_paper() -> None:
    given = shipped("paper/open-choices")
    agents = ("greedy-ac", "sac", "vanilla-ac")
    chosen = {(agent, env): PRESETS["paper"][agent, env] for agent, env in product(agents, CONTROL)}
    heads = {pair: hypers | {"discrete_critic": "heads"} for pair, hypers in chosen.items() if pair[1].endswith("DA")}
    other = [config(*pair, 100_000, **hypers) for pair, hypers in heads.items()]
    acrobot = [config(*pair, 100_000, **hypers) for pair, hypers in chosen.items() if pair[1].startswith("Acrobot")]
    other += [replace(one, env_options={"start": "zero"}) for one in acrobot]
    assert len(other) == 15
    there = {Run(one, seed).run_id for one in other for seed in range(10, 20)}
    assert set(given.runs()) - set(shipped("paper/per-env").runs()) == there
    assert {(one.agent, one.env) for one in other} == {(one.agent, one.env) for one in given.configs}
    assert len(given.runs()) == 150 + 120


@pytest.mark.parametrize(("name", "steps", "seeds"), [("minatar", 5_000_000, 10), ("minatar-reduced", 200_000, 3)])
def test_minatar_is_two_agents_on_two_games_with_the_papers_settings(name: str, steps: int, seeds: int) -> None:
    given = shipped(f"paper/{name}")
    pairs = list(product(("greedy-ac", "sac"), ("MinAtar-Breakout", "MinAtar-Freeway")))
    settings = {pair: PRESETS["paper"][pair] | {"hidden": (128,)} for pair in pairs}
    assert by_id(given.configs) == by_id(config(*pair, steps, **settings[pair]) for pair in pairs)
    assert (given.seeds, given.tuning_seeds) == (tuple(range(seeds)), ())


@pytest.mark.parametrize(
    ("name", "steps", "seeds", "tuning", "step_sizes"),
    [("swimmer", 1_000_000, 10, (0,), [1e-4]), ("swimmer-reduced", 120_000, 2, (), [1e-4, 1e-3])],
)
def test_swimmer_is_the_papers_setting_with_offline_evaluation(
    name: str, steps: int, seeds: int, tuning: tuple[int, ...], step_sizes: list[float]
) -> None:
    given, pair = shipped(f"paper/{name}"), ("greedy-ac", "Swimmer-v5")
    settings = [PRESETS["paper"][pair] | {"critic_step_size": size} for size in step_sizes]
    evaluated = [replace(config(*pair, steps, **one), eval_every=10_000, eval_episodes=10) for one in settings]
    assert by_id(given.configs) == by_id(evaluated)
    assert (given.seeds, given.tuning_seeds) == (tuple(range(seeds)), tuning)


@pytest.mark.parametrize("name", LARGE)
def test_a_small_twin_is_a_corner_of_the_large_study(name: str) -> None:
    large, small = shipped(name), shipped(f"{name}-small")
    corner = by_id(replace(config, steps=large.configs[0].steps) for config in small.configs)
    assert corner.items() <= by_id(large.configs).items()
    kinds = [{(config.agent, config.env[-2:]) for config in study.configs} for study in (large, small)]
    assert kinds[0] == kinds[1]
    assert set(small.seeds) < set(large.seeds)
    assert bool(small.tuning_seeds) == bool(large.tuning_seeds)
    assert sum(run.config.steps for run in small.runs().values()) <= 300_000
