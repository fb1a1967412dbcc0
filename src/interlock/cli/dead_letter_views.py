"""Dead letters on the command line: how they are found, their columns, and what can be done with them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from interlock.cli import job_views
from interlock.cli.connection import actor
from interlock.cli.nouns import (
    Action,
    ListPage,
    Noun,
    filter_among,
    has_filter,
    list_records,
    part_of,
    too_many,
)
from interlock.cli.output import Sheet, ago, full_time, iso
from interlock.errors import InvalidArguments
from interlock.remote.interfaces import Services
from interlock.remote.reach import Reach
from interlock.wire.filter_language import LOOKS
from interlock.wire.filters import MAX_SCANNED, Filter, job_id_of, read_filter
from interlock.wire.jobs import DeadLetterView
from interlock.worker.codec import decoding_error

STDIN = "-"


def read_input(text: str | None, words: Sequence[str]) -> msgspec.Raw | None:
    """Return the input that replaces that of a job; None when it stays as it is."""
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
    reach: Reach, words: Sequence[str], _: Action[DeadLetterView] | None = None
) -> list[DeadLetterView]:
    """Return the dead letters that ids or a filter name."""
    wanted = filter_among(words, job_id_of, read_filter)
    if wanted is None:
        ids = [await job_views.whole_id(reach, word) for word in words]
        return [await reach.here.dead_letters.get(job_id) for job_id in dict.fromkeys(ids)]
    page = await _search(reach, wanted, MAX_SCANNED, "")
    if page.cursor:
        raise too_many("dead letter", wanted, MAX_SCANNED, keys="since:, until:, queue: or task:")
    return list(page.views)


async def _search(reach: Reach, wanted: Filter, limit: int, cursor: str) -> ListPage[DeadLetterView]:
    """Look through so many pages: those that were dealt with lie among the others."""
    found: list[DeadLetterView] = []
    for _ in range(LOOKS):
        some, cursor = await reach.here.dead_letters.find(wanted, limit=limit - len(found), cursor=cursor)
        found += some
        if not cursor or len(found) >= limit:
            break
    return ListPage(found, cursor, stopped_early=bool(cursor) and len(found) < limit)


def list_letters(store: str | None, words: Sequence[str], *, limit: int, cursor: str, as_json: bool) -> None:
    """Print the dead letters that match."""
    wanted = read_filter(" ".join(words))

    async def search(reach: Reach) -> ListPage[DeadLetterView]:
        return await _search(reach, wanted, limit, cursor)

    list_records(NOUN, store, search, _answer, as_json=as_json, none="There is no dead letter.")


def _answer(page: ListPage[DeadLetterView]) -> dict[str, object]:
    return {"letters": page.views, "cursor": page.cursor, "stopped_early": page.stopped_early}


def list_sheet(views: Iterable[DeadLetterView], now: datetime, *, terminal: bool) -> Sheet:
    """Return one row for each dead letter."""
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
    columns = ("id", "task", "queue", "failed", "says")
    return Sheet("dead letter", "", columns, rows, one_line=True, spare=("queue",))


def sheets(view: DeadLetterView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Return everything about one dead letter."""
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


def retry(
    *, reason: str = "", request_id: str | None = None, given: msgspec.Raw | None = None
) -> Action[DeadLetterView]:
    """Submit dead letters again; the new id alone is printed, so that it can be used."""

    async def act(place: Services, job_id: str) -> DeadLetterView:
        key = part_of(request_id, job_id)
        await place.dead_letters.retry(job_id, input=given, reason=reason, actor=actor(), request_id=key)
        return await place.dead_letters.get(job_id)

    return Action(verb="retry", act=act, line=lambda view: view.retried_as or "")


def discard(*, reason: str = "", request_id: str | None = None) -> Action[DeadLetterView]:
    """Leave dead letters as they are."""

    async def act(place: Services, job_id: str) -> DeadLetterView:
        key = part_of(request_id, job_id)
        return await place.dead_letters.discard(job_id, reason=reason, actor=actor(), request_id=key)

    return Action(verb="discard", act=act, line=lambda view: f"{view.id}\t{view.state}")


NOUN: Noun[DeadLetterView] = Noun(
    name="dead letter",
    find=job_views.whole_id,
    get=lambda reach, job_id: reach.here.dead_letters.get(job_id),
    chosen=chosen,
    list_sheet=list_sheet,
    sheets=sheets,
    details=lambda view: view.job.failure.details if view.job.failure is not None else "",
    actions={"retry": retry, "discard": discard},
)
