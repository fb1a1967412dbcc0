"""The record of a tree of jobs: which of them may be at work, and who waits for what.

It begins with the first child and is closed when nothing of the tree is left. It counts nothing: it
names the jobs that were let in, each with the workers that it takes, and a name is taken out by the
word of that very job. So hearing something twice changes nothing, and nothing can drift.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.engine.write_once import WriteOnce
from interlock.machine import command, consequence, end, state
from interlock.store.records import Change, Key, Record


class TreeState(StrEnum):
    """Where a tree stands."""

    OPEN = "open"
    CLOSED = "closed"
    DROPPED = "dropped"


OPEN, CLOSED, DROPPED = TreeState.OPEN, TreeState.CLOSED, TreeState.DROPPED

close = command("close", "Nothing of the tree is left.", by="orchestrator")
drop = consequence("drop", "Nobody wants it any more.", by="operator")

TREE = WriteOnce(
    "tree",
    "Which jobs of a tree may be at work at the same time.",
    opened=state(OPEN, "Some job of it has not ended.", turn="orchestrator"),
    settled=end(CLOSED, "Every job of it has ended."),
    dropped=end(DROPPED, "Not wanted any more."),
    settle=close,
    why="Its root and all below it have ended.",
    drop=drop,
)


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a job that was let in takes."""

    depth: int
    workers: int


class TreeBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything about a tree that is not in its jobs."""

    inside: dict[str, Seat] = {}
    """Jobs that were let in and have not ended, in the order in which they came."""
    waiting: dict[str, int] = {}
    """Parents that have given their place back until their children have ended, with their depth."""
    returning: dict[str, int] = {}
    """Those of them whose children have ended, and which have no place yet."""
    holding: dict[str, int] = {}
    """Parents of which some child may be held back, with the depth of their children."""

    @property
    def empty(self) -> bool:
        """Nobody is in it and nobody wants to be."""
        return not (self.inside or self.waiting or self.returning or self.holding)


def tree_key(root_id: str) -> Key:
    """Where the record of a tree is."""
    return Key(TREE.name, root_id)


def decode_tree(record: Record | None) -> TreeBody:
    """A working copy; an empty one for a tree that begins."""
    return msgspec.json.decode(record.body, type=TreeBody) if record is not None else TreeBody()


def tree_change(root_id: str, record: Record | None, body: TreeBody, *, mark: str, over: bool) -> Change:
    """Return the tree as it shall become; `over` closes it."""
    encoded = msgspec.json.encode(body)
    return TREE.change(root_id, encoded, settle=over, before=record, actor="orchestrator", mark=mark)


class TreePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a job that has a parent knows of its tree."""

    root_id: str
    if_fails: str = "ignore"
    """What its failure does to its parent and to its siblings."""
    not_before: datetime | None = None
    """When it is held back: from when on it was to be ready."""
