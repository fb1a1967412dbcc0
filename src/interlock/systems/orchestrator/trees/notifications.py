"""What a job tells its tree: that it has ended, or that it waits for its children.

As with runs, a word is a message in the very commit that makes it true: so none is lost, and whoever
keeps trees takes many of them at once. A job without parent and children has nobody to tell.
"""

from __future__ import annotations

import msgspec

from interlock.engine.outbox import outgoing
from interlock.lifecycles.couplings import Receiver
from interlock.store.records import Change
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.trees.slots import waits_for_children

TREES = "job.tree"
"""The topic under which trees hear of their jobs."""
CANCEL_CHILDREN = "job.cancel_children"
"""The topic under which a stopped job's children are told."""
TREE_TOPICS = (TREES, CANCEL_CHILDREN)

ENDED, WAITS = "ended", "waits"
_ENCODER = msgspec.json.Encoder()


class TreeWord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job of a tree has taken a step that concerns the tree."""

    root_id: str
    job_id: str
    what: str
    parent_id: str | None = None
    fails_parent: bool = False
    stops_siblings: bool = False


def tree_words_of(draft: JobAggregate) -> tuple[Change, ...]:
    """The word of this step, if it has one."""
    part = draft.body.tree
    if part is None and not draft.body.children:
        return ()
    if (what := _what(draft)) is None:
        return ()
    told = {coupling.to for coupling, _ in draft.outward}
    word = TreeWord(
        root_id=part.root_id if part is not None else draft.id,
        job_id=draft.id,
        what=what,
        parent_id=draft.place.parent if draft.body.run is None else None,
        fails_parent=Receiver.ITS_PARENT in told,
        stops_siblings=Receiver.ITS_SIBLINGS in told,
    )
    return (outgoing(f"{draft.id}.tree.{draft.version}", TREES, _ENCODER.encode(word), draft.now),)


def _what(draft: JobAggregate) -> str | None:
    if draft.ended:
        return ENDED
    begun = (one for one in draft.body.attempts if one.created_at == draft.now)
    return WAITS if any(map(waits_for_children, begun)) else None
