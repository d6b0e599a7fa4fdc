"""`greedyac ccem`: Figure 1 of the paper, on demand with other numbers and another function."""

import argparse
import itertools
import math
from typing import Any

from greedyac.cli.parser import Parser, folder, whole_number
from greedyac.core.errors import InputError
from greedyac.core.fields import checked, hypers_of, show

OURS = ("ccem.png", "ccem.pdf", "ccem.gif")
FPS = 12
GRID = 2001
"""Actions at which the function is drawn, and where the quantiles of uniform policies are looked for."""


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    from greedyac.ccem.formula import CALLS, FUNCTIONS
    from greedyac.ccem.illustration import Illustration

    parser.add_argument("--out", type=folder, required=True, metavar="DIR", help=f"folder for {', '.join(OURS)}")
    parser.add_argument(
        "--function",
        default="two-peaks",
        metavar="F",
        help=f"{' | '.join(FUNCTIONS)}, or a formula in a such as 'cos(9*a) - a**2' "
        f"with + - * / ** pi {' '.join(CALLS)} (default two-peaks)",
    )
    parser.add_argument("--low", type=_number, default=-1.0, metavar="A", help="least action (default -1)")
    parser.add_argument("--high", type=_number, default=1.0, metavar="A", help="greatest action (default 1)")
    parser.add_argument(
        "--updates", type=whole_number, default=200, metavar="N", help="of the Gaussian policies (default 200)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is sampled (default 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace what the folder already holds")
    group = parser.add_argument_group("hyperparameters")
    for hyper in hypers_of(Illustration).values():
        text = f"{hyper.help}; {hyper.range} (default {show(hyper.default)})"
        group.add_argument(hyper.option, metavar="V", help=text.replace("%", "%%"))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) < 1e30:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a number between -1e30 and 1e30")
    return number


def run(options: Any) -> int:
    """Draw the picture and the film."""
    import numpy as np

    from greedyac.ccem.formula import function_of
    from greedyac.ccem.illustration import Illustration, gaussian_updates, uniform_updates
    from greedyac.cli.output import output_folder
    from greedyac.training.config import check_seeds
    from greedyac.video.conditional_cem import SHOWN, Story, film, picture
    from greedyac.video.record import write_film

    known = hypers_of(Illustration)
    given = {name: text for name in known if (text := getattr(options, name)) is not None}
    told = checked(Illustration, "hyperparameter", {name: known[name].parse(text) for name, text in given.items()})
    [seed] = check_seeds([options.seed])
    low, high = options.low, options.high
    if not np.float32(low) < np.float32(high):
        raise InputError(f"--low {low:g} and --high {high:g} are not allowed; allowed: low < high, as float32")
    function = function_of(options.function)
    actions = np.linspace(low, high, GRID)
    values = np.asarray(function(actions.astype(np.float32)), np.float64)
    if not np.isfinite(values).all():
        where = actions[~np.isfinite(values)][0]
        wrong = values[~np.isfinite(values)][0]
        raise InputError(f"function {options.function!r} is {wrong} at a = {where:.3g}; allowed: finite numbers")
    with output_folder(options.out, options.overwrite, OURS) as output:
        uniform = list(itertools.islice(uniform_updates(actions, values, told), SHOWN[-1]))
        gaussians = gaussian_updates(function, low, high, told, options.updates, seed)
        story = Story(options.function, told, actions, values, uniform, gaussians)
        drawn = picture(story)
        for name in OURS[:2]:
            drawn.savefig(output.staging / name)
        write_film(film(story), output.staging / OURS[2], FPS)
        output.publish(complete=True)
    print(f"written to {output.out}/: {', '.join(OURS)}")
    return 0
