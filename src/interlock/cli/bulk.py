"""What `interlock job cancel` and `retry` do, for one job or for all that a filter means.

Somebody who names a job means it. Somebody who gives a filter is shown what it means and asked,
unless they have said `--yes`; where nobody can be asked, nothing is done.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

import typer

from interlock.cli import job_sheets, printing, project
from interlock.cli.answers import print_line
from interlock.cli.connecting import actor, connected
from interlock.cli.errors import WRONG_QUESTION, tell
from interlock.cli.finding import chosen, filter_in
from interlock.errors import InterlockError, InvalidArguments
from interlock.lifecycles import job
from interlock.remote.offering import JobsOffer, Reach
from interlock.wire.jobs import JobView

AT_ONCE = 100
PREVIEW = 10


Result: TypeAlias = tuple[str, JobView | InterlockError]
"""A job that was meant, and what has come of it: the job that was stopped, or the new one."""


class Order(Protocol):
    """What shall be done with each job."""

    @property
    def verb(self) -> str:
        """What it is called."""
        ...

    @property
    def states(self) -> Sequence[str]:
        """In which states it can be done; a filter is held to them."""
        ...

    async def carry_out(self, jobs: JobsOffer, job_id: str) -> JobView:
        """Do it."""
        ...

    def line(self, view: JobView) -> str:
        """What is said about it in a pipe."""
        ...


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask it to stop."""

    reason: str
    request_id: str | None
    verb: str = "cancel"
    states: Sequence[str] = tuple(str(state) for state in job.JobState if state not in job.ENDED)

    async def carry_out(self, jobs: JobsOffer, job_id: str) -> JobView:
        """Ask it to stop."""
        request_id = _request_id(self.request_id, job_id)
        return await jobs.cancel(job_id, reason=self.reason, actor=actor(), request_id=request_id)

    def line(self, view: JobView) -> str:
        """Its state: it may still be at it."""
        return "\t".join((view.id, view.state, job_sheets.said(view)))


@dataclass(frozen=True, slots=True)
class Retry:
    """Do it again."""

    request_id: str | None
    verb: str = "retry"
    states: Sequence[str] = tuple(str(state) for state in job.ENDED)

    async def carry_out(self, jobs: JobsOffer, job_id: str) -> JobView:
        """Make the new job."""
        request_id = _request_id(self.request_id, job_id)
        return await jobs.get(await jobs.retry(job_id, actor=actor(), request_id=request_id))

    def line(self, view: JobView) -> str:
        """The new id, and nothing else, so that it can be used."""
        return view.id


def carry_out(
    store: str | None, order: Order, words: Sequence[str], yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Do it with all jobs that are meant; the answer is the exit code."""
    here = project.load(store)
    by_filter = filter_in(words) is not None

    async def choose() -> tuple[list[JobView], datetime]:
        async with connected(here) as port:
            among = order.states if by_filter else ()
            return await chosen(port.here.jobs, words, among=among), await port.now()

    views, now = asyncio.run(choose())
    if not views:
        typer.echo("No job matches.", err=True)
        return 0
    if dry_run or (by_filter and not yes):
        _preview(views, now, as_json=as_json)
        # Nobody holds a connection open while somebody thinks.
        if dry_run or not _agreed(order.verb, len(views)):
            return 0

    async def do() -> list[Result]:
        async with connected(here) as port:
            return await _done(port, order, [view.id for view in views])

    return _tell(order, asyncio.run(do()), as_json=as_json)


async def _done(port: Reach, order: Order, job_ids: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    for start in range(0, len(job_ids), AT_ONCE):
        together = (_one(port.here.jobs, order, job_id) for job_id in job_ids[start : start + AT_ONCE])
        results += await asyncio.gather(*together)
    await port.recover()  # no worker may be there to pass word on to the children of a stopped job
    return results


async def _one(jobs: JobsOffer, order: Order, job_id: str) -> Result:
    try:
        return job_id, await order.carry_out(jobs, job_id)
    except InterlockError as error:
        return job_id, error


def _preview(views: Sequence[JobView], now: datetime, *, as_json: bool) -> None:
    if as_json:
        for view in views:
            print_line(view)
    else:
        shown = views if not printing.on_terminal() else views[:PREVIEW]
        printing.print_sheets([job_sheets.list_sheet(shown, now, terminal=printing.on_terminal())])
        if len(shown) < len(views):
            typer.echo(f"… and {len(views) - len(shown)} more")


def _agreed(verb: str, number: int) -> bool:
    if not sys.stdin.isatty():
        raise InvalidArguments(
            f"Nothing was done: {number} jobs are meant, and nobody can be asked.",
            todo="Say --yes to do it, or --dry-run to only look.",
            facts={"jobs": number},
        )
    return typer.confirm(f"{verb.capitalize()} {number} job{'s' if number != 1 else ''}?", err=True)


def _tell(order: Order, results: Sequence[Result], *, as_json: bool) -> int:
    """A line for each; of one job alone the error is the answer."""
    if len(results) == 1 and isinstance(results[0][1], InterlockError):
        raise results[0][1]
    code = 0
    for job_id, result in results:
        match result:
            case InterlockError() if as_json:
                print_line({"id": job_id, "error": result.as_dict()})
            case InterlockError():
                tell(result, as_json=False)
            case view if as_json:
                print_line({"id": job_id, "job": view})
            case view:
                typer.echo(order.line(view))
        code = WRONG_QUESTION if isinstance(result, InterlockError) else code
    return code


def _request_id(request_id: str | None, job_id: str) -> str | None:
    """One for each job, so that repeating the whole repeats every part."""
    return None if request_id is None else f"{request_id}.{job_id}"
