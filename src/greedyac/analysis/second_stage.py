"""The second stage: the chosen settings as a study on seeds that the selection did not see."""

import json
from collections.abc import Sequence

from greedyac.agents import make_agent
from greedyac.agents.presets import PRESETS
from greedyac.analysis.load import Results
from greedyac.analysis.select import Choice
from greedyac.core.errors import InputError
from greedyac.envs import make_world, parse_env_label
from greedyac.execution.plan import expand_configs
from greedyac.execution.seeds import named_seeds, seeds_text
from greedyac.study.spec import Study, parse_study

FRESH = 30
"""How many seeds the study has if there are none left: as many as in the paper."""


def fresh_seeds(results: Results, choices: Sequence[Choice], given: Sequence[int] | None = None) -> list[int]:
    """The seeds of the second stage: those given, the store's others, or the next ones; none that the selection saw."""
    asked = set(results.runs["seed"])
    seen = {seed for choice in choices if choice.compared > 1 for seed in choice.seeds} | results.tuning_seeds or asked
    if given is not None:
        if used := sorted(seen & set(given)):
            others = seeds_text(sorted(seen))
            raise InputError(
                f"seed {used[0]} is not allowed: the settings were chosen by it; allowed: all but {others}"
            )
        return list(given)
    first = max(asked | seen) + 1
    return sorted(asked - seen) or list(range(first, first + FRESH))


def second_stage(results: Results, choices: Sequence[Choice], seeds: Sequence[int], notes: Sequence[str] = ()) -> Study:
    """A study of the chosen settings, each on its environments; its text is what `greedyac sweep` takes."""
    lengths = results.runs["steps"].unique().sort().to_list()
    if len(lengths) > 1:
        raise InputError(
            f"the runs differ in length ({', '.join(map(str, lengths))} steps), and a study has one; allowed: --steps N"
        )
    by = "each environment by itself" if choices[0].by == "env" else "all environments of a kind together"
    tuned = named_seeds(sorted({seed for choice in choices for seed in choice.seeds}))
    name = f"best by {choices[0].by} of {', '.join(results.studies) or 'these runs'}"
    lines = [
        f"# The best setting of each agent for {by}, chosen by the runs of {tuned}.",
        *(f"# {note}" for note in notes),
        f"name = {_toml(name)}",
        f"steps = {lengths[0]}",
        f'seeds = "{seeds_text(sorted(seeds))}"',
    ]
    for choice in choices:
        lines += _cells(choice, lengths[0])
    return parse_study("\n".join(lines) + "\n")


def _cells(choice: Choice, steps: int) -> list[str]:
    """The cells of a choice: one for all environments that can be written alike."""
    agent, lines = choice.agent.partition("[")[0], []
    cells: dict[tuple[str | None, str, str], list[str]] = {}
    for label in choice.envs:
        env, options = parse_env_label(label)
        preset, fixed = _written(agent, env, options, choice, steps)
        cells.setdefault((preset, _table(options), _table(fixed)), []).append(env)
    for (preset, *tables), envs in cells.items():
        lines += ["", "[[cells]]", f"agents = {_toml([agent])}", f"envs = {_toml(envs)}"]
        lines += [f"preset = {_toml(preset)}"] if preset else []
        lines += [
            f"{name} = {{ {table} }}" for name, table in zip(("env_options", "fixed"), tables, strict=True) if table
        ]
    return lines


def _written(
    agent: str, env: str, options: dict[str, object], choice: Choice, steps: int
) -> tuple[str | None, dict[str, object]]:
    """A preset, or none, and the values that make the chosen setting on this environment.

    Values without effect there may not be fixed in a study; where they are not the defaults they came with a preset.
    """
    vain = make_agent(agent, choice.hypers).without_effect(make_world(env, options).spaces)
    fixed = {name: value for name, value in choice.hypers.items() if name not in vain}
    for preset in (None, *(name for name, table in PRESETS.items() if (agent, env) in table)):
        [config] = expand_configs(agent, env, steps, preset, options, {}, fixed)
        if config.setting_id == choice.setting_id:
            return preset, fixed
    raise InputError(f"the setting {choice.setting_id} of {choice.agent} can't be written as a study for {env}")


def _table(values: dict[str, object]) -> str:
    return ", ".join(f"{name} = {_toml(value)}" for name, value in values.items())


def _toml(value: object) -> str:
    """A value of a study in TOML, where numbers, texts and lists look as in JSON."""
    return json.dumps(value, ensure_ascii=False)
