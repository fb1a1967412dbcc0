"""Keeping work away from runners that keep losing it.

A lease that runs out puts a message beside the job, in the same commit; here it is counted. Whoever gives
out work asks here first, and is answered from memory: which runners are quarantined is read anew with every
sweep, so that giving out work costs nothing more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.engine.outbox import OutboxMessage, sent, take_all
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import UnknownWorker
from interlock.machine import Event
from interlock.store.records import Change, Commit, Committed, Key, Query, Record
from interlock.systems.quarantine.lifecycle import (
    CLEARED,
    QUARANTINED,
    STANDING,
    WATCHED,
    forgiven,
    lift,
    lost,
    too_often,
)
from interlock.systems.quarantine.strikes import (
    RUNNER_LOST,
    Lost,
    QuarantineSettings,
    StandingBody,
    label_of,
    name_of,
    occasions,
    sentence_of,
    with_loss,
    without,
)
from interlock.wire.workers import StandingView

MOST = 1_000
MANY = 500
"""How many losses are counted in one go."""
PATIENCE = timedelta(seconds=30)
"""After which others count what a process has taken and not counted."""
_OPEN = (WATCHED, QUARANTINED)
_STANDINGS = RecordKind(
    STANDING,
    StandingBody,
    columns=lambda body: Columns(labels=(label_of(body.runner),)),
    sends=(too_often,),
)


class Quarantine:
    """Which runners are given no work, and why."""

    def __init__(self, engine: Engine, settings: QuarantineSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._standings = _STANDINGS.lasting(
            losses_remembered_s=settings.within_s, quarantine_s=settings.lasts_s
        )
        self._held: dict[str, StandingBody] = {}

    def why_not(self, runner_id: str) -> str:
        """Why this runner is given nothing, as far as is known here; empty when it is."""
        held = self._held.get(name_of(runner_id)) if self._held else None
        return "" if held is None else sentence_of(held)

    async def look(self) -> None:
        """Learn who is quarantined."""
        query = Query(kind=STANDING.name, states=(QUARANTINED,), limit=MOST)
        found = (await self._engine.store.find(query)).records
        self._held = {body.runner: body for body in map(body_of, found)}

    async def sweep(self, *, limit: int = 500) -> int:
        """What is served or long ago is over; answers how many that were."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            ended = [self._standings.fired(record, now) for record in records]
            return [Commit(changes=(standing.change(actor="clock"),)) for standing in ended]

        outcomes = await self._engine.due([STANDING.name], limit, decide)
        await self.look()
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def keep(self, *, limit: int = MANY) -> int:
        """Count what messages say that runners have lost; return how many messages there were."""
        taken = await take_all(self._engine.store, (RUNNER_LOST,), PATIENCE, limit=limit)
        if not taken:
            return 0
        await self.count(map(_word, taken))
        mark = self._engine.mark()
        arrived = Commit(changes=tuple(sent(record, mark) for record in taken))
        await commit_with_recovery(self._engine.store, self._engine.committer, arrived)
        return len(taken)

    async def count(self, words: Iterable[Lost]) -> None:
        """Count what runners have lost: each job once, so that it may be told twice.

        A runner that dies loses all it had at once. Its record is changed once for all of it, because each
        change is a conflict for the other processes that count at the same time.
        """
        blamed: dict[str, list[str]] = {}
        cleared: dict[str, list[str]] = {}
        for word in words:
            for other in word.others:
                cleared.setdefault(other, []).append(word.job_id)
            if not word.others:
                blamed.setdefault(word.runner, []).append(word.job_id)
        for runner, jobs in blamed.items():
            await self._blame(runner, jobs)
        for runner, jobs in cleared.items():
            await self._forgive(runner, jobs)
        await self.look()

    async def list(self) -> list[StandingView]:
        """Every runner that is watched or quarantined."""
        query = Query(kind=STANDING.name, states=_OPEN, limit=MOST)
        return [_view(record) for record in (await self._engine.store.find(query)).records]

    async def lift(self, runner: str, *, actor: str = "", reason: str = "") -> StandingView:
        """Give it work again, with a clean sheet."""
        found = await self._find(name_of(runner)) or await self._find(runner)
        if found is None:
            raise UnknownWorker(
                f"{runner} is not quarantined, nor has it lost anything lately.",
                todo="See who is: interlock worker quarantined",
                facts={"runner": runner},
            )

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state == CLEARED:
                return Decision(None)
            change = _told(record, body_of(record), lift, now, actor=actor, reason=reason)
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([found.key], decide)
        await self.look()
        (after,) = await self._engine.store.load([found.key])
        assert after is not None
        return _view(after)

    # What is counted

    async def _blame(self, runner: str, jobs: Sequence[str]) -> None:
        found = await self._find(runner)
        key = found.key if found is not None else await self._free(runner)

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is not None and record.state != WATCHED:
                return Decision(None)
            body = StandingBody(runner=runner) if record is None else body_of(record)
            for job_id in jobs:
                body = with_loss(body, job_id, now, self._settings.within_s)
            return Decision(None, Commit(changes=(self._judged(key.id, record, body, now),)))

        await self._engine.apply([key], decide)

    async def _free(self, runner: str) -> Key:
        """The name of a new record: the same for all who ask at about the same time, so that one is made."""
        now = await self._engine.clock.now()
        window = int(now.timestamp() // self._settings.within_s)
        for number in itertools.count():
            key = Key(STANDING.name, f"{label_of(runner)}.{window}.{number}")
            (record,) = await self._engine.store.load([key])
            if record is None or record.state != CLEARED:
                return key
        raise AssertionError("there is always another number")

    async def _forgive(self, runner: str, jobs: Sequence[str]) -> None:
        found = await self._find(runner)
        if found is None:
            return

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state == CLEARED:
                return Decision(None)
            body = without(body_of(record), jobs)
            if body == body_of(record):
                return Decision(None)
            enough = record.state == QUARANTINED and occasions(body.losses) < self._settings.occasions
            change = _told(record, body, lift if enough else forgiven, now, actor="orchestrator")
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([found.key], decide)

    def _judged(self, name: str, record: Record | None, body: StandingBody, now: datetime) -> Change:
        standing = self._standings.upsert(record, name, body, now)
        if occasions(body.losses) < self._settings.occasions:
            standing.must(lost)
            return standing.change(actor="orchestrator")
        standing.must(too_often)
        standing.body = msgspec.structs.replace(body, until=standing.deadline_at)
        return standing.change(actor="orchestrator", reason=sentence_of(standing.body))

    async def _find(self, runner: str) -> Record | None:
        query = Query(kind=STANDING.name, states=_OPEN, labels=(label_of(runner),), limit=1)
        return next(iter((await self._engine.store.find(query)).records), None)


def _word(message: Record) -> Lost:
    return msgspec.json.decode(msgspec.json.decode(message.body, type=OutboxMessage).payload, type=Lost)


def body_of(record: Record) -> StandingBody:
    """What is known of a runner."""
    return _STANDINGS.body_of(record)


def _view(record: Record) -> StandingView:
    body = body_of(record)
    held = record.state == QUARANTINED
    return StandingView(
        runner=body.runner,
        state=record.state,
        occasions=occasions(body.losses),
        jobs=tuple(one.job_id for one in body.losses),
        until=body.until if held else None,
        explanation=sentence_of(body) if held else f"{body.runner} is given work; what it loses is counted.",
        todo=f"When it is in order again: interlock worker lift {body.runner}" if held else "",
    )


def _told(
    record: Record, body: StandingBody, event: Event, now: datetime, *, actor: str, reason: str = ""
) -> Change:
    standing = _STANDINGS.of(record, now, body)
    standing.must(event)
    return standing.change(actor=actor, reason=reason)
