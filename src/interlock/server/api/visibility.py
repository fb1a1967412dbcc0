"""What a principal can see: for a token that is confined to queues, the others do not exist.

A cursor of a store is a place in a list of all records: a number that counts them, or the id of a record
that the token may not see. A sealed cursor says neither, and is valid for one token and one list. It is
encrypted deterministically and authenticated (a synthetic IV: the keyed hash of the content is both the
check and the start of the key stream), and padded so that its length says nothing. The key is kept with the
token in the store, so that a cursor is valid at every server.
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
from interlock.systems.orchestrator.views import glimpse
from interlock.wire.filters import Filter, Selection, read_filter
from interlock.wire.jobs import FailureView, JobView

BLOCK = 96
"""Content is padded to a multiple of this; cursors of stores have up to 85 bytes."""
CHECK = 16


def sealed(key: str, where: str, cursor: str) -> str:
    """Return the cursor as it is handed out; `where` names the list that it belongs to."""
    content = cursor.encode()
    content = content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")
    check = _check(key, where, content)
    return base64.urlsafe_b64encode(check + _xor(content, key, check)).decode().rstrip("=")


def opened(key: str, where: str, text: str) -> str | None:
    """Return what was sealed; None for anything that was not sealed for this list with this key."""
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
"""How many jobs are looked at in one go for what the store cannot filter by."""
MOST = 2_500
"""How many for one page: then it is answered with what was found, and where to go on."""

PAGES = 400
"""How many of these are looked at for somebody who wants them all."""

_JOB = re.compile(r"\bj_[0-9a-f]{12}\b")


async def job_of(call: Call, job_id: str | None = None) -> JobView:
    """The job that the address names; one in a queue that is not seen is not there."""
    job_id = shaped(call.path["job_id"] if job_id is None else job_id)
    (view,) = await call.parts.runtime.jobs.get_many([job_id])
    if view is None or not call.principal.sees(view.queue):
        raise unknown_job(job_id)
    return view


async def place_asked(call: Call) -> str:
    """Return the cursor of a question as the store knows it; a confined token has sealed ones."""
    cursor: str = call.query.cursor
    key = await _key(call) if cursor else None
    if key is None:
        return cursor
    place = opened(key, _list_of(call), cursor)
    if place is None:
        raise bad_cursor(cursor)
    return place


async def place_told(call: Call, cursor: str) -> str:
    """Return the cursor of an answer as whoever asks is told it."""
    key = await _key(call) if cursor else None
    return cursor if key is None else sealed(key, _list_of(call), cursor)


async def _key(call: Call) -> str | None:
    """Return what cursors are sealed with; None for whoever may see them as stores make them."""
    principal, tokens = call.principal, call.parts.tokens
    if not principal.scoped:
        return None
    if not principal.claim:
        return await tokens.cursor_key(principal.token_id)
    try:  # a lease has no key of its own, but the token of its runner has one
        return await tokens.cursor_key((await tokens.get(principal.name.partition("/")[0])).id)
    except UnknownToken:
        return None


def _list_of(call: Call) -> str:
    """Return which list it is: a cursor leads nowhere in another one."""
    return f"{type(call.query).__name__} {sorted(call.path.items())}"


class Sight:
    """What a confined token is shown of texts that we have written: no id of a job that it may not see."""

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

    def failure(self, failure: FailureView | None) -> FailureView | None:
        """Return why something failed; of a child in another queue not what that has reported."""
        if failure is None or self._seen is None or self.text(failure.error) == failure.error:
            return failure
        return msgspec.structs.replace(failure, error=_elsewhere(self.text(failure.error)), details="")


async def sight_of(call: Call, written: Iterable[str | None]) -> Sight:
    """Return how texts are shown to whoever asks, from the ids of jobs that are in them."""
    if not call.principal.scoped:
        return Sight(None)
    named = sorted({job_id for text in written for job_id in _JOB.findall(text or "")})
    views = await call.parts.runtime.jobs.get_many(named) if named else []
    return Sight(frozenset(view.id for view in views if view is not None and call.principal.sees(view.queue)))


async def shown(call: Call, views: Sequence[JobView]) -> list[JobView]:
    """Return jobs as whoever asks is shown them."""
    failures = [view.failure.error for view in views if view.failure is not None]
    reasons = [view.cancel_reason for view in views]
    sight = await sight_of(call, [*(view.parent_job_id for view in views), *failures, *reasons])
    return [
        msgspec.structs.replace(
            view,
            parent_job_id=sight.id(view.parent_job_id),
            failure=sight.failure(view.failure),
            cancel_reason=view.cancel_reason and sight.text(view.cancel_reason),
        )
        for view in views
    ]


def _elsewhere(text: str) -> str:
    """Return how a failure begins: what follows is the error of the other job."""
    return f"{text.partition(':')[0].rstrip('.')}."


def shaped(job_id: str) -> str:
    """The id, if it can be one at all; nothing else reaches the store."""
    if not is_shaped(job_id):
        raise unknown_job(job_id[:64])
    return job_id


def is_shaped(name: str) -> bool:
    """Whether it can be the id of anything."""
    return ID.fullmatch(name) is not None


def unknown_job(job_id: str) -> UnknownJob:
    """The same words whether it is not there or not seen."""
    return UnknownJob(
        f"There is no job {job_id}.",
        todo="Look for it with GET /api/jobs; ended jobs are pruned after a while.",
        facts={"job_id": job_id},
    )


def filter_of(call: Call, text: str) -> Filter:
    """What somebody has asked for, within what they can see."""
    wanted = read_filter(text)
    call.principal.need_queues(wanted.queues)
    if call.principal.scoped and not wanted.queues:
        return msgspec.structs.replace(wanted, queues=tuple(sorted(call.principal.queues)))
    return wanted


async def selection_of(call: Call, wanted: Filter, *, limit: int, cursor: str = "") -> Selection:
    """The filter at this moment, as a question to the store."""
    now = await call.parts.runtime.engine.clock.now()
    return wanted.selection(now, limit=limit, cursor=cursor)


async def page_of(call: Call, selection: Selection) -> tuple[list[JobView], str]:
    """As many jobs as were asked for, and the cursor of the next ones.

    What the store cannot filter by is looked at here, up to a bound; then the page is short, and its
    cursor goes on from there.
    """
    jobs = call.parts.runtime.jobs
    if selection.exact:
        return await jobs.find(selection.query)
    if selection.filter.ids:
        return await _by_id(call, selection)
    records, cursor = await _looked_through(call, selection)
    return await jobs.views(records), cursor


async def _looked_through(call: Call, selection: Selection) -> tuple[list[Record], str]:
    """Those of the next so many that are meant. Only as much of each is read as the filter asks about."""
    store, query = call.parts.store, selection.query
    found: list[Record] = []
    looked_at = 0
    query = msgspec.structs.replace(query, within=MOST)
    while True:
        page = await store.find(msgspec.structs.replace(query, limit=LOOK))
        kept = [place for place, record in enumerate(page.records) if selection.keeps(glimpse(record))]
        room = query.limit - len(found)
        found += [page.records[place] for place in kept[:room]]
        if len(kept) >= room:
            seen = kept[room - 1] + 1
            if seen == len(page.records):
                return found, page.cursor
            # The next page begins behind the last job of this one.
            return found, (await store.find(msgspec.structs.replace(query, limit=seen))).cursor
        # A page that is not full has looked at as many as may be looked at.
        looked_at += len(page.records) if len(page.records) == LOOK else MOST
        if not page.cursor or looked_at >= MOST:
            return found, page.cursor
        query = msgspec.structs.replace(query, cursor=page.cursor)


async def _by_id(call: Call, selection: Selection) -> tuple[list[JobView], str]:
    """Who knows the ids needs no list: they are looked up, and the cursor is how many were shown."""
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
    """The jobs that a filter means, up to a limit, then None when there are or may be more."""
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
