"""`greedyac select`: the best settings of a store, as a study on seeds that the selection did not see."""

from typing import Any

from greedyac.cli.parser import Parser, file, folder, one_of, whole_number
from greedyac.core.counting import counted
from greedyac.core.errors import InputError


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument(
        "--store", type=folder, required=True, metavar="DIR", help="a store, or a folder that train or demo wrote"
    )
    parser.add_argument(
        "--by",
        type=one_of("env", "kind"),
        required=True,
        metavar="env|kind",
        help="a setting for each environment, or one for all with the same kind of actions",
    )
    parser.add_argument("--out", type=file, required=True, metavar="FILE", help="study to write, as in best.toml")
    parser.add_argument(
        "--seeds", metavar="LIST", help="its seeds (default: the store's others, or else the 30 after the last)"
    )
    add_choices(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it is there")


def add_choices(parser: Parser) -> None:
    """Options of all commands that read a store to analyse it."""
    parser.add_argument("--study", metavar="NAME", help="only the runs of this study (default: all in the store)")
    parser.add_argument("--steps", type=whole_number, metavar="N", help="only runs of this length")
    parser.add_argument(
        "--best",
        type=one_of("store", "paper"),
        default="store",
        metavar="store|paper",
        help="near-optimal returns for the normalised score: the highest of any episode here, or the paper's table",
    )


def run(options: Any) -> int:
    """Choose, write, and say what was chosen."""
    import polars as pl

    from greedyac.analysis.load import load
    from greedyac.analysis.second_stage import fresh_seeds, second_stage
    from greedyac.analysis.select import choose
    from greedyac.analysis.words import FEW_SEEDS
    from greedyac.core.atomic import write_atomically
    from greedyac.execution.seeds import named_seeds, parse_seeds

    if options.out.suffix != ".toml":
        raise InputError(f"the file {str(options.out)!r} is not allowed; allowed: a name that ends in .toml")
    try:
        taken = options.out.exists()
    except OSError as error:  # as for a name that is too long
        raise InputError(f"the file {str(options.out)!r} can't be written: {error.strerror}") from None
    if taken and not options.overwrite:
        raise InputError(f"the file {str(options.out)!r} is there already; --overwrite replaces it")
    given = parse_seeds(options.seeds) if options.seeds is not None else None
    results = load(options.store, options.study, options.steps)
    choices, notes = choose(results, options.by, options.best)
    if not choices:
        raise InputError(notes[0])
    notes += _left_out(choices)
    study = second_stage(results, choices, fresh_seeds(results, choices, given), notes)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out, study.text.encode())
    except OSError as error:
        raise InputError(f"the file {str(options.out)!r} can't be written: {error.strerror}") from None
    for choice in choices:
        print(f"{choice.agent} on {', '.join(choice.envs)}: {choice.setting}")
        if choice.compared > 1:
            rivals = int(choice.rivals["indistinguishable"].sum()) - 1
            tied = f", tied with {choice.tied} and the first of them" if choice.tied else ""
            print(f"  best of {choice.compared} with {choice.score:.4g}{tied}; {rivals} can't be told from it")
    for note in (*results.faults, *notes):
        print(f"note: {note}")
    if any(choice.compared > 1 for choice in choices):
        if (seeds := min(len(choice.seeds) for choice in choices)) < FEW_SEEDS:
            print(f"note: with {counted(seeds, 'seed')} to choose by, more settings than that can't be told apart")
        if not results.tuning_seeds:
            print("note: no study here names tuning seeds: all seeds were used to choose")
    runs = study.runs()
    there = len(runs.keys() & set(results.runs.filter(pl.col("status") != "missing")["run_id"]))
    known = f", {there} of them in the store already" if there else ""
    print(f"written to {options.out}: {counted(len(runs), 'run')} on {named_seeds(study.seeds)}{known}")
    if there < len(runs):
        store = options.store if (options.store / "chunks").is_dir() else "runs/best"
        print(f"next: greedyac sweep {options.out} --store {store}")
    else:
        print(f"next: greedyac report --store {options.store} --out report, or --seeds with more seeds")
    return 0


def _left_out(choices: list[Any]) -> list[str]:
    return [
        f"{counted(one.left_out, 'setting')} of {one.agent} without all runs on {', '.join(one.envs)} took no part"
        for one in choices
        if one.left_out
    ]
