"""Middleware and tasks for processes of their own: such a process imports them from here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

from interlock.wire.jobs import JobSpec
from interlock.worker.context import Context
from interlock.worker.tasks import Registry

REGISTRY = Registry()
TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")
HEARD: list[str] = []


@REGISTRY.middleware
def outer(ctx: Context) -> Iterator[None]:
    TENANT.set(ctx.metadata.get("tenant", "none"))
    HEARD.append("outer")
    yield


@REGISTRY.middleware
class Inner:
    def submit(self, spec: JobSpec) -> JobSpec:
        return spec.with_metadata(by="Inner")

    async def handle(self, ctx: Context) -> AsyncIterator[None]:
        HEARD.append(f"inner of {TENANT.get()}")
        TENANT.set(TENANT.get().upper())
        try:
            yield
        except LookupError as error:
            raise ValueError(f"{ctx.task} found nothing") from error


@REGISTRY.task(name="middleware.def", executor="process")
def plain(fail: bool = False) -> list[str]:
    if fail:
        raise LookupError("nothing")
    return [*HEARD, TENANT.get()]


@REGISTRY.task(name="middleware.async", executor="process")
async def waiting(fail: bool = False) -> list[str]:
    return plain.function(fail)
