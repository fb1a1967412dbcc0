"""Why a job of a tree is held back, by the same guards that hold it back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Count, Key, Query, Record
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body
from interlock.systems.orchestrator.trees.reads import LIVING
from interlock.systems.orchestrator.trees.slots import waits_for_children, waits_for_place


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a tree beside the record of one of its jobs."""

    left: Count | None = None
    """How many of its children have not ended."""
    places: int | None = None
    """How many workers there may be at its depth."""
    parent_stops: bool = False


ALONE = Around()
"""Nobody has looked around."""


async def look_around(store: Store, record: Record, quotas: Sequence[int]) -> Around:
    """What there is to know where a job is held back; nothing is looked at for any other."""
    body = decode_body(record.body)
    places = quotas[body.data.depth]
    if any(map(waits_for_children, body.attempts)):
        left = await store.count(Query(kind=JOB.name, parent=record.id, states=LIVING))
        return Around(left=left, places=places)
    if record.parent is not None and any(waits_for_place(one, body) for one in body.attempts):
        (parent,) = await store.load([Key(JOB.name, record.parent)])
        stops = parent is not None and decode_body(parent.body).data.stop_reason is not None
        return Around(places=places, parent_stops=stops)
    return ALONE


def held_back(one: AttemptBody, record: Record, body: JobBody, around: Around) -> str | None:
    """What of its tree an attempt waits for, in words; None when it is something else."""
    if waits_for_children(one):
        if around.left is not None and not around.left.number:
            return f"Its children have ended, and it waits for a place{_in_tree(record, body, around)}."
        many = "" if around.left is None else f": {_many(around.left)} of {body.children} have not ended"
        return f"It waits for its children{many}, and it holds no lease meanwhile."
    if not waits_for_place(one, body):
        return None
    if around.parent_stops:
        return f"It waits to be stopped with its parent {record.parent}, and is not given out any more."
    return f"It waits for a place{_in_tree(record, body, around)}."


def _in_tree(record: Record, body: JobBody, around: Around) -> str:
    root_id = body.tree.root_id if body.tree is not None else record.id
    if around.places is None:
        return f" in the tree of {root_id}"
    workers = f"{around.places} worker{'s' if around.places != 1 else ''}"
    return f" in the tree of {root_id}: at depth {body.data.depth} it has {workers} at a time"


def _many(left: Count) -> str:
    return f"{left.number}{' or more' if left.capped else ''}"
