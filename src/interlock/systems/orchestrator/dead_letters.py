"""Dead letters: failed jobs that have no try left, until they are retried or discarded.

A failed job is a dead letter as it stands, so its failure costs nothing more. The retry or the discard
is a record of the kind `dead_letter` under the id of the job, made in the commit that does it: a job is
retried or discarded once, however many people decide at the same time. Jobs of a run and executions of a
simulation are none: their run or simulation deals with them.

If settings name an alert task, the commit that fails a job carries a message (`notifications.alert_for`), and
its delivery submits a job of that task, once for each dead letter.

Why: decision 0412.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from interlock.api.messages import Done, Undone
from interlock.engine.aggregate import Columns, RecordKind
from interlock.engine.unit_of_work import Decision, Engine, IdempotencyKey
from interlock.errors import InterlockError, StoreUnavailable, TransitionNotAllowed
from interlock.lifecycles import job
from interlock.lifecycles.job import FAILED, JOB, JobState
from interlock.machine import Event, Machine, Tone, command, end, on, refuse, state
from interlock.store.records import Change, Commit, Key, Record, Repeated
from interlock.systems.orchestrator.body import decode_body, unknown_job
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.notifications import Alert, belongs_elsewhere
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import JobParts, check_spec, new_job
from interlock.systems.orchestrator.uniqueness import KeyedSubmission, apply_keyed
from interlock.systems.orchestrator.views import filter_fields, origin_again, spec_of
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.filters import Filter, Selection
from interlock.wire.jobs import DeadLetterView, JobSpec, JobView

RETRY, DISCARD = "retry", "discard"
PAGE = 200


class DeadLetterState(StrEnum):
    """States of a dead letter."""

    OPEN = "open"
    RETRIED = "retried"
    DISCARDED = "discarded"


OPEN, RETRIED, DISCARDED = DeadLetterState.OPEN, DeadLetterState.RETRIED, DeadLetterState.DISCARDED

retry: Event = command("retry", "Retry the job as a new job.", by="operator")
discard: Event = command("discard", "Discard it: the job stays FAILED.", by="operator")

# fmt: off
DEAD_LETTER = Machine[DeadLetterState, None](
    "dead_letter",
    "A failed job without a try left, and the action taken on it.",
    initial=OPEN,
    spine=(OPEN, RETRIED),
    stop=(discard,),
    states=(
        state(OPEN, "The job has failed, and nothing was done about it.", turn="operator", tone=Tone.WAITING),
        end(RETRIED, "It was retried as a new job."),
        end(DISCARDED, "It was discarded."),
    ),
    rows=(
        on(retry, OPEN, RETRIED, owner="operator", why="The cause is gone, or the input is corrected."),
        on(discard, OPEN, DISCARDED, owner="operator", why="A retry would be of no use."),
        *(refuse(one, RETRIED, why="it was retried before") for one in (retry, discard)),
        *(refuse(one, DISCARDED, why="it was discarded before") for one in (retry, discard)),
    ),
)
# fmt: on


class LetterBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of the record of a dead letter."""

    reason: str = ""
    by: str = ""
    retried_as: str = ""
    edited: bool = False
    """Whether it was retried with another input."""


_LETTERS = RecordKind(DEAD_LETTER, LetterBody)


def decide_retry(
    job_id: str,
    found: Sequence[Record | None],
    now: datetime,
    *,
    settings: OrchestratorSettings,
    new_id: str,
    commit_id: str,
    by: LetterBody,
    given: msgspec.Raw | None = None,
    as_letter: bool = False,
) -> Decision[str]:
    """Submit an ended job again as a new one.

    A dead letter is marked as retried by that. `as_letter`: refuse a job that is no open dead letter. `given`
    replaces the input.
    """
    ended, letter = _present(job_id, found[0]), found[1]
    if as_letter:
        check_letter(ended)
    spec = _resubmission_of(_ended(ended), given)
    if given is not None:
        check_spec(spec, settings)
    draft = new_job(spec, new_id, now, settings, JobParts(origin_job_id=job_id, origin=origin_again(ended)))
    changes = [draft.change(commit_id=commit_id, actor=by.by, reason=by.reason or f"again, after {job_id}")]
    changes += limit_messages_of(draft)
    if as_letter or (letter is None and is_letter(ended)):
        body = msgspec.structs.replace(by, retried_as=new_id, edited=given is not None)
        changes.append(_handled(retry, ended, letter, body, now, commit_id))
    return Decision(new_id, Commit(changes=tuple(changes)))


def _resubmission_of(ended: Record, given: msgspec.Raw | None) -> JobSpec:
    """Return the spec of an ended job, with its input or another one."""
    spec = spec_of(ended)
    return spec if given is None else msgspec.structs.replace(spec, input=given)


def decide_discard(
    job_id: str, found: Sequence[Record | None], now: datetime, *, commit_id: str, by: LetterBody
) -> Decision[None]:
    """Discard a dead letter; its job stays failed."""
    ended = _present(job_id, found[0])
    check_letter(ended)
    return Decision(None, Commit(changes=(_handled(discard, ended, found[1], by, now, commit_id),)))


def _handled(
    event: Event, ended: Record, letter: Record | None, body: LetterBody, now: datetime, commit_id: str
) -> Change:
    if letter is None:
        draft = _LETTERS.new(ended.id, body, now, Columns(queue=ended.queue))
    else:
        draft = _LETTERS.of(letter, now)
    if (refused := draft.send(event)) is not None:
        raise _dealt_with(ended.id, letter, event) if letter is not None else refused.error()
    return draft.change(commit_id=commit_id, actor=body.by, reason=body.reason)


def _dealt_with(job_id: str, letter: Record, event: Event) -> TransitionNotAllowed:
    body = _LETTERS.body_of(letter)
    new = f" as {body.retried_as}" if body.retried_as else ""
    by = f" by {body.by}" if body.by else ""
    again = f"To retry it anyway: interlock job retry {job_id}"
    return TransitionNotAllowed(
        f"The dead letter {job_id} was {letter.state}{new}{by}, so {event.name} is refused.",
        todo=f"See the new job: interlock job show {body.retried_as}" if new else again,
        facts={
            "job_id": job_id,
            "machine": DEAD_LETTER.name,
            "state": letter.state,
            "new_id": body.retried_as,
        },
    )


def is_letter(record: Record) -> bool:
    """Return whether a job has failed and is a dead letter.

    A run or a simulation handles failures of its jobs itself.
    """
    return record.state == FAILED and not belongs_elsewhere(decode_body(record.body))


def check_letter(record: Record) -> None:
    """Raise for a job that is no dead letter."""
    if record.state != FAILED:
        raise TransitionNotAllowed(
            f"The job {record.id} is {record.state}, so it is not a dead letter: only a failed job is.",
            todo="List dead letters: interlock dead-letter list",
            facts={"job_id": record.id, "machine": JOB.name, "state": record.state},
        )
    body = decode_body(record.body)
    if belongs_elsewhere(body):
        whose = "simulation" if body.run is None else "run"
        todo = f"interlock run rerun {body.run.run_id} --failed" if body.run else "Resume the simulation."
        raise TransitionNotAllowed(
            f"The job {record.id} belongs to a {whose}, which handles its failure.",
            todo=todo,
            facts={"job_id": record.id, "machine": JOB.name, "state": record.state},
        )


def _ended(record: Record) -> Record:
    if JobState(record.state) in job.ENDED:
        return record
    raise TransitionNotAllowed(
        f"The job {record.id} is {record.state}; only a finished job can be retried.",
        allowed=["cancel"],
        todo="Wait for its end, or cancel it first.",
        facts={"job_id": record.id, "machine": JOB.name, "state": record.state},
    )


def _present(job_id: str, record: Record | None) -> Record:
    if record is None:
        raise unknown_job(job_id)
    return record


def keys_of(job_id: str) -> list[Key]:
    """Return the keys of a job and of the action taken on it."""
    return [Key(JOB.name, job_id), Key(DEAD_LETTER.name, job_id)]


async def retry_once(
    engine: Engine,
    job_id: str,
    idempotency_key: IdempotencyKey | None,
    *,
    settings: OrchestratorSettings,
    draw: Callable[[datetime], str],
    by: LetterBody,
    given: msgspec.Raw | None = None,
    as_letter: bool = False,
) -> str:
    """Submit an ended job again, once per request; return the new id."""

    (ended,) = await engine.load(keys_of(job_id)[:1])
    again = [] if ended is None else [_resubmission_of(ended, given)]

    def decide(found: Sequence[Record | None], keyed: KeyedSubmission, now: datetime) -> Decision[str]:
        for spec in again:
            keyed.find(spec)  # raises where another job has its unique key by now
        decision = decide_retry(
            job_id,
            found,
            now,
            settings=settings,
            new_id=draw(now),
            commit_id=engine.commit_id(),
            by=by,
            given=given,
            as_letter=as_letter,
        )
        request = idempotency_key.answered(msgspec.json.encode(decision.answer)) if idempotency_key else None
        assert decision.commit is not None
        for spec in again:
            keyed.note(spec, decision.answer)
        taken = keyed.changes(commit_id=engine.commit_id(), actor=by.by)
        changes = (*decision.commit.changes, *taken)
        return Decision(
            decision.answer, msgspec.structs.replace(decision.commit, changes=changes, request=request)
        )

    applied = await apply_keyed(engine, idempotency_key, keys_of(job_id), again, decide, settings)
    if isinstance(applied, Repeated):
        return msgspec.json.decode(applied.recorded.answer.body, type=str)
    return applied.answer


class JobsOfLetters(Protocol):
    """Jobs, as far as dead letters use them: jobs themselves mark the letter of one that is retried."""

    @property
    def draw(self) -> Callable[[datetime], str]:
        """Return the function that draws an id."""
        ...

    async def view(self, record: Record) -> JobView:
        """Return the view of a loaded job."""
        ...

    async def views(self, records: Sequence[Record]) -> list[JobView]:
        """Return the views of several loaded jobs."""
        ...

    async def submit(self, spec: JobSpec, *, actor: str = "", request_id: str | None = None) -> str:
        """Return the id of a new job, or of the one of an earlier request."""
        ...


class DeadLetterService:
    """The dead letters in a store."""

    def __init__(self, engine: Engine, jobs: JobsOfLetters, *, settings: OrchestratorSettings) -> None:
        self._engine = engine
        self._jobs = jobs
        self._settings = settings

    # Looking

    async def get(self, job_id: str) -> DeadLetterView:
        """Return a dead letter, and the action taken on it."""
        ended, letter = await self._engine.load(keys_of(job_id))
        if letter is None:
            check_letter(_present(job_id, ended))
        return _view(await self._jobs.view(_present(job_id, ended)), letter)

    async def find(
        self, wanted: Filter, *, limit: int = 100, cursor: str = ""
    ) -> tuple[list[DeadLetterView], str]:
        """Return a page of open dead letters, newest first, and a cursor.

        The cursor leads to the next page. Handled ones lie among the failed jobs, so a page looks at a
        bounded number of them: it may be short, or empty, and still have a cursor.
        """
        wanted = wanted.among([str(FAILED)])
        selection = wanted.selection(await self._engine.clock.now(), limit=PAGE, cursor=cursor)
        if selection.impossible:
            return [], ""
        if wanted.ids:
            return await self._named(selection, limit), ""
        records, cursor = await self._looked_through(selection, limit)
        views = await self._jobs.views(records)
        return [_view(view, None) for view in views], cursor

    async def _looked_through(self, selection: Selection, limit: int) -> tuple[list[Record], str]:
        kept: list[Record] = []
        looked_at, query = 0, selection.query
        while True:
            page = await self._engine.store.find(query)
            meant = await self._open_among(selection, page.records)
            room = limit - len(kept)
            kept += [page.records[place] for place in meant[:room]]
            if len(meant) >= room:
                seen = meant[room - 1] + 1
                if seen == len(page.records):
                    return kept, page.cursor
                # The next page begins behind the last one that is shown.
                upto = msgspec.structs.replace(query, limit=seen)
                return kept, (await self._engine.store.find(upto)).cursor
            looked_at += len(page.records) if len(page.records) == PAGE else LOOKED_AT
            if not page.cursor or looked_at >= LOOKED_AT:
                return kept, page.cursor
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def _open_among(self, selection: Selection, records: Sequence[Record]) -> list[int]:
        """Return the places of those that are meant, and open."""
        meant = [
            place
            for place, record in enumerate(records)
            if selection.keeps(filter_fields(record)) and is_letter(record)
        ]
        if not meant:
            return []
        found = await self._engine.store.load([Key(DEAD_LETTER.name, records[place].id) for place in meant])
        return [place for place, letter in zip(meant, found, strict=True) if letter is None]

    async def _named(self, selection: Selection, limit: int) -> list[DeadLetterView]:
        loaded = await self._engine.store.load([Key(JOB.name, name) for name in selection.filter.ids])
        there = [record for record in loaded if record is not None]
        places = await self._open_among(selection, there)
        views = await self._jobs.views([there[place] for place in places[:limit]])
        return [_view(view, None) for view in views]

    # Dealing with them

    async def retry(
        self,
        job_id: str,
        *,
        input: msgspec.Raw | None = None,  # noqa: A002 - as in the spec of a job
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> str:
        """Submit a dead letter again, perhaps with another input; return the id."""
        idempotency_key = self._engine.key_for(request_id, f"retry the dead letter {job_id}", input)
        return await retry_once(
            self._engine,
            job_id,
            idempotency_key,
            settings=self._settings,
            draw=self._jobs.draw,
            by=LetterBody(reason=reason, by=actor),
            given=input,
            as_letter=True,
        )

    async def discard(
        self, job_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> DeadLetterView:
        """Discard a dead letter; its job stays failed."""
        idempotency_key = self._engine.key_for(request_id, f"discard the dead letter {job_id}", reason)
        by = LetterBody(reason=reason, by=actor)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            decision = decide_discard(job_id, found, now, commit_id=self._engine.commit_id(), by=by)
            request = idempotency_key.answered(b"null") if idempotency_key else None
            assert decision.commit is not None
            return Decision(None, msgspec.structs.replace(decision.commit, request=request))

        async def do() -> DeadLetterView:
            await self._engine.apply_once(idempotency_key, keys_of(job_id), decide)
            return await self.get(job_id)

        return await self._engine.answer_once(idempotency_key, DeadLetterView, do)

    async def act(
        self,
        action: str,
        letters: Sequence[DeadLetterView],
        *,
        reason: str = "",
        actor: str = "",
        request_id: Callable[[str], str | None] = lambda _: None,
    ) -> list[Done | Undone]:
        """Retry or discard each of these; a refusal does not stop the others."""

        async def one(letter: DeadLetterView) -> Done | Undone:
            own = request_id(letter.id)
            try:
                if action == RETRY:
                    new_id = await self.retry(letter.id, reason=reason, actor=actor, request_id=own)
                    return Done(id=letter.id, state=RETRIED, new_id=new_id)
                left = await self.discard(letter.id, reason=reason, actor=actor, request_id=own)
                return Done(id=letter.id, state=left.state)
            except StoreUnavailable:
                raise
            except InterlockError as error:
                return Undone(id=letter.id, code=error.code, error=error.sentence)

        return list(await asyncio.gather(*map(one, letters)))

    # Alerting

    async def alert(self, payload: bytes) -> None:
        """Submit the alert of a dead letter; safe to repeat."""
        order = msgspec.json.decode(payload, type=Alert)
        given = msgspec.Raw(msgspec.json.encode({"letter": order.letter}))
        about = f"{order.letter.job_id} has failed"
        spec = JobSpec(task=order.task, queue=order.queue, input=given, description=about)
        await self._jobs.submit(spec, actor="orchestrator", request_id=f"alert.{order.letter.job_id}")


def _view(view: JobView, letter: Record | None) -> DeadLetterView:
    if letter is None:
        return DeadLetterView(id=view.id, state=OPEN, job=view)
    body = _LETTERS.body_of(letter)
    return DeadLetterView(
        id=view.id,
        state=letter.state,
        job=view,
        retried_as=body.retried_as or None,
        edited=body.edited,
        reason=body.reason,
        by=body.by,
        at=letter.updated_at,
    )
