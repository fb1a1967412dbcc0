"""One call from a process to something outside of it, and everything that can become of it.

The request travels, arrives, is done, and the answer travels back. On the way it may be lost, and then
nobody knows whether it was done; it may be late, and be done although its caller has given up; or it may
arrive a second time, much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from interlock.errors import StoreUnavailable
from interlock.verify.worlds import fates
from interlock.verify.worlds.fates import Fate
from interlock.verify.worlds.scheduler import Turn
from interlock.verify.worlds.stage import Process

Done: TypeAlias = Callable[[object, BaseException | None], None]
"""Told once what came of it: an answer or an error."""
Arrive: TypeAlias = Callable[[Done], None]
"""Does at the other side what was asked for, at once or in a while."""


class Call:
    """A call under way. What is `certain` answers whenever it is reached; all else may be silent.

    Over a connection that `resends` what is lost, most of that is only late.
    """

    __slots__ = (
        "_answer",
        "_arrive",
        "_caller",
        "_fate",
        "_sent_at",
        "_stage",
        "_timeout_s",
        "_timer",
        "_to",
    )

    def __init__(
        self,
        caller: Process,
        to: str,
        arrive: Arrive,
        timeout_s: float,
        *,
        repeats: bool = False,
        certain: bool = False,
        resends: bool = False,
    ) -> None:
        stage = self._stage = caller.stage
        self._caller = caller
        self._to = to
        self._arrive = arrive
        self._timeout_s = timeout_s
        self._timer: Turn | None = None
        self._answer: asyncio.Future[Any] = caller.loop.create_future()
        self._sent_at = now = stage.schedule.now
        fate = stage.fates.of_call(caller.name, to, now, repeats=repeats)
        self._fate = fates.resent(fate) if resends else fate
        if self._fate is None:
            if not certain:
                self._give_up_in_time()
            stage.schedule.call_in(stage.trip_s(), self._arrives)
        else:
            self._give_up_in_time()
            self._send(self._fate)

    def answer(self) -> Awaitable[Any]:
        """What came of it."""
        return self._answer

    def _send(self, fate: Fate) -> None:
        schedule = self._stage.schedule
        if self._stage.watcher.tells:
            self._stage.watcher.tell(schedule.now, f"{self._caller.name} → {self._to}: {fate.what}")
        match fate.what:
            case fates.REQUEST_LOST:
                schedule.call_in(fate.seconds, self._fail, f"The connection to {self._to} broke.")
            case fates.LATE:
                schedule.call_in(fate.seconds, self._arrives)
            case fates.TWICE:
                schedule.call_in(self._stage.trip_s(), self._arrives)
                schedule.call_in(fate.seconds, self._arrives_again)
            case _:
                schedule.call_in(self._stage.trip_s(), self._arrives)

    def _arrives(self) -> None:
        if self._stage.reachable(self._caller.name, self._to):
            self._arrive(self._done)
        elif self._stage.random.random() < 0.5:
            self._fail(f"{self._to} cannot be reached.")
        else:
            self._give_up_in_time()

    def _arrives_again(self) -> None:
        if self._stage.reachable(self._caller.name, self._to):
            self._arrive(lambda _answer, _error: None)

    def _done(self, value: object, error: BaseException | None) -> None:
        stage, fate = self._stage, self._fate
        if fate is not None and fate.what is fates.REPLY_LOST:
            stage.schedule.call_in(fate.seconds, self._fail, f"The connection to {self._to} broke.")
        elif stage.reachable(self._caller.name, self._to):
            stage.schedule.call_in(stage.trip_s(), self._settle, value, error)
        else:
            self._give_up_in_time()

    def _give_up_in_time(self) -> None:
        """Nobody waits for ever: from now on somebody looks at the clock."""
        if self._timer is None:
            at = self._sent_at + self._timeout_s
            self._timer = self._stage.schedule.call_at(at, self._fail, f"No answer of {self._to} in time.")

    def _settle(self, value: object, error: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._answer.done():
            return
        if error is None:
            self._answer.set_result(value)
        else:
            self._answer.set_exception(error)

    def _fail(self, words: str) -> None:
        self._settle(None, StoreUnavailable(f"{words} Whether it was done is unknown.", todo="Ask again."))
