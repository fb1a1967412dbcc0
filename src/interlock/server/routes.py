"""What a route is: one declaration, from which everything else is made.

The address, what comes in and goes out, who may ask and what can go wrong are said once. The
endpoint, the check of the role, the OpenAPI document and the tests that walk all routes read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from interlock.errors import InterlockError
from interlock.systems.access.principals import Principal, Role

if TYPE_CHECKING:
    from interlock.server.parts import Parts


BYTES = "application/octet-stream"
"""The type of what is bytes and nothing that we know of."""


class Lane(StrEnum):
    """Which bucket a request is taken from."""

    API = "api"
    RUNNER = "runner"
    FREE = "free"


class Confined(StrEnum):
    """What a route does for a token that is confined to some queues, where it is let in at all."""

    HIDES = "hides"
    """Whatever is in other queues is not there: not found, and not listed."""
    NAMES = "names"
    """The request names queues, and others than its own are refused."""
    LEASED = "leased"
    """The lease of an attempt decides, which was granted within its queues."""
    OWNS = "owns"
    """It is about workers that were registered with the same token; others are not there."""
    NOTHING = "nothing"
    """The answer is the same for everybody, and says nothing of any queue."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A request that has been let in and read: what a handler is given."""

    parts: Parts
    principal: Principal
    request: str
    """What the log and a problem call this request."""
    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    request_id: str | None = None
    """Under which it is done once, however often it is sent; each principal has ids of its own."""
    asked_as: str | None = None
    """The same, as whoever asks has spelled it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    """Of the other end of the connection; behind a proxy that is the proxy's."""

    @property
    def actor(self) -> str:
        """Who the journal says has done it."""
        return self.principal.name


Handler: TypeAlias = Callable[[Call], Awaitable[Any]]
"""Answers with a struct, which is encoded, or with a Starlette response, which is sent as it is."""


@dataclass(frozen=True, slots=True)
class Link:
    """What can be asked next: the value at `source` in the answer is the parameter of another route."""

    route: str
    parameter: str
    source: str = "$response.body#/ids/0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One thing that can be asked for."""

    method: str
    path: str
    name: str
    """The operation's id, by which links and clients call it."""
    summary: str
    handler: Handler
    role: Role | None
    """Who may ask; None for everybody, also without a token."""
    signed: bool = False
    """Whoever asks needs no token, because the body is signed; the handler refuses what is not."""
    shows_token: bool = False
    """The body has the token, which the handler checks; the request needs no other credential."""
    before: Callable[[Parts, Mapping[str, str], Mapping[str, str]], None] | None = None
    """Given the parameters of the path and the headers; raises to refuse a request before it is read."""
    answer: Any = None
    """The struct of a good answer, or several of which it is one; None when it is no JSON."""
    media: str = "application/json"
    status: int = 200
    query: type[msgspec.Struct] | None = None
    bodies: tuple[Any, ...] = ()
    """The structs that the body may be; none for a request without one."""
    body_required: bool = True
    read: Callable[[bytes], Any] | None = None
    """How the body is read, where it may be one of several."""
    most: Callable[[Parts], int] | None = None
    """How many bytes the body may have, where that is not as for all others."""
    streamed: bool = False
    """The body is whatever bytes come, and the handler is given them piece by piece."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that have to be there, and what they mean."""
    by_claim: bool = False
    """The lease of an attempt is enough for it, instead of a token: it is about that attempt alone."""
    repeatable: bool = False
    """It changes something, so it may carry a request id."""
    fires: tuple[str, str] | None = None
    """The machine and the event that it brings to the record that its path names, with no more than a request
    id: a page of that record offers it where the table has something for the event."""
    everything: bool = False
    """It is about all queues, so a token that is confined to some is not enough."""
    confined: Confined | None = None
    """How it keeps to the queues of a token that is confined to some; None where none is let in."""
    errors: tuple[type[InterlockError], ...] = ()
    lane: Lane = Lane.API
    bounded: bool = True
    """Its answer has to be ready in time; streams and long polls are not bounded."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What the parts of the path mean."""
    example: Any = None
    """A good body."""
    answer_example: Any = None
    links: tuple[Link, ...] = ()

    @property
    def for_strangers(self) -> bool:
        """Whether the handler checks the sender, so that the body has to be read before that is known."""
        return self.signed or self.shows_token

    @property
    def answers(self) -> tuple[Any, ...]:
        """Every struct that a good answer may be."""
        if self.answer is None:
            return ()
        return self.answer if isinstance(self.answer, tuple) else (self.answer,)

    @property
    def tag(self) -> str:
        """The noun that it is about."""
        parts = self.path.strip("/").split("/")
        return parts[1] if parts[0] == "api" and len(parts) > 1 else "server"
