"""Visibility: for a token that is confined to queues, other queues do not exist.

A cursor of a store is a place in a list of all records: a number that counts them, or the id of a record
that the token may not see. A sealed cursor hides both, and is valid for one token and one list. It is
encrypted deterministically and authenticated (a synthetic IV: the keyed hash of the content is both the
check and the start of the key stream), and padded to hide its length. The key is kept with the
token in the store, so that a cursor is valid at every server.

Why: decision 0150.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from interlock.api.operation import ID
from interlock.errors import UnknownJob, UnknownToken
from interlock.server.routes import Call
from interlock.store.cursors import bad_cursor
from interlock.store.records import Record
from interlock.systems.orchestrator import body
from interlock.systems.orchestrator.views import filter_fields
from interlock.wire.filters import Filter, Selection, read_filter
from interlock.wire.jobs import After, FailureView, JobSpec, JobView

BLOCK = 96
"""Content is padded to a multiple of this; cursors of stores have up to 85 bytes."""
CHECK = 16


def sealed(key: str, where: str, cursor: str) -> str:
    """Return the sealed cursor; `where` names the list that it belongs to."""
    content = cursor.encode()
    content = content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")
    check = _check(key, where, content)
    return base64.urlsafe_b64encode(check + _xor(content, key, check)).decode().rstrip("=")


def opened(key: str, where: str, text: str) -> str | None:
    """Return the cursor in a sealed one.

    Return None if it was not sealed for this list with this key.
    """
    try:
        whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (NotBase64, ValueError):
        return None
    check, hidden = whole[:CHECK], whole[CHECK:]
    content = _xor(hidden, key, check)
    if not hidden or not hmac.compare_digest(check, _check(key, where, content)):
        return None
    return content.rstrip(b"\0").decode()


def _check(key: str, where: str, content: bytes) -> bytes:
    return hmac.digest(key.encode(), b"check\0" + where.encode() + b"\0" + content, "sha256")[:CHECK]


def _xor(content: bytes, key: str, check: bytes) -> bytes:
    stream = hashlib.shake_256(b"stream\0" + key.encode() + check).digest(len(content))
    return bytes(one ^ other for one, other in zip(content, stream, strict=True))


LOOK = 250
"""Number of jobs to examine in one query if the store cannot evaluate the filter."""
MOST = 2_500
"""Maximum number of jobs to examine for one page; then the page is returned with a cursor."""

PAGES = 400
"""Maximum number of such pages for one bulk action."""

_JOB = re.compile(r"\bj_[0-9a-f]{12}\b")


async def job_of(call: Call, job_id: str | None = None) -> JobView:
    """Return the job in the path.

    Raise `UnknownJob` if its queue is not visible.
    """
    job_id = shaped(call.path["job_id"] if job_id is None else job_id)
    (view,) = await call.parts.runtime.jobs.get_many([job_id])
    if view is None or not call.principal.sees(view.queue):
        raise unknown_job(job_id)
    return view


async def place_of_cursor(call: Call) -> str:
    """Return the cursor of a request, unsealed for a scoped token."""
    cursor: str = call.query.cursor
    key = await _key(call) if cursor else None
    if key is None:
        return cursor
    place = opened(key, _list_of(call), cursor)
    if place is None:
        raise bad_cursor(cursor)
    return place


async def cursor_of_place(call: Call, cursor: str) -> str:
    """Return the cursor for the response; sealed for a scoped token."""
    key = await _key(call) if cursor else None
    return cursor if key is None else sealed(key, _list_of(call), cursor)


async def _key(call: Call) -> str | None:
    """Return the key for cursors.

    Return None if the principal may see those of the store.
    """
    principal, tokens = call.principal, call.parts.tokens
    if not principal.scoped:
        return None
    if not principal.claim:
        return await tokens.cursor_key(principal.token_id)
    try:  # a lease has no key, but the token of its runner has one
        return await tokens.cursor_key((await tokens.get(principal.name.partition("/")[0])).id)
    except UnknownToken:
        return None


def _list_of(call: Call) -> str:
    """Return the identity of the list: a cursor is invalid in another one."""
    return f"{type(call.query).__name__} {sorted(call.path.items())}"


class TextRedactor:
    """Redacts texts for a scoped token: ids of invisible jobs are removed."""

    def __init__(self, seen: frozenset[str] | None) -> None:
        self._seen = seen

    def id(self, job_id: str | None) -> str | None:
        """Return an id that may be seen; None for any other."""
        return job_id if self._seen is None or job_id in self._seen else None

    def text(self, text: str) -> str:
        """Return a text in which jobs that may not be seen have no ids."""
        if self._seen is None:
            return text
        return _JOB.sub(lambda found: self.id(found[0]) or "(another queue)", text)

    def after(self, after: After) -> After:
        """Return the jobs that a job comes after, without invisible ones."""
        return msgspec.structs.replace(
            after, jobs=tuple(each for each in after.jobs if self.id(each) is not None)
        )

    def failure(self, failure: FailureView | None) -> FailureView | None:
        """Return a failure, without an error text from an invisible queue."""
        if failure is None or self._seen is None or self.text(failure.error) == failure.error:
            return failure
        return msgspec.structs.replace(
            failure, error=_beginning_of_failure(self.text(failure.error)), details=""
        )


async def redactor_of(call: Call, written: Iterable[str | None]) -> TextRedactor:
    """Return the redaction for the principal, from the job ids in the texts."""
    if not call.principal.scoped:
        return TextRedactor(None)
    named = sorted({job_id for text in written for job_id in _JOB.findall(text or "")})
    views = await call.parts.runtime.jobs.get_many(named) if named else []
    return TextRedactor(
        frozenset(view.id for view in views if view is not None and call.principal.sees(view.queue))
    )


async def shown(call: Call, views: Sequence[JobView]) -> list[JobView]:
    """Return jobs as the principal may see them."""
    failures = [view.failure.error for view in views if view.failure is not None]
    reasons = [view.cancel_reason for view in views]
    befores = [each for view in views if view.after is not None for each in view.after.jobs]
    redactor = await redactor_of(
        call, [*(view.parent_job_id for view in views), *failures, *reasons, *befores]
    )
    return [
        msgspec.structs.replace(
            view,
            parent_job_id=redactor.id(view.parent_job_id),
            failure=redactor.failure(view.failure),
            cancel_reason=view.cancel_reason and redactor.text(view.cancel_reason),
            after=None if view.after is None else redactor.after(view.after),
            waits_for=tuple(each for each in view.waits_for if redactor.id(each) is not None),
        )
        for view in views
    ]


def _beginning_of_failure(text: str) -> str:
    """Return the beginning of a failure, without the error of the other job."""
    return f"{text.partition(':')[0].rstrip('.')}."


def shaped(job_id: str) -> str:
    """Return the id; raise without asking the store if it cannot be an id."""
    if not is_shaped(job_id):
        raise unknown_job(job_id[:64])
    return job_id


def is_shaped(name: str) -> bool:
    """Return whether the text can be an id."""
    return ID.fullmatch(name) is not None


def need_own_keys(call: Call, specs: Iterable[JobSpec]) -> None:
    """Raise if a confined token submits a job unique among all queues."""
    for spec in specs:
        if spec.unique is not None and spec.unique.scope == "task":
            call.principal.need_everything('a unique job with scope "task"')


def unknown_job(job_id: str) -> UnknownJob:
    """Return the error, which is the same for a missing and an invisible job."""
    return body.unknown_job(job_id, "GET /api/jobs")


def filter_of(call: Call, text: str) -> Filter:
    """Return the filter of a request, limited to the visible queues."""
    wanted = read_filter(text)
    call.principal.need_queues(wanted.queues)
    if call.principal.scoped and not wanted.queues:
        return msgspec.structs.replace(wanted, queues=tuple(sorted(call.principal.queues)))
    return wanted


async def selection_of(call: Call, wanted: Filter, *, limit: int, cursor: str = "") -> Selection:
    """Return the filter as a query of the store at the current time."""
    now = await call.parts.runtime.engine.clock.now()
    return wanted.selection(now, limit=limit, cursor=cursor)


async def page_of(call: Call, selection: Selection) -> tuple[list[JobView], str]:
    """Return a page of jobs, and the cursor of the next page.

    If the store cannot evaluate the filter, jobs are examined here, up to a limit; then the page is short,
    and its cursor continues from there.
    """
    jobs = call.parts.runtime.jobs
    if selection.exact:
        return await jobs.find(selection.query)
    if selection.filter.ids:
        return await _by_id(call, selection)
    records, cursor = await _looked_through(call, selection)
    return await jobs.views(records), cursor


async def _looked_through(call: Call, selection: Selection) -> tuple[list[Record], str]:
    """Return the matching records among the next ones, and a cursor.

    It reads only the parts that the filter needs.
    """
    store, query = call.parts.store, selection.query
    found: list[Record] = []
    looked_at = 0
    query = msgspec.structs.replace(query, within=MOST)
    while True:
        page = await store.find(msgspec.structs.replace(query, limit=LOOK))
        kept = [place for place, record in enumerate(page.records) if selection.keeps(filter_fields(record))]
        room = query.limit - len(found)
        found += [page.records[place] for place in kept[:room]]
        if len(kept) >= room:
            seen = kept[room - 1] + 1
            if seen == len(page.records):
                return found, page.cursor
            # The next page begins after the last job of this one.
            return found, (await store.find(msgspec.structs.replace(query, limit=seen))).cursor
        # A page that is not full means that the limit of examined records was reached.
        looked_at += len(page.records) if len(page.records) == LOOK else MOST
        if not page.cursor or looked_at >= MOST:
            return found, page.cursor
        query = msgspec.structs.replace(query, cursor=page.cursor)


async def _by_id(call: Call, selection: Selection) -> tuple[list[JobView], str]:
    """Load the jobs of a filter by id.

    The cursor is the number of jobs returned so far.
    """
    wanted, query = selection.filter.ids, selection.query
    if query.cursor and not (query.cursor.isdecimal() and int(query.cursor) < len(wanted)):
        raise bad_cursor(query.cursor)
    loaded = await call.parts.runtime.jobs.get_many(wanted)
    views = [view for view in loaded if view is not None and selection.keeps(view)]
    views.sort(key=lambda view: (view.created_at, view.id), reverse=True)
    start = int(query.cursor or 0)
    end = start + query.limit
    return views[start:end], str(end) if end < len(views) else ""


async def every_job(call: Call, wanted: Filter, limit: int) -> AsyncIterator[JobView | None]:
    """Yield the matching jobs up to a limit, then None if more may exist."""
    left, cursor = limit, ""
    for _ in range(PAGES):
        selection = await selection_of(call, wanted, limit=min(left, 500) or 1, cursor=cursor)
        views, cursor = await page_of(call, selection)
        for view in views[:left]:
            yield view
        if left < len(views) or (cursor and left == len(views)):
            yield None
            return
        left -= len(views)
        if not cursor:
            return
    yield None
