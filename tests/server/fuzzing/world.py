"""An application with a store of its own, and somebody who asks it and judges the answers."""

from __future__ import annotations

import asyncio
import atexit
import functools
import io
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast
from unittest import mock

import requests
from schemathesis.core.transport import Response
from schemathesis.schemas import BaseSchema
from tests.effort import ALL
from tests.server.fuzzing.asking import exchange
from tests.server.fuzzing.cases import ALWAYS, AS_MADE, Case, Operation, operations, schema_of
from tests.server.fuzzing.judging import judge
from tests.server.fuzzing.putting_right import put_right
from tests.server.running import any_port
from tests.waiting import PATIENCE_S

from interlock.api.workers import LONGEST_WAIT_S
from interlock.server.app import make_app
from interlock.server.logs import ServerLog
from interlock.server.parts import Parts, open_parts
from interlock.server.routes import Route
from interlock.server.settings import Rate
from interlock.store.sqlite import database as sqlite_opening
from interlock.store.sqlite.database import connect
from interlock.wire.access import Role

CALLED = "http://localhost"
HURRY_S = 0.01
"""A runner that is made up does not wait for work any longer than this."""
FRESH_EVERY = 10
"""A message may use up a lease, and a request a job, so now and then they are made anew."""

Place: TypeAlias = "Callable[[World], Mapping[str, str]]"
"""Makes what is real there: values by the names of the parameters and fields that they are for."""


@dataclass(slots=True)
class World:
    """An application with a store of its own, and somebody who asks."""

    parts: Parts
    app: Any
    loop: asyncio.AbstractEventLoop
    schema: BaseSchema
    statuses: Counter[int]
    patience_s: float
    log: io.StringIO
    bearer: str = ""
    """The token that is sent along; none when it is empty."""
    about: str = ""
    """The route that is asked for, when only what it speaks of has to be there; else everything is made."""
    is_furnished: bool = False
    """Whether there is one of everything, so that no list is empty."""
    furnished: set[Place] = field(default_factory=set)
    """The places where all that there can be has been made once."""

    @property
    def sent(self) -> int:
        """How many requests there were."""
        return self.statuses.total()

    def operation(self, label: str) -> Operation:
        """What can be asked for there."""
        return operations(self.schema)[label]

    def try_everywhere(
        self,
        cases: Sequence[Case],
        places: Sequence[Place],
        *,
        fresh_every: int = FRESH_EVERY,
        in_turn: bool = not ALL,
    ) -> int:
        """Send each case to every place, or `in_turn` to one of them; return how many were sent."""
        for number, place in enumerate(places):
            share = cases[number :: len(places)] if in_turn else cases
            self.try_out(share, place, fresh_every=fresh_every)
        return len(cases) if in_turn else len(cases) * len(places)

    def run(self, work: Any) -> Any:
        """Let time go on until this is done."""
        return self.loop.run_until_complete(asyncio.wait_for(work, self.patience_s))

    def try_out(self, cases: Sequence[Case], place: Place, *, fresh_every: int = FRESH_EVERY) -> None:
        """Send all of these to one place; raises at the first answer that is wrong."""
        real: Mapping[str, str] = {}
        for number, case in enumerate(cases):
            if number % fresh_every == 0:
                real = self._furnish(place) if number == 0 else place(self)
            self.about = case.operation.path
            self.judge(put_right(case, real) if real else case, ALWAYS if real else AS_MADE)

    def _furnish(self, place: Place) -> Mapping[str, str]:
        """Make all of it: each time, or in a quick run once with a lease, until then once for each place."""
        if not ALL and (self.is_furnished or place in self.furnished):
            return place(self)
        self.about = ""
        real = dict(place(self))
        self.is_furnished = "token" in real
        self.furnished.add(place)
        return real

    def judge_all(self, cases: Sequence[Case]) -> None:
        """Send all of these as they were made, by somebody who may not do any of it."""
        for case in cases:
            self.judge(case, ALWAYS)

    def ask_at(self, place: Place, case: Case) -> int:
        """Send one request about what is real at a place; return the status of the answer."""
        self.about = case.operation.path
        return self.judge(put_right(case, place(self)), ALWAYS)

    def judge(self, case: Case, by: Sequence[Any]) -> int:
        """Send one request, and hold the answer against the document; return its status."""
        response = self.call(case)
        case.validate_response(response, checks=list(by))
        return response.status_code

    def call(self, case: Case) -> Response:
        """Send one request."""
        if isinstance(case.body, dict) and _is_long(case.body.get("wait_s")):
            case.body["wait_s"] = HURRY_S
        if _is_long(_number(case.query.get("wait_s")), most=LONGEST_WAIT_S):  # beyond that it is refused
            case.query["wait_s"] = HURRY_S
        known = ("method", "url", "headers", "data", "json", "params", "cookies", "files")
        options = case.as_transport_kwargs(base_url=CALLED)
        request = requests.Request(**{name: options[name] for name in known if name in options}).prepare()
        status, headers, body = self.run(exchange(self.app, request, self.bearer))
        self.statuses[status] += 1
        judge(case.operation.label, status, headers, body, self.log)
        return Response(
            status_code=status, headers=headers, content=body, request=request, elapsed=0.0, verify=False
        )

    def token(self, role: Role, queues: Sequence[str] = ()) -> str:
        """A new token."""
        name = f"{role}-{'-'.join(queues) or 'all'}"
        issued = self.run(self.parts.tokens.create(name, role, queues=queues))
        return cast(str, issued.token)


@contextmanager
def world(
    folder: Path,
    more: Sequence[Route] = (),
    *,
    patience_s: float = PATIENCE_S,
    tokens: bool = False,
    **parts_of: Any,
) -> Iterator[World]:
    """A new one, with its store in a folder; where it asks for `tokens`, everybody needs one.

    `parts_of` is for `open_parts`.
    """
    written = io.StringIO()
    log = ServerLog("info", "json", written)
    loop = asyncio.new_event_loop()
    server = any_port(tokens_required=tokens, stranger_rate=Rate(1e6, 10**6))
    shutil.copy(_migrated(), folder / "fuzz.db")
    opening = open_parts(f"sqlite:///{folder}/fuzz.db", server, log=log, **parts_of)
    try:
        with mock.patch.object(sqlite_opening, "connect", _connect_unflushed):
            parts = loop.run_until_complete(opening.__aenter__())
        try:
            schema = schema_of(more, tokens=tokens)
            yield World(parts, make_app(parts, more=more), loop, schema, Counter(), patience_s, written)
        finally:
            loop.run_until_complete(opening.__aexit__(None, None, None))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@functools.cache
def _migrated() -> Path:
    """Make an empty database; copies of it are opened faster than new ones."""
    folder = Path(tempfile.mkdtemp(prefix="interlock-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    async def migrate() -> None:
        async with open_parts(
            f"sqlite:///{folder}/new.db", any_port(), log=ServerLog("error", "json", io.StringIO())
        ):
            pass

    loop = asyncio.new_event_loop()  # and not `asyncio.run`, which would close the one of a test around
    loop.run_until_complete(migrate())
    loop.close()
    return folder / "new.db"


def _connect_unflushed(path: Path) -> sqlite3.Connection:
    """Connect to a database that is written to the disk some time: no fuzzer pulls the plug."""
    connection = connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _is_long(wait_s: Any, most: float = float("inf")) -> bool:
    return isinstance(wait_s, int | float) and HURRY_S < wait_s <= most


def _number(text: Any) -> Any:
    """In a query a number is written as text."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
