"""What `interlock workload list|show|watch|abort` do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
import typer

from interlock.cli.answers import print_struct
from interlock.cli.connecting import actor, ask
from interlock.cli.finding import find, whole_id
from interlock.cli.following import POLL_S, has_ended
from interlock.cli.printing import Sheet, on_terminal, print_sheets
from interlock.cli.times import ago, shown
from interlock.cli.workload_running import exit_code, write_files
from interlock.cli.workload_screen import Lines, Screen, Silent
from interlock.cli.workload_sheets import heard_sheet, result_sheets
from interlock.errors import InterlockError, UnknownJob
from interlock.lifecycles.workload import WORKLOAD
from interlock.plurals import counted
from interlock.remote.interfaces import Reach
from interlock.store.records import Query
from interlock.systems.fleet.live import AgentLive, Live, lives_in
from interlock.systems.fleet.outcome import WorkloadResult
from interlock.systems.fleet.spec import TASK, spec_of
from interlock.wire.filters import read_filter
from interlock.wire.jobs import JobView
from interlock.wire.workloads import WorkloadView

FILES = ("result.json", "seconds.csv", "latencies.hlog", "report.html")
COLUMNS = ("id", "state", "name", "agents", "submitted", "said")
MEMBER_COLUMNS = ("agent", "state", "outcome", "operations", "error")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with everything that is known of it."""

    job: JobView
    agents: tuple[WorkloadView, ...] = ()
    result: WorkloadResult | None = None
    driven: bool = True
    """Whether a controller has a live lease of the job; without a server nobody notices that one is gone."""
    heard: Live | None = None
    """The last second that its log tells of, when it has ended and nobody was left to save a result."""


def show_list(store: str | None, limit: int, *, as_json: bool) -> None:
    """Print the newest ones."""

    async def work(reach: Reach) -> tuple[list[JobView], datetime]:
        wanted = read_filter(f"task:{TASK}")
        return (await find(reach.here.jobs, wanted, limit=limit)).views, await reach.now()

    views, now = ask(store, work)
    if as_json:
        print_struct({"workloads": views})
        return
    terminal = on_terminal()
    rows = [
        (view.id, view.state, view.description, str(len(spec_of(view).agents)),
         shown(view.created_at, now, terminal=terminal), _said(view, now))
        for view in views
    ]  # fmt: skip
    print_sheets([Sheet("workload", "", COLUMNS, rows, one_line=True, spare=("agents", "submitted"))])


def show(store: str | None, text: str, out: Path | None, *, as_json: bool) -> None:
    """Print what has come of one, or how far it is."""

    async def work(reach: Reach) -> tuple[Workload, dict[str, bytes], datetime]:
        found = await _workload(reach, text)
        files = await _files(reach, found.job.id) if out is not None else {}
        return found, files, await reach.now()

    found, files, now = ask(store, work)
    if out is not None:
        write_files(out, files)
    if as_json:
        print_struct(found)
        return
    about = [(found.job.id, found.job.state, found.job.description, _said(found.job, now))]
    print_sheets([Sheet("job", "", ("id", "state", "name", "said"), about), *_sheets(found, now)])


def abort(store: str | None, text: str, reason: str, *, as_json: bool) -> None:
    """Cancel the job that drives it."""

    async def work(reach: Reach) -> JobView:
        found = await _driver(reach, text)
        return await reach.here.jobs.cancel(found.id, reason=reason, actor=actor())

    view = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.id}\t{view.state}")


def watch(store: str | None, text: str, *, as_json: bool) -> int:
    """Follow one that somebody else drives; the answer is the exit code."""

    async def work(reach: Reach) -> int:
        found = await _driver(reach, text)
        title = f"{found.description or found.id} on {counted(len(spec_of(found).agents), 'agent')}"
        screen = Silent() if as_json else Screen(title) if on_terminal() else Lines()
        screen.begin()
        try:
            async for live in _lives(reach, found):
                screen.show(live)
        finally:
            screen.end()
        ended = await _workload(reach, found.id)
        if as_json:
            print_struct(ended)
        else:
            print_sheets(_sheets(ended, await reach.now()))
        return exit_code(ended.job, ended.result)

    return ask(store, work)


async def _lives(reach: Reach, found: JobView) -> AsyncIterator[Live]:
    """Every second that the log tells of, and the agents as they are known, until the job has ended.

    Without a server nobody else may be there to notice that its controller is gone.
    """
    chunks, loop, swept_at = reach.new_chunks(found.id), asyncio.get_running_loop(), float("-inf")
    while True:
        if loop.time() - swept_at >= reach.settings.durations.sweep_every_s:
            swept_at = loop.time()
            await reach.recover()
        view = await reach.here.jobs.get(found.id)
        members = await _agents(reach, found.id)
        async for chunk in chunks():
            for live in lives_in(chunk):
                yield _with_members(live, members)
        if has_ended(view):
            return
        await asyncio.sleep(POLL_S)


def _with_members(live: Live, members: tuple[WorkloadView, ...]) -> Live:
    known = tuple(
        AgentLive(agent=each.agent, state=(each.final or each.state).lower(), operations=each.operations)
        for each in members
    )
    return msgspec.structs.replace(live, members=known)


async def _driver(reach: Reach, text: str) -> JobView:
    view = await reach.here.jobs.get(await whole_id(reach.here.jobs, text))
    if view.task == TASK:
        return view
    raise UnknownJob(
        f"{view.id} is a job of the task {view.task}, and drives no agents.",
        todo="See `interlock workload list`.",
        facts={"job_id": view.id, "task": view.task},
    )


async def _workload(reach: Reach, text: str) -> Workload:
    view = await _driver(reach, text)
    agents, result = await _agents(reach, view.id), await _result(reach, view)
    heard = await _heard(reach, view) if result is None else None
    driven = _undriven_since(view, await reach.now()) is None
    return Workload(job=view, agents=agents, result=result, driven=driven, heard=heard)


async def _agents(reach: Reach, job_id: str) -> tuple[WorkloadView, ...]:
    query = Query(kind=WORKLOAD.name, parent=job_id, limit=1_000)
    views, _ = await reach.here.workloads.find(query)
    return tuple(sorted(views, key=lambda each: each.agent))


async def _result(reach: Reach, view: JobView) -> WorkloadResult | None:
    """From the files, which are there also when it failed or was stopped; else from the job."""
    if not has_ended(view):
        return None
    with suppress(InterlockError):
        return msgspec.json.decode(await _file(reach, view.id, "result.json"), type=WorkloadResult)
    if isinstance(view.result, msgspec.Raw):
        return msgspec.json.decode(view.result, type=WorkloadResult)
    return None


async def _heard(reach: Reach, view: JobView) -> Live | None:
    """What there is of a workload whose controller was killed: it told its log every second."""
    if not has_ended(view):
        return None
    last: Live | None = None
    async for chunk in reach.new_chunks(view.id)():
        last = next(reversed(list(lives_in(chunk))), last)
    return last


def _sheets(found: Workload, now: datetime) -> list[Sheet]:
    if found.result is not None:
        return result_sheets(found.result)
    heard = [heard_sheet(found.heard)] if found.heard else []
    return [*heard, _members(found.agents, now)]


async def _files(reach: Reach, job_id: str) -> dict[str, bytes]:
    return {name: await _file(reach, job_id, name) for name in FILES}


async def _file(reach: Reach, job_id: str, name: str) -> bytes:
    async with reach.here.artifacts.opened(job_id, name) as (_, pieces):
        return b"".join([piece async for piece in pieces])


def _members(agents: tuple[WorkloadView, ...], now: datetime) -> Sheet:
    rows = [
        (each.agent, each.state, each.final, f"{each.operations:,}", each.error or _silence(each, now))
        for each in agents
    ]
    return Sheet("agent", "", MEMBER_COLUMNS, rows)


def _silence(view: WorkloadView, now: datetime) -> str:
    """Since when nothing was heard of an agent, if it should have been by the store's clock."""
    if view.deadline_at is None or view.deadline_at > now:
        return ""
    return f"not heard of since {view.updated_at:%Y-%m-%d %H:%M:%S} UTC"


def _undriven_since(view: JobView, now: datetime) -> datetime | None:
    """When the lease of its controller ended, if it has by the store's clock and nobody has noticed."""
    lease = view.attempts[-1].lease if view.attempts and not has_ended(view) else None
    return lease.expires_at if lease is not None and lease.expires_at <= now else None


def _said(view: JobView, now: datetime) -> str:
    if view.failure is not None:
        return view.failure.error
    if (since := _undriven_since(view, now)) is not None:
        end = f"interlock workload watch {view.id}"
        return f"nobody drives it: its lease ended {ago(since, now)}. A server ends it, or: {end}"
    progress = next((one.progress for one in reversed(view.attempts) if one.progress), None)
    return view.stop_reason or (progress.message if progress else "")
