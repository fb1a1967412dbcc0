"""The checks of `interlock doctor`. Each one reports a sentence and, if there is a fault, the next step.

A check that fails does not keep the others from running, unless there is no connection.

Why: decisions 0427 and 0554.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import typer

from interlock.cli import project
from interlock.cli.connection import Embedded, connected
from interlock.cli.errors import colour_wanted
from interlock.cli.output import lasting, on_terminal, print_row, print_struct
from interlock.cli.sheets import COLOURS
from interlock.errors import InterlockError, NotAllowed, StoreMisconfigured, StoreUnavailable
from interlock.lifecycles.worker import WORKER
from interlock.remote import is_server
from interlock.remote.service_connection import ServiceConnection
from interlock.remote.services import RemoteOrchestrator
from interlock.store.contract import StoreStatus
from interlock.store.permissions import Permission, ReportsPermissions, Severity
from interlock.store.records import Query
from interlock.store.sqlite.database import path_of
from interlock.store.urls import store_for
from interlock.systems.blobs import folder_for
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.supervisor.workers import LIVING
from interlock.text import counted, harmless
from interlock.wire.workers import WorkerView

OK, WARNING, ERROR = "ok", "warning", "error"
MAX_OFFSET_S = 2.0
"""Difference between two clocks above which it is reported."""
MAX_ROUND_TRIP_S = 0.05
"""Time of one request above which it is reported: a job takes several."""
ROUND_TRIPS = 5
LOW_DISK = 0.05
LEAST_FREE_BYTES = 500_000_000
MANY_CONNECTIONS = 0.8
LONG_TRANSACTION_S = 900.0
"""Age of a transaction above which it is reported."""
WORKERS = 500

_TONES = {OK: COLOURS["good"], WARNING: COLOURS["stopped"], ERROR: COLOURS["bad"]}
_WIDEST = 13
_STATUSES = {Severity.NOTHING: OK, Severity.LATER: WARNING, Severity.NOW: ERROR}


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    status: str
    """`ok`, `warning` or `error`."""
    sentence: str
    todo: str = ""
    """Remedy, as a command if there is one."""


def diagnose(store: str | None) -> list[Diagnosis]:
    """Run all checks; without a project or a connection, those that need none."""
    versions = Diagnosis(
        check="version",
        status=OK,
        sentence=f"Interlock {version('interlock')} on Python {platform.python_version()}.",
    )
    try:
        here = project.load(store)
    except InterlockError as error:
        return [versions, _failed("project", error)]
    if (missing := _missing(here.url)) is not None:
        return [versions, _project(here), missing]
    return [versions, _project(here), *asyncio.run(_all(here))]


def report(found: Sequence[Diagnosis], *, as_json: bool) -> None:
    """Print the results: a line for each check, and a line with the next step."""
    if as_json:
        print_struct({"ok": all(each.status != ERROR for each in found), "checks": found})
        return
    if not on_terminal():
        for each in found:
            print_row((each.check, each.status, each.sentence, each.todo))
        return
    for each in found:
        status = typer.style(f"{each.status:<9}", fg=_TONES[each.status])
        typer.echo(
            f"{status}{each.check:<{_WIDEST}}{harmless(each.sentence)}",
            color=colour_wanted(),
        )
        if each.todo:
            typer.echo(f"{'':<{9 + _WIDEST}}→ {harmless(each.todo)}")


def _failed(check: str, error: InterlockError) -> Diagnosis:
    return Diagnosis(check=check, status=ERROR, sentence=error.sentence, todo=error.todo)


def _project(here: project.Project) -> Diagnosis:
    if here.file is None:
        sentence = f"There is no {project.FILE} in this folder or above it; the defaults apply."
    else:
        sentence = f"{here.file} is valid."
    return Diagnosis(check="project", status=OK, sentence=sentence)


def _missing(url: str) -> Diagnosis | None:
    """Report a database file that does not exist yet, instead of creating it."""
    if (
        not url.startswith("sqlite:")
        or (path := path_of(url)).exists()
        or not path.absolute().parent.is_dir()
    ):
        return None
    return Diagnosis(
        check="store",
        status=OK,
        sentence=f"{path} does not exist yet: the first command that needs it creates it.",
        todo="interlock db migrate",
    )


async def _all(here: project.Project) -> list[Diagnosis]:
    """Connect and run the checks that need a connection."""
    subject = "server" if is_server(here.url) else "store"
    found: list[Diagnosis] = []
    try:
        async with connected(here) as connection:
            for name, check in _checks(connection, here, subject):
                found += await _guarded(name, check)
    except InterlockError as error:
        failed = _failed(subject, error)
        if isinstance(error, StoreUnavailable) and (command := _test_of(here.url)):
            failed = msgspec.structs.replace(failed, todo=f"{failed.todo} To test it: {command}".lstrip())
        found.append(failed)
        if subject == "store" and isinstance(error, StoreMisconfigured):  # permissions may be the reason
            found += await _guarded("permissions", lambda: _store_permissions(here))
    return found


def _test_of(url: str) -> str:
    """Return the command that tests a database server without Interlock."""
    parsed = urlsplit(url)
    place = parsed.netloc.rpartition("@")[2]
    match parsed.scheme:
        case "postgresql" | "postgres":
            options = [each for each in parse_qsl(parsed.query) if each[0] in ("host", "port")]
            query = f"?{urlencode(options)}" if options else ""
            return shlex.join(["pg_isready", "-d", f"postgresql://{place}{query}"])
        case "redis" | "rediss":
            return shlex.join(["redis-cli", "-u", f"{parsed.scheme}://{place}", "ping"])
        case "unix":
            return shlex.join(["redis-cli", "-s", parsed.path, "ping"])
    return ""


def _checks(
    connection: ServiceConnection, here: project.Project, subject: str
) -> Iterator[tuple[str, Callable[[], AsyncIterator[Diagnosis]]]]:
    if isinstance(connection, RemoteOrchestrator):
        server = connection.services.server
        yield subject, lambda: _server(connection, here.url)
        yield "permissions", lambda: _permissions(connection)
        yield "clock", lambda: _clock(server.now, subject)
    elif isinstance(connection, Embedded):
        store = connection.services.store
        yield subject, lambda: _store(connection)
        yield "permissions", lambda: _store_permissions(here)
        yield "disk", lambda: _disk(here.url)
        yield "clock", lambda: _clock(store.now, subject)
    yield "workers", lambda: _workers(connection)
    yield "work", lambda: _work(connection)


async def _guarded(name: str, check: Callable[[], AsyncIterator[Diagnosis]]) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    try:
        found += [each async for each in check()]
    except NotAllowed as error:
        found.append(
            Diagnosis(check=name, status=WARNING, sentence=f"Not checked: {error.sentence}", todo=error.todo)
        )
    except InterlockError as error:
        found.append(_failed(name, error))
    return found


async def _store(connection: Embedded) -> AsyncIterator[Diagnosis]:
    status = await connection.services.store.status()
    size = "" if status.size_bytes is None else f", {status.size_bytes:,} bytes"
    yield Diagnosis(
        check="store",
        status=OK,
        sentence=f"{status.url}: {status.server}, schema version {status.schema_version}{size}.",
    )
    able = connection.services.store.capabilities
    if not able.durable:
        yield Diagnosis(
            check="durability",
            status=WARNING,
            sentence=f"A crash may lose acknowledged jobs: {able.durability}.",
            todo="See docs/guides/choosing-a-store.md for the settings.",
        )
    for each in (*_connections(status), *_vacuum(status)):
        yield each


def _connections(status: StoreStatus) -> Iterator[Diagnosis]:
    known = status.connections
    if known is None:
        return
    used = f"{known.all} of {counted(known.most, 'connection')} of the database server are in use"
    if known.all < MANY_CONNECTIONS * known.most:
        yield Diagnosis(check="connections", status=OK, sentence=f"{used}, {known.ours} by Interlock.")
        return
    yield Diagnosis(
        check="connections",
        status=WARNING,
        sentence=f"{used}, {known.ours} by Interlock. A worker needs {known.at_rest} to {known.busy}.",
        todo="Raise max_connections, close other clients, or connect workers through a server.",
    )


def _vacuum(status: StoreStatus) -> Iterator[Diagnosis]:
    known = status.vacuum
    if known is None:
        return
    if not known.automatic:
        yield Diagnosis(
            check="vacuum",
            status=WARNING,
            sentence="Autovacuum is off: claims become slower with every job that has ended.",
            todo="Set autovacuum and track_counts to on, and reload PostgreSQL.",
        )
    if (known.oldest_transaction_s or 0.0) > LONG_TRANSACTION_S:
        age = lasting(known.oldest_transaction_s or 0.0)
        yield Diagnosis(
            check="vacuum",
            status=WARNING,
            sentence=f"A transaction has been open for {age}: PostgreSQL reclaims nothing that was removed "
            "since, and claims become slower.",
            todo="Find it: SELECT pid, usename, state, query FROM pg_stat_activity ORDER BY xact_start "
            "LIMIT 1. Limit others with idle_in_transaction_session_timeout.",
        )


async def _server(connection: RemoteOrchestrator, url: str) -> AsyncIterator[Diagnosis]:
    try:
        theirs = (await connection.services.server.status()).version
    except NotAllowed:
        yield Diagnosis(check="server", status=OK, sentence=f"{url} is ready; only admins see its version.")
        return
    ours = version("interlock")
    if theirs == ours:
        yield Diagnosis(check="server", status=OK, sentence=f"{url} is ready, and has the same version.")
        return
    yield Diagnosis(
        check="server",
        status=WARNING,
        sentence=f"{url} is ready. It runs Interlock {theirs}, and this is {ours}.",
        todo=f"Install the same version here: pip install interlock=={theirs}",
    )


async def _permissions(connection: RemoteOrchestrator) -> AsyncIterator[Diagnosis]:
    who = await connection.services.server.principal()
    roles = ", ".join(who.roles)
    queues = f" It sees only the queues {', '.join(who.queues)}." if who.queues else ""
    named = f"The token {who.name} has" if who.signed_in else "Without a token you have"
    yield Diagnosis(check="permissions", status=OK, sentence=f"{named} the roles {roles}.{queues}")


async def _store_permissions(here: project.Project) -> AsyncIterator[Diagnosis]:
    """Report the permissions on the store and on the folder of blobs."""
    for check, permissions in (
        ("permissions", await _permissions_on_store(here)),
        ("blobs", _permissions_on_blobs(here)),
    ):
        for each in permissions:
            status = _STATUSES[each.missing]
            yield Diagnosis(check=check, status=status, sentence=each.sentence, todo=each.todo)


async def _permissions_on_store(here: project.Project) -> list[Permission]:
    """Return the permissions on a store, also if it cannot be opened."""
    store = store_for(here.url, CATALOGUE)
    try:
        return list(await store.permissions()) if isinstance(store, ReportsPermissions) else []
    finally:
        await store.close()


def _permissions_on_blobs(here: project.Project) -> Iterator[Permission]:
    """Yield whether the folder of blobs can be written or made."""
    folder = folder_for(here.url, here.settings.blobs)
    if folder is None:
        return
    place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if place.is_dir() and os.access(place, os.R_OK | os.W_OK | os.X_OK):
        made = "can be written" if place == folder else "does not exist yet, and can be made"
        yield Permission(sentence=f"The folder of artifacts and caches, {folder}, {made}.")
        return
    yield Permission(
        sentence=f"Artifacts and caches cannot be stored in {folder}: {_fault_of_folder(place)}.",
        missing=Severity.NOW,
        todo=f"Give this user the right to write to {place}, or name another folder: `directory` in [blobs].",
    )


def _fault_of_folder(place: Path) -> str:
    return f"{place} cannot be written" if place.is_dir() else f"{place} is not a folder"


async def _clock(now: Callable[[], Awaitable[datetime]], subject: str) -> AsyncIterator[Diagnosis]:
    """Compare the clocks as NTP does.

    Half of the round trip is the uncertainty.
    """
    took: list[float] = []
    offsets: list[float] = []
    for _ in range(ROUND_TRIPS):
        sent, began = datetime.now(UTC), time.monotonic()
        at = await now()
        took.append(time.monotonic() - began)
        offsets.append((sent - at).total_seconds() + took[-1] / 2)
    quickest = took.index(min(took))
    yield _offset(offsets[quickest], took[quickest] / 2, subject)
    middle = statistics.median(took)
    slow = middle > MAX_ROUND_TRIP_S
    yield Diagnosis(
        check="round trip",
        status=WARNING if slow else OK,
        sentence=f"One request to the {subject} takes {lasting(middle)}.",
        todo="Run workers closer to it, or with more --slots and --prefetch." if slow else "",
    )


def _offset(offset_s: float, bound_s: float, subject: str) -> Diagnosis:
    within = f"to within {lasting(bound_s)}"
    if abs(offset_s) <= MAX_OFFSET_S + bound_s:
        return Diagnosis(
            check="clock", status=OK, sentence=f"This machine and the {subject} have the same time, {within}."
        )
    direction = "ahead of" if offset_s > 0 else "behind"
    return Diagnosis(
        check="clock",
        status=WARNING,
        sentence=f"The clock of this machine is {lasting(abs(offset_s))} {direction} that of the {subject}, "
        f"{within}. Leases and deadlines follow the {subject}; times in local logs are off.",
        todo="Synchronise the clock: timedatectl set-ntp true",
    )


async def _disk(url: str) -> AsyncIterator[Diagnosis]:
    """Report the free space of a database that is a file."""
    if not url.startswith("sqlite:"):
        return
    path = path_of(url)
    disk = shutil.disk_usage(path.absolute().parent)
    low = disk.free < LEAST_FREE_BYTES or disk.free < LOW_DISK * disk.total
    yield Diagnosis(
        check="disk",
        status=WARNING if low else OK,
        sentence=f"{disk.free / 1e9:,.1f} GB of {disk.total / 1e9:,.1f} GB are free where {path.name} is.",
        todo="Make space, or remove old records: interlock db prune --older-than 7d" if low else "",
    )


async def _workers(connection: ServiceConnection) -> AsyncIterator[Diagnosis]:
    live, more = await connection.services.workers.find(Query(kind=WORKER.name, states=LIVING, limit=WORKERS))
    if not live:
        yield Diagnosis(
            check="workers",
            status=WARNING,
            sentence="No worker is running: jobs will wait.",
            todo="interlock worker start MODULE",
        )
        return
    number = f"{len(live)} or more workers" if more else counted(len(live), "worker")
    slots = counted(sum(each.capacity for each in live), "slot")
    yield Diagnosis(
        check="workers", status=OK, sentence=f"{number} with {slots}, {_busy(live)} of them busy."
    )
    for each in _versions(live):
        yield each


def _busy(workers: Sequence[WorkerView]) -> int:
    return sum(min(each.active, each.capacity) for each in workers)


def _versions(workers: Sequence[WorkerView]) -> Iterator[Diagnosis]:
    """Report workers of other versions of Interlock.

    A rolling upgrade is no error.
    """
    ours = version("interlock")
    others: dict[str, list[str]] = {}
    for each in workers:
        theirs = each.metadata.get("interlock", ours)
        if theirs != ours:
            others.setdefault(theirs, []).append(each.name)
    for theirs, names in sorted(others.items()):
        some = ", ".join(sorted(names)[:3]) + (" and others" if len(names) > 3 else "")
        yield Diagnosis(
            check="versions",
            status=WARNING,
            sentence=f"{counted(len(names), 'worker')} ({some}) run Interlock {theirs}, and this is {ours}.",
            todo="Finish the upgrade: install one version and restart the workers.",
        )


async def _work(connection: ServiceConnection) -> AsyncIterator[Diagnosis]:
    """Report the present problems of the overview."""
    view = await connection.services.overview.take()
    for finding in view.findings:
        remedy = finding.remedy.command if finding.remedy else ""
        yield Diagnosis(check=finding.kind, status=finding.level, sentence=finding.sentence, todo=remedy)
    numbers = view.numbers
    least = "at least " if numbers.capped else ""
    if not view.findings:
        yield Diagnosis(
            check="work",
            status=OK,
            sentence=f"No problem found: {least}{counted(numbers.pending, 'job')} pending, "
            f"{numbers.running} running.",
        )
