"""A look at a whole batch at once, by which nearly every batch is seen to be as it should be.

Column by column, so that what the commits share is looked at once and what they do not is looked at
without a call for each. It knows no rule that `checking` does not know, and finds no words for what is
wrong: who fails here is looked at closely there, and is either told or let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.limits import MAX_ID, MAX_VERSION, MAX_YEAR, MIN_YEAR
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
    changes = [commit.changes[0] for commit in commits if len(commit.changes) == 1]
    if len(commits) < FEWEST or len(changes) != len(commits):
        return False
    for commit in commits:
        if commit.refusals or commit.request is not None:
            return False
    return (
        _stands(catalogue, changes)
        and _is_placed(changes)
        and _are_moments([commit.not_after for commit in commits])
        and _are_texts([change.note for change in changes])
        and _are_bodies([change.body for change in changes], max_body_bytes, trusted)
    )


def _stands(catalogue: Catalogue, changes: Sequence[Change]) -> bool:
    """Kinds, states, names and versions."""
    for kind, state in {(change.kind, change.state) for change in changes}:
        known = catalogue.get(kind)
        if known is None or state not in known.states:
            return False
    versions = [change.expected for change in changes]
    return (
        _are_names([change.id for change in changes]) and 0 <= min(versions) <= max(versions) <= MAX_VERSION
    )


def _is_placed(changes: Sequence[Change]) -> bool:
    """Queues, parents, priorities and times; labels are looked at closely."""
    priorities = {change.priority for change in changes}
    ready = [change.ready_at for change in changes]
    queues, parents = {change.queue for change in changes}, {change.parent for change in changes}
    if None in queues and any(ready):
        return False
    return (
        {change.labels for change in changes} == {()}
        and MIN_PRIORITY <= min(priorities) <= max(priorities) <= MAX_PRIORITY
        and _are_names([name for name in (*queues, *parents) if name is not None])
        and _are_moments(ready)
        and _are_moments([change.deadline_at for change in changes])
        and _are_moments([change.expected_at for change in changes])
    )


def _are_names(names: Sequence[str]) -> bool:
    lengths = [len(name) for name in names]
    return not names or (0 < min(lengths) <= max(lengths) <= MAX_ID and "".join(names).isprintable())


def _are_moments(moments: Iterable[datetime | None]) -> bool:
    """Those of a batch are often one object."""
    last: datetime | None = None
    for at in moments:
        if at is not last and at is not None:
            if at.tzinfo is None or not MIN_YEAR <= at.year <= MAX_YEAR:
                return False
            last = at
    return True


def _are_texts(notes: Iterable[Note | None]) -> bool:
    for note in notes:
        if note is not None:
            said = note.actor + note.reason + note.cause + note.request_id + note.refusal
            if not said.isascii():
                return False
    return True


def _are_bodies(bodies: Sequence[bytes], most: int, trusted: frozenset[int]) -> bool:
    if max([len(body) for body in bodies]) > most:
        return False
    try:
        for body in bodies:
            if id(body) not in trusted:
                _skip(body)
    except msgspec.DecodeError:
        return False
    return True
