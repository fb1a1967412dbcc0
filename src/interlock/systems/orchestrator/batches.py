"""Batches: many jobs with one progress, one cancel, and a callback when all have ended.

The jobs of a batch are named by *parts*, records of up to 500 jobs each with one letter for the outcome of
each job. A job names its part, and reports its end to it in the commit in which it ends. A part receives many
ends at once. When its last job has ended it is settled, in one commit with the batch, which counts its
settled parts: so 10,000 ends change the record of the batch twenty times.

Why: decision 0421.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from interlock.engine.aggregate import Columns, Entity, RecordKind, WriteOnce
from interlock.engine.outbox import outgoing
from interlock.engine.unit_of_work import Applied, Decision, Engine, IdempotencyKey
from interlock.errors import InvalidJob, UnknownBatch
from interlock.lifecycles import job
from interlock.machine import STAY, Event, Machine, Tone, command, consequence, end, on, refuse, rest, state
from interlock.machine.cascade import EventRules
from interlock.store.cursors import read_number
from interlock.store.records import Change, Commit, Key, Query, Record, Repeated
from interlock.systems.orchestrator.admissions import LimitsNotified
from interlock.systems.orchestrator.dependencies import EndMessage
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.ids import Draw
from interlock.systems.orchestrator.jobs import Jobs
from interlock.systems.orchestrator.limits import Limits
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import NewJobs, check_spec, group_equal_specs, new_job
from interlock.wire.batches import (
    MAX_BATCH,
    BatchAddition,
    BatchCounts,
    BatchJob,
    BatchJobs,
    BatchList,
    BatchSpec,
    BatchView,
)
from interlock.wire.jobs import JobSpec

# The batch


class BatchState(StrEnum):
    """States of a batch."""

    OPEN = "OPEN"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"
    CANCELED = "CANCELED"


OPEN, RUNNING, STOPPING = BatchState.OPEN, BatchState.RUNNING, BatchState.STOPPING
ENDED, CANCELED = BatchState.ENDED, BatchState.CANCELED

add: Event = command("add", "Jobs are added to it.", by="user")
close_it: Event = command("close", "No more jobs are added to it.", by="user")
count: Event = command("count", "All jobs of a part of it have ended.", by="orchestrator")
finish: Event = command("finish", "All of its jobs have ended.", by="orchestrator")
cancel: Event = consequence("cancel", "Its jobs are not wanted any more.", by="user")

# fmt: off
BATCH = Machine[BatchState, None](
    "job_batch",
    "Many jobs with one progress, one cancel, and a callback when all have ended.",
    initial=OPEN,
    spine=(OPEN, RUNNING, ENDED),
    stop=(cancel,),
    states=(
        rest(OPEN, "Jobs are added to it."),
        state(RUNNING, "Some of its jobs have not ended.", turn="orchestrator"),
        state(STOPPING, "Its jobs are being canceled.", turn="orchestrator"),
        end(ENDED, "All of its jobs have ended."),
        end(CANCELED, "It was canceled, and all of its jobs have ended.", tone=Tone.STOPPED),
    ),
    rows=(
        on(add, OPEN, STAY, owner="orchestrator", why="It is open."),
        on(close_it, OPEN, RUNNING, owner="orchestrator", why="It has all of its jobs."),
        on(count, (OPEN, RUNNING, STOPPING), STAY, owner="orchestrator", why="Some of its jobs have ended."),
        on(finish, RUNNING, ENDED, owner="orchestrator", why="Nothing of it is left to do."),
        on(finish, STOPPING, CANCELED, owner="orchestrator", why="The last of its jobs has stopped."),
        on(cancel, (OPEN, RUNNING), STOPPING, owner="orchestrator", why="Its jobs are asked to stop."),
        refuse(finish, OPEN, why="jobs may still be added to it"),
        refuse(add, (RUNNING, STOPPING), why="no more jobs are added to it"),
        refuse(close_it, (RUNNING, STOPPING), why="it is closed already"),
        *(refuse(event, (ENDED, CANCELED), why="all of its jobs have ended")
          for event in (add, close_it, count, finish, cancel)),
        refuse(cancel, STOPPING, why="it is being canceled already"),
    ),
)
# fmt: on


class BatchBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of the record of a batch."""

    spec: BatchSpec
    total: int = 0
    parts: int = 0
    settled: int = 0
    """Number of parts of which all jobs have ended."""
    counts: BatchCounts = BatchCounts()
    """Counts of these parts."""
    callback_id: str | None = None
    by: str = ""
    reason: str = ""


BATCHES = RecordKind(BATCH, BatchBody, columns=lambda _: Columns(), events=EventRules(sent=(cancel,)))


# Its parts


class PartState(StrEnum):
    """States of a part of a batch."""

    OPEN = "open"
    SETTLED = "settled"
    DROPPED = "dropped"


settle: Event = command("settle", "All of its jobs have ended.", by="orchestrator")
drop: Event = consequence("drop", "Not wanted any more.", by="operator")

PART = WriteOnce(
    "job_batch_part",
    "Up to 500 jobs of a batch, with the outcome of each.",
    opened=state(PartState.OPEN, "Some of its jobs have not ended.", turn="orchestrator"),
    settled=end(PartState.SETTLED, "All of its jobs have ended."),
    dropped=end(PartState.DROPPED, "Not wanted any more."),
    settle=settle,
    why="The last of its jobs has ended.",
    drop=drop,
)
PART_SIZE = 500
LISTED_PARTS = 4
"""Maximum number of parts of a batch that are read for a list."""
_LETTERS = {job.COMPLETED: "c", job.FAILED: "f", job.CANCELED: "x"}
_STATES = {letter: str(state) for state, letter in _LETTERS.items()}
_LIVING = "."


class PartBody(msgspec.Struct, frozen=True):
    """Jobs of a part, and a letter for the outcome of each."""

    ids: tuple[str, ...]
    outcomes: str

    @property
    def counts(self) -> BatchCounts:
        """The number of jobs by outcome."""
        completed, failed, canceled = (self.outcomes.count(letter) for letter in "cfx")
        return BatchCounts(total=len(self.ids), completed=completed, failed=failed, canceled=canceled)

    @property
    def living(self) -> list[str]:
        """The jobs that are not known to have ended."""
        return [name for name, letter in zip(self.ids, self.outcomes, strict=True) if letter == _LIVING]


_decode_part = msgspec.json.Decoder(PartBody).decode
_ENCODER = msgspec.json.Encoder()
PREFIX = "b_"


def batch_key(batch_id: str) -> Key:
    """Return the key of a batch."""
    return Key(BATCH.name, batch_id)


def part_keys(batch_id: str, parts: int) -> list[Key]:
    """Return the keys of the parts of a batch."""
    return [Key(PART.name, f"{batch_id}.{number}") for number in range(parts)]


def is_part(name: str) -> bool:
    """Return whether the name of a follower is that of a batch's part.

    A job with such a follower belongs to a batch.
    """
    return name.startswith(PREFIX)


# Deciding

CANCELS = "batch.cancel"
"""The topic of the message that stops the jobs of a batch."""


class CancelBatch(msgspec.Struct, frozen=True):
    """A message to stop the jobs of a batch."""

    batch_id: str
    reason: str = ""


def decide_ends(
    ends: Mapping[str, EndMessage],
    found: Sequence[Record | None],
    now: datetime,
    settings: OrchestratorSettings,
    draw: Draw,
    commit_id: str,
) -> Decision[bool]:
    """Note the ends of jobs; return whether a callback lines up.

    They are noted in a part, and with the last one in its batch.
    """
    part, batch = found
    if part is None or part.state != PartState.OPEN:
        return Decision(False)
    before = _decode_part(part.body)
    after = replace(before, outcomes="".join(_letters(before, ends)))
    if after == before:
        return Decision(False)
    over = _LIVING not in after.outcomes
    body = _ENCODER.encode(after)
    changes = [
        PART.change(part.id, body, settle=over, before=part, actor="orchestrator", commit_id=commit_id)
    ]
    limited = False
    if over and batch is not None and batch.state not in (ENDED, CANCELED):
        entity = BATCHES.of(batch, now)
        known = entity.body
        entity.body = replace(known, settled=known.settled + 1, counts=known.counts.plus(after.counts))
        entity.must(count)
        more = _finished(entity, settings, draw, commit_id)
        limited = len(more) > 1
        changes += (entity.change(commit_id=commit_id, actor="orchestrator"), *more)
    return Decision(limited, Commit(changes=tuple(changes)))


def _letters(part: PartBody, ends: Mapping[str, EndMessage]) -> list[str]:
    return [
        _LETTERS[job.JobState(ends[name].state)] if letter == _LIVING and name in ends else letter
        for name, letter in zip(part.ids, part.outcomes, strict=True)
    ]


def _finished(
    entity: Entity[BatchBody], settings: OrchestratorSettings, draw: Draw, commit_id: str
) -> list[Change]:
    """End a batch whose jobs have ended; return the changes with its callback."""
    body = entity.body
    if entity.state == OPEN or body.settled < body.parts:
        return []
    entity.must(finish)
    counts, spec = body.counts, body.spec
    wanted = spec.on == "end" or counts.completed == counts.total
    if entity.state != ENDED or spec.callback is None or not wanted:
        return []
    draft = new_job(_with_counts(entity.id, spec, counts), draw(entity.now), entity.now, settings)
    entity.body = replace(body, callback_id=draft.id)
    return [draft.change(commit_id=commit_id, actor="orchestrator"), *limit_messages_of(draft)]


def _with_counts(batch_id: str, spec: BatchSpec, counts: BatchCounts) -> JobSpec:
    assert spec.callback is not None
    if not spec.into:
        return spec.callback
    given = msgspec.json.decode(spec.callback.input, type=dict[str, msgspec.Raw])
    fields = {"id": batch_id, **msgspec.structs.asdict(counts)}
    filled = _ENCODER.encode({**given, spec.into: fields})
    return replace(spec.callback, input=msgspec.Raw(filled))


def check_batch(spec: BatchSpec, settings: OrchestratorSettings) -> None:
    """Raise if the callback of a batch cannot be submitted."""
    if spec.callback is None:
        return
    check_spec(spec.callback, settings)
    _check_alone([spec.callback], "The callback")
    given = msgspec.json.decode(spec.callback.input)
    if spec.into and (not isinstance(given, dict) or spec.into in given):
        raise InvalidJob(
            f"The argument {spec.into} of the callback gets the counts, so its input must be an object "
            "without it.",
            todo="Leave the argument out, or name another one.",
            facts={"task": spec.callback.task, "into": spec.into},
        )


def _check_alone(specs: Sequence[JobSpec], noun: str = "A job") -> None:
    for spec in specs:
        for field in ("parent_job_id", "after", "unique"):
            if getattr(spec, field) is not None:
                raise InvalidJob(
                    f"{noun} of a batch has no {field}.",
                    todo=f"Leave {field} out, or submit the job alone.",
                    facts={"task": spec.task},
                )


AT_ONCE = 10
"""Number of parts that receive ends at the same time."""


class _NewPart(NamedTuple):
    """New jobs of a batch."""

    ids: list[str]
    changes: list[Change]


class Batches:
    """The batches of a store."""

    def __init__(
        self, engine: Engine, jobs: Jobs, *, settings: OrchestratorSettings, limits: Limits, draw: Draw
    ) -> None:
        """`draw` draws ids of batches."""
        self._engine, self._jobs = engine, jobs
        self._settings, self._limits, self._draw = settings, limits, draw

    async def create(
        self,
        spec: BatchSpec,
        jobs: Sequence[JobSpec] = (),
        *,
        close: bool = False,
        actor: str = "",
        request_id: str | None = None,
    ) -> BatchAddition:
        """Create a batch with its first jobs, all or none; `close` it if complete."""
        check_batch(spec, self._settings)
        idempotency_key = self._engine.key_for(request_id, "batch", [spec, list(jobs), close])
        if spec.callback is not None:
            (callback,) = await self._limits.with_declared_limits([spec.callback])
            spec = replace(spec, callback=callback)
        return await self._add(None, spec, jobs, close, actor, idempotency_key)

    async def add(
        self,
        batch_id: str,
        jobs: Sequence[JobSpec],
        *,
        close: bool = False,
        actor: str = "",
        request_id: str | None = None,
    ) -> BatchAddition:
        """Add jobs to an open batch, all or none; `close` it after them."""
        idempotency_key = self._engine.key_for(request_id, f"batch {batch_id}", [list(jobs), close])
        return await self._add(batch_id, None, jobs, close, actor, idempotency_key)

    async def _add(
        self,
        batch_id: str | None,
        spec: BatchSpec | None,
        given: Sequence[JobSpec],
        closed: bool,
        actor: str,
        idempotency_key: IdempotencyKey | None,
    ) -> BatchAddition:
        _check_alone(given)
        group_equal_specs(given, self._settings)
        specs = list(await self._limits.with_declared_limits(given)) if given else []
        groups = [
            group_equal_specs(specs[at : at + PART_SIZE], self._settings)
            for at in range(0, len(specs), PART_SIZE)
        ]

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[BatchAddition]:
            commit_id = self._engine.commit_id()
            if spec is not None:
                entity = BATCHES.new(self._draw(now), BatchBody(spec=spec, by=actor), now)
            else:
                entity = BATCHES.of(_present(batch_id or "", found[0]), now)
            body = entity.body
            if specs:
                entity.must(add)
            if body.total + len(specs) > MAX_BATCH:
                raise InvalidJob(
                    f"A batch has at most {MAX_BATCH} jobs, and would have {body.total + len(specs)}.",
                    todo="Make several batches.",
                    facts={"batch_id": entity.id, "limit": MAX_BATCH},
                )
            changes: list[Change] = []
            ids: list[str] = []
            for number, some in enumerate(groups, start=body.parts):
                made = self._new_part(f"{entity.id}.{number}", some, now, commit_id=commit_id, actor=actor)
                ids += made.ids
                changes += made.changes
            entity.body = replace(body, total=body.total + len(ids), parts=body.parts + len(groups))
            more: list[Change] = []
            if closed:
                entity.must(close_it)
                more = _finished(entity, self._settings, self._jobs.draw, commit_id)
            answer = BatchAddition(batch_id=entity.id, ids=tuple(ids))
            request = idempotency_key.answered(_ENCODER.encode(answer)) if idempotency_key else None
            batch = entity.change(commit_id=commit_id, actor=actor, note=True)
            return Decision(answer, Commit(changes=(batch, *changes, *more), request=request))

        keys = [] if batch_id is None else [batch_key(batch_id)]
        applied = await self._engine.apply_once(idempotency_key, keys, decide)
        if any(spec.limits for spec in specs):
            self._engine.bus.publish(LimitsNotified())
        if isinstance(applied, Repeated):
            return msgspec.json.decode(applied.recorded.answer.body, type=BatchAddition)
        return applied.answer

    def _new_part(
        self, name: str, groups: Sequence[NewJobs], now: datetime, *, commit_id: str, actor: str
    ) -> _NewPart:
        """Return new jobs and the part that names them."""
        ids = [self._jobs.draw(now) for group in groups for _ in group.places]
        changes: list[Change] = []
        for group in groups:
            names = [ids[place] for place in group.places]
            changes += group.commit(
                names, now, self._settings, commit_id=commit_id, actor=actor, then=(name,)
            ).changes
        held = _ENCODER.encode(PartBody(tuple(ids), _LIVING * len(ids)))
        batch_id = name.rpartition(".")[0]
        changes.append(
            PART.change(name, held, settle=False, parent=batch_id, actor=actor, commit_id=commit_id)
        )
        return _NewPart(ids, changes)

    async def note_ends(self, parts: Mapping[str, Mapping[str, EndMessage]]) -> None:
        """Note the ends of jobs in the parts that they name."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(name: str, ends: Mapping[str, EndMessage]) -> None:
            def decide(found: Sequence[Record | None], now: datetime) -> Decision[bool]:
                draw, commit_id = self._jobs.draw, self._engine.commit_id()
                return decide_ends(ends, found, now, self._settings, draw, commit_id)

            keys = [Key(PART.name, name), batch_key(name.rpartition(".")[0])]
            async with turns:
                applied = await self._engine.apply(keys, decide)
            if isinstance(applied, Applied) and applied.answer:
                self._engine.bus.publish(LimitsNotified())

        await asyncio.gather(*(one(name, ends) for name, ends in parts.items()))

    # Cancel

    async def cancel(
        self, batch_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> BatchView:
        """Request the cancellation of all jobs of a batch that have not ended."""
        idempotency_key = self._engine.key_for(request_id, f"cancel {batch_id}", reason)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            entity, commit_id = BATCHES.of(_present(batch_id, found[0]), now), self._engine.commit_id()
            entity.must(cancel)
            entity.body = replace(entity.body, reason=reason)
            _finished(entity, self._settings, self._jobs.draw, commit_id)
            order = _ENCODER.encode(CancelBatch(batch_id, reason))
            message = outgoing(f"{batch_id}.cancel", CANCELS, order, now)
            request = idempotency_key.answered(b"null") if idempotency_key else None
            change = entity.change(commit_id=commit_id, actor=actor, reason=reason)
            return Decision(None, Commit(changes=(change, message), request=request))

        async def do() -> BatchView:
            await self._engine.apply_once(idempotency_key, [batch_key(batch_id)], decide)
            await self._stop(batch_id, reason, actor)
            return await self.get(batch_id)

        return await self._engine.answer_once(idempotency_key, BatchView, do)

    async def stop(self, payload: bytes) -> None:
        """Cancel the jobs of a batch whose cancel was requested; safe to repeat."""
        order = msgspec.json.decode(payload, type=CancelBatch)
        await self._stop(order.batch_id, order.reason, "orchestrator")

    async def _stop(self, batch_id: str, reason: str, actor: str) -> None:
        for part in await self._parts(await self._load(batch_id)):
            if living := part.living:
                await self._jobs.cancel_all(living, reason=reason, actor=actor)

    # Views

    async def get(self, batch_id: str) -> BatchView:
        """Return a batch, with the counts of its jobs as of now."""
        record = await self._load(batch_id)
        number = _unsettled(record)
        return _view(record, await self._engine.store.load(part_keys(batch_id, number)) if number else ())

    async def page(self, *, limit: int = 50, cursor: str = "") -> BatchList:
        """Return a page of batches, newest first.

        All parts of a page are read at once, and only those of batches of up to 2,000 jobs: a larger one has
        the counts of its settled parts.
        """
        page = await self._engine.store.find(Query(kind=BATCH.name, limit=limit, cursor=cursor))
        small = [record for record in page.records if 0 < _unsettled(record) <= LISTED_PARTS]
        keys = [key for record in small for key in part_keys(record.id, _unsettled(record))]
        found = iter(await self._engine.store.load(keys) if keys else [])
        parts = {record.id: [next(found) for _ in range(_unsettled(record))] for record in small}
        views = [_view(record, parts.get(record.id, ())) for record in page.records]
        return BatchList(batches=tuple(views), cursor=page.cursor)

    async def jobs(self, batch_id: str, *, cursor: str = "") -> BatchJobs:
        """Return a page of the jobs of a batch, with the outcomes of ended ones."""
        record = await self._load(batch_id)
        number = read_number(cursor, cursor) if cursor else 0
        parts = BATCHES.body_of(record).parts
        found = await self._engine.store.load(part_keys(batch_id, parts)[number : number + 1])
        bodies = [_decode_part(part.body) for part in found if part is not None]
        jobs = [
            BatchJob(id=name, state=_STATES.get(letter, ""))
            for body in bodies
            for name, letter in zip(body.ids, body.outcomes, strict=True)
        ]
        return BatchJobs(jobs=tuple(jobs), cursor=str(number + 1) if number + 1 < parts else "")

    async def _load(self, batch_id: str) -> Record:
        (record,) = await self._engine.store.load([batch_key(batch_id)])
        return _present(batch_id, record)

    async def _parts(self, record: Record) -> list[PartBody]:
        parts = BATCHES.body_of(record).parts
        found = await self._engine.store.load(part_keys(record.id, parts)) if parts else []
        return [_decode_part(part.body) for part in found if part is not None]


def _unsettled(record: Record) -> int:
    """Return the number of parts to count; none after the batch's end."""
    return 0 if record.state in (ENDED, CANCELED) else BATCHES.body_of(record).parts


def _view(record: Record, parts: Sequence[Record | None]) -> BatchView:
    """Return the view of a batch, with the counts of these parts.

    Without any parts, it has the counts of the batch itself.
    """
    body = BATCHES.body_of(record)
    counts = replace(body.counts, total=body.total)
    if parts:
        counts = BatchCounts()
        for part in parts:
            counts = counts if part is None else counts.plus(_decode_part(part.body).counts)
    return BatchView(
        id=record.id,
        state=record.state,
        created_at=record.created_at,
        updated_at=record.updated_at,
        counts=counts,
        description=body.spec.description,
        callback=body.spec.callback.task if body.spec.callback is not None else "",
        callback_job_id=body.callback_id,
        by=body.by,
        reason=body.reason,
    )


def _present(batch_id: str, record: Record | None) -> Record:
    if record is None:
        raise UnknownBatch(
            f"There is no batch {batch_id}.",
            todo="Look for it with `interlock batch list`; ended batches are pruned after a while.",
            facts={"batch_id": batch_id},
        )
    return record
