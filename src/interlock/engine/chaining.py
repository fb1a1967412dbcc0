"""A journal that shows when somebody has tampered with it.

Each entry's hash covers the entry and the hash before it, and the record carries the newest one. An
entry that is changed, removed or slipped in later breaks the chain of its record. The chain is per
record, so that nobody has to wait for anybody else.
"""

from __future__ import annotations

import hashlib

import msgspec

from interlock.store.records import Change, Note


def chained(previous: str, change: Change) -> Change:
    """The change with the hash of its note, which follows `previous`; without a note it keeps that."""
    if change.note is None:
        return msgspec.structs.replace(change, chain=previous)
    link = link_of(previous, change.kind, change.id, change.expected + 1, change.note)
    return msgspec.structs.replace(change, chain=link)


def link_of(previous: str, kind: str, name: str, version: int, note: Note) -> str:
    """The hash of one entry after another."""
    content = msgspec.json.encode((previous, kind, name, version, note))
    return hashlib.sha256(content).hexdigest()
