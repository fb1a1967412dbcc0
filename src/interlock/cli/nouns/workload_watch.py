"""Command `workload watch`, and the screen of `workload run`: a live table, or a line a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec

from interlock.cli.connection import run_connected
from interlock.cli.nouns.workload_views import exit_code, find_agents, find_driver, find_workload, sheets_of
from interlock.cli.output import print_sheets, print_struct
from interlock.cli.watch import POLL_S, Screen, has_ended, screen
from interlock.remote.service_connection import ServiceConnection
from interlock.systems.fleet.outcome import AgentProgress, WorkloadProgress, progress_in
from interlock.systems.fleet.spec import spec_of
from interlock.text import counted
from interlock.wire.jobs import JobView
from interlock.wire.workloads import WorkloadView


def watch(store: str | None, text: str, *, as_json: bool) -> int:
    """Follow a workload that another process drives; return the exit code."""

    async def work(connection: ServiceConnection) -> int:
        found = await find_driver(connection, text)
        title = f"{found.description or found.id} on {counted(len(spec_of(found).agents), 'agent')}"
        with workload_screen(title, as_json=as_json) as display:
            async for progress in _lives(connection, found):
                await display.show(progress)
        ended = await find_workload(connection, found.id)
        if as_json:
            print_struct(ended)
        else:
            print_sheets(sheets_of(ended, await connection.now()))
        return exit_code(ended.job, ended.result)

    return run_connected(store, work)


async def _lives(connection: ServiceConnection, found: JobView) -> AsyncIterator[WorkloadProgress]:
    """Yield every second of the log with the agents, until the job has ended.

    Without a server, this process looks after the lease of the controller.
    """
    chunks, loop, swept_at = connection.new_chunks(found.id), asyncio.get_running_loop(), float("-inf")
    while True:
        if loop.time() - swept_at >= connection.settings.durations.sweep_every_s:
            swept_at = loop.time()
            await connection.recover()
        view = await connection.services.jobs.get(found.id)
        members = await find_agents(connection, found.id)
        async for chunk in chunks():
            for live in progress_in(chunk):
                yield _with_members(live, members)
        if has_ended(view):
            return
        await asyncio.sleep(POLL_S)


def _with_members(live: WorkloadProgress, members: tuple[WorkloadView, ...]) -> WorkloadProgress:
    known = tuple(
        AgentProgress(agent=each.agent, state=(each.final or each.state).lower(), operations=each.operations)
        for each in members
    )
    return msgspec.structs.replace(live, members=known)


def workload_screen(title: str, *, as_json: bool) -> AbstractContextManager[Screen[[WorkloadProgress]]]:
    """Return the screen of a workload; JSON has only the result."""

    def live() -> AbstractContextManager[Screen[[WorkloadProgress]]]:
        from interlock.cli.live import LiveWorkload  # a pipe needs no rich

        return LiveWorkload(title)

    return screen(as_json=as_json, structs=lambda _: (), rows=_rows, live=live)


def _rows(progress: WorkloadProgress) -> Iterator[Sequence[str]]:
    """Yield a line for a pipe.

    It has the seconds, op/s, p50 and p99 in ms, errors, running agents, the operations that wait to begin,
    and the silent agents (`-`: none).
    """
    found = progress.latencies
    yield (
        "second", f"{progress.elapsed_s:.1f}", f"{progress.rate:.0f}", _ms(found.p50_ms), _ms(found.p99_ms),
        f"{progress.errors}", f"{progress.running}/{progress.agents}", f"{progress.backlog}",
        ",".join(progress.silent) or "-",
    )  # fmt: skip


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3f}"
