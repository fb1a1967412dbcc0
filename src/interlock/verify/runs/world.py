"""A run, its planner and reporter, and its jobs: what can happen next.

A state is the state of the jobs' world, the value of the run, and what is on its way between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from interlock.lifecycles import job, run
from interlock.lifecycles.job import JobState
from interlock.machine import Event
from interlock.store.records import StepLine
from interlock.verify.checking import Step
from interlock.verify.claims import AIDED, Claim, Mode, always, bit, eventually, sometimes
from interlock.verify.jobs import judging, spares
from interlock.verify.jobs.deciding import ABSENT, Entry
from interlock.verify.jobs.doing import Done
from interlock.verify.jobs.telling import rows
from interlock.verify.jobs.world import JobWorld, claims_of
from interlock.verify.runs.deciding import (
    BEGINS,
    CREATE,
    RUN_CLAIMS,
    STOP,
    RunDeciding,
    RunEntry,
)
from interlock.verify.runs.plan import RunPlan

State: TypeAlias = tuple[Any, ...]

FACT, ORDER, PLANNER = 1 << 8, 2 << 8, 3 << 8
REPEATS, RUN_CANCELS = 1, 8

SUCCESS_IS_EARNED = "a run succeeds only when every required job has completed"
FAILURE_HAS_A_CAUSE = "a run fails only for its plan or for a required job"
PLAN_FIRST = "a plan that arrives after the end creates nothing"
NOTHING_FORGOTTEN = "whatever a stopped run has left is being stopped"
REPORTED = "every run is reported, and all of it comes to rest"

_CLAIMS = (*RUN_CLAIMS, SUCCESS_IS_EARNED, FAILURE_HAS_A_CAUSE, PLAN_FIRST)

RUN_SIGHTS = (
    "an optional job fails and the run succeeds",
    "a required job fails and so does the run",
    "a run is canceled while its jobs are at work",
    "a run is canceled by force",
    "a run times out",
    "a plan arrives after the end",
    "planning fails",
)


class RunDone(NamedTuple):
    """A step of the run, as the story needs it."""

    what: str
    who: int
    lines: tuple[StepLine, ...] = ()


class RunWorld:
    """The model of a plan with a run."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.name = plan.name
        inner = [c for c in claims_of(plan) if c.mode is not Mode.SOMETIMES]
        self.claims: Sequence[Claim] = [
            *inner,
            *(always(claim) for claim in (*_CLAIMS, NOTHING_FORGOTTEN)),
            eventually(REPORTED),
            *(sometimes(claim) for claim in plan.shows),
        ]
        self.places = {claim.claim: place for place, claim in enumerate(self.claims)}
        self.inner = JobWorld(plan, self.places)
        self.runs = RunDeciding(plan, self.places)
        self._steps = {
            (step.event, str(step.source), str(step.target)): n for n, step in enumerate(self.runs.job_steps)
        }
        self._goal = bit(self.places[REPORTED])
        self._settled = bit(self.places[next(c.claim for c in inner if c.mode is Mode.EVENTUALLY)])

    def initial(self) -> State:
        """The run is recorded, and nothing else is there."""
        jobs, *rest = self.inner.initial()
        left = self.plan.repeats * REPEATS + self.plan.run_cancels * RUN_CANCELS
        return (ABSENT,) * len(jobs), *rest, self.runs.first, (), left

    def canonical(self, state: State) -> State:
        """Workers are alike; the jobs of a run are not."""
        return state if len(state) == 1 else (*self.inner.canonical(state[:5]), *state[5:])

    def look(self, state: State) -> int:
        """What is to be seen of the jobs, and of the run over them."""
        if len(state) == 1:
            broken: int = state[0]
            return broken
        seen = self.inner.look(state[:5])
        value = self.runs.values[state[5]]
        states = [self._job_state(number) for number in state[0]]
        seen |= self._broken(value.data.outcome, states, state)
        if value.state is run.REPORTED and (seen & self._settled or not any(state[0])):
            seen |= self._goal
        if not any(state[0]):  # a run that never had a plan has no jobs that would have to settle
            seen |= self._settled if value.state in run.SETTLED else 0
        return seen | self._sights(value.state, states)

    def _broken(self, outcome: object, states: list[JobState | None], state: State) -> int:
        needed = [one for one, counts in zip(states, self.plan.required, strict=True) if counts]
        tried = any(one is not None for one in states)
        seen = 0
        if outcome is run.SUCCESS and any(one is not job.COMPLETED for one in needed):
            seen |= bit(self.places[SUCCESS_IS_EARNED])
        if outcome is run.FAILED and tried and not any(one in (job.FAILED, job.CANCELED) for one in needed):
            seen |= bit(self.places[FAILURE_HAS_A_CAUSE])
        if tried and all(one is None for one in self.runs.values[state[5]].tally):
            seen |= bit(self.places[PLAN_FIRST])
        stopped = outcome in (run.CANCELED, *((run.FAILED, run.TIMEOUT) if self.plan.fail_fast else ()))
        if self.runs.values[state[5]].state is run.QUEUED and self._has_begun_unheard(states, state[6]):
            seen |= bit(self.places[BEGINS])
        if stopped and any(self._is_forgotten(number, state) for number in range(len(states))):
            seen |= bit(self.places[NOTHING_FORGOTTEN])
        return seen

    def _has_begun_unheard(self, states: list[JobState | None], wires: tuple[int, ...]) -> bool:
        """Whether a job is at work, and no word of it is on its way to the run."""
        told = {wire >> 5 & 7 for wire in wires if wire & 3 << 8 == FACT}
        return any(one is job.RUNNING and number not in told for number, one in enumerate(states))

    def _is_forgotten(self, number: int, state: State) -> bool:
        """Whether a job goes on, and no word to stop is on its way; what is overdue is judged as swept."""
        value, deciding = state[0][number], self.inner.deciding
        found = deciding.values[deciding.sweep(value).after if deciding.due[value] else value]
        if found is None:
            return False
        seen = judging.look_at(found, self.plan, number)
        going_on = seen.state not in job.ENDED and not seen.body.data.stop_reason
        return going_on and ORDER | number not in state[6]

    def _sights(self, now: run.RunState, states: list[JobState | None]) -> int:
        shown = {
            RUN_SIGHTS[0]: now is run.SUCCESS and job.FAILED in states,
            RUN_SIGHTS[1]: now is run.FAILED and job.FAILED in states,
            RUN_SIGHTS[2]: now is run.CANCEL_REQUESTED and job.RUNNING in states,
            RUN_SIGHTS[4]: now is run.TIMEOUT,
            RUN_SIGHTS[6]: now is run.PLAN_FAILED,
        }
        return sum(self._mark(name) for name, there in shown.items() if there)

    def _mark(self, name: str) -> int:
        return bit(self.places[name]) if name in self.places else 0

    def _job_state(self, value: int) -> JobState | None:
        found = self.inner.deciding.values[value]
        return None if found is None else JobState(found.state)

    # What can happen

    def steps(self, state: State) -> list[Step]:
        """What happens to the jobs, and to the run over them."""
        if len(state) == 1:
            return []
        out = list(self._inner_steps(state))
        self._run_steps(state, out)
        for wire in dict.fromkeys(state[6]):
            self._carry(state, wire, out)
        return out

    def _inner_steps(self, state: State) -> Iterator[Step]:
        """Whatever the jobs do; the run hears of it, and time passes for it as well."""
        *_, number, wires, left = state
        ticked = False
        for done, after, bits in self.inner.steps(state[:5]):
            if len(after) == 1:
                yield done, after, bits
                continue
            later = self.runs.age(number) if done.what == "tick" else number
            ticked |= done.what == "tick"
            news = self._news(done.job, done.entry)
            yield done, (*after, later, tuple(sorted((*wires, *news))), left), bits
        later = self.runs.age(number)
        if not ticked and later != number:
            yield Done("tick", 0, 0, None), (*state[:5], later, wires, left), 0

    def _news(self, which: int, entry: Entry | None) -> list[int]:
        """What the run has to hear of."""
        if entry is None:
            return []
        mine = [line for line in entry.lines if line.machine == "job" and line.moves]
        numbers = (self._steps.get((line.event, line.source, line.target)) for line in mine)
        return [FACT | which << 5 | number for number in numbers if number is not None]

    def _run_steps(self, state: State, out: list[Step]) -> None:
        *_, number, wires, left = state
        value, runs = self.runs.values[number], self.runs
        if value.state is run.CREATED:
            started = runs.tell(number, run.start_planning)
            out.append(self._move(state, "asks for a plan", started, (*wires, PLANNER), 0))
        if value.state is run.PLAN_FAILED:
            out.append(self._move(state, "fails without a plan", runs.tell(number, run.finalize), wires, 0))
        if (fired := runs.fire(number)) is not None:
            forced = self._mark(RUN_SIGHTS[3]) if value.state is run.CANCEL_REQUESTED else 0
            out.append(self._move(state, "has had its time", fired, wires, forced))
        if value.state in run.OUTCOMES:
            out.append(self._move(state, "is reported", runs.tell(number, run.reported), wires, 0))
        if left >= RUN_CANCELS:
            cancelled = runs.tell(number, run.cancel)
            fewer = (*state[:7], left - RUN_CANCELS)
            out.append(self._move(fewer, "is canceled by a user", cancelled, wires, AIDED))
        if left & 7 and value.state is run.REPORTED:
            again = runs.tell(number, run.reported)
            out.append(
                self._move((*state[:7], left - REPEATS), "is reported a second time", again, wires, AIDED)
            )

    def _carry(self, state: State, wire: int, out: list[Step]) -> None:
        """Deliver what is on its way; or deliver it, and let it come again."""
        wires, left = state[6], state[7]
        place = wires.index(wire)
        rest = wires[:place] + wires[place + 1 :]
        self._deliver((*state[:6], rest, left), wire, out, 0)
        if left & 7:
            self._deliver((*state[:7], left - REPEATS), wire, out, AIDED)

    def _deliver(self, state: State, wire: int, out: list[Step], aided: int) -> None:
        number, wires = state[5], state[6]
        if wire == PLANNER:
            ended = self.runs.values[number].state in (*run.SETTLED, run.CANCEL_REQUESTED)
            late = aided | (self._mark(RUN_SIGHTS[5]) if ended else 0)
            for said, event in self._plans():
                out.append(self._move(state, said, self.runs.tell(number, event), wires, late))
        elif wire & 3 << 8 == FACT:
            entry = self.runs.hear(number, wire >> 5 & 7, wire & 31)
            out.append(self._move(state, f"hears of job {(wire >> 5 & 7) + 1}", entry, wires, aided))
        else:
            out.append(self._stopped(state, wire & 7, aided))

    def _plans(self) -> list[tuple[str, Event]]:
        answers = [("gets its plan", run.planned)]
        return [*answers, ("gets no plan", run.planning_failed)] if self.plan.planner_fails else answers

    def _stopped(self, state: State, which: int, aided: int) -> Step:
        """The run's word to stop reaches a job, through the decider that users' cancels go through."""
        jobs, hands, net, orch, spare, number, wires, left = state
        entry = self.inner.deciding.cancel(jobs[which])
        done = Done("stop", which, 0, entry)
        if entry.wrong:
            return done, (entry.wrong,), aided
        inner = (jobs, hands, net, orch, spare | spares.asked(which))
        after = self.inner.become(inner, which, entry.after, 0) if entry.changed else inner
        news = self._news(which, entry) if entry.changed else []
        return done, (*after, number, tuple(sorted((*wires, *news))), left), aided

    def _move(self, state: State, what: str, entry: RunEntry, wires: tuple[int, ...], bits: int) -> Step:
        done = RunDone(what, 0, entry.lines)
        if entry.wrong:
            return done, (entry.wrong,), bits
        jobs, hands, net, orch, spare, _, _, left = state
        numbers = range(len(jobs))
        if CREATE in entry.orders:
            jobs = tuple(self.inner.first(number) for number in numbers)
        stops = [ORDER | number for number in numbers if STOP in entry.orders and jobs[number] != ABSENT]
        flying = tuple(sorted((*wires, *stops)))
        return done, (jobs, hands, net, orch, spare, entry.after, flying, left), bits

    def tell(self, done: Any, before: State, after: State) -> list[str]:
        """A step in words."""
        if isinstance(done, RunDone):
            return [f"The run {done.what}.", *rows(done.lines)]
        return self.inner.tell(done, before[:5], after[:5])
