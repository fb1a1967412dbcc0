"""Whoever looks after a run dies, before or after any one of its writes; somebody else finishes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.effort import pick
from tests.systems.orchestrator.house import done, failed
from tests.systems.runs.site import Site, plan, planned

from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.orchestrator.vault import Environment, SecretPolicy
from interlock.systems.settings import Settings
from interlock.testing.clocks import JumpingClock
from interlock.testing.faults import FaultyStore, Plan
from interlock.wire.runs import RunSpec

T = TypeVar("T")

POLICY = SecretPolicy(environments={"production": Environment(approval=True)})
SETTINGS = Settings(secrets=POLICY)


def spec(environment: str) -> RunSpec:
    """A run of six jobs; one that deploys has to be approved."""
    return RunSpec(
        plan=plan(
            planned("a"),
            planned("b", "a"),
            planned("b2", "a"),
            planned("c", "a", required=False),
            planned("d", "b", "b2", "c", environment=environment),
            planned("e", "d", required=False),
        )
    )


WRITES = ("commit", "claim", "due")


class MortalStore(FaultyStore):
    """What a process sees that dies at one of its writes: after that it does nothing more."""

    def __init__(self, store: Store, dies_at: int, *, afterwards: bool) -> None:
        super().__init__(store, Plan())
        self.writes = 0
        self._dies_at = dies_at
        self._afterwards = afterwards

    async def close(self) -> None:
        """The store outlives it."""

    async def _spoilt(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        self.writes += method in WRITES
        if self.writes > self._dies_at or (self.writes == self._dies_at and not self._afterwards):
            raise asyncio.CancelledError
        answer = await call()
        if self.writes == self._dies_at and method in WRITES:
            raise asyncio.CancelledError
        return answer


async def work(site: Site, environment: str, rounds: int, pause_s: float) -> str:
    """Submit, and do everything that a crew, its keepers and an operator do, for some rounds."""
    view = await site.runs.submit(spec(environment), request_id="delivery")
    for _ in range(rounds):
        site.clock.jump(pause_s)
        await site.recover()
        if (await site.look(view.id)).state == "AWAITING_APPROVAL":
            await site.runs.approve(view.id, request_id="yes", actor="olga")
            await site.recover()
        given = await site.offered(view.id)
        ended = {
            name: failed(grant, "compile") if name == "c" else done(grant) for name, grant in given.items()
        }
        await site.port.report([ended[name] for name in ("b", "b2") if name in ended])  # decided together
        await site.port.report([each for name, each in ended.items() if name not in ("b", "b2")])
        await site.recover()
    return view.id


async def die_and_finish(dies_at: int, environment: str, *, afterwards: bool) -> bool:
    """Return whether it died at all; in any case the run ends as it should."""
    clock = JumpingClock()
    memory = MemoryStore(CATALOGUE, clock=clock)
    await memory.open()
    mortal = MortalStore(memory, dies_at, afterwards=afterwards)
    first = await Site(SETTINGS, store=lambda: mortal, clock=clock).open()
    died = False
    try:
        await work(first, environment, 5, 0.0)
    except asyncio.CancelledError:
        died = True
    second = await Site(SETTINGS, store=lambda: memory, clock=clock).open()
    run_id = await work(second, environment, 25, 31.0)
    view = await second.look(run_id)
    assert (view.state, view.outcome) == ("REPORTED", "SUCCESS"), (dies_at, afterwards)
    assert view.tally == {"COMPLETED": 5, "FAILED": 1}
    assert [made.by for made in view.approvals] == (["olga"] if environment else [])
    assert await second.number_of_jobs() == 6
    assert (await second.path(run_id)).count("REPORTED") == 1
    assert await second.all_faults() == []
    return died


@pytest.mark.parametrize("environment", pick(["production"], ["production", ""]))
@pytest.mark.parametrize("afterwards", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_write_is_mended_by_the_next_process(afterwards: bool, environment: str) -> None:
    """The quick run takes every seventh write; before it and after it these are not the same ones."""
    dies_at = 1 + 2 * afterwards
    assert await die_and_finish(1, environment, afterwards=afterwards)
    while await die_and_finish(dies_at, environment, afterwards=afterwards):
        dies_at += pick(7, 1)
    assert dies_at > 30, "a life has many writes, or the test has seen none of them"
