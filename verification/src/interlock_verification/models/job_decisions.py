"""Each decider of the orchestrator, called once for each pair of value and message.

A real store commits the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from interlock.engine.outbox import MESSAGE, message_in
from interlock.errors import TransitionRefused
from interlock.lifecycles import lease
from interlock.lifecycles.job import JOB
from interlock.store.catalogue import catalogue_of
from interlock.store.memory import MemoryStore
from interlock.store.records import (
    Commit,
    Committed,
    Outcome,
    Record,
    Request,
    StepLine,
    one_by_one,
)
from interlock.store.records import (
    RequestAnswer as Reply,
)
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.attachments import LOG
from interlock.systems.orchestrator.body import JobGiven, encode_given
from interlock.systems.orchestrator.cancellation import cancelled, commit_of, swept
from interlock.systems.orchestrator.grants import ClaimInput, foresee, offers_of
from interlock.systems.orchestrator.notifications import RUN_JOBS, JobChanged
from interlock.systems.orchestrator.runner_messages import (
    Report,
    decide_completions,
    decide_message,
    result_in,
)
from interlock.systems.orchestrator.shapes import of_any_run
from interlock.systems.orchestrator.submission import JobParts, group_equal_specs, new_job
from interlock.systems.orchestrator.tokens import Token, token_for
from interlock.systems.runs.new_jobs import (
    RELEASE,
    STOP,
    JobOrder,
    NewRunJob,
    created_together,
)
from interlock.systems.runs.orders import (
    JointDecisions,
    decide_order,
)
from interlock.testing.model_checker import bit
from interlock.wire.runner import (
    Ack,
    Answer,
    CancelAck,
    ClaimRequest,
    Complete,
    Failed,
    Grant,
    Heard,
    Heartbeat,
    Message,
    Release,
    Stale,
    Succeeded,
)
from interlock_verification import claims, required_events
from interlock_verification.claims import Taken, look_at
from interlock_verification.models.job_values import (
    JOB_ID,
    NOW,
    ModelMessage,
    Say,
    Value,
    attempt_bit,
    normal,
    read_message,
    runner_of,
)
from interlock_verification.models.plan import ModelPlan

_MESSAGES: dict[Say, Callable[[str, str, int], Message]] = {
    Say.ACK: lambda token, runner, n: Ack(token=token, runner_id=runner, sequence=n),
    Say.BEAT: lambda token, runner, n: Heartbeat(token=token, runner_id=runner, sequence=n),
    Say.SUCCESS: lambda token, runner, n: Complete(
        token=token, runner_id=runner, sequence=n, outcome=Succeeded()
    ),
    Say.FAILURE: lambda token, runner, n: Complete(
        token=token, runner_id=runner, sequence=n, outcome=Failed(error="it failed", failure_class="user")
    ),
    Say.RELEASE: lambda token, runner, n: Release(token=token, runner_id=runner, sequence=n),
    Say.STOPPED: lambda token, runner, n: CancelAck(token=token, runner_id=runner, sequence=n),
}


def message_of(note: ModelMessage, token: Token, snooze: int | None = None) -> Message:
    """Return the message of a note; a job that is given back may have to wait."""
    message = _MESSAGES[note.say](str(token), runner_of(note.worker), note.number)
    if snooze is not None and isinstance(message, Release):
        return msgspec.structs.replace(message, snooze_s=float(snooze))
    return message


def reply_of(note: ModelMessage, answer: Answer) -> Say | None:
    """Return the answer that matters to the worker."""
    if not isinstance(answer, Heard):
        return Say.OVER
    if note.say is Say.ACK:
        return Say.BEGIN
    if note.say is Say.BEAT:
        return Say.TOLD if answer.cancel_requested else None
    return Say.OVER


T = TypeVar("T")
ABSENT = 0
"""The value of a job that is not submitted yet."""
COMMIT_ID = "m"
MAX_BODY = 1_048_576
OTHERS = tuple(f"{JOB_ID}{number}" for number in range(2))
"""Jobs of the same shape, decided before it in the same batch."""
ORDERED = ((RELEASE, ""), (STOP, "cancel"), (STOP, "fail_fast"), (STOP, "timeout"))
"""The possible orders of a run to a job, with their reasons."""


class DecidedEvent:
    """The result of one event for one value."""

    __slots__ = (
        "after",
        "answer",
        "changed",
        "index",
        "lines",
        "marks",
        "message",
        "reply",
        "shard",
        "until",
        "wrong",
    )

    def __init__(
        self, after: int, *, changed: bool, lines: tuple[StepLine, ...] = (), answer: str = ""
    ) -> None:
        self.after = after
        self.changed = changed
        """Whether there is a new version, even if the value is the same."""
        self.lines = lines
        self.answer = answer
        self.message: JobChanged | None = None
        """The message of the job to its run."""
        self.reply: Say | None = None
        self.shard = self.index = 0
        self.until: int | None = None
        """The last tick, from now, at which it may be committed."""
        self.marks = 0
        self.wrong = 0


class Shelf(MemoryStore):
    """A memory store that accepts records as they are."""

    def put(self, record: Record) -> None:
        """Put this record, with its version."""
        self._records[record.key] = record


class JobDecisions:
    """The values of the jobs of one plan, and the decisions about them."""

    def __init__(self, plan: ModelPlan, places: dict[str, int]) -> None:
        self.plan = plan
        self.places = places
        self.values: list[Value | None] = [None]
        self.bits = [0]
        """The observable claims of each value, as bits."""
        self.ready = [False]
        self.due = [False]
        self.unsettled = [True]
        self.stopping = [False]
        self.by_cancel = [False]
        self.named_ends = [0]
        """Attempts whose ended lease still has a name, as bits."""
        self.ended_leases = [0]
        self._ids: dict[tuple[int, Value], int] = {}
        self._job_of = [0]
        self._catalogue = catalogue_of((JOB, MESSAGE, LOG))
        self._settings = plan.settings
        self.entries: dict[tuple[int, int], DecidedEvent | None] = {}
        self.aged: dict[int, int] = {ABSENT: ABSENT}
        self.renamed: dict[tuple[int, tuple[int, ...]], int] = {}
        self._forgotten: dict[tuple[int, int], int] = {}

    # Decisions, memoised

    def receive(self, value: int, code: int) -> DecidedEvent:
        """Return the effect of a worker's message."""
        entry = self.entries.get((value, code)) or self._keep((value, code), self._receive(value, code))
        assert entry is not None
        return entry

    def claim(self, value: int, worker: int) -> DecidedEvent | None:
        """Return the grant of this job for a worker's claim, or None."""
        key = (value, -1 - worker)
        if key not in self.entries:
            self._keep(key, self._claim(value, worker))
        return self.entries[key]

    def sweep(self, value: int) -> DecidedEvent:
        """Return the effect of its overdue timers."""
        return self.entries.get((value, -8)) or self._keep((value, -8), self._sweep(value))

    def cancel(self, value: int) -> DecidedEvent:
        """Return the effect of a user's cancel."""
        return self.entries.get((value, -9)) or self._keep((value, -9), self._cancel(value))

    def submit(self, number: int) -> DecidedEvent:
        """Return the submitted job."""
        if self.plan.part(number) is not None:  # jobs of a run are created by its orders
            commit = commit_of(self._new(number), commit_id=COMMIT_ID, actor="user")
            return self._committed(ABSENT, commit, number, cause="orchestrator")
        names = (*OTHERS, JOB_ID)
        (alone,) = group_equal_specs([self.plan.spec(number)], self._settings)
        commit = alone.commit((JOB_ID,), NOW, self._settings, commit_id=COMMIT_ID, actor="user")
        (group,) = group_equal_specs([self.plan.spec(number)] * len(names), self._settings)
        batch = group.batch(names, NOW, self._settings, commit_id=COMMIT_ID, actor="user")
        return self._compared(commit, batch.commits()[-1], ABSENT, number, cause="orchestrator")

    def follow(self, value: int, number: int, order: JobOrder) -> DecidedEvent:
        """Return the effect of a run's order on a job, created if necessary."""
        key = (value, -100 - 10 * ORDERED.index((order.what, order.why)) - number)
        return self.entries.get(key) or self._keep(key, self._follow(value, number, order))

    def age(self, value: int) -> int:
        """Return the value one tick later."""
        later = self.aged.get(value)
        if later is None:
            later = self.aged[value] = self._moved(value, passed=1)
        return later

    def rename(self, value: int, names: tuple[int, ...]) -> int:
        """Return the value with the workers renamed: worker n becomes names[n]."""
        key = (value, names)
        if key not in self.renamed:
            self.renamed[key] = self._moved(value, names=names) if value else ABSENT
        return self.renamed[key]

    def forget(self, value: int, known: int) -> int:
        """Return the value without the names of ended leases, except `known`."""
        key = (value, known & self.named_ends[value])
        if key not in self._forgotten:
            self._forgotten[key] = self._moved(value, known=known)
        return self._forgotten[key]

    def judge(self, *, stale: bool, until: int | None) -> type[Outcome]:
        """Return the outcome of a commit on an old version, or with a time limit."""
        value = self.values[1]
        assert value is not None
        change = commit_of(
            cancelled(value.record(), NOW, self._settings, "cancel"), commit_id=COMMIT_ID, actor="user"
        )
        not_after = None if until is None else NOW + timedelta(seconds=until)
        shelf = self._shelf(value.record(2 if stale else 1))
        (outcome,) = finished(shelf.commit([msgspec.structs.replace(change, not_after=not_after)]))
        return type(outcome)

    def judge_again(self) -> type[Outcome]:
        """Return the outcome of a repeated request."""
        request = Request(id="r", endpoint="submit", fingerprint="f", answer=Reply())
        commit = commit_of(
            new_job(self.plan.spec(0), JOB_ID, NOW, self._settings), commit_id=COMMIT_ID, actor="user"
        )
        again = commit_of(
            new_job(self.plan.spec(0), "another", NOW, self._settings), commit_id=COMMIT_ID, actor="user"
        )
        shelf = self._shelf(None)
        for tried in (commit, again):
            (outcome,) = finished(shelf.commit([msgspec.structs.replace(tried, request=request)]))
        return type(outcome)

    # Decisions

    def _receive(self, value: int, code: int) -> DecidedEvent:
        note = read_message(code)
        token = token_for(runner_of(note.worker).encode(), JOB_ID, note.shard, note.attempt)
        message = message_of(note, token, self.plan.snooze)
        record = self._record(value)
        decision = decide_message(record, token, message, NOW, COMMIT_ID, self._settings)
        together = self._batch_effect(record, token, message)
        entry = self._compared(
            decision.commit,
            decision.commit if together is None else together,
            value,
            self._job_of[value],
            cause="runner",
            token=(note.shard, note.attempt),
            accepted=isinstance(decision.answer, Heard),
            message=note.say.name,
        )
        entry.reply = reply_of(note, decision.answer)
        entry.answer = decision.answer.error if not isinstance(decision.answer, Heard) else ""
        if note.say in (Say.SUCCESS, Say.FAILURE):
            if isinstance(decision.answer, Stale):
                entry.marks |= self._mark(required_events.LATE)
            elif isinstance(decision.answer, Heard) and decision.commit is None:
                entry.marks |= self._mark(required_events.TWICE)
        if note.say is Say.STOPPED and entry.changed and isinstance(decision.answer, Heard):
            entry.marks |= self._mark(required_events.ACKNOWLEDGED)
        return entry

    def _batch_effect(self, record: Record, token: Token, message: Message) -> Commit | None:
        """Return the effect of a batch of identical messages.

        They are about jobs of one grant.
        """
        if not isinstance(message, Complete):
            return None
        result = result_in(message, str(token), self._settings)
        if result is None:
            return None
        report = Report(1, message.runner_id, message.cost)
        like = of_any_run(_jobs_like(record)[0])
        decided = decide_completions(report, token, like, NOW, COMMIT_ID, self._settings)
        if decided is None:
            return None
        return one_by_one([decided.work([record], [record.updated_at], [result], NOW)])[-1]

    def _claim(self, value: int, worker: int) -> DecidedEvent | None:
        record = self._record(value)
        alone, together = (self._offered(worker, [record, *others]) for others in ((), _jobs_like(record)))
        if alone is None or together is None:
            return None
        (single, _), (commit, grant) = alone, together
        entry = self._compared(single, commit, value, self._job_of[value], cause="orchestrator")
        entry.shard, entry.index, entry.reply = grant.shard, grant.attempt, Say.GRANT
        return entry

    def _offered(self, worker: int, records: Sequence[Record]) -> tuple[Commit, Grant] | None:
        """Return the grant of the first of these jobs.

        One claim is made for all of them.
        """
        request = ClaimRequest(
            runner_id=runner_of(worker), acknowledge=self.plan.acknowledge, limit=len(records)
        )
        token = token_for(request.runner_id.encode(), JOB_ID, 1, 1)
        claiming = ClaimInput(request, token.secret, token.digest, 1, COMMIT_ID, self._settings, MAX_BODY)
        for offer in offers_of(claiming, records, NOW):
            if records[0] in offer.before and offer.grants:
                foresight = None if offer.change.id else foresee(claiming, records[-1], NOW)
                if foresight is not None:  # what a store may have committed before it asked
                    offer = msgspec.structs.replace(offer, change=foresight.change)  # noqa: PLW2901
                return Commit(changes=(offer.changes[0], *offer.messages)), offer.grants[0]
        return None

    def _sweep(self, value: int) -> DecidedEvent:
        (commit,) = swept([self._record(value)], NOW, COMMIT_ID, self._settings, MAX_BODY)
        return self._committed(value, commit, self._job_of[value], cause="clock")

    def _cancel(self, value: int) -> DecidedEvent:
        try:
            draft = cancelled(self._record(value), NOW, self._settings, "cancel")
        except TransitionRefused as refused:
            return DecidedEvent(value, changed=False, answer=refused.sentence)
        commit = commit_of(draft, commit_id=COMMIT_ID, actor="user")
        return self._committed(value, commit, self._job_of[value], cause="user")

    def _follow(self, value: int, number: int, order: JobOrder) -> DecidedEvent:
        draft = (
            JobAggregate.of(self._record(value), NOW, self._settings)
            if value != ABSENT
            else self._new(number, held=order.what != RELEASE)
        )
        decide_order(order, draft)
        commit = commit_of(draft, commit_id=COMMIT_ID, actor="orchestrator") if draft.taken else None
        together = self._follow_together(value, number, order)
        if together is None:
            return self._committed(value, commit, number, cause="user")
        return self._compared(commit, together, value, number, cause="user")

    def _follow_together(self, value: int, number: int, order: JobOrder) -> Commit | None:
        """Return the effect of a run's order on one of several jobs, or None."""
        part, place = self.plan.part(number), self.plan.place(number)
        if part is None or place is None or order.what != RELEASE:
            return None
        if value == ABSENT:
            spec, held = self.plan.spec(number), False
            new = [NewRunJob(name, spec, place, part, None, held) for name in (*OTHERS, JOB_ID)]
            batches = created_together(new, NOW, COMMIT_ID, self._settings)
        else:
            record = self._record(value)
            joint = JointDecisions(NOW, COMMIT_ID, self._settings)
            change = joint.released(order, [*_jobs_like(record), record]).get(record.id)
            return None if change is None else Commit(changes=(change,))
        return batches[0].commits()[-1] if batches else None

    def _new(self, number: int, *, held: bool = False) -> JobAggregate:
        plan = self.plan
        parts = JobParts(run=plan.part(number), plan=plan.place(number))
        return new_job(plan.spec(number), JOB_ID, NOW, self._settings, parts, held=held)

    # Commits

    def _compared(
        self, alone: Commit | None, batched: Commit | None, value: int, number: int, **facts: Any
    ) -> DecidedEvent:
        """Return the entry of a batched decision.

        It is marked wrong if it differs from the single one.
        """
        entry = self._committed(value, batched, number, **facts)
        if alone != batched:
            entry.wrong |= bit(self.places[claims.BATCH_CLAIM])
        return entry

    def _committed(self, value: int, commit: Commit | None, number: int, **facts: Any) -> DecidedEvent:
        """Return the entry of a commit, applied to a store with this record."""
        if commit is None or not commit.changes:
            return DecidedEvent(value, changed=False)
        before = self.values[value]
        shelf = self._shelf(None if before is None else before.record())
        (outcome,) = finished(shelf.commit([commit]))
        if not isinstance(outcome, Committed):
            refused = DecidedEvent(value, changed=False, answer=f"The store answers {outcome}.")
            refused.wrong = bit(self.places[claims.STORE_CLAIM])
            return refused
        change = commit.changes[0]
        (record,) = finished(shelf.load([change.key]))
        assert record is not None
        after = self._intern(number, normal(record))
        lines = change.note.steps if change.note is not None else ()
        entry = DecidedEvent(after, changed=True, lines=lines)
        entry.message = _message_in(commit)
        if commit.not_after is not None:
            entry.until = int((commit.not_after - NOW).total_seconds())
        if before is not None:
            entry.wrong = self._wrong_step(before, after, number, lines, facts)
        return entry

    def _wrong_step(
        self, before: Value, after: int, number: int, lines: tuple[StepLine, ...], facts: dict[str, Any]
    ) -> int:
        new = self.values[after]
        assert new is not None
        taken = Taken(
            look_at(before, self.plan, number),
            look_at(new, self.plan, number),
            lines,
            facts["cause"],
            facts.get("token"),
            facts.get("accepted", False),
            facts.get("message", ""),
        )
        return self._broken(claims.STEP_CLAIMS, taken)

    def _shelf(self, record: Record | None) -> Shelf:
        shelf = Shelf(self._catalogue, clock=lambda: NOW)
        if record is not None:
            shelf.put(record)
        return shelf

    # Values

    def _record(self, value: int) -> Record:
        found = self.values[value]
        assert found is not None
        number = self._job_of[value]
        part, place = self.plan.part(number), self.plan.place(number)
        given = b"" if place is None else encode_given(JobGiven(plan=place))
        return msgspec.structs.replace(
            found.record(), given=given, parent=None if part is None else part.run_id
        )

    def _moved(self, value: int, **changes: Any) -> int:
        return self._intern(self._job_of[value], normal(self._record(value), **changes))

    def _intern(self, number: int, value: Value) -> int:
        key = (self._kind_of(number), value)
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self.values)
            self._learn(number, value)
        return known

    def _kind_of(self, number: int) -> int:
        """Return the number shared by jobs with equal plans.

        They are symmetric, but a run tells its own jobs apart.
        """
        if self.plan.part(number) is not None:
            return number
        return self.plan.jobs.index(self.plan.jobs[number])

    def _learn(self, number: int, value: Value) -> None:
        seen = look_at(value, self.plan, number)
        bits = self._broken(claims.VALUE_CLAIMS, seen)
        for name, occurred in required_events.REQUIRED_EVENTS.items():
            if name in self.places and occurred(seen):
                bits |= self._mark(name)
        self.values.append(value)
        self.bits.append(bits)
        self._job_of.append(number)
        self.ready.append(value.ready_at is not None and value.ready_at <= NOW)
        self.due.append(claims.overdue(value))
        self.unsettled.append(claims.unsettled(seen))
        self.stopping.append(claims.stopping(seen))
        self.by_cancel.append(claims.by_cancel(seen))
        ended = [o for o in seen.body.attempts if o.lease is not None and o.lease.state in lease.DEAD]
        self.ended_leases.append(sum(attempt_bit(one.shard, one.index) for one in ended))
        named = [one for one in ended if one.lease is not None and one.lease.data.runner_id]
        self.named_ends.append(sum(attempt_bit(one.shard, one.index) for one in named))

    def _broken(self, checked: Any, seen: Any) -> int:
        return sum(bit(self.places[name]) for name in claims.broken(checked, seen))

    def _mark(self, name: str) -> int:
        place = self.places.get(name)
        return 0 if place is None else bit(place)

    def _keep(self, key: tuple[int, int], entry: T) -> T:
        self.entries[key] = entry  # type: ignore[assignment]
        return entry


def _message_in(commit: Commit) -> JobChanged | None:
    """Return the message of the job to its run in a commit."""
    messages = [each for each in commit.changes if each.kind == MESSAGE.name and each.queue == RUN_JOBS]
    return message_in(messages[0].body, JobChanged) if messages else None


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits.

    With a memory store none does.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a memory store does not wait")


def _jobs_like(record: Record) -> tuple[Record, ...]:
    """Return jobs of the same shape."""
    return tuple(msgspec.structs.replace(record, id=name) for name in OTHERS)
