"""A task that waits in a process of its own, in a module that such a process can import."""

from __future__ import annotations

from interlock import Context, Registry
from interlock.errors import WaitTimeout

REGISTRY = Registry()


@REGISTRY.task(name="apart", executor="process")
def apart(ctx: Context) -> list[object]:
    """Return what came, and what did not."""
    first = ctx.wait_for_sync("first", timeout="2h")
    try:
        ctx.wait_for_sync("second", timeout="1h")
    except WaitTimeout as error:
        return [first, str(error), ctx.attempt]
    return []
