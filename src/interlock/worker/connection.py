"""The connection of a worker's main loop: opened, used, and let go of when it breaks.

Each time it is opened a new port is made, because a broken one may stay broken. Closing one may not
hold up anybody: what does not answer is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from interlock.errors import StoreUnavailable
from interlock.worker.port import OrchestratorPort, Patient
from interlock.worker.store_time import StoreTime

LET_GO_S = 1.0


class Connection:
    """At most one port, and who is woken by it."""

    def __init__(
        self,
        connect: Callable[[], OrchestratorPort],
        *,
        now: StoreTime,
        woken: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._now = now
        self._woken = woken
        self._monotonic = monotonic
        self._port: OrchestratorPort | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._recovered_at = float("-inf")

    @property
    def port(self) -> OrchestratorPort:
        """The port that is open."""
        if self._port is None:
            raise StoreUnavailable("There is no connection at the moment.")
        return self._port

    @property
    def is_open(self) -> bool:
        """Whether there is a port."""
        return self._port is not None

    async def open(self, timeout_s: float) -> bool:
        """Connect, learn what time it is there, and be woken from now on."""
        port = self._connect()
        try:
            async with asyncio.timeout(timeout_s):
                await port.connect()
                self._now.learn(await port.now())
        except (TimeoutError, OSError) as error:
            await _let_go(port, LET_GO_S)
            raise StoreUnavailable(str(error) or f"No answer within {timeout_s:g} s.") from error
        except BaseException:
            await _let_go(port, LET_GO_S)
            raise
        self._port = port
        self._unsubscribe = port.subscribe(self._woken)
        return True

    def granted_after(self, asked_at: float) -> float:
        """From when on leases of the last claim may be trusted; `asked_at` is when that was made."""
        port: object = self._port
        return max(asked_at, port.granted_after) if isinstance(port, Patient) else asked_at

    def hasten(self) -> None:
        """Wait for work no longer than it takes to ask for it."""
        port: object = self._port
        if isinstance(port, Patient):
            port.hasten()

    def relax(self) -> None:
        """Wait for work again, as before."""
        port: object = self._port
        if isinstance(port, Patient):
            port.relax()

    async def release(self, within_s: float = LET_GO_S) -> None:
        """Let go of it, if there is one."""
        port, self._port = self._port, None
        if port is not None:
            self._unsubscribe()
            await _let_go(port, within_s)

    async def recover(self, every_s: float) -> int:
        """Look for what others have lost, unless that was done less than `every_s` ago."""
        if self._monotonic() < self._recovered_at + every_s:
            return 0
        dealt_with = await self.port.recover()
        self._recovered_at = self._monotonic()
        return dealt_with


async def _let_go(port: OrchestratorPort, within_s: float) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(within_s):
            await port.disconnect()
