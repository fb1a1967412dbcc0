"""Jobs over HTTP, with their log lines, their artifacts and their queues.

The server knows the actor by the token, so an `actor` that is named here is not passed on. Every change is
sent under a request id, a new one where none is given: when an answer is lost the request is repeated, and
nothing is done twice.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Protocol
from urllib.parse import quote

import msgspec

from interlock.errors import InvalidArguments, UnknownJob
from interlock.lifecycles.job import JOB
from interlock.remote.http_client import (
    ApiClient,
    HistoryPage,
    JobPage,
    LineRead,
    LogPage,
    Queues,
    Submitted,
)
from interlock.store.records import Count, Entry, Query
from interlock.systems.orchestrator.attachments import Chunk, unknown_artifact
from interlock.systems.orchestrator.explanation import Explanation
from interlock.wire.artifacts import ArtifactList, ArtifactView, newest
from interlock.wire.filters import Filter
from interlock.wire.jobs import MAX_NODES, NODES, JobSpec, JobView, QueueHold, QueueView, TreeView

MAX_BULK = 1_000
MAX_PAGE = 1_000
MAX_BODY_BYTES = 1_000_000
"""How much is sent in one request; a server takes a little more."""
AT_ONCE = 20

_SHAPE = re.compile(r"[A-Za-z0-9_-]{1,64}")


class HttpJobs:
    """The jobs behind a server."""

    def __init__(
        self, asker: ApiClient, *, names: Callable[[], str], clock: Callable[[], Awaitable[datetime]]
    ) -> None:
        self._asker = asker
        self._names = names
        self._clock = clock

    async def now(self) -> datetime:
        """The store's time, or close to it."""
        return await self._clock()

    # Submitting

    async def submit(self, spec: JobSpec, *, actor: str = "", request_id: str | None = None) -> str:
        """The id of a new job, or of the one that an earlier request with this id has made."""
        return (await self.submit_many([spec], actor=actor, request_id=request_id))[0]

    async def submit_many(
        self,
        specs: Sequence[JobSpec],
        *,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> list[str]:
        """The ids of new jobs, in their order; those in one request are made together or not at all."""
        batches = list(_batches([msgspec.json.encode(spec) for spec in specs]))
        if request_id is not None and len(batches) > 1:
            raise InvalidArguments(
                f"{len(specs)} jobs do not fit into one request, so they cannot be made together under one "
                "request id.",
                todo=f"Submit up to {MAX_BULK} at once, each time under an id of its own.",
                facts={"jobs": len(specs), "most": MAX_BULK, "most_bytes": MAX_BODY_BYTES},
            )
        ids: list[str] = []
        for batch in batches:
            name = msgspec.json.encode(request_id if request_id is not None else self._names())
            body = b'{"jobs":[%s],"request_id":%s}' % (b",".join(batch), name)
            ids += (await self._asker.post("/api/jobs", Submitted, body)).ids
        return ids

    # Stopping and doing again

    async def cancel(
        self,
        job_id: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> JobView:
        """Ask a job to stop; the view says how far that is."""
        body = msgspec.json.encode({"reason": reason, "request_id": self._named(request_id)})
        return await self._asker.post(_path(job_id, "cancel"), JobView, body)

    async def retry(
        self,
        job_id: str,
        *,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> str:
        """Do a job that has ended again, as a new one that names its origin."""
        body = msgspec.json.encode({"request_id": self._named(request_id)})
        return (await self._asker.post(_path(job_id, "retry"), Submitted, body)).ids[0]

    # Looking

    async def get(self, job_id: str) -> JobView:
        """The job as it stands."""
        return await self._asker.get(_path(job_id), JobView)

    async def get_many(self, job_ids: Sequence[str]) -> list[JobView | None]:
        """Several at once; None where there is none."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(job_id: str) -> JobView | None:
            async with turns:
                try:
                    return await self.get(job_id)
                except UnknownJob:
                    return None

        return list(await asyncio.gather(*map(one, job_ids)))

    async def find(self, query: Query) -> tuple[list[JobView], str]:
        """A page of jobs, newest first, and the cursor of the next one."""
        limit = min(query.limit, MAX_PAGE)
        page = await self._asker.get("/api/jobs", JobPage, q=text_of(query), limit=limit, cursor=query.cursor)
        return list(page.jobs), page.cursor

    async def count(self, query: Query, *, cap: int = 10_000) -> Count:
        """How many match, up to a cap; a server has one of its own."""
        page = await self._asker.get("/api/jobs", JobPage, q=text_of(query), limit=1)
        number = page.count.number if page.count else len(page.jobs)
        capped = page.count is not None and page.count.capped
        return Count(min(number, cap), capped=capped or number > cap)

    async def tree(self, job_id: str, *, most: int = NODES) -> TreeView:
        """A job and everything below it, as far as `most` jobs show it."""
        return await self._asker.get(_path(job_id, "tree"), TreeView, limit=min(most, MAX_NODES))

    async def history(self, job_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        entries: list[Entry] = []
        after: int | None = 0
        while after is not None:
            page = await self._asker.get(_path(job_id, "history"), HistoryPage, after=after, limit=MAX_PAGE)
            entries += [each.entry() for each in page.entries]
            after = page.after
        return entries

    async def logs(self, job_id: str) -> AsyncIterator[Chunk]:
        """What its attempts have written, in the order in which it arrived."""
        cursor, more = "", True
        while more:
            page = await self._asker.get(_path(job_id, "logs"), LogPage, cursor=cursor, limit=MAX_PAGE)
            for line in page.lines:
                yield line.chunk()
            cursor, more = page.cursor, bool(page.cursor)

    async def explain(self, job_id: str) -> Explanation:
        """What it waits for, whose turn it is and when the next deadline is; or how it ended."""
        return await self._asker.get(_path(job_id, "explain"), Explanation)

    def _named(self, request_id: str | None) -> str:
        return request_id if request_id is not None else self._names()


def text_of(query: Query) -> str:
    """A question to a store as a filter, which is what a server is asked with."""
    if query.kind != JOB.name or not query.newest_first:
        raise InvalidArguments(
            "A server is asked for jobs, newest first.",
            todo="Ask the store itself for anything else.",
            facts={"kind": query.kind, "newest_first": query.newest_first},
        )
    wanted = Filter(
        states=query.states,
        queues=() if query.queue is None else (query.queue,),
        parents=() if query.parent is None else (query.parent,),
        labels=tuple((label,) for label in query.labels),
        since=query.since,
        until=query.until,
    )
    return str(wanted)


def _batches(specs: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many together as a request may hold."""
    batch: list[bytes] = []
    size = 0
    for spec in specs:
        if batch and (len(batch) == MAX_BULK or size + len(spec) + 1 > MAX_BODY_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(spec)
        size += len(spec) + 1
    if batch:
        yield batch


def _path(job_id: str, what: str = "") -> str:
    """Where a job is; a name that cannot be one must not lead elsewhere."""
    if (
        not job_id
        or not all(character.isalnum() or character in "_-." for character in job_id)
        or ".." in job_id
    ):
        raise UnknownJob(
            f"There is no job {job_id[:64]}.",
            todo="Look for it with `interlock job list`.",
            facts={"job_id": job_id[:64]},
        )
    return f"/api/jobs/{job_id}/{what}".rstrip("/")


PAGE = 500


class NewLines:
    """The lines of one job; each call gives what has come since the one before.

    The last page is read again each time. Of two chunks that arrive at once one may show later, before
    the other, so what was given already is known line by line.
    """

    def __init__(self, asker: ApiClient, job_id: str) -> None:
        self._asker = asker
        self._job_id = job_id
        self._cursor = ""
        self._given: Counter[LineRead] = Counter()

    async def __call__(self) -> AsyncIterator[Chunk]:
        """What is new."""
        while True:
            path = f"/api/jobs/{self._job_id}/logs"
            page = await self._asker.get(path, LogPage, cursor=self._cursor, limit=PAGE)
            seen: Counter[LineRead] = Counter()
            for line in page.lines:
                seen[line] += 1
                if seen[line] > self._given[line]:
                    yield line.chunk()
            self._given = seen
            if not page.cursor:
                return
            self._cursor, self._given = page.cursor, Counter()


class HttpArtifacts:
    """What attempts have left behind."""

    def __init__(self, asker: ApiClient) -> None:
        self._asker = asker

    async def list(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Everything that the attempts of a job have left behind, oldest first."""
        return (await self._asker.get(f"/api/jobs/{quote(job_id)}/artifacts", ArtifactList)).artifacts

    @asynccontextmanager
    async def opened(
        self, job_id: str, name: str, attempt: str = ""
    ) -> AsyncIterator[tuple[ArtifactView, AsyncIterator[bytes]]]:
        """One of them, and what it says."""
        view = newest(await self.list(job_id), name, attempt)
        if view is None:
            raise unknown_artifact(job_id, name, attempt)
        path = f"/api/jobs/{quote(job_id)}/artifacts/{quote(name)}"
        async with self._asker.download(path, attempt=f"{view.shard}.{view.attempt}") as pieces:
            yield view, pieces


class QueuesApi(Protocol):
    """Everything that people do with queues."""

    async def paused(self) -> list[QueueHold]:
        """Return the paused queues, by name."""
        ...

    async def list(self) -> list[QueueView]:
        """Return the queues that have jobs which have not ended, or are paused."""
        ...

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Give out no job of a queue until it is resumed; jobs that run go on."""
        ...

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Give out the jobs of a queue again."""
        ...


class HttpQueues:
    """The queues behind a server. Who did it the server knows by the token."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def paused(self) -> list[QueueHold]:
        """Return the paused queues, by name."""
        return [
            QueueHold(
                name=view.name, state=view.state, reason=view.reason, by=view.paused_by, at=view.paused_at
            )
            for view in await self.list()
            if view.state == "paused"
        ]

    async def list(self) -> list[QueueView]:
        """Return the queues, with what the server knows about each."""
        return list((await self._asker.get("/api/queues", Queues)).queues)

    async def pause(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> QueueHold:
        """Give out no job of a queue until it is resumed; jobs that run go on."""
        return await self._tell("pause", name, reason, request_id)

    async def resume(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> QueueHold:
        """Give out the jobs of a queue again."""
        return await self._tell("resume", name, reason, request_id)

    async def _tell(self, verb: str, name: str, reason: str, request_id: str | None) -> QueueHold:
        told = {"queue": name, "reason": reason, "request_id": request_id or self._names()}
        return await self._asker.post(f"/api/queues/{verb}", QueueHold, msgspec.json.encode(told))
