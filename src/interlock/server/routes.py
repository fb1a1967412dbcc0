"""Routes: an operation and the handler that answers it.

A handler is bound to its operation where it is defined. `routes_for` pairs all of them, so a server does not
start with an operation that has no handler, or with a handler of no operation.

Why: decision 0132.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from starlette.responses import Response

from interlock.api.operation import Operation
from interlock.engine.coalescer import PendingAnswer
from interlock.systems.access.principals import Principal

if TYPE_CHECKING:
    from interlock.server.parts import Parts


@dataclass(slots=True, kw_only=True)
class Call:
    """An authenticated, decoded request, as handlers receive it."""

    parts: Parts
    principal: Principal
    request: str
    """The id of this request in the log and in problems."""
    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    request_id: str | None = None
    """The idempotency key for the store; distinct for each principal."""
    asked_as: str | None = None
    """The idempotency key as the client has spelled it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    """Address of the client; behind a proxy that of the proxy."""

    @property
    def actor(self) -> str:
        """The actor for the journal."""
        return self.principal.name


Out = TypeVar("Out")
Handler: TypeAlias = Callable[[Call], Awaitable[Any]]
"""Returns a struct, which is encoded, or a Starlette response, which is sent unchanged."""
Before: TypeAlias = "Callable[[Parts, Mapping[str, str], Mapping[str, str]], None]"


Direct: TypeAlias = Callable[[Call, PendingAnswer[Any]], bool]


@dataclass(frozen=True, kw_only=True)
class Route(Operation[Any, Any]):
    """An operation with its handler."""

    handler: Handler
    before: Before | None = None
    """Given the parameters of the path and the headers; raises to refuse a request before it is read."""
    read: Callable[[bytes], Any] | None = None
    """Decodes a body that has several forms."""
    direct: Direct | None = None
    """Begins to answer a whole request without a task; returns False if it needs one."""
    most: Callable[[Parts], int] | None = None
    """Returns the size limit of the body, if it differs from the default."""


_BOUND: dict[str, Route] = {}


def bound(operation: Operation[Any, Any], handler: Handler, **how: Any) -> Route:
    """Return the route of an operation and its handler."""
    declared = {each.name: getattr(operation, each.name) for each in fields(Operation)}
    return Route(handler=handler, **declared, **how)


class Binding(Generic[Out]):
    """Binds a handler to an operation, and returns the handler as it is."""

    def __init__(self, operation: Operation[Any, Out], how: Mapping[str, Any]) -> None:
        self._operation = operation
        self._how = how

    @overload
    def __call__(self, handler: Callable[[Call], Awaitable[Out]]) -> Callable[[Call], Awaitable[Out]]: ...

    @overload
    def __call__(
        self, handler: Callable[[Call], Awaitable[Out | Response]]
    ) -> Callable[[Call], Awaitable[Out | Response]]: ...

    def __call__(self, handler: Handler) -> Handler:
        if self._operation.name in _BOUND:
            raise LookupError(f"the operation {self._operation.name} has two handlers")
        _BOUND[self._operation.name] = bound(self._operation, handler, **self._how)
        return handler


def handles(operation: Operation[Any, Out], **how: Any) -> Binding[Out]:
    """Bind a handler to its operation, with more fields of `Route`."""
    return Binding(operation, how)


def routes_for(operations: Iterable[Operation[Any, Any]]) -> tuple[Route, ...]:
    """Return the route of each operation.

    Raise when one has no handler, or a handler no operation.
    """
    names = [operation.name for operation in operations]
    unpaired = sorted(set(names) ^ set(_BOUND))
    if unpaired:
        raise LookupError(f"operations without a handler, or handlers without one: {', '.join(unpaired)}")
    return tuple(_BOUND[name] for name in names)
