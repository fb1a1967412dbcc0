"""Everything that is done with runs, over HTTP; the same as `interlock.systems.runs.runs.Runs` offers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from interlock.errors import UnknownRun
from interlock.remote.http_client import ApiClient, HistoryPage, RunJobs, RunPage
from interlock.remote.interfaces import Which
from interlock.store.records import Entry
from interlock.systems.runs.failure_analysis import FlakyJobs
from interlock.systems.runs.reporting.reporter import ReportView
from interlock.wire.filters import WantedRuns
from interlock.wire.runs import (
    RerunPreview,
    RunComparison,
    RunExplanation,
    RunFilter,
    RunJobView,
    RunSpec,
    RunView,
)

MAX_PAGE = 1_000
ALL = RunFilter()


class _Reports(msgspec.Struct, frozen=True):
    reports: tuple[ReportView, ...]


class HttpRuns:
    """The runs behind a server. Who did it the server knows by the token."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def submit(
        self,
        spec: RunSpec,
        *,
        request_id: str | None = None,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
    ) -> RunView:
        """A new run, or the one that an earlier request with this id has made."""
        body = {**msgspec.structs.asdict(spec), "request_id": self._named(request_id)}
        return await self._asker.post("/api/runs", RunView, msgspec.json.encode(body))

    async def cancel(
        self,
        run_id: str,
        *,
        reason: str = "",
        request_id: str | None = None,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
    ) -> RunView:
        """Ask a run to stop; the view says how far that is."""
        body = {"reason": reason, "request_id": self._named(request_id)}
        return await self._asker.post(_path(run_id, "cancel"), RunView, msgspec.json.encode(body))

    async def approve(
        self,
        run_id: str,
        *,
        comment: str = "",
        request_id: str | None = None,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
    ) -> RunView:
        """Let a run go on that waits for an approval."""
        body = {"comment": comment, "request_id": self._named(request_id)}
        return await self._asker.post(_path(run_id, "approve"), RunView, msgspec.json.encode(body))

    async def decline(
        self,
        run_id: str,
        *,
        reason: str = "",
        request_id: str | None = None,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
    ) -> RunView:
        """Cancel a run that waits for an approval."""
        body = {"reason": reason, "request_id": self._named(request_id)}
        return await self._asker.post(_path(run_id, "decline"), RunView, msgspec.json.encode(body))

    async def rerun(
        self,
        run_id: str,
        which: Which = "all",
        *,
        job: str = "",
        request_id: str | None = None,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
    ) -> RunView:
        """Do a run that has ended again, as a new one that names its origin."""
        body = {"which": which, "job": job, "request_id": self._named(request_id)}
        return await self._asker.post(_path(run_id, "rerun"), RunView, msgspec.json.encode(body))

    async def preview(self, run_id: str, which: Which = "all", *, job: str = "") -> RerunPreview:
        """Return which jobs a rerun would execute."""
        return await self._asker.get(_path(run_id, "rerun"), RerunPreview, which=which, job=job)

    async def compare(self, run_id: str, *, other: str = "") -> RunComparison:
        """Return what has changed since another run, by default the last green one of its kind."""
        return await self._asker.get(_path(run_id, "comparison"), RunComparison, other=other)

    async def view(self, run_id: str) -> RunView:
        """The run as it stands, with its jobs."""
        return await self._asker.get(_path(run_id), RunView)

    async def outline(self, run_id: str) -> RunView:
        """The run as it stands, without its jobs."""
        return await self._asker.get(_path(run_id), RunView, jobs="false")

    async def find(
        self,
        wanted: RunFilter = ALL,
        *,
        newest_first: bool = True,  # noqa: ARG002 - a server knows no other order
        cursor: str = "",
        limit: int = 100,
    ) -> tuple[list[RunView], str]:
        """A page of runs without their jobs, newest first, and the cursor of the next one."""
        page = await self._asker.get(
            "/api/runs", RunPage, q=text_of(wanted), limit=min(limit, MAX_PAGE), cursor=cursor
        )
        return list(page.runs), page.cursor

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = 500) -> list[RunJobView]:
        """Jobs of a run in the order of its plan, from some place on."""
        found: list[RunJobView] = []
        following: int | None = first
        while following is not None and len(found) < limit:
            size = min(limit - len(found), MAX_PAGE)
            page = await self._asker.get(_path(run_id, "jobs"), RunJobs, first=following, limit=size)
            found += page.jobs
            following = page.next
        return found

    async def history(self, run_id: str) -> list[Entry]:
        """Everything that has happened to the run, oldest first."""
        entries: list[Entry] = []
        after: int | None = 0
        while after is not None:
            page = await self._asker.get(_path(run_id, "history"), HistoryPage, after=after, limit=MAX_PAGE)
            entries += [each.entry() for each in page.entries]
            after = page.after
        return entries

    async def explain(self, run_id: str) -> RunExplanation:
        """What it waits for, or how it ended."""
        return await self._asker.get(_path(run_id, "explain"), RunExplanation)

    async def reports(self, run_id: str) -> list[ReportView]:
        """Who is told about a run, and how far that is."""
        return list((await self._asker.get(_path(run_id, "reports"), _Reports)).reports)

    async def report_again(self, run_id: str) -> list[ReportView]:
        """Tell those once more who were given up on."""
        return list((await self._asker.post(_path(run_id, "reports/again"), _Reports, b"")).reports)

    async def flaky(
        self, *, repository: str = "", workflow: str = "", cursor: str = "", limit: int = 100
    ) -> FlakyJobs:
        """Jobs that have passed and failed on one commit lately."""
        return await self._asker.get(
            "/api/flaky", FlakyJobs, repository=repository, workflow=workflow, cursor=cursor, limit=limit
        )

    def _named(self, request_id: str | None) -> str:
        return request_id if request_id is not None else self._names()


def text_of(wanted: RunFilter) -> str:
    """A question to a store as a filter, which is what a server is asked with."""
    told = WantedRuns(
        states=wanted.states,
        workflow=wanted.workflow,
        repository=wanted.repository,
        ref=wanted.ref,
        sha=wanted.sha,
        group=wanted.concurrency_group,
        origin=wanted.origin_run_id,
        labels=tuple((label,) for label in wanted.labels),
        since=wanted.since,
        until=wanted.until,
    )
    return str(told)


def _path(run_id: str, what: str = "") -> str:
    """Where a run is; a name that cannot be one must not lead elsewhere."""
    if not run_id or not all(character.isalnum() or character in "_-" for character in run_id):
        raise UnknownRun(
            f"There is no run {run_id[:64]}.",
            todo="Look for it with `interlock run list`.",
            facts={"run_id": run_id[:64]},
        )
    return f"/api/runs/{run_id}/{what}".rstrip("/")
