"""A tree of jobs as it is shown, and children as their parent is told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from interlock.engine.unit_of_work import Engine
from interlock.errors import UnknownLease
from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.answers import raise_for_answer
from interlock.systems.orchestrator.body import JobBody, decode_body, given_of
from interlock.systems.orchestrator.runner_messages import decide_message
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import Token, read_token
from interlock.systems.orchestrator.trees.slots import waits_for_children, waits_for_place
from interlock.systems.orchestrator.views import apart, failure_view, result_of
from interlock.wire.runner import Heartbeat
from interlock.wire.trees import ChildPage, ChildView, TreeNode, TreeView

PAGE = 100
"""How many children are told of at once: each may have a large result."""


async def tree_below(
    store: Store, root: Record, most: int, sees: Callable[[str], bool] | None = None
) -> TreeView:
    """A job and those below it, level by level, until there are too many; none of a queue that is hidden."""
    records, below, cut, hidden = [root], dict[str, list[Record]](), False, False
    level = [root]
    while level and not cut:
        parents = [record for record in level if decode_body(record.body).children]
        level = []
        for parent in parents:
            room = most - len(records)
            found, more = await _children(store, parent.id, room)
            seen = [each for each in found if sees is None or sees(each.queue or "")]
            below[parent.id] = seen
            records += seen
            level += seen
            hidden = hidden or len(seen) < len(found)
            if cut := more:
                break
    return _view(root, below, cut=cut or hidden)


async def _children(store: Store, parent_id: str, most: int) -> tuple[list[Record], bool]:
    found: list[Record] = []
    query = Query(kind=JOB.name, parent=parent_id, newest_first=False, limit=min(most + 1, 1_000))
    while True:
        page = await store.find(query)
        found += page.records
        if len(found) > most:
            return found[:most], True
        if not page.cursor:
            return found, False
        query = msgspec.structs.replace(query, cursor=page.cursor)


def _view(root: Record, below: Mapping[str, Sequence[Record]], *, cut: bool) -> TreeView:
    costs: dict[str, float | None] = {}
    nodes = list(_nodes(root, below, 0, costs))
    nodes = [msgspec.structs.replace(node, tree_cost=costs[node.id]) for node in nodes]
    states = Counter(node.state for node in nodes)
    return TreeView(root_id=root.id, nodes=tuple(nodes), states=dict(states), cut=cut)


def _nodes(
    record: Record, below: Mapping[str, Sequence[Record]], depth: int, costs: dict[str, float | None]
) -> Iterator[TreeNode]:
    """From top to bottom; on the way back, what everything below has cost."""
    node = _node(record, decode_body(record.body), depth)
    yield node
    spent = [node.cost]
    for child in below.get(record.id, ()):
        yield from _nodes(child, below, depth + 1, costs)
        spent.append(costs[child.id])
    costs[record.id] = total(spent)


def _node(record: Record, body: JobBody, depth: int) -> TreeNode:
    shown = [one.progress for one in body.attempts if one.progress is not None]
    return TreeNode(
        id=record.id,
        task=body.task,
        state=str(record.state),
        queue=record.queue or "",
        depth=depth,
        parent_job_id=record.parent if body.run is None else None,
        description=given_of(record).description,
        created_at=record.created_at,
        started_at=body.data.started_at,
        completed_at=body.data.completed_at,
        progress=shown[-1] if shown else None,
        waits_for=held_by(body),
        failure=failure_view(body.failure),
        stop_reason=body.data.stop_reason,
        cost=cost_of(body),
        children=body.children,
    )


def held_by(body: JobBody) -> str:
    """What of its tree a job waits for, if anything."""
    if any(map(waits_for_children, body.attempts)):
        return "children"
    return "place" if any(waits_for_place(one, body) for one in body.attempts) else ""


def cost_of(body: JobBody) -> float | None:
    """What its attempts have cost."""
    return total([one.cost for one in body.attempts])


def total(costs: Sequence[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


async def children_of(
    engine: Engine,
    settings: OrchestratorSettings,
    token_text: str,
    runner_id: str,
    cursor: str,
    sees: Callable[[str], bool] | None = None,
) -> ChildPage:
    """A page of the children of the job that the token is about, with their results."""
    token = read_token(token_text)
    if token is None:
        raise UnknownLease("This is not the token of a lease.", todo="Ask for work first.")
    (parent,) = await engine.store.load([Key(JOB.name, token.job_id)])
    _check_lease(parent, token, token_text, runner_id, await engine.clock.now(), settings)
    query = Query(kind=JOB.name, parent=token.job_id, newest_first=False, cursor=cursor, limit=PAGE)
    page = await engine.store.find(query)
    records = [record for record in page.records if sees is None or sees(record.queue or "")]
    keys = [key for record in records for key in apart(record)]
    found = await engine.store.load(keys) if keys else []
    kept = {each.id: msgspec.Raw(each.body) for each in found if each is not None}
    return ChildPage(children=tuple(_child(record, kept) for record in records), cursor=page.cursor)


def _check_lease(
    record: Record | None,
    token: Token,
    token_text: str,
    runner_id: str,
    now: datetime,
    settings: OrchestratorSettings,
) -> None:
    """Whoever would not be heard is not told either; it is only asked, and nothing is written."""
    said = Heartbeat(token=token_text, runner_id=runner_id)
    raise_for_answer(decide_message(record, token, said, now, "", settings).answer)


def _child(record: Record, kept: Mapping[str, msgspec.Raw]) -> ChildView:
    body = decode_body(record.body)
    return ChildView(
        id=record.id,
        task=body.task,
        state=str(record.state),
        result=result_of(record, body, kept),
        failure=failure_view(body.failure),
        stop_reason=body.data.stop_reason,
        cost=cost_of(body),
    )
