"""Whatever happens to trees of jobs: nobody is over the quota, and nobody waits for ever."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.systems.orchestrator.house import House, beat, done, failed, release, stopped

from interlock.errors import InvalidJob, TerminalState
from interlock.lifecycles import lease
from interlock.store.records import Query
from interlock.systems.orchestrator import cancellation
from interlock.systems.orchestrator.body import TREE, decode_body
from interlock.systems.orchestrator.tree_slots import TreeSlots
from interlock.systems.orchestrator.trees import root_of
from interlock.systems.settings import Settings
from interlock.wire.runner import Grant, Heard

QUOTAS = (2, 3, 2, 1, 1, 1)
STEPS = 60
FAILS = ("ignore", "ignore", "cancel_siblings", "fail_parent")


class Day:
    """Somebody who does one thing after the other, as chance has it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.house = House(Settings(tree_quotas=QUOTAS))
        self.held: dict[str, Grant] = {}
        often, seldom = (self.submit, self.submit, self.take), (self.end, self.wait, self.cancel, self.lose)
        self.ways: list[Callable[[], Awaitable[object]]] = [*often, *often, *seldom, self.house.recover]

    async def play(self) -> None:
        await self.house.open()
        await self.house.submit()
        for _ in range(STEPS):
            await self.chance.choice(self.ways)()
            assert await over_quota(self.house) == []

    async def submit(self) -> None:
        """A root now and then, and else a child of somebody who is at work or not."""
        living = [view.id for view in (await self.house.jobs.find(LIVING))[0]]
        parent = self.chance.choice(living) if living and self.chance.random() < 0.9 else None
        workers = self.chance.choice((1, 1, 1, 2))
        fails = self.chance.choice(FAILS)
        # Too deep, more workers than there are places, or the parent has failed with another child meanwhile.
        with suppress(InvalidJob, TerminalState):
            await self.house.submit(parent_job_id=parent, worker_count=workers, if_fails=fails)

    async def take(self) -> None:
        for grant in await self.house.claim(limit=self.chance.randint(1, 4)):
            self.held[grant.token] = grant

    async def end(self) -> None:
        if (grant := self._any()) is None:
            return
        message = self.chance.choice((done, done, failed))(grant)
        if isinstance(await self.house.say(beat(grant, sequence=0)), Heard):
            await self.house.say(message)
            await self.house.say(stopped(grant))

    async def wait(self) -> None:
        if (grant := self._any()) is not None:
            await self.house.say(release(grant, await_children=True))

    async def cancel(self) -> None:
        if self.chance.random() < 0.3 and (grant := self._any()) is not None:
            view = await self.house.view(grant.job_id)
            if view.completed_at is None:
                await self.house.jobs.cancel(grant.job_id)

    async def lose(self) -> None:
        if self.chance.random() < 0.2:
            await self.house.later(130)
            self.held.clear()

    def _any(self) -> Grant | None:
        return self.held.pop(self.chance.choice(list(self.held))) if self.held else None

    async def finish(self) -> None:
        """Everybody does what is to be done, until nobody has anything to do."""
        for _ in range(60):
            await self.house.recover(2)
            for grant in [*self.held.values(), *await self.house.claim(limit=100)]:
                await self.house.say(beat(grant, sequence=0))
                await self.house.say(done(grant))
                await self.house.say(stopped(grant))
            self.held.clear()
            assert await over_quota(self.house) == []
            if not (await self.house.jobs.find(LIVING))[0]:
                break
            self.house.clock.jump(40)
        await self.house.recover(3)


LIVING = Query(kind="job", states=("SUBMITTED", "PENDING", "RUNNING"), limit=1_000)


async def over_quota(house: House) -> list[tuple[str, int]]:
    """Where more leases are live than there are places, by the leases themselves."""
    live = Counter[tuple[str, int]]()
    for record in (await house.store.find(LIVING)).records:
        body = decode_body(record.body)
        held = [one for one in body.attempts if one.lease is not None and one.lease.state in lease.LIVE]
        live[root_of(record), body.data.depth] += len(held)
    return [place for place, number in live.items() if number > QUOTAS[place[1]]]


async def whole(seed: int) -> list[str]:
    """A day from its beginning to its end; whoever is left then, and why."""
    day = Day(seed)
    await day.play()
    await day.finish()
    left = (await day.house.jobs.find(LIVING))[0]
    problems = [f"{view.id}: {(await day.house.jobs.explain(view.id)).sentence}" for view in left]
    trees = (await day.house.store.find(Query(kind=TREE.name, limit=1_000))).records
    problems += [f"{tree.id} is {tree.state}" for tree in trees if tree.state != "closed"]
    problems += [str(fault) for fault in await day.house.faults()]
    await day.house.close()
    return problems


@pytest.mark.parametrize("seed", range(12))
async def test_no_tree_exceeds_its_quota_and_no_job_waits_forever(seed: int) -> None:
    assert await whole(seed) == []


async def test_the_check_fails_if_the_tree_slots_ignore_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TreeSlots, "room", lambda _self, _depth: 1_000)
    with pytest.raises(AssertionError):
        await whole(1)


async def test_the_check_reports_waiting_jobs_if_cancellation_does_not_notify_the_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancellation, "tree_messages_of", lambda _draft: ())
    assert any("waits for" in problem for problem in await whole(1))
