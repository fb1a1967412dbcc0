"""What a run adds to its jobs, in calls of Python functions: they do not depend on the machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import msgspec
import pytest
from tests.systems.runs.site import plan, planned

from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Succeeded
from interlock.wire.runs import Plan, RunSpec

AT_ONCE = 200


async def work(house: Runtime) -> int:
    """Claim some jobs and complete them; return their number."""
    given = await house.orchestrator.claim(ClaimRequest(runner_id="r", limit=AT_ONCE))
    done = [Complete(token=g.token, runner_id="r", outcome=Succeeded(msgspec.Raw(b"1"))) for g in given]
    await house.orchestrator.report(done)
    return len(given)


def layered(layers: int, width: int) -> Plan:
    """Return a plan of layers of jobs; each needs all of the layer before."""
    names = [[f"{layer}.{number}" for number in range(width)] for layer in range(layers)]
    return plan(
        *(
            planned(name, *(names[layer - 1] if layer else ()))
            for layer in range(layers)
            for name in names[layer]
        )
    )


async def in_runs(house: Runtime, plans: list[Plan]) -> int:
    """Submit these runs, and see them through; return the number of their jobs."""
    for each in plans:
        await house.runs.submit(RunSpec(plan=each))
    while await house.runs.keep() + await work(house):
        pass
    ended, _ = await house.runs.find(limit=100)
    assert {(one.state, one.outcome) for one in ended} == {("REPORTED", "SUCCESS")}
    return sum(len(each.jobs) for each in plans)


def calls_a_job(doing: Callable[[Runtime], Coroutine[Any, Any, int]]) -> float:
    """Return the number of Python functions called for each job."""
    calls = 0

    def count(_: FrameType, what: str, __: object) -> None:
        nonlocal calls
        calls += what == "call"

    async def live() -> int:
        store = MemoryStore(CATALOGUE)
        await store.open()
        house = Runtime(store, DEFAULT_SETTINGS)
        house.runs.prompt = False
        sys.setprofile(count)
        try:
            return await doing(house)
        finally:
            sys.setprofile(None)
            await house.close()

    jobs = asyncio.run(live())
    return calls / jobs


@pytest.mark.parametrize(("runs", "layers", "width", "most"), [(40, 4, 5, 136), (1, 10, 50, 95)])
def test_a_job_of_a_run_takes_so_many_calls(runs: int, layers: int, width: int, most: int) -> None:
    assert calls_a_job(lambda house: in_runs(house, [layered(layers, width)] * runs)) < most


def test_a_job_alone_takes_so_many_calls() -> None:
    async def alone(house: Runtime) -> int:
        made = await house.jobs.submit_many([JobSpec(task="noop")] * 400)
        while await work(house):
            pass
        return len(made)

    assert calls_a_job(alone) < 66
