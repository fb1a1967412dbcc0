"""A server looks after the store: deadlines, messages and what has ended, and says when it cannot."""

from __future__ import annotations

import asyncio
import cProfile
import io
import logging
import pstats
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.running import Running, any_port, running
from tests.waiting import PATIENCE_S
from tests.waiting import until as until_true

from interlock.engine.outbox import MESSAGE, outgoing, sent, take_all
from interlock.engine.retention import Retention
from interlock.errors import StoreUnavailable
from interlock.lifecycles.durations import Durations
from interlock.server.event_streams import JournalReader
from interlock.server.logs import ServerLog, libraries_logging
from interlock.server.metrics import ServerMetrics
from interlock.store.catalogue import catalogue_of
from interlock.store.memory import MemoryStore
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Entry,
    Key,
    Note,
    Request,
    RequestAnswer,
    StepLine,
)
from interlock.systems.settings import Settings
from interlock.wire.runner import ClaimRequest

QUICK = Durations(sweep_every_s=0.05)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
async def quick() -> AsyncIterator[Running]:
    """A server that looks often."""
    settings = any_port(deliver_every_s=0.05, retain_every_s=0.05)
    async with running(settings=settings, orchestration=Settings(durations=QUICK)) as one:
        yield one


async def until(server: Running, holds: Callable[[Sequence[Entry]], bool]) -> list[Entry]:
    """What the journal says, once it says what was waited for."""
    seen: list[Entry] = []
    news = asyncio.Event()

    def read(entries: Sequence[Entry], _: bool) -> None:
        seen.extend(entries)
        if holds(seen):
            news.set()

    remove = server.parts.following.add(read)
    async with asyncio.timeout(PATIENCE_S):
        await news.wait()
    remove()
    return seen


def moves(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    return [(step.machine, step.target) for entry in entries for step in entry.note.steps]


async def test_a_lease_that_is_not_renewed_is_swept_by_the_server(quick: Running) -> None:
    await quick.submit()
    waiting = asyncio.create_task(until(quick, lambda seen: ("attempt", "STALE") in moves(seen)))
    grants = await quick.parts.runtime.orchestrator.claim(ClaimRequest(runner_id="gone"))
    assert len(grants) == 1
    quick.jump(QUICK.lease_ttl_s + 1)
    entries = await waiting
    assert ("lease", "EXPIRED") in moves(entries)
    assert "clock" in {entry.note.actor for entry in entries}


async def test_news_that_is_less_than_a_page_is_gathered_before_the_journal_is_read_again(
    quick: Running,
) -> None:
    (journal,) = (loop for loop in quick.parts._make_loops() if loop.name == "journal")
    await quick.submit()
    assert await journal.round() > 0, "a busy store would be asked for each commit"


async def test_the_server_cancels_the_children_of_a_canceled_job(quick: Running) -> None:
    client = quick.client()
    parent = await quick.submit()
    child = (await client.post("/api/jobs", json={"task": "a.b", "parent_job_id": parent})).json()["id"]
    waiting = asyncio.create_task(
        until(quick, lambda seen: any(e.id == child and ("job", "CANCELED") in moves([e]) for e in seen))
    )
    await client.post(f"/api/jobs/{parent}/cancel")
    await waiting
    assert (await client.get(f"/api/jobs/{child}")).json()["stop_reason"] == "parent"


async def test_the_server_prunes_an_ended_job_after_its_retention_time() -> None:
    retention = Retention(default=timedelta(hours=1))
    async with running(settings=any_port(retain_every_s=0.05, retention=retention)) as one:
        client = one.client()
        job_id = await one.submit()
        assert (await client.post(f"/api/jobs/{job_id}/cancel")).status_code == 200
        one.jump(3_601)

        async def is_gone() -> bool:
            return (await client.get(f"/api/jobs/{job_id}")).status_code == 404

        await until_true(is_gone, "the job is pruned")


async def test_a_loop_that_fails_again_and_again_makes_the_server_unready(
    quick: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = asyncio.Semaphore(0)

    async def away(*_: object, **__: object) -> None:
        failures.release()
        raise StoreUnavailable("The database does not answer.")

    monkeypatch.setattr(quick.parts.store, "due", away)
    async with asyncio.timeout(PATIENCE_S):
        while (await quick.client().get("/readyz")).status_code == 200:
            await failures.acquire()
    readiness = (await quick.client().get("/readyz")).json()
    assert readiness["code"] == "not_ready"
    assert readiness["facts"]["loops"]["deadlines"] >= 3
    assert (
        'interlock_loop_failures_in_a_row{loop="deadlines"} 0.0'
        not in (await quick.client().get("/metrics")).text
    )
    assert "loop deadlines failed" in quick.log.getvalue()


# What is counted and written


def entry(
    at_s: float, source: str, target: str, *, refusal: str = "", name: str = "j_1", version: int = 2
) -> Entry:
    steps = () if refusal else (StepLine("job", "", "go", source, target, "orchestrator"),)
    return Entry(
        cursor="1",
        at=NOON + timedelta(seconds=at_s),
        kind="job",
        id=name,
        version=version,
        note=Note(steps=steps, refusal=refusal),
    )


def test_time_in_a_state_is_observed_when_it_is_left() -> None:
    metrics = ServerMetrics()
    made = entry(0, "SUBMITTED", "PENDING", version=1)
    metrics.follow([made, entry(2.5, "PENDING", "RUNNING")], False)
    metrics.follow([entry(3.5, "RUNNING", "COMPLETED"), entry(4, "", "", refusal="stale")], False)
    page = metrics.page([], {}).decode()
    for line in (
        'interlock_state_seconds_sum{machine="job",state="PENDING"} 2.5',
        'interlock_state_seconds_sum{machine="job",state="RUNNING"} 1.0',
        'interlock_transitions_total{from_state="PENDING",machine="job",to_state="RUNNING"} 1.0',
        'interlock_refusals_journalled_total{machine="job"} 1.0',
        'interlock_state_seconds_sum{machine="job",state="SUBMITTED"} 0.0',
    ):
        assert line in page
    assert 'state="COMPLETED"' not in page.replace("to_state", ""), "an end is never left"


async def test_time_that_a_message_waits_and_is_delivered_is_observed() -> None:
    moments = [NOON]
    store = MemoryStore(catalogue_of([MESSAGE]), clock=lambda: moments[-1])
    await store.commit([Commit(changes=(outgoing("m", "bell", b"null", NOON),))])
    moments.append(NOON + timedelta(seconds=2))
    (taken,) = await take_all(store, ("bell",), timedelta(seconds=30), limit=1)
    moments.append(NOON + timedelta(seconds=5))
    await store.commit([Commit(changes=(sent(taken),))])
    metrics = ServerMetrics()
    metrics.follow((await store.feed("", limit=10)).entries, False)
    page = metrics.page([], {}).decode()
    assert 'interlock_state_seconds_sum{machine="message",state="waiting"} 2.0' in page
    assert 'interlock_state_seconds_sum{machine="message",state="sending"} 3.0' in page


def test_metrics_omit_the_time_in_a_state_that_was_entered_before_the_server_followed_the_journal() -> None:
    metrics = ServerMetrics()
    metrics.follow([entry(0, "PENDING", "RUNNING"), entry(2, "RUNNING", "CANCELED")], False)
    page = metrics.page([], {}).decode()
    assert 'interlock_state_seconds_sum{machine="job",state="RUNNING"} 2.0' in page
    assert 'interlock_state_seconds_count{machine="job",state="PENDING"}' not in page


def test_a_commit_that_others_were_faster_than_counts_for_no_request_id() -> None:
    metrics = ServerMetrics()
    change = Change(kind="job", id="j_1", expected=1, state="RUNNING", body=b"{}")
    request = Request(id="r", endpoint="e", fingerprint="f", answer=RequestAnswer(body=b""))
    commit = Commit(changes=(change,), request=request)
    metrics.committed([commit], [Conflict(Key("job", "j_1"), 1, 2)])
    assert 'interlock_request_ids_total{outcome="done"} 0.0' in metrics.page([], {}).decode()
    metrics.committed([commit], [Committed(NOON)])
    assert 'interlock_request_ids_total{outcome="done"} 1.0' in metrics.page([], {}).decode()


def followed(entries: Sequence[Entry]) -> str:
    metrics = ServerMetrics()
    metrics.follow(entries, False)
    return "".join(line for line in metrics.page([], {}).decode().splitlines(True) if "_created" not in line)


@given(
    seconds=st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=3, max_size=3),
    order=st.permutations([f"j_{number}" for number in range(6)]),
    odd=st.integers(0, 5),
)
def test_entries_that_say_the_same_are_counted_like_each_on_its_own(
    seconds: list[float], order: list[str], odd: int
) -> None:
    states = ("SUBMITTED", "PENDING", "RUNNING", "COMPLETED")
    at_s, shared, apart = 0.0, [], []
    for number, (source, target) in enumerate(pairwise(states)):
        at_s += seconds[number]
        common = entry(at_s, source, target, version=number + 1)
        for place, name in enumerate(order):
            if number == 1 and place == odd:  # one of them is later, so that the others are in two runs
                alone = entry(at_s + 1, source, target, version=2, name=name)
                shared.append(alone)
                apart.append(alone)
                continue
            shared.append(msgspec.structs.replace(common, id=name))
            apart.append(entry(at_s, source, target, version=number + 1, name=name))
    assert len({id(each.note) for each in shared}) == 4
    assert followed(shared) == followed(apart)


def test_a_thousand_entries_of_one_batch_cost_hardly_more_calls_than_one() -> None:
    common = entry(0, "PENDING", "RUNNING")
    batch = [msgspec.structs.replace(common, id=f"j_{number}") for number in range(1_000)]
    metrics = ServerMetrics()
    profile = cProfile.Profile()
    profile.runcall(metrics.follow, batch, False)
    stats: Any = pstats.Stats(profile)
    functions = sum(found[1] for (file, _, _), found in stats.stats.items() if file != "~")
    assert functions <= 1_010, "one for each entry, which looks whether it is like the one before"


def test_the_oldest_records_are_not_tracked_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.server.metrics.MAX_TRACKED", 2)
    metrics = ServerMetrics()
    metrics.follow([entry(0, "PENDING", "RUNNING", name=f"j_{number}") for number in range(3)], False)
    metrics.follow([entry(1, "RUNNING", "COMPLETED", name=f"j_{number}") for number in range(3)], False)
    assert 'interlock_state_seconds_count{machine="job",state="RUNNING"} 2.0' in metrics.page([], {}).decode()


def test_after_a_gap_nothing_is_made_up() -> None:
    metrics = ServerMetrics()
    metrics.follow([entry(0, "SUBMITTED", "PENDING")], False)
    metrics.follow([entry(9, "RUNNING", "COMPLETED")], True)
    page = metrics.page([], {}).decode()
    assert "interlock_journal_gaps_total 1.0" in page
    assert 'interlock_state_seconds_count{machine="job"' not in page


async def test_a_subscriber_that_unsubscribes_is_not_notified(server: Running) -> None:
    following = JournalReader(server.parts.store)
    await following.start()
    counts: list[int] = []
    remove = following.add(lambda entries, _: counts.append(len(entries)))
    await server.submit()
    assert await following.round() == 1
    remove()
    remove()
    await server.submit()
    assert await following.round() == 1
    assert counts == [1]
    following.stop()


def test_no_secret_gets_into_a_line_and_others_are_written_alike() -> None:
    stream = io.StringIO()
    log = ServerLog("info", "json", stream)
    lease = "j_0123456789ab.1.1." + "0f" * 16
    token = "il_" + "0a" * 8 + "_" + "1b" * 32
    log.info("odd", text=f"{lease} {token}", empty="")
    log.debug("never", text="seen")
    with libraries_logging(log):
        logging.getLogger("somebody").warning("careful with %s", token)
    output = stream.getvalue()
    assert len(output.splitlines()) == 2
    assert "0f0f" not in output
    assert "1b1b" not in output
    assert "j_0123456789ab.1.1.***" in output
    assert '"logger":"somebody"' in output


def test_a_line_for_people_is_short_and_a_stream_that_is_gone_is_no_matter() -> None:
    stream = io.StringIO()
    log = ServerLog("info", "text", stream)
    try:
        int("nothing")
    except ValueError:
        log.exception("unexpected", request="r1")
    assert "error   unexpected request=r1\nTraceback" in stream.getvalue()
    stream.close()
    log.info("nobody reads this")


def test_newlines_and_terminal_escape_codes_of_a_request_are_escaped_in_the_log() -> None:
    for form in ("text", "json"):
        stream = io.StringIO()
        forged = "/x\n12:00:00.000 error   the disk is full\x1b]0;title\x07"
        ServerLog("info", form, stream).info("request", path=forged, actor="a\r\nb")
        assert stream.getvalue().count("\n") == 1, form
        assert "\x1b" not in stream.getvalue(), form
