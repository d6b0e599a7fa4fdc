"""What the numbers show, in plain words with the numbers, and no more."""

from collections.abc import Iterator

from greedyac.analysis.compare import Comparison
from greedyac.analysis.report import Analysis, inventory
from greedyac.analysis.select import Reported
from greedyac.analysis.stats import Interval

BY_WORDS = {"env": "tuned for each environment by itself", "kind": "tuned across the environments of a kind"}

FEW_SEEDS = 5
"""With fewer, resampling seeds can't show how much they differ."""


def brief(number: float) -> str:
    """A number to three places that matter: `−1,000`, `186`, `0.0312`."""
    text = f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
    return text.replace("-", "−")


def with_interval(one: Interval) -> str:
    """`0.91 [0.83, 0.98]`."""
    return f"{brief(one.estimate)} [{brief(one.low)}, {brief(one.high)}]"


def counted(number: int, word: str) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def listed(words: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def summary(found: Analysis) -> dict[str, list[str]]:
    """Sentences under headings, for each thing that can be said."""
    told = {
        "What is there": [*_what_is_there(found), *_selection(found)],
        "Average returns": list(_results(found)),
        "Comparison": [_comparison(one, _tuned(found, one.by)) for one in found.comparisons],
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
    told = {**known, "failed": "failed", "missing": "still missing"}
    parts = [f"{counts[status]:,} {words}" for status, words in told.items() if counts[status] or status == "done"]
    yield f"Of {counted(runs.height, 'run')}, {listed(parts)}."
    for (env,), part in runs.group_by("env", maintain_order=True):
        if part["average_return"].is_null().all():
            yield f"No run on {env} has a return yet, so that nothing is said of it."
    if counts["diverged"]:
        yield (
            "A run that diverged counts in every mean as the lowest average return of any run on its environment, and "
            "in learning curves all along."
        )
    if left_out := sum(grid.left_out for grid in found.grids):
        yield (
            f"{counted(left_out, 'setting')} (counted on each environment) took no part in selection and sensitivity: "
            "not every run on the seeds that the others have is there with a return."
        )
    if found.results.faults:
        yield f"Not everything could be read: {'; '.join(found.results.faults)}."


def _selection(found: Analysis) -> Iterator[str]:
    if not found.choices:
        return
    if not any(choice.compared > 1 for choice in found.choices):
        yield "Each agent has one setting on each environment, so that nothing was selected."
        return
    seeds = found.results.tuning_seeds
    if any(one.optimistic for one in found.reported):
        why = "there are no others yet" if seeds else "the study names no tuning seeds"
        yield (
            f"Settings were chosen and are reported on the same seeds, because {why}: these numbers are optimistic. "
            "The mean of the best of many settings is biased upwards."
        )
    elif seeds:
        yield f"Settings were chosen on {len(seeds)} tuning seeds and are reported on other seeds."


def _results(found: Analysis) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Reported]] = {}
    for one in found.reported:
        groups.setdefault((one.choice.by, one.env), []).append(one)
    for (by, env), own in groups.items():
        ordered = sorted(own, key=lambda one: -float(one.runs["value"].mean()))  # type: ignore[arg-type]
        told = [f"{one.choice.agent} {_mean(one)}" for one in ordered]
        yield f"{env}{_tuned(found, by)}: average return of {listed(told)}."


def _mean(one: Reported) -> str:
    values = one.runs["value"]
    error = f" ± {brief(float(values.std()) / len(values) ** 0.5)}" if len(values) > 1 else ""  # type: ignore[arg-type]
    number = f"{len(values)} of {one.asked} runs" if one.asked > len(values) else counted(len(values), "run")
    return f"{brief(float(values.mean()))}{error} ({number})"  # type: ignore[arg-type]


def _tuned(found: Analysis, by: str) -> str:
    """How settings were chosen, if they were."""
    return f", {BY_WORDS[by]}" if any(choice.compared > 1 for choice in found.choices) else ""


def _comparison(one: Comparison, tuned: str) -> str:
    where = f"Over {listed(list(one.envs))}{tuned}"
    means = listed([f"{agent} {with_interval(mean)}" for agent, mean in one.means.items()])
    pairs = []
    for pair in one.pairs:
        certain = pair.improvement.low > 0.5 or pair.improvement.high < 0.5
        verdict = "" if certain else ", which does not tell them apart"
        pairs.append(f"{pair.first} beats {pair.second} with probability {with_interval(pair.improvement)}{verdict}")
    fewest = min(one.runs.values())
    few = f" With {fewest} seeds these intervals are too narrow." if fewest < FEW_SEEDS else ""
    return (
        f"{where}, the interquartile mean of the normalised score is {means}; a run of {'; one of '.join(pairs)}.{few}"
    )


def _sensitivity(found: Analysis) -> Iterator[str]:
    for kind in dict.fromkeys(one.kind for one in found.measures):
        own = [one for one in found.measures if one.kind == kind and one.score == "percentile"]
        if own:
            told = [f"{one.agent} {with_interval(one.phi)}" for one in own]
            dimensions = [
                f"{one.agent} {one.effective_dimensionality.estimate:.0f} of {one.hyperparameters}"
                for one in own
                if one.effective_dimensionality
            ]
            needed = (
                f" To keep 95 % of it, this many must be tuned per environment: {listed(dimensions)}."
                if dimensions
                else ""
            )
            yield (
                f"One setting for all {kind}-action environments instead of one for each costs, in percentile score "
                f"(Φ), {listed(told)}.{needed}"
            )
