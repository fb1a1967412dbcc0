"""Keeping work away from runners that keep losing it.

A lease that runs out puts a message beside the job, in the same commit; here it is counted. Whoever gives
out work asks here first, and is answered from memory: which runners are quarantined is read anew with every
sweep, so that giving out work costs nothing more.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.engine.applying import Decision, Engine
from interlock.errors import UnknownWorker
from interlock.machine import Event, Moved
from interlock.store.records import Change, Commit, Committed, Key, Note, Query, Record, StepLine
from interlock.systems.quarantine.counting import (
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
from interlock.systems.quarantine.lifecycle import (
    CLEARED,
    QUARANTINED,
    STANDING,
    WATCHED,
    StandingState,
    forget,
    forgiven,
    lift,
    lost,
    served,
    too_often,
)
from interlock.wire.workers import StandingView

MOST = 1_000
_OPEN = (WATCHED, QUARANTINED)


class Quarantine:
    """Which runners are given no work, and why."""

    def __init__(self, engine: Engine, settings: QuarantineSettings) -> None:
        self._engine = engine
        self._settings = settings
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

        def decide(records: Sequence[Record], _: datetime) -> list[Commit]:
            ends = {WATCHED: forget, QUARANTINED: served}
            return [
                Commit(changes=(_told(each, body_of(each), ends[StandingState(each.state)], actor="clock"),))
                for each in records
            ]

        outcomes = await self._engine.due([STANDING.name], limit, decide)
        await self.look()
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def count(self, payload: bytes) -> None:
        """A runner has lost a job. Once for each job, so it may be told twice."""
        word = msgspec.json.decode(payload, type=Lost)
        for other in word.others:
            await self._forgive(other, word.job_id)
        if not word.others:
            await self._blame(word)
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

        def decide(records: Sequence[Record | None], _: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state == CLEARED:
                return Decision(None)
            change = _told(record, body_of(record), lift, actor=actor, reason=reason)
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([found.key], decide)
        await self.look()
        (after,) = await self._engine.store.load([found.key])
        assert after is not None
        return _view(after)

    # What is counted

    async def _blame(self, word: Lost) -> None:
        found = await self._find(word.runner)
        key = found.key if found is not None else await self._free(word.runner)

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is not None and record.state != WATCHED:
                return Decision(None)
            before = StandingBody(runner=word.runner) if record is None else body_of(record)
            body = with_loss(before, word.job_id, now, self._settings.within_s)
            return Decision(None, Commit(changes=(self._judged(key, record, body, now),)))

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

    async def _forgive(self, runner: str, job_id: str) -> None:
        found = await self._find(runner)
        if found is None:
            return

        def decide(records: Sequence[Record | None], _: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state == CLEARED:
                return Decision(None)
            body = without(body_of(record), job_id)
            if body == body_of(record):
                return Decision(None)
            if record.state == QUARANTINED and occasions(body.losses) < self._settings.occasions:
                return Decision(None, Commit(changes=(_told(record, body, lift, actor="orchestrator"),)))
            return Decision(None, Commit(changes=(_told(record, body, forgiven, actor="orchestrator"),)))

        await self._engine.apply([found.key], decide)

    def _judged(self, key: Key, record: Record | None, body: StandingBody, now: datetime) -> Change:
        if occasions(body.losses) < self._settings.occasions:
            until = now + timedelta(seconds=self._settings.within_s)
            return _moved(key, record, body, lost, until, actor="orchestrator")
        until = now + timedelta(seconds=self._settings.lasts_s)
        body = msgspec.structs.replace(body, until=until)
        return _moved(key, record, body, too_often, until, actor="orchestrator", reason=sentence_of(body))

    async def _find(self, runner: str) -> Record | None:
        query = Query(kind=STANDING.name, states=_OPEN, labels=(label_of(runner),), limit=1)
        return next(iter((await self._engine.store.find(query)).records), None)


def body_of(record: Record) -> StandingBody:
    """What is known of a runner."""
    return msgspec.json.decode(record.body, type=StandingBody)


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


def _told(record: Record, body: StandingBody, event: Event, *, actor: str, reason: str = "") -> Change:
    return _moved(record.key, record, body, event, record.deadline_at, actor=actor, reason=reason)


def _moved(
    key: Key,
    record: Record | None,
    body: StandingBody,
    event: Event,
    deadline_at: datetime | None,
    *,
    actor: str,
    reason: str = "",
) -> Change:
    decision = STANDING.decide(StandingState(record.state) if record else WATCHED, None, event)
    if not isinstance(decision, Moved):
        raise decision.error()
    steps = tuple(
        StepLine(STANDING.name, "", step.event, step.source, step.target, step.owner, step.moves)
        for step in decision.steps
    )
    return Change(
        kind=STANDING.name,
        id=key.id,
        expected=record.version if record else 0,
        state=decision.state,
        body=msgspec.json.encode(body),
        labels=(label_of(body.runner),),
        deadline_at=None if decision.state is CLEARED else deadline_at,
        note=Note(steps=steps, actor=actor, reason=reason),
    )
