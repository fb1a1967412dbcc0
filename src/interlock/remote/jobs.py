"""Jobs over HTTP, with their log lines, their artifacts and their queues.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from interlock.api import artifacts
from interlock.api import jobs as api
from interlock.api.messages import MAX_PAGE, PageQuery
from interlock.errors import InvalidArguments, UnknownJob
from interlock.lifecycles.job import JOB
from interlock.remote.history import history_of
from interlock.remote.http_client import ApiClient
from interlock.store.records import Count, Entry, Query
from interlock.systems.orchestrator.attachments import Chunk, unknown_artifact
from interlock.wire.artifacts import ArtifactView, newest
from interlock.wire.filters import Filter
from interlock.wire.jobs import (
    MAX_NODES,
    NODES,
    Explanation,
    JobSpec,
    JobView,
    QueueHold,
    QueueView,
    SubmittedJob,
    TreeView,
    belong_together,
)
from interlock.wire.runner import LogLine

MAX_BODY_BYTES = 1_000_000
"""Maximum size of one request; the limit of a server is a little higher."""
AT_ONCE = 20
PAGE = 500


class HttpJobs:
    """The jobs behind a server."""

    def __init__(self, client: ApiClient, *, clock: Callable[[], Awaitable[datetime]]) -> None:
        self._client = client
        self._clock = clock

    async def now(self) -> datetime:
        """Return the time of the store, or close to it."""
        return await self._clock()

    async def submit(self, spec: JobSpec, *, actor: str = "", request_id: str | None = None) -> str:
        """Submit a job and return its id, or that of an earlier request."""
        return (await self.submit_many([spec], actor=actor, request_id=request_id))[0]

    async def submit_many(
        self, specs: Sequence[JobSpec], *, actor: str = "", request_id: str | None = None
    ) -> list[str]:
        """Submit jobs and return their ids, in order.

        Jobs in one request are created together or not at all.
        """
        return [made.id for made in await self.submit_jobs(specs, actor=actor, request_id=request_id)]

    async def submit_jobs(
        self, specs: Sequence[JobSpec], *, actor: str = "", request_id: str | None = None
    ) -> list[SubmittedJob]:
        """Submit jobs; report for each whether it was created.

        If not, the report has the job with its unique key.
        """
        batches = list(_batches([msgspec.json.encode(spec) for spec in specs]))
        if len(batches) > 1 and (request_id is not None or belong_together(specs)):
            raise InvalidArguments(
                f"{len(specs)} jobs do not fit into one request, so they cannot share one request id, "
                "or wait for each other.",
                todo=f"Submit up to {api.MAX_BULK} at once, each time under an id of its own.",
                facts={"jobs": len(specs), "most": api.MAX_BULK, "most_bytes": MAX_BODY_BYTES},
            )
        jobs: list[SubmittedJob] = []
        for batch in batches:
            sent = api.ManyJobs(jobs=batch, request_id=request_id)
            made = await self._client.call(api.SUBMIT_JOBS, sent)
            jobs += [
                SubmittedJob(job_id, made.how[place] if made.how else "created")
                for place, job_id in enumerate(made.ids)
            ]
        return jobs

    async def cancel(
        self, job_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> JobView:
        """Request the cancellation of a job and return its present view."""
        sent = api.CancelRequest(reason=reason, request_id=request_id)
        return await self._client.call(api.CANCEL_JOB, sent, job_id=job_id)

    async def retry(self, job_id: str, *, actor: str = "", request_id: str | None = None) -> str:
        """Retry an ended job as a new job that names its origin."""
        sent = api.RetryRequest(request_id=request_id)
        return (await self._client.call(api.RETRY_JOB, sent, job_id=job_id)).ids[0]

    async def get(self, job_id: str) -> JobView:
        """Return a job."""
        return await self._client.call(api.GET_JOB, job_id=job_id)

    async def get_many(self, job_ids: Sequence[str]) -> list[JobView | None]:
        """Return several jobs; None for unknown ids."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(job_id: str) -> JobView | None:
            async with turns:
                try:
                    return await self.get(job_id)
                except UnknownJob:
                    return None

        return list(await asyncio.gather(*map(one, job_ids)))

    async def find(self, query: Query) -> tuple[list[JobView], str]:
        """Return a page of jobs, newest first, and the cursor of the next one."""
        request = api.JobsQuery(q=text_of(query), limit=min(query.limit, MAX_PAGE), cursor=query.cursor)
        page = await self._client.call(api.LIST_JOBS, request)
        return list(page.jobs), page.cursor

    async def count(self, query: Query, *, cap: int = 10_000) -> Count:
        """Return the number of matches, up to this cap or the server's."""
        page = await self._client.call(api.LIST_JOBS, api.JobsQuery(q=text_of(query), limit=1))
        number = page.count.number if page.count else len(page.jobs)
        capped = page.count is not None and page.count.capped
        return Count(min(number, cap), capped=capped or number > cap)

    async def tree(self, job_id: str, *, most: int = NODES) -> TreeView:
        """Return a job and its descendants, at most `most` jobs."""
        query = api.TreeQuery(limit=min(most, MAX_NODES))
        return await self._client.call(api.GET_JOB_TREE, query, job_id=job_id)

    async def history(self, job_id: str) -> list[Entry]:
        """Return the journal of a job, oldest first."""
        return await history_of(self._client, api.GET_JOB_HISTORY, job_id=job_id)

    async def logs(self, job_id: str) -> AsyncIterator[Chunk]:
        """Yield the log of its attempts, in order of arrival."""
        cursor, more = "", True
        while more:
            query = PageQuery(cursor=cursor, limit=MAX_PAGE)
            page = await self._client.call(api.GET_JOB_LOGS, query, job_id=job_id)
            for line in page.lines:
                yield _chunk(line)
            cursor, more = page.cursor, bool(page.cursor)

    async def explain(self, job_id: str) -> Explanation:
        """Return why a job waits, or how it ended.

        It names the owner of the next step and the next deadline.
        """
        return await self._client.call(api.EXPLAIN_JOB, job_id=job_id)


def text_of(query: Query) -> str:
    """Return a query to the store as a filter for the API."""
    if query.kind != JOB.name or not query.newest_first:
        raise InvalidArguments(
            "A server lists jobs newest first only.",
            todo="Query the store itself for another order.",
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


def _batches(specs: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
    """Yield batches of encoded jobs that fit into one request."""
    batch: list[msgspec.Raw] = []
    size = 0
    for spec in specs:
        if batch and (len(batch) == api.MAX_BULK or size + len(spec) + 1 > MAX_BODY_BYTES):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(msgspec.Raw(spec))
        size += len(spec) + 1
    if batch:
        yield tuple(batch)


def _chunk(view: api.LogLineView) -> Chunk:
    """Return a line as a chunk of its own."""
    line = LogLine(view.at, view.level, view.text)
    return Chunk(shard=view.shard, attempt=view.attempt, sequence=0, lines=(line,), offset=view.offset)


class NewLines:
    """The log of one job; each call yields the lines that arrived since the previous call.

    Every call reads the last page again. Of two chunks that arrive at once, one may become visible later and
    in front of the other, so the lines that were yielded before are counted.
    """

    def __init__(self, client: ApiClient, job_id: str) -> None:
        self._client = client
        self._job_id = job_id
        self._cursor = ""
        self._given: Counter[api.LogLineView] = Counter()

    async def __call__(self) -> AsyncIterator[Chunk]:
        """Yield the new lines."""
        while True:
            query = PageQuery(cursor=self._cursor, limit=PAGE)
            page = await self._client.call(api.GET_JOB_LOGS, query, job_id=self._job_id)
            seen: Counter[api.LogLineView] = Counter()
            for line in page.lines:
                seen[line] += 1
                if seen[line] > self._given[line]:
                    yield _chunk(line)
            self._given = seen
            if not page.cursor:
                return
            self._cursor, self._given = page.cursor, Counter()


class HttpArtifacts:
    """Artifacts of attempts."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def list(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Return the artifacts of a job, oldest first."""
        return (await self._client.call(artifacts.LIST_ARTIFACTS, job_id=job_id)).artifacts

    @asynccontextmanager
    async def opened(
        self, job_id: str, name: str, attempt: str = ""
    ) -> AsyncIterator[tuple[ArtifactView, AsyncIterator[bytes]]]:
        """Open an artifact: its view, and its content piece by piece."""
        view = newest(await self.list(job_id), name, attempt)
        if view is None:
            raise unknown_artifact(job_id, name, attempt)
        query = artifacts.ArtifactQuery(attempt=f"{view.shard}.{view.attempt}")
        download = self._client.download(artifacts.GET_ARTIFACT, query, job_id=job_id, artifact=name)
        async with download as pieces:
            yield view, pieces


class HttpQueues:
    """The queues behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

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
        """Return the queues, with their figures."""
        return list((await self._client.call(api.LIST_QUEUES)).queues)

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Pause grants from a queue until it is resumed; running jobs continue."""
        sent = api.QueueRequest(queue=name, reason=reason, request_id=request_id)
        return await self._client.call(api.PAUSE_QUEUE, sent)

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Resume a queue."""
        sent = api.QueueRequest(queue=name, reason=reason, request_id=request_id)
        return await self._client.call(api.RESUME_QUEUE, sent)
