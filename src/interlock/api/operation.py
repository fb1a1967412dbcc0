"""An operation: one declaration, from which server, client, OpenAPI and reference are made.

It declares the address, input, output, required role and errors. The rest follows from these: an operation is
repeatable when its input has a request id, a token that is confined to queues is accepted only where
`confined` says how, and runners have a rate limit of their own.

Why: decision 0389.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic
from urllib.parse import quote

import msgspec

from interlock.errors import InterlockError
from interlock.wire.access import Role

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    In = TypeVar("In", default=None)
    Out = TypeVar("Out", default=bytes)
else:
    from typing import TypeVar

    In = TypeVar("In")
    Out = TypeVar("Out")

BYTES = "application/octet-stream"
"""Media type of opaque content."""
SHAPE = r"[A-Za-z0-9_.-]{1,64}"
"""Pattern of an id."""

ID = re.compile(SHAPE)
PARAMETER = re.compile(r"{(\w+)}")


class TrafficClass(StrEnum):
    """Rate limit that a request counts against."""

    API = "api"
    RUNNER = "runner"
    FREE = "free"


class QueueConfinement(StrEnum):
    """Rule for tokens that are confined to queues."""

    HIDES = "hides"
    """Records in other queues do not exist: they are not found and not listed."""
    NAMES = "names"
    """The request names queues, and others than those of the token are refused."""
    LEASED = "leased"
    """The lease of an attempt decides, which was granted within the queues of the token."""
    OWNS = "owns"
    """The operation concerns workers that were registered with the same token; others do not exist."""
    NOTHING = "nothing"
    """The answer is the same for every principal, and concerns no queue."""


@dataclass(frozen=True, slots=True)
class Link:
    """An operation to call next: the value at `source` in the answer is one of its parameters."""

    operation: str
    parameter: str
    source: str = "$response.body#/ids/0"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of a path."""

    meaning: str
    unknown: Callable[[dict[str, str]], InterlockError] | None = None
    """Makes the error that a client raises for a text that cannot be an id, given all parts of the path.
    Without it any text is sent, escaped."""

    def segment(self, name: str, path: dict[str, str]) -> str:
        """Return the text as a segment of a path.

        An escaped slash or dots could lead to another path.
        """
        text = path[name]
        if self.unknown is not None and not (ID.fullmatch(text) and text.strip(".")):
            raise self.unknown(path)
        return quote(text, safe="@")


def id_of(noun: str, error: type[InterlockError], name: str = "", meaning: str = "") -> dict[str, Parameter]:
    """Return the parameter of a path that is the id of a record."""
    name = name or f"{noun}_id"

    def unknown(path: dict[str, str]) -> InterlockError:
        text = path[name][:64]
        todo = f"Look for it with `interlock {noun} list`."
        return error(f"There is no {noun} {text}.", todo=todo, facts={name: text})

    return {name: Parameter(meaning or f"The id of a {noun}.", unknown)}


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[In, Out]):
    """A request that the API answers."""

    name: str
    """The operation's id, by which links and generated clients call it."""
    request: str
    """Method and path: `GET /api/jobs/{job_id}`."""
    summary: str
    role: Role | None
    """Required role; None for every client, also without a token."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    input: type[In] | tuple[Any, ...] | None = None
    """The struct of the query of a GET or of the body of another request; several where it is one of them."""
    output: type[Out] | tuple[Any, ...] | None = None
    """The struct of the answer; several where it is one of them, None when it is not JSON."""
    errors: tuple[type[InterlockError], ...] = ()
    confined: QueueConfinement | None = None
    """Rule for tokens that are confined to queues; None: they are refused."""
    status: int = 200
    media: str = "application/json"
    required: bool | None = None
    """Whether there has to be a body; by default when the input has required fields."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Required headers and their meaning."""
    signed: bool = False
    """The request needs no token, because the body is signed; the handler checks the signature."""
    shows_token: bool = False
    """The body has the token, which the handler checks; the request needs no other credential."""
    by_claim: bool = False
    """The lease of an attempt is enough instead of a token: it is about that attempt alone."""
    streamed: bool = False
    """The body is a file, which the handler reads piece by piece; the input is the query."""
    bounded: bool = True
    """The answer has to be ready in time; streams and long polls are not bounded."""
    free: bool = False
    """The operation counts against no rate limit."""
    fires: tuple[str, str] | None = None
    """The machine and the event that it sends to the record in its path, with no more than a request id: a
    page of that record offers it where the table has a transition for the event.
    """
    example: Any = None
    """A good body."""
    answer_example: Any = None
    links: tuple[Link, ...] = ()

    @cached_property
    def method(self) -> str:
        """The method of the request."""
        return self.request.partition(" ")[0]

    @cached_property
    def path(self) -> str:
        """The path of the request, with its parameters in braces."""
        return self.request.partition(" ")[2]

    @property
    def _inputs(self) -> tuple[Any, ...]:
        return _several(self.input)

    @cached_property
    def query(self) -> Any:
        """The struct of the query, if there is one."""
        return self._inputs[0] if self._inputs and (self.method == "GET" or self.streamed) else None

    @cached_property
    def bodies(self) -> tuple[Any, ...]:
        """The structs that the body may be; empty for a request without one."""
        return () if self.method == "GET" or self.streamed else self._inputs

    @cached_property
    def answers(self) -> tuple[Any, ...]:
        """The structs that a successful answer may be."""
        return _several(self.output)

    @cached_property
    def body_required(self) -> bool:
        """Whether there has to be a body."""
        if self.required is not None:
            return self.required
        return any(each.required for body in self.bodies for each in msgspec.structs.fields(body))

    @cached_property
    def repeatable(self) -> bool:
        """Whether it is done once under a request id, however often it is sent."""
        return any("request_id" in body.__struct_fields__ for body in self.bodies)

    @property
    def everything(self) -> bool:
        """Whether it is about all queues, so that a token that is confined to some is refused."""
        return self.role is not None and self.confined is None

    @cached_property
    def traffic(self) -> TrafficClass:
        """The rate limit that it counts against."""
        if self.free:
            return TrafficClass.FREE
        return TrafficClass.RUNNER if self.role is Role.RUNNER else TrafficClass.API

    @cached_property
    def for_strangers(self) -> bool:
        """Whether the handler checks the sender, so that the body is read before the sender is known."""
        return self.signed or self.shows_token

    @property
    def tag(self) -> str:
        """The noun that it is about."""
        parts = self.path.strip("/").split("/")
        return parts[1] if parts[0] == "api" and len(parts) > 1 else "server"

    def address(self, **parameters: str) -> str:
        """Return the path with these parameters, escaped."""

        def segment(found: re.Match[str]) -> str:
            name = found[1]
            return self.parameters.get(name, _ANY).segment(name, parameters)

        return PARAMETER.sub(segment, self.path)


_ANY = Parameter("")


def _several(structs: Any) -> tuple[Any, ...]:
    if structs is None:
        return ()
    return structs if isinstance(structs, tuple) else (structs,)
