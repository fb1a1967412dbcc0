"""How it goes: figures over time, and what is wrong now."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.server.routes import Call, Confined, Route
from interlock.systems.access.principals import Role
from interlock.systems.figures.chart import LONGEST_MIN, Question
from interlock.wire.figures import FiguresView
from interlock.wire.overview import OverviewView


class FiguresQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which figures, and of how long."""

    minutes: Annotated[
        int, Meta(ge=1, le=LONGEST_MIN, description="How many minutes up to now; 10080 are seven days.")
    ] = 60
    queue: Annotated[str, Meta(max_length=64, description="Of this queue only.")] = ""
    task: Annotated[str, Meta(max_length=200, description="Of this task only.")] = ""


async def get_figures(call: Call) -> FiguresView:
    """Figures of the queues that can be seen."""
    asked: FiguresQuery = call.query
    if asked.queue:
        call.principal.need_queues([asked.queue])
    question = Question(
        minutes=asked.minutes, queue=asked.queue, task=asked.task, queues=frozenset(call.principal.queues)
    )
    return await call.parts.runtime.figures.read(question)


async def get_overview(call: Call) -> OverviewView:
    """Numbers and findings about the queues that can be seen."""
    return await call.parts.overview.take(frozenset(call.principal.queues))


ROUTES = (
    Route(
        method="GET",
        path="/api/figures",
        name="getFigures",
        summary="Show what happened to jobs over time: counts, durations and backlog.",
        handler=get_figures,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        query=FiguresQuery,
        answer=FiguresView,
    ),
    Route(
        method="GET",
        path="/api/overview",
        name="getOverview",
        summary="Show what is wrong now, in sentences with a remedy for each, and a few live numbers.",
        handler=get_overview,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        answer=OverviewView,
    ),
)
