"""Changes as columns of text: see `sql/0003_commit.sql` and `sql/0015_commit.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from interlock.errors import InvalidRecord
from interlock.store.catalogue import Catalogue
from interlock.store.ranking import microseconds, rank_of
from interlock.store.records import Change, Note, Record

_BETWEEN_VALUES, _BETWEEN_LABELS = "\x1e", "\x1f"
_encoder = msgspec.json.Encoder()

Column: TypeAlias = tuple[str | None, str | None]
"""The value that all changes share, or else all values in one text."""

TerminalStates: TypeAlias = Mapping[str, frozenset[str]]
"""The terminal states of each kind."""

NOTHING: Column = (None, None)
_NO_CHAIN: Column = ("", None)
"""Placeholder for the column `chain`, which is no longer used."""
END = "end"
NO_RESULT = "-"
"""Removes a result; it is not JSON."""


def columns_of(changes: Sequence[Change]) -> list[Column]:
    """Return the columns of the changes that each have one value.

    Ids, bodies, notes and expected times are not among them.
    """
    ready, ranks = _queueing(changes)
    return [
        _column([c.kind for c in changes]),
        numbers([c.expected for c in changes]),
        _column([c.state for c in changes]),
        _column([c.parent for c in changes]),
        _column([c.queue for c in changes]),
        _column([labels_as_text(c.labels) for c in changes]),
        numbers([c.priority for c in changes]),
        ready,
        ranks,
        moments([c.deadline_at for c in changes]),
        _NO_CHAIN,
    ]


def handlers_of(changes: Sequence[Change]) -> Column:
    """Return the handlers of the changes, as a column."""
    return _column([change.handler or None for change in changes])


def results_of(changes: Sequence[Change]) -> Column:
    """Return the results of the changes; empty to keep the existing one."""
    if not [None for change in changes if change.result is not None]:
        return NOTHING
    results = [change.result for change in changes]
    return _column([None if result is None else result.decode() or NO_RESULT for result in results])


def given_of(changes: Sequence[Change]) -> Column:
    """Return the given data of created records."""
    if not [None for change in changes if change.given]:
        return NOTHING
    return _column([change.given.decode() if change.given else None for change in changes])


def ends_of(changes: Sequence[Change], ends: TerminalStates) -> Column:
    """Return which records have ended, without a ready time or deadline."""
    return _column(
        [
            END if c.ready_at is None and c.deadline_at is None and c.state in ends[c.kind] else None
            for c in changes
        ]
    )  # `is_end`, without a call for each


def is_end(change: Change, ends: TerminalStates) -> bool:
    """Return whether the record leaves the table of live records."""
    return change.ready_at is None and change.deadline_at is None and change.state in ends[change.kind]


def ends_in(catalogue: Catalogue) -> TerminalStates:
    """Return the states of each kind without a way out.

    A resting record may live again.
    """
    return {
        name: kind.ended - {source for source, target in kind.paths if source != target}
        for name, kind in catalogue.items()
    }


def notes_of(notes: Sequence[Note | None]) -> tuple[str | None, str | None]:
    """Return the note that all share, or else a line for each."""
    first = notes[0]
    if first is not None and notes.count(first) == len(notes):
        return _encoder.encode(first).decode(), None
    return None, _encoder.encode_lines(notes)[:-1].decode()


def _column(values: Sequence[str | None]) -> Column:
    first = values[0]
    if values.count(first) == len(values):
        return first and joined([first]), None
    return None, joined(["" if value is None else value for value in values])


def numbers(values: list[int]) -> Column:
    """Return whole numbers as a column."""
    first = values[0]
    if values.count(first) == len(values):
        return str(first), None
    return None, _BETWEEN_VALUES.join(map(str, values))


def moments(values: Sequence[datetime | None]) -> Column:
    """Return times as a column, in microseconds since 1970."""
    first = values[0]
    if values.count(first) == len(values):
        return None if first is None else str(microseconds(first)), None
    texts: list[str] = []
    last, text = None, ""
    for at in values:
        if at is not last:  # changes that were decided together share their times
            last, text = at, "" if at is None else str(microseconds(at))
        texts.append(text)
    return None, _BETWEEN_VALUES.join(texts)


def _queueing(changes: Sequence[Change]) -> tuple[Column, Column]:
    """Return ready times and ranks, which are equal without priorities."""
    ready_at = moments([c.ready_at for c in changes])
    if ready_at == NOTHING or not [None for c in changes if c.priority]:
        return ready_at, ready_at
    ranks = [None if c.ready_at is None else str(rank_of(c.ready_at, c.priority)) for c in changes]
    return ready_at, _column(ranks)


def bodies_of(changes: Sequence[Change], held: Sequence[Record]) -> str | None:
    """Return the bodies in one text; '' keeps the existing body.

    JSON escapes the separator, which is a control character.
    """
    bodies = [change.body for change in changes]
    if held:
        if _is_all_kept(changes, held):
            return None
        before = {(record.kind, record.id, record.version): record.body for record in held}
        bodies = [b"" if before.get((c.kind, c.id, c.expected)) is c.body else c.body for c in changes]
    return joined_data(bodies)


def _is_all_kept(changes: Sequence[Change], held: Sequence[Record]) -> bool:
    """Return whether just these records keep their bodies, in this order."""
    if len(held) != len(changes):
        return False
    for c, r in zip(changes, held, strict=True):
        if c.body is not r.body or c.id != r.id or c.expected != r.version or c.kind != r.kind:
            return False
    return True


def joined(values: Sequence[str]) -> str:
    """Join texts."""
    return _parted(_BETWEEN_VALUES.join(values), len(values))


def joined_data(values: Sequence[bytes]) -> str:
    """Join JSON texts."""
    return _parted(_BETWEEN_VALUES.encode().join(values).decode(), len(values))


def labels_as_text(labels: Sequence[str]) -> str | None:
    """Return labels as one text; None if there are none."""
    return _BETWEEN_LABELS.join(labels) if labels else None


def _parted(text: str, parts: int) -> str:
    """Return the text; raise if it splits into more parts than it has.

    A value that contains the separator causes that.
    """
    if text.count(_BETWEEN_VALUES) >= max(parts, 1):
        raise InvalidRecord(
            "PostgreSQL cannot store this: the control character U+001E.",
            todo="Leave it out, or escape it where it is part of a body. Nothing was written.",
        )
    return text
