"""Counting by hand: rounds happen when a test says so."""

from __future__ import annotations

from typing import Any

from tests.systems.orchestrator.house import House

from interlock.systems.figures.figures import ENTRIES, Figures, Question
from interlock.wire.figures import Figure, FiguresView
from interlock.wire.jobs import RetryRule

AT_ONCE_S = -3_600.0
"""A spacing with which no round is left out, however the clocks of store and host differ."""
FLAKY = {"flaky": RetryRule(retries=2, first_pause_s=0.0, jitter=0.0)}


def counter(house: House) -> Figures:
    """Return what one server counts with."""
    return Figures(house.port.services.engine, spacing_s=AT_ONCE_S)


async def count(figures: Figures) -> None:
    """Count everything that there is by now."""
    while await figures.round() >= ENTRIES:
        pass


async def seen(house: House, minutes: int = 60, **fields: Any) -> FiguresView:
    """Return what somebody is shown who asks for the first time."""
    return await counter(house).read(Question(minutes=minutes, **fields))


def counts(figure: Figure) -> tuple[int, int, int, int, int]:
    """Return submitted, completed, failed, canceled, retried."""
    return figure.submitted, figure.completed, figure.failed, figure.canceled, figure.retried
