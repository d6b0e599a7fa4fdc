"""Status: how much of what was asked for a store holds."""

import tomllib
from collections import Counter
from typing import NamedTuple

from greedyac.study.store import Fault, Store


class StudyStatus(NamedTuple):
    """The runs of a study, each counted once; None if an environment can't be made here, without which nobody knows."""

    name: str
    planned: int | None = None
    done: int | None = None
    diverged: int | None = None
    failed: int | None = None
    missing: int | None = None


def status(store: Store) -> tuple[list[StudyStatus], list[Fault]]:
    """Every study that was swept here, and what is wrong with the store.

    Versions of a study, as when seeds were added, count as one: all runs that were ever asked for under its name.
    """
    contents = store.read(["run_id", "status"])
    known = dict(zip(contents.rows["run_id"], contents.rows["status"], strict=True))
    asked, faults = store.asked()
    planned: dict[str, set[str]] = {}
    for study in asked:
        planned.setdefault(study.name, set()).update(study.runs())
    unknown = {tomllib.loads(fault.path.read_bytes().decode())["name"] for fault in faults if fault.whole}
    studies = [StudyStatus(name) for name in unknown]
    for name, run_ids in planned.items():
        if name in unknown:
            continue
        counts = Counter(known.get(run_id, "missing") for run_id in run_ids)
        told = {status: counts[status] for status in ("done", "diverged", "failed", "missing")}
        studies.append(StudyStatus(name, len(run_ids), **told))
    return sorted(studies, key=lambda study: study.name), contents.faults + faults
