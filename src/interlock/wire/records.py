"""Records of kinds that users declare, as they are shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from interlock.wire.views import View


class StoredRecord(View, frozen=True, kw_only=True, omit_defaults=True):
    """One record of a user's kind."""

    kind: str
    id: str
    state: str
    version: int
    """Grows with every change; `expected` of the next event refers to it."""
    data: Any
    """What the kind keeps. A client that has the kind gets its own type, all others plain JSON values."""
    created_at: datetime
    updated_at: datetime
    parent: str = ""
    queue: str = ""
    labels: tuple[str, ...] = ()
    deadline_at: datetime | None = None
    """When its timer fires; null while none is running."""
    accepts: tuple[str, ...] = ()
    """The events that may be sent to it now."""
    ended: bool = False
    """It is in a terminal state."""


class StoredPage(View, frozen=True, kw_only=True):
    """Records of a kind, newest first. `cursor` is for the next page, and is empty at the end."""

    records: tuple[StoredRecord, ...]
    cursor: str = ""


class EventView(View, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a kind."""

    name: str
    doc: str
    fields: tuple[str, ...] = ()
    """What it carries; a field with a default has a question mark."""
    role: str = ""
    """The role that may send it over HTTP; empty for events that only programs with the store may send."""


class RecordExplanation(View, frozen=True, kw_only=True, omit_defaults=True):
    """What a record waits for, or how it ended."""

    kind: str
    id: str
    state: str
    sentence: str
    turn: str = ""
    """Who has to act next."""
    deadline_at: datetime | None = None
    deadline_event: str = ""
    """The event that the timer brings then."""
    accepts: tuple[EventView, ...] = ()
    """The events that may be sent to it now."""


class KindView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A kind that this server keeps for its users."""

    name: str
    doc: str
    states: tuple[str, ...]
    initial: str
    ended: tuple[str, ...]
    events: tuple[EventView, ...]
    fields: tuple[str, ...] = ()
    """What its data have; a field with a default has a question mark."""
    labels: tuple[str, ...] = ()
    """Fields of its data that records are found by."""
    create: str = ""
    read: str = ""
