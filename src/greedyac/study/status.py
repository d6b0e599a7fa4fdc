"""Status: how much of what was asked for a store holds."""

from collections import Counter
from typing import NamedTuple

from greedyac.study.store import Fault, Store


class StudyStatus(NamedTuple):
    """The runs of a study, each counted once."""

    name: str
    planned: int
    done: int
    diverged: int
    failed: int
    missing: int


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
    studies = []
    for name, run_ids in sorted(planned.items()):
        counts = Counter(known.get(run_id, "missing") for run_id in run_ids)
        told = {status: counts[status] for status in ("done", "diverged", "failed", "missing")}
        studies.append(StudyStatus(name, len(run_ids), **told))
    return studies, contents.faults + faults
