"""A look at a whole batch at once, by which nearly every batch is seen to be as it should be.

What a change shares with the one before it was looked at there: in a batch that is nearly everything, and
mostly the very same object. It knows no rule that `checking` does not know, and finds no words for what is
wrong: who fails here is looked at closely there, and is either told or let through.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.limits import MAX_HANDLER, MAX_ID, MAX_VERSION, MAX_YEAR, MIN_YEAR
from interlock.store.ranking import MAX_PRIORITY, MIN_PRIORITY
from interlock.store.records import Change, Commit, Note

FEWEST = 8
"""Below this a close look at each is as quick."""

_skip = msgspec.json.Decoder(msgspec.Raw).decode


def plainly_fine(
    catalogue: Catalogue, commits: Sequence[Commit], max_body_bytes: int, trusted: frozenset[int]
) -> bool:
    """Whether nothing can be wrong with these; False only means that it takes a closer look.

    `trusted` are the identities of bodies that came out of the store just now.
    """
    if len(commits) < FEWEST:
        return False
    names: list[str] = []
    before, until = _NOBODY, None
    seen: tuple[object, ...] = ()
    for commit in commits:
        changes = commit.changes
        if len(changes) != 1 or commit.refusals or commit.request is not None:
            return False
        if commit.not_after is not until:
            until = commit.not_after
            if not _is_moment(until):
                return False
        change = changes[0]
        names.append(change.id)
        looks = (  # everything but name and body
            change.kind,
            change.state,
            change.expected,
            change.expected_at,
            change.queue,
            change.parent,
            change.labels,
            change.priority,
            change.ready_at,
            change.handler,
            change.deadline_at,
            change.note,
            change.given,
            change.result,
        )
        if looks != seen:
            if not _is_like(change, before, catalogue):
                return False
            before, seen = change, looks
        body = change.body
        if len(body) > max_body_bytes or (id(body) not in trusted and not _is_json(body)):
            return False
    sizes = set(map(len, names))
    return min(sizes) > 0 and max(sizes) <= MAX_ID and "".join(names).isprintable()


def looks_of(change: Change) -> tuple[object, ...]:
    """All that a change says, but for its name, body and note, and when it was decided."""
    return (
        change.kind,
        change.expected,
        change.state,
        change.parent,
        change.queue,
        change.labels,
        change.priority,
        change.ready_at,
        change.handler,
        change.deadline_at,
    )


_NOBODY = Change(kind="no kind", id="", expected=0, state="", body=b"")
"""Before the first one: it has no kind that anybody has, and the rest of it is empty."""


def _is_like(change: Change, before: Change, catalogue: Catalogue) -> bool:
    """Whether what it does not share with the one before it, which is fine, is fine as well."""
    if change.kind is not before.kind or change.state is not before.state:
        known = catalogue.get(change.kind)
        if known is None or change.state not in known.states:
            return False
    queue, ready_at = change.queue, change.ready_at
    return (
        0 <= change.expected <= MAX_VERSION
        and (change.note is before.note or _is_text(change.note))
        and (queue is before.queue or _is_name(queue))
        and (ready_at is None or queue is not None)
        and (ready_at is before.ready_at or _is_moment(ready_at))
        and (change.handler is before.handler or _is_handler(change.handler))
        and (change.deadline_at is before.deadline_at or _is_moment(change.deadline_at))
        and (change.expected_at is before.expected_at or _is_moment(change.expected_at))
        and (change.parent is before.parent or _is_name(change.parent))
        and (change.priority is before.priority or MIN_PRIORITY <= change.priority <= MAX_PRIORITY)
        and not (change.labels or change.given or change.result)  # those are looked at closely
    )


def _is_name(name: str | None) -> bool:
    return name is None or (0 < len(name) <= MAX_ID and name.isprintable())


def _is_handler(name: str) -> bool:
    return len(name) <= MAX_HANDLER and name.isprintable()


def _is_moment(at: datetime | None) -> bool:
    return at is None or (at.tzinfo is not None and MIN_YEAR <= at.year <= MAX_YEAR)


def _is_text(note: Note | None) -> bool:
    return note is None or (note.actor + note.reason + note.cause + note.request_id + note.refusal).isascii()


def _is_json(body: bytes) -> bool:
    try:
        _skip(body)
    except msgspec.DecodeError:
        return False
    return True
