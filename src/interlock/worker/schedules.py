"""Schedules that programs declare: `@schedule`, `@task(every=...)`, and their registration by a worker.

    @schedule("0 2 * * *", tz="Europe/Berlin")
    @task(queue="reports")
    async def nightly_report() -> None: ...

A worker registers the schedules of its module when it starts. An unchanged declaration has no effect, a
changed one updates the schedule, and a paused schedule stays paused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

import msgspec

from interlock.errors import InterlockError, InvalidSchedule, StoreUnavailable
from interlock.text import read_duration
from interlock.wire.jobs import JobSpec
from interlock.wire.schedules import NAME, CatchUp, Overlap, ScheduleSpec
from interlock.worker.codec import decoding_error

if TYPE_CHECKING:  # a client that submits needs no log
    from structlog.typing import FilteringBoundLogger

CODE, PROJECT = "code", "interlock.toml"


class DeclaredSchedule(msgspec.Struct, frozen=True):
    """A schedule as it was declared, and where."""

    spec: ScheduleSpec
    source: str = CODE


@runtime_checkable
class SchedulePort(Protocol):
    """A port that stores schedules."""

    async def declare_schedule(self, name: str, spec: ScheduleSpec, source: str) -> None:
        """Create or update a schedule; idempotent."""
        ...


class ScheduleOptions(TypedDict, total=False):
    """Options of `schedule_spec`, for type checkers."""

    cron: str
    every: str
    at: str | datetime | Sequence[str | datetime]
    tz: str
    start: str | date
    end: str | date
    exclude: str | date | Sequence[str | date]
    jitter: str
    catch_up: CatchUp
    catch_up_limit: int
    overlap: Overlap


def schedule_spec(
    job: JobSpec,
    when: str = "",
    *,
    cron: str = "",
    every: str = "",
    at: str | datetime | Sequence[str | datetime] = (),
    tz: str = "UTC",
    start: str | date = "",
    end: str | date = "",
    exclude: str | date | Sequence[str | date] = (),
    jitter: str = "",
    catch_up: CatchUp = "latest",
    catch_up_limit: int = 10,
    overlap: Overlap = "skip",
) -> ScheduleSpec:
    """Return a schedule that submits this job; raise if it is invalid.

    `when` is an interval ("15m") or a cron expression. Times are text or datetimes.
    """
    if when:
        cron, every = ("", when) if _is_interval(when) else (when, "")
    given = {
        "job": job,
        "cron": cron,
        "every": every,
        "at": tuple(map(_text, _several(at))),
        "tz": tz,
        "start": _text(start),
        "end": _text(end),
        "exclude": tuple(map(_text, _several(exclude))),
        "jitter": jitter,
        "catch_up": catch_up,
        "catch_up_limit": catch_up_limit,
        "overlap": overlap,
    }
    return read_schedule(given)


def read_schedule(given: Mapping[str, Any]) -> ScheduleSpec:
    """Return a schedule from plain values; raise if it is invalid."""
    from interlock.wire.calendar import Calendar  # noqa: PLC0415 - most programs declare none

    try:
        spec = msgspec.json.decode(msgspec.json.encode(given), type=ScheduleSpec)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidSchedule(
            f"The schedule does not fit: {decoding_error(error)}.",
            todo=f"It has a job, and any of: {', '.join(ScheduleSpec.__struct_fields__[1:])}.",
            facts={"cause": decoding_error(error)},
        ) from None
    Calendar(spec)
    return spec


def checked_name(name: str) -> str:
    """Return the name of a schedule; raise if it is invalid."""
    if re.fullmatch(NAME, name):
        return name
    raise InvalidSchedule(
        f"A schedule cannot be called {name[:64]!r}.",
        todo='Name it, as in @schedule("@daily", name="report"): 1 to 60 letters, digits, dots, _ and -.',
        facts={"schedule": name[:64]},
    )


async def declare(port: object, schedules: Mapping[str, DeclaredSchedule], log: FilteringBoundLogger) -> None:
    """Register schedules; log those that are refused."""
    if not schedules:
        return
    if not isinstance(port, SchedulePort):
        log.warning("schedules_not_registered", names=sorted(schedules))
        return
    for name, declared in schedules.items():
        try:
            await port.declare_schedule(name, declared.spec, declared.source)
        except StoreUnavailable:
            raise
        except InterlockError as error:
            log.warning("schedule_not_registered", name=name, error=error.sentence, todo=error.todo)
        else:
            log.debug("schedule_registered", name=name)


def _is_interval(text: str) -> bool:
    try:
        read_duration(text)
    except ValueError:
        return False
    return True


def _several(value: Any) -> Sequence[Any]:
    return (value,) if isinstance(value, str | date) and value else value or ()


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)
