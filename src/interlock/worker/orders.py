"""What the supervisor has ordered, carried out: hold, give back, drain, go.

    paused             nothing new is claimed; what runs is finished, or given back when that is wanted
    drained            the same, and the process goes when nothing is left
    terminated         what runs is stopped, and the process goes at once

Orders come from another thread and are carried out in the event loop; the one that must also work
when the event loop is blocked, going at once, is heard of in that other thread (`machines.Terminated`).
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.wire.workers import WorkerOrders
from interlock.worker.logs import Log
from interlock.worker.signals import Shutdown
from interlock.worker.task_runner import TaskRunner


class OrderHandler:
    """The newest orders, and how far they are carried out."""

    def __init__(
        self,
        executing: TaskRunner,
        shutdown: Shutdown,
        *,
        log: Log,
        hold: Callable[[bool], None],
    ) -> None:
        self._executing = executing
        self._shutdown = shutdown
        self._log = log
        self._hold = hold
        self._orders = WorkerOrders(state="")

    @property
    def may_take(self) -> bool:
        """Whether new work may be claimed."""
        return self._orders.take

    @property
    def heeded(self) -> int:
        """The number of the newest orders that are carried out: a draining worker is still at it."""
        orders = self._orders
        busy = (orders.give_back or orders.stop) and self._executing.active
        return 0 if busy else orders.number

    def heed(self, orders: WorkerOrders) -> None:
        """Carry out what is new."""
        before, self._orders = self._orders, orders
        if before.state and before.number == orders.number and before.stop == orders.stop:
            return
        if before.state:
            self._log.info(
                "orders", state=orders.state, take=orders.take, stop=orders.stop, reason=orders.reason
            )
        if orders.take is not before.take:
            self._hold(not orders.take)
        if orders.stop == "terminate":
            self._executing.revoked()
        elif orders.give_back:
            self._executing.interrupt()
        self.task_ended()

    def task_ended(self) -> None:
        """Whoever drains goes when nothing is left."""
        if self._orders.stop == "drain" and not self._executing.active:
            self._shutdown.request()
