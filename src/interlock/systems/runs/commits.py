"""A run as it has become, with everything that must become true with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from interlock.engine.outbox import outgoing
from interlock.lifecycles import run
from interlock.store.records import Change, Commit, Request
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.orders import Order, order_change, orders_of

PLANS = "run.plan"
"""The topic under which runs ask to be planned."""
REPORTS = "run.report"
"""The topic under which outcomes are to be reported."""


class About(msgspec.Struct, frozen=True):
    """A message that is about a run, and says no more."""

    run_id: str


class RunCommit(msgspec.Struct, frozen=True):
    """A commit, and the orders in it that whoever commits it carries out at once."""

    commit: Commit
    orders: tuple[tuple[Order, Change], ...] = ()
    mentioned: str = ""
    """The id of the run, when it is worth a mention that it is on its way."""
    decided: bool = False
    """Its outcome is."""


def commit_of(
    draft: RunAggregate,
    *,
    mark: str,
    actor: str,
    reason: str = "",
    more: Iterable[Change] = (),
    request: Request | None = None,
    taken: bool = True,
) -> RunCommit:
    """The run, its orders, and word of its outcome once that is decided."""
    change = draft.change(mark=mark, actor=actor, reason=reason)
    orders = [
        (order, order_change(order, f"{draft.id}.{change.expected}.{n}", draft.now, mark, taken=taken))
        for n, order in enumerate(orders_of(draft))
    ]
    changes = [change, *(each for _, each in orders), *more]
    if draft.is_decided:
        changes.append(about(draft, REPORTS, "report", mark))
    commit = Commit(changes=tuple(changes), request=request)
    lines = draft.lines
    on_its_way = lines and lines[-1].target in (run.AWAITING_APPROVAL, *run.PLANNED)
    mentioned = draft.id if on_its_way else ""
    return RunCommit(commit, tuple(orders) if taken else (), mentioned, draft.is_decided)


def about(draft: RunAggregate, topic: str, word: str, mark: str) -> Change:
    """A message that something is to be done about the run."""
    return outgoing(f"{draft.id}.{word}", topic, msgspec.json.encode(About(draft.id)), draft.now, mark=mark)
