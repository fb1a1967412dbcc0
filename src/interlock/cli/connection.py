"""Connect to a store or a server for the length of one command."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from interlock.cli import hyperlinks, project
from interlock.errors import BadStoreUrl, InvalidSettings
from interlock.processes import credentials
from interlock.remote import is_server
from interlock.remote.service_connection import ServiceConnection
from interlock.store.contract import Store
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.kinds import DeclaredKind
from interlock.systems.orchestrator.attachments import LOG, Chunk
from interlock.wire.tls import CA

PAGE = 500
OVERLAP = timedelta(seconds=10)
"""Overlap of two searches for chunks: a concurrent chunk may become visible later."""
_OUTCOMES = "interlock.runs.outcomes"
"""The logger for outcomes of runs."""


class StoredChunks:
    """The chunks of one job; each call yields those that arrived since the previous call."""

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        self._since: datetime | None = None
        self._seen: set[str] = set()

    async def __call__(self) -> AsyncIterator[Chunk]:
        """Yield the new chunks."""
        query = Query(kind=LOG.name, parent=self._job_id, newest_first=False, since=self._since, limit=PAGE)
        while True:
            page = await self._store.find(query)
            for record in (record for record in page.records if record.id not in self._seen):
                self._since = record.created_at - OVERLAP
                self._seen.add(record.id)
                yield msgspec.json.decode(record.body, type=Chunk)
            if not page.cursor:
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)


T = TypeVar("T")


class Embedded(EmbeddedOrchestrator):
    """A store in this process."""

    def new_chunks(self, job_id: str) -> Callable[[], AsyncIterator[Chunk]]:
        """Return a function that yields the chunks since its last call."""
        return StoredChunks(self.services.store, job_id)


def run_connected(url: str | None, work: Callable[[ServiceConnection], Awaitable[T]]) -> T:
    """Connect to this project's store or server, work, and disconnect."""
    here = project.load(url)

    async def run() -> T:
        async with connected(here) as connection:
            return await work(connection)

    return asyncio.run(run())


def run_in_store(url: str | None, work: Callable[[EmbeddedOrchestrator], Awaitable[T]]) -> T:
    """Connect to the store of this project, for work that a server cannot do."""
    here = project.load(url)
    store_url(here)

    async def run() -> T:
        port = Embedded(here.url, settings=here.settings)
        await port.connect()
        try:
            return await work(port)
        finally:
            await port.disconnect()

    return asyncio.run(run())


@asynccontextmanager
async def connected(
    here: project.Project, kinds: Sequence[DeclaredKind[Any]] = ()
) -> AsyncIterator[ServiceConnection]:
    """Connect to the store or the server of this project."""
    hyperlinks.begin(here.url if is_server(here.url) else "")
    if is_server(here.url):
        from interlock.remote.services import RemoteOrchestrator

        port: Embedded | RemoteOrchestrator = RemoteOrchestrator(
            here.url, token=token(), settings=here.settings, ca=ca()
        )
    else:
        port = Embedded(here.url, settings=here.settings, kinds=kinds)
    with _outcomes_not_logged():
        await port.connect()
        try:
            yield port
        finally:
            await port.disconnect()


@contextmanager
def _outcomes_not_logged() -> Iterator[None]:
    """Keep the log line about the outcome of a run off the terminal.

    The command prints the run itself.
    """
    log = logging.getLogger(_OUTCOMES)
    log.addFilter(_drop)
    try:
        yield
    finally:
        log.removeFilter(_drop)


def _drop(_: logging.LogRecord) -> bool:
    return False


def store_url(here: project.Project) -> str:
    """Return the URL of the store; raise when the project has only a server."""
    if is_server(here.url):
        raise BadStoreUrl(
            f"{here.url} is a server, and this command needs the database itself.",
            todo="Give the URL of the database with --store.",
            facts={"url": here.url},
        )
    return here.url


def token() -> str | None:
    """Return the access token for a server."""
    return credentials.token()


def token_in(file: str) -> str:
    """Return the access token in a file, or in standard input for "-"."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"The token cannot be read from {file}: {error}.",
            todo="Give a file with nothing but the token in it, or - to read it from standard input.",
            facts={"token_file": file},
        ) from None
    return text.strip()


def ca() -> str | None:
    """Return the file with CA certificates for a server."""
    return os.environ.get(CA) or None


def actor() -> str:
    """Return the actor for the journal."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):  # a container may run as a user without a name
        return "command line"
