"""The Dask engine: chunks go to the workers of a cluster, as JSON, and what they say comes back as events.

Dask carries orders and answers, and knows who is there. Which chunk goes where, and what happens to those that are
lost, is decided by `training.pool`, as for the processes of one machine.
"""

import asyncio
import json
import math
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from distributed import Client, KilledWorker, wait

from greedyac.core import version
from greedyac.core.atomic import temporary_file
from greedyac.core.processor import processor
from greedyac.execution.chunk import Chunk
from greedyac.execution.dask.call import call
from greedyac.execution.dask.member import TOPIC
from greedyac.execution.pool import Events, Worker, WorkerGroup, dispatch
from greedyac.results.files import DamagedError, publish_sealed
from greedyac.results.provenance import versions

SILENCE_SECONDS = 60.0
"""A worker at work that is not heard of for so long is given up, until it speaks again. One that has not begun may be
at work for others, and is given up only if Dask has not heard of it either, between two looks so far apart."""
ALONE_SECONDS = 60.0
"""How often it is said that there are no workers."""
GONE_SECONDS = 600.0
"""So long a scheduler that does not answer is waited for."""
LOOK_SECONDS = 1.0
"""How often we look who is there."""
ANSWER_SECONDS = 30.0
CLOSE_SECONDS = 10.0
TOLD_PER_SECOND = 100.0
"""How much progress all workers together tell."""


class DaskEngine(NamedTuple):
    """A cluster by the address of its scheduler."""

    address: str
    publish: bool = False
    """Whether this process publishes what the workers made."""
    most: int | None = None
    """So many workers it may use at once."""

    def train_chunks(self, chunks: Sequence[Chunk], attempts: int) -> Events:
        """Train all chunks on the workers of the cluster, whoever comes and goes."""
        return dispatch(chunks, _Members(self, chunks[0].folder), attempts)


class _Slot(Worker):
    """One thread of a Dask worker, where one process of ours trains."""

    def __init__(self, place: tuple[str, int], crew: "_Members"):
        super().__init__()
        self.place, self._crew = place, crew
        """The worker's address, and a number among its threads."""
        self.name, self.process = f"worker {place[0]}", f"the process of worker {place[0]}"
        self.ticket: str | None = None
        """Of the order that it was given; None if it has none, or was dropped."""
        self.start: str | None = None
        """Of that order, once it was begun."""
        self.heard = 0.0
        self.beat: float | None = None
        """When Dask last heard of it, if that was asked while it was silent."""
        self.order: asyncio.Task[None] | None = None

    @property
    def identity(self) -> Hashable:
        return self.place

    @property
    def overdue(self) -> bool:
        """Whether something should have been heard of its order."""
        return self.ticket is not None and time.monotonic() - self.heard > SILENCE_SECONDS

    @property
    def idle(self) -> bool:
        """Whether its last order has ended."""
        return self.order is None or self.order.done()

    def cancel(self) -> None:
        """Drop its order."""
        if self.order is not None:
            self.order.cancel()

    def send(self, chunks: Sequence[Chunk]) -> None:
        self.start, self.beat, self.heard, self.ticket = None, None, time.monotonic(), uuid.uuid4().hex
        self._crew.order(self, chunks, self.ticket)


class _Members(WorkerGroup):
    """The workers of a cluster. What concerns Dask happens in a thread of its own."""

    same_machine = False
    batch_seconds = 1.0

    def __init__(self, engine: DaskEngine, folder: Path):
        super().__init__()
        self._engine, self._alone_at = engine, -math.inf  # when that was last said
        self._left_out = False
        self._slots: dict[tuple[str, int], _Slot] = {}
        """Those in use, and those that were dismissed."""
        self._silent: dict[tuple[str, int], _Slot] = {}
        """Those that were given up: their places are not used until their orders have ended, or they are heard of."""
        self._tickets: dict[str, _Slot] = {}
        self._client: Client | None = None
        self._answered = time.monotonic()
        self._kinds = {(processor(), json.dumps(versions()))}
        self._open = ExitStack()
        self._sign: Path | None = None
        if not engine.publish:
            self._sign = self._open.enter_context(temporary_file(folder / "sweep", b""))
        self._loop = asyncio.new_event_loop()
        self._life: asyncio.Task[str] | None = None
        self._thread = threading.Thread(target=self._run, name="greedyac-dask", daemon=True)
        self._thread.start()

    @property
    def spare(self) -> bool:
        return self._left_out or not all(slot.joined for slot in list(self._slots.values()))

    def close(self) -> None:
        """Leave the cluster, which then drops what we ordered; its workers end their processes when they notice."""
        self._soon(lambda: self._life and self._life.cancel())
        self._thread.join(CLOSE_SECONDS)
        self._open.close()

    def order(self, slot: _Slot, chunks: Sequence[Chunk], ticket: str) -> None:
        """Have a worker train chunks, from the pool's thread."""
        asked = {
            "greedyac": version.__version__,
            "ticket": ticket,
            "slot": slot.place[1],
            "interval": min(SILENCE_SECONDS / 4, max(1.0, len(self._slots) / TOLD_PER_SECOND)),
            "sign": self._sign and self._sign.name,
            "chunks": [json.loads(chunk.to_json()) for chunk in chunks],
        }
        self._soon(self._begin, slot, list(chunks), ticket, json.dumps(asked))

    def _soon(self, function: Callable[..., object], *values: object) -> None:
        with suppress(RuntimeError):  # the loop has ended by itself, and said why
            self._loop.call_soon_threadsafe(function, *values)

    # What follows runs in the thread of Dask's loop.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._life = self._loop.create_task(self._live())
        try:
            ended = self._loop.run_until_complete(self._life)
        except asyncio.CancelledError:
            ended = "the connection to Dask was closed"
        except Exception as error:
            ended = _in_words(error)
        self._end(ended)  # without us, nothing more would be heard
        for task in (left := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _live(self) -> str:
        """Stay connected until it is cancelled, or the scheduler is gone for good, which is said."""
        lost = False
        while time.monotonic() - self._answered < GONE_SECONDS:
            client = Client(self._engine.address, asynchronous=True, set_as_default=False, timeout=ANSWER_SECONDS)
            try:
                self._client = await client
                if lost:
                    self._tell(f"the scheduler at {self._engine.address} is back")
                await self._look_around(client)
            except (OSError, TimeoutError):
                if self._client is not None:
                    lost = True
                    minutes = f"{GONE_SECONDS / 60:.0f} minutes"
                    self._tell(f"the scheduler at {self._engine.address} was lost; trying again, for {minutes}")
                self._client = None
                self._muster({}, {})
                await asyncio.sleep(LOOK_SECONDS)
            except Exception as error:
                self._end(_in_words(error))  # before the orders are dropped, which would be told as losses
                raise
            finally:
                with suppress(Exception):  # it fails if the scheduler listens to nothing any more
                    await client.close()  # also one that never connected
        return f"the scheduler at {self._engine.address} has not answered for {GONE_SECONDS:.0f} s"

    async def _look_around(self, client: Client) -> NoReturn:
        """See who is there, again and again, until the scheduler is lost."""
        client.subscribe_topic(TOPIC, self._hear)
        identity = None
        while client.status == "running":
            threads = await asyncio.wait_for(client.scheduler.ncores(), ANSWER_SECONDS)
            count = -1 if any(slot.overdue for slot in self._slots.values()) else 0  # all, or none
            about = await asyncio.wait_for(client.scheduler.identity(n_workers=count), ANSWER_SECONDS)
            if about["id"] != (identity := identity or about["id"]):
                raise OSError("it is another one, that does not know us")
            self._answered = time.monotonic()
            self._muster(threads, about["workers"])
            self._show_sign()
            await asyncio.sleep(LOOK_SECONDS)
        raise OSError("the connection was lost")

    def _show_sign(self) -> None:
        """Touch the file by which workers know the store, or others would think that it was left behind."""
        if self._sign is not None:
            with suppress(OSError):
                self._sign.touch()

    def _muster(self, threads: dict[str, int], about: dict[str, dict[str, Any]]) -> None:
        """Note who came, who went, and who has not been heard of for too long."""
        for slot in list(self._slots.values()):
            if (address := slot.place[0]) not in threads:
                self._drop(slot, "left")
            elif slot.overdue and address in about:
                before, slot.beat, slot.heard = slot.beat, about[address]["last_seen"], time.monotonic()
                status = about[address]["status"]
                if slot.start is not None or slot.beat == before:  # otherwise its order waits its turn
                    self._give_up(slot, f"was silent for {SILENCE_SECONDS:.0f} s")
                elif status != "running":  # as when its memory is short: Dask lets it begin nothing
                    self._give_up(slot, f"begins nothing: Dask says that it is {status}")
        for slot in list(self._silent.values()):
            if slot.place[0] not in threads:
                slot.cancel()
            if slot.place[0] not in threads or slot.idle:
                del self._silent[slot.place]
        used = [slot for slot in self._slots.values() if not slot.dismissed]
        places = ((address, number) for address, count in threads.items() for number in range(count))
        free = [place for place in places if place not in self._slots and place not in self._silent]
        wanted = len(free) if self._engine.most is None else max(0, self._engine.most - len(used))
        for place in free[:wanted]:
            used.append(slot := _Slot(place, self))
            self._slots[place] = slot
            self.put(slot, {"event": "joined"})
        self._left_out = len(free) > wanted
        if used and self._alone_at > -math.inf:
            self._alone_at = -math.inf
            self._tell(f"there are workers at {self._engine.address} again")
        elif not used and self._client is not None and time.monotonic() - self._alone_at > ALONE_SECONDS:
            self._alone_at = time.monotonic()
            others = "other " if self._slots or self._silent else ""
            self._tell(f"there are no {others}workers at {self._engine.address}; waiting for some")

    def _drop(self, slot: _Slot, why: str) -> None:
        """Forget a worker, and what it was to do; if it is still there, it is as if it came anew."""
        if self._slots.get(slot.place) is slot:
            del self._slots[slot.place]
            slot.ticket = None
            slot.cancel()
            known = self._client is not None and self._client.status == "running"
            if not known:
                why = "was lost with the scheduler"
            self.put(slot, {"event": "left", "error": why, "begun": known and slot.start is not None})

    def _give_up(self, slot: _Slot, why: str) -> None:
        """Have the chunks of a worker given to another. It comes anew once it speaks, or its order has ended."""
        self._silent[slot.place] = self._slots.pop(slot.place)
        slot.ticket = None
        self.put(slot, {"event": "silent", "error": why, "begun": slot.start is not None})

    def _end(self, error: str) -> None:
        self.put(None, {"event": "error", "error": error})

    def _tell(self, message: str) -> None:
        self.put(None, {"event": "told", "message": message})

    def _begin(self, slot: _Slot, chunks: list[Chunk], ticket: str, order: str) -> None:
        if self._client is not None and self._slots.get(slot.place) is slot:  # otherwise it was said that it left
            slot.order = self._loop.create_task(self._have_trained(self._client, slot, chunks, ticket, order))

    async def _have_trained(self, client: Client, slot: _Slot, chunks: list[Chunk], ticket: str, order: str) -> None:
        self._tickets[ticket], files = slot, dict[str, bytes]()
        future = call(client, slot.place[0], "train", order)
        try:
            try:
                with client.as_current():
                    await wait([future])
            except asyncio.CancelledError:
                future.release()  # at once: left to itself it would live on with the traceback of this
                raise
            # Dask fetches several results at once: who stops waiting for one must not stop that.
            said, files = await asyncio.shield(asyncio.ensure_future(client.gather(future)))
            events = json.loads(said)
        except Exception as error:
            if isinstance(error, KilledWorker) or future.status != "error":
                self._drop(slot, "dropped its work")
                return
            remedy = f": install greedyac {version.__version__}" if isinstance(error, ModuleNotFoundError) else ""
            events = [{"event": "unfit", "error": f"can't train: {type(error).__name__}: {error}{remedy}"}]
        finally:
            del self._tickets[ticket]
        if slot.ticket != ticket:
            return  # it was given up
        slot.ticket = slot.start = None
        if self._engine.publish:
            try:
                events = await asyncio.to_thread(_published, chunks, events, files)
            except Exception as error:
                self._end(f"results could not be written: {error}")
                return
        for event in events:
            self._pass_on(slot, event)

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        """What a worker tells while it trains; also what workers tell to others."""
        told = event[1]
        slot = self._tickets.get(told["ticket"])
        if slot is None:
            return
        slot.heard = time.monotonic()
        if slot.ticket != told["ticket"]:
            slot.cancel()  # it was given up, and what it does is not wanted any more
        elif slot.start not in (None, told["start"]):
            self._drop(slot, "died and came back")
        else:
            slot.start = told["start"]
            for said in told["events"]:
                self._pass_on(slot, said)

    def _pass_on(self, slot: _Slot, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self._compare(slot, event["cpu"], event["versions"])
        self.put(slot, event)

    def _compare(self, slot: _Slot, its_cpu: str, its_versions: dict[str, str]) -> None:
        """Say of a worker that is not like this machine, and the first of its kind, in what they differ."""
        kind = its_cpu, json.dumps(its_versions)
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        ours = {"processor": processor(), **versions()}
        others = {"processor": its_cpu, **its_versions}
        differing = [
            f"{name} {others.get(name)} (here {ours[name]})" for name in ours if ours[name] != others.get(name)
        ]
        self._tell(f"{slot.name} has {', '.join(differing)}: its numbers may differ in the last bits, its rows say so")


def _in_words(error: Exception) -> str:
    return f"Dask: {type(error).__name__}: {error}"


def _published(chunks: list[Chunk], events: list[dict[str, Any]], files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The events of chunks, one after another, whose files came along and are now published; up to a damaged one."""
    passed: list[dict[str, Any]] = []
    for event in events:
        if event["event"] == "done":
            chunk, chunks = chunks[0], chunks[1:]
            if event["file"] is not None:
                try:
                    content, run_ids = files.get(event["file"], b""), [run.run_id for run in chunk.runs]
                    event["links"] = publish_sealed(chunk.folder, event["file"], content, run_ids)
                except DamagedError as error:
                    return [*passed, {"event": "failed", "error": f"the file that it sent {error}"}]
        passed.append(event)
    return passed
