"""The course of a cascade that was seen before: one word to one machine, and all that follows in its job.

Authority. The tables decide, always. What is remembered is only a course: which machine was told what
after which, and what the conditions of couplings were answered. Whoever tells the same to a job whose
machines stand where they stood then takes the same legs; but each leg is decided by its table on the data
of this very job, and each condition is asked again.

Failure. Where one of them answers otherwise than it did then, the job is put back to where it was, and its
course is found out like the first one. So a course that does not fit costs time, and nothing else.

What no course can tell is worked out each time: new attempts, several attempts told at once, a consequence
that its receiver refuses, and the failure of a job.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from interlock.lifecycles import job
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import Facts
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.machine import Coupling, Event, Machine, Moved, Step
from interlock.store.records import StepLine
from interlock.systems.orchestrator import lines
from interlock.systems.orchestrator.body import AttemptBody, JobHolder
from interlock.systems.orchestrator.facts import JobFacts
from interlock.systems.orchestrator.lines import Track, later

_MOST = 1_024
_WHOM = {JOB: "job", ATTEMPT: "attempt", LEASE: "lease"}
_TOLD = frozenset({"its job", "its attempt", "its lease", "itself"})
"""Receivers that are one machine, in the record itself."""

Key: TypeAlias = tuple[object, ...]
Make: TypeAlias = Callable[[Any, AttemptBody], Event]


class Told(Protocol):
    """A job that is told something, as far as a course has to know it."""

    job: JobHolder
    now: datetime
    lines: list[StepLine]
    is_news: bool
    outward: list[Coupling[Facts]]
    lost: tuple[AttemptBody, ...]
    remarks: tuple[tuple[AttemptBody, str], ...]

    def facts(self, one: AttemptBody | None) -> JobFacts:
        """What couplings ask about it, as seen from one of its attempts."""
        ...

    def seconds(self, setting: str) -> float:
        """How long a timer runs."""
        ...

    def note_attempt(self, one: AttemptBody, step: Step[Any]) -> None:
        """What the record says about an attempt beside its state."""
        ...

    def grant_lease(self, one: AttemptBody) -> None:
        """A lease for it."""
        ...


class Leg:
    """One machine is told one thing."""

    __slots__ = ("cell", "grants", "make", "parts", "steps", "track", "whom")

    def __init__(self, machine: Machine[Any, Any], track: Track, event: Event, make: Make | None) -> None:
        self.whom = _WHOM[machine]
        self.track = track
        self.steps = track.steps
        self.cell = machine.cell(track.steps[0].source, type(event))
        self.make = make
        """What it is told; None for the first, whom somebody tells."""
        self.parts: list[tuple[Step[Any] | None, list[tuple[Coupling[Facts], bool]]]] = []
        """What the attempt notes about it, and then what was asked about its consequences, and answered."""
        self.grants = False
        """A lease is made after it."""


class Course:
    """What is remembered of a cascade."""

    def __init__(self, legs: list[Leg], outward: list[Coupling[Facts]]) -> None:
        self._legs = legs
        self._outward = outward
        self._is_news = any(leg.track.is_news for leg in legs)
        self._lines: dict[str, tuple[StepLine, ...]] = {}

    def taken(self, draft: Told, one: AttemptBody, event: Event) -> bool:
        """Take it; False, and everything as it was, when it does not lead where it led before."""
        holder, held = draft.job, one.lease
        stood, noted = (holder.state, holder.data, holder.timer_at), (draft.lost, draft.remarks)
        before = replace(one), None if held is None else replace(held)
        for leg in self._legs:
            if not _taken(leg, draft, one, event):
                (holder.state, holder.data, holder.timer_at), (draft.lost, draft.remarks) = stood, noted
                _put_back(one, before[0])
                if held is not None:
                    _put_back(held, before[1])
                return False
        draft.lines += self._lines.get(one.name) or self._told(one.name)
        draft.is_news = draft.is_news or self._is_news
        draft.outward += self._outward
        return True

    def _told(self, name: str) -> tuple[StepLine, ...]:
        told = tuple(
            line for leg in self._legs for line in leg.track.lines("" if leg.whom == "job" else name)
        )
        if len(self._lines) < _MOST:
            self._lines[name] = told
        return told


def _taken(leg: Leg, draft: Told, one: AttemptBody, event: Event) -> bool:
    whom: Any = draft.job if leg.whom == "job" else one if leg.whom == "attempt" else one.lease
    decision = leg.cell(whom.data, event if leg.make is None else leg.make(draft, one))
    if not isinstance(decision, Moved) or decision.steps is not leg.steps:
        return False
    whom.state, whom.data = decision.state, decision.data
    track = leg.track
    if track.sets_timer:
        whom.timer_at = later(draft.now, draft.seconds(track.arms)) if track.arms else None
    for noted, asked in leg.parts:
        if noted is not None:
            draft.note_attempt(one, noted)
        for coupling, answer in asked:
            if coupling.holds(draft.facts(one)) is not answer:
                return False
    if leg.grants:
        draft.grant_lease(one)
    return True


def _put_back(struct: msgspec.Struct, before: Any) -> None:
    for field in struct.__struct_fields__:
        setattr(struct, field, getattr(before, field))


class Recording:
    """Notes a cascade as it is worked out."""

    def __init__(self) -> None:
        self._legs: list[Leg] = []
        self._outward: list[Coupling[Facts]] = []
        self._make: Make | None = None
        self._wanted = 1
        self._fit = True

    def told(self, machine: Machine[Any, Any], track: Track, event: Event) -> None:
        """A machine has accepted this."""
        self._legs.append(Leg(machine, track, event, self._make))
        failed = machine is JOB and track.steps[-1].target is job.FAILED
        self._fit = self._fit and not failed

    def part(self, noted: Step[Any] | None, asked: list[tuple[Coupling[Facts], bool]]) -> None:
        """What was noted and asked about a step of the last one."""
        if noted is not None or asked:
            self._legs[-1].parts.append((noted, asked))

    def follows(self, coupling: Coupling[Facts], make: Make | None) -> None:
        """This is about to be delivered; `make` makes what its receiver is told, None if it is elsewhere."""
        if make is None:
            self._outward.append(coupling)
        elif coupling.to not in _TOLD:
            self._fit = False
        elif coupling.event is None:
            self._legs[-1].grants = True
        else:
            self._make = make
            self._wanted += 1

    def keep(self, key: Key) -> None:
        """Remember it, if it can be told by a course; the newest of a kind is the likeliest to come again."""
        if self._fit and len(self._legs) == self._wanted and (key in _COURSES or len(_COURSES) < _MOST):
            _COURSES[key] = Course(self._legs, self._outward)


_COURSES: dict[Key, Course] = {}
course_for = _COURSES.get


def forget() -> None:
    """Work everything out anew: the tables were exchanged."""
    _COURSES.clear()
    lines.forget()
