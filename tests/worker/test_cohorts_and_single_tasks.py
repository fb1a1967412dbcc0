"""A run by cohorts and a run one by one leave the same behind: journal, results, logs, costs (decision 0395).

Real orchestrator, real worker, virtual time. The jobs do different things, and are cancelled or not while
they wait, run or are retried; what the store knows afterwards has to be the same, entry by entry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock import Context, Registry
from interlock.errors import TerminalState
from interlock.lifecycles import job
from interlock.store.records import Key, Query
from interlock.testing import in_memory
from interlock.worker import executors, task_runner
from interlock.worker.cohorts import Cohorts
from interlock.worker.executors import ExecutorLane
from interlock.worker.postponement import RetryAfter, Snooze

TASKS = Registry()
CANCELLED: list[int] = []
"""The places of jobs that are to be cancelled as soon as possible."""


def fail(place: int) -> None:
    """Raise."""
    raise ValueError(f"number {place}")


def put_off(ctx: Context, later: BaseException) -> None:
    """Raise in the first attempt, to run again later."""
    if ctx.attempt == 1:
        raise later


ACTS: dict[str, Callable[[Context, int], object]] = {
    "return nothing": lambda _ctx, _place: None,
    "return a number": lambda _ctx, place: place,
    "return too much": lambda _ctx, _place: "x" * 300_000,
    "return no JSON": lambda _ctx, _place: object(),
    "fail": lambda _ctx, place: fail(place),
    "fail once": lambda ctx, place: fail(place) if ctx.attempt == 1 else place,
    "snooze": lambda ctx, place: put_off(ctx, Snooze(10.0 + place)),
    "retry later": lambda ctx, place: put_off(ctx, RetryAfter(10.0 + place)),
    "log": lambda ctx, place: ctx.log(f"line of {place}"),
    "print": lambda ctx, place: ctx.printed(f"printed by {place}", "stdout"),
    "progress": lambda ctx, place: ctx.progress(place, 10),
    "checkpoint": lambda ctx, place: ctx.checkpoint({"at": place}),
    "spend": lambda ctx, place: ctx.spend(place / 2),
    "look": lambda ctx, _place: ctx.cancelled,
    "cancel the next": lambda _ctx, place: CANCELLED.append(place + 1),
}


@TASKS.task(name="acts", retries=1)
async def acts(ctx: Context, place: int, act: str) -> Any:
    """Do what is asked for, without waiting for anything."""
    return ACTS[act](ctx, place)


@TASKS.task(name="plain")
async def plain(place: int, act: str) -> int:
    """Return a number; without a context."""
    return place


@TASKS.task(name="waits")
async def waits(place: int, act: str) -> int:
    """Wait a little, so that others gather; each another time, since equal timers have no order."""
    await asyncio.sleep(1.0 + place / 100)
    return place


ONE_BY_ONE = -1.0
"""A slice that is over after one handler: virtual time does not pass while they run."""

Plan = list[tuple[str, str]]
plans = st.lists(
    st.tuples(st.sampled_from(("acts", "acts", "plain", "waits")), st.sampled_from(sorted(ACTS))),
    min_size=1,
    max_size=12,
)


async def left_behind(plan: Plan, *, concurrency: int, slice_s: float, by_cohorts: bool) -> list[Any]:
    """Execute the jobs of a plan; return what the store knows about them in the end."""
    forms = Cohorts.may_be_one
    formed = 0

    def may_be_one(*args: Any) -> bool:
        nonlocal formed
        formed += forms(*args)
        return by_cohorts and forms(*args)

    CANCELLED.clear()
    with (
        mock.patch.object(Cohorts, "may_be_one", may_be_one),
        mock.patch.object(task_runner, "SLICE_S", slice_s),
    ):
        async with in_memory(TASKS, concurrency=concurrency) as il:
            specs = [TASKS.get(name).spec(place, act) for place, (name, act) in enumerate(plan)]
            jobs = await il.submit_many(specs)
            while not all([(await each.view()).state in job.ENDED for each in jobs]):
                await asyncio.sleep(0.5)
                for place in [place for place in CANCELLED if place < len(jobs)]:
                    with contextlib.suppress(TerminalState):
                        await jobs[place].cancel()
                CANCELLED.clear()
            views = [await each.view() for each in jobs]
            journals = [await il.store.history(Key(job.JOB.name, each.id)) for each in jobs]
            beside = await il.store.find(Query(kind="log", limit=500))
    assert formed or not any(name != "waits" for name, _ in plan)
    return [
        [msgspec.json.encode(view) for view in views],
        [list(journal.entries) for journal in journals],
        sorted(str(each) for each in beside.records),
    ]


@given(plan=plans, concurrency=st.sampled_from((1, 3, 10)), slice_s=st.sampled_from((ONE_BY_ONE, 600.0)))
@example(plan=[*[("acts", "log")] * 7, ("waits", "log")], concurrency=1, slice_s=600.0)
def test_a_run_by_cohorts_leaves_the_same_behind_as_a_run_one_by_one(
    plan: Plan, concurrency: int, slice_s: float
) -> None:
    together, alone = (
        asyncio.run(left_behind(plan, concurrency=concurrency, slice_s=slice_s, by_cohorts=way))
        for way in (True, False)
    )
    assert together == alone


def test_handlers_that_leave_their_cohort_count_as_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """They did not, so of a task that logs or fails a worker never claimed ahead."""
    lanes: list[ExecutorLane] = []
    learn = ExecutorLane.learn

    def heard(lane: ExecutorLane, longest_s: float, handlers: int) -> None:
        lanes.append(lane)
        learn(lane, longest_s, handlers)

    monkeypatch.setattr(ExecutorLane, "learn", heard)
    plan = [("acts", "log")] * 8
    asyncio.run(left_behind(plan, concurrency=10, slice_s=600.0, by_cohorts=True))
    assert lanes[-1].longest_s < executors.SOON_S
