"""The figures and tables of the docs that are made from the runs kept in results/.

    python benchmarks/reproduction.py

Calls `greedyac report` for every study that is kept, copies the figures that the docs show to docs/images/, and writes
the tables into the documents, between `<!-- name -->` and `<!-- end -->`. Verdicts and words are written by hand.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from greedyac.analysis.figures import learning_curves
from greedyac.analysis.grid import USUAL_AXES
from greedyac.analysis.load import load, with_values
from greedyac.analysis.report import Analysis, analyse
from greedyac.analysis.sensitivity import held_out_width, line_axis, region_width, sensitivity_curves, shares_of
from greedyac.analysis.stats import Interval, mean_interval
from greedyac.analysis.words import brief, with_interval
from greedyac.cli import main
from greedyac.results.schema import BINS

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "docs/reproduction.md", ROOT / "docs/entropy.md")
BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
STUCK = -800
"""A final return below this, where an episode that never reaches the goal has −1,000; on Pendulum there is no goal."""
SLIPS = ("entropy_estimator", "soft_target")
"""Hyperparameters that are `released` where an agent is as the published code has it."""
PUBLISHED = {"greedy-ac[entropy_estimator=released,proposal_policy=gaussian]": "greedy-ac, as published"}
"""Shorter names of agents."""
ABLATION = "sensitivity", "paper/sac-ablation-chosen"
"""Where the runs of the settings are that the ablation of SAC chose."""
AXES = USUAL_AXES[:3]
"""The hyperparameters of the grids of sensitivity; a region has a line for each value of the last."""


@cache
def analysed(store: str, study: str | None = None) -> Analysis:
    """What `greedyac report` would show of a store, or of one of its studies."""
    return analyse(load(ROOT / "results" / store, study))


def results_table(found: Analysis) -> Iterator[str]:
    """Mean average returns with their intervals, and what becomes of runs in the end."""
    yield "| environment | agent | average return | final return | its median | stuck |"
    yield "|---|---|---|---|---|---|"
    for one in found.chosen("env"):
        average, final = (one.runs[column].to_numpy() for column in ("value", "final_value"))
        means = " | ".join(with_interval(mean_interval(values)) for values in (average, final))
        stuck = "" if one.env.startswith("Pendulum") else f"{(final < STUCK).sum()} of {len(final)}"
        yield f"| {one.env} | {one.choice.agent} | {means} | {brief(np.median(final))} | {stuck} |"


def slips_table(found: Analysis) -> Iterator[str]:
    """Every agent with a slip put right, less the same as published."""
    yield "| environment | agent | as published | put right | difference | of final returns | seeds |"
    yield "|---|---|---|---|---|---|---|"
    told = {}
    for one in found.chosen("env"):
        published = "released" in (one.choice.hypers.get(name) for name in SLIPS)
        place = one.env, one.choice.agent.partition("[")[0], published
        assert place not in told
        told[place] = one.runs
    for env, agent, published in told:
        if published and (env, agent, False) in told:
            yield f"| {env} | {agent} | {changed(told[env, agent, True], told[env, agent, False])} |"


def choices_table(found: Analysis) -> Iterator[str]:
    """Every choice that was tried beside the one that `paper/per-env` makes, and the differences it makes."""
    yield "| choice | environment | agent | in `per-env` | with this choice | difference | of final returns | seeds |"
    yield "|---|---|---|---|---|---|---|---|"
    usual, told = "discrete_critic=index", {}
    for one in found.chosen("env"):
        env, _, start = one.env.partition("[")
        agent = one.choice.agent.partition("[")[0]
        choice = start.rstrip("]") or f"discrete_critic={one.choice.hypers['discrete_critic']}"
        told[choice, env, agent] = one.runs
    for choice, env, agent in sorted(told, key=lambda place: place[0] != "start=zero"):
        if choice != usual:
            change = changed(told[usual, env, agent], told[choice, env, agent])
            yield f"| `{choice}` | {env} | {agent} | {change} |"


def changed(before: pl.DataFrame, after: pl.DataFrame) -> str:
    """Mean average returns before and after; the differences by seed, of average and of final returns; how many."""
    means = [brief(runs["value"].to_numpy().mean()) for runs in (before, after)]
    apart = [with_interval(paired(after, before, column)) for column in ("value", "final_value")]
    return " | ".join([*means, *apart, str(after.height)])


def paired(first: pl.DataFrame, second: pl.DataFrame, column: str) -> Interval:
    """The mean of the differences between runs of the same seeds."""
    both = first.select("seed", column).join(second.select("seed", column), on="seed", validate="1:1")
    assert both.height == first.height == second.height
    return mean_interval((both[column] - both[f"{column}_right"]).to_numpy())


def losses_table() -> Iterator[str]:
    """What one setting for all environments costs each agent on each of them, and GreedyAC more than VanillaAC."""
    yield "| environment | greedy-ac | sac | vanilla-ac | greedy-ac − vanilla-ac |"
    yield "|---|---|---|---|---|"
    tuned, across = (
        {(one.env, one.choice.agent): one.runs.sort("seed") for one in analysed(name, f"paper/{name}").chosen("env")}
        for name in ("per-env", "across-env")
    )
    for env in dict.fromkeys(env for env, _ in tuned):
        lost = {
            agent: tuned[env, agent].with_columns(pl.col("value") - across[env, agent]["value"])
            for agent in ("greedy-ac", "sac", "vanilla-ac")
        }
        told = [paired(tuned[env, agent], across[env, agent], "value") for agent in lost]
        told.append(paired(lost["greedy-ac"], lost["vanilla-ac"], "value"))
        yield f"| {env} | {' | '.join(map(with_interval, told))} |"


def estimators_table(found: Analysis) -> Iterator[str]:
    """Mean average returns of every proposal and estimator at every entropy scale, and their mean scores."""
    scales = found.swept[0].axes["entropy_scale"]
    envs = list(dict.fromkeys(grid.env for grid in found.swept))
    told = " / ".join(map(brief, scales))
    heads = [f"{env}, τ = {told}" if env == envs[0] else env for env in envs]
    yield "| proposal | estimator | " + " | ".join(heads) + " | mean score, the paper's | by percentiles |"
    yield "|" + "---|" * (len(envs) + 4)
    means = {(one.agent, one.score): with_interval(one.mean_score) for one in found.measures}
    for agent in dict.fromkeys(grid.agent for grid in found.swept):
        own = {grid.env: grid for grid in found.swept if grid.agent == agent}
        assert all(grid.axes == {"entropy_scale": scales} for grid in own.values())
        hypers = own[envs[0]].hypers[0]
        returns = [" / ".join(map(brief, own[env].means)) for env in envs]
        names = [hypers["proposal_policy"], hypers["entropy_estimator"]]
        yield "| " + " | ".join([*names, *returns, means[agent, "paper"], means[agent, "percentile"]]) + " |"


def regions_table(found: Analysis) -> Iterator[str]:
    """Width, held-out width and level of every sensitivity region."""
    yield "| environment | over | agent | width | held-out width | level |"
    yield "|---|---|---|---|---|---|"
    for across in AXES[:2]:
        for grid in found.swept:
            lines = line_axis(grid, across)
            assert grid.full
            assert lines is not None
            curves, held_out = sensitivity_curves(grid, across, lines), held_out_width(grid, across, lines)
            assert held_out is not None
            told = " | ".join(map(brief, (region_width(curves), held_out, curves.mean())))
            yield f"| {grid.env} | `{across}` | {PUBLISHED.get(grid.agent, grid.agent)} | {told} |"


def variance_table(found: Analysis) -> Iterator[str]:
    """The share of each hyperparameter in the variance between settings, and of what depends on several."""
    names = " | ".join(f"`{name}`" for name in AXES)
    yield f"| environment | agent | {names} | several together | of these with `{AXES[-1]}` |"
    yield "|---|---|---|---|---|---|---|"
    for grid in found.swept:
        shares = shares_of(grid)
        together = {names: share for names, share in shares.items() if len(names) > 1}
        with_entropy = sum(share for names, share in together.items() if AXES[-1] in names)
        numbers = [*(shares[name,] for name in AXES), sum(together.values()), with_entropy]
        told = " | ".join(f"{100 * share:.0f} %" for share in numbers)
        yield f"| {grid.env} | {PUBLISHED.get(grid.agent, grid.agent)} | {told} |"


def policies_table(found: Analysis) -> Iterator[str]:
    """SAC's two policies on the settings that both have: the best of them, their mean, and how often which is ahead."""
    grids = {(grid.env, grid.agent): grid for grid in found.grids}
    scales = next(grid for grid in found.grids if grid.agent == "sac[policy=gaussian]").axes["entropy_scale"]
    heads = [f"τ = {brief(scale)}" for scale in scales]
    heads[0] = f"Gaussian ahead / equal / behind, {heads[0]}"
    yield f"| environment | best: squashed | Gaussian | mean: squashed | Gaussian | {' | '.join(heads)} |"
    yield "|" + "---|" * (5 + len(heads))
    for env in dict.fromkeys(env for env, _ in grids):
        squashed, gaussian = (
            {tuple(hypers[name] for name in AXES): mean for hypers, mean in zip(grid.hypers, grid.means, strict=True)}
            for grid in (grids[env, "sac"], grids[env, "sac[policy=gaussian]"])
        )
        pairs = np.array([(squashed[place], mean) for place, mean in gaussian.items()])
        told = [brief(number) for numbers in (pairs.max(axis=0), pairs.mean(axis=0)) for number in numbers]
        for scale in scales:
            own = pairs[[place[-1] == scale for place in gaussian]]
            signs = np.sign(own[:, 1] - own[:, 0])
            told.append(" / ".join(str((signs == sign).sum()) for sign in (1, 0, -1)))
        yield f"| {env} | {' | '.join(told)} |"


def published_table() -> Iterator[str]:
    """The first half of SAC's runs with the paper's settings, and how far ahead of the ablation's runs they are."""
    names = ("sac", "sac[automatic_entropy=true]", "sac[policy=gaussian]")
    yield "| environment | average return | final return | stuck | − tuned here | − automatic | − Gaussian |"
    yield "|---|---|---|---|---|---|---|"
    chosen = {(one.env, one.choice.agent): one.runs for one in analysed(*ABLATION).chosen("env")}
    for one in analysed("per-env", "paper/per-env").chosen("env"):
        if (one.env, "sac") in chosen and one.choice.agent == "sac":
            bins = np.array(one.runs["curve"].to_list())[:, : BINS // 2]
            half = one.runs.select(
                "seed", value=pl.Series(bins.mean(axis=1)), final_value=pl.Series(bins[:, -BINS // 20 :].mean(axis=1))
            )
            final = half["final_value"].to_numpy()
            stuck = "" if one.env.startswith("Pendulum") else f"{(final < STUCK).sum()} of {len(final)}"
            means = [brief(half[column].to_numpy().mean()) for column in ("value", "final_value")]
            ahead = [with_interval(paired(half, chosen[one.env, name], "value")) for name in names]
            yield f"| {one.env} | {' | '.join([*means, stuck, *ahead])} |"


def games_table(found: Analysis) -> Iterator[str]:
    """Mean returns over runs too few for intervals, and the final return of every one, by seed."""
    yield "| environment | agent | average return | final return | final returns of the runs | best episode |"
    yield "|---|---|---|---|---|---|"
    for one in found.chosen("env"):
        runs = one.runs.sort("seed")
        means = " | ".join(brief(runs[column].to_numpy().mean()) for column in ("value", "final_value"))
        finals = ", ".join(brief(final) for final in runs["final_value"])
        yield f"| {one.env} | {one.choice.agent} | {means} | {finals} | {brief(runs['best_return'].to_numpy().max())} |"


def swimmer_runs(found: Analysis) -> pl.DataFrame:
    """All runs, those of each setting as an agent of its own."""
    names = {1e-4: "the paper's step sizes", 1e-3: "ten times larger"}
    settings = [names[json.loads(hypers)["critic_step_size"]] for hypers in found.results.runs["hypers"]]
    return found.results.runs.with_columns(agent=pl.Series(settings)).sort(pl.col("agent") != names[1e-4], "seed")


def swimmer_table(found: Analysis) -> Iterator[str]:
    """Every run: its returns in training, and those of its evaluations."""
    yield "| setting | seed | average return | final return | best episode | offline: best | mean of the last three |"
    yield "|---|---|---|---|---|---|---|"
    for run in swimmer_runs(found).iter_rows(named=True):
        online = [run[column] for column in ("average_return", "final_return", "best_return")]
        offline = np.array(run["eval_curve"])
        told = " | ".join(map(brief, [*online, offline.max(), offline[-3:].mean()]))
        yield f"| {run['agent']} | {run['seed']} | {told} |"


def swimmer_figure() -> Figure:
    """Both settings, where a report would show the better one."""
    return learning_curves(with_values(swimmer_runs(analysed("swimmer", "paper/swimmer-reduced"))))


class Kept(NamedTuple):
    """A study whose runs are kept, its tables in the docs, and which figures of its report they show."""

    store: str
    study: str
    tables: dict[str, Callable[[Analysis], Iterator[str]]]
    """Name in the docs → table."""
    figures: dict[str, str]
    """Figure of the report → its name in docs/images."""


KEPT = (
    Kept("per-env", "paper/per-env", {"per-env": results_table}, {"learning_curves_by_env": "per-env"}),
    Kept(
        "per-env",
        "paper/per-env-corrected",
        {"per-env-corrected": slips_table},
        {"learning_curves_by_env": "per-env-corrected"},
    ),
    Kept("per-env", "paper/open-choices", {"open-choices": choices_table}, {}),
    Kept("across-env", "paper/across-env", {"across-env": results_table}, {"learning_curves_by_env": "across-env"}),
    Kept("across-env", "paper/across-env-corrected", {"across-env-corrected": slips_table}, {}),
    Kept(
        "entropy-estimators",
        "paper/entropy-estimators",
        {"entropy-estimators": estimators_table},
        {"sensitivity_continuous_entropy_scale": "entropy-estimators"},
    ),
    Kept(
        "entropy-estimators",
        "paper/entropy-estimators-extended",
        {"entropy-estimators-extended": estimators_table},
        {"sensitivity_continuous_entropy_scale": "entropy-estimators-extended"},
    ),
    Kept(
        "sensitivity",
        "paper/sensitivity-reduced",
        {"regions": regions_table, "variance": variance_table},
        {"region_continuous_critic_step_size": "sensitivity-regions"},
    ),
    Kept("sensitivity", "paper/sac-ablation-reduced", {"policies": policies_table}, {}),
    Kept(
        *ABLATION,
        {"sac-ablation": results_table},
        {"learning_curves_by_env": "sac-ablation"},
    ),
    Kept("minatar", "paper/minatar-reduced", {"minatar": games_table}, {"learning_curves_by_env": "minatar"}),
    Kept("swimmer", "paper/swimmer-reduced", {"swimmer": swimmer_table}, {}),
)


def blocks() -> dict[str, str]:
    """Every table of the docs by its name."""
    made = {name: table(analysed(kept.store, kept.study)) for kept in KEPT for name, table in kept.tables.items()}
    made |= {"losses": losses_table(), "sac-published": published_table()}
    return {name: "\n".join(lines) for name, lines in made.items()}


def filled(document: str, texts: dict[str, str]) -> str:
    """The document with these tables in their places."""
    return BLOCK.sub(lambda match: f"{match[1]}{texts[match[2]]}\n{match[3]}", document)


def draw(kept: Kept) -> None:
    """The figures of a study, as `greedyac report` draws them."""
    with tempfile.TemporaryDirectory() as folder:
        code = main(["report", "--store", str(ROOT / "results" / kept.store), "--study", kept.study, "--out", folder])
        assert code == 0
        for name, image in kept.figures.items():
            (ROOT / "docs/images" / f"{image}.png").write_bytes((Path(folder) / "figures" / f"{name}.png").read_bytes())


if __name__ == "__main__":
    for kept in KEPT:
        if kept.figures:
            draw(kept)
    swimmer_figure().savefig(ROOT / "docs/images/swimmer.png")
    texts = blocks()
    for document in DOCUMENTS:
        document.write_text(filled(document.read_text(), texts))
