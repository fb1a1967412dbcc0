"""What `interlock job cancel` and `retry` do, for one job or for all that a filter means (`many`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from interlock.cli import job_sheets
from interlock.cli.connecting import actor
from interlock.cli.finding import chosen, filter_in
from interlock.cli.many import Many, part_of
from interlock.lifecycles import job
from interlock.remote.interfaces import JobsApi, Reach, Services
from interlock.wire.jobs import JobView


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

    async def carry_out(self, jobs: JobsApi, job_id: str) -> JobView:
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

    async def carry_out(self, jobs: JobsApi, job_id: str) -> JobView:
        """Ask it to stop."""
        request_id = part_of(self.request_id, job_id)
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

    async def carry_out(self, jobs: JobsApi, job_id: str) -> JobView:
        """Make the new job."""
        request_id = part_of(self.request_id, job_id)
        return await jobs.get(await jobs.retry(job_id, actor=actor(), request_id=request_id))

    def line(self, view: JobView) -> str:
        """The new id, and nothing else, so that it can be used."""
        return view.id


def carry_out(
    store: str | None, order: Order, words: Sequence[str], yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Do it with all jobs that are meant; the answer is the exit code."""
    by_filter = filter_in(words) is not None

    async def choose(port: Reach) -> list[JobView]:
        return await chosen(port.here.jobs, words, among=order.states if by_filter else ())

    async def act(place: Services, job_id: str) -> JobView:
        return await order.carry_out(place.jobs, job_id)

    many = Many("job", order.verb, by_filter, choose, act, order.line, job_sheets.list_sheet)
    return many.carry_out(store, yes=yes, dry_run=dry_run, as_json=as_json)
