"""`greedyac train`: one setting, several seeds, one folder of results."""

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from greedyac.agents import AGENTS, find_agent
from greedyac.agents.presets import PRESETS
from greedyac.cli.parser import Parser, folder, whole_number
from greedyac.cli.say import say
from greedyac.core.counting import counted
from greedyac.core.errors import InputError, WorkerError
from greedyac.core.fields import hypers_of, show
from greedyac.envs import parse_env_option

if TYPE_CHECKING:
    from greedyac.cli.output import Asked
from greedyac.api.progress import ProgressReport


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command, with the hyperparameters of the agent that is named."""
    parser.add_argument("agent", metavar="AGENT", help=" | ".join(AGENTS))
    parser.add_argument(
        "env", metavar="ENV", help="a name of `greedyac envs`, such as Pendulum-CA, or any Gymnasium id"
    )
    parser.add_argument("--preset", metavar="NAME", help=f"settings with a name: {' | '.join(PRESETS)}")
    parser.add_argument(
        "--env-option",
        metavar="K=V",
        action="append",
        default=[],
        help="an option of the environment; repeatable",
    )
    parser.add_argument(
        "--steps", type=whole_number, default=100_000, metavar="N", help="steps per run (default 100000)"
    )
    parser.add_argument("--seeds", default="0", metavar="LIST", help="as in 0-9 or 0,3,5-7 (default 0)")
    parser.add_argument(
        "--out", type=folder, metavar="DIR", help="folder for the results (default runs/<agent>-<env>-<n>)"
    )
    parser.add_argument(
        "--eval-every", type=whole_number, metavar="N", help="evaluate with learning off every N steps (default: never)"
    )
    parser.add_argument(
        "--eval-episodes", type=whole_number, default=10, metavar="N", help="episodes of an evaluation (default 10)"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=whole_number,
        metavar="N",
        help="save everything every N steps, so that `greedyac resume DIR` can go on after an interruption",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a result that the folder already holds")
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes (default: one per core)")
    if agent := _named_agent(parser, given):
        group = parser.add_argument_group(f"hyperparameters of {agent}")
        for hyper in hypers_of(AGENTS[agent]).values():
            text = f"{hyper.help}; {hyper.range} (default {show(hyper.default)})"
            group.add_argument(hyper.option, dest=f"hyper_{hyper.name}", metavar="V", help=text.replace("%", "%%"))
    else:
        parser.epilog = "Name an agent to see its hyperparameters: greedyac train greedy-ac --help"
    for option in _owners().keys() - set(parser.option_names()):
        parser.add_argument(option, help=argparse.SUPPRESS)  # of another agent, or the agent's name is wrong


def _owners() -> dict[str, list[str]]:
    """The options that are hyperparameters of some agent, and those agents."""
    owners: dict[str, list[str]] = {}
    for name, agent in AGENTS.items():
        for hyper in hypers_of(agent).values():
            owners.setdefault(hyper.option, []).append(name)
    return owners


def _named_agent(parser: Parser, given: list[str]) -> str | None:
    """The agent among the arguments: the first such word that is not the value of an option."""
    with_value = {name for action in parser._actions if action.nargs is None for name in action.option_strings}
    pairs = zip(["", *given], given, strict=False)
    return next((word for before, word in pairs if word in AGENTS and before not in with_value), None)


def run(options: Any) -> int:
    """Train, write the folder and print a small table."""
    known = hypers_of(find_agent(options.agent))
    for option, owners in _owners().items():
        if options.agent not in owners and getattr(options, option[2:].replace("-", "_")) is not None:
            allowed = ", ".join(hyper.option for hyper in known.values()) or "no hyperparameters"
            raise InputError(f"option {option!r} is of {', '.join(owners)}; allowed for {options.agent}: {allowed}")
    hypers = {
        name: hyper.parse(text)
        for name, hyper in known.items()
        if (text := getattr(options, f"hyper_{name}")) is not None
    }
    env_options = parse_env_options(options.env, options.env_option)

    from greedyac.api.train import plan_runs, worker_count
    from greedyac.cli.output import Asked, claimed

    runs = plan_runs(
        options.agent,
        options.env,
        options.steps,
        options.seeds,
        options.preset,
        env_options,
        {},
        hypers,
        (options.eval_every, options.eval_episodes),
    )
    workers = worker_count(options.workers)
    stem = f"runs/{options.agent}-{options.env.replace('/', '-').replace(':', '-')}"
    with claimed(options.out, stem) as out:
        return train_to(out, Asked(runs, options.overwrite, options.checkpoint_every), workers)


def train_to(out: Path, asked: "Asked", workers: int) -> int:
    """Train, write the folder and print a small table; with checkpoints what is unfinished stays in the folder."""
    from greedyac.api.train import Interrupted, train_runs_in
    from greedyac.cli.output import output_folder, unfinished_folder, write_result

    runs, every = asked.runs, asked.checkpoint_every
    stopped: Interrupted | WorkerError | None = None
    with output_folder(out, asked.overwrite) as output, unfinished_folder(out, asked) as folder:
        try:
            with ProgressReport(f"{runs[0].config.agent} on {runs[0].config.env_label}") as report:
                result = train_runs_in(folder, runs, workers, report.training, every or 0)
        except (Interrupted, WorkerError) as error:
            stopped, result = error, error.result
        write = result.curves.height > 0 and (stopped is None or not every)
        if write:
            summary = write_result(result, output.staging)
            output.publish(complete=stopped is None)
            shutil.rmtree(folder, ignore_errors=True)
            if every:
                output.clear_left()
    if stopped is not None:
        kept = f"`greedyac resume {out}` goes on" if every else "they are kept" if write else "nothing was written"
        finished = f"{result.curves.height} of {counted(len(runs), 'run')} had finished"
        say(f"{_reason(stopped)}; {finished}, {kept}")
    if write:
        print_summary(Console(highlight=False), [summary])
        policies = ", seed-<n>.safetensors" if result.policies else ""
        print(f"written to {output.out}/: summary.json, curves.parquet, curves.png{policies}")
    if write and summary["failed"]:
        return 1
    return 0 if stopped is None else 1 if isinstance(stopped, WorkerError) else 130


def _reason(stopped: BaseException) -> str:
    return f"error: {stopped}" if isinstance(stopped, WorkerError) else "stopped"


def parse_env_options(env: str, given: list[str]) -> dict[str, object]:
    """`key=value` texts as options of the environment."""
    values: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--env-option {text!r} is not allowed; allowed: name=value")
        values[name] = parse_env_option(env, name, value)
    return values


def print_summary(console: Console, summaries: list[dict[str, Any]]) -> None:
    """A line per agent and environment: mean returns over the seeds, speed if it is known, and what diverged."""
    from greedyac.execution.seeds import named_seeds

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rated = any(summary["run_steps_per_second"] is not None for summary in summaries)
    headings = ["agent", "environment", "seeds", "average return", "final return", "best return"]
    for heading in [*headings, "run-steps/s"] if rated else headings:
        name = heading in ("agent", "environment")
        table.add_column(heading, justify="left" if name else "right", no_wrap=name)
    for summary in summaries:
        means = [summary[key]["mean"] for key in ("average_return", "final_return", "best_return")]
        rate = summary["run_steps_per_second"]
        table.add_row(
            summary["agent"],
            summary["env"],
            str(len(summary["seeds"])),
            *("–" if mean is None else f"{mean:.1f}" for mean in means),
            *(["–" if rate is None else f"{rate:,.0f}"] if rated else []),
        )
    console.print(table)
    for summary in summaries:
        if summary["diverged"]:
            where = f"{named_seeds(sorted(summary['diverged']))} of {summary['agent']} on {summary['env']}"
            console.print(f"diverged to NaN or infinity, and left out of the means: {where}")
        for seed, error in summary["failed"].items():
            console.print(f"seed {seed} failed: {error}", markup=False, soft_wrap=True)
        for line in _missing_returns(summary):
            console.print(f"{summary['agent']} on {summary['env']}: {line}", markup=False, soft_wrap=True)
        if summary["restarted"]:
            seeds = named_seeds(sorted(summary["restarted"]))
            console.print(f"resumed with a new episode, as the environment could not be brought back: {seeds}")


def _missing_returns(summary: dict[str, Any]) -> list[str]:
    """Which of the runs that were trained to the end have no returns, and why."""
    from greedyac.api.returns import missing_returns

    average, final = (summary[key]["seeds"] for key in ("average_return", "final_return"))
    left_out = {str(seed) for seed in (*summary["diverged"], *summary["failed"])}
    returns = [(average[seed], final[seed]) for seed in average if seed not in left_out]
    return missing_returns(summary["env"], summary["steps"], returns)
