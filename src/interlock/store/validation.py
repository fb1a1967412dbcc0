"""Checks that every store makes before it touches the database, and the limits they enforce.

All stores refuse the same commits, queries and prunes, with the same errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.errors import InvalidRecord, PruneRefused, TooLarge, UnknownKind, UnknownState
from interlock.store.catalogue import Catalogue, StoredKind
from interlock.store.ranking import MAX_PRIORITY, MIN_PRIORITY
from interlock.store.records import Batch, Change, Claim, Commit, Key, Note, Query, Request, Work

TIMEOUT_S = 20.0
"""Default timeout of a store. A host may stall for ten seconds, and a server still has to answer within its
own limit (`request_s`).
"""
EPOCH_EVERY_S = 1_800
"""An epoch is at least the number of these periods since 1970. Shorter ones would leave no room for it in
a fence, which has 53 bits.
"""
MAX_ID = 64
MAX_HANDLER = 200
MAX_LABEL = 64
MAX_LABELS = 16
MAX_PAGE = 1_000
MAX_BACK = 100_000
MAX_VERSION = 2**53
MAX_TTL_S = 366 * 86_400.0
MIN_YEAR, MAX_YEAR = 1970, 2199


_RAW = msgspec.json.Decoder(msgspec.Raw)


def known_kind(catalogue: Catalogue, name: str) -> StoredKind:
    """Return the kind called `name`; raise if it is unknown.

    The error names the known kinds.
    """
    try:
        return catalogue[name]
    except KeyError:
        raise UnknownKind(name, tuple(catalogue)) from None


def check_commits(catalogue: Catalogue, work: Sequence[Work], max_body_bytes: int) -> None:
    """Raise for the first invalid commit, before anything is written."""
    for item in work:
        if isinstance(item, Batch):
            _check_batch(catalogue, item, max_body_bytes)
        else:
            _check_commit(catalogue, item, max_body_bytes)


def _check_commit(catalogue: Catalogue, commit: Commit, max_body_bytes: int) -> None:
    changes = commit.changes
    last: Change | None = None
    for change in changes:
        if last is not None and _differs_by_itself(change, last):
            _check_own(change, last, max_body_bytes)
        else:
            _check_change(catalogue, change, max_body_bytes)
        last = change
    for refusal in commit.refusals:
        known_kind(catalogue, refusal.kind)
        _check_name("The id of a refusal", refusal.id)
        _check_note(refusal.note)
    if commit.request is not None:
        _check_request(commit.request)
    if commit.not_after is not None:
        _check_moment(commit.not_after)
    if len(changes) > 1 and len({(change.kind, change.id) for change in changes}) < len(changes):
        raise _invalid("A commit changes each record once.")


def check_query(catalogue: Catalogue, query: Query) -> None:
    """Raise for a misleading query.

    An unknown kind or state would silently match nothing.
    """
    kind = known_kind(catalogue, query.kind)
    for state in query.states:
        if state not in kind.states:
            raise UnknownState(state, kind.states, where=kind.name)
    if not 1 <= query.limit <= MAX_PAGE:
        raise _invalid(f"A page has 1 to {MAX_PAGE} records, not {query.limit}.")
    if query.within is not None and query.within < 1:
        raise _invalid(f"A page searches at least one record, not {query.within}.")
    for at in (query.since, query.until):
        if at is not None:
            _check_moment(at)


def check_prune(catalogue: Catalogue, kind: str, states: Sequence[str], older_than: timedelta) -> None:
    """Raise unless these states are final or resting, and the age is valid."""
    known = known_kind(catalogue, kind)
    for state in states:
        if state not in known.states:
            raise UnknownState(state, known.states, where=kind)
    if living := [state for state in states if state not in known.ended]:
        raise PruneRefused(
            f"A {kind} that is {' or '.join(living)} has not ended and cannot be pruned.",
            allowed=sorted(known.ended),
            todo="Name only states in which it has ended.",
            facts={"kind": kind, "states": living},
        )
    if older_than < timedelta(0):
        raise _invalid(f"An age of {older_than.total_seconds():g} s lies in the future.")


def check_prune_by_queue(
    catalogue: Catalogue, kind: str, state: str, older_than: timedelta | None, queues: Mapping[str, timedelta]
) -> None:
    """Raise unless the state is final or resting, and each age is valid."""
    for age in (older_than or timedelta(0), *queues.values()):
        check_prune(catalogue, kind, (state,), age)


def waves(commits: Sequence[Commit]) -> Iterator[Sequence[Commit]]:
    """Split a batch into parts that can be judged at once.

    It is split where a record or a request repeats. The parts, applied in order, have the same outcome as the
    commits, applied in order.
    """
    if _touch_different_things(commits):
        yield commits
        return
    wave: list[Commit] = []
    seen: set[Key | str] = set()
    for commit in commits:
        touched: set[Key | str] = {change.key for change in commit.changes}
        touched.update(Key(refused.kind, refused.id) for refused in commit.refusals)
        if commit.request is not None:
            touched.add(commit.request.id)
        if not seen.isdisjoint(touched):
            yield wave
            wave, seen = [], set()
        wave.append(commit)
        seen |= touched
    if wave:
        yield wave


def _touch_different_things(commits: Sequence[Commit]) -> bool:
    """Return whether no record or request repeats.

    One pass is enough for nearly every batch.
    """
    if not commits:
        return False
    names = [change.id for commit in commits for change in commit.changes]
    more = [commit for commit in commits if commit.refusals or commit.request is not None]
    names += [refused.id for commit in more for refused in commit.refusals]
    requests = [commit.request.id for commit in more if commit.request is not None]
    # An id in several kinds is rare, and then the commits are compared closely.
    return len(set(names)) == len(names) and len(set(requests)) == len(requests)


def _check_change(catalogue: Catalogue, change: Change, max_body_bytes: int) -> None:
    kind = known_kind(catalogue, change.kind)
    if change.state not in kind.states:
        raise UnknownState(change.state, kind.states, where=kind.name)
    _check_name("An id", change.id)
    if not 0 <= change.expected <= MAX_VERSION:
        raise _invalid(f"{change.kind} {change.id} cannot have been in version {change.expected}.")
    _check_data(change, change.id, "body", change.body, max_body_bytes)
    if change.given:
        _check_given(change, change.id, change.given, max_body_bytes)
    if change.result:
        _check_data(change, change.id, "result", change.result, max_body_bytes)
    if change.note is not None:
        _check_note(change.note)
    _check_placing(change)


def _differs_by_itself(change: Change, last: Change) -> bool:
    """Return whether two changes differ only in the data of their records.

    These data are the body, and the fields that a batch sets for each of its records.
    """
    return (
        change.note is last.note
        and change.kind is last.kind
        and change.state is last.state
        and change.expected == last.expected
        and change.parent is last.parent
        and change.queue is last.queue
        and change.labels is last.labels
        and change.priority == last.priority
        and change.handler is last.handler
        and change.ready_at is last.ready_at
        and change.deadline_at is last.deadline_at
    )


def _check_own(change: Change, last: Change, max_body_bytes: int) -> None:
    """Check the part of a change that differs from the last one."""
    if not 1 <= len(change.id) <= MAX_ID or not change.id.isprintable():
        _check_name("An id", change.id)
    if change.body is not last.body:
        _check_data(change, change.id, "body", change.body, max_body_bytes)
    if change.given:
        _check_given(change, change.id, change.given, max_body_bytes)
    if change.result and change.result != last.result:
        _check_data(change, change.id, "result", change.result, max_body_bytes)
    if change.expected_at is not None and change.expected_at is not last.expected_at:
        _check_moment(change.expected_at)


def check_claim(catalogue: Catalogue, claim: Claim) -> None:
    """Raise for an invalid claim.

    That is an unknown kind, a limit of zero, or a guard that can never hold.
    """
    check_limit(claim.limit)
    known_kind(catalogue, claim.kind)
    if claim.guard is not None:
        kind = known_kind(catalogue, claim.guard.key.kind)
        for state in claim.guard.states:
            if state not in kind.states:
                raise UnknownState(state, kind.states, where=kind.name)


def check_limit(limit: int) -> None:
    """Raise unless the limit is at least one."""
    if limit < 1:
        raise _invalid(f"At least 1 must be requested, not {limit}.")


def check_back(back: int) -> None:
    """Raise unless a store accepts this number of entries before the end."""
    if not 0 <= back <= MAX_BACK:
        raise _invalid(f"A cursor is 0 to {MAX_BACK} entries back, not {back}.")


def _check_request(request: Request) -> None:
    _check_name("A request id", request.id)
    if not 0 <= request.ttl_s <= MAX_TTL_S:  # neither comparison holds for NaN
        raise _invalid(f"A request is remembered for 0 to {MAX_TTL_S:g} s, not {request.ttl_s:g}.")


def _check_batch(catalogue: Catalogue, batch: Batch, max_body_bytes: int) -> None:
    change, ids = batch.change, batch.ids
    if change.id or change.expected_at or change.given is not None or change.result is not None:
        raise _invalid("The change of a batch must not set fields that the batch sets for each record.")
    if not ids or len(set(ids)) < len(ids):
        raise _invalid("A batch has at least one record, and each record once.")
    if any(column and len(column) != len(ids) for column in (batch.expected_at, batch.given, batch.result)):
        raise _invalid("A batch sets a value for each of its records, or for none.")
    _check_change(catalogue, msgspec.structs.replace(change, id=ids[0]), max_body_bytes)
    _check_ids(ids)
    last_at: datetime | None = None
    for at in (batch.not_after, *batch.expected_at):
        if at is not None and at is not last_at:
            _check_moment(at)
        last_at = at
    for name, given in zip(ids, batch.given, strict=False):
        _check_given(change, name, given, max_body_bytes)
    last_result = b""
    for name, result in zip(ids, batch.result, strict=False):
        if not last_result or result != last_result:
            _check_data(change, name, "result", last_result := result, max_body_bytes)


def _check_ids(ids: Sequence[str]) -> None:
    """Check the ids of a batch together; and one by one to say which is wrong."""
    longest, shortest = max(map(len, ids)), min(map(len, ids))
    if not 1 <= shortest <= longest <= MAX_ID or not "".join(ids).isprintable():
        for name in ids:
            _check_name("An id", name)


def _check_given(change: Change, name: str, given: bytes, most: int) -> None:
    if change.expected:
        raise _invalid(f"What {change.kind} {name} was created with can never be changed.")
    _check_data(change, name, "given data", given, most)


def _check_data(change: Change, name: str, noun: str, data: bytes, most: int) -> None:
    if len(data) > most:
        raise TooLarge(
            f"The {noun} of {change.kind} {name} has {len(data)} bytes; at most {most}.",
            todo=f"Keep large data elsewhere, and a reference to it in the {noun}.",
            facts={"kind": change.kind, "id": name, "bytes": len(data), "limit": most},
        )
    try:
        _RAW.decode(data)
    except msgspec.DecodeError as error:
        raise _invalid(f"The {noun} of {change.kind} {name} is not JSON: {error}.") from None


def _check_note(note: Note) -> None:
    for text in (note.actor, note.reason, note.cause, note.request_id, note.refusal):
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise _invalid("A note must be valid text, without half of a surrogate pair.") from None


def _check_name(noun: str, name: str) -> None:
    """Check that a name is short and printable.

    Every database and every line can hold it then.
    """
    if not 1 <= len(name) <= MAX_ID:
        raise _invalid(f"{noun} has 1 to {MAX_ID} characters, not {len(name)}.")
    if not name.isprintable():
        raise _invalid(f"{noun} has only printable characters; {name!r} has others.")


def _check_placing(change: Change) -> None:
    if change.queue is not None:
        _check_name("The name of a queue", change.queue)
    if change.parent is not None:
        _check_name("The id of a parent", change.parent)
    if change.labels:
        _check_labels(change.labels)
    if len(change.handler) > MAX_HANDLER or not change.handler.isprintable():
        raise _invalid(f"The name of a handler has at most {MAX_HANDLER} printable characters.")
    if not MIN_PRIORITY <= change.priority <= MAX_PRIORITY:
        raise _invalid(f"A priority lies in {MIN_PRIORITY} to {MAX_PRIORITY}, {change.priority} does not.")
    if change.ready_at is not None and not change.queue:
        raise _invalid(f"{change.kind} {change.id} is ready to be claimed but has no queue.")
    for at in (change.ready_at, change.deadline_at, change.expected_at):
        if at is not None:
            _check_moment(at)


def _check_labels(labels: tuple[str, ...]) -> None:
    if list(labels) != sorted(set(labels)):
        raise _invalid(f"Labels must be sorted and unique: {', '.join(sorted(set(labels)))}.")
    if len(labels) > MAX_LABELS:
        raise _invalid(f"A record has at most {MAX_LABELS} labels, not {len(labels)}.")
    if any(not label or len(label) > MAX_LABEL or not label.isprintable() for label in labels):
        raise _invalid(f"A label has 1 to {MAX_LABEL} printable characters.")


def _check_moment(at: datetime) -> None:
    if at.tzinfo is None:
        raise _invalid(f"The time {at.isoformat()} has no time zone.")
    if not MIN_YEAR <= at.year <= MAX_YEAR:
        raise _invalid(f"A time lies in the years {MIN_YEAR} to {MAX_YEAR}; {at.isoformat()} does not.")


def _invalid(sentence: str) -> InvalidRecord:
    return InvalidRecord(sentence, todo="Correct it and send it again; nothing was written.")
