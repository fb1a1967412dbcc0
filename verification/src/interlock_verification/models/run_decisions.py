"""The deciders of a run, each called once for each pair of value and event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from interlock.engine.outbox import MESSAGE, message_in
from interlock.errors import TransitionRefused
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN, Run, RunState
from interlock.machine import Event
from interlock.store.catalogue import catalogue_of
from interlock.store.records import Commit, Committed, Key, Record, StepLine
from interlock.systems.orchestrator.notifications import JobChanged
from interlock.systems.runs import body as letters
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody, decode_run, encode_run
from interlock.systems.runs.cancellation import decide_approval, decide_stop
from interlock.systems.runs.new_jobs import RELEASE, STOP, JobOrder
from interlock.systems.runs.orders import (
    ORDERS,
)
from interlock.systems.runs.plan_validation import ENVIRONMENT
from interlock.systems.runs.plans import PLAN
from interlock.systems.runs.preparation import decide_plan, decide_planning
from interlock.systems.runs.reconciler import apply_job_changes, fire_deadlines, run_commit_of
from interlock.testing.model_checker import bit
from interlock.wire.runs import AwaitedApproval, Plan, RunSpec, Source
from interlock_verification import claims
from interlock_verification.models.job_decisions import COMMIT_ID, Shelf, finished
from interlock_verification.models.job_values import FAR_S, NOW
from interlock_verification.models.plan import RUN_ID, RunPlan

NO_TIMER = 99

TABLES_HOLD = "the claims of the run's table hold"
STEPS_HOLD = "the claims of the run's table about each step hold"
RUN_ABSORBS = "a run that was reported stays reported"
HEEDED = "a cancel is accepted until the outcome is decided"
ENDS_WITH_THE_LAST = "a canceled run ends with the last of its jobs"
ONLY_BY_PLAN = "jobs are created only from a plan"
NO_PLAN = "a failure of the planner is accepted"
LET_FINISH = "without fail-fast a failed run lets its jobs finish"
BEGINS = "a run begins with its first attempt"
WAITS = "a canceled run waits for its jobs, unless its deadline has passed"
APPROVED_FIRST = "a run that has to be approved has jobs only once it is"
APPROVAL_HEEDED = "an approval or refusal is accepted while the run waits for it"
RUN_CLAIMS = (
    TABLES_HOLD,
    STEPS_HOLD,
    RUN_ABSORBS,
    HEEDED,
    ENDS_WITH_THE_LAST,
    ONLY_BY_PLAN,
    NO_PLAN,
    LET_FINISH,
    BEGINS,
    WAITS,
    APPROVED_FIRST,
    APPROVAL_HEEDED,
)


class RunValue(NamedTuple):
    """The value of a run: its state, its body without times, and its timer."""

    state: RunState
    body: bytes
    timer: int
    """Ticks until its deadline."""
    data: Run
    jobs: str
    """The states of the jobs, as letters; empty before there is a plan."""

    @property
    def active(self) -> bool:
        """Whether a job has not ended, as far as the run knows."""
        return any(letter not in letters.ENDED for letter in self.jobs)


class RunEntry(NamedTuple):
    """The result of one event for a run."""

    after: int
    lines: tuple[StepLine, ...] = ()
    orders: tuple[tuple[int, str, str], ...] = ()
    """Orders to jobs: place, kind and reason."""
    wrong: int = 0


class RunDecisions:
    """The values of one run, and the decisions about them."""

    def __init__(self, plan: RunPlan, places: dict[str, int]) -> None:
        self.plan = plan
        self.places = places
        self.values: list[RunValue] = []
        self._ids: dict[RunValue, int] = {}
        self._entries: dict[tuple[int, object], RunEntry] = {}
        self._catalogue = catalogue_of((RUN, MESSAGE, PLAN))
        self._settings, self._durations = plan.settings, plan.settings.durations
        self._awaits: AwaitedApproval | None = None
        if plan.environment:
            self._awaits = AwaitedApproval(reason=ENVIRONMENT, environments=("production",))
        body = RunBody(spec=RunSpec(source=Source(from_fork=plan.fork)))
        self.first = self._intern(RUN.initial, body)

    def age(self, number: int) -> int:
        """Return the value one tick later."""
        value = self.values[number]
        if value.timer in (NO_TIMER, 0):
            return number
        return self._number(value._replace(timer=value.timer - 1))

    # Decisions, memoised

    def send(self, number: int, event: Event) -> RunEntry:
        """Return the effect of an event without data."""
        return self._decided_once(number, event, lambda record: self._after_event(record, event))

    def begin(self, number: int) -> RunEntry:
        """Return the effect of starting to plan, or of waiting for an approval."""
        return self._decided_once(number, run.start_planning, self._begun)

    def approve(self, number: int) -> RunEntry:
        """Return the effect of an approval."""
        return self._decided_once(number, run.approve, self._approved)

    def decline(self, number: int) -> RunEntry:
        """Return the effect of a declined approval."""
        return self._decided_once(number, run.decline, lambda record: self._stopped(record, run.decline))

    def fail(self, number: int) -> RunEntry:
        """Return the effect of a planning failure."""
        event = run.planning_failed
        return self._decided_once(number, event, lambda record: self._failed(record, event))

    def accept(self, number: int) -> RunEntry:
        """Return the effect of a plan."""
        return self._decided_once(number, run.planned, self._accepted)

    def cancel(self, number: int) -> RunEntry:
        """Return the effect of a user's cancel."""
        return self._decided_once(number, run.cancel, self._stopped)

    def receive(self, number: int, change: JobChanged) -> RunEntry:
        """Return the effect of a job's step on the run."""
        return self._decided_once(number, change, lambda record: self._after_job_change(record, change))

    def fire(self, number: int) -> RunEntry | None:
        """Return the effect of a passed deadline; None if it has not passed."""
        if self.values[number].timer:
            return None
        return self._decided_once(
            number, "fire", lambda record: fire_deadlines(record, NOW, COMMIT_ID, self._settings)
        )

    def _decided_once(
        self, number: int, cause: object, decide: Callable[[Record], Commit | None]
    ) -> RunEntry:
        key = (number, cause)
        if key not in self._entries:
            self._entries[key] = self._committed(number, cause, decide(self._record(number)))
        return self._entries[key]

    # Decisions

    def _after_event(self, record: Record, event: Event) -> Commit | None:
        draft = RunAggregate.of(record, NOW, self._durations)
        return None if draft.send(event) is not None else _commit(draft)

    def _begun(self, record: Record) -> Commit | None:
        draft = decide_planning(record, NOW, self._durations)
        return None if draft is None else _commit(draft)

    def _approved(self, record: Record) -> Commit | None:
        try:
            return _commit(decide_approval(record, NOW, self._durations, "operator", ""))
        except TransitionRefused:
            return None

    def _failed(self, record: Record, event: Event) -> Commit | None:
        draft = RunAggregate.of(record, NOW, self._durations)
        return None if draft.fail_planning(event, "there is no plan") is not None else _commit(draft)

    def _accepted(self, record: Record) -> Commit | None:
        plan = Plan(jobs=(), fail_fast=self.plan.fail_fast)
        awaits = None if decode_run(record.body).approvals else self._awaits
        draft = decide_plan(record, NOW, self._durations, self.plan.graph, 1, plan, awaits)
        return None if draft is None else _commit(draft)

    def _stopped(self, record: Record, event: Event = run.cancel) -> Commit | None:
        try:
            draft = decide_stop(record, NOW, self._durations, event.name, event=event)
        except TransitionRefused:
            return None
        return None if draft is None else _commit(draft)

    def _after_job_change(self, record: Record, change: JobChanged) -> Commit | None:
        draft = RunAggregate.of(record, NOW, self._durations, graph=self.plan.graph)
        apply_job_changes(draft, [change])
        return _commit(draft)

    # Commits

    def _committed(self, number: int, cause: object, commit: Commit | None) -> RunEntry:
        before = self.values[number]
        if commit is None:
            return RunEntry(number, wrong=self._wrong_answer(before, before, cause, RunEntry(number)))
        shelf = Shelf(self._catalogue, clock=lambda: NOW)
        shelf.put(self._record(number))
        (outcome,) = finished(shelf.commit([commit]))
        if not isinstance(outcome, Committed):
            return RunEntry(number, wrong=bit(self.places[claims.STORE_CLAIM]))
        (record,) = finished(shelf.load([Key(RUN.name, RUN_ID)]))
        assert record is not None
        note = commit.changes[0].note
        lines = note.steps if note is not None else ()
        entry = RunEntry(
            self._intern(RunState(record.state), decode_run(record.body)), lines, tuple(_orders(commit))
        )
        after = self.values[entry.after]
        wrong = self._wrong(before, after, entry) | self._wrong_answer(before, after, cause, entry)
        return entry._replace(wrong=wrong)

    def _record(self, number: int) -> Record:
        value = self.values[number]
        body = decode_run(value.body)
        if value.timer != NO_TIMER:
            body.timer_at = NOW + timedelta(seconds=value.timer)
        return Record(
            kind=RUN.name,
            id=RUN_ID,
            state=value.state,
            version=1,
            body=encode_run(body),
            deadline_at=body.timer_at,
            created_at=NOW,
            updated_at=NOW,
        )

    def _intern(self, state: RunState, body: RunBody) -> int:
        """Return the number of a value, without informational times."""
        left_s = (body.timer_at - NOW).total_seconds() if body.timer_at is not None else FAR_S
        timer = NO_TIMER if left_s >= FAR_S / 2 else max(0, int(left_s))
        body.timer_at = body.planned_at = body.started_at = body.completed_at = body.reported_at = None
        return self._number(RunValue(state, encode_run(body), timer, body.data, body.states))

    def _number(self, value: RunValue) -> int:
        known = self._ids.get(value)
        if known is None:
            known = self._ids[value] = len(self.values)
            self.values.append(value)
        return known

    # Claims

    def _wrong(self, before: RunValue, after: RunValue, entry: RunEntry) -> int:
        """Return the broken claims about the new value of the run.

        Claims about the step to it are among them.
        """
        data, found = after.data, set[str]()
        if RUN.broken(after.state, data):
            found.add(TABLES_HOLD)
        if RUN.broken_across(before.state, before.data, after.state, data):
            found.add(STEPS_HOLD)
        if before.state in RUN.terminal and after.state is not before.state:
            found.add(RUN_ABSORBS)
        if after.state is run.CANCEL_REQUESTED and not after.active:
            found.add(ENDS_WITH_THE_LAST)
        guarded = self.plan.fork or self.plan.environment
        if guarded and after.jobs and not decode_run(after.body).approvals:
            found.add(APPROVED_FIRST)
        canceled = after.state is run.CANCELED and before.state is not run.CANCELED
        if canceled and after.active and before.timer:
            found.add(WAITS)
        stops = any(what == STOP for _, what, _ in entry.orders)
        if stops and data.outcome in (run.FAILED, run.TIMEOUT) and not self.plan.fail_fast:
            found.add(LET_FINISH)
        return sum(bit(self.places[claim]) for claim in found)

    def _wrong_answer(self, before: RunValue, after: RunValue, cause: object, entry: RunEntry) -> int:
        """Return the broken claims about the effects of certain events."""
        found = set[str]()
        undecided = before.state not in (*run.SETTLED, run.PLAN_FAILED) and before.timer
        if cause is run.cancel and undecided and not after.data.cancel_requested:
            found.add(HEEDED)
        if cause is not run.planned and any(what == RELEASE for _, what, _ in entry.orders):
            found.add(ONLY_BY_PLAN)
        waits = before.state is run.AWAITING_APPROVAL and before.timer
        if cause is run.approve and waits and after.state is not run.CREATED:
            found.add(APPROVAL_HEEDED)
        if cause is run.decline and waits and after.data.outcome is not run.CANCELED:
            found.add(APPROVAL_HEEDED)
        heeded = run.PLAN_FAILED in {line.target for line in entry.lines}
        if cause is run.planning_failed and before.state is run.PLANNING and not heeded:
            found.add(NO_PLAN)
        return sum(bit(self.places[claim]) for claim in found)


def _commit(draft: RunAggregate) -> Commit:
    return run_commit_of(draft, commit_id=COMMIT_ID, actor="orchestrator").commit


def _orders(commit: Commit) -> list[tuple[int, str, str]]:
    """Return the orders of the run to its jobs."""
    letters = [change for change in commit.changes if change.kind == MESSAGE.name and change.queue == ORDERS]
    orders = [message_in(letter.body, JobOrder) for letter in letters]
    return [(place, order.what, order.why) for order in orders for place in order.places]
