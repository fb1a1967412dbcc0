"""Commands `interlock dead-letter …`: failed jobs without attempts left.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli.options import (
    FILTERS,
    Cursor,
    DryRun,
    Filter,
    FilterCommand,
    FilteredRecordsCommand,
    IdsOrFilter,
    Json,
    Limit,
    Place,
    Reason,
    RequestId,
    Yes,
    act_on_all,
    add_action,
    add_views,
    epilog,
    examples,
    filter_words,
)
from interlock.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    import msgspec

    from interlock.cli.output import Sheet
    from interlock.cli.verbs import Action, ListPage, Noun
    from interlock.remote.interfaces import Services
    from interlock.remote.service_connection import ServiceConnection
    from interlock.wire import filters
    from interlock.wire.jobs import DeadLetterView


app: typer.Typer = typer.Typer(
    help="List, edit, retry and discard dead letters.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nA dead letter is a job that has failed and has no attempts left. It is listed until it is\n"
        "retried or discarded. Jobs of a run are not dead letters: use `interlock run rerun`.",
        FILTERS,
    ),
)


def _noun() -> Noun[DeadLetterView]:
    from interlock.cli.nouns import job_views
    from interlock.cli.verbs import Noun

    return Noun(
        name="dead letter",
        find=job_views.whole_id,
        get=lambda connection, job_id: connection.services.dead_letters.get(job_id),
        chosen=chosen,
        list_sheet=list_sheet,
        sheets=sheets,
        details=lambda view: view.job.failure.details if view.job.failure is not None else "",
        actions={"retry": _retry, "discard": _discard},
    )


@app.callback()
def dead_letter() -> None:
    """List, edit, retry and discard dead letters."""


@app.command(
    "list",
    cls=FilteredRecordsCommand,
    epilog=epilog(
        FILTERS,
        examples(
            "dead-letter list", "dead-letter list queue:mail since:1d", "dead-letter list --json --limit 500"
        ),
    ),
)
def list_letters(
    words: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List dead letters, newest first."""
    print_letters(store, filter_words(words), limit=limit, cursor=cursor, as_json=as_json)


add_views(
    app,
    "dead-letter",
    _noun,
    "j_0a4e98fa6cab",
    show="Show a dead letter with its attempts and its handling.",
)


@app.command(
    "retry",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        examples(
            "dead-letter retry j_0a4e98fa6cab",
            'dead-letter retry j_0a4e98fa6cab --input \'{"address": "a@b.example"}\'',
            "dead-letter retry j_0a4e98fa6cab --input - < corrected.json",
            "dead-letter retry queue:mail since:1d --yes",
        ),
    ),
)
def retry(
    words: IdsOrFilter,
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON", help="New input for one job; - reads standard input."),
    ] = None,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit dead letters again as new jobs, and print their ids.

    A filter is previewed and confirmed first.
    """
    details = {
        "reason": reason,
        "request_id": request_id,
        "given": read_input(given, filter_words(words)),
    }
    act_on_all(_noun, "retry", details, store, words, yes=yes, dry_run=dry_run, as_json=as_json)


add_action(
    app,
    _noun,
    "discard",
    """Discard dead letters.

    They are no longer listed; the jobs stay FAILED. A filter is previewed and confirmed first.
    """,
    FILTERS,
    "dead-letter discard j_0a4e98fa6cab --reason 'the customer has left'",
    "dead-letter discard task:shop.send until:30d --yes",
)


STDIN = "-"


def read_input(text: str | None, words: Sequence[str]) -> msgspec.Raw | None:
    """Return the input that replaces that of a job, or None to keep it."""
    import msgspec

    from interlock.cli.verbs import has_filter
    from interlock.worker.codec import decoding_error

    if text is None:
        return None
    if len(words) != 1 or has_filter(words):
        raise InvalidArguments(
            "--input is for one dead letter.",
            todo="Name one id; retry others without --input.",
            facts={"named": len(words)},
        )
    raw = sys.stdin.buffer.read() if text == STDIN else text.encode(errors="surrogateescape")
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidArguments(
            f"The input is not JSON: {decoding_error(error)}.", todo="Write --input '{\"width\": 200}'."
        ) from None
    return msgspec.Raw(raw)


async def chosen(
    connection: ServiceConnection, words: Sequence[str], _: Action[DeadLetterView] | None = None
) -> list[DeadLetterView]:
    """Return the dead letters that ids or a filter name."""
    from interlock.cli.nouns import job_views
    from interlock.cli.verbs import filter_among, too_many
    from interlock.wire.filters import MAX_SCANNED, job_id_of, read_filter

    wanted = filter_among(words, job_id_of, read_filter)
    if wanted is None:
        ids = [await job_views.whole_id(connection, word) for word in words]
        return [await connection.services.dead_letters.get(job_id) for job_id in dict.fromkeys(ids)]
    page = await _search(connection, wanted, MAX_SCANNED, "")
    if page.cursor:
        raise too_many("dead letter", wanted, MAX_SCANNED, keys="since:, until:, queue: or task:")
    return list(page.views)


async def _search(
    connection: ServiceConnection, wanted: filters.Filter, limit: int, cursor: str
) -> ListPage[DeadLetterView]:
    """Return matching dead letters from up to `LOOKS` pages of the store.

    A page can have few matches, because letters that were retried or discarded lie among the others.
    """
    from interlock.cli.verbs import ListPage
    from interlock.wire.filter_language import LOOKS

    found: list[DeadLetterView] = []
    for _ in range(LOOKS):
        some, cursor = await connection.services.dead_letters.find(
            wanted, limit=limit - len(found), cursor=cursor
        )
        found += some
        if not cursor or len(found) >= limit:
            break
    return ListPage(found, cursor, stopped_early=bool(cursor) and len(found) < limit)


def print_letters(store: str | None, words: Sequence[str], *, limit: int, cursor: str, as_json: bool) -> None:
    """Print the dead letters that match."""
    from interlock.cli.verbs import list_records
    from interlock.wire.filters import read_filter

    wanted = read_filter(" ".join(words))

    async def search(connection: ServiceConnection) -> ListPage[DeadLetterView]:
        return await _search(connection, wanted, limit, cursor)

    list_records(_noun(), store, search, _answer, as_json=as_json, none="There is no dead letter.")


def _answer(page: ListPage[DeadLetterView]) -> dict[str, object]:
    return {"letters": page.views, "cursor": page.cursor, "stopped_early": page.stopped_early}


def list_sheet(views: Iterable[DeadLetterView], now: datetime, *, terminal: bool) -> Sheet:
    """Return one row for each dead letter."""
    from interlock.cli.nouns import job_views
    from interlock.cli.output import Sheet, ago, iso

    rows = [
        (
            view.id,
            view.job.task,
            view.job.queue,
            ago(view.job.completed_at, now) if terminal else iso(view.job.completed_at),
            job_views.job_status(view.job),
        )
        for view in views
    ]
    columns = ("id", "task", "queue", "failed", "message")
    return Sheet("dead letter", "", columns, rows, one_line=True, spare=("queue",))


def sheets(view: DeadLetterView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Return everything about one dead letter."""
    from interlock.cli.nouns import job_views
    from interlock.cli.output import Sheet, full_time

    done = [
        ("state", view.state),
        ("retried as", view.retried_as or ""),
        ("input", "changed" if view.edited else ""),
        ("by", view.by),
        ("reason", view.reason),
        ("at", full_time(view.at, now=now, terminal=terminal)),
    ]
    about = [(what, value) for what, value in done if value]
    return [
        Sheet("letter", "Dead letter", ("what", "value"), about),
        *job_views.job_sheets(view.job, now, terminal=terminal),
    ]


def _retry(
    *, reason: str = "", request_id: str | None = None, given: msgspec.Raw | None = None
) -> Action[DeadLetterView]:
    """Return the action that submits dead letters again.

    It prints only the new id, so that it can be used.
    """
    from interlock.cli.connection import actor
    from interlock.cli.verbs import Action, part_of

    async def act(place: Services, job_id: str) -> DeadLetterView:
        key = part_of(request_id, job_id)
        await place.dead_letters.retry(job_id, input=given, reason=reason, actor=actor(), request_id=key)
        return await place.dead_letters.get(job_id)

    return Action(verb="retry", act=act, line=lambda view: view.retried_as or "")


def _discard(*, reason: str = "", request_id: str | None = None) -> Action[DeadLetterView]:
    """Leave dead letters as they are."""
    from interlock.cli.connection import actor
    from interlock.cli.verbs import Action, part_of

    async def act(place: Services, job_id: str) -> DeadLetterView:
        key = part_of(request_id, job_id)
        return await place.dead_letters.discard(job_id, reason=reason, actor=actor(), request_id=key)

    return Action(verb="discard", act=act, line=lambda view: f"{view.id}\t{view.state}")
