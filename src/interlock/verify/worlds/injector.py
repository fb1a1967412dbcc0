"""What a fault in time does: to a process, to the network, to the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from interlock.verify.worlds.fates import Blow
from interlock.verify.worlds.stage import Process, Stage
from interlock.verify.worlds.storage import SharedStore
from interlock.worker.signals import Shutdown

LEAVES = "a worker that is asked to go is gone in time"


class Striker:
    """Does what the fates have drawn."""

    def __init__(self, stage: Stage, store: SharedStore) -> None:
        self.stage = stage
        self.store = store

    def strike(self, blow: Blow) -> None:
        """Let it happen, unless there is nobody left for it to happen to."""
        process = self.stage.places[blow.who].process
        if process is None or not process.alive or process.frozen or not self._lands(blow, process):
            return
        words = {
            "kill": f"{blow.who} is killed, and comes back in {blow.for_s:.0f} s",
            "deploy": f"{blow.who} is asked to go",
            "freeze": f"{blow.who} is frozen for {blow.for_s:.0f} s",
            "partition": f"{blow.who} and {blow.whom} cannot reach each other for {blow.for_s:.0f} s",
            "outage": f"the store is away for {blow.for_s:.0f} s",
            "failover": f"the store fails over, {blow.amount:.1f} s of writes are lost",
            "lag": f"timers of {blow.who} are {blow.amount:.0f} s late for {blow.for_s:.0f} s",
        }
        self.stage.watcher.tell(self.stage.schedule.now, f"{words[blow.what]}  [{blow.name}]")
        self.stage.watcher.heard(f"{blow.name} {blow.what} {blow.who}".encode())
        self._ACTS[blow.what](self, blow, process)

    def _lands(self, blow: Blow, process: Process) -> bool:
        if blow.what == "deploy" and _is_leaving(process):
            return False
        return self.stage.fates.happens(blow.name, blow.what)

    def _kill(self, blow: Blow, _: Process) -> None:
        self.stage.places[blow.who].kill(blow.for_s)

    def _deploy(self, blow: Blow, process: Process) -> None:
        worker = process.role
        worker.shutdown.request()
        deadline_s = self.stage.world.durations.shutdown_deadline_s + 1.0
        self.stage.schedule.call_in(deadline_s / process.loop.rate, self._gone, blow, process)

    def _gone(self, blow: Blow, process: Process) -> None:
        if process.alive and not process.was_held_up_since(blow.at_s):
            self.stage.watcher.broke(LEAVES, f"{process.loop.name} was asked to go at {blow.at_s:.0f} s")

    def _freeze(self, blow: Blow, process: Process) -> None:
        self.stage.freeze(process, blow.for_s)

    def _part(self, blow: Blow, _: Process) -> None:
        self.stage.part(blow.who, blow.whom, blow.for_s)

    def _take_store_away(self, blow: Blow, _: Process) -> None:
        self.stage.away_until = max(self.stage.away_until, self.stage.schedule.now + blow.for_s)

    def _fail_over(self, blow: Blow, process: Process) -> None:
        lost = self.store.fail_over(blow.amount)
        self.stage.watcher.saw("a fail-over loses writes" if lost else "a fail-over loses nothing")
        self._take_store_away(blow, process)

    def _lag(self, blow: Blow, process: Process) -> None:
        process.lag(blow.amount)
        self.stage.schedule.call_in(blow.for_s, process.lag, 0.0)

    _ACTS: ClassVar[dict[str, Callable[[Striker, Blow, Process], None]]] = {
        "kill": _kill,
        "deploy": _deploy,
        "freeze": _freeze,
        "partition": _part,
        "outage": _take_store_away,
        "failover": _fail_over,
        "lag": _lag,
    }


def _is_leaving(process: Process) -> bool:
    """Whether it was asked to go already, or is nobody who could be asked."""
    shutdown = getattr(process.role, "shutdown", None)
    return not isinstance(shutdown, Shutdown) or shutdown.requested
