"""Options of the clients by name, for type checkers; `Unpack` makes keyword arguments of them.

`interlock.sync` hands them on as they are, so that its methods take the same as those of `interlock.client`.
"""

from __future__ import annotations

from typing import TypedDict

from interlock.worker.schedules import ScheduleOptions


class ChangeOptions(TypedDict, total=False):
    """Options of every change: its reason, and the idempotency key of the request."""

    reason: str
    request_id: str | None


class CreateScheduleOptions(ScheduleOptions, total=False):
    """Options of `schedules.create`."""

    update: bool
    request_id: str | None


class BackfillOptions(ChangeOptions, total=False):
    """Options of `schedules.backfill`."""

    queued: bool
    dry_run: bool


class RetryLetterOptions(ChangeOptions, total=False):
    """Options of `dead_letters.retry`."""

    input: object


class ManyLettersOptions(TypedDict, total=False):
    """Options of `dead_letters.retry_all` and `discard_all`."""

    reason: str
    limit: int


class LimitOptions(TypedDict, total=False):
    """Options of `limits.set`."""

    max: int | None
    rate: int | None
    period_s: float
    burst: int | None
    description: str
    request_id: str | None


class FindSimulationsOptions(TypedDict, total=False):
    """Options of `simulations.find`."""

    statuses: tuple[str, ...]
    priority: str
    text: str
    limit: int
    cursor: str


class TransitionOptions(ChangeOptions, total=False):
    """Options of `simulations.transition`."""

    expected_version: int | None
    worker_id: str | None
    step: int | None
    error: str
