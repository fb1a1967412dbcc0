"""Runs over HTTP; the same as `interlock.systems.runs.runs.Runs` offers.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

import msgspec

from interlock.api import runs as api
from interlock.api.messages import MAX_PAGE
from interlock.remote.history import history_of
from interlock.remote.http_client import ApiClient
from interlock.store.records import Entry
from interlock.wire.filters import WantedRuns
from interlock.wire.runs import (
    FlakyJobs,
    ReportView,
    RerunPreview,
    RunComparison,
    RunExplanation,
    RunFilter,
    RunJobView,
    RunSpec,
    RunView,
    Which,
)

ALL = RunFilter()


class HttpRuns:
    """The runs behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def submit(self, spec: RunSpec, *, request_id: str | None = None, actor: str = "") -> RunView:
        """Submit a run; a repeated request returns the earlier one."""
        sent = api.OneRun(**msgspec.structs.asdict(spec), request_id=request_id)
        return await self._client.call(api.SUBMIT_RUN, sent)

    async def cancel(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Request the cancellation of a run and return its present view."""
        sent = api.CancelRun(reason=reason, request_id=request_id)
        return await self._client.call(api.CANCEL_RUN, sent, run_id=run_id)

    async def approve(
        self, run_id: str, *, comment: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Approve a run that waits for approval."""
        sent = api.ApproveRun(comment=comment, request_id=request_id)
        return await self._client.call(api.APPROVE_RUN, sent, run_id=run_id)

    async def decline(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Decline a run that waits for approval, which cancels it."""
        sent = api.DeclineRun(reason=reason, request_id=request_id)
        return await self._client.call(api.DECLINE_RUN, sent, run_id=run_id)

    async def rerun(
        self,
        run_id: str,
        which: Which = "all",
        *,
        job: str = "",
        request_id: str | None = None,
        actor: str = "",
    ) -> RunView:
        """Rerun an ended run as a new run that names its origin."""
        sent = api.RerunRequest(which=which, job=job, request_id=request_id)
        return await self._client.call(api.RERUN, sent, run_id=run_id)

    async def preview(self, run_id: str, which: Which = "all", *, job: str = "") -> RerunPreview:
        """Return which jobs a rerun would execute."""
        return await self._client.call(api.PREVIEW_RERUN, api.RerunQuery(which=which, job=job), run_id=run_id)

    async def compare(self, run_id: str, *, other: str = "") -> RunComparison:
        """Return the changes since another run, by default the last green one."""
        return await self._client.call(api.COMPARE_RUN, api.ComparisonQuery(other=other), run_id=run_id)

    async def view(self, run_id: str) -> RunView:
        """Return a run with its jobs."""
        return await self._client.call(api.GET_RUN, run_id=run_id)

    async def outline(self, run_id: str) -> RunView:
        """Return a run without its jobs."""
        return await self._client.call(api.GET_RUN, api.RunQuery(jobs=False), run_id=run_id)

    async def find(
        self, wanted: RunFilter = ALL, *, newest_first: bool = True, cursor: str = "", limit: int = 100
    ) -> tuple[list[RunView], str]:
        """Return a page of runs without their jobs, and the next cursor."""
        query = api.RunsQuery(q=text_of(wanted), limit=min(limit, MAX_PAGE), cursor=cursor)
        page = await self._client.call(api.LIST_RUNS, query)
        return list(page.runs), page.cursor

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = 500) -> list[RunJobView]:
        """Return jobs of a run in the order of its plan, from an index on."""
        found: list[RunJobView] = []
        following: int | None = first
        while following is not None and len(found) < limit:
            query = api.RunJobsQuery(first=following, limit=min(limit - len(found), MAX_PAGE))
            page = await self._client.call(api.GET_RUN_JOBS, query, run_id=run_id)
            found += page.jobs
            following = page.next
        return found

    async def history(self, run_id: str) -> list[Entry]:
        """Return the journal of a run, oldest first."""
        return await history_of(self._client, api.GET_RUN_HISTORY, run_id=run_id)

    async def explain(self, run_id: str) -> RunExplanation:
        """Return why a run waits, or how it ended."""
        return await self._client.call(api.EXPLAIN_RUN, run_id=run_id)

    async def reports(self, run_id: str) -> list[ReportView]:
        """Return the reports of a run, and the progress of each."""
        return list((await self._client.call(api.LIST_REPORTS, run_id=run_id)).reports)

    async def report_again(self, run_id: str) -> list[ReportView]:
        """Send again the reports that were given up."""
        return list((await self._client.call(api.REPORT_AGAIN, run_id=run_id)).reports)

    async def flaky(
        self, *, repository: str = "", workflow: str = "", cursor: str = "", limit: int = 100
    ) -> FlakyJobs:
        """Return a page of jobs that recently passed and failed on one commit."""
        query = api.FlakyQuery(repository=repository, workflow=workflow, cursor=cursor, limit=limit)
        return await self._client.call(api.LIST_FLAKY_JOBS, query)


def text_of(wanted: RunFilter) -> str:
    """Return a query to the store as a filter for the API."""
    text = WantedRuns(
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
    return str(text)
