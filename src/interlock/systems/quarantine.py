"""Quarantine: withhold jobs from runners that keep losing them.

First the table of a runner's standing, then the counting of losses, then `Quarantine`, which applies it.

Why: decision 0191.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.engine.outbox import message_in, sent, take_all
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import UnknownWorker
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    Tone,
    command,
    consequence,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.machine.cascade import EventRules
from interlock.store.records import Change, Commit, Committed, Key, Query, Record
from interlock.wire.workers import StandingView


class StandingState(StrEnum):
    """The states of a runner's standing."""

    WATCHED = "watched"
    QUARANTINED = "quarantined"
    CLEARED = "cleared"


WATCHED, QUARANTINED, CLEARED = StandingState.WATCHED, StandingState.QUARANTINED, StandingState.CLEARED

lost: Event = command("lost", "It has lost work again, within the limit.", by="orchestrator")
forgiven: Event = command(
    "forgiven", "Other runners lost the same work, so the runner is not the cause.", by="orchestrator"
)
too_often: Event = consequence("too_often", "It has lost work too often.", by="orchestrator")
lift: Event = command("lift", "An operator lifts the quarantine.", by="operator")
served: Event = timer("served", "The quarantine has expired.", by="clock")
forget: Event = timer("forget", "It has not lost work for a long time.", by="clock")

SENTENCE = Deadline(served, "quarantine_s", 1_800.0)
MEMORY = Deadline(forget, "losses_remembered_s", 3_600.0, since="it last lost something")

# fmt: off
STANDING = Machine[StandingState, None](
    "standing",
    "The losses of a runner, and whether it is quarantined.",
    initial=WATCHED,
    spine=(WATCHED, QUARANTINED, CLEARED),
    stop=(lift,),
    states=(
        state(WATCHED, "It receives work, and its losses are counted.",
              turn="orchestrator", within=MEMORY, tone=Tone.ACTIVE),
        state(QUARANTINED, "It receives no work.", turn="operator", within=SENTENCE, tone=Tone.BAD),
        end(CLEARED, "Its losses are forgotten."),
    ),
    rows=(
        on(lost, WATCHED, STAY, owner="orchestrator", arms=MEMORY,
           why="Single losses are normal."),
        on(forgiven, (WATCHED, QUARANTINED), STAY, owner="orchestrator", why="The job was the cause."),
        on(too_often, WATCHED, QUARANTINED, owner="orchestrator", why="It would probably lose further work."),
        on(lift, (WATCHED, QUARANTINED), CLEARED, owner="operator", why="The cause is fixed."),
        on(served, QUARANTINED, CLEARED, owner="clock", why="The cause may be gone by now."),
        on(forget, WATCHED, CLEARED, owner="clock", why="Old losses do not count."),
        ignore(lost, QUARANTINED, why="it receives nothing; its remaining work was lost"),
        ignore(too_often, (QUARANTINED, CLEARED), why="nothing is counted there"),
        ignore(served, (WATCHED, CLEARED), why="it is not quarantined"),
        ignore(forget, (QUARANTINED, CLEARED), why="nothing is counted"),
        ignore(lift, CLEARED, why="it is over"),
    ),
)
# fmt: on


RUNNER_LOST = "runner.lost"
"""The topic of messages that a runner has lost a job."""
OCCASION = timedelta(seconds=60)
"""Losses within this time after the first count as one occasion."""
MOST_LOSSES = 200
"""Maximum number of losses to remember."""


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of losses; the section `[quarantine]` of the project file."""

    occasions: int = 3
    """Number of occasions that cause a quarantine."""
    within_s: float = 3_600.0
    lasts_s: float = 1_800.0


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """A lost job."""

    job_id: str
    at: datetime


class StandingBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a runner's standing."""

    runner: str
    losses: tuple[Loss, ...] = ()
    """Losses, the latest last; each job once."""
    until: datetime | None = None
    """End of the quarantine."""
    reason: str = ""


class LostWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that a runner was silent for too long."""

    runner: str
    job_id: str
    attempt: str
    others: tuple[str, ...] = ()
    """Runners that have lost the same job before."""


def name_of(runner_id: str) -> str:
    """Return the name of a runner, without its incarnation."""
    return runner_id.rpartition("#")[0] or runner_id


def label_of(runner: str) -> str:
    """Return the label by which the standing of a runner is found."""
    return f"runner.{hashlib.sha256(runner.encode()).hexdigest()[:32]}"


def with_loss(body: StandingBody, job_id: str, now: datetime, within_s: float) -> StandingBody:
    """Return the body with another loss, without those older than the window."""
    young = [
        one for one in body.losses if one.at > now - timedelta(seconds=within_s) and one.job_id != job_id
    ]
    return msgspec.structs.replace(body, losses=(*young, Loss(job_id, now))[-MOST_LOSSES:])


def without(body: StandingBody, jobs: Collection[str]) -> StandingBody:
    """Return the body without losses that were not its fault."""
    return msgspec.structs.replace(body, losses=tuple(one for one in body.losses if one.job_id not in jobs))


def occasions(losses: Iterable[Loss]) -> int:
    """Return the number of occasions of these losses."""
    count, began = 0, None
    for at in sorted(one.at for one in losses):
        if began is None or at > began + OCCASION:
            count, began = count + 1, at
    return count


def sentence_of(body: StandingBody) -> str:
    """Return the reason of a quarantine, in words."""
    jobs = ", ".join(one.job_id for one in body.losses[-3:])
    until = "" if body.until is None else f" until {body.until:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"{body.runner} is quarantined{until}: it sent no heartbeat on {occasions(body.losses)} occasions "
        f"while it had work, the last of it {jobs}."
    )


MOST_LISTED = 1_000
MANY = 500
"""Maximum losses counted in one round."""
PATIENCE = timedelta(seconds=30)
"""Time after which other processes count uncounted messages."""
_OPEN = (WATCHED, QUARANTINED)
_STANDINGS = RecordKind(
    STANDING,
    StandingBody,
    columns=lambda body: Columns(labels=(label_of(body.runner),)),
    events=EventRules(sent=(too_often,)),
)


class Quarantine:
    """Quarantines runners."""

    def __init__(self, engine: Engine, settings: QuarantineSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._standings = _STANDINGS.lasting(
            losses_remembered_s=settings.within_s, quarantine_s=settings.lasts_s
        )
        self.held: dict[str, StandingBody] = {}
        """The quarantined runners by name, as far as is known here."""

    def why_not(self, runner_id: str) -> str:
        """Return why this runner is quarantined, as far as is known here.

        It is empty if it is not.
        """
        held = self.held.get(name_of(runner_id))
        return "" if held is None else sentence_of(held)

    async def look(self) -> None:
        """Reload the quarantined runners."""
        query = Query(kind=STANDING.name, states=(QUARANTINED,), limit=MOST_LISTED)
        found = (await self._engine.store.find(query)).records
        self.held = {body.runner: body for body in map(body_of, found)}

    async def sweep(self, *, limit: int = 500) -> int:
        """End expired quarantines and old standings; return their number."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            ended = [self._standings.fired(record, now) for record in records]
            return [Commit(changes=(standing.change(actor="clock"),)) for standing in ended]

        outcomes = await self._engine.due([STANDING.name], limit, decide)
        await self.look()
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def keep(self, *, limit: int = MANY) -> int:
        """Count the losses in pending messages; return the number of messages."""
        taken = await take_all(self._engine.store, (RUNNER_LOST,), PATIENCE, limit=limit)
        if not taken:
            return 0
        await self.count(message_in(record.body, LostWork) for record in taken)
        commit_id = self._engine.commit_id()
        arrived = Commit(changes=tuple(sent(record, commit_id) for record in taken))
        await commit_with_recovery(self._engine.store, self._engine.committer, arrived)
        return len(taken)

    async def count(self, losses: Iterable[LostWork]) -> None:
        """Count losses of runners: each job once, so that messages may repeat.

        A runner that dies loses all its jobs at once. Its record is changed once for all of them, because
        each change conflicts with other processes that count at the same time.
        """
        blamed: dict[str, list[str]] = {}
        cleared: dict[str, list[str]] = {}
        for loss in losses:
            for other in loss.others:
                cleared.setdefault(other, []).append(loss.job_id)
            if not loss.others:
                blamed.setdefault(loss.runner, []).append(loss.job_id)
        for runner, jobs in blamed.items():
            await self._blame(runner, jobs)
        for runner, jobs in cleared.items():
            await self._forgive(runner, jobs)
        await self.look()

    async def list(self) -> list[StandingView]:
        """Return every runner that is watched or quarantined."""
        query = Query(kind=STANDING.name, states=_OPEN, limit=MOST_LISTED)
        return [_view(record) for record in (await self._engine.store.find(query)).records]

    async def lift(self, runner: str, *, actor: str = "", reason: str = "") -> StandingView:
        """Lift a quarantine, and clear the losses."""
        found = await self._find(name_of(runner)) or await self._find(runner)
        if found is None:
            raise UnknownWorker(
                f"{runner} is not quarantined, nor has it lost work recently.",
                todo="List quarantined runners: interlock worker quarantined",
                facts={"runner": runner},
            )

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = records[0]
            if record is None or record.state == CLEARED:
                return Decision(None)
            change = _STANDINGS.step(record, lift, now, actor=actor, reason=reason)
            return Decision(None, Commit(changes=(change,)))

        await self._engine.apply([found.key], decide)
        await self.look()
        (after,) = await self._engine.store.load([found.key])
        assert after is not None
        return _view(after)

    # Counting

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
        """Return the key of a new record.

        It is the same for all processes at about the same time, so that one is created.
        """
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
            event = lift if enough else forgiven
            change = _STANDINGS.step(record, event, now, body, actor="orchestrator")
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


def body_of(record: Record) -> StandingBody:
    """Return the body of a record."""
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
        explanation=sentence_of(body) if held else f"{body.runner} receives work; its losses are counted.",
        todo=f"When the cause is fixed: interlock worker lift {body.runner}" if held else "",
    )
