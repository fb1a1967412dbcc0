"""Servers under people who mean them no good, and servers that are killed under those who need them."""

from __future__ import annotations

import asyncio
import json
import resource
import secrets
import socket
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.effort import pick
from tests.server.dripping import by_hand
from tests.server.fleet import Fleet, at_work
from tests.server.running import Running, any_port, program, running
from tests.waiting import PATIENCE_S, PROGRAM_S, until

from interlock.engine.audit import audit
from interlock.store.urls import store_for
from interlock.systems.access.tokens import Tokens
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.access import Role

RUNNERS, JOBS = 50, pick(150, 300)
MUCH, WORDY = 1_000, "\N{COLLISION SYMBOL}" * 1_000
"""More than the kernel keeps for somebody who does not read: some 4 MB."""
QUIET = ("--log-level", "warning")
"""What a server writes nobody reads here, and a pipe holds only so much."""
LASTING = """\
[durations]
ack_window_s = 600
lease_ttl_s = 600
worker_silence_s = 600
"""


# Slow, large and deaf


async def test_unfinished_and_endless_requests_do_not_block_the_requests_of_other_clients(
    tmp_path: Path,
) -> None:
    """The server is patient, so whoever drips is there all the time, and no neighbour can be too slow."""
    settings = any_port(max_body_bytes=100_000, max_concurrent=200)
    async with running(f"sqlite:///{tmp_path}/jobs.db", settings) as one, AsyncExitStack() as dripping:
        for beginning in (HEAD, BODY) * DRIPPERS:
            client = await dripping.enter_async_context(by_hand(one.address))
            client.say(beginning)
        enough = asyncio.Event()
        floods = [asyncio.create_task(flood(one, enough)) for _ in range(FLOODERS)]
        try:
            async with asyncio.timeout(PROGRAM_S):
                made = await asyncio.gather(*(ask_as_usual(one) for _ in range(5)))
        finally:
            enough.set()
            flooded = await asyncio.gather(*floods)
        assert all(flooded), "everybody who floods is hung up on"
        assert statuses(flooded) <= {b"413"}
        assert '"status":413' in one.log.getvalue()
        jobs = (await one.client().get("/api/jobs?limit=1000")).json()["jobs"]
        assert sorted(job["id"] for job in jobs) == sorted(name for some in made for name in some)
        assert '"level":"error"' not in one.log.getvalue()


async def test_every_client_that_sends_slowly_is_disconnected(tmp_path: Path) -> None:
    settings = any_port(header_s=0.5, body_s=0.5, max_concurrent=200)
    async with running(f"sqlite:///{tmp_path}/jobs.db", settings) as one:
        answers = await asyncio.gather(*(drip(one, beginning) for beginning in (HEAD, BODY) * DRIPPERS))
        # An answer is lost to somebody whose next drop comes after the server has hung up.
        assert statuses(answers) == {b"408"}
        assert '"level":"error"' not in one.log.getvalue()


HEAD = b"GET /api/jobs HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = POST + b"Content-Length: 99999\r\n\r\n"  # so long that no slow server lets it be finished by drops
FLOOD = POST + b"Transfer-Encoding: chunked\r\n\r\n"
DRIPPERS, FLOODERS = 100, 10
ASKED = pick(10, 40)


def statuses(answers: list[list[bytes]]) -> set[bytes]:
    return {answer.split(b" ")[1] for some in answers for answer in some if answer}


async def ask_as_usual(server: Running) -> list[str]:
    """Submit and look, again and again; the jobs that were made."""
    client = server.client()
    made: list[str] = []
    for _ in range(ASKED):
        answer = await client.post("/api/jobs", json={"task": "a.b"})
        assert answer.status_code == 201
        made.append(answer.json()["id"])
        assert (await client.get(f"/api/jobs/{made[-1]}")).json()["state"] == "PENDING"
    return made


async def drip(server: Running, beginning: bytes) -> list[bytes]:
    """Begin a request and never finish it; when hung up on, come again. What was answered each time."""
    answers: list[bytes] = []
    for _ in range(2):
        async with by_hand(server.address) as client:
            client.say(beginning)
            answers.append(await client.drip(b"x:1\r\n"))
    return answers


async def flood(server: Running, enough: asyncio.Event) -> list[bytes]:
    """Send a body that does not end; when hung up on, come again."""
    answers: list[bytes] = []
    while not (enough.is_set() and answers):
        reader, writer = await asyncio.open_connection(*server.address)
        try:
            writer.write(FLOOD)
            while not reader.at_eof():
                writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
                await writer.drain()
            answers.append(await reader.readline())
        except ConnectionError:
            answers.append(b"")  # who does not stop to listen is hung up on in the middle
        finally:
            writer.close()
    return answers


async def test_a_client_that_never_reads_neither_blocks_99_other_streams_nor_fills_the_server_memory(
    tmp_path: Path,
) -> None:
    tokens = [await token_in(tmp_path, name) for name in ("ann", "ben", "boss")]
    with program(*QUIET, folder=tmp_path) as (process, url, _), ExitStack() as still_open:
        past = await submit_and_cancel(url, tokens[2], MUCH, WORDY)
        deaf = still_open.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # the kernel reads little for it
        deaf.connect(address_of(url))
        deaf.sendall(follow(tokens[1], after=past[0]))
        readers = []
        for number in range(99):
            reader, writer = await listening(url, tokens[number % 2])
            still_open.callback(writer.close)
            readers.append(reader)
        before = resident_bytes(process.pid)
        following = asyncio.gather(*(entries(reader, 2 * JOBS) for reader in readers))
        happened = await submit_and_cancel(url, tokens[2], JOBS, "enough", after=past[-1])
        async with asyncio.timeout(PROGRAM_S):
            seen = await following
        assert len(happened) == 2 * JOBS
        assert all(each == happened for each in seen)
        assert resident_bytes(process.pid) - before < 50_000_000


async def submit_and_cancel(url: str, token: str, jobs: int, reason: str, after: str = "") -> list[str]:
    """Let something be told; the cursors of all that has happened."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(
        base_url=url, trust_env=False, verify=False, timeout=PATIENCE_S, headers=headers
    ) as client:
        await client.post("/api/jobs", json={"jobs": [{"task": "a.b"}] * jobs})
        stop = {"filter": "state:pending", "action": "cancel", "limit": 1_000, "reason": reason}
        await client.post("/api/jobs/actions", json=stop)
        found: list[str] = []
        while len(found) < 2 * jobs:
            page = await client.get("/api/journal", params={"kind": "job", "limit": 1_000, "after": after})
            found += [entry["cursor"] for entry in page.json()["entries"]]
            after = page.json()["cursor"]
        return found


async def token_in(folder: Path, name: str) -> str:
    """A new token of a store; each has streams of its own."""
    runtime = Runtime(store_for(f"sqlite:///{folder}/interlock.db", CATALOGUE), DEFAULT_SETTINGS)
    await runtime.store.open()
    try:
        return (await Tokens(runtime.engine).create(name, Role.ADMIN)).token
    finally:
        await runtime.close()


def address_of(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])


def follow(token: str, after: str = "") -> bytes:
    head = (
        f"GET /api/events?kind=job&after={after} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
    )
    return "\r\n".join((*head, "", "")).encode()


async def listening(url: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A reader that has been told where it begins."""
    reader, writer = await asyncio.open_connection(*address_of(url))
    writer.write(follow(token))
    await asyncio.wait_for(reader.readuntil(b"retry: "), PATIENCE_S)
    return reader, writer


async def entries(reader: asyncio.StreamReader, number: int) -> list[str]:
    """The cursors of so many entries, as they come."""
    found: list[str] = []
    cursor = ""
    while len(found) < number:
        line = await reader.readline()
        assert line, "the stream has ended"
        if line.startswith(b"id: "):
            cursor = line[4:-1].decode()
        elif line.startswith(b"data: "):
            found.append(cursor)
    return found


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


# Killed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose leases are longer than a server is away."""
    (tmp_path / "interlock.toml").write_text(LASTING)
    return tmp_path


@pytest.mark.long
async def test_fifty_runners_complete_every_job_once_although_the_server_is_killed_and_restarted(
    folder: Path,
) -> None:
    with ExitStack() as servers:
        process, url, _ = servers.enter_context(program(*QUIET, folder=folder))
        await submit(url, JOBS)
        async with at_work(RUNNERS, [url], JOBS) as fleet:
            await fleet.until_done(JOBS // 3)
            fleet.up.clear()
            process.kill()
            await asyncio.to_thread(process.wait, PATIENCE_S)
            port = url.rpartition(":")[2]
            await asyncio.to_thread(servers.enter_context, program(*QUIET, "--port", port, folder=folder))
            fleet.up.set()
        assert fleet.unanswered, "nobody noticed"
        check_done_once(fleet, await jobs_at(url))
    assert await faults(folder) == []


@pytest.mark.long
async def test_fifty_runners_complete_every_job_once_although_one_of_two_servers_is_killed(
    folder: Path,
) -> None:
    with program(*QUIET, folder=folder) as (one, first, _), program(*QUIET, folder=folder) as (_, second, _):
        await submit(first, JOBS)
        async with at_work(RUNNERS, [first, second], JOBS) as fleet:
            await fleet.until_done(JOBS // 3)
            one.kill()
            await asyncio.to_thread(one.wait, PATIENCE_S)
        assert fleet.unanswered, "nobody noticed"
        check_done_once(fleet, await jobs_at(second))
    assert await faults(folder) == []


async def test_a_claim_repeated_at_another_server_after_a_crash_returns_the_committed_grants(
    folder: Path,
) -> None:
    claim = {"runner_id": "r", "limit": 3, "wait_s": 0, "claim_id": secrets.token_hex(16)}
    with program(*QUIET, folder=folder) as (one, first, _), program(*QUIET, folder=folder) as (_, second, _):
        await submit(second, 10)
        with socket.create_connection(address_of(first)) as deaf:
            deaf.sendall(lease_request(claim))
            await until_running(second, 3)  # it is committed; of the answer nobody ever reads a byte
            one.kill()
            await asyncio.to_thread(one.wait, PATIENCE_S)
        async with httpx2.AsyncClient(
            base_url=second, trust_env=False, verify=False, timeout=PATIENCE_S
        ) as client:
            answers = [(await client.post("/api/runner/lease", json=claim)).json() for _ in range(2)]
            given, again = [[grant["token"] for grant in answer["grants"]] for answer in answers]
            assert len(given) == 3
            assert given == again
            for token in given:
                body = {"token": token, "runner_id": "r", "sequence": 1, "outcome": {"outcome": "succeeded"}}
                assert (await client.post("/api/runner/complete", json=body)).status_code == 200
        jobs = await jobs_at(second)
        assert Counter(job["state"] for job in jobs) == {"COMPLETED": 3, "PENDING": 7}
        assert [job["id"] for job in jobs if len(job["attempts"]) > 1] == []
    assert await faults(folder) == []


def lease_request(claim: dict[str, Any]) -> bytes:
    body = json.dumps(claim).encode()
    head = (
        "POST /api/runner/lease HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*head, "", "")).encode() + body


async def until_running(url: str, number: int) -> None:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_S) as client:

        async def are_running() -> bool:
            return len((await client.get("/api/jobs?q=state:running")).json()["jobs"]) >= number

        await until(are_running, f"{number} jobs run")


async def submit(url: str, number: int) -> None:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_S) as client:
        answer = await client.post("/api/jobs", json={"jobs": [{"task": "a.b"}] * number})
        assert answer.status_code == 201, answer.text


async def jobs_at(url: str) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_S) as client:
        found: list[dict[str, Any]] = (await client.get("/api/jobs?limit=1000")).json()["jobs"]
        return found


def check_done_once(fleet: Fleet, jobs: list[dict[str, Any]]) -> None:
    """Everything is done, and once: whatever a runner was given it could keep, and nobody else got it."""
    assert fleet.refused == []
    assert {job["state"] for job in jobs} == {"COMPLETED"}
    assert set(fleet.done.values()) == {1}
    assert len(fleet.done) == len(jobs) == JOBS
    assert set(fleet.told.values()) == {1}
    assert [job["id"] for job in jobs if job.get("losses", 0) or len(job["attempts"]) > 1] == []


async def faults(folder: Path) -> list[object]:
    """Where the journal and the records disagree."""
    store = store_for(f"sqlite:///{folder}/interlock.db", CATALOGUE)
    await store.open()
    try:
        return list((await audit(store, JOURNALLED, ["job"])).faults)
    finally:
        await store.close()
