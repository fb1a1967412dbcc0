"""Views of records of kinds that users declare."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from interlock.wire.views import View


class StoredRecord(View, frozen=True, kw_only=True, omit_defaults=True):
    """A record of a user's kind."""

    kind: str
    id: str
    state: str
    version: int
    """Version of the record, which grows with every change; `expected` of the next event refers to it."""
    data: Any
    """Data of the record. A client that has the kind gets its own type, all others plain JSON values."""
    created_at: datetime
    updated_at: datetime
    parent: str = ""
    queue: str = ""
    labels: tuple[str, ...] = ()
    deadline_at: datetime | None = None
    """Time at which the timer fires; null while none is running."""
    accepts: tuple[str, ...] = ()
    """Events that are allowed now."""
    ended: bool = False
    """The record is in a terminal state."""


class StoredPage(View, frozen=True, kw_only=True):
    """Records of a kind, newest first. `cursor` is for the next page, and is empty at the end."""

    records: tuple[StoredRecord, ...]
    cursor: str = ""


class EventView(View, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a kind."""

    name: str
    doc: str
    fields: tuple[str, ...] = ()
    """Fields of the event; a field with a default has a question mark."""
    role: str = ""
    """Role that may send it over HTTP; empty for events that only programs with the store may send."""


class RecordExplanation(View, frozen=True, kw_only=True, omit_defaults=True):
    """Reason why a record waits, or how it ended."""

    kind: str
    id: str
    state: str
    sentence: str
    turn: str = ""
    """Owner of the next step."""
    deadline_at: datetime | None = None
    deadline_event: str = ""
    """Event that the timer sends."""
    accepts: tuple[EventView, ...] = ()
    """Events that are allowed now."""


class KindView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A declared kind that this server keeps."""

    name: str
    doc: str
    states: tuple[str, ...]
    initial: str
    ended: tuple[str, ...]
    events: tuple[EventView, ...]
    fields: tuple[str, ...] = ()
    """Fields of the data; a field with a default has a question mark."""
    labels: tuple[str, ...] = ()
    """Fields of the data by which records are found."""
    create: str = ""
    read: str = ""
