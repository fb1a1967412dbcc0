"""The verbs that all nouns share: list, show, history, explain, and actions on one record or on many.

A `Noun` says how its records are found and which columns they have; the verbs are written once. An action on
ids is carried out at once. An action on a filter is previewed and confirmed first, unless `--yes` is given.

Why: decision 0390.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import typer

from interlock.cli import output, project, sheets
from interlock.cli.connection import connected, run_connected
from interlock.cli.errors import INVALID_USAGE, print_error
from interlock.cli.journal import JournalStep, history_sheet, steps_in
from interlock.cli.output import Sheet, print_line, print_struct, shown
from interlock.errors import InterlockError, InvalidArguments
from interlock.remote.interfaces import Services
from interlock.remote.service_connection import ServiceConnection
from interlock.store.records import Entry
from interlock.systems.orchestrator.ids import drawn_at
from interlock.text import counted, harmless, harmless_lines
from interlock.wire.filter_language import ID_DIGITS, id_of
from interlock.wire.filters import MAX_SCANNED
from interlock.wire.jobs import Explanation
from interlock.wire.runs import RunExplanation

V = TypeVar("V")
V_contra = TypeVar("V_contra", contravariant=True)
Explained: TypeAlias = Explanation | RunExplanation
Ids: TypeAlias = Callable[[ServiceConnection, datetime, datetime, str], Awaitable[tuple[list[str], str]]]
"""A page of ids of records that were created between two times, and the cursor of the next page."""

CONCURRENT = 100
PREVIEW = 10
MAX_CANDIDATES = 10
# An id contains the time at which it was drawn. The record is stored a little later, and in a batch the ids
# run ahead of the time.
_CLOCK_TOLERANCE = timedelta(minutes=5)


class ListSheet(Protocol[V_contra]):
    """The table of several records."""

    def __call__(self, views: Sequence[V_contra], now: datetime, /, *, terminal: bool) -> Sheet:
        """Return one row for each record."""
        ...


class RecordSheets(Protocol[V_contra]):
    """The tables of one record."""

    def __call__(self, view: V_contra, now: datetime, /, *, terminal: bool) -> list[Sheet]:
        """Return all tables about the record."""
        ...


@dataclass(frozen=True, slots=True)
class ListPage(Generic[V]):
    """Records that match, newest first."""

    views: Sequence[V]
    cursor: str = ""
    """Start of the next page; empty at the end."""
    stopped_early: bool = False
    """The search limit was reached: records after the cursor have not been examined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Generic[V]):
    """A change of one record, which can be applied to many."""

    verb: str
    act: Callable[[Services, str], Awaitable[V]]
    line: Callable[[V], str]
    """Return the line to print about a record after the action."""
    states: Sequence[str] = ()
    """A filter matches only records in these states."""
    concurrent: int = CONCURRENT


async def _as_typed(_: ServiceConnection, text: str) -> str:
    return text


def _no_lines(*_: object) -> Iterable[str]:
    return ()


def _no_details(_: Any) -> str:
    return ""


def _no_sheets(*_: object, **__: bool) -> list[Sheet]:
    return []


def _own_id(view: Any) -> str:
    return str(view.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun(Generic[V]):
    """A kind of record on the command line."""

    name: str
    id_of: Callable[[V], str] = _own_id
    find: Callable[[ServiceConnection, str], Awaitable[str]] = _as_typed
    """Return the id that the user means; raise when there is not exactly one."""
    get: Callable[[ServiceConnection, str], Awaitable[V]] | None = None
    chosen: Callable[[ServiceConnection, Sequence[str], Action[V]], Awaitable[Sequence[V]]] | None = None
    """Return the records that ids or a filter name."""
    list_sheet: ListSheet[V]
    lines: Callable[[V, datetime], Iterable[str]] = _no_lines
    """Sentences about one record, above its tables and after a change."""
    sheets: RecordSheets[V] = _no_sheets
    details: Callable[[V], str] = _no_details
    """Text of several lines that a terminal shows below the tables."""
    history: Callable[[ServiceConnection, str], Awaitable[Sequence[Entry]]] | None = None
    explain: Callable[[ServiceConnection, str], Awaitable[Explained]] | None = None
    actions: Mapping[str, Callable[..., Action[V]]] = field(default_factory=dict)


def _only_views(page: ListPage[V]) -> object:
    return page.views


def list_records(
    noun: Noun[V],
    store: str | None,
    search: Callable[[ServiceConnection], Awaitable[ListPage[V]]],
    answer: Callable[[ListPage[V]], object] = _only_views,
    *,
    as_json: bool,
    more: str = "",
    none: str = "",
) -> None:
    """Print a page of records, or `answer` as JSON.

    If records are left out, stderr reports it. `more` is another way to see the rest, `none` the text for an
    empty page.
    """

    async def work(connection: ServiceConnection) -> tuple[ListPage[V], datetime]:
        return await search(connection), await connection.now()

    page, now = run_connected(store, work)
    if as_json:
        print_struct(answer(page))
        return
    output.print_sheets([noun.list_sheet(page.views, now, terminal=output.on_terminal())])
    if page.stopped_early:
        typer.echo(
            f"Stopped before all {noun.name}s were searched. Narrow the filter with since: or state:, or "
            f"continue with --cursor {page.cursor}",
            err=True,
        )
    elif page.cursor:
        output.print_more(page.cursor, more)
    elif not page.views:
        typer.echo(none or f"No {noun.name} matches.", err=True)


def page_answer(noun: str, page: ListPage[V]) -> dict[str, object]:
    """Return a page for a program."""
    return {f"{noun}s": page.views, "cursor": page.cursor, "stopped_early": page.stopped_early}


def show(noun: Noun[V], store: str | None, text: str, *, as_json: bool) -> None:
    """Print one record."""
    assert noun.get is not None
    get = noun.get

    async def work(connection: ServiceConnection) -> tuple[V, datetime]:
        return await get(connection, await noun.find(connection, text)), await connection.now()

    view, now = run_connected(store, work)
    if as_json:
        print_struct(view)
        return
    output.print_lines(noun.lines(view, now))
    terminal = output.on_terminal()
    details = harmless_lines(noun.details(view)) if terminal else ""
    output.print_sheets(noun.sheets(view, now, terminal=terminal), below=details and f"{details}\n")


def history(noun: Noun[V], store: str | None, text: str, *, as_json: bool) -> None:
    """Print every step of a record."""
    assert noun.history is not None
    read = noun.history

    async def work(connection: ServiceConnection) -> list[JournalStep]:
        return list(steps_in(await read(connection, await noun.find(connection, text))))

    steps = run_connected(store, work)
    if as_json:
        print_struct(steps)
    else:
        output.print_sheets([history_sheet(steps, terminal=output.on_terminal())])


def explain(noun: Noun[V], store: str | None, text: str, *, as_json: bool) -> None:
    """Print the reason a record waits."""
    assert noun.explain is not None
    explained = noun.explain

    async def work(connection: ServiceConnection) -> tuple[str, Explained, datetime]:
        record_id = await noun.find(connection, text)
        return record_id, await explained(connection, record_id), await connection.now()

    record_id, found, now = run_connected(store, work)
    if as_json:
        print_struct(found)
        return
    typer.echo(harmless(f"{record_id} is {found.state}. {found.sentence}"))
    output.print_sheets([_explanation_sheet(found, now, terminal=output.on_terminal())])
    if isinstance(found, RunExplanation) and found.more:
        typer.echo(f"… and {found.more} more jobs that have not ended", err=True)
    if found.todo:
        typer.echo(f"→ {found.todo}")


def _explanation_sheet(found: Explained, now: datetime, *, terminal: bool) -> Sheet:
    rows = [
        (line.entity, line.state, line.sentence, line.turn, shown(line.deadline_at, now, terminal=terminal))
        for line in found.lines
    ]
    if isinstance(found, RunExplanation):
        rows += [("finding", "", finding, "", "") for finding in found.findings]
    return Sheet("waiting", "", sheets.EXPLANATION, rows)


def act(
    store: str | None,
    change: Callable[[ServiceConnection], Awaitable[V]],
    lines: Callable[[V, datetime], Iterable[str]],
    *,
    as_json: bool,
) -> V:
    """Change one record, print it as it is then, and return it."""

    async def work(connection: ServiceConnection) -> tuple[V, datetime]:
        return await change(connection), await connection.now()

    view, now = run_connected(store, work)
    if as_json:
        print_struct(view)
    else:
        output.print_lines(lines(view, now))
    return view


def act_on_all(
    noun: Noun[V],
    action: Action[V],
    store: str | None,
    words: Sequence[str],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Apply an action to all records that are named; return the exit code."""
    here = project.load(store)
    views, now = asyncio.run(_chosen(noun, action, here, words))
    if not views:
        typer.echo(f"No {noun.name} matches.", err=True)
        return 0
    if dry_run or (has_filter(words) and not yes):
        _preview(noun, views, now, as_json=as_json)
        # No connection is held open while the user decides.
        if dry_run or not _is_confirmed(noun, action, len(views)):
            return 0
    results = asyncio.run(_applied(action, here, [noun.id_of(view) for view in views]))
    return _print_results(noun, action, results, as_json=as_json)


async def _chosen(
    noun: Noun[V], action: Action[V], here: project.Project, words: Sequence[str]
) -> tuple[Sequence[V], datetime]:
    assert noun.chosen is not None
    async with connected(here) as connection:
        return await noun.chosen(connection, words, action), await connection.now()


async def _applied(
    action: Action[V], here: project.Project, ids: Sequence[str]
) -> list[tuple[str, V | InterlockError]]:
    async def one(place: Services, record_id: str) -> tuple[str, V | InterlockError]:
        try:
            return record_id, await action.act(place, record_id)
        except InterlockError as error:
            return record_id, error

    results: list[tuple[str, V | InterlockError]] = []
    async with connected(here) as connection:
        for start in range(0, len(ids), action.concurrent):
            batch = ids[start : start + action.concurrent]
            results += await asyncio.gather(*(one(connection.services, record_id) for record_id in batch))
        await connection.recover()  # without a server, no other process may pass on the consequences
    return results


def _preview(noun: Noun[V], views: Sequence[V], now: datetime, *, as_json: bool) -> None:
    if as_json:
        for view in views:
            print_line(view)
        return
    terminal = output.on_terminal()
    first = views[:PREVIEW] if terminal else views
    output.print_sheets([noun.list_sheet(first, now, terminal=terminal)])
    if len(first) < len(views):
        typer.echo(f"… and {len(views) - len(first)} more")


def _is_confirmed(noun: Noun[V], action: Action[V], number: int) -> bool:
    what = f"{action.verb} {counted(number, noun.name)}"
    if not sys.stdin.isatty():
        raise InvalidArguments(
            f"Refusing to {what} without confirmation: stdin is not a terminal. Nothing was done.",
            todo="Pass --yes to do it, or --dry-run to preview.",
            facts={f"{noun.name}s": number},
        )
    return typer.confirm(f"{what[:1].upper()}{what[1:]}?", err=True)


def _print_results(
    noun: Noun[V], action: Action[V], results: Sequence[tuple[str, V | InterlockError]], *, as_json: bool
) -> int:
    """Print a line for each record, or the error of a single one."""
    if len(results) == 1 and isinstance(results[0][1], InterlockError):
        raise results[0][1]
    code = 0
    for record_id, result in results:
        if isinstance(result, InterlockError):
            code = INVALID_USAGE
            if as_json:
                print_line({"id": record_id, "error": result.as_dict()})
            else:
                print_error(result, as_json=False)
        elif as_json:
            print_line({"id": record_id, noun.name: result})
        else:
            typer.echo(action.line(result))
    return code


def part_of(request_id: str | None, record_id: str) -> str | None:
    """Return the idempotency key of one record.

    Repeating the whole then repeats every part.
    """
    return None if request_id is None else f"{request_id}.{record_id}"


def has_filter(words: Sequence[str]) -> bool:
    """Return whether words are a filter, and not ids."""
    return any(":" in word for word in words)


def filter_among(
    words: Sequence[str], id_of: Callable[[str], str | None], read: Callable[[str], V]
) -> V | None:
    """Return the filter that the words form together; None if they are ids."""
    if not has_filter(words):
        return None
    text = " ".join(words)
    ids = [word for word in words if ":" not in word and id_of(word)]
    if ids:
        raise InvalidArguments(
            f"{ids[0]} is an id, and the rest of {text!r} is a filter.",
            todo=f"Give either, or write id:{','.join(ids)} in the filter.",
            facts={"filter": text},
        )
    return read(text)


def too_many(noun: str, wanted: object, limit: int, *, keys: str) -> InvalidArguments:
    """Return the error of a filter that matches or searches too many."""
    return InvalidArguments(
        f"The filter {str(wanted)!r} matches more than {limit} {noun}s, or has to search more.",
        todo=f"Narrow it down with {keys}.",
        facts={"filter": str(wanted), "limit": limit},
    )


async def whole_id(
    connection: ServiceConnection, text: str, *, noun: str, prefix: str, error: type[InterlockError], ids: Ids
) -> str:
    """Return the whole id from itself or a unique prefix."""
    found = id_of(text, prefix)
    if found is None:
        raise error(
            f"{text!r} is not the id of a {noun}, which is {prefix}_ and {ID_DIGITS} hex digits.",
            todo=f"Take ids from `interlock {noun} list`; the start is enough.",
            facts={f"{noun}_id": text},
        )
    if len(found) == len(prefix) + 1 + ID_DIGITS:
        return found
    candidates, more = await _candidates(connection, found, prefix, ids)
    if len(candidates) == 1 and not more:
        return candidates[0]
    known = candidates[:MAX_CANDIDATES]
    facts: dict[str, object] = {f"{noun}_id": found, "candidates": known}
    if not candidates and not more:
        raise error(
            f"There is no {noun} whose id starts with {found}.",
            todo=f"Search with `interlock {noun} list`; {noun}s that have ended are pruned after a while.",
            facts=facts,
        )
    or_more = " or more" if more or len(candidates) > len(known) else ""
    number = f"{len(known)}{or_more}" if known else "Too many"
    raise error(f"{number} {noun}s match {found}.", allowed=known, todo="Give more of the id.", facts=facts)


async def _candidates(
    connection: ServiceConnection, beginning: str, prefix: str, ids: Ids
) -> tuple[list[str], bool]:
    """Return the ids that start like this, and whether there may be others."""
    digits = beginning.removeprefix(f"{prefix}_")
    first, last = (drawn_at(int(digits.ljust(ID_DIGITS, fill), 16)) for fill in "0f")
    candidates: list[str] = []
    cursor, searched = "", 0
    while True:
        page, cursor = await ids(connection, first - _CLOCK_TOLERANCE, last + _CLOCK_TOLERANCE, cursor)
        candidates += [record_id for record_id in page if record_id.startswith(beginning)]
        searched += len(page)
        if not cursor or searched >= MAX_SCANNED or len(candidates) > MAX_CANDIDATES:
            return candidates, bool(cursor)
