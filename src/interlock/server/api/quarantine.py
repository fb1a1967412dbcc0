"""Runners that keep losing work: who they are, and how one is given work again."""

from __future__ import annotations

from typing import Annotated

import msgspec

from interlock.errors import UnknownWorker
from interlock.server.routes import Call, Route
from interlock.systems.access.principals import Role
from interlock.wire.workers import Standings, StandingView


class LiftRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runner is in order again."""

    runner: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


async def list_standings(call: Call) -> Standings:
    """Every runner that has lost work lately."""
    return Standings(runners=tuple(await call.parts.runtime.quarantine.list()))


async def lift(call: Call) -> StandingView:
    """Give a runner work again."""
    asked: LiftRequest = call.body
    return await call.parts.runtime.quarantine.lift(asked.runner, actor=call.actor, reason=asked.reason)


ROUTES = (
    Route(
        method="GET",
        path="/api/quarantine",
        name="listQuarantine",
        summary="List the runners that have lost work lately, and those that are given none because of it.",
        handler=list_standings,
        role=Role.VIEWER,
        everything=True,
        answer=Standings,
    ),
    Route(
        method="POST",
        path="/api/quarantine/lift",
        name="liftQuarantine",
        summary="Give a runner work again that was quarantined.",
        handler=lift,
        role=Role.OPERATOR,
        everything=True,
        bodies=(LiftRequest,),
        answer=StandingView,
        errors=(UnknownWorker,),
        example={"runner": "build-7", "reason": "the disk was full"},
    ),
)
