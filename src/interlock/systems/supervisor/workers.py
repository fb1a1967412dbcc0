"""`Workers`: registration and heartbeats, pause, resume and terminate, search, and the pools of hosts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from interlock.engine.loader import every_entry
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InvalidWorker, StoreUnavailable, TerminalState, UnknownWorker
from interlock.lifecycles import lease, worker
from interlock.lifecycles.worker import WORKER, WorkerState
from interlock.store.records import Commit, Committed, Count, Entry, Key, Query, Record, Repeated
from interlock.store.validation import MAX_HANDLER, MAX_ID, MAX_LABEL, MAX_LABELS
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.waiters import waker
from interlock.systems.supervisor.aggregate import (
    TROUBLES,
    ReleaseLeases,
    WorkerAggregate,
    WorkerBody,
    decide_death,
    decide_heartbeat,
    decide_leave,
    decide_silence,
    decode_body,
    marked,
    orders_of,
    view_of,
)
from interlock.systems.supervisor.leases import release_leases, tasks_of
from interlock.systems.supervisor.settings import DEFAULT_SETTINGS, SupervisorSettings
from interlock.wire.filters import WorkerFilter
from interlock.wire.runner import MAX_TASKS
from interlock.wire.workers import (
    POOL,
    POOL_LEAST,
    POOL_MOST,
    POOL_PID,
    PoolView,
    WorkerBeat,
    WorkerOrders,
    WorkerSpec,
    WorkerTasks,
    WorkerView,
)

MAX_CAPACITY = 10_000
MAX_METADATA = 4_096


def check(spec: WorkerSpec) -> None:
    """Raise unless the worker can be registered."""
    faults = []
    for noun, text in (("workspace_id", spec.workspace_id), ("name", spec.name or "-")):
        if not 1 <= len(text) <= MAX_ID or not text.isprintable() or "#" in text:
            faults.append(f"{noun} has 1 to {MAX_ID} printable characters and no '#'")
    faults += _misnamed(spec)
    for noun, number, most in (
        ("labels", len(set(spec.labels)), MAX_LABELS),
        ("tasks", len(spec.tasks or ()), MAX_TASKS),
    ):
        if number > most:
            faults.append(f"there are {number} {noun}, at most {most}")
    if not 1 <= spec.capacity <= MAX_CAPACITY:
        faults.append(f"capacity is {spec.capacity} and must be 1 to {MAX_CAPACITY}")
    texts = (spec.incarnation, spec.host, spec.version, *spec.metadata, *spec.metadata.values())
    if sum(map(len, texts)) > MAX_METADATA or not all(text.isprintable() for text in texts):
        faults.append(f"its metadata has at most {MAX_METADATA} printable characters")
    if faults:
        raise InvalidWorker(
            "The worker cannot be registered: " + "; ".join(faults) + ".",
            todo="Correct it and register again; nothing was stored.",
            facts={"faults": faults},
        )


def _misnamed(spec: WorkerSpec) -> Iterator[str]:
    for noun, names, longest in (
        ("the name of a queue", spec.queues, MAX_ID),
        ("a label", spec.labels, MAX_LABEL),
        ("the name of a task", spec.tasks or (), MAX_HANDLER),
    ):
        if not all(1 <= len(each) <= longest and each.isprintable() for each in names):
            yield f"{noun} has 1 to {longest} printable characters"


DEATHS = 5
"""Number of latest ends shown."""


def pools_of(workers: Iterable[WorkerView]) -> list[PoolView]:
    """Return the pools of these workers, by host and name."""
    members: dict[tuple[str, str, str], list[WorkerView]] = {}
    for view in sorted(workers, key=lambda each: each.created_at):
        known = view.metadata
        if POOL in known:
            key = (view.host, known[POOL], known.get(POOL_PID, ""))
            members.setdefault(key, []).append(view)
    return [_pool(key, members[key]) for key in sorted(members)]


def _pool(key: tuple[str, str, str], views: list[WorkerView]) -> PoolView:
    host, name, pid = key
    newest = views[-1].metadata
    living = [view for view in views if WorkerState(view.state) in worker.LIVING]
    died = [view for view in views if WorkerState(view.state) in (worker.FAILED, worker.TERMINATED)]
    names = [view.name for view in views]
    return PoolView(
        host=host,
        name=name,
        pid=_number(pid),
        least=_number(newest.get(POOL_LEAST, "")),
        most=_number(newest.get(POOL_MOST, "")),
        workers=tuple(living),
        restarts=len(names) - len(set(names)),
        died=tuple(sorted(died, key=lambda view: view.updated_at, reverse=True)[:DEATHS]),
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


PAGE = 500
MAX_SCANNED = 10_000

LIVING = tuple(str(state) for state in worker.LIVING)
"""The states of live workers."""

ORDERS = {"pause": worker.Pause, "resume": worker.Resume, "terminate": worker.Terminate, "drain": None}
"""The orders and their events; draining is a wish, after which the worker leaves."""


class FindsWorkers(Protocol):
    """A source of workers: a store or a server."""

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """Return a page of workers, newest first, and the cursor of the next one."""
        ...


@dataclass(slots=True)
class FoundWorkers:
    """Workers that match, newest first."""

    views: list[WorkerView] = field(default_factory=list)
    more: bool = False
    """Whether there are more, or the search limit was reached."""


async def found_workers(
    workers: FindsWorkers, wanted: WorkerFilter, now: datetime, *, limit: int = MAX_SCANNED
) -> FoundWorkers:
    """Return up to `limit` matching workers."""
    found, scanned = FoundWorkers(), 0
    selection = wanted.selection(now, limit=PAGE)
    query = selection.query
    while wanted.wanted_states:
        views, cursor = await workers.find(query)
        found.views += [view for view in views if selection.keeps(view)]
        scanned += len(views)
        if len(found.views) > limit or not cursor or scanned >= MAX_SCANNED:
            found.more = bool(cursor) or len(found.views) > limit
            del found.views[limit:]
            break
        query = msgspec.structs.replace(query, cursor=cursor)
    return found


def matching_workers(wanted: WorkerFilter, order: str) -> WorkerFilter:
    """Return the filter limited to states that accept the order.

    Ended workers match only if their state is named.
    """
    event = ORDERS[order]
    accepting = LIVING if event is None else [s for s in map(str, WORKER.states) if _accepts(s, event.name)]
    return wanted.among(state for state in accepting if wanted.states or state in LIVING)


def _accepts(state: str, event: str) -> bool:
    return event in WORKER.accepts(WORKER.state(state))


LOOK_EVERY_S = 0.1
"""Minimum interval of reads of a waiting worker's record on a busy store."""

MANY = 100
"""Maximum lives of one name to examine."""

Subscribe = Callable[[Callable[[], None]], Callable[[], None]]
"""Subscribes a callback to news, and returns a function that unsubscribes."""

ChangeOfWorker = Callable[[WorkerAggregate], None]
"""Changes a worker, or raises the table's refusal."""


class OrdersChanged(msgspec.Struct, frozen=True):
    """Published when a worker has new orders."""

    worker_id: str


class Workers:
    """The workers in a store."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: SupervisorSettings = DEFAULT_SETTINGS,
        ids: JobIds | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._ids = ids or JobIds(secrets.randbelow, prefix="w_")

    # Operations of workers

    async def register(
        self, spec: WorkerSpec, *, actor: str = "", request_id: str | None = None, runner_id: str = ""
    ) -> WorkerView:
        """Register a worker. A restarted worker registers again, as another one."""
        check(spec)
        idempotency_key = self.engine.key_for(request_id, "register a worker", spec)

        def decide(_: Sequence[Record | None], now: datetime) -> Decision[str]:
            worker_id = self._ids.draw(now)
            by = {"registered_by": actor, "runner_id": runner_id}
            draft = WorkerAggregate.new(worker_id, spec, now, self.settings, **by)
            commit = draft.commit(commit_id=self.engine.commit_id(), actor=actor)
            request = idempotency_key.answered(msgspec.json.encode(worker_id)) if idempotency_key else None
            return Decision(worker_id, msgspec.structs.replace(commit, request=request))

        async def do() -> WorkerView:
            applied = await self.engine.apply_once(idempotency_key, [], decide)
            if isinstance(applied, Repeated):
                return await self.get(msgspec.json.decode(applied.recorded.answer.body, type=str))
            return await self.get(applied.answer)

        return await self.engine.answer_once(idempotency_key, WorkerView, do)

    async def beat(self, worker_id: str, beat: WorkerBeat, *, actor: str = "") -> WorkerOrders:
        """Record a heartbeat of the worker's own principal; return the orders."""
        if beat.trouble and beat.trouble not in TROUBLES:
            raise InvalidWorker(
                f"There is no trouble {beat.trouble!r}.",
                allowed=TROUBLES,
                todo=f"Use one of: {', '.join(TROUBLES)}; or none.",
                facts={"worker_id": worker_id, "trouble": beat.trouble},
            )

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[WorkerOrders]:
            draft = WorkerAggregate.of(_own(worker_id, found[0], actor), now, self.settings)
            over = decide_heartbeat(draft, beat) is not None
            orders = self._orders(draft.state, draft.body)
            if over:
                return Decision(orders)
            commit_id = self.engine.commit_id()
            return Decision(orders, draft.commit(commit_id=commit_id, actor=worker_id, reason=beat.reason))

        applied = await self.engine.apply([_key(worker_id)], decide)
        assert not isinstance(applied, Repeated), "a heartbeat has no request id"
        return applied.answer

    async def orders(
        self,
        worker_id: str,
        *,
        after: int = -1,
        wait_s: float = 0.0,
        subscribe: Subscribe | None = None,
        actor: str = "",
    ) -> WorkerOrders:
        """Return the orders; with `wait_s`, wait for newer ones.

        Newer orders have a number above `after`. Only the principal that registered the worker may call this.

        `subscribe` gives more precise notifications about this worker; by default its record is read, at a
        limited rate, after any change in the store.
        """
        news = asyncio.Event()
        stop = (subscribe or self.engine.store.subscribe)(waker(news))
        try:
            orders = await self._current(worker_id, actor)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s if wait_s > 0 else None):
                    while wait_s > 0 and orders.number <= after and orders.stop != "terminate":
                        await news.wait()
                        news.clear()
                        orders = await self._current(worker_id, actor)
                        if orders.number <= after and subscribe is None:
                            await asyncio.sleep(LOOK_EVERY_S)
        finally:
            stop()
        return orders

    async def takes(self, worker_id: str, *, actor: str = "") -> bool:
        """Return whether a worker may claim; raise for another principal.

        Checked with every claim, and never cached: jobs of a terminated worker are ready again at once, and
        its own claim could be the first.
        """
        (record,) = await self.engine.load([_key(worker_id)])
        return record is not None and WorkerState(_own(worker_id, record, actor).state) in worker.TAKING

    async def leave(
        self, worker_id: str, *, reason: str = "it has done all it had", actor: str = ""
    ) -> WorkerView:
        """Record that the worker leaves; an ended one is not changed."""

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = _own(worker_id, found[0], actor)
            if WorkerState(record.state) in worker.ENDED:
                return Decision(None)
            draft = WorkerAggregate.of(record, now, self.settings)
            decide_leave(draft, reason)
            commit_id = self.engine.commit_id()
            return Decision(None, draft.commit(commit_id=commit_id, actor=worker_id, reason=reason))

        await self.engine.apply([_key(worker_id)], decide)
        return await self.get(worker_id)

    async def namesakes(self, worker_id: str, *, actor: str = "") -> list[WorkerView]:
        """Return the caller's other live workers of this name, newest first."""
        name = decode_body(_own(worker_id, await self._load(worker_id), actor)).spec.name
        query = Query(kind=WORKER.name, parent=name, states=worker.LIVING, limit=MANY)
        found = (await self.engine.store.find(query)).records
        return [view_of(each) for each in found if each.id != worker_id and _is_own(each, actor)]

    async def died(self, name: str, incarnation: str, *, reason: str, actor: str = "") -> WorkerView:
        """Record the death of a process, so that its leases end at once.

        One that left before it was killed may hold leases as well.
        """
        query = Query(kind=WORKER.name, parent=name, limit=MANY)
        found = (await self.engine.store.find(query)).records
        record = next((each for each in found if _is_life(each, incarnation) and _is_own(each, actor)), None)
        if record is None:
            raise unknown_worker(f"{name}#{incarnation}")
        worker_id = record.id

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[list[ReleaseLeases]]:
            draft = WorkerAggregate.of(_present(worker_id, records[0]), now, self.settings)
            if draft.state in worker.ENDED:
                lost = lease.holder_lost.name
                return Decision([ReleaseLeases(draft.body.runner_id, lost, worker_id, reason=reason)])
            decide_death(draft, reason)
            commit_id = self.engine.commit_id()
            commit = draft.commit(commit_id=commit_id, actor=actor or "supervisor", reason=reason)
            return Decision(draft.releases(reason), commit)

        applied = await self.engine.apply([_key(worker_id)], decide)
        assert not isinstance(applied, Repeated), "there is no request id"
        self.engine.bus.publish(OrdersChanged(worker_id))
        await self._release_now(applied.answer)
        return await self.get(worker_id)

    # Operations of people

    async def start(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Start the worker, with or without a task."""
        return await self._act(
            "start", worker_id, lambda draft: draft.must(worker.StartTask(at=draft.now)), reason, actor,
            request_id,
        )  # fmt: skip

    async def pause(
        self,
        worker_id: str,
        *,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
        give_back: bool = False,
    ) -> WorkerView:
        """Pause a worker: it finishes its jobs, or releases them."""

        def act(draft: WorkerAggregate) -> None:
            draft.must(worker.Pause(at=draft.now))
            draft.order(reason or "paused", give_back=give_back)

        return await self._act(f"pause {give_back}", worker_id, act, reason, actor, request_id)

    async def resume(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Let a worker claim again."""

        def act(draft: WorkerAggregate) -> None:
            draft.must(worker.Resume(at=draft.now))
            draft.order(reason)

        return await self._act("resume", worker_id, act, reason, actor, request_id)

    async def terminate(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Revoke the leases of a worker, and order its process to exit now."""

        def act(draft: WorkerAggregate) -> None:
            draft.must(worker.Terminate(at=draft.now))
            draft.order(reason or "terminated")

        return await self._act("terminate", worker_id, act, reason, actor, request_id)

    async def drain(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Drain a worker: it finishes its jobs, and exits."""

        def act(draft: WorkerAggregate) -> None:
            if draft.state in worker.ENDED:
                raise TerminalState(
                    f"The worker {worker_id} is {draft.state}, which is final; there is nothing to drain.",
                    todo="Nothing; it is gone.",
                    facts={"worker_id": worker_id, "machine": WORKER.name, "state": str(draft.state)},
                )
            draft.order(reason or "drained", drain=True)

        return await self._act("drain", worker_id, act, reason, actor, request_id)

    async def _act(
        self, verb: str, worker_id: str, act: ChangeOfWorker, reason: str, actor: str, request_id: str | None
    ) -> WorkerView:
        idempotency_key = self.engine.key_for(request_id, f"{verb} {worker_id}", reason)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[list[ReleaseLeases]]:
            draft = WorkerAggregate.of(_present(worker_id, found[0]), now, self.settings)
            act(draft)
            commit_id, why = self.engine.commit_id(), reason or draft.body.reason
            commit = draft.commit(commit_id=commit_id, actor=actor, reason=why, ordered=True)
            request = idempotency_key.answered(b"null") if idempotency_key else None
            return Decision(draft.releases(why), msgspec.structs.replace(commit, request=request))

        async def do() -> WorkerView:
            applied = await self.engine.apply_once(idempotency_key, [_key(worker_id)], decide)
            if not isinstance(applied, Repeated):
                self.engine.bus.publish(OrdersChanged(worker_id))
                await self._release_now(applied.answer)
            return await self.get(worker_id)

        return await self.engine.answer_once(idempotency_key, WorkerView, do)

    async def _release_now(self, orders: Sequence[ReleaseLeases]) -> None:
        """Release leases now, instead of waiting for the committed message."""
        for order in orders:
            with suppress(StoreUnavailable):
                await release_leases(self.engine, self.settings.jobs, order)

    # Views

    async def get(self, worker_id: str) -> WorkerView:
        """Return the worker."""
        return (await self._marked([await self._load(worker_id)]))[0]

    async def tasks(self, worker_id: str) -> WorkerTasks:
        """Return its current and latest tasks."""
        return await tasks_of(self.engine.store, decode_body(await self._load(worker_id)).runner_id)

    async def pools(self, *, limit: int = 500) -> list[PoolView]:
        """Return the supervisors of hosts, from the newest workers."""
        page = await self.engine.store.find(Query(kind=WORKER.name, limit=limit))
        return pools_of(await self._marked(page.records))

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """Return a page of workers, and the cursor of the next one."""
        page = await self.engine.store.find(query)
        # Hundreds of task names for each of hundreds of workers would dominate the page.
        views = await self._marked(page.records)
        return [msgspec.structs.replace(view, tasks=None) for view in views], page.cursor

    async def _marked(self, records: Sequence[Record]) -> list[WorkerView]:
        now = await self.engine.clock.now()
        every_s = self.settings.worker_beat_every_s
        return [marked(view_of(record), now, every_s) for record in records]

    async def count(self, query: Query, *, cap: int = 10_000) -> Count:
        """Return the number of matches, up to a cap."""
        return await self.engine.store.count(query, cap=cap)

    async def history(self, worker_id: str) -> list[Entry]:
        """Return its history, oldest first."""
        record = await self._load(worker_id)
        return [entry async for entry in every_entry(self.engine.store, record.key)]

    # Deadlines and consequences

    async def notify(self, runner_ids: Iterable[str]) -> None:
        """Notify workers to renew their leases now, because one was stopped.

        This is an optimisation. Otherwise a worker learns it with its next heartbeat.
        """
        for runner_id in runner_ids:
            record = await self._life_of(runner_id)
            if record is not None:
                await self._notify(record.id)

    async def _notify(self, worker_id: str) -> None:
        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            draft = WorkerAggregate.of(_present(worker_id, found[0]), now, self.settings)
            if draft.state in worker.ENDED:
                return Decision(None)
            draft.look()
            reason = "something that it holds was stopped"
            commit_id = self.engine.commit_id()
            commit = draft.commit(commit_id=commit_id, actor="orchestrator", reason=reason, ordered=True)
            return Decision(None, commit)

        await self.engine.apply([_key(worker_id)], decide)
        self.engine.bus.publish(OrdersChanged(worker_id))

    async def _life_of(self, runner_id: str) -> Record | None:
        """Return the live worker of a runner id, with or without token name."""
        called = runner_id.rpartition("#")[0]
        for name in dict.fromkeys((called, called.partition("/")[2])):
            query = Query(kind=WORKER.name, parent=name, states=worker.LIVING, limit=MANY)
            for record in (await self.engine.store.find(query)).records if name else ():
                if decode_body(record).runner_id == runner_id:
                    return record
        return None

    async def sweep(self, *, limit: int = 500) -> int:
        """Handle workers that were silent for too long; return their number."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            commit_id = self.engine.commit_id()
            drafts = [decide_silence(record, now, self.settings) for record in records]
            return [one.commit(commit_id=commit_id, actor="clock", reason=one.body.reason) for one in drafts]

        outcomes = await self.engine.due([WORKER.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def end_leases(self, payload: bytes) -> None:
        """End the leases of a worker, as the handler of a message."""
        await release_leases(
            self.engine, self.settings.jobs, msgspec.json.decode(payload, type=ReleaseLeases)
        )

    async def _current(self, worker_id: str, actor: str) -> WorkerOrders:
        record = _own(worker_id, await self._load(worker_id), actor)
        return self._orders(WorkerState(record.state), decode_body(record))

    def _orders(self, state: WorkerState, body: WorkerBody) -> WorkerOrders:
        return orders_of(state, body, self.settings.worker_beat_every_s)

    async def _load(self, worker_id: str) -> Record:
        (record,) = await self.engine.store.load([_key(worker_id)])
        return _present(worker_id, record)


def _do_nothing(_: str) -> None:
    """Do nothing."""


def _key(worker_id: str) -> Key:
    return Key(WORKER.name, worker_id)


def _present(worker_id: str, record: Record | None) -> Record:
    if record is None:
        raise unknown_worker(worker_id)
    return record


def unknown_worker(worker_id: str) -> UnknownWorker:
    """Return the error of an unknown worker."""
    return UnknownWorker(
        f"There is no worker {worker_id}.",
        todo="Look for it with `interlock worker list`; those that have ended are pruned after a while.",
        facts={"worker_id": worker_id},
    )


def _own(worker_id: str, record: Record | None, actor: str) -> Record:
    """Return the record for the principal that registered it.

    For others it does not exist.
    """
    known = _present(worker_id, record)
    return _present(worker_id, known if _is_own(known, actor) else None)


def _is_own(record: Record, actor: str) -> bool:
    registered_by = decode_body(record).registered_by
    return actor in ("", registered_by) or not registered_by


def _is_life(record: Record, incarnation: str) -> bool:
    return decode_body(record).spec.incarnation == incarnation
