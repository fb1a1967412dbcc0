"""The HTTP client: requests with retries where they are safe, typed answers, and errors by their code.

An answer can get lost after the request was carried out. Reads are sent again, and so is every request with
a request id; for all others the outcome is unknown, and the error says so. Unknown fields of an answer are
ignored.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeVar, cast

import httpx2
import msgspec

from interlock import errors
from interlock.api.operation import In, Operation, Out
from interlock.api.problems import Problem
from interlock.errors import (
    InterlockError,
    InvalidSettings,
    ServerRefused,
    StoreUnavailable,
    UnknownName,
    requests,
)
from interlock.wire.json_values import decode_as
from interlock.wire.tls import trusting

TIMEOUT_S = 35.0
"""Timeout of a request; longer than that of a server, which then reports the timeout itself."""
PAUSES_S = (0.1, 0.5)
"""Pauses before each repeat."""
NOT_DONE = "not done"
_BUSY = frozenset({408, 429, 502, 503, 504})
_SILENT_S = 60.0

T = TypeVar("T")


def new_name() -> str:
    """Return a new, unique request id."""
    return secrets.token_hex(16)


class ApiClient:
    """A client of the API of a server."""

    def __init__(
        self,
        server: str,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        ca: str | None = None,
        sleep: Callable[[float], Any] = asyncio.sleep,
        names: Callable[[], str] = new_name,
    ) -> None:
        self.server: str = server.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._ca = ca
        self._sleep = sleep
        self._names = names
        self._client: httpx2.AsyncClient | None = None

    def open(self) -> None:
        """Create the HTTP client; no request is sent yet."""
        if self._client is not None:
            return
        try:
            self._client = httpx2.AsyncClient(
                base_url=self.server,
                headers=self._headers,
                timeout=self._timeout_s,
                # Loading certificates takes longer than the rest of this method.
                verify=trusting(self._ca) if self.server.startswith("https:") else False,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise InvalidSettings(
                f"{self.server!r} is not the address of a server: {error}.",
                todo="Give one such as http://127.0.0.1:8088.",
                facts={"server": self.server},
            ) from None

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def call(self, operation: Operation[In, Out], sent: In | None = None, /, **path: str) -> Out:
        """Call an operation and return its answer.

        Changes are sent under a request id, a new one where none is given: when an answer is lost the request
        is repeated, and nothing is done twice.
        """
        fields = _fields_to_send(sent)
        if operation.repeatable and "request_id" not in fields:
            fields["request_id"] = self._names()
        query = fields if operation.query is not None else {}
        body = msgspec.json.encode(fields) if operation.bodies else None
        answer = await self._request(operation.method, operation.address(**path), query, body)
        return _read(answer, cast("type[Out]", operation.output))

    @asynccontextmanager
    async def stream(
        self,
        operation: Operation[In, bytes],
        headers: Mapping[str, str],
        sent: In | None = None,
        /,
        **path: str,
    ) -> AsyncIterator[Lines]:
        """Yield the lines of a streamed answer."""
        async with self._answering(operation.address(**path), headers, _fields_to_send(sent)) as response:
            yield response.aiter_lines()

    @asynccontextmanager
    async def download(
        self, operation: Operation[In, bytes], sent: In | None = None, /, **path: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the bytes of an answer, piece by piece."""
        async with self._answering(operation.address(**path), {}, _fields_to_send(sent)) as response:
            yield response.aiter_bytes()

    @asynccontextmanager
    async def _answering(
        self, path: str, headers: Mapping[str, str], query: Mapping[str, Any]
    ) -> AsyncIterator[httpx2.Response]:
        patience = httpx2.Timeout(self._timeout_s, read=_SILENT_S)
        try:
            async with self._open_client().stream(
                "GET", path, params=query, headers=dict(headers), timeout=patience
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise error_of(response)
                yield response
        except httpx2.RequestError as error:
            raise self._failed(error) from error

    async def _request(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None
    ) -> httpx2.Response:
        unsure: StoreUnavailable | None = None
        for pause_s in (*PAUSES_S, None):
            try:
                return await self._send(method, path, query, body)
            except StoreUnavailable as error:
                if error.facts.get("outcome") != NOT_DONE:
                    unsure = error  # an earlier attempt may have arrived, even if later ones failed
                if pause_s is None:
                    raise (unsure or error) from None
                await self._sleep(pause_s)
        raise AssertionError("the last time round returns or raises")

    async def _send(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None
    ) -> httpx2.Response:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            response = await self._open_client().request(
                method, path, params=query, content=body, headers=headers
            )
        except httpx2.RequestError as error:
            raise self._failed(error) from error
        if response.status_code in _BUSY:
            problem = _own_problem(response)
            why = problem.error if problem is not None else ""
            raise self._unavailable(f"it answered {response.status_code}: {why}".rstrip(": ."))
        if response.status_code not in (200, 201):
            raise error_of(response)
        return response

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            raise StoreUnavailable(
                f"Not connected to {self.server}.", todo="Connect first; nothing was done."
            )
        return self._client

    def _failed(self, error: httpx2.RequestError) -> StoreUnavailable:
        if not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return self._unavailable(f"{type(error).__name__} {error}".strip())
        return StoreUnavailable(
            f"Cannot connect to the server at {self.server}: {_why(error)}. Nothing was done.",
            todo="Check the address, and whether the server is running: start one with `interlock server`.",
            facts={"server": self.server, "outcome": NOT_DONE},
        )

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The server at {self.server} did not respond as expected: {why}.",
            todo="Check that it is running; the request may have been executed.",
            facts={"server": self.server},
        )


Lines = AsyncIterator[str]
_ELSEWHERE = (
    "Give the address of an Interlock server with --server or INTERLOCK_URL; a proxy before it must pass on "
    "/api and /readyz."
)


def _why(error: httpx2.RequestError) -> str:
    """Return why a connection failed; the innermost cause is the clearest."""
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    if isinstance(cause, ConnectionError) and cause.errno is not None:
        return os.strerror(cause.errno)
    return str(error).rstrip(".") or type(error).__name__


def error_of(response: httpx2.Response) -> InterlockError:
    """Return the error of an answer, the same that a store would have raised."""
    problem = _own_problem(response)
    if problem is None:
        facts: dict[str, Any] = {"code": "error", "status": response.status_code}
        return ServerRefused(_seen(response), todo=_ELSEWHERE, facts=facts)
    kind = _kinds().get(problem.code)
    if kind is None:
        return ServerRefused(
            problem.error,
            allowed=problem.allowed,
            todo=problem.todo,
            facts={**problem.facts, "code": problem.code, "status": response.status_code},
        )
    error = kind.__new__(kind)
    InterlockError.__init__(
        error, problem.error, allowed=problem.allowed, todo=problem.todo, facts=problem.facts
    )
    if isinstance(error, UnknownName):  # its facts are its arguments
        error.name, error.known, error.where = str(problem.facts.get(error.noun, "")), problem.allowed, ""
    return error


def _own_problem(response: httpx2.Response) -> Problem | None:
    """Return the problem in an answer, or None from a foreign server."""
    try:
        problem = decode_as(response.content, Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return problem if problem.error else None


def _fields_to_send(sent: Any) -> dict[str, Any]:
    """Return the fields to send, without those that have their default.

    So a server of an older version does not receive a field that it does not know, unless it is used.
    """
    if sent is None:
        return {}
    kind: Any = type(sent)
    return {
        name: value
        for name, default in _fields(kind)
        if (value := getattr(sent, name)) is not default and value != default
    }


@lru_cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((each.name, each.default) for each in msgspec.structs.fields(kind))


def _seen(response: httpx2.Response) -> str:
    """Describe an answer that is not from an Interlock server."""
    request = response.request
    kind = response.headers.get("content-type", "").partition(";")[0] or "no content type"
    to = f", to {location}" if (location := response.headers.get("location", "")[:200]) else ""
    return (
        f"{_origin(request.url)} answered {request.method} {request.url.path} with {response.status_code} "
        f"({kind}{to}), which is not the answer of an Interlock server."
    )


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"


def _read(response: httpx2.Response, answer: type[T]) -> T:
    try:
        return decode_as(response.content, answer)
    except msgspec.DecodeError as error:
        raise ServerRefused(
            f"{_seen(response).removesuffix('.')}: {error}.",
            todo=f"{_ELSEWHERE} Compare the versions if it is one: interlock --version.",
            facts={"code": "unreadable", "status": response.status_code},
        ) from error


def _kinds() -> dict[str, type[InterlockError]]:
    """Return the errors that a store or a check can also raise, by their code.

    Errors of the request itself become `ServerRefused`: a program with a store never gets them.
    """
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    own = [kind for kind in found if issubclass(kind, InterlockError)]
    return {kind.code: kind for kind in own if kind.__module__ != requests.__name__}
