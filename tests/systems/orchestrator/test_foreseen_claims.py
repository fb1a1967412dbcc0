"""Claims of jobs of one shape are decided in advance, and are the same as others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import House, done

from interlock.errors import StoreUnavailable
from interlock.store.postgres import claims
from interlock.store.records import Key, Outcome
from interlock.testing.servers import PostgresServer
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Grant, Heard


@pytest.fixture
async def house(postgres: PostgresServer) -> AsyncIterator[House]:
    opened = await House(url=postgres.new_database()).open(asking=False)
    yield opened
    await opened.close()


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of jobs in claims that were as foreseen; 0 for those that were not."""
    numbers: list[int] = []
    original: Callable[..., Awaitable[list[Outcome] | None]] = claims.Claims._claim_foreseen

    async def counted(*given: Any, **more: Any) -> list[Outcome] | None:
        outcomes = await original(*given, **more)
        numbers.append(len(outcomes or ()))
        return outcomes

    monkeypatch.setattr(claims.Claims, "_claim_foreseen", counted)
    return numbers


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of jobs in claims that were read before they were written."""
    numbers: list[int] = []
    original: Callable[..., Awaitable[list[Outcome] | None]] = claims.Claims._claim_alone

    async def counted(*given: Any) -> list[Outcome] | None:
        outcomes = await original(*given)
        numbers.append(len(outcomes or ()))
        return outcomes

    monkeypatch.setattr(claims.Claims, "_claim_alone", counted)
    return numbers


async def submitted(house: House, number: int, task: str = "mail") -> list[str]:
    specs = [JobSpec(task=task, input=msgspec.Raw(b"%d" % place)) for place in range(number)]
    return list(await house.jobs.submit_many(specs))


async def completed(house: House, grants: list[Grant]) -> None:
    answers = await house.port.report([done(grant, bytes(grant.input)) for grant in grants])
    assert answers == [Heard(state="SUCCEEDED")] * len(grants)


async def story(house: House, job_id: str) -> list[tuple[object, ...]]:
    feed = await house.store.history(Key("job", job_id))
    return [(entry.version, entry.note.actor, entry.note.steps) for entry in feed.entries]


async def test_each_full_claim_after_the_first_is_as_foreseen(house: House, foreseen: list[int]) -> None:
    ids = await submitted(house, 40)
    claimed = []
    for _ in range(4):
        grants = await house.claim(limit=10)
        claimed += [grant.job_id for grant in grants]
        await completed(house, grants)
    assert claimed == ids, "in their order"
    assert foreseen == [10, 10, 10]
    assert [bytes((await house.jobs.get(each)).result or b"") for each in ids[:12]] == [
        b"%d" % place for place in range(12)
    ]
    first, *others = [await story(house, each) for each in (ids[0], ids[10], ids[39])]
    assert others == [first, first]
    assert await house.claim(limit=10) == []


@pytest.mark.parametrize(
    ("limit", "guessed", "read"),
    [(10, [1, 1, 1], [1, 0, 1, 0, 0, 0, 0]), (1, [1, 0, 1, 0, 1, 0], [1, 0, 1, 0])],
    ids=["some slots", "one slot, with which every claim is full"],
)
async def test_jobs_that_come_one_by_one_are_foreseen_after_two_alike(
    house: House, foreseen: list[int], reads: list[int], limit: int, guessed: list[int], read: list[int]
) -> None:
    ids = []
    for _ in range(5):
        ids += await submitted(house, 1)
        (grant,) = await house.claim(limit=limit)
        assert grant.job_id == ids[-1]
        await completed(house, [grant])
        assert await house.claim(limit=limit) == []
    assert (foreseen, reads) == (guessed, read)
    assert await house.claim(limit=limit) == []
    assert (foreseen, reads) == ([*guessed, 0], read), "where nothing is ready, nothing more is read"
    first, *others = [await story(house, each) for each in ids]
    assert others == [first] * 4


async def test_jobs_of_two_tasks_that_take_turns_are_not_foreseen(house: House, foreseen: list[int]) -> None:
    for task in ("mail", "build") * 3:
        await submitted(house, 1, task)
        (grant,) = await house.claim(limit=10)
        assert grant.task == task
        await completed(house, [grant])
    assert foreseen == []


async def test_a_claim_below_its_limit_is_not_foreseen_if_a_job_of_higher_priority_is_queued(
    house: House, foreseen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MANY_TAKEN", 1)  # claims begin where the last one ended
    monkeypatch.setattr(claims, "LOOK_AGAIN_S", 600.0)
    await submitted(house, 21)
    for _ in range(2):
        await completed(house, await house.claim(limit=10))
    urgent = await house.jobs.submit(JobSpec(task="mail", priority=5))
    grants = await house.claim(limit=10)
    assert grants[0].job_id == urgent
    assert (len(grants), foreseen) == (2, [10, 0])


async def test_a_foreseen_job_can_be_cancelled_fail_and_be_given_back(
    house: House, foreseen: list[int]
) -> None:
    await submitted(house, 20)
    await completed(house, await house.claim(limit=10))
    grants = await house.claim(limit=10)
    assert foreseen == [10]
    await house.jobs.cancel(grants[3].job_id)
    answers = await house.port.report([done(grant) for grant in grants])
    assert [answer.state for answer in answers if isinstance(answer, Heard)] == ["SUCCEEDED"] * 3 + [
        "CANCELED"
    ] + ["SUCCEEDED"] * 6


async def test_another_task_among_them_is_claimed_as_well(house: House, foreseen: list[int]) -> None:
    await submitted(house, 15)
    await submitted(house, 1, "build")
    await submitted(house, 4)
    await completed(house, await house.claim(limit=10))
    grants = await house.claim(limit=10)
    assert [grant.task for grant in grants] == ["mail"] * 5 + ["build"] + ["mail"] * 4
    assert foreseen == [0]
    await completed(house, grants)


async def test_the_grants_of_a_foreseen_claim_are_recovered_after_the_answer_of_the_store_is_lost(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await submitted(house, 30)
    await completed(house, await house.claim(limit=10))

    def lose(*_: object) -> None:
        raise StoreUnavailable("The answer was lost.")

    with monkeypatch.context() as patch:
        patch.setattr(claims, "foreseen_records_of", lose)
        grants = await house.claim(limit=10)
    assert sorted(grant.job_id for grant in grants) == sorted(ids[10:20])
    await completed(house, grants)
    rest = await house.claim(limit=10)
    assert [grant.job_id for grant in rest] == ids[20:]
    await completed(house, rest)


async def test_a_lost_foreseen_claim_that_was_not_written_grants_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await submitted(house, 20)
    await completed(house, await house.claim(limit=10))

    async def lose(*_: object, **__: object) -> None:
        raise StoreUnavailable("The answer was lost.")

    with monkeypatch.context() as patch:
        patch.setattr(claims.Claims, "_claim_foreseen", lose)
        assert await house.claim(limit=10) == []
    assert [grant.job_id for grant in await house.claim(limit=10)] == ids[10:]
