"""What has to be known of a tree before somebody decides about it: read, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.trees.body import OPEN, TreeBody, decode_tree, tree_key
from interlock.systems.orchestrator.trees.notifications import ENDED, WAITS, TreeWord
from interlock.systems.orchestrator.trees.slots import TreeSlots

LIVING = tuple(str(state) for state in JOB.states if state not in JOB.terminal)
PAGE = 200


class Look(msgspec.Struct, kw_only=True):
    """A tree and those of its jobs that matter now."""

    root_id: str
    tree: Record
    seating: TreeSlots
    """After what was heard; the record is as it was before."""
    root: Record | None
    candidates: list[Record]
    """Parents that may go on, since none of their children is left; in the order of the line."""
    held: list[Record]
    """Children that are held back, in the order of the line."""
    searched: set[str]
    """Parents of which all children that are held back are among those."""

    @property
    def records(self) -> list[Record]:
        """Everything that a commit may change."""
        return [self.tree, *self.candidates, *self.held]


async def look_at(
    store: Store, root_id: str, words: Sequence[TreeWord], quotas: Sequence[int]
) -> Look | None:
    """The tree after these words; None when there is none any more."""
    tree, root = await store.load([tree_key(root_id), Key(JOB.name, root_id)])
    if tree is None or tree.state != OPEN:
        return None
    seating = TreeSlots(decode_tree(tree), quotas)
    await _hear(store, seating, words)
    look = Look(
        root_id=root_id, tree=tree, seating=seating, root=root, candidates=[], held=[], searched=set()
    )
    look.candidates = await _free_parents(store, seating.body, words)
    await _find_held(store, look)
    return look


async def _hear(store: Store, seating: TreeSlots, words: Sequence[TreeWord]) -> None:
    for word in words:
        if word.what == ENDED:
            seating.leave(word.job_id)
    waits = [Key(JOB.name, word.job_id) for word in words if word.what == WAITS]
    for record in await store.load(waits) if waits else []:
        if record is not None and record.state not in job.ENDED:
            seating.wait(record.id, decode_body(record.body))


async def _free_parents(store: Store, body: TreeBody, words: Sequence[TreeWord]) -> list[Record]:
    """Of those that a word is about, whoever has no child left; and those who are in line already."""
    concerned = {word.parent_id if word.what == ENDED else word.job_id for word in words}
    free = [*body.returning]
    for parent_id in [each for each in body.waiting if each in concerned]:
        living = await store.find(Query(kind=JOB.name, parent=parent_id, states=LIVING, limit=1))
        if not living.records:
            free.append(parent_id)
    found = await store.load([Key(JOB.name, each) for each in free]) if free else []
    return [record for record in found if record is not None]


async def _find_held(store: Store, look: Look) -> None:
    """Children that are held back, as many as there may be room for; none of a parent that is stopped."""
    seating = look.seating
    room = {depth: seating.room(depth) for depth in seating.body.holding.values()}
    wanted = [each for each, depth in seating.body.holding.items() if room[depth] > 0]
    parents = await store.load([Key(JOB.name, each) for each in wanted]) if wanted else []
    for parent_id, parent in zip(wanted, parents, strict=True):
        depth = seating.body.holding[parent_id]
        held, whole = await _held_below(store, parent_id, room[depth])
        if held and parent is not None and _is_stopped(parent):
            continue  # they are stopped with it
        look.held += held
        room[depth] -= len(held)
        if whole:
            look.searched.add(parent_id)


async def _held_below(store: Store, parent_id: str, most: int) -> tuple[list[Record], bool]:
    """Children of a job that are held back, oldest first; and whether these are all of them."""
    query = Query(kind=JOB.name, parent=parent_id, states=(job.PENDING,), newest_first=False, limit=PAGE)
    held: list[Record] = []
    while most > 0:
        page = await store.find(query)
        found = [each for each in page.records if each.ready_at is None]
        held += found[: most - len(held)]
        if len(held) < len(found) or (len(held) >= most and page.cursor):
            return held, False
        if not page.cursor:
            return held, True
        query = msgspec.structs.replace(query, cursor=page.cursor)
    return held, False


def _is_stopped(parent: Record) -> bool:
    return decode_body(parent.body).data.stop_reason is not None
