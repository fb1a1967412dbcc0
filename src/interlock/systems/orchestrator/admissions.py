"""`Admissions`: receive which jobs have released their slots and which wait in line, and admit the next ones.

Any number of processes may admit jobs: each decides on the records as they are and commits the gate with
the jobs and tickets; of two that decide about the same gate, the version refuses one, which reads again.
A repeated message about a released slot changes nothing.

Why: decision 0407.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from interlock.engine.outbox import DeliveryPolicy, message_in, sent, take_all, undelivered
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Engine, contended, failed
from interlock.lifecycles.job import JOB
from interlock.store.records import Commit, Conflict, Illegal, Key, Query, Record, RequestReused, Work
from interlock.systems.orchestrator.gates import (
    GATE,
    GATES,
    LIMITS,
    QUANTUM,
    SERVED,
    TICKET,
    TICKETS,
    WAITING,
    Admission,
    GateBody,
    GateLook,
    LimitMessage,
    decide_admission,
    gate_key,
    in_line,
    limits_of,
)
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.wire.limits import LimitSpec, definition_of

MANY = 500
"""Number of messages and tickets that are handled in one round."""
TICKETS_AT_ONCE = 20
PATIENCE = timedelta(seconds=60)
RETRY_POLICY = DeliveryPolicy(max_tries=1_000_000, longest_pause_s=30.0)
_ROUNDS = 1_000
"""Maximum number of commits for one key in one call of `keep`; the next call continues."""


class LimitsNotified(msgspec.Struct, frozen=True):
    """Jobs have lined up for slots, or have given them back."""


class Admissions:
    """Gives the slots of the limits in a store to jobs."""

    def __init__(
        self,
        engine: Engine,
        settings: OrchestratorSettings,
        definitions: Callable[[], Awaitable[Mapping[str, LimitSpec]]],
    ) -> None:
        """`definitions` reads the limits that are declared."""
        self._engine = engine
        self._settings = settings
        self._definitions = definitions
        self._names: Mapping[str, LimitSpec] = {}
        self._not_before = datetime.min.replace(tzinfo=UTC)
        """The store's time when it found something due: the clock of the engine may be behind it."""
        self._alarm: asyncio.TimerHandle | None = None

    def _look_in(self, seconds: float) -> None:
        """Schedule another round after this time, sooner than the next sweep."""
        loop = asyncio.get_running_loop()
        if self._alarm is not None and self._alarm.when() <= loop.time() + seconds:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._engine.bus.publish(LimitsNotified())

    def close(self) -> None:
        """Cancel the scheduled round."""
        if self._alarm is not None:
            self._alarm.cancel()

    async def keep(self, *, limit: int = MANY) -> int:
        """Admit jobs to slots that are free or were given back.

        It processes messages about slots that were given back, and the tickets and gates that are due. Return
        their number.
        """
        messages = await take_all(self._engine.store, (LIMITS,), PATIENCE, limit=limit)
        gone: dict[str, set[str]] = {}
        for record in messages:
            message = message_in(record.body, LimitMessage)
            for key in message.keys:
                gone.setdefault(key, set()).add(message.job_id)
        tickets = await self._due(TICKET.name, limit)
        due: dict[str, list[str]] = {}
        for record in tickets:
            due.setdefault(record.parent or "", []).append(record.id)
        gates = await self._due(GATE.name, limit)
        if not (messages or tickets or gates):
            return 0
        self._names = await self._definitions()
        await self._serve_keys(messages, gone, due, [record.id for record in gates])
        if tickets or messages:
            await self._tidy()
        return len(messages) + len(tickets) + len(gates)

    async def _serve_keys(
        self,
        messages: Sequence[Record],
        gone: Mapping[str, Collection[str]],
        due: Mapping[str, Sequence[str]],
        reviewed: Collection[str],
    ) -> None:
        commit_id = self._engine.commit_id()
        try:
            for key in {**gone, **due, **dict.fromkeys(reviewed)}:
                await self.serve(key, gone=gone.get(key, ()), due=due.get(key, ()), reviews=key in reviewed)
        except Exception as error:
            now = await self._engine.clock.now()
            changes = [undelivered(record, error, now, RETRY_POLICY, commit_id) for record in messages]
            await self._engine.committer.commit_all([Commit(changes=(change,)) for change in changes])
            raise
        await self._engine.committer.commit_all(
            [Commit(changes=(sent(record, commit_id),)) for record in messages]
        )

    async def _due(self, kind: str, limit: int) -> list[Record]:
        """Return records whose deadline has passed; they are left as they are."""
        found: list[Record] = []

        def look(records: Sequence[Record], now: datetime) -> list[Work]:
            found[:] = records
            self._not_before = max(self._not_before, now)
            return []

        await self._engine.due([kind], limit, look)
        return found

    async def _tidy(self) -> None:
        """Remove tickets that were served.

        The line of a key is found among its tickets.
        """
        await self._engine.store.prune(
            kind=TICKET.name, states=(SERVED,), older_than=timedelta(0), limit=MANY
        )

    async def serve_all(self, keys: Iterable[str]) -> None:
        """Give the free slots of these keys to those who wait."""
        self._names = await self._definitions()
        for key in keys:
            await self.serve(key)

    async def serve(
        self,
        key: str,
        *,
        gone: Collection[str] = (),
        due: Sequence[str] = (),
        reviews: bool = False,
    ) -> int:
        """Give the free slots of a key to the jobs that wait for them.

        These are in its line, and in the lines of other keys that wait for it, in turn.
        """
        made = await self._tend(key, gone=gone, due=due, reviews=reviews)
        admitted = made.admitted
        for _ in range(_ROUNDS):
            if not made.room or not (made.more or made.behind):
                break
            served = 0
            for other in made.behind:
                through = await self._tend(other, via=key, quantum=1)
                served, admitted = served + through.served, admitted + through.admitted
            made = await self._tend(key)
            admitted += made.admitted
            if not served + made.served:
                break
        return admitted

    async def _tend(
        self,
        key: str,
        *,
        gone: Collection[str] = (),
        due: Sequence[str] = (),
        via: str = "",
        reviews: bool = False,
        quantum: int = QUANTUM,
    ) -> Admission:
        conflict: Conflict | None = None
        engine = self._engine
        for tried in range(engine.max_tries):
            if tried > 1:
                await asyncio.sleep(0.001 * tried)
            look = await self._look(key, gone, due, via, reviews, quantum)
            now = max(await engine.clock.now(), self._not_before)
            made = decide_admission(look, now, engine.commit_id(), self._settings, quantum=quantum)
            if made.look_at is not None:
                self._look_in((made.look_at - now).total_seconds())
            if made.commit is None:
                return made
            stamped = engine.stamped(made.commit, look.records)
            outcome = await commit_with_recovery(engine.store, engine.committer, stamped)
            if isinstance(outcome, Illegal | RequestReused):
                raise failed(outcome)
            if not isinstance(outcome, Conflict):
                return made
            conflict = outcome
        raise contended([gate_key(key)], conflict, engine.max_tries)

    async def _look(
        self, key: str, gone: Collection[str], due: Sequence[str], via: str, reviews: bool, quantum: int
    ) -> GateLook:
        store, names = self._engine.store, self._names
        others = [via] if via else []
        keys = [gate_key(each) for each in (key, *others)]
        found = await store.load([*keys, *(Key(TICKET.name, each) for each in due)])
        gates = dict(zip((key, *others), found[: len(keys)], strict=True))
        own = gates[key]
        body = GATES.body_of(own) if own is not None else GateBody()
        waiting = Query(
            kind=TICKET.name, parent=key, states=(WAITING,), newest_first=False, limit=TICKETS_AT_ONCE
        )
        page = await store.find(waiting)
        open_ = {each.id: each for each in page.records}
        open_ |= {each.id: each for each in found[len(keys) :] if each is not None and each.state != SERVED}
        tickets = in_line(open_.values())
        met = {*gone, *body.offered}
        checked = [each for each in body.inside if reviews or each in met]
        room = self._room(key, names, body, checked)
        first = _first(tickets, min(room, quantum)) if room else []
        wanted = list(dict.fromkeys((*checked, *first)))
        records = await store.load([Key(JOB.name, each) for each in wanted]) if wanted else []
        jobs = dict(zip(wanted, records, strict=True))
        more = sorted({each for record in jobs.values() for each in _keys_of(record)} - set(gates))
        gates |= dict(
            zip(more, await store.load([gate_key(each) for each in more]) if more else [], strict=True)
        )
        defined = {each: name for each in gates if (name := definition_of(each, names)) is not None}
        return GateLook(
            key=key,
            limits={each: names[name] for each, name in defined.items()},
            names=defined,
            gates=gates,
            tickets=tickets,
            jobs=jobs,
            gone=checked,
            reviews=reviews,
        )

    def _room(self, key: str, names: Mapping[str, LimitSpec], body: GateBody, checked: Iterable[str]) -> int:
        """Return how many jobs may find a slot if the `checked` ones leave."""
        name = definition_of(key, names)
        spec = names[name] if name is not None else LimitSpec()
        most = spec.max or min(spec.capacity, QUANTUM)
        if not most:
            return QUANTUM
        leaving = set(checked)
        used = sum(slots for job_id, slots in body.inside.items() if job_id not in leaving)
        return max(0, min(most - used, QUANTUM))


def _first(tickets: Iterable[Record], number: int) -> list[str]:
    """Return the first jobs in line."""
    ids: list[str] = []
    for ticket in tickets:
        ids += TICKETS.body_of(ticket).ids[: number - len(ids)]
        if len(ids) >= number:
            break
    return ids


def _keys_of(record: Record | None) -> tuple[str, ...]:
    limits = limits_of(record)
    return limits.keys if limits is not None else ()
