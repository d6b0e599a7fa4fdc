"""A guard against slowing down: ratios of speeds within one run of the benchmark, beside those of an earlier one.

Speeds depend on the machine and the day; how much of a matrix product an agent reaches, and how many times faster than
a peer it is, do much less.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from greedyac.errors import InputError, unknown
from greedyac.training import bench, peers
from greedyac.training.bench import Bench, Measured
from greedyac.training.cost import PASSES
from greedyac.training.peers import Peer, PeerResult, PeersBench

FALL = 0.15
"""A ratio that is lower by more than this share has fallen."""


class Ratios(NamedTuple):
    """Ratios by name, as they are in a file: of `greedy-ac Pendulum-CA`, and beside `sac_rejax --runs 4`."""

    fraction_of_matmul: Mapping[str, float]
    times_peer: Mapping[str, float]


class Found(NamedTuple):
    """One run of the benchmark: our agents and, if they were asked for, their peers."""

    ours: Bench
    peers: PeersBench | None = None

    @property
    def peer_results(self) -> Sequence[PeerResult]:
        """Those of all peers."""
        return self.peers.results if self.peers else ()


Measure = Callable[[Sequence[str], Sequence[Peer]], Found]
"""Measures these agents and these peers."""


def name_of(measured: Measured) -> str:
    """What an agent on an environment is called among the ratios."""
    return f"{measured.agent} {measured.env}"


def ratios_of(found: Found) -> Ratios:
    """All that were measured."""
    fractions = {name_of(one): one.fraction_of_matmul for one in found.ours.results}
    return Ratios(fractions, {one.key: one.times_faster for one in found.peer_results if one.times_faster is not None})


def comparable(earlier: Ratios, agents: Sequence[str], peers: Sequence[Peer]) -> bool:
    """Whether any of the earlier ratios is of one of these agents or peers."""
    known = {f"{agent} {env}" for agent in agents for env in bench.ENVS} | {peer.key for peer in peers}
    return not known.isdisjoint([*earlier.fraction_of_matmul, *earlier.times_peer])


def to_json(ratios: Ratios) -> str:
    """The text of a file, with three digits."""
    rounded = {kind: {name: float(f"{ratio:.3g}") for name, ratio in of.items()} for kind, of in _items(ratios)}
    return json.dumps(rounded, indent=2) + "\n"


def read_ratios(path: Path) -> Ratios:
    """The ratios in a file; refused unless every one has a known name and a number."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is not JSON ({error})"
        raise InputError(f"ratios {str(path)!r} can't be read: {reason}") from None
    known = {
        "fraction_of_matmul": [f"{agent} {env}" for agent in PASSES for env in bench.ENVS],
        "times_peer": [peer.key for peer in peers.PEERS],
    }
    for kind in _object(path, "the file", found):
        if kind not in known:
            raise _inside(path, unknown("key", kind, known))
    for kind, names in known.items():
        if kind not in found:
            raise InputError(f"ratios {str(path)!r}: key {kind!r} is missing; needed: {', '.join(known)}")
        for name, ratio in _object(path, kind, found[kind]).items():
            if name not in names:
                raise _inside(path, unknown(f"name in {kind}", name, names))
            if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= sys.float_info.max:
                allowed = "is not allowed; allowed: number > 0"
                raise InputError(f"ratios {str(path)!r}: {kind} of {name} = {json.dumps(ratio)} {allowed}")
    return Ratios(**found)


def _object(path: Path, what: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InputError(f"ratios {str(path)!r}: {what} is not allowed; allowed: JSON object of names and values")
    return found


def _inside(path: Path, error: InputError) -> InputError:
    return InputError(f"ratios {str(path)!r}: {error}")


def fallen(earlier: Ratios, now: Ratios) -> Ratios:
    """Those of now that are lower by more than `FALL`."""
    kinds = (
        {name: ratio for name, ratio in new.items() if name in old and ratio < (1 - FALL) * old[name]}
        for old, new in zip(earlier, now, strict=True)
    )
    return Ratios(*kinds)


def confirmed(earlier: Ratios, found: Found, measure: Measure) -> Ratios:
    """The ratios found; what fell is measured once more, for that may have been noise, and the better one counts."""
    now = ratios_of(found)
    fell = fallen(earlier, now)
    slow = [peer for peer in peers.PEERS if peer.key in fell.times_peer]
    agents = [one.agent for one in found.ours.results if name_of(one) in fell.fraction_of_matmul]
    agents += [peer.agent for peer in slow]
    if not agents:
        return now
    again = ratios_of(measure(list(dict.fromkeys(agents)), slow))
    kinds = (
        {name: max(ratio, second.get(name, ratio)) if name in lost else ratio for name, ratio in first.items()}
        for first, second, lost in zip(now, again, fell, strict=True)
    )
    return Ratios(*kinds)


def verdict(earlier: Ratios, now: Ratios) -> list[str]:
    """A line for every ratio that fell, that was not measured, or that is new, and how many were compared."""
    lines = []
    for (kind, old), new, fell in zip(_items(earlier), now, fallen(earlier, now), strict=True):
        for name in {**old, **new}:
            what = f"{kind} of {name}"
            if name in fell:
                share = 100 * (1 - fell[name] / old[name])
                lines.append(f"fell: {what}: {fell[name]:.3g}, {share:.0f} % below {old[name]:.3g}")
            elif name not in new:
                lines.append(f"not measured: {what}: {old[name]:.3g} before")
            elif name not in old:
                lines.append(f"new: {what}: {new[name]:.3g}")
    both = sum(len(old.keys() & new.keys()) for old, new in zip(earlier, now, strict=True))
    fell_in_all = sum(map(len, fallen(earlier, now)))
    return [
        *lines,
        f"ratios compared: {both} of {sum(map(len, earlier))}, fallen by more than {100 * FALL:.0f} %: {fell_in_all}",
    ]


def _items(ratios: Ratios) -> list[tuple[str, Mapping[str, float]]]:
    return list(ratios._asdict().items())
