"""Dead letters: failed jobs without a try left are listed until they are retried or discarded, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.server.running import running

from interlock import DeadLetter, Interlock, JobSpec, Registry, sync
from interlock.engine.loader import every_entry
from interlock.errors import InterlockError, InvalidJob, RequestIdReused, TransitionNotAllowed, UnknownJob
from interlock.store.records import Key
from interlock.systems.orchestrator import dead_letters
from interlock.systems.orchestrator.dead_letters import DEAD_LETTER
from interlock.systems.orchestrator.settings import DeadLetterSettings
from interlock.systems.settings import Settings
from interlock.testing import in_memory
from interlock.testing.memory_interlock import InMemory

REGISTRY = Registry()
HEARD: list[DeadLetter] = []


@REGISTRY.task(name="send", retries=1)
async def send(address: str) -> str:
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    return f"sent to {address}"


@REGISTRY.task(name="alert", retries=0)
async def alert(letter: DeadLetter) -> None:
    HEARD.append(letter)
    raise ValueError("nobody answers the telephone")


@pytest.fixture
async def il() -> AsyncIterator[InMemory]:
    HEARD.clear()
    async with in_memory(REGISTRY) as il:
        yield il


async def failed(il: InMemory, *addresses: str, **options: Any) -> list[str]:
    jobs = [await il.submit(send.options(**options), address) for address in addresses]
    for job in jobs:
        assert (await il.wait(job.id, timeout_s=3_600)).state == "FAILED"
    return [job.id for job in jobs]


async def listed(il: Interlock, wanted: str = "") -> list[str]:
    letters, cursor = await il.dead_letters.list(wanted)
    assert cursor == ""
    return [letter.id for letter in letters]


async def test_a_job_that_ran_out_of_tries_is_listed_with_its_failure(il: InMemory) -> None:
    (job,) = await failed(il, "nowhere", queue="default", metadata={"tenant": "acme"})
    ok = await il.submit(send, "a@b.example")
    await ok.result(timeout_s=60)
    ((letter,), _) = await il.dead_letters.list("task:send")
    assert (letter.id, letter.state, letter.job.metadata) == (job, "open", {"tenant": "acme"})
    assert letter.job.failure is not None
    assert letter.job.failure.error == "ValueError: nowhere is no address"
    assert [one.index for one in letter.job.attempts] == [1, 2]
    assert await il.dead_letters.get(job) == letter


async def test_filters_and_pages_see_the_same_dead_letters(
    il: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await failed(il, "a", "b", "c", "d", "e")
    await il.dead_letters.discard(jobs[3])
    monkeypatch.setattr(dead_letters, "PAGE", 2)
    seen, cursor = [], ""
    while True:
        page, cursor = await il.dead_letters.list(limit=1, cursor=cursor)
        seen += [letter.id for letter in page]
        if not cursor:
            break
    assert seen == [jobs[4], jobs[2], jobs[1], jobs[0]]
    assert await listed(il, f"id:{jobs[1]},{jobs[3]}") == [jobs[1]]
    assert await listed(il, "queue:other") == []
    assert await listed(il, "state:completed") == []


async def test_a_dead_letter_retried_with_an_edited_input_is_no_longer_listed(il: InMemory) -> None:
    (job,) = await failed(il, "nowhere")
    new = await il.dead_letters.retry(job, input={"address": "a@b.example"}, reason="a typo")
    assert await il.result(new, timeout_s=60) == "sent to a@b.example"
    view = await il.job(new)
    assert (view.origin_job_id, msgspec.json.decode(view.input)) == (job, {"address": "a@b.example"})
    assert await listed(il) == []
    letter = await il.dead_letters.get(job)
    assert (letter.state, letter.retried_as, letter.edited) == ("retried", new, True)
    assert (letter.reason, letter.by) == ("a typo", "test")
    assert (await il.job(job)).state == "FAILED", "the job itself stays as it was"


async def test_a_plain_retry_of_a_failed_job_takes_it_off_the_list_too(il: InMemory) -> None:
    (job,) = await failed(il, "nowhere")
    first = await il.retry(job)
    assert (await il.dead_letters.get(job)).retried_as == first.id
    again = await il.retry(job)
    assert again.id != first.id, "a job can be done again as often as one likes"
    assert (await il.dead_letters.get(job)).retried_as == first.id


async def test_a_discarded_dead_letter_is_journalled_and_can_be_neither_retried_nor_discarded_again(
    il: InMemory,
) -> None:
    (job,) = await failed(il, "nowhere")
    letter = await il.dead_letters.discard(job, reason="the customer has left")
    assert (letter.state, letter.reason) == ("discarded", "the customer has left")
    assert await listed(il) == []
    entries = [entry async for entry in every_entry(il.store, Key(DEAD_LETTER.name, job))]
    assert [(step.event, step.target) for entry in entries for step in entry.note.steps] == [
        ("discard", "discarded")
    ]
    assert (entries[0].note.actor, entries[0].note.reason) == ("test", "the customer has left")
    with pytest.raises(TransitionNotAllowed, match=f"{job} was discarded by test, so retry is refused"):
        await il.dead_letters.retry(job)
    with pytest.raises(TransitionNotAllowed, match="discard is refused"):
        await il.dead_letters.discard(job)


async def test_only_one_of_many_concurrent_retries_and_discards_of_a_dead_letter_succeeds(
    il: InMemory,
) -> None:
    (job,) = await failed(il, "nowhere")
    came = await asyncio.gather(
        *(il.dead_letters.retry(job) for _ in range(8)),
        *(il.dead_letters.discard(job) for _ in range(8)),
        return_exceptions=True,
    )
    done = [one for one in came if not isinstance(one, TransitionNotAllowed)]
    assert len(done) == 1
    again, _ = await il.jobs("task:send -state:failed")
    assert len(again) == (1 if isinstance(done[0], str) else 0)


async def test_an_operation_on_a_job_that_is_not_a_dead_letter_is_refused_with_the_job_state(
    il: InMemory,
) -> None:
    ok = await il.submit(send, "a@b.example")
    await ok.result(timeout_s=60)
    for act in (il.dead_letters.retry, il.dead_letters.discard, il.dead_letters.get):
        with pytest.raises(TransitionNotAllowed, match="is COMPLETED, so it is not a dead letter"):
            await act(ok.id)
        with pytest.raises(UnknownJob):
            await act("j_000000000000")
    (job,) = await failed(il, "nowhere")
    with pytest.raises(InterlockError, match="at most"):
        await il.dead_letters.retry(job, input={"address": "x" * 300_000})
    assert await listed(il) == [job]


async def test_a_repeated_request_is_answered_as_before(il: InMemory) -> None:
    (job, other) = await failed(il, "nowhere", "there")
    first = await il.dead_letters.retry(job, input={"address": "a@b"}, request_id="r1")
    assert await il.dead_letters.retry(job, input={"address": "a@b"}, request_id="r1") == first
    with pytest.raises(RequestIdReused):
        await il.dead_letters.retry(job, input={"address": "c@d"}, request_id="r1")
    gone = await il.dead_letters.discard(other, request_id="r2")
    assert await il.dead_letters.discard(other, request_id="r2") == gone


async def test_many_are_dealt_with_by_a_filter(il: InMemory) -> None:
    jobs = await failed(il, "a", "b", "c")
    retried = await il.dead_letters.retry_all(f"id:{jobs[0]}")
    assert list(retried) == [jobs[0]]
    assert (await il.wait(str(retried[jobs[0]]), timeout_s=3_600)).state == "FAILED"
    again = str(retried[jobs[0]])
    assert await listed(il) == [again, jobs[2], jobs[1]], "the new one has failed as well"
    left = await il.dead_letters.discard_all("task:send", reason="no use")
    assert left == dict.fromkeys([again, jobs[2], jobs[1]], "discarded")
    assert await listed(il) == []


async def test_an_alert_task_runs_once_for_each_dead_letter_and_not_for_its_own_failure() -> None:
    HEARD.clear()
    settings = Settings(dead_letters=DeadLetterSettings(task="alert"))
    async with in_memory(REGISTRY, settings=settings) as il:
        (job,) = await failed(il, "nowhere", metadata={"tenant": "acme"})
        for _ in range(3):  # whoever delivers messages may do it again
            await il.services.deliver()
        await il.clock.jump("1h")
        await il.services.deliver()
        (letter,) = HEARD
        assert (letter.job_id, letter.task, letter.attempts) == (job, "send", 2)
        assert (letter.failure_class, letter.error) == ("user", "ValueError: nowhere is no address")
        assert letter.metadata == {"tenant": "acme"}
        (about,) = (await il.jobs("task:alert"))[0]
        assert about.state == "FAILED"
        assert {job, about.id} == set(await listed(il))


async def test_without_an_alert_task_a_failure_sends_nothing(il: InMemory) -> None:
    await failed(il, "nowhere")
    assert await il.services.deliver() == 0


async def test_a_server_offers_the_same_as_a_store() -> None:
    async with running() as server, Interlock(server.url) as il:
        jobs = [await il.submit(JobSpec(task="send", retries=0)) for _ in range(4)]
        await fail_all(server.parts.runtime.orchestrator)
        ids = [job.id for job in jobs]
        assert await listed(il, "task:send") == ids[::-1]
        new = await il.dead_letters.retry(ids[0], input={"x": 1}, reason="again", request_id="r1")
        assert await il.dead_letters.retry(ids[0], input={"x": 1}, request_id="r1") == new
        assert (await il.dead_letters.get(ids[0])).retried_as == new
        assert (await il.dead_letters.discard(ids[1], reason="enough")).state == "discarded"
        with pytest.raises(TransitionNotAllowed, match="was discarded"):
            await il.dead_letters.retry(ids[1])
        with pytest.raises((InvalidJob, InterlockError)):
            await il.dead_letters.retry(ids[2], input={"x": "y" * 300_000})
        client = server.client()
        body = {"filter": "task:send", "action": "retry"}
        looked = (await client.post("/api/dead-letters/actions", json={**body, "dry_run": True})).json()
        assert [done["id"] for done in looked["done"]] == [ids[3], ids[2]]
        done = (await client.post("/api/dead-letters/actions", json=body)).json()
        assert [one["state"] for one in done["done"]] == ["retried", "retried"]
        assert await listed(il) == []


async def fail_all(orchestrator: Any) -> None:
    from interlock.wire.runner import ClaimRequest, Complete, Failed

    for grant in await orchestrator.claim(ClaimRequest(runner_id="r", limit=100)):
        outcome = Failed(error="no", failure_class="permanent")
        await orchestrator.report([Complete(token=grant.token, runner_id="r", sequence=1, outcome=outcome)])


def test_programs_without_asyncio_have_it_too(tmp_path: Any) -> None:
    with sync.Interlock(f"sqlite:///{tmp_path}/jobs.db") as il:
        assert il.dead_letters.list() == ([], "")
        with pytest.raises(UnknownJob):
            il.dead_letters.get("j_000000000000")
        assert il.dead_letters.retry_all("") == il.dead_letters.discard_all("") == {}
