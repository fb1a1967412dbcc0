"""Limits that programs declare: `@task(limit=5)` and `[limits.NAME]`, and their registration by a worker.

A declaration changes earlier ones. A limit that was set by hand stays as it was set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from interlock.errors import InterlockError, InvalidArguments, StoreUnavailable
from interlock.wire.limits import TASK_PREFIX, LimitSpec

if TYPE_CHECKING:  # a client that submits needs no log
    from structlog.typing import FilteringBoundLogger

CODE, PROJECT = "code", "interlock.toml"


class DeclaredLimit(msgspec.Struct, frozen=True):
    """A limit as it was declared, and where."""

    spec: LimitSpec
    source: str = CODE


@runtime_checkable
class LimitPort(Protocol):
    """A port behind which limits are kept."""

    async def declare_limit(self, name: str, spec: LimitSpec, source: str) -> None:
        """Declare a limit; the same again changes nothing."""
        ...


def limit_of_task(task: str, limit: object) -> tuple[str, DeclaredLimit]:
    """Return the limit of all jobs of a task, by its name."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidArguments(
            f"The task {task} cannot have limit={limit!r}.",
            todo="Give the number of its jobs that may run at the same time, such as limit=5; name limits "
            'that several tasks share with limits=["vendor-x"].',
            facts={"task": task, "option": "limit"},
        )
    return f"{TASK_PREFIX}{task}", DeclaredLimit(LimitSpec(max=limit))


async def declare_limits(
    port: object, limits: Mapping[str, DeclaredLimit], log: FilteringBoundLogger
) -> None:
    """Register limits; log those that are refused."""
    if not limits:
        return
    if not isinstance(port, LimitPort):
        log.warning("limits_not_registered", names=sorted(limits))
        return
    for name, declared in limits.items():
        try:
            await port.declare_limit(name, declared.spec, declared.source)
        except StoreUnavailable:
            raise
        except InterlockError as error:
            log.warning("limit_not_registered", name=name, error=error.sentence, todo=error.todo)
        else:
            log.debug("limit_registered", name=name)
