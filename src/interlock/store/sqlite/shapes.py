"""The statements that write, each no wider than what it has to write.

SQLite touches every index that has a column of the statement in it, whether the value changes or not;
and of what Python hands over, `None` and `bytes` take several times as long as anything else. So there is
one statement for each set of columns that change together, a NULL is part of its text, and a body is
handed over as a `bytearray`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

Row: TypeAlias = list[Any] | tuple[Any, ...]

KEPT, CLEARED, SET = 0, 1, 2
"""What becomes of a time: it stays NULL, becomes NULL, or is given."""

ENTRY = "sequence, at_us, record, kind, id, version, steps, actor, request_id, reason, cause, refusal"
_SHORT_ENTRY = "sequence, at_us, record, kind, id, version, steps, actor, request_id"
REQUEST = "id, endpoint, fingerprint, status, body, created_us, expires_us"


def _insertion(table: str, columns: str) -> str:
    marks = ", ".join("?" for _ in columns.split(","))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


INSERT_ENTRY = _insertion("journal", ENTRY)
INSERT_SHORT_ENTRY = _insertion("journal", _SHORT_ENTRY)
"""For one that says neither why nor because of what, as most do."""
INSERT_ALIKE = """
INSERT INTO journal (sequence, at_us, record, kind, id, version, steps, actor, request_id, reason, cause)
SELECT ?1 + said.key, ?2, r.number, r.kind, r.id, r.version, ?3, ?4, ?5, ?6, ?7
FROM json_each(?8) AS said CROSS JOIN records AS r ON r.number = said.value
"""
"""For many that say the same, each about the version that its record has by now."""

# A request that has expired counts as unknown, so that its id may be used anew.
INSERT_REQUEST = _insertion("requests", REQUEST).replace("INSERT", "INSERT OR REPLACE")


@cache
def insertion(ready: bool, timed: bool, placed: bool) -> str:
    """Create a record: with a lane and a time, with a deadline, with more than a queue."""
    columns = [
        "number",
        "kind",
        "id",
        "state",
        "place",
        "version",
        "body",
        "created_us",
        "updated_us",
        "queue",
    ]
    marks = ["?"] * 9 + ["nullif(?, '')"]
    if ready:
        columns += ["lane", "handler", "ready_us"]
        marks += ["?", "?", "?"]
    if timed:
        columns.append("deadline_us")
        marks.append("?")
    if placed:
        columns += ["parent", "labels", "priority"]
        marks += ["nullif(?, '')", "?", "?"]
    return f"INSERT INTO records ({', '.join(columns)}) VALUES ({', '.join(marks)})"


Changing: TypeAlias = tuple[bool, bool, int, int, bool]
"""What of a record changes: its body, its state, its lane and time, its deadline, where else it belongs."""


@cache
def update(changing: Changing) -> str:
    """Change a record. Its body comes behind all else, and then its number."""
    parts = [*_parts(changing), "body = ?"] if changing[0] else _parts(changing)
    return f"UPDATE records SET {', '.join(parts)} WHERE number = ?"


DIGITS = 10


@cache
def update_stretch(changing: Changing) -> str:
    """The same for all records from one number to another, which come behind what they all become.

    Their bodies come as one, with where each begins and how long it is, in so many digits.
    """
    parts = _parts(changing)
    shared = sum(part.count("?") for part in parts)
    first, last, bodies, starts, lengths = (f"?{shared + place}" for place in range(1, 6))
    if changing[0]:
        start, length = (
            f"CAST(substr({each}, (number - {first}) * {DIGITS} + 1, {DIGITS}) AS INTEGER)"
            for each in (starts, lengths)
        )
        parts.append(f"body = substr({bodies}, {start}, {length})")
    return f"UPDATE records SET {', '.join(parts)} WHERE number BETWEEN {first} AND {last}"


def _parts(changing: Changing) -> list[str]:
    _, moved, ready, timed, placed = changing
    parts = ["version = ?", "updated_us = ?"]
    if moved:
        parts += ["state = ?", "place = ?"]
    if ready == SET:
        parts += ["lane = ?", "handler = ?", "ready_us = ?"]
    elif ready == CLEARED:
        parts += ["lane = NULL", "ready_us = NULL"]
    if timed == SET:
        parts.append("deadline_us = ?")
    elif timed == CLEARED:
        parts.append("deadline_us = NULL")
    if placed:
        parts += ["queue = nullif(?, '')", "parent = nullif(?, '')", "labels = ?", "priority = ?"]
    return parts
