"""Handing out chunks, by a crew that says what it is told to: who gets what, what is tried again, what ends it."""

import errno
import json
from collections.abc import Sequence
from typing import Any

import pytest
from helpers.sweeping import chunks_of

from greedyac.core.errors import WorkerError
from greedyac.execution import local
from greedyac.execution.chunk import Chunk
from greedyac.execution.pool import LOSSES, MOST_TOGETHER, Worker, WorkerGroup, dispatch

DONE = {"event": "done"}
READY = {"event": "ready"}
LEFT = {"event": "left", "error": "left", "begun": True}


class Scripted(Worker):
    """A worker that notes what it is sent and answers with the events that a function gives for it."""

    def __init__(self, crew: "Script", name: str):
        super().__init__()
        self.crew, self.name, self.process = crew, name, f"the process of {name}"
        self.sent: list[list[int]] = []

    def send(self, chunks: Sequence[Chunk]) -> None:
        self.sent.append([chunk.runs[0].seed for chunk in chunks])
        for event in self.crew.answers(self, list(chunks)):
            self.crew.put(self, event)


class Script(WorkerGroup):
    """Workers whose answers are written down."""

    same_machine = False

    spare = False

    def __init__(self, names: str, answers: Any, batch_seconds: float = 0.0, spare: bool = False):
        super().__init__()
        self.answers, self.batch_seconds, self.spare, self.closed = answers, batch_seconds, spare, False
        self.workers = {name: Scripted(self, name) for name in names}
        for worker in self.workers.values():
            self.put(worker, {"event": "joined"})

    def close(self) -> None:
        self.closed = True


def told(events: Any) -> list[tuple[str, int]]:
    return [(event["event"], event["chunk"].runs[0].seed) for event in events if event["event"] != "ready"]


def always(worker: Scripted, chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [READY, *([DONE] * len(chunks))]


def test_each_chunk_is_done_once() -> None:
    crew = Script("ab", always)
    assert sorted(told(dispatch(chunks_of(5), crew, 3))) == [("done", seed) for seed in range(5)]
    assert sorted(seed for worker in crew.workers.values() for batch in worker.sent for seed in batch) == list(range(5))
    assert crew.closed


def test_a_worker_goes_on_with_its_program_and_another_takes_the_other() -> None:
    crew = Script("ab", always)
    told(dispatch(chunks_of(6, agents=("random", "vanilla-ac")), crew, 3))
    assert [worker.sent for worker in crew.workers.values()] == [[[0], [2], [4]], [[1], [3], [5]]]


def test_short_chunks_go_together_as_far_as_that_leaves_some_for_others() -> None:
    crew = Script("ab", always, batch_seconds=1.0)
    told(dispatch(chunks_of(40), crew, 3))
    sizes = [len(batch) for batch in crew.workers["a"].sent + crew.workers["b"].sent]
    assert max(sizes) == 20  # of 40, when only the first had come
    assert sum(sizes) == 40
    crew = Script("a", always, batch_seconds=1.0)
    told(dispatch(chunks_of(1000), crew, 3))
    assert max(len(batch) for batch in crew.workers["a"].sent) == MOST_TOGETHER
    crew = Script("a", always, batch_seconds=1.0)
    told(dispatch(chunks_of(40, steps=10_000_000), crew, 3))
    assert {len(batch) for batch in crew.workers["a"].sent} == {1}


def test_those_that_were_lost_together_are_tried_alone_and_only_the_culprit_fails() -> None:
    culprit = 7

    def answers(worker: Scripted, chunks: list[Chunk]) -> list[dict[str, Any]]:
        if any(chunk.runs[0].seed == culprit for chunk in chunks):
            return [READY, LEFT, {"event": "joined"}]
        return [READY, *([DONE] * len(chunks))]

    crew = Script("a", answers, batch_seconds=1.0)
    events = told(dispatch(chunks_of(40), crew, 3))
    assert sorted(seed for event, seed in events if event == "done") == [seed for seed in range(40) if seed != culprit]
    assert [seed for event, seed in events if event == "failed"] == [culprit]
    assert sum([culprit] == batch for batch in crew.workers["a"].sent) == LOSSES - 1  # and once among others


def test_a_chunk_that_was_never_begun_is_not_blamed_for_the_loss_of_its_workers() -> None:
    def answers(worker: Scripted, chunks: list[Chunk]) -> list[dict[str, Any]]:
        if len(worker.sent) <= LOSSES:
            return [LEFT | {"begun": False}, {"event": "joined"}]
        return always(worker, chunks)

    events = told(dispatch(chunks_of(1), Script("a", answers), 3))
    assert events == [*[("lost", 0)] * LOSSES, ("done", 0)]


def test_a_process_that_dies_in_a_batch_is_held_against_the_chunk_that_was_under_way() -> None:
    def answers(worker: Scripted, chunks: list[Chunk]) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = [READY]
        for chunk in chunks:
            if chunk.runs[0].seed == 5:
                return [*said, {"event": "died", "ending": "signal 9"}]
            said.append(DONE)
        return said

    crew = Script("a", answers, batch_seconds=1.0)
    events = list(dispatch(chunks_of(40), crew, 3))
    [failed] = [event for event in events if event["event"] == "failed"]
    assert (failed["chunk"].runs[0].seed, failed["attempts"]) == (5, 3)
    assert failed["error"] == "the process of a died (signal 9)"
    assert sum(event["event"] == "done" for event in events) == 39


def test_a_worker_that_is_not_fit_gets_no_more_and_without_others_it_ends() -> None:
    unfit = {"event": "unfit", "error": "can't train"}
    crew = Script("ab", lambda worker, chunks: [unfit] if worker.name == "a" else always(worker, chunks))
    events = list(dispatch(chunks_of(4), crew, 3))
    [lost] = [event for event in events if event["event"] == "lost"]
    assert lost["error"] == "a can't train, and gets no more chunks"
    assert len(crew.workers["a"].sent) == 1
    assert sum(event["event"] == "done" for event in events) == 4
    with pytest.raises(WorkerError, match=r"^[ab] can't train$"):
        list(dispatch(chunks_of(4), Script("ab", lambda worker, chunks: [unfit]), 3))


def test_those_that_are_of_no_use_do_not_end_it_if_others_are_there_that_were_not_used() -> None:
    def answers(worker: Scripted, chunks: list[Chunk]) -> list[dict[str, Any]]:
        if worker.name == "b":
            return always(worker, chunks)
        crew.put(worker, {"event": "unfit", "error": "can't train"})
        crew.put(Scripted(crew, "b"), {"event": "joined"})
        return []

    crew = Script("a", answers, spare=True)
    assert sorted(told(dispatch(chunks_of(4), crew, 3))) == [*(("done", seed) for seed in range(4)), ("lost", 0)]


@pytest.mark.parametrize(("number", "times"), [(errno.ENOSPC, 1), (errno.EIO, 3)])
def test_a_worker_that_can_not_write_is_tried_again_if_there_is_hope(number: int, times: int) -> None:
    unwritable = {"event": "unwritable", "error": "no", "errno": number}
    crew = Script("a", lambda worker, chunks: [READY, unwritable])
    with pytest.raises(WorkerError, match=r"^a could not write its results: no$"):
        list(dispatch(chunks_of(4), crew, 3))
    assert len(crew.workers["a"].sent) == times


def test_what_a_dismissed_worker_says_is_not_heard() -> None:
    said = [{"event": "unfit", "error": "no"}, DONE]
    crew = Script("ab", lambda worker, chunks: said if worker.name == "a" else always(worker, chunks))
    assert sorted(told(dispatch(chunks_of(4), crew, 3))) == [*(("done", seed) for seed in range(4)), ("lost", 0)]


def test_an_engine_that_fails_ends_it() -> None:
    crew = Script("a", lambda worker, chunks: [])
    crew.put(None, {"event": "told", "message": "hello"})
    crew.put(None, {"event": "error", "error": "the end"})
    events = dispatch(chunks_of(4), crew, 3)
    assert next(events) == {"event": "told", "message": "hello"}
    with pytest.raises(WorkerError, match="the end"):
        list(events)
    assert crew.closed


def test_one_that_left_and_may_come_back_is_waited_for_though_one_that_is_of_no_use_comes_first() -> None:
    def answers(worker: Scripted, chunks: list[Chunk]) -> list[dict[str, Any]]:
        good, bad = crew.workers["a"], crew.workers["b"]
        if worker is bad:
            return [{"event": "unfit", "error": "can't train"}]
        if worker is not good:
            crew.put(worker, {"event": "unfit", "error": "can't train"})
            crew.put(good, {"event": "joined"})
            return []
        if len(good.sent) > 1:
            return always(good, chunks)
        for gone in (good, bad):  # the scheduler is lost, and the bad one finds the new one first
            crew.put(gone, LEFT)
        crew.put(Scripted(crew, "b again"), {"event": "joined"})
        return []

    crew = Script("ba", answers)
    events = told(dispatch(chunks_of(4), crew, 3))
    assert sorted(seed for event, seed in events if event == "done") == list(range(4))


def test_that_a_worker_gets_no_more_is_told_whatever_was_told_before() -> None:
    died = {"event": "died", "ending": "signal 9"}  # before it is ready
    crew = Script("ab", lambda worker, chunks: [died] if worker.name == "a" else always(worker, chunks))
    errors = [event["error"] for event in dispatch(chunks_of(9), crew, 3) if event.get("again") is False]
    assert errors == [
        *["the process of a died (signal 9)"] * 2,
        "the process of a died (signal 9), and gets no more chunks",
    ]


def test_a_process_that_dies_after_its_last_word_is_replaced_once_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it said first is told, which takes a while: by then it is dead, though nobody has read so."""
    trained: list[int] = []

    class Process:
        """One that dies after its first chunk, if it is the first process."""

        started, pid = 0, 0

        def __init__(self, core: int, on_event: Any, cached: bool):
            Process.started += 1
            self.first, self.tell = Process.started == 1, on_event
            self.died = False

        def send(self, chunk: str) -> None:
            if self.died:
                return
            trained.append(seed := json.loads(chunk)["runs"][0]["seed"])
            self.tell(DONE | {"seed": seed})
            if self.first:
                self.died = True
                self.tell({"event": "died", "ending": "signal 9"})

        def kill(self) -> None: ...

        def end(self) -> None: ...

    monkeypatch.setattr(local, "WorkerProcess", Process)
    done = [event for event in local.train_chunks(chunks_of(4), 1, 3) if event["event"] == "done"]
    assert [event["seed"] for event in done] == [event["chunk"].runs[0].seed for event in done] == trained
    assert sorted(trained) == list(range(4))
