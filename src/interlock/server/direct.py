"""Answers without a task, for the requests of which a server has most: claims and messages of runners.

A request as such needs a task: it is started, suspended, woken and ended by the event loop, through all
layers of the server. A claim or a message only has to get into a line, and is answered with others when they
have been committed. So the connection hands it to the middleware at once, which checks it with the functions
that check all requests, and the line passes the answer to a `DirectAnswer`, which writes it.

Other requests go the ordinary way, in a task: a body that arrives slowly, a token that has to be
looked up, a long poll, and every refusal and failure. An error is raised again in that task, where all
errors are answered, counted and logged.

Why: decision 0530.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from interlock.server.cycle import Cycle

if TYPE_CHECKING:
    from interlock.server.endpoint import Endpoint, Exchange, Way


log: logging.Logger = logging.getLogger("interlock.server")


class AnswerOwner(Protocol):
    """The middleware that has begun a request, as far as its answer needs it."""

    def answered(self, exchange: Exchange, cycle: Cycle) -> None:
        """Log and count a request that was answered."""
        ...

    def failed(self, cycle: Cycle) -> None:
        """Answer a request that has failed, in a task."""
        ...


class DirectAnswer:
    """The answer to one request, to be set by the line that the request is in."""

    __slots__ = ("_cycle", "_endpoint", "_exchange", "_is_over", "_owner", "_way", "answer_of", "until")

    def __init__(
        self, endpoint: Endpoint, way: Way, exchange: Exchange, cycle: Cycle, owner: AnswerOwner
    ) -> None:
        self._endpoint = endpoint
        self._way = way
        self._exchange = exchange
        self._cycle = cycle
        self._owner = owner
        self._is_over = False
        self.until: float = 0.0
        """The deadline, by the clock of the loop."""
        self.answer_of: Callable[[Any], Any] = _unchanged
        """Returns the answer of the operation from the result of the line; raises a refusal."""

    def begin(self) -> None:
        """Watch the deadline, and let a server that ends wait for the answer."""
        self._cycle.start_without_task(self)
        if self._way.route.bounded:
            self.until = self._endpoint.lanes.answers.begin(self)

    def done(self) -> bool:
        """Return whether the request is answered, or was given up."""
        return self._is_over

    def set_result(self, result: Any) -> None:
        """Send the answer."""
        if self._is_over:
            return
        try:
            body = self._way.encoded(self.answer_of(result))
        except Exception as error:  # noqa: BLE001 - answered as any other failure is
            self.set_exception(error)
            return
        self._end()
        try:
            self._way.respond_now(body, self._exchange, self._cycle)
            self._owner.answered(self._exchange, self._cycle)
        except Exception:
            log.exception("The application failed.")  # the answers of others follow

    def set_exception(self, error: BaseException) -> None:
        """Return an error as the answer."""
        if not self._is_over:
            self._end()
            self._exchange.failure = error
            self._owner.failed(self._cycle)

    def cancel(self, msg: str | None = None) -> None:
        """Give up, because the server ends.

        Like a task, in the next turn: the server is going through all that it waits for.
        """
        asyncio.get_running_loop().call_soon(self.set_exception, asyncio.CancelledError(msg))

    def is_over(self, now: float) -> bool:
        """Return whether the deadline has passed; in that case answer so."""
        if now < self.until:
            return False
        self.until = 0.0  # the deadlines have stopped watching it
        self.set_exception(self._endpoint.lanes.too_late())
        return True

    def _end(self) -> None:
        """Release the place of the request.

        That is before its response, after which the next one on its connection begins.
        """
        self._is_over = True
        if self.until:
            self._endpoint.lanes.answers.end(self)
        self._endpoint.release(self._way, self._exchange, self._cycle.scope)
        self._cycle.end_without_task(self)


def _unchanged(result: Any) -> Any:
    return result
