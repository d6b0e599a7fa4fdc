"""What the numbers show, in plain words with the numbers, and no more."""

from collections.abc import Iterator

from greedyac.analysis.compare import Comparison
from greedyac.analysis.load import evaluated
from greedyac.analysis.report import Analysis, inventory
from greedyac.analysis.select import Reported
from greedyac.analysis.stats import Interval
from greedyac.core.counting import counted
from greedyac.execution.seeds import named_seeds

BY_WORDS = {"env": "tuned per environment", "kind": "tuned across environments"}

FEW_SEEDS = 10
"""With fewer, resampling can't show how much seeds differ: a 95 % interval of the mean of a normal distribution
holds it in 85 % of cases with 5 seeds, and in 90 % with 10."""


def brief(number: float) -> str:
    """A number to three places that matter: `−1,000`, `186`, `0.0312`."""
    text = f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
    return text.replace("-", "−")


def with_interval(one: Interval) -> str:
    """`0.91 [0.83, 0.98]`."""
    return f"{brief(one.estimate)} [{brief(one.low)}, {brief(one.high)}]"


def listed(words: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def tuned_words(found: Analysis, by: str) -> str:
    """How settings were chosen, if they were: `, tuned per environment`."""
    return f", {BY_WORDS[by]}" if found.tuned else ""


def few_words(seeds: int) -> str:
    """A warning, if there are few seeds."""
    return f" With {counted(seeds, 'seed')}, 95 % intervals are too narrow." if seeds < FEW_SEEDS else ""


def summary(found: Analysis) -> dict[str, list[str]]:
    """Sentences under headings, for each thing that can be said."""
    told = {
        "What is there": [*_what_is_there(found), *_selection(found)],
        "Average returns": list(_results(found)),
        "Comparison": [_comparison(one, tuned_words(found, one.by)) for one in found.comparisons],
        "Sensitivity": list(_sensitivity(found)),
        "What can't be said": [note[0].upper() + note[1:] + "." for note in found.notes],
    }
    return {heading: sentences for heading, sentences in told.items() if sentences}


def _what_is_there(found: Analysis) -> Iterator[str]:
    runs = found.results.runs
    counts = {
        status: int(total)
        for status, total in inventory(runs).drop("env", "agent", "runs").sum().row(0, named=True).items()
    }
    known = {"done": "done", "diverged": "diverged", "blank": "done without a finished episode"}
    unread = "missing or in a file that can't be read" if found.results.faults else "still missing"
    told = {**known, "failed": "failed", "missing": unread}
    parts = [f"{counts[status]:,} {words}" for status, words in told.items() if counts[status] or status == "done"]
    yield f"Of {counted(runs.height, 'run')}, {listed(parts)}."
    for (env,), part in runs.group_by("env", maintain_order=True):
        if part["average_return"].is_null().all():
            yield f"No run on {env} has a return yet, so that nothing is said of it."
    if counts["diverged"]:
        offline = any(evaluated(one.runs) for one in found.reported)
        lowest = " (offline: as the lowest mean of any run's evaluations there)" if offline else ""
        yield (
            "A run that diverged counts in every mean as the lowest average return of any run on its environment, and "
            f"in learning curves all along{lowest}."
        )
    if left_out := sum(grid.left_out for grid in found.grids):
        yield (
            f"{counted(left_out, 'setting')} (counted on each environment) took no part in the analysis of "
            "sensitivity: not every run on the seeds that the others have is there with a return."
        )
    if found.results.faults:
        yield f"Not everything could be read: {'; '.join(found.results.faults)}."


def _selection(found: Analysis) -> Iterator[str]:
    if not found.choices:
        return
    if not found.tuned:
        yield "Each agent has one setting on each environment, so that nothing was selected."
        return
    if left_out := sum(choice.left_out for choice in found.choices if choice.by == "env"):
        yield f"{counted(left_out, 'setting')} lacked runs on the tuning seeds and took no part in the selection."
    hopeful = [one for one in found.reported if one.optimistic]
    if hopeful:
        who = dict.fromkeys(f"{one.choice.agent} on {one.env}" for one in hopeful)
        told = "All settings" if len(hopeful) == len(found.reported) else f"The settings of {listed(list(who))}"
        seeds = max(one.runs.height for one in hopeful)
        same = "seed, as there is no other" if seeds == 1 else "seeds, as there are no others"
        yield (
            f"{told} were chosen and are reported on the same {same}: these numbers are "
            "optimistic. The mean of the best of many settings is biased upwards."
        )
    if fresh := [one for one in found.reported if one.fresh]:
        chosen = sorted({seed for one in fresh for seed in one.choice.seeds})
        shown = sorted({seed for one in fresh for seed in one.runs["seed"]})
        which = "Settings" if len(fresh) == len(found.reported) else "Other settings"
        yield f"{which} were chosen on {named_seeds(chosen)} and are reported on {named_seeds(shown)}."
    for choice in found.choices:
        if choice.tied:
            where = f"{choice.agent} on {listed(list(choice.envs))}"
            tied = counted(choice.tied, "setting")
            yield f"For {where}, {tied} tied with the chosen one, which is the first of them."


def _results(found: Analysis) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Reported]] = {}
    for one in found.reported:
        groups.setdefault((one.choice.by, one.env), []).append(one)
    for (by, env), own in groups.items():
        ordered = sorted(own, key=lambda one: -float(one.runs["value"].mean()))  # type: ignore[arg-type]
        told = [f"{one.choice.agent} {_mean(one)}" for one in ordered]
        yield f"{env}{tuned_words(found, by)}: average return of {listed(told)}."


def _mean(one: Reported) -> str:
    values = one.runs["value"]
    error = f" ± {brief(float(values.std()) / len(values) ** 0.5)}" if len(values) > 1 else ""  # type: ignore[arg-type]
    number = f"{len(values)} of {one.asked} runs" if one.asked > len(values) else counted(len(values), "run")
    if diverged := int((one.runs["status"] == "diverged").sum()):
        number += f", {diverged} diverged"
    return f"{brief(float(values.mean()))}{error} ({number})"  # type: ignore[arg-type]


def _comparison(one: Comparison, tuned: str) -> str:
    where = f"Over {listed(list(one.envs))}{tuned}"
    means = listed([f"{agent} {with_interval(mean)}" for agent, mean in one.means.items()])
    pairs, fewest = [], min(one.runs.values())
    for pair in one.pairs:
        open_question = pair.improvement.low <= 0.5 <= pair.improvement.high
        verdict = ", which does not tell them apart" if open_question else ""
        pairs.append(f"{pair.first} beats {pair.second} with probability {with_interval(pair.improvement)}{verdict}")
    better = "; one of ".join(pairs)
    return f"{where}, the interquartile mean of the normalised score is {means}; a run of {better}.{few_words(fewest)}"


def _sensitivity(found: Analysis) -> Iterator[str]:
    for kind in dict.fromkeys(one.kind for one in found.measures):
        own = [one for one in found.measures if one.kind == kind and one.score == "percentile"]
        told = [
            f"{one.agent} {brief(one.phi.estimate)}"
            + ("" if one.held_out_phi is None else f" ({brief(one.held_out_phi)} on seeds that did not choose)")
            for one in own
        ]
        if told:
            yield (
                f"One setting for all {kind}-action environments instead of one for each costs, in percentile score "
                f"(Φ), {listed(told)}."
            )
