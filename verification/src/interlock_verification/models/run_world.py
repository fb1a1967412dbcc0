"""A run, its planner and reporter, and its jobs as a model: the possible steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from interlock.lifecycles import job, run
from interlock.lifecycles.job import JobState
from interlock.store.records import StepLine
from interlock.systems.orchestrator.notifications import JobChanged
from interlock.systems.runs.new_jobs import RELEASE, STOP, JobOrder
from interlock.testing.model_checker import (
    AIDED,
    Mode,
    ModelClaim,
    ModelStep,
    always,
    bit,
    eventually,
    sometimes,
)
from interlock_verification import claims
from interlock_verification.models import budget
from interlock_verification.models.job_decisions import ABSENT, ORDERED, DecidedEvent
from interlock_verification.models.job_symmetry import StateTuple
from interlock_verification.models.job_world import JobWorld, StoryStep, claims_of, rows
from interlock_verification.models.plan import RUN_ID, RunPlan
from interlock_verification.models.run_decisions import BEGINS, RUN_CLAIMS, RunDecisions, RunEntry

FACT, ORDER, PLANNER = 1 << 8, 2 << 8, 3 << 8
_KIND = 3 << 8
_PLACE, _REST = 7, 31
REPEATS, RUN_CANCELS = 1, 8

SUCCESS_IS_EARNED = "a run succeeds only when every required job has completed"
FAILURE_HAS_A_CAUSE = "a run fails only for its plan or for a required job"
PLAN_FIRST = "a plan that arrives after the end creates nothing"
NOTHING_FORGOTTEN = "the remaining jobs of a stopped run are being stopped"
REPORTED = "every run is reported, and all of its jobs end"

_CLAIMS = (*RUN_CLAIMS, SUCCESS_IS_EARNED, FAILURE_HAS_A_CAUSE, PLAN_FIRST)

# Events that must occur, so that no claim holds vacuously
OPTIONAL_JOB_FAILS = "an optional job fails and the run succeeds"
REQUIRED_JOB_FAILS = "a required job fails, and so does the run"
CANCELED_AT_WORK = "a run is canceled while its jobs are running"
CANCELED_BY_FORCE = "a run is canceled by force"
RUN_TIMES_OUT = "a run times out"
PLAN_AFTER_END = "a plan arrives after the end"
PLANNING_FAILS = "planning fails"
RUN_APPROVED = "a run is approved"
RUN_NOT_APPROVED = "a run is not approved in time"


class RunDone(NamedTuple):
    """A step of the run, for the story."""

    what: str
    who: int
    lines: tuple[StepLine, ...] = ()


class RunWorld:
    """The model of a plan with a run."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.name = plan.name
        inner = [c for c in claims_of(plan) if c.mode is not Mode.SOMETIMES]
        self.claims: Sequence[ModelClaim] = [
            *inner,
            *(always(claim) for claim in (*_CLAIMS, NOTHING_FORGOTTEN)),
            eventually(REPORTED),
            *(sometimes(claim) for claim in plan.shows),
        ]
        self.places = {claim.claim: place for place, claim in enumerate(self.claims)}
        self.inner = JobWorld(plan, self.places)
        self.runs = RunDecisions(plan, self.places)
        self._messages: list[JobChanged] = []
        """Messages of jobs, by number."""
        self._goal = bit(self.places[REPORTED])
        self._settled = bit(self.places[next(c.claim for c in inner if c.mode is Mode.EVENTUALLY)])

    def initial(self) -> StateTuple:
        """Return the initial state: a stored run, without jobs."""
        jobs, *rest = self.inner.initial()
        left = self.plan.repeats * REPEATS + self.plan.run_cancels * RUN_CANCELS
        return (ABSENT,) * len(jobs), *rest, self.runs.first, (), left

    def canonical(self, state: StateTuple) -> StateTuple:
        """Return the state with canonical names of workers.

        Jobs of a run are distinct.
        """
        return state if len(state) == 1 else (*self.inner.canonical(state[:5]), *state[5:])

    def look(self, state: StateTuple) -> int:
        """Return the observable claims about the jobs and the run."""
        if len(state) == 1:
            broken: int = state[0]
            return broken
        seen = self.inner.look(state[:5])
        value = self.runs.values[state[5]]
        states = [self._job_state(number) for number in state[0]]
        seen |= self._broken(value.data.outcome, states, state)
        jobless = not any(state[0]) and not self._ordered(state[6], RELEASE)
        if value.state is run.REPORTED and (seen & self._settled or jobless):
            seen |= self._goal
        if jobless:  # a run without a plan has no jobs to settle
            seen |= self._settled if value.state in run.SETTLED else 0
        return seen | self._events(value.state, states)

    def _broken(self, outcome: object, states: list[JobState | None], state: StateTuple) -> int:
        needed = [one for one, counts in zip(states, self.plan.required, strict=True) if counts]
        tried = any(one is not None for one in states)
        seen = 0
        if outcome is run.SUCCESS and any(one is not job.COMPLETED for one in needed):
            seen |= bit(self.places[SUCCESS_IS_EARNED])
        if outcome is run.FAILED and tried and not any(one in (job.FAILED, job.CANCELED) for one in needed):
            seen |= bit(self.places[FAILURE_HAS_A_CAUSE])
        if tried and not self.runs.values[state[5]].jobs:
            seen |= bit(self.places[PLAN_FIRST])
        stopped = outcome in (run.CANCELED, *((run.FAILED, run.TIMEOUT) if self.plan.fail_fast else ()))
        if self.runs.values[state[5]].state is run.QUEUED and self._has_begun_unheard(states, state[6]):
            seen |= bit(self.places[BEGINS])
        if stopped and any(self._is_forgotten(number, state) for number in range(len(states))):
            seen |= bit(self.places[NOTHING_FORGOTTEN])
        return seen

    def _has_begun_unheard(self, states: list[JobState | None], wires: tuple[int, ...]) -> bool:
        """Return whether a job runs and no message reports it to the run.

        Such a message would be on its way to the run.
        """
        places = {self._messages[wire & _REST].place for wire in wires if wire & _KIND == FACT}
        return any(one is job.RUNNING and number not in places for number, one in enumerate(states))

    def _is_forgotten(self, number: int, state: StateTuple) -> bool:
        """Return whether a job continues without a stop order on its way.

        An overdue job is judged after a sweep.
        """
        value, deciding = state[0][number], self.inner.deciding
        if number in self._ordered(state[6], STOP):
            return False
        found = deciding.values[deciding.sweep(value).after if deciding.due[value] else value]
        if found is None:
            return number in self._ordered(state[6], RELEASE)
        seen = claims.look_at(found, self.plan, number)
        return seen.state not in job.ENDED and not seen.body.data.stop_reason

    def _ordered(self, wires: tuple[int, ...], what: str) -> set[int]:
        """Return the jobs with such an order on its way."""
        orders = (wire for wire in wires if wire & _KIND == ORDER)
        return {wire & _PLACE for wire in orders if ORDERED[(wire & _REST) >> 3][0] == what}

    def _events(self, now: run.RunState, states: list[JobState | None]) -> int:
        shown = {
            OPTIONAL_JOB_FAILS: now is run.SUCCESS and job.FAILED in states,
            REQUIRED_JOB_FAILS: now is run.FAILED and job.FAILED in states,
            CANCELED_AT_WORK: now is run.CANCEL_REQUESTED and job.RUNNING in states,
            RUN_TIMES_OUT: now is run.TIMEOUT,
        }
        return sum(self._mark(name) for name, there in shown.items() if there)

    def _mark(self, name: str) -> int:
        return bit(self.places[name]) if name in self.places else 0

    def _job_state(self, value: int) -> JobState | None:
        found = self.inner.deciding.values[value]
        return None if found is None else JobState(found.state)

    # Steps

    def steps(self, state: StateTuple) -> list[ModelStep]:
        """Return the steps of the jobs and of the run."""
        if len(state) == 1:
            return []
        out = list(self._inner_steps(state))
        self._run_steps(state, out)
        for wire in dict.fromkeys(state[6]):
            self._carry(state, wire, out)
        return out

    def _inner_steps(self, state: StateTuple) -> Iterator[ModelStep]:
        """Yield the steps of the jobs.

        The run receives their messages, and its time passes too.
        """
        *_, number, wires, left = state
        ticked = False
        for done, after, bits in self.inner.steps(state[:5]):
            if len(after) == 1:
                yield done, after, bits
                continue
            later = self.runs.age(number) if done.what == "tick" else number
            ticked |= done.what == "tick"
            news = self._news(done.entry)
            yield done, (*after, later, tuple(sorted((*wires, *news))), left), bits
        later = self.runs.age(number)
        if not ticked and later != number:
            yield StoryStep("tick", 0, 0, None), (*state[:5], later, wires, left), 0

    def _news(self, entry: DecidedEvent | None) -> list[int]:
        """Return the message to the run in a job's commit."""
        if entry is None or not entry.changed or entry.message is None:
            return []
        if entry.message not in self._messages:
            self._messages.append(entry.message)
        return [FACT | self._messages.index(entry.message)]

    def _run_steps(self, state: StateTuple, out: list[ModelStep]) -> None:
        *_, number, wires, left = state
        value, runs = self.runs.values[number], self.runs
        if value.state is run.CREATED:
            started = runs.begin(number)
            if runs.values[started.after].state is run.PLANNING:
                out.append(self._move(state, "asks for a plan", started, (*wires, PLANNER), 0))
            else:
                out.append(self._move(state, "waits for an approval", started, wires, 0))
        if value.state is run.AWAITING_APPROVAL:
            granted = AIDED | self._mark(RUN_APPROVED)
            out.append(self._move(state, "is approved by an operator", runs.approve(number), wires, granted))
            out.append(self._move(state, "is declined by an operator", runs.decline(number), wires, AIDED))
        if (fired := runs.fire(number)) is not None:
            events = {run.CANCEL_REQUESTED: CANCELED_BY_FORCE, run.AWAITING_APPROVAL: RUN_NOT_APPROVED}
            shown = self._mark(events[value.state]) if value.state in events else 0
            out.append(self._move(state, "reaches its deadline", fired, wires, shown))
        if value.state in run.OUTCOMES:
            out.append(self._move(state, "is reported", runs.send(number, run.reported), wires, 0))
        if left >= RUN_CANCELS:
            cancelled = runs.cancel(number)
            fewer = (*state[:7], left - RUN_CANCELS)
            out.append(self._move(fewer, "is canceled by a user", cancelled, wires, AIDED))
        if left & 7 and value.state is run.REPORTED:
            again = runs.send(number, run.reported)
            out.append(
                self._move((*state[:7], left - REPEATS), "is reported a second time", again, wires, AIDED)
            )

    def _carry(self, state: StateTuple, wire: int, out: list[ModelStep]) -> None:
        """Deliver a message; or deliver it, and keep it for a repeat."""
        wires, left = state[6], state[7]
        place = wires.index(wire)
        rest = wires[:place] + wires[place + 1 :]
        self._deliver((*state[:6], rest, left), wire, out, 0)
        if left & 7:
            self._deliver((*state[:7], left - REPEATS), wire, out, AIDED)

    def _deliver(self, state: StateTuple, wire: int, out: list[ModelStep], aided: int) -> None:
        number, wires = state[5], state[6]
        if wire == PLANNER:
            ended = self.runs.values[number].state in (*run.SETTLED, run.CANCEL_REQUESTED)
            late = aided | (self._mark(PLAN_AFTER_END) if ended else 0)
            out.append(self._move(state, "gets its plan", self.runs.accept(number), wires, late))
            if self.plan.planner_fails:
                failed = self.runs.fail(number)
                seen = late | (self._mark(PLANNING_FAILS) if failed.lines else 0)
                out.append(self._move(state, "gets no plan", failed, wires, seen))
        elif wire & _KIND == FACT:
            message = self._messages[wire & _REST]
            entry = self.runs.receive(number, message)
            out.append(self._move(state, f"is notified of job {message.place + 1}", entry, wires, aided))
        else:
            out.append(self._followed(state, wire & _PLACE, ORDERED[(wire & _REST) >> 3], aided))

    def _followed(self, state: StateTuple, which: int, ordered: tuple[str, str], aided: int) -> ModelStep:
        """Deliver an order of the run to a job."""
        jobs, hands, net, orch, spare, number, wires, left = state
        what, why = ordered
        order = JobOrder(run_id=RUN_ID, pieces=1, what=what, places=(which,), why=why)
        entry = self.inner.deciding.follow(jobs[which], which, order)
        done = StoryStep(what, which, 0, entry)
        if entry.wrong:
            return done, (entry.wrong,), aided
        requests = budget.cancel_committed(which) if what == STOP else 0
        inner = (jobs, hands, net, orch, spare | requests)
        after = self.inner.become(inner, which, entry.after, 0) if entry.changed else inner
        return done, (*after, number, tuple(sorted((*wires, *self._news(entry)))), left), aided

    def _move(
        self, state: StateTuple, what: str, entry: RunEntry, wires: tuple[int, ...], bits: int
    ) -> ModelStep:
        done = RunDone(what, 0, entry.lines)
        if entry.wrong:
            return done, (entry.wrong,), bits
        jobs, hands, net, orch, spare, _, _, left = state
        orders = [ORDER | ORDERED.index((what, why)) << 3 | place for place, what, why in entry.orders]
        flying = tuple(sorted((*wires, *orders)))
        return done, (jobs, hands, net, orch, spare, entry.after, flying, left), bits

    def tell(self, done: Any, before: StateTuple, after: StateTuple) -> list[str]:
        """Return a step in words."""
        if isinstance(done, RunDone):
            return [f"The run {done.what}.", *rows(done.lines)]
        return self.inner.tell(done, before[:5], after[:5])
