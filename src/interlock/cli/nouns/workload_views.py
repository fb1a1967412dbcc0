"""Workloads on the command line: search, columns, results, and `workload abort`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
import typer

from interlock.cli.connection import actor, run_connected
from interlock.cli.nouns.job_views import whole_id
from interlock.cli.output import Sheet, ago, on_terminal, print_sheets, print_struct, shown
from interlock.cli.watch import CANCELED, COMPLETED, FAILED, has_ended
from interlock.errors import CannotWrite, InterlockError, UnknownJob
from interlock.lifecycles import job
from interlock.lifecycles.workload import WORKLOAD
from interlock.remote.search import find
from interlock.remote.service_connection import ServiceConnection
from interlock.store.records import Query
from interlock.systems.fleet.clocks import in_ms, took
from interlock.systems.fleet.outcome import WorkloadProgress, progress_in
from interlock.systems.fleet.spec import TASK, spec_of
from interlock.wire.filters import read_filter
from interlock.wire.jobs import JobView
from interlock.wire.workloads import AgentResult, Verdict, WorkloadResult, WorkloadView

AGENT_COLUMNS = ("agent", "outcome", "done", "errors", "p99 ms", "clock ms", "began ms")
"""Columns that fit on a terminal of 80 characters; the report has more."""


def result_sheets(result: WorkloadResult) -> list[Sheet]:
    """Return the result of all agents together, and of each."""
    return [
        Sheet("workload", "", ("what", "is"), list(_facts_of(result))),
        Sheet("agent", "", AGENT_COLUMNS, [_row(agent) for agent in result.agents]),
        Sheet("error", "Errors", ("agent", "error"), list(_errors(result))),
    ]


def last_second_sheet(live: WorkloadProgress) -> Sheet:
    """Return the partial last second of a workload without a result."""
    found = live.latencies
    slow = f"p50 {took(found.p50_ms)}, p99 {took(found.p99_ms)}, max {took(found.max_ms)}"
    rows = [
        ("outcome", str(Verdict.PARTIAL)),
        ("why", "No result was saved, because its controller was lost: this is the last second in its log."),
        ("until", f"{live.elapsed_s:.1f} s of {live.duration_s:g} s"),
        ("agents", f"{live.running} of {live.agents} were running"),
        ("operations", f"{live.operations:,} ({live.errors:,} failed)"),
        ("last second", f"{live.rate:,.0f} operations, {slow}"),
    ]
    return Sheet("workload", "", ("what", "is"), rows)


def _facts_of(result: WorkloadResult) -> Iterator[tuple[str, str]]:
    found = result.latencies
    yield "outcome", str(result.verdict)
    yield "why", result.sentence
    yield from (("warning", warning) for warning in result.warnings)
    yield "agents", f"{result.coverage.completed} of {result.coverage.agents}"
    yield "operations", f"{result.operations:,} ({result.rate:,.1f}/s, {result.errors:,} failed)"
    if result.dropped:
        yield "never began", f"{result.dropped:,} operations that were due"
    yield (
        "latency",
        (
            f"p50 {took(found.p50_ms)}, p90 {took(found.p90_ms)}, p99 {took(found.p99_ms)}, "
            f"p99.9 {took(found.p999_ms)}, max {took(found.max_ms)}"
        ),
    )
    for each in result.thresholds:
        yield "threshold", f"{'passed' if each.passed else 'MISSED'}: {each.sentence}"
    yield "lasted", f"{result.duration_s:.2f} s"
    if result.spread is not None:
        spread, known = result.spread.spread_ns / 1e6, result.spread.uncertainty_ns / 1e6
        yield "start", f"within {took(spread)} (± {took(known)})"


def _row(agent: AgentResult) -> tuple[str, ...]:
    found = agent.latencies
    clock = "" if agent.offset_ms is None else f"{agent.offset_ms:+.2f} ±{agent.uncertainty_ms or 0:.2f}"
    return (
        agent.agent,
        agent.status or "LOST",
        f"{agent.operations:,}",
        f"{agent.errors:,}",
        in_ms(found.p99_ms),
        clock,
        "" if agent.began_ms is None else f"{agent.began_ms:+.3f}",
    )


def _errors(result: WorkloadResult) -> Iterator[tuple[str, str]]:
    for agent in result.agents:
        for why in filter(None, (agent.error, agent.corrupt, *agent.error_samples)):
            yield agent.agent, why


PARTIAL = 1


def exit_code(view: JobView, result: WorkloadResult | None) -> int:
    """Return the exit code of a job that drove a fleet."""
    if view.state == job.COMPLETED:
        less = (Verdict.PARTIAL, Verdict.DEGRADED)
        lacks = result is not None and (result.verdict in less or bool(result.missed))
        return PARTIAL if lacks else COMPLETED
    return CANCELED if view.state == job.CANCELED else FAILED


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write every form of a result into a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise CannotWrite(
            f"{folder} cannot be written to: {error.strerror}.",
            todo="Name another folder with --out.",
            facts={"path": str(folder)},
        ) from None


FILES = ("result.json", "seconds.csv", "latencies.hlog", "report.html")
COLUMNS = ("id", "state", "name", "agents", "submitted", "message")
MEMBER_COLUMNS = ("agent", "state", "outcome", "operations", "error")


class WorkloadDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with its agents and its result."""

    job: JobView
    agents: tuple[WorkloadView, ...] = ()
    result: WorkloadResult | None = None
    driven: bool = True
    """Whether a controller holds a live lease of the job; without a server its loss is not noticed."""
    heard: WorkloadProgress | None = None
    """The last second in its log, when it has ended without saving a result."""


def show_list(store: str | None, limit: int, *, as_json: bool) -> None:
    """Print the newest workloads."""

    async def work(connection: ServiceConnection) -> tuple[list[JobView], datetime]:
        wanted = read_filter(f"task:{TASK}")
        return (await find(connection.services.jobs, wanted, limit=limit)).views, await connection.now()

    views, now = run_connected(store, work)
    if as_json:
        print_struct({"workloads": views})
        return
    terminal = on_terminal()
    rows = [
        (view.id, view.state, view.description, str(len(spec_of(view).agents)),
         shown(view.created_at, now, terminal=terminal), _status_text(view, now))
        for view in views
    ]  # fmt: skip
    print_sheets([Sheet("workload", "", COLUMNS, rows, one_line=True, spare=("agents", "submitted"))])
    if not views:
        typer.echo("There is no workload.", err=True)


def show(store: str | None, text: str, out: Path | None, *, as_json: bool) -> None:
    """Print the result of a workload, or its progress."""

    async def work(connection: ServiceConnection) -> tuple[WorkloadDetails, dict[str, bytes], datetime]:
        found = await find_workload(connection, text)
        files = await _files(connection, found.job.id) if out is not None else {}
        return found, files, await connection.now()

    found, files, now = run_connected(store, work)
    if out is not None:
        write_files(out, files)
    if as_json:
        print_struct(found)
        return
    about = [(found.job.id, found.job.state, found.job.description, _status_text(found.job, now))]
    print_sheets([Sheet("job", "", ("id", "state", "name", "message"), about), *sheets_of(found, now)])


def abort(store: str | None, text: str, reason: str, *, as_json: bool) -> None:
    """Cancel the job that drives it."""

    async def work(connection: ServiceConnection) -> JobView:
        found = await find_driver(connection, text)
        return await connection.services.jobs.cancel(found.id, reason=reason, actor=actor())

    view = run_connected(store, work)
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.id}\t{view.state}")


async def find_driver(connection: ServiceConnection, text: str) -> JobView:
    """Return the job that drives a workload."""
    view = await connection.services.jobs.get(await whole_id(connection, text))
    if view.task == TASK:
        return view
    raise UnknownJob(
        f"{view.id} is a job of the task {view.task}, not a workload.",
        todo="See `interlock workload list`.",
        facts={"job_id": view.id, "task": view.task},
    )


async def find_workload(connection: ServiceConnection, text: str) -> WorkloadDetails:
    """Return a workload with its agents and its result."""
    view = await find_driver(connection, text)
    agents, result = await find_agents(connection, view.id), await _result(connection, view)
    last_second = await _last_second(connection, view) if result is None else None
    driven = _undriven_since(view, await connection.now()) is None
    return WorkloadDetails(job=view, agents=agents, result=result, driven=driven, heard=last_second)


async def find_agents(connection: ServiceConnection, job_id: str) -> tuple[WorkloadView, ...]:
    """Return the agents of a workload, by name."""
    query = Query(kind=WORKLOAD.name, parent=job_id, limit=1_000)
    views, _ = await connection.services.workloads.find(query)
    return tuple(sorted(views, key=lambda each: each.agent))


async def _result(connection: ServiceConnection, view: JobView) -> WorkloadResult | None:
    """Return the result from the files, or else from the job.

    The files exist also after a failure.
    """
    if not has_ended(view):
        return None
    with suppress(InterlockError):
        return msgspec.json.decode(await _file(connection, view.id, "result.json"), type=WorkloadResult)
    if isinstance(view.result, msgspec.Raw):
        return msgspec.json.decode(view.result, type=WorkloadResult)
    return None


async def _last_second(connection: ServiceConnection, view: JobView) -> WorkloadProgress | None:
    """Return the last second in the log of a killed controller's workload."""
    if not has_ended(view):
        return None
    last: WorkloadProgress | None = None
    async for chunk in connection.new_chunks(view.id)():
        last = next(reversed(list(progress_in(chunk))), last)
    return last


def sheets_of(found: WorkloadDetails, now: datetime) -> list[Sheet]:
    """Return the tables of a workload: its result, or its agents."""
    if found.result is not None:
        return result_sheets(found.result)
    last_second = [last_second_sheet(found.heard)] if found.heard else []
    return [*last_second, _members(found.agents, now)]


async def _files(connection: ServiceConnection, job_id: str) -> dict[str, bytes]:
    return {name: await _file(connection, job_id, name) for name in FILES}


async def _file(connection: ServiceConnection, job_id: str, name: str) -> bytes:
    async with connection.services.artifacts.opened(job_id, name) as (_, pieces):
        return b"".join([piece async for piece in pieces])


def _members(agents: tuple[WorkloadView, ...], now: datetime) -> Sheet:
    rows = [
        (each.agent, each.state, each.final, f"{each.operations:,}", each.error or _silence(each, now))
        for each in agents
    ]
    return Sheet("agent", "", MEMBER_COLUMNS, rows)


def _silence(view: WorkloadView, now: datetime) -> str:
    """Return since when an agent has been silent beyond its deadline, or ""."""
    if view.deadline_at is None or view.deadline_at > now:
        return ""
    return f"no report since {view.updated_at:%Y-%m-%d %H:%M:%S} UTC"


def _undriven_since(view: JobView, now: datetime) -> datetime | None:
    """Return when the controller's lease expired, if that is not swept yet."""
    lease = view.attempts[-1].lease if view.attempts and not has_ended(view) else None
    return lease.expires_at if lease is not None and lease.expires_at <= now else None


def _status_text(view: JobView, now: datetime) -> str:
    if view.failure is not None:
        return view.failure.error
    if (since := _undriven_since(view, now)) is not None:
        end = f"interlock workload watch {view.id}"
        return f"no controller drives it: its lease expired {ago(since, now)}. A server ends it, or: {end}"
    progress = next((one.progress for one in reversed(view.attempts) if one.progress), None)
    return view.stop_reason or (progress.message if progress else "")
