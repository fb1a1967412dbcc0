"""What the journal is to be told: gathered entry by entry, and written in a few statements.

Of a batch most entries say the same, about one record each: so many were claimed by one worker, so many
were completed. Those are written by one statement that is told whom they are about; the rest it finds in
the records, which are written before. It costs half of what a row each does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from interlock.store.records import Note
from interlock.store.sqlite.rows import list_text
from interlock.store.sqlite.shapes import INSERT_ALIKE, INSERT_ENTRY, INSERT_SHORT_ENTRY

Said: TypeAlias = tuple[int, str, str, int]
"""What an entry is about: number, kind and id of a record, and its version."""

MANY = 8
"""So many entries that say the same are written by one statement; for fewer it is no quicker."""

_RECORD, _STEPS = 2, 6
_encode_lines = msgspec.json.Encoder().encode_lines


class Entries:
    """Those of one batch, in the order of their numbers."""

    def __init__(self, now_us: int) -> None:
        self.are_final = True
        """Whether each record is left in the version that its entry is about: none is changed twice."""
        self._now_us = now_us
        self._rows: list[list[Any]] = []
        self._short_rows: list[list[Any]] = []
        self._sayings: list[tuple[int, Note, list[Said]]] = []
        """Stretches of entries that say the same, each with the number of its first."""
        self._saying: Note | None = None
        self.said: list[Said] = []
        """What the last of them is about."""

    def __bool__(self) -> bool:
        return bool(self._rows or self._sayings)

    def say(self, sequence: int, said: Said, note: Note) -> None:
        """An entry about a change."""
        if note is not self._saying and note != self._saying:
            self._saying, self.said = note, []
            self._sayings.append((sequence, note, self.said))
        self.said.append(said)

    def add(self, sequence: int, said: Said, note: Note) -> None:
        """Add an entry of its own, for a note that tells of a refusal."""
        self._saying = None
        row = [sequence, self._now_us, *said, note.steps, note.actor, note.request_id]
        self._rows.append([*row, note.reason, note.cause, note.refusal])

    def renumber(self, new: Mapping[int, int]) -> None:
        """Some records have other numbers than they were told of with."""
        for _, _, said in self._sayings:
            said[:] = [(new.get(number, number), kind, name, version) for number, kind, name, version in said]
        for row in self._rows:
            row[_RECORD] = new.get(row[_RECORD], row[_RECORD])

    def write(self, connection: sqlite3.Connection) -> None:
        """All of them; after the records that they are about."""
        for sequence, note, said in self._sayings:
            if self.are_final and len(said) >= MANY:
                words = list_text(note.steps), note.actor, note.request_id, note.reason, note.cause
                about = list_text([number for number, _, _, _ in said])
                connection.execute(INSERT_ALIKE, (sequence, self._now_us, *words, about))
            else:
                self._tell_apart(sequence, note, said)
        for statement, rows in ((INSERT_SHORT_ENTRY, self._short_rows), (INSERT_ENTRY, self._rows)):
            if rows:
                _spell_steps(rows)
                connection.executemany(statement, rows)

    def _tell_apart(self, first: int, note: Note, said: list[Said]) -> None:
        """A row for each."""
        short = not (note.reason or note.cause)
        for sequence, each in enumerate(said, first):
            row = [sequence, self._now_us, *each, note.steps, note.actor, note.request_id]
            if short:
                self._short_rows.append(row)
            else:
                self._rows.append([*row, note.reason, note.cause, ""])


def _spell_steps(rows: list[list[Any]]) -> None:
    """Those of all entries at once: a line each, none of which JSON breaks."""
    lines = _encode_lines([row[_STEPS] for row in rows]).decode().split("\n")
    for row, line in zip(rows, lines, strict=False):  # behind the last line comes nothing
        row[_STEPS] = line
