"""The table of the run and the couplings around it, asked once for each pair of value and event."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from interlock.lifecycles import job, run
from interlock.lifecycles.couplings import COUPLINGS, Circumstances
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.run import RUN, Run, RunState
from interlock.machine import Event, Moved, Step
from interlock.machine.events import type_of
from interlock.store.records import StepLine
from interlock.verify.claims import bit
from interlock.verify.runs.plan import RunPlan

NO_TIMER = 99
CREATE, STOP = "create", "stop"

TABLES_HOLD = "the claims of the run's table hold"
STEPS_HOLD = "the claims of the run's table about each step hold"
RUN_ABSORBS = "a run that was reported stays reported"
HEEDED = "a cancel is heeded until the outcome is decided"
ENDS_WITH_THE_LAST = "a canceled run ends with the last of its jobs"
ONLY_BY_PLAN = "jobs are made from a plan and from nothing else"
NO_PLAN = "the planner's word that there is no plan is heeded"
LET_FINISH = "without fail-fast a run that has failed lets its jobs finish"
BEGINS = "a run begins with its first attempt"
WAITS = "a canceled run waits for its jobs, unless its deadline has passed"
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
)


class RunValue(NamedTuple):
    """What decides about a run: its state, what it knows, its timer, and how its jobs stand."""

    state: RunState
    data: Run
    timer: int
    """Ticks until its deadline."""
    tally: tuple[JobState | None, ...]
    """What the run has heard of each job; None before the first word."""


class RunEntry(NamedTuple):
    """What an event makes of a run."""

    after: int
    lines: tuple[StepLine, ...]
    orders: tuple[str, ...]
    """What the jobs are to be told: CREATE or STOP."""
    wrong: int


class RunDeciding:
    """The values of one run, and what becomes of them."""

    def __init__(self, plan: RunPlan, places: dict[str, int]) -> None:
        self.plan = plan
        self.places = places
        self.values: list[RunValue] = []
        self._ids: dict[RunValue, int] = {}
        self._entries: dict[tuple[int, object], RunEntry] = {}
        told = [c for c in COUPLINGS if c.cause is JOB and c.effect is RUN]
        steps = [step for state in JOB.states for step in JOB.steps_at(state)]
        self.job_steps = [step for step in steps if any(c.may_follow(step) for c in told)]
        self._told = told
        nothing_heard = (None,) * len(plan.jobs)
        self.first = self.intern(RunValue(RUN.initial, Run(), NO_TIMER, nothing_heard))

    def intern(self, value: RunValue) -> int:
        """The number of a value."""
        known = self._ids.get(value)
        if known is None:
            known = self._ids[value] = len(self.values)
            self.values.append(value)
        return known

    def age(self, number: int) -> int:
        """One tick later."""
        value = self.values[number]
        if value.timer == NO_TIMER or value.timer == 0:
            return number
        return self.intern(value._replace(timer=value.timer - 1))

    def tell(self, number: int, event: Event) -> RunEntry:
        """What an event does."""
        key = (number, event)
        if key not in self._entries:
            before = self.values[number]
            entry = self._decide(before, [event])
            self._entries[key] = entry._replace(wrong=entry.wrong | self._wrong_answer(before, event, entry))
        return self._entries[key]

    def fire(self, number: int) -> RunEntry | None:
        """What its deadline does, once it has passed."""
        value = self.values[number]
        within = RUN.table.entry(value.state).within
        if value.timer or within is None:
            return None
        event = within.event if isinstance(within.event, Event) else type_of(within.event)()
        return self.tell(number, event)

    def hear(self, number: int, which: int, step_number: int) -> RunEntry:
        """What it means for the run that one of its jobs took a step."""
        key = (number, (which, step_number))
        if key not in self._entries:
            self._entries[key] = self._hear(self.values[number], which, self.job_steps[step_number])
        return self._entries[key]

    def _hear(self, value: RunValue, which: int, step: Step[JobState]) -> RunEntry:
        known = value.tally[which]
        if known not in job.ENDED:
            value = value._replace(tally=(*value.tally[:which], step.target, *value.tally[which + 1 :]))
        facts = self._facts(value, which)
        events = [c.event() for c in self._told if c.event is not None and c.follows(step, facts)]
        entry = self._decide(value, events)
        after, wrong = self.values[entry.after], entry.wrong
        if after.state is run.CANCELED and value.state is not run.CANCELED and facts.anything_active:
            wrong |= bit(self.places[WAITS])
        return entry._replace(wrong=wrong)

    def _decide(self, value: RunValue, events: list[Event]) -> RunEntry:
        """Tell the run, and carry on what follows from its steps."""
        lines: list[StepLine] = []
        orders: list[str] = []
        wrong, waiting = 0, deque(events)
        while waiting:
            decision = RUN.decide(value.state, value.data, waiting.popleft())
            if not isinstance(decision, Moved):
                continue
            wrong |= self._wrong(value, decision.state, decision.data)
            value = value._replace(state=decision.state, data=decision.data)
            for step in decision.steps:
                lines.append(line_of(step))
                value = value._replace(timer=self._timer(value, step))
                value = self._follow(value, step, waiting, orders)
        wrong |= self._wrong_end(value, orders)
        return RunEntry(self.intern(value), tuple(lines), tuple(orders), wrong)

    def _follow(
        self, value: RunValue, step: Step[RunState], waiting: deque[Event], orders: list[str]
    ) -> RunValue:
        """What a step of the run causes in itself, and in its jobs."""
        for coupling in COUPLINGS.after(step, self._facts(value, 0)):
            if coupling.effect is RUN and coupling.event is not None:
                waiting.append(coupling.event())
            elif coupling.effect is JOB and coupling.event is None:
                orders.append(CREATE)
                value = value._replace(tally=(job.PENDING,) * len(value.tally))
            elif coupling.effect is JOB:
                orders.append(STOP)
        return value

    def _wrong_end(self, value: RunValue, orders: list[str]) -> int:
        """What must be true of where the run comes to stand."""
        wrong = bit(self.places[TABLES_HOLD]) if RUN.broken(value.state, value.data) else 0
        if value.state is run.CANCEL_REQUESTED and not self._facts(value, 0).anything_active:
            wrong |= bit(self.places[ENDS_WITH_THE_LAST])
        if STOP in orders and value.data.outcome in (run.FAILED, run.TIMEOUT) and not self.plan.fail_fast:
            wrong |= bit(self.places[LET_FINISH])
        return wrong

    def _wrong(self, before: RunValue, state: RunState, data: Run) -> int:
        wrong = 0
        if RUN.broken_across(before.state, before.data, state, data):
            wrong |= bit(self.places[STEPS_HOLD])
        if before.state in RUN.terminal and state is not before.state:
            wrong |= bit(self.places[RUN_ABSORBS])
        return wrong

    def _wrong_answer(self, before: RunValue, event: Event, entry: RunEntry) -> int:
        """What must come of some events, wherever they find the run."""
        wrong, after = 0, self.values[entry.after]
        undecided = before.state not in (*run.SETTLED, run.PLAN_FAILED)
        if event is run.cancel and undecided and not after.data.cancel_requested:
            wrong |= bit(self.places[HEEDED])
        if CREATE in entry.orders and event is not run.planned:
            wrong |= bit(self.places[ONLY_BY_PLAN])
        if (
            event is run.planning_failed
            and before.state is run.PLANNING
            and after.state is not run.PLAN_FAILED
        ):
            wrong |= bit(self.places[NO_PLAN])
        return wrong

    def _timer(self, value: RunValue, step: Step[RunState]) -> int:
        """A step arms what it says; a deadline that two neighbouring states share keeps running."""
        if step.arms:
            return self._ticks(step.arms[0].setting)
        return value.timer if RUN.table.entry(step.target).within is not None else NO_TIMER

    def _ticks(self, setting: str) -> int:
        plan = self.plan
        ticks = {
            "planner_timeout_s": plan.planner_timeout,
            "run_timeout_s": plan.run_timeout,
            "cancel_deadline_s": plan.cancel_deadline,
        }[setting]
        return ticks or NO_TIMER

    def _facts(self, value: RunValue, which: int) -> Circumstances:
        required = self.plan.required
        needed = [state for state, counts in zip(value.tally, required, strict=True) if counts]
        return Circumstances(
            stopping=value.data.cancel_requested,
            anything_active=any(state is not None and state not in job.ENDED for state in value.tally),
            required=required[which] if required else False,
            every_required_job_succeeded=all(state is job.COMPLETED for state in needed),
            fail_fast=self.plan.fail_fast,
        )


def line_of(step: Step[RunState]) -> StepLine:
    """What the journal would say."""
    return StepLine(step.machine, "", step.event, step.source, step.target, step.owner, step.moves)
