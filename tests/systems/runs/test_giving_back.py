"""A process that ends in the middle of making the jobs of a run leaves them to others at once."""

from __future__ import annotations

import asyncio

import pytest
from tests.systems.runs.site import Site, planned

from interlock.engine.debounce import Debouncer
from interlock.systems.runs import orders
from interlock.systems.runs.body import RunBody
from interlock.systems.runs.new_jobs import JobOrder
from interlock.systems.runs.orders import (
    Orders,
)
from interlock.wire.runs import Plan, RunSpec


async def test_an_order_is_followed_at_once_by_others_when_its_process_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def for_ever(_: Orders, __: JobOrder, ___: RunBody | None = None) -> None:
        begun.set()
        await asyncio.Event().wait()

    run_id = (await site.runs.submit(RunSpec(plan=Plan(jobs=(planned("build"),))))).id
    with monkeypatch.context() as slow:
        slow.setattr(orders, "MOST_WITHIN", 0)
        slow.setattr(Orders, "carry_out", for_ever)
        debouncer = Debouncer("planning", site.runs.sweeper.plan)
        debouncer.trigger()
        await begun.wait()
        await debouncer.close(grace_s=0.01)
    await site.recover()  # by the clock no time has passed
    assert list(await site.offered(run_id)) == ["build"]


async def test_planning_that_takes_a_while_is_finished_before_a_process_ends() -> None:
    begun, done = asyncio.Event(), []

    async def plan() -> int:
        begun.set()
        for _ in range(50):
            await asyncio.sleep(0)
        done.append(True)
        return 0

    debouncer = Debouncer("planning", plan)
    debouncer.trigger()
    await begun.wait()
    await debouncer.close()
    assert done == [True]
