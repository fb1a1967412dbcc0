"""Which other jobs have failed the same way.

No index of failures exists, and counting a table would cost more the more has gone wrong. So the newest
failed jobs are looked at, up to a bound of jobs and of bytes, and the answer says how many that were.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime

import msgspec

from interlock.errors import UnknownJob
from interlock.lifecycles.job import FAILED, JOB
from interlock.server.api.visibility import job_of
from interlock.server.routes import Call, Confined, Route
from interlock.store.records import Query, Record
from interlock.systems.access.principals import Role
from interlock.systems.orchestrator.views import glimpse_failure

MOST = 1_000
"""How many failed jobs are looked at."""
MOST_BYTES = 8_000_000
"""How much of them is read: inputs may be large."""
PAGE = 100
SHOWN = 10
_SIGN = 300
"""So many characters of an error say which one it is."""

_VARIES = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}|\d+")


class Alike(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs of the same task that failed with the same error, but for numbers and ids in it."""

    number: int
    """How many of those looked at, with the job itself; 0 when it has not failed."""
    looked_at: int
    """How many failed jobs were looked at, newest first."""
    more: bool = False
    """There are older ones that were not looked at."""
    since: datetime | None = None
    """When the first of them failed."""
    ids: tuple[str, ...] = ()
    """The newest of them, and the oldest one last."""


async def list_alike(call: Call) -> Alike:
    """Look through the newest failed jobs for the failure of this one."""
    job = await job_of(call)
    if job.failure is None or job.state != FAILED:
        return Alike(number=0, looked_at=0)
    sign = (job.task, job.failure.failure_class, _sign(job.failure.error))
    found = {job.id: job.completed_at or job.updated_at}
    looked_at, more = 0, False
    async for record in _newest_failed(call):
        if record is None:
            more = True
            break
        if not call.principal.sees(record.queue or ""):
            continue
        looked_at += 1
        seen = glimpse_failure(record)
        if (seen.task, seen.failure_class, _sign(seen.error)) == sign:
            found[record.id] = seen.failed_at or record.updated_at
    ids = sorted(found, key=lambda each: found[each], reverse=True)
    shown = ids if len(ids) <= SHOWN else [*ids[: SHOWN - 1], ids[-1]]
    return Alike(number=len(ids), looked_at=looked_at, more=more, since=min(found.values()), ids=tuple(shown))


async def _newest_failed(call: Call) -> AsyncIterator[Record | None]:
    """Yield failed jobs up to the bounds, then None when there are older ones."""
    number, size, cursor = 0, 0, ""
    while True:
        query = Query(kind=JOB.name, states=(FAILED,), limit=min(PAGE, MOST - number), cursor=cursor)
        page = await call.parts.store.find(query)
        for record in page.records:
            number, size = number + 1, size + record.size
            yield record
        cursor = page.cursor
        if not cursor:
            return
        if number >= MOST or size >= MOST_BYTES:
            yield None
            return


def _sign(error: str) -> str:
    """Return an error without what differs from one time to the next."""
    return _VARIES.sub("#", error[:_SIGN])


ROUTES = (
    Route(
        method="GET",
        path="/api/jobs/{job_id}/alike",
        name="listAlike",
        summary="Count the jobs among the newest 1,000 failed ones that failed the same way, and since when.",
        handler=list_alike,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters={"job_id": "The id of a job."},
        answer=Alike,
        errors=(UnknownJob,),
    ),
)
