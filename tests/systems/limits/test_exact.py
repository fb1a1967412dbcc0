"""Limits are held exactly: among eight workers that crash, checked from the journal, on every store."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest
from tests.effort import further, pick
from tests.systems.orchestrator.house import TTL_S, House, done, failed, release
from tests.systems.orchestrator.test_every_store_alike import OpenHouse

from interlock.errors import Contended
from interlock.lifecycles import lease
from interlock.store.records import Entry, Key
from interlock.systems.orchestrator import gates
from interlock.systems.orchestrator.admissions import Admissions
from interlock.systems.orchestrator.body import LimitPart, decode_body
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.limits import LimitSpec
from interlock.wire.runner import Grant

WORKERS = 8
MOST = {"vendor-x": 3, "tenant:a": 2, "tenant:b": 2, "queue:imports": 4}
AT_ONCE = {"user": RetryRule(retries=3, first_pause_s=0.0, jitter=0.0)}


async def journal_of(house: House) -> list[Entry]:
    """Return the whole journal."""
    entries: list[Entry] = []
    cursor = ""
    while (feed := await house.store.feed(cursor)).entries:
        entries += feed.entries
        cursor = feed.cursor
    return entries


def peaks(journal: list[Entry], limits: dict[str, LimitPart]) -> Counter[str]:
    """Return how many slots of each key were leased at the same time at most, by the steps of leases."""
    live: dict[tuple[str, str], int] = {}
    now, most = Counter[str](), Counter[str]()
    for entry in journal:
        if entry.kind != "job" or entry.id not in limits:
            continue
        part = limits[entry.id]
        for step in entry.note.steps:
            if step.machine not in ("lease", "attempt"):
                continue
            name = (entry.id, step.entity)
            if step.machine == "attempt" and step.target == "LEASED":
                live[name] = part.weight
                now.update(dict.fromkeys(part.keys, part.weight))
            elif step.machine == "lease" and step.target in map(str, lease.DEAD) and live.pop(name, 0):
                now.subtract(dict.fromkeys(part.keys, part.weight))
        for key in part.keys:
            most[key] = max(most[key], now[key])
    assert not live, "a lease was never ended"
    return most


class Worker:
    """Takes jobs and ends them, or dies with them, as chance has it."""

    def __init__(self, house: House, name: str, chance: random.Random) -> None:
        self.house, self.name, self._chance = house, name, chance

    async def turn(self) -> int:
        """Claim some jobs, and do something with each."""
        grants = await self.house.claim(self.name, limit=3, queues=("default", "imports"))
        for grant in grants:
            await self._end(grant)
        with suppress(Contended):  # others are at it
            await self.house.port.services.limits.keep()
        return len(grants)

    async def _end(self, grant: Grant) -> None:
        fate = self._chance.random()
        if fate < 0.15:
            return  # it is killed with this job, whose lease runs out
        say = done if fate < 0.7 else failed if fate < 0.85 else release
        await self.house.say(say(grant, runner_id=self.name))


async def play(open_house: OpenHouse, houses: list[House]) -> Counter[str]:
    """Have workers do jobs under limits until all have ended; return the peaks of the keys."""
    first = houses[0]
    for name, most in (("vendor-x", 3), ("tenant:*", 2), ("queue:imports", 4)):
        await first.port.services.limits.set(name, LimitSpec(max=most))
    for house in houses:
        await house.port.services.limits.look()
    ids = await first.jobs.submit_many(_specs(random.Random(7)))
    workers = [Worker(house, f"w{number}", random.Random(number)) for number, house in enumerate(houses)]
    left = set(ids)
    for _ in range(pick(200, 2_000)):
        if sum(await asyncio.gather(*(worker.turn() for worker in workers))):
            continue
        views = await first.jobs.get_many(sorted(left))
        left = {view.id for view in views if view is not None and not view.completed_at}
        if not left:
            break
        open_house.move(TTL_S + 1)
        for house in houses:
            await house.recover()
    assert not left
    found = await first.store.load([Key("job", each) for each in ids])
    parts = {each.id: part for each in found if each and (part := decode_body(each.body).limits)}
    return peaks(await journal_of(first), parts)


def _specs(chance: random.Random) -> list[JobSpec]:
    specs = []
    for number in range(pick(24, 300)):
        keys = chance.choice((("vendor-x",), ("tenant:a", "vendor-x"), ("tenant:b",), ()))
        queue = chance.choice(("default", "imports"))
        weight = chance.choice((1, 1, 2)) if keys else 1
        specs.append(
            JobSpec(task=f"t{number % 2}", queue=queue, limits=keys, weight=weight, losses=10, retry=AT_ONCE)
        )
    return specs


@pytest.mark.parametrize("open_house", ["postgres", *further("memory", "sqlite", "redis")], indirect=True)
async def test_limits_are_held_exactly_by_eight_workers_that_crash(open_house: OpenHouse) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(WORKERS)]
    found = await play(open_house, houses)
    assert all(found[key] <= MOST[key] for key in MOST), found
    assert found["vendor-x"] == MOST["vendor-x"]  # and they are used
    for name in ("vendor-x", "tenant:*", "queue:imports"):
        assert all(key.used == 0 for key in (await houses[0].port.services.limits.get(name)).keys)


@pytest.mark.parametrize("open_house", ["memory"], indirect=True)
async def test_the_limit_check_detects_a_gate_that_admits_every_job(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates._Gate, "has_room_for", lambda *_: True)
    monkeypatch.setattr(gates._Gate, "room", True)
    monkeypatch.setattr(Admissions, "_room", lambda *_: 100)
    found = await play(open_house, [await open_house(DEFAULT_SETTINGS) for _ in range(3)])
    assert found["vendor-x"] > MOST["vendor-x"]
