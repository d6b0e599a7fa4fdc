"""A guard against slowing down: our share of a matrix product's rate, beside that of an earlier run of the benchmark.

Speeds depend on the machine and the day; how much of a matrix product an agent reaches does much less, on the same type
of processor. On another one it may well be half: NumPy's product uses AVX-512, for example, which our programs don't.
Ratios to peers are not judged at all: they say as much of the peers' code on that processor as of ours.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from greedyac.bench.measure import ENVS, Bench, Measured
from greedyac.bench.peers import PeerResult, PeersBench
from greedyac.core.errors import InputError, unknown_name
from greedyac.core.processor import processor
from greedyac.execution.cost import PASSES

FALL = 0.15
"""A ratio that is lower by more than this share has fallen."""
FALL_ELSEWHERE = 0.5
"""The same, beside one of another type of processor or number of cores, or where nobody knows of which."""


class Ratios(NamedTuple):
    """Shares of the matrix product by name, `greedy-ac Pendulum-CA`, and the machine that they are of, if it is known.

    The fields of a file.
    """

    fraction_of_matmul: Mapping[str, float]
    machine: str | None = None


class Found(NamedTuple):
    """One run of the benchmark: our agents and, if they were asked for, their peers."""

    ours: Bench
    peers: PeersBench | None = None

    @property
    def peer_results(self) -> Sequence[PeerResult]:
        """Those of all peers."""
        return self.peers.results if self.peers else ()


def name_of(measured: Measured) -> str:
    """What an agent on an environment is called among the ratios."""
    return f"{measured.agent} {measured.env}"


def ratios_of(found: Bench) -> Ratios:
    """All that were measured."""
    fractions = {name_of(one): one.fraction_of_matmul for one in found.results}
    return Ratios(fractions, f"{processor()}, cores used: {found.cores}")


def comparable(earlier: Ratios, agents: Sequence[str]) -> bool:
    """Whether any of the earlier ratios is of one of these agents."""
    return not {f"{agent} {env}" for agent in agents for env in ENVS}.isdisjoint(earlier.fraction_of_matmul)


def to_json(ratios: Ratios) -> str:
    """The text of a file, with three digits."""
    rounded = {name: float(f"{ratio:.3g}") for name, ratio in ratios.fraction_of_matmul.items()}
    return json.dumps(ratios._replace(fraction_of_matmul=rounded)._asdict(), indent=2) + "\n"


def read_ratios(path: Path) -> Ratios:
    """The ratios in a file; refused unless every one has a known name and a number."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is not JSON ({error})"
        raise InputError(f"ratios {str(path)!r} can't be read: {reason}") from None
    _object(path, "the file", found).pop("times_peer", None)  # which older files have
    for key in found:
        if key not in Ratios._fields:
            raise _inside(path, unknown_name("key", key, Ratios._fields))
    kind, names = Ratios._fields[0], [f"{agent} {env}" for agent in PASSES for env in ENVS]
    if kind not in found:
        raise InputError(f"ratios {str(path)!r}: key {kind!r} is missing; allowed: {', '.join(Ratios._fields)}")
    for name, ratio in _object(path, kind, found[kind]).items():
        if name not in names:
            raise _inside(path, unknown_name(f"name in {kind}", name, names))
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= sys.float_info.max:
            allowed = "is not allowed; allowed: number > 0"
            raise InputError(f"ratios {str(path)!r}: {kind} of {name} = {json.dumps(ratio)} {allowed}")
    if not isinstance(found.get("machine"), str | None):
        given = json.dumps(found["machine"])
        raise InputError(f"ratios {str(path)!r}: machine = {given} is not allowed; allowed: a text")
    return Ratios(**found)


def _object(path: Path, what: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InputError(f"ratios {str(path)!r}: {what} is not allowed; allowed: JSON object of names and values")
    return found


def _inside(path: Path, error: InputError) -> InputError:
    return InputError(f"ratios {str(path)!r}: {error}")


def tolerance(earlier: Ratios, now: Ratios) -> float:
    """By how much a ratio may be lower, as a share."""
    return FALL if earlier.machine == now.machine is not None else FALL_ELSEWHERE


def fallen(earlier: Ratios, now: Ratios) -> dict[str, float]:
    """Those of now that are lower by more than is tolerated."""
    old, least = earlier.fraction_of_matmul, 1 - tolerance(earlier, now)
    return {name: ratio for name, ratio in now.fraction_of_matmul.items() if name in old and ratio < least * old[name]}


def confirmed(earlier: Ratios, found: Bench, measure: Callable[[Sequence[str]], Bench]) -> Ratios:
    """The ratios found; what fell is measured once more, for that may have been noise, and the better one counts."""
    now = ratios_of(found)
    fell = fallen(earlier, now)
    if not fell:
        return now
    agents = dict.fromkeys(one.agent for one in found.results if name_of(one) in fell)
    again = ratios_of(measure(list(agents))).fraction_of_matmul
    better = {name: max(ratio, again.get(name, ratio)) for name, ratio in fell.items()}
    return now._replace(fraction_of_matmul={**now.fraction_of_matmul, **better})


def verdict(earlier: Ratios, now: Ratios) -> list[str]:
    """A line for every ratio that fell, that was not measured, or that is new, and how many were compared."""
    lines, fell = [], fallen(earlier, now)
    old, new = earlier.fraction_of_matmul, now.fraction_of_matmul
    for name in {**old, **new}:
        what = f"fraction_of_matmul of {name}"
        if name in fell:
            share = 100 * (1 - fell[name] / old[name])
            lines.append(f"fell: {what}: {fell[name]:.3g}, {share:.0f} % below {old[name]:.3g}")
        elif name not in new:
            lines.append(f"not measured: {what}: {old[name]:.3g} before")
        elif name not in old:
            lines.append(f"new: {what}: {new[name]:.3g}")
    limit = tolerance(earlier, now)
    of = f" (measured on {earlier.machine or 'an unknown machine'})" if limit == FALL_ELSEWHERE else ""
    compared = f"{len(old.keys() & new.keys())} of {len(old)}{of}"
    return [*lines, f"ratios compared: {compared}, fallen by more than {100 * limit:.0f} %: {len(fell)}"]
