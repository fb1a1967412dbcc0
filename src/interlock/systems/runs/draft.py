"""A run that is being decided about: what it was, what it is told, and what that makes of it.

The table of the run says what becomes of it, and the couplings whom that concerns: the run itself,
or its jobs. What it wants of its jobs is gathered as orders, to be committed with it. Nothing here
reads a clock or a store, and nothing here knows a rule: those are in the tables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias

from interlock.lifecycles import job, run
from interlock.lifecycles.couplings import COUPLINGS, Facts
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.run import RUN, RunState
from interlock.machine import Coupling, Event, Moved, Refused, Step
from interlock.machine.events import type_of
from interlock.store.records import Change, Note, Record, StepLine
from interlock.systems.orchestrator.lines import named, track_of
from interlock.systems.orchestrator.words import Word
from interlock.systems.runs import body as letters
from interlock.systems.runs.body import RunBody, decode_run, encode_run
from interlock.systems.runs.facts import RunFacts
from interlock.systems.runs.plans import Graph
from interlock.wire.runs import Approval, AwaitedApproval

Refusal: TypeAlias = Refused[Any] | None
"""Why the run has refused; None when it has not."""

UPSTREAM, FAIL_FAST, TIMEOUT = "upstream", "fail_fast", "timeout"
NOT_APPROVED = "not_approved"

_JOB_STEPS: dict[tuple[str, str, str], Step[JobState]] = {}


def _steps_of_jobs() -> dict[tuple[str, str, str], Step[JobState]]:
    """By what a word says: the steps that a job can take."""
    if not _JOB_STEPS:
        steps = (step for state in JOB.states for step in JOB.steps_at(state))
        _JOB_STEPS.update(((step.event, str(step.source), str(step.target)), step) for step in steps)
    return _JOB_STEPS


def forget() -> None:
    """Work everything out anew: the tables were exchanged."""
    _JOB_STEPS.clear()


class RunDraft:
    """The working copy of one run."""

    __slots__ = (
        "_consequences",
        "_states",
        "body",
        "graph",
        "hold",
        "id",
        "lines",
        "now",
        "record",
        "release",
        "settings",
        "state",
        "stop",
    )

    def __init__(
        self,
        run_id: str,
        state: RunState,
        body: RunBody,
        now: datetime,
        settings: Durations,
        *,
        graph: Graph | None = None,
        record: Record | None = None,
    ) -> None:
        self.id = run_id
        self.state = state
        self.body = body
        self.graph = graph
        self.now = now
        self.settings = settings
        self.record = record
        self.lines: list[StepLine] = []
        self.hold: list[int] = []
        """Places of jobs that are to be made, and held back."""
        self.release: list[int] = []
        """Places of jobs that runners may have from now on."""
        self.stop: dict[int, str] = {}
        """Places of jobs that are to be stopped, and the code for why."""
        self._states = bytearray(body.states.encode())
        self._consequences: deque[Coupling[Facts]] = deque()

    @classmethod
    def of(
        cls, record: Record, now: datetime, settings: Durations, *, graph: Graph | None = None
    ) -> RunDraft:
        """A working copy of a run that is there."""
        body = decode_run(record.body)
        return cls(record.id, RunState(record.state), body, now, settings, graph=graph, record=record)

    # Telling

    def tell(self, event: Event) -> Refusal:
        """Say something to the run, and settle what follows."""
        refused = self._tell(event)
        while self._consequences:
            coupling = self._consequences.popleft()
            deliver = self.DELIVERIES.get(coupling.to)
            if deliver is not None:
                deliver(self, coupling)
        return refused

    def accept(self, graph: Graph) -> Refusal:
        """The plan has arrived: note what there is to do, and say so."""
        if self.state is run.PLANNING:
            self.graph = graph
            self.body.accept(graph)
            self.body.planned_at = self.now
            self._states = bytearray(self.body.states.encode())
        return self.tell(run.planned)

    def wait_for_approval(self, awaits: AwaitedApproval) -> Refusal:
        """An operator has to approve it: note what, and wait."""
        if (refused := self.tell(run.hold)) is None:
            self.body.awaits = awaits
        return refused

    def approve(self, by: str, comment: str) -> Refusal:
        """Go on from the beginning; whoever has approved what is kept, for the commit that it is about."""
        awaits = self.body.awaits
        if (refused := self.tell(run.approve)) is None and awaits is not None:
            self.body.awaits = None
            made = Approval(
                by=by,
                at=self.now,
                reason=awaits.reason,
                sha=self.body.spec.source.sha,
                comment=comment,
                environments=awaits.environments,
            )
            self.body.approvals = (*self.body.approvals, made)
            self.body.timer_at = self.now + timedelta(seconds=self.settings.planner_timeout_s)
        return refused

    def fail_planning(self, event: Event, error: str, reason: str = "plan_failed") -> Refusal:
        """There will be no plan: that is the outcome."""
        if (refused := self.tell(event)) is None:
            self.body.error, self.body.reason = error, reason
            refused = self.tell(run.finalize)
        return refused

    def hear(self, words: Iterable[Word]) -> None:
        """What jobs of the run have done, and what follows from that for it and for its other jobs."""
        ended = [word.place for word in words if self._hear(word)]
        self._release_after(ended)

    def fire_due(self) -> None:
        """Tell the run if its deadline has passed."""
        within = RUN.table.entry(self.state).within
        due, self.body.timer_at = self.body.timer_at, None
        if due is None or due > self.now or within is None or self.is_planned_already:
            self.body.timer_at = due
            return
        event = named(type_of(within.event))
        if event.name == run.planner_timeout.name:
            seconds = self.settings.planner_timeout_s
            self.fail_planning(event, f"The planner took longer than {seconds:g} s.", "planner_timeout")
        else:
            self.tell(event)

    def change(self, *, mark: str, actor: str, reason: str = "") -> Change:
        """The record as it shall become. What jobs have done is told by their own journals."""
        body = self.body
        body.states = self._states.decode()
        note = None
        if self.record is None or self.lines:
            note = Note(steps=tuple(self.lines), actor=actor, reason=reason, request_id=mark)
        return Change(
            kind=RUN.name,
            id=self.id,
            expected=self.record.version if self.record else 0,
            state=self.state,
            body=encode_run(body),
            parent=self.record.parent if self.record else body.origin_run_id,
            queue=self.record.queue if self.record else None,
            labels=self.record.labels if self.record else (),
            priority=self.record.priority if self.record else body.spec.priority,
            deadline_at=body.timer_at,
            note=note,
        )

    @property
    def is_planned_already(self) -> bool:
        """Whether its plan is stored, and only nobody has come to accept it: no planner is late then."""
        return self.state is run.PLANNING and self.body.pieces > 0

    @property
    def is_decided(self) -> bool:
        """Whether the outcome has been decided by what was told just now."""
        return any(line.target in run.OUTCOMES for line in self.lines)

    # How one thing leads to another

    def _tell(self, event: Event) -> Refusal:
        decision = RUN.decide(self.state, self.body.data, event)
        if not isinstance(decision, Moved):
            return decision
        self.state, self.body.data = decision.state, decision.data
        track = track_of(RUN, decision.steps)
        self.lines += track.lines("")
        if track.sets_timer:
            self._set_timer(track.arms)
        for step in decision.steps:
            self._note(step)
            facts = RunFacts(self.body)
            self._consequences += [c for c in COUPLINGS.caused_by(step) if c.holds(facts)]
        return None

    def _set_timer(self, setting: str) -> None:
        self.body.timer_at = None
        if setting:
            own = self.body.timeout_s if setting == "run_timeout_s" else None
            seconds = own if own is not None else float(getattr(self.settings, setting))
            self.body.timer_at = self.now + timedelta(seconds=seconds)

    def _note(self, step: Step[RunState]) -> None:
        """What the record says about the run beside its state."""
        body = self.body
        if step.target is run.RUNNING:
            body.started_at = body.started_at or self.now
        elif step.target is run.REPORTED:
            body.reported_at = self.now
        elif step.target in run.OUTCOMES:
            body.completed_at = self.now
            if step.target is run.TIMEOUT:
                body.reason = TIMEOUT
            elif step.event == run.approval_timeout.name:
                body.reason = NOT_APPROVED
            elif step.target is run.CANCELED:
                body.reason = body.stop_reason or "cancel"
                body.forced = step.event == run.force_cancel.name

    def _state_of(self, place: int) -> str:
        return chr(self._states[place])

    def _hear(self, word: Word) -> bool:
        """Whether the job has ended by this."""
        step = _steps_of_jobs().get((word.event, word.source, word.target))
        before = self._state_of(word.place) if word.place < len(self._states) else ""
        after = letters.HEARD.get(word.target, "")
        if self.graph is None or step is None or not before or before in letters.ENDED:
            return False
        has_ended = after in letters.ENDED
        if has_ended or before != letters.STOPPING:
            self._states[word.place] = ord(after)
        if has_ended:
            self._count(word, after)
            if step.source is job.RUNNING and before != letters.RUNNING:
                self._follow(word, _start())  # that it had begun was not said, or is on its way
        self._follow(word, step)
        return has_ended

    def _follow(self, word: Word, step: Step[JobState]) -> None:
        """What a step of a job causes in its run, and in those of its jobs that need it."""
        assert self.graph is not None
        facts = RunFacts(self.body, self.graph.required[word.place])
        for coupling in COUPLINGS.caused_by(step):
            hear = self.HEARD.get(coupling.to)
            if hear is not None and coupling.holds(facts):
                hear(self, word, coupling)

    def _count(self, word: Word, after: str) -> None:
        assert self.graph is not None
        self.body.left -= 1
        self.body.unconfirmed += word.unconfirmed
        if after in letters.SUCCEEDED and self.graph.required[word.place]:
            self.body.required_left -= 1

    def _tell_for(self, word: Word, coupling: Coupling[Facts]) -> None:
        assert self.graph is not None
        assert coupling.event is not None
        event = named(coupling.event)
        if self.tell(event) is None and event.name == run.required_job_failed.name:
            canceled = word.target == job.CANCELED
            self.body.reason = "job_canceled" if canceled else "required_job_failed"
            self.body.culprit = self.graph.names[word.place]

    def _release_after(self, ended: Iterable[int]) -> None:
        """Jobs whose needs have all ended well, or were allowed to fail, may begin."""
        graph = self.graph
        if graph is None:
            return
        for place in dict.fromkeys(each for one in ended for each in graph.dependents[one]):
            if self._state_of(place) == letters.WAITING and all(map(self._is_met, graph.needs[place])):
                self._states[place] = ord(letters.RELEASED)
                self.release.append(place)

    def _is_met(self, place: int) -> bool:
        assert self.graph is not None
        state = self._state_of(place)
        return state in letters.SUCCEEDED or (state in letters.ENDED and not self.graph.required[place])

    # Whom a consequence reaches

    def _stop_dependents(self, word: Word, _: Coupling[Facts]) -> None:
        """What was to follow cannot, nor what was to follow that; where it is optional, that goes on."""
        assert self.graph is not None
        waiting = [word.place]
        while waiting:
            stopped = [each for each in self.graph.dependents[waiting.pop()] if self._stop(each, UPSTREAM)]
            waiting += [each for each in stopped if self.graph.required[each]]

    def _stop(self, place: int, why: str) -> bool:
        if self._state_of(place) in letters.ENDED + letters.STOPPING:
            return False
        self._states[place] = ord(letters.STOPPING)
        self.stop[place] = why
        return True

    def _make_jobs(self, _: Coupling[Facts]) -> None:
        for place, letter in enumerate(self._states.decode()):
            if letter == letters.WAITING:
                self.hold.append(place)
            elif letter == letters.RELEASED:
                self.release.append(place)

    def _reach_itself(self, coupling: Coupling[Facts]) -> None:
        assert coupling.event is not None
        self._tell(named(coupling.event))

    def _stop_all(self, _: Coupling[Facts]) -> None:
        stopping = {run.TIMEOUT: TIMEOUT, run.FAILED: FAIL_FAST}
        why = stopping.get(self.state, self.body.stop_reason or "cancel")
        for place in range(len(self._states)):
            self._stop(place, why)

    DELIVERIES: ClassVar[dict[str, Callable[[RunDraft, Coupling[Facts]], None]]] = {
        "each job of the plan": _make_jobs,
        "itself": _reach_itself,
        "each of its jobs": _stop_all,
        "each of its unfinished jobs": _stop_all,
    }

    HEARD: ClassVar[dict[str, Callable[[RunDraft, Word, Coupling[Facts]], None]]] = {
        "its run": _tell_for,
        "each job that needs it": _stop_dependents,
    }
    """Whom a step of a job reaches through its run."""


def _start() -> Step[JobState]:
    return next(step for step in _steps_of_jobs().values() if step.target is job.RUNNING and step.moves)


OUTWARD = frozenset({"each of its agents"})
"""Receivers that no run has yet: workloads on agents are started by a fleet of their own."""
