"""A client that is given the address of something else says what listens there, and what to give."""

from __future__ import annotations

import asyncio

import pytest

from interlock.api.jobs import LIST_JOBS
from interlock.errors import InterlockError, StoreUnavailable
from interlock.remote.http_client import ApiClient


async def asked(head: str, body: str) -> tuple[InterlockError, str]:
    """What a client says about a server that always answers the same, and its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async def at_once(_: float) -> None:
        """Do not pause."""

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asker = ApiClient(address, sleep=at_once)
        asker.open()
        with pytest.raises(InterlockError) as caught:
            await asker.call(LIST_JOBS)
        await asker.close()
    return caught.value, address


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        ("404 Not Found\r\ncontent-type: text/html; charset=utf-8", "<html>", "404 (text/html)"),
        (
            "404 Not Found\r\ncontent-type: application/json",
            '{"detail": "Not Found"}',
            "404 (application/json)",
        ),
        ("302 Found\r\nlocation: /login", "", "302 (no content type, to /login)"),
        ("200 OK\r\ncontent-type: text/html", "<html>", "200 (text/html)"),
        ("200 OK\r\ncontent-type: application/json", '{"a": 1}', "200 (application/json)"),
    ],
    ids=["a page", "another api", "a redirect", "a page that is there", "another answer"],
)
async def test_a_client_error_names_the_address_and_the_response_of_a_server_that_is_not_interlock(
    head: str, body: str, expected: str
) -> None:
    error, address = await asked(head, body)
    assert f"{address} answered GET /api/jobs with {expected}" in error.sentence
    assert "not the answer of an Interlock server" in error.sentence
    assert error.todo.startswith("Give the address of an Interlock server with --server or INTERLOCK_URL")


async def test_a_502_response_of_a_proxy_is_reported_as_an_unavailable_server() -> None:
    error, address = await asked("502 Bad Gateway\r\ncontent-type: text/html", "<h1>Bad Gateway</h1>")
    assert isinstance(error, StoreUnavailable)
    assert error.sentence == f"The server at {address} did not respond as expected: it answered 502."
