"""The client behind `Interlock.limits`.

await il.limits.set("vendor-x", max=5)
await il.submit(call_vendor, order=17, limits=["vendor-x"])
for key in (await il.limits.get("vendor-x")).keys:
    print(key.used, "of", key.max, "in use,", key.waiting, "waiting")
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.remote.interfaces import Services
from interlock.remote.limits import LimitsApi
from interlock.wire.limits import LimitSpec, LimitView


class LimitsClient:
    """The limits of a store, or of a server before one."""

    def __init__(self, here: Callable[[], Services], actor: str) -> None:
        self._here = here
        self._actor = actor

    @property
    def _limits(self) -> LimitsApi:
        return self._here().limits

    async def set(
        self,
        name: str,
        *,
        max: int | None = None,  # noqa: A002 - as the limit calls it
        rate: int | None = None,
        period_s: float = 1.0,
        burst: int | None = None,
        description: str = "",
        request_id: str | None = None,
    ) -> LimitView:
        """Declare a limit, or change it.

        `name` is a key that jobs name (`vendor-x`), a pattern for many keys of which each has its own slots
        (`tenant:*`), or all jobs of a queue or task (`queue:imports`, `task:shop.tasks.call`). `max` jobs run
        at the same time; `rate` jobs start in each period, and up to `burst` (default: `rate`) at once.
        """
        spec = LimitSpec(max=max, rate=rate, period_s=period_s, burst=burst, description=description)
        return await self._limits.set(name, spec, actor=self._actor, request_id=request_id)

    async def delete(self, name: str, *, reason: str = "", request_id: str | None = None) -> LimitView:
        """Delete a limit; jobs that wait for it are admitted. Return it as it was."""
        return await self._limits.delete(name, reason=reason, actor=self._actor, request_id=request_id)

    async def get(self, name: str) -> LimitView:
        """Return a limit with the jobs that hold its slots, and how many wait."""
        return await self._limits.get(name)

    async def list(self) -> list[LimitView]:
        """Return all limits, by name, with the keys that are in use."""
        return await self._limits.list()
