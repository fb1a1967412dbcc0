"""The port over HTTP: for workers that may not, or cannot, speak to the store themselves.

A claim has a name of its own, so that one whose answer was lost can be asked again and is answered as
before. Messages may be repeated by their nature. Work is waited for at the server, which answers as
soon as there is some; deadlines of others are the server's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx2
import msgspec

from interlock.errors import ServerRefused, StoreUnavailable
from interlock.wire.runner import Answer, Answers, ClaimRequest, Grant, Granted, Greeting, Message, Messages

PROTOCOL = 1
TRIES = 3
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_LOST = (httpx2.TransportError,)

T = TypeVar("T")


class Problem(msgspec.Struct):
    """As much of a problem as is passed on."""

    code: str = "error"
    error: str = ""
    todo: str = ""
    facts: dict[str, Any] = {}


class HttpOrchestrator:
    """An orchestrator behind a server."""

    def __init__(
        self,
        server: str,
        *,
        names: Callable[[], str],
        token: str | None = None,
        wait_s: float = 20.0,
        timeout_s: float = 10.0,
        verify: Any = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server.rstrip("/")
        self._names = names
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._wait_s = wait_s
        self._timeout_s = timeout_s
        self._verify = verify
        self._monotonic = monotonic
        self._client: httpx2.AsyncClient | None = None
        self._greeting: Greeting | None = None
        self._told: tuple[datetime, float] | None = None

    def __repr__(self) -> str:
        return f"<orchestrator at {self.server}>"

    async def connect(self) -> None:
        """Make sure that the server answers, knows us, and speaks the same protocol."""
        if self._client is None:
            self._client = httpx2.AsyncClient(
                base_url=self.server, headers=self._headers, timeout=self._timeout_s, verify=self._verify
            )
        greeting = await self._ask("GET", "/api/runner", None, Greeting)
        if greeting.protocol != PROTOCOL:
            raise ServerRefused(
                f"The server at {self.server} speaks version {greeting.protocol} of the runner protocol, "
                f"and this worker version {PROTOCOL}.",
                todo="Run the same version of Interlock on both sides.",
            )
        self._greeting = greeting
        self._note_time(greeting.now)

    async def disconnect(self) -> None:
        """Let go of the connections. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for this runner; the server waits for some."""
        named = msgspec.structs.replace(request, claim_id=self._names(), wait_s=self._wait_s)
        for remaining in reversed(range(TRIES)):
            try:
                granted = await self._ask("POST", "/api/runner/lease", named, Granted, more_s=self._wait_s)
            except StoreUnavailable:
                if not remaining:
                    raise
            else:
                self._note_time(granted.now)
                return list(granted.grants)
        return []

    async def hear(self, messages: Sequence[Message]) -> list[Answer]:
        """Say these things, as many at once as the server hears."""
        most = self._greeting.max_messages if self._greeting else 100
        answers: list[Answer] = []
        for start in range(0, len(messages), most):
            said = Messages(messages=tuple(messages[start : start + most]))
            heard = await self._ask("POST", "/api/runner/messages", said, Answers)
            self._note_time(heard.now)
            answers += heard.answers
        return answers

    async def recover(self) -> int:
        """Nothing: deadlines are the server's business."""
        return 0

    async def now(self) -> datetime:
        """The store's time, as the server told it last, and what has passed since."""
        if self._told is None:
            raise StoreUnavailable(
                f"The server at {self.server} has not told the time yet.", todo="Connect first."
            )
        at, when = self._told
        return at + timedelta(seconds=self._monotonic() - when)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Nobody has to be woken: a claim waits at the server, and is answered when there is work."""
        return lambda: None

    def _note_time(self, now: datetime) -> None:
        self._told = (now, self._monotonic())

    async def _ask(self, method: str, path: str, body: Any, answer: type[T], *, more_s: float = 0.0) -> T:
        if self._client is None:
            raise StoreUnavailable(
                f"Not connected to {self.server}.", todo="Connect first; nothing was said."
            )
        content = None if body is None else msgspec.json.encode(body)
        try:
            response = await self._client.request(
                method,
                path,
                content=content,
                headers={"Content-Type": "application/json"} if content else {},
                timeout=self._timeout_s + more_s,
            )
        except _LOST as error:
            raise self._away(f"{type(error).__name__} {error}".strip()) from error
        if response.status_code in _BUSY:
            raise self._away(f"it answered {response.status_code}")
        if response.status_code != 200:
            raise _refused(response)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.DecodeError as error:
            raise self._away(f"its answer cannot be read: {error}") from error

    def _away(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The server at {self.server} did not answer as it should: {why}.",
            todo="It may have been heard; everything that a runner says can be said again.",
            facts={"server": self.server},
        )


def _refused(response: httpx2.Response) -> ServerRefused:
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.DecodeError:
        problem = Problem(error=f"The server answered {response.status_code}, and nothing that can be read.")
    return ServerRefused(
        problem.error or f"The server answered {response.status_code}.",
        todo=problem.todo,
        facts={**problem.facts, "code": problem.code, "status": response.status_code},
    )
