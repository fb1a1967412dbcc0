"""What those are told whom the consequence of a step reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from interlock.lifecycles import attempt, job
from interlock.lifecycles.couplings import Facts
from interlock.machine import Coupling, Event
from interlock.systems.orchestrator.body import AttemptBody
from interlock.systems.orchestrator.lines import named, timed

Maker: TypeAlias = Callable[[Any, AttemptBody | None], Event]
"""From the draft of a job and one of its attempts to what is said."""


def maker_of(coupling: Coupling[Facts]) -> Maker:
    """Makes what its receiver is told; an event that carries nothing is the same every time."""
    event = coupling.event
    if event is None:
        return _nothing
    return _MAKERS.get(event) or (lambda _, __: named(event))


def _nothing(_: Any, __: AttemptBody | None) -> Event:
    raise AssertionError("who is created is told nothing")


_COMPLETED = {succeeded: attempt.Completed(succeeded=succeeded) for succeeded in (True, False)}
_MAKERS: dict[type[Event], Maker] = {
    job.AllocateResources: lambda draft, _: timed(job.AllocateResources, draft.now),
    job.Success: lambda draft, _: timed(job.Success, draft.now),
    job.Error: lambda draft, _: timed(job.Error, draft.now),
    job.Cancel: lambda draft, _: job.Cancel(
        at=draft.now, still_active=draft.body.active, reason=draft.stop_reason
    ),
    attempt.Completed: lambda _, one: _COMPLETED[one is not None and one.failure is None],
}
