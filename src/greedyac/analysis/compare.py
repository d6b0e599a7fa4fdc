"""Comparison of agents at their chosen settings: interquartile mean, probability of improvement, performance profiles
over the environments of a kind, and differences of returns between every two agents on each environment.

Only seeds that all compared agents have on an environment are used, and they are resampled for all of them alike.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from greedyac.analysis.scores import Scales
from greedyac.analysis.select import Reported
from greedyac.analysis.stats import (
    Floats,
    Interval,
    improvement,
    interquartile_mean,
    interval,
    mean_interval,
    percentile_interval,
    profile,
    resampled_improvement,
    stratified,
)

THRESHOLDS = 101


class Pair(NamedTuple):
    """How one agent compares with another."""

    first: str
    second: str
    improvement: Interval
    """The probability that a run of the first is better than one of the second, averaged over environments."""
    difference: Interval
    """Of their interquartile means."""


class Difference(NamedTuple):
    """How one agent compares with another on one environment, on the seeds that both have; returns, not scores."""

    by: str
    env: str
    first: str
    second: str
    runs: int
    average_return: Interval
    """Of the first less that of the second, in the mean."""
    final_return: Interval | None
    """Likewise; None if a run finished no episode in its last tenth."""
    improvement: Interval
    """The probability that a run of the first has a higher average return than one of the second."""
    optimistic: bool


class Profile(NamedTuple):
    """The share of an agent's runs above each threshold, each environment counting the same."""

    agent: str
    thresholds: Floats
    share: Floats
    low: Floats
    high: Floats


class Comparison(NamedTuple):
    """The agents of one kind of environments, by the paper's score."""

    by: str
    kind: str
    envs: tuple[str, ...]
    runs: dict[str, int]
    """Environment → seeds that all agents have."""
    optimistic: bool
    means: dict[str, Interval]
    """Agent → interquartile mean over all runs on all environments."""
    pairs: list[Pair]
    profiles: list[Profile]


def compare(reports: Sequence[Reported], scales: Scales) -> tuple[list[Comparison], list[str]]:
    """The agents of each kind at their chosen settings, and in words what could not be compared."""
    found, notes = [], []
    groups: dict[tuple[str, str], list[Reported]] = {}
    for report in reports:
        groups.setdefault((report.choice.by, report.choice.kind), []).append(report)
    for (by, kind), group in groups.items():
        runs = {(report.env, report.choice.agent): report.runs for report in group}
        agents, envs, unsaid = _comparable(runs, scales)
        notes += unsaid
        seeds = {env: _common_seeds([runs[env, agent] for agent in agents]) for env in envs}
        for env in [env for env in envs if len(seeds[env]) < 2]:
            envs.remove(env)
            few = "one seed" if seeds[env] else "no seed"
            notes.append(f"{env} is not in the comparison of {', '.join(agents)}: they have {few} in common there")
        if envs:
            scores = [[_scores(runs[env, agent], seeds[env], scales, env) for env in envs] for agent in agents]
            optimistic = any(one.optimistic for one in group if one.env in envs and one.choice.agent in agents)
            counts = {env: len(seeds[env]) for env in envs}
            found.append(_comparison(by, kind, agents, envs, counts, optimistic, scores))
    return found, notes


def differences(reports: Sequence[Reported]) -> list[Difference]:
    """Every two agents on every environment on which they have two or more seeds in common."""
    found = []
    for one, two in itertools.combinations(reports, 2):
        if (one.choice.by, one.env) != (two.choice.by, two.env):
            continue
        seeds = _common_seeds([one.runs, two.runs])
        if len(seeds) < 2:
            continue
        first, second = (_on(report.runs, seeds, "value") for report in (one, two))
        final = _on(one.runs, seeds, "final_value") - _on(two.runs, seeds, "final_value")
        found.append(
            Difference(
                one.choice.by,
                one.env,
                one.choice.agent,
                two.choice.agent,
                len(seeds),
                mean_interval(first - second),
                None if np.isnan(final).any() else mean_interval(final),
                interval(improvement(first, second), resampled_improvement(first, second)),
                one.optimistic or two.optimistic,
            )
        )
    return found


def _comparable(runs: Mapping[tuple[str, str], pl.DataFrame], scales: Scales) -> tuple[list[str], list[str], list[str]]:
    """The agents to compare and the environments that all of them have, and in words who is left out.

    So that most results are compared: as many agents on as many environments as go together.
    """
    notes = []
    for env in dict.fromkeys(env for env, _ in runs if scales.get(env) is None):
        notes.append(f"{env} is not in the comparison of agents: no score is defined there")
    places: dict[str, list[str]] = {}
    for env, agent in runs:
        if scales.get(env) is not None:
            places.setdefault(agent, []).append(env)
    if len(places) < 2:
        return [], [], []

    def worth(agent: str) -> tuple[bool, int]:
        sharing = sum(set(places[agent]) <= set(own) for own in places.values())
        return sharing > 1, sharing * len(places[agent])

    envs = list(places[max(places, key=worth)])
    agents = [agent for agent, own in places.items() if set(envs) <= set(own)]
    if len(agents) < 2:
        agents, envs = list(places), [env for env in envs if all(env in own for own in places.values())]
    for agent in (agent for agent in places if agent not in agents):
        notes.append(f"{agent} is not in the comparison with {', '.join(agents)}: it has no results on {envs[0]}")
    for env in dict.fromkeys(env for env, agent in runs if env not in envs and agent in agents and scales.get(env)):
        notes.append(f"{env} is not in the comparison of {', '.join(agents)}: not all of them have results there")
    return agents, envs, notes


def _common_seeds(runs: Sequence[pl.DataFrame]) -> list[int]:
    return sorted(set.intersection(*(set(part["seed"]) for part in runs)))


def _scores(runs: pl.DataFrame, seeds: list[int], scales: Scales, env: str) -> Floats:
    scale = scales[env]
    assert scale is not None
    return scale(_on(runs, seeds, "value"))


def _on(runs: pl.DataFrame, seeds: list[int], column: str) -> Floats:
    """A column of the runs on these seeds, in their order."""
    return runs.filter(pl.col("seed").is_in(seeds)).sort("seed")[column].to_numpy()


def _comparison(
    by: str,
    kind: str,
    agents: list[str],
    envs: list[str],
    counts: dict[str, int],
    optimistic: bool,
    scores: list[list[Floats]],
) -> Comparison:
    means = {agent: interval(*stratified(_pooled_mean, [own])) for agent, own in zip(agents, scores, strict=True)}
    pairs = []
    for (first, one), (second, two) in itertools.combinations(zip(agents, scores, strict=True), 2):
        better = interval(*_mean_improvement(one, two))
        apart = interval(*stratified(_difference, [one, two]))
        pairs.append(Pair(first, second, better, apart))
    every = np.concatenate([part for own in scores for part in own])
    thresholds = np.linspace(every.min(), every.max(), THRESHOLDS)
    profiles = [_profile(agent, own, thresholds) for agent, own in zip(agents, scores, strict=True)]
    return Comparison(by, kind, tuple(envs), counts, optimistic, means, pairs, profiles)


def _pooled_mean(scores: Sequence[Floats]) -> Floats:
    return interquartile_mean(np.concatenate(scores, axis=-1))


def _difference(first: Sequence[Floats], second: Sequence[Floats]) -> Floats:
    return _pooled_mean(first) - _pooled_mean(second)


def _mean_improvement(first: Sequence[Floats], second: Sequence[Floats]) -> tuple[Floats, Floats]:
    """The probability of improvement, averaged over environments, and its bootstrap samples."""
    pairs = list(zip(first, second, strict=True))
    samples = [resampled_improvement(one, two, stream) for stream, (one, two) in enumerate(pairs)]
    return np.mean([improvement(one, two) for one, two in pairs], axis=0), np.mean(samples, axis=0)


def _profile(agent: str, scores: Sequence[Floats], thresholds: Floats) -> Profile:
    def statistic(parts: Sequence[Floats]) -> Floats:
        return np.mean([profile(part, thresholds) for part in parts], axis=0)

    share, samples = stratified(statistic, [scores])
    return Profile(agent, thresholds, share, *percentile_interval(samples))
