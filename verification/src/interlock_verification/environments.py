"""The environments that ship with Interlock, written as data, and their exploration.

`QUICK` are explored by `make test-all` (two of them by `make test`), `LONG` by `make verify` as well,
`REDUCED` once for every mutant. Each lists the events that must occur, and the number of its states: another
number means that tables, deciders or the model have changed.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from interlock.errors import UnknownName
from interlock.testing.model_checker import (
    ExplorationReport,
    Mode,
    Model,
    Violation,
    broken_at_the_end,
    check,
    retell,
)
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import JobPlan, ModelPlan, RunPlan
from interlock_verification.models.run_world import (
    CANCELED_AT_WORK,
    CANCELED_BY_FORCE,
    OPTIONAL_JOB_FAILS,
    PLAN_AFTER_END,
    PLANNING_FAILS,
    REQUIRED_JOB_FAILS,
    RUN_APPROVED,
    RUN_NOT_APPROVED,
    RUN_TIMES_OUT,
    RunWorld,
)
from interlock_verification.required_events import ACKNOWLEDGED, LATE, LOOKED_AGAIN, REPEATED, TOO_LATE, TWICE

LOST_AND_DONE = "a lost attempt is retried and the job completes"
LOST_TOO_OFTEN = "a job that is lost too often fails"
TRIED_AND_DONE = "a failure is retried and the job completes"
NO_TRY_LEFT = "a job fails when no try is left"
GIVEN_BACK = "released work is executed by another attempt"
KEPT = "a result that arrives under a cancel is stored"
TIMED_OUT = "an attempt is timed out"
OUT_OF_TIME = "a job is canceled by its timeout"
FORCED = "a cancel is forced"
EXPIRED = "a job expires before a worker starts it"
SNOOZED = "a snoozed job completes"
OTHERS_STOPPED = "one shard fails and the others are stopped"

QUICK: tuple[ModelPlan, ...] = (
    ModelPlan(
        name="first-job",
        doc="One job is submitted, perhaps twice, and done by one worker, whose grant may get lost.",
        submits=True,
        duplicates=1,
        losses=1,
        shows=(LOST_AND_DONE, LOST_TOO_OFTEN, NO_TRY_LEFT, LATE, TWICE, REPEATED),
        states=832,
    ),
    ModelPlan(
        name="two-workers",
        doc="Two workers and a job with a retry: one of them dies, a message is repeated.",
        jobs=(JobPlan(retries=1),),
        workers=2,
        crashes=1,
        duplicates=1,
        shows=(LOST_AND_DONE, LOST_TOO_OFTEN, TRIED_AND_DONE, NO_TRY_LEFT, LATE, TWICE),
        states=22_416,
    ),
    ModelPlan(
        name="cancel",
        doc="A user cancels at any moment; the worker learns of it, or dies, or finishes before.",
        cancels=1,
        crashes=1,
        duplicates=1,
        heartbeats=2,
        shows=(KEPT, FORCED, ACKNOWLEDGED, REPEATED),
        states=16_379,
    ),
    ModelPlan(
        name="shards",
        doc="Two shards side by side, a cancel, and a shard that fails.",
        jobs=(JobPlan(shards=2),),
        workers=2,
        cancels=1,
        shows=(OTHERS_STOPPED, KEPT, FORCED, ACKNOWLEDGED),
        states=63_791,
    ),
    ModelPlan(
        name="timeouts",
        doc="Attempts and the job itself run out of time, in any order with the lease.",
        jobs=(JobPlan(retries=1, attempt_timeout=2, job_timeout=4),),
        cancels=1,
        crashes=1,
        heartbeats=2,
        shows=(TIMED_OUT, OUT_OF_TIME, LOST_AND_DONE, FORCED),
        states=41_282,
    ),
    ModelPlan(
        name="given-back",
        doc="Workers that acknowledge with the claim are asked to shut down, and release their work.",
        workers=2,
        acknowledge=True,
        releases=2,
        duplicates=1,
        shows=(GIVEN_BACK, LOST_AND_DONE, LATE),
        states=10_875,
    ),
    ModelPlan(
        name="in-time",
        doc="A job has to be started in time; its handler snoozes, and a user cancels.",
        jobs=(JobPlan(start_within=2, job_timeout=4),),
        releases=1,
        snooze=2,
        cancels=1,
        heartbeats=0,
        shows=(EXPIRED, SNOOZED, LOST_AND_DONE, OUT_OF_TIME),
        states=5_531,
    ),
    ModelPlan(
        name="race",
        doc="Two orchestrators decide at once about one job of two workers; a user cancels.",
        workers=2,
        orchestrators=2,
        heartbeats=0,
        fails=False,
        cancels=1,
        duplicates=1,
        shows=(LOOKED_AGAIN, TOO_LATE, REPEATED, LOST_TOO_OFTEN),
        states=25_662,
    ),
    RunPlan(
        name="run",
        doc="A run of one job: the planner fails or is late, repeated notifications, a cancel, a timeout.",
        jobs=(JobPlan(losses=0),),
        run_cancels=1,
        planner_fails=True,
        planner_timeout=1,
        run_timeout=3,
        repeats=1,
        shows=(
            "a required job fails, and so does the run",
            "a run is canceled while its jobs are running",
            "a run is canceled by force",
            "a run times out",
            "a plan arrives after the end",
            "planning fails",
        ),
        states=20_031,
    ),
    RunPlan(
        name="run-of-a-fork",
        doc="A run of a fork waits for an operator; it is approved, declined, canceled, or times out.",
        jobs=(JobPlan(losses=0),),
        heartbeats=0,
        fork=True,
        approval_timeout=2,
        planner_fails=True,
        planner_timeout=1,
        run_cancels=1,
        repeats=1,
        shows=("a run is approved", "a run is not approved in time", "planning fails"),
        states=5_694,
    ),
    RunPlan(
        name="run-that-deploys",
        doc="The plan of a run has to be approved before its jobs are made.",
        jobs=(JobPlan(losses=0),),
        heartbeats=0,
        environment=True,
        approval_timeout=2,
        planner_timeout=1,
        run_cancels=1,
        repeats=1,
        shows=("a run is approved", "a run is not approved in time", "a plan arrives after the end"),
        states=5_740,
    ),
    RunPlan(
        name="run-of-two",
        doc="A run of a required and an optional job, which one worker does.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, False),
        heartbeats=0,
        run_cancels=1,
        shows=("an optional job fails and the run succeeds", "a run is canceled by force"),
        states=104_741,
    ),
    RunPlan(
        name="run-without-haste",
        doc="A run of two required jobs lets them finish although one has failed; a job is canceled alone.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, True),
        fail_fast=False,
        heartbeats=0,
        cancels=1,
        shows=("a required job fails, and so does the run",),
        states=33_854,
    ),
)


LONG: tuple[ModelPlan, ...] = (
    ModelPlan(
        name="race-and-faults",
        doc="Two orchestrators, two workers: one of any dies, a message is repeated, a user cancels.",
        workers=2,
        orchestrators=2,
        crashes=1,
        duplicates=1,
        cancels=1,
        shows=(
            LOOKED_AGAIN,
            TOO_LATE,
            REPEATED,
            LATE,
            TWICE,
            ACKNOWLEDGED,
            FORCED,
            KEPT,
            LOST_AND_DONE,
            LOST_TOO_OFTEN,
        ),
        states=940_889,
    ),
    ModelPlan(
        name="two-jobs",
        doc="Two jobs, two workers, two attempts each: one worker dies, a message is repeated.",
        jobs=(JobPlan(), JobPlan()),
        workers=2,
        crashes=1,
        duplicates=1,
        shows=(LOST_AND_DONE, LOST_TOO_OFTEN, NO_TRY_LEFT, LATE, TWICE),
        states=1_269_705,
    ),
    ModelPlan(
        name="shards-and-faults",
        doc="Two shards, two workers of which one dies, a cancel.",
        jobs=(JobPlan(shards=2),),
        workers=2,
        crashes=1,
        cancels=1,
        shows=(OTHERS_STOPPED, KEPT, FORCED, LOST_AND_DONE, ACKNOWLEDGED),
        states=404_024,
    ),
    RunPlan(
        name="run-and-repeats",
        doc="A run of a required and an optional job, done by two workers; notifications are repeated.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, False),
        workers=2,
        heartbeats=0,
        run_cancels=1,
        repeats=1,
        shows=("an optional job fails and the run succeeds", "a run is canceled by force"),
        states=1_852_214,
    ),
    ModelPlan(
        name="timeouts-and-faults",
        doc="Attempts and the job run out of time; one of two workers dies, a message is repeated, a cancel.",
        jobs=(JobPlan(retries=1, attempt_timeout=2, job_timeout=4),),
        workers=2,
        crashes=1,
        duplicates=1,
        cancels=1,
        heartbeats=2,
        shows=(TIMED_OUT, OUT_OF_TIME, LOST_AND_DONE, FORCED, LATE, REPEATED),
        states=738_097,
    ),
)


REDUCED: tuple[ModelPlan, ...] = (
    ModelPlan(
        name="mutant-job",
        doc="One job with a retry and a loss, one worker, one message twice.",
        jobs=(JobPlan(retries=1),),
        duplicates=1,
        states=1_191,
        shows=(LOST_AND_DONE, LOST_TOO_OFTEN, TRIED_AND_DONE, NO_TRY_LEFT, LATE, TWICE),
    ),
    ModelPlan(
        name="mutant-cancel",
        doc="A cancel at any moment.",
        jobs=(JobPlan(losses=1),),
        cancels=1,
        heartbeats=2,
        states=1_799,
        shows=(KEPT, FORCED, ACKNOWLEDGED, LOST_AND_DONE),
    ),
    RunPlan(
        name="mutant-run",
        doc="A run of one job.",
        jobs=(JobPlan(losses=0),),
        run_cancels=1,
        planner_fails=True,
        planner_timeout=1,
        run_timeout=3,
        repeats=1,
        heartbeats=0,
        states=11_616,
        shows=(
            REQUIRED_JOB_FAILS,
            CANCELED_AT_WORK,
            CANCELED_BY_FORCE,
            RUN_TIMES_OUT,
            PLAN_AFTER_END,
            PLANNING_FAILS,
        ),
    ),
    RunPlan(
        name="mutant-run-of-a-fork",
        doc="A run of a fork waits for an operator.",
        jobs=(JobPlan(losses=0),),
        heartbeats=0,
        fails=False,
        fork=True,
        approval_timeout=2,
        run_cancels=1,
        states=881,
        shows=(RUN_APPROVED, RUN_NOT_APPROVED),
    ),
    RunPlan(
        name="mutant-run-that-deploys",
        doc="The plan of a run has to be approved.",
        jobs=(JobPlan(losses=0),),
        heartbeats=0,
        fails=False,
        environment=True,
        approval_timeout=2,
        run_cancels=1,
        states=884,
        shows=(RUN_APPROVED, RUN_NOT_APPROVED),
    ),
    ModelPlan(
        name="mutant-timeouts",
        doc="Attempts and the job run out of time.",
        jobs=(JobPlan(retries=1, losses=0, attempt_timeout=2, job_timeout=4),),
        heartbeats=1,
        states=551,
        shows=(TIMED_OUT, OUT_OF_TIME),
    ),
    ModelPlan(
        name="mutant-shards",
        doc="Two shards; released work.",
        jobs=(JobPlan(shards=2, losses=0),),
        workers=2,
        heartbeats=1,
        cancels=1,
        fails=True,
        acknowledge=True,
        states=9_958,
        shows=(OTHERS_STOPPED,),
    ),
    ModelPlan(
        name="mutant-given-back",
        doc="Work is released.",
        jobs=(JobPlan(losses=0),),
        releases=1,
        cancels=1,
        heartbeats=1,
        states=746,
        shows=(GIVEN_BACK,),
    ),
    ModelPlan(
        name="mutant-in-time",
        doc="A job has to be started in time, and its handler snoozes.",
        jobs=(JobPlan(start_within=1, losses=0),),
        releases=1,
        snooze=1,
        heartbeats=0,
        fails=False,
        acknowledge=True,
        shows=(EXPIRED, SNOOZED),
        states=45,
    ),
    RunPlan(
        name="mutant-run-of-two",
        doc="A required and an optional job.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, False),
        heartbeats=0,
        workers=1,
        acknowledge=True,
        states=3_926,
        shows=(OPTIONAL_JOB_FAILS,),
    ),
    RunPlan(
        name="mutant-run-of-options",
        doc="A run without required jobs, and without deadlines.",
        jobs=(JobPlan(losses=0),),
        required=(False,),
        fail_fast=False,
        heartbeats=0,
        run_timeout=2,
        states=182,
        shows=(OPTIONAL_JOB_FAILS,),
    ),
    RunPlan(
        name="mutant-run-without-haste",
        doc="A run that fails and lets its jobs finish.",
        jobs=(JobPlan(losses=0),),
        fail_fast=False,
        heartbeats=0,
        run_timeout=2,
        states=334,
        shows=(REQUIRED_JOB_FAILS, RUN_TIMES_OUT),
    ),
    RunPlan(
        name="mutant-run-of-nothing",
        doc="The only job of a run is canceled alone, perhaps before a worker had it.",
        jobs=(JobPlan(losses=0),),
        heartbeats=0,
        fails=False,
        cancels=1,
        shows=(KEPT,),
        states=364,
    ),
    RunPlan(
        name="mutant-run-is-stopped",
        doc="A run of two jobs is canceled.",
        jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
        required=(True, True),
        heartbeats=0,
        fails=False,
        acknowledge=True,
        run_cancels=1,
        states=31_321,
        shows=(CANCELED_AT_WORK, CANCELED_BY_FORCE),
    ),
)


ENVIRONMENTS: Mapping[str, ModelPlan] = MappingProxyType({plan.name: plan for plan in (*QUICK, *LONG)})


def plan_named(name: str) -> ModelPlan:
    """Return the environment of this name; raise if it is unknown.

    The error names the known environments.
    """
    try:
        return ENVIRONMENTS[name]
    except KeyError:
        raise UnknownName(name, tuple(ENVIRONMENTS), where="an environment") from None


def model_of(plan: ModelPlan) -> Model:
    """Return the model of a plan."""
    return RunWorld(plan) if isinstance(plan, RunPlan) else JobWorld(plan)


class ExplorationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of exploring an environment."""

    environment: str
    report: ExplorationReport
    seconds: float
    """Wall-clock seconds."""
    expected: int | None = None
    """The known number of states; None if unknown, or if not all were explored."""

    @property
    def ok(self) -> bool:
        """Whether every claim holds, and the number of states is the known one."""
        return self.report.ok and self.expected in (None, self.report.states)


Watch: TypeAlias = Callable[[str, int, int], None]
"""Called periodically with the environment and its states and edges so far."""


def explore(plan: ModelPlan, *, most: int | None = None, watch: Watch | None = None) -> ExplorationResult:
    """Explore one environment in this process."""

    def progress(states: int, edges: int, _: int) -> None:
        if watch is not None:
            watch(plan.name, states, edges)

    begun = time.perf_counter()
    report = check(model_of(plan), most=most, progress=progress)
    seconds = time.perf_counter() - begun
    if watch is not None:
        watch(plan.name, report.states, report.edges)
    expected = plan.states if report.complete else None
    return ExplorationResult(environment=plan.name, report=report, seconds=seconds, expected=expected)


def replay(plan: ModelPlan, choices: Sequence[int]) -> Violation:
    """Replay these choices; return the story and the claims broken at its end."""
    model = model_of(plan)
    story = tuple(tuple(step) for step in retell(model, choices))
    broken = broken_at_the_end(model, choices)
    claim = "; ".join(broken) or "nothing is broken here"
    return Violation(mode=Mode.ALWAYS, claim=claim, story=story, choices=tuple(choices))


def explore_side_by_side(
    plans: Sequence[ModelPlan], *, lanes: int = 2, most: int | None = None, watch: Watch | None = None
) -> Iterator[ExplorationResult]:
    """Explore each environment in its own process.

    A limited number is explored at a time.
    """
    waiting = sorted(plans, key=lambda plan: plan.states or 0, reverse=True)
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, BaseProcess] = {}
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                here, there = context.Pipe(duplex=False)
                name = waiting.pop(0).name
                child = context.Process(target=_explore_there, args=(name, most, there), name=name)
                child.start()
                there.close()
                running[here] = child
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                report = _receive(ready, running[ready])
                if isinstance(report, tuple) and watch is not None:
                    watch(*report)
                if not isinstance(report, tuple):
                    running.pop(ready).join()
                    ready.close()
                    yield report
    finally:
        for connection, left in running.items():
            left.terminate()
            left.join()
            connection.close()


def _receive(connection: Connection, child: BaseProcess) -> tuple[str, int, int] | ExplorationResult:
    try:
        report: tuple[str, int, int] | ExplorationResult = connection.recv()
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        raise RuntimeError(f"the exploration of {child.name} {how}") from None
    return report


def _explore_there(name: str, most: int | None, to: Connection) -> None:
    """Explore, in a child process."""
    to.send(explore(plan_named(name), most=most, watch=lambda *report: to.send(report)))
    to.close()
