"""Live events: everything once and in order, also for whoever comes back, and at nobody's cost."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from tests.effort import pick
from tests.server.listeners import Listening, listening
from tests.server.running import ANY_PORT, Running, any_port, running
from tests.waiting import PATIENCE_S, until

from interlock.server import event_streams
from interlock.server.event_streams import Broadcast, JournalReader
from interlock.store.records import Feed
from interlock.systems.figures.figures import ENTRIES, Figures
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec


async def test_the_event_stream_sends_each_transition_of_a_job_in_order(
    server: Running, client: httpx2.AsyncClient
) -> None:
    async with listening(client) as events:
        job_id = await server.submit()
        await server.work(job_id)
        entries = await events.until(job_id, "COMPLETED")
    assert [(entry["kind"], entry["id"]) for entry in entries] == [("job", job_id)] * 3
    assert [entry["version"] for entry in entries] == [1, 2, 3]


async def test_a_stream_sends_its_initial_cursor_at_once(server: Running, client: httpx2.AsyncClient) -> None:
    async with listening(client) as events:
        assert events.cursor == server.parts.following.cursor
        assert events.response.headers["content-type"].startswith("text/event-stream")
        assert events.response.headers["cache-control"] == "no-store"


async def test_a_stream_sends_a_begin_event_only_if_requested(
    server: Running, client: httpx2.AsyncClient
) -> None:
    for requested, event in ((False, []), (True, ["event: begin", "data: {}"])):
        async with client.stream("GET", "/api/events", params={"begin": requested}) as stream:
            lines = stream.aiter_lines()
            head = [await anext(lines) for _ in range(3 + len(event))]
        assert head == ["retry: 1000", f"id: {server.parts.following.cursor}", *event, ""]


async def test_a_client_that_reconnects_continues_at_its_cursor(
    server: Running, client: httpx2.AsyncClient
) -> None:
    async with listening(client) as events:
        first = await server.submit()
        assert (await events.entry())["id"] == first
        cursor = events.cursor
    missed = [await server.submit() for _ in range(5)]
    async with listening(client, after=cursor) as events:
        live = await server.submit()
        assert [entry["id"] for entry in await events.entries(6)] == [*missed, live]
    async with listening(client, after=cursor) as events:
        assert [entry["id"] for entry in await events.entries(6)] == [*missed, live]


async def test_a_stream_from_an_older_cursor_sends_missed_and_live_entries_exactly_once(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "PIECE", 3)
    cursor = await server.parts.store.latest()
    expected: list[str] = []
    for _ in range(10):
        expected += [await server.submit() for _ in range(7)]
        async with listening(client, after=cursor) as events:
            expected += [await server.submit() for _ in range(3)]
            ids = [entry["id"] for entry in await events.entries(10)]
            assert ids == expected[-10:]
            cursor = events.cursor
    assert len(set(expected)) == 100


async def test_one_can_follow_some_kinds_and_some_records_only() -> None:
    async with running(settings=any_port(tokens_required=False)) as server:
        client, mine = server.client(), await server.submit()
        async with listening(client, id=f"{mine},j_0123456789ab") as events:
            await server.submit()
            await server.work(mine)
            entries = await events.until(mine, "COMPLETED")
            assert {entry["id"] for entry in entries} == {mine}
        async with listening(client, kind="token,message") as events:
            await server.submit()
            await server.token(Role.VIEWER, "ann")
            assert (await events.entry())["kind"] == "token"


async def test_a_client_with_a_filter_reconnects_behind_the_events_it_did_not_want(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "SILENCE_S", 0.1)
    async with listening(client, kind="token") as events:
        await server.submit()
        while events.cursor != await server.parts.store.latest():
            alive = await events.event()
            assert (alive.kind, alive.comments) == ("", [": still here"])


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"kind": "jbo"}, "unknown_kind"),
        ({"after": "nonsense"}, "invalid_record"),
        ({"id": ",".join(f"j_{number}" for number in range(101))}, "bad_request"),
        ({"whatever": "1"}, "bad_request"),
    ],
)
async def test_an_invalid_query_of_the_event_stream_returns_422(
    client: httpx2.AsyncClient, query: dict[str, str], code: str
) -> None:
    answer = await client.get("/api/events", params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


async def test_a_head_request_to_the_event_stream_returns_at_once(client: httpx2.AsyncClient) -> None:
    answer = await client.head("/api/events")
    assert answer.status_code == 200
    assert (await client.get("/healthz")).status_code == 200


async def test_a_stream_sends_a_gap_event_if_entries_after_the_cursor_were_pruned(
    server: Running, client: httpx2.AsyncClient
) -> None:
    async with listening(client) as events:
        before = await server.submit()
        await server.work(before)
        await events.until(before, "COMPLETED")
        cursor = events.cursor
    pruned = await server.submit()
    await server.work(pruned)
    await server.parts.store.prune(kind="job", states=["COMPLETED"], older_than=timedelta(0))
    async with listening(client, after=cursor) as events:
        gap = await events.event()
        assert (gap.kind, gap.data) == ("gap", {"after": cursor})
        job_id = await server.submit()
        while (await events.entry())["id"] != job_id:
            pass


MANY = any_port(streams_each=200, tokens_required=False)


async def never_reading(server: Running) -> asyncio.StreamWriter:
    """A reader that takes the beginning, and nothing after it."""
    few = socket.socket(socket.AF_INET6 if ":" in server.address[0] else socket.AF_INET)
    few.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # else the kernel takes megabytes for it
    few.setblocking(False)
    await asyncio.get_running_loop().sock_connect(few, server.address)
    reader, writer = await asyncio.open_connection(sock=few, limit=1_024)
    writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readline()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    return writer


@pytest.mark.long  # test_torture has it with a real server
async def test_a_client_that_never_reads_does_not_block_ninety_nine_other_streams() -> None:
    jobs = pick(100, 300)
    async with running(settings=MANY) as server, AsyncExitStack() as stack:
        stuck = await never_reading(server)
        client = server.client(limits=httpx2.Limits(max_connections=200))
        others = [await stack.enter_async_context(listening(client)) for _ in range(99)]
        ids = [await server.submit(description="x" * 1_000) for _ in range(jobs)]
        for received in await asyncio.gather(*(each.entries(jobs) for each in others)):
            assert [entry["id"] for entry in received] == ids
        assert server.parts.broadcast.readers == 100
        stuck.transport.abort()


@pytest.mark.long  # test_torture.py has one
async def test_a_hundred_that_never_read_cost_no_memory_of_their_own() -> None:
    async with running(settings=MANY) as server, AsyncExitStack() as stack:
        stuck = [await never_reading(server) for _ in range(100)]
        fine = await stack.enter_async_context(listening(server.client()))
        jobs = pick(300, 1_000)
        await _submit_and_read(server, fine, jobs)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await _submit_and_read(server, fine, jobs)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # 1,000 entries kept for each of them would be some 50 MB; the jobs themselves are a few.
        assert after - before < 12_000 * jobs
        for writer in stuck:
            writer.transport.abort()


async def test_a_client_that_reads_nothing_for_too_long_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_streams, "PATIENCE_S", 0.2)
    monkeypatch.setattr(event_streams, "LAST_S", 0.1)
    async with running(settings=MANY) as server:
        stuck = await never_reading(server)
        async with asyncio.timeout(PATIENCE_S):
            while server.parts.broadcast.readers:
                print("Q")
                await server.parts.runtime.jobs.submit_many(
                    [JobSpec(task="t", description="x" * 1_000)] * 100
                )
        stuck.transport.abort()


async def _submit_and_read(server: Running, events: Listening, number: int) -> None:
    reading = asyncio.create_task(events.entries(number))
    for _ in range(number):
        await server.submit()
    await reading


async def test_a_client_that_is_up_to_date_shares_one_read_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(settings=MANY) as server, AsyncExitStack() as stack:
        cursors: list[str] = []
        read = server.parts.broadcast.read

        async def noted(cursor: str, limit: int) -> Feed:
            cursors.append(cursor)
            return await read(cursor, limit)

        monkeypatch.setattr(server.parts.broadcast, "read", noted)
        client = server.client(limits=httpx2.Limits(max_connections=200))
        before = [await stack.enter_async_context(listening(client, kind="job")) for _ in range(10)]
        first = await server.submit()
        assert [(await each.entry())["id"] for each in before] == [first] * 10
        between = await stack.enter_async_context(listening(client))
        await server.token(Role.VIEWER, "ann")  # which those who want jobs only pass over
        assert (await between.entry())["kind"] == "token"
        second = await server.submit()
        assert [(await each.entry())["id"] for each in (*before, between)] == [second] * 11
        assert not cursors


async def test_a_client_that_has_missed_much_gets_it_in_pages(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "PIECE", 3)
    cursor = await server.parts.store.latest()
    ids = [await server.submit() for _ in range(10)]
    lonely = Broadcast(server.parts.store, JournalReader(server.parts.store))
    stream = event_streams.Stream(lonely, event_streams.EntryFilter(kinds=frozenset({"job"})), cursor)
    pieces = [await stream.next() for _ in range(4)]
    assert [piece.count(b"event: entry") for piece in pieces] == [3, 3, 3, 1]
    async with listening(client, after=cursor, kind="job") as events:
        assert [entry["id"] for entry in await events.entries(10)] == ids


async def test_figures_are_counted_from_journal_entries_in_memory_without_reading_the_store_again(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, read = server.parts, []
    cursor = await parts.store.latest()
    feed = parts.store.feed

    async def noted(after: str = "", *, limit: int = 1_000) -> Feed:
        read.append((after, limit))
        return await feed(after, limit=limit)

    ids = [await server.submit() for _ in range(4)]
    await until(lambda: len(parts.broadcast.remembered()) >= 4, "the server has read the journal")
    monkeypatch.setattr(parts.store, "feed", noted)
    figures = Figures(parts.runtime.engine, spacing_s=0.0)
    await figures.round(parts.broadcast.feed)  # up to here nothing, or the latest of what was there
    later = [await server.submit() for _ in range(3)]
    await until(lambda: len(parts.broadcast.remembered()) >= 7, "the server has read what is new")
    read.clear()
    assert await figures.round(parts.broadcast.feed) >= 3
    assert [each for each in read if each[1] == ENTRIES] == []
    assert [entry.id for entry in (await parts.broadcast.feed(cursor, limit=100)).entries] == [*ids, *later]
    known = parts.broadcast.remembered()[1].cursor
    assert [entry.id for entry in (await parts.broadcast.feed(known, limit=3)).entries] == [
        *ids[2:],
        later[0],
    ]
    nothing = await parts.broadcast.feed(parts.following.cursor, limit=3)
    assert (nothing.entries, nothing.gap) == ((), False)


async def test_a_principal_may_have_a_limited_number_of_streams_open() -> None:
    async with running(settings=any_port(streams_each=2)) as server, AsyncExitStack() as stack:
        ann = server.client(await server.token(Role.VIEWER, "ann"))
        first = await stack.enter_async_context(AsyncExitStack())
        await first.enter_async_context(listening(ann))
        await stack.enter_async_context(listening(ann))
        refused = await ann.get("/api/events")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert int(refused.headers["retry-after"]) >= 1
        bob = server.client(await server.token(Role.VIEWER, "bob"))
        await stack.enter_async_context(listening(bob))
        await first.aclose()
        await until(lambda: server.parts.broadcast.readers == 2, "the first stream is over")
        await stack.enter_async_context(listening(ann))


async def test_a_confined_token_and_a_runner_token_get_403_from_the_event_stream(server: Running) -> None:
    confined = server.client(await server.token(Role.VIEWER, "ann", queues=["mail"]))
    runner = server.client(await server.token(Role.RUNNER, "r"))
    for client in (confined, runner):
        assert (await client.get("/api/events")).status_code == 403


async def test_a_server_that_stops_ends_its_event_streams(tmp_path: Path) -> None:
    async with running() as server:
        client = server.client()
        async with listening(client) as events:
            server.listener.stop()
            await events.ended()


async def test_after_a_restart_nothing_is_missing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server, listening(server.client()) as events:
        first = await server.submit()
        assert (await events.entry())["id"] == first
        second = await server.submit()
        cursor = events.cursor
    async with running(url) as server:
        third = await server.submit()
        async with listening(server.client(), after=cursor) as events:
            fourth = await server.submit()
            assert [entry["id"] for entry in await events.entries(3)] == [second, third, fourth]


async def test_the_event_stream_includes_changes_made_by_another_server(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as one, running(url, ANY_PORT) as other, listening(one.client()) as events:
        job_id = await other.submit()
        assert (await events.entry())["id"] == job_id
