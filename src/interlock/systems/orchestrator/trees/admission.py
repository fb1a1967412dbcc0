"""What becomes of a tree and its jobs when places have become free. Pure."""

from __future__ import annotations

from datetime import datetime

from interlock.lifecycles import job
from interlock.store.records import Change, Commit
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.trees.body import tree_change
from interlock.systems.orchestrator.trees.reads import Look
from interlock.systems.orchestrator.trees.slots import let_in


def tended(look: Look, now: datetime, mark: str, settings: OrchestratorSettings) -> Commit:
    """Parents whose children have ended go on first, then whoever was held back is let in, oldest first."""
    changes = [*_woken(look, now, mark, settings), *_let_in(look, now, mark, settings)]
    over = look.seating.body.empty and (look.root is None or look.root.state in job.ENDED)
    tree = tree_change(look.root_id, look.tree, look.seating.body, mark=mark, over=over)
    return Commit(changes=(tree, *changes))


def _woken(look: Look, now: datetime, mark: str, settings: OrchestratorSettings) -> list[Change]:
    changes = []
    for record in look.candidates:
        draft = JobAggregate.of(record, now, settings)
        look.seating.come_back(record.id, draft)
        if draft.taken:
            changes.append(draft.change(mark=mark, actor="orchestrator", reason="its children have ended"))
    return changes


def _let_in(look: Look, now: datetime, mark: str, settings: OrchestratorSettings) -> list[Change]:
    changes: list[Change] = []
    full: set[int] = set()
    left = dict.fromkeys(look.searched)
    for record in look.held:
        draft = JobAggregate.of(record, now, settings)
        depth, workers = draft.body.data.depth, draft.body.data.worker_count
        if depth in full or workers > look.seating.room(depth):
            full.add(depth)  # whoever needs more places than others must not be overtaken for ever
            left.pop(record.parent or "", None)
            continue
        let_in(draft)
        look.seating.let_in(record.id, depth, workers)
        changes.append(draft.change(mark=mark, actor="orchestrator", reason="its tree has a place for it"))
    for parent_id in left:
        look.seating.body.holding.pop(parent_id, None)
    return changes
