"""Errors as responses: the mapping from errors to problem+json."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.responses import Response

from interlock.api.problems import (
    MEDIA_TYPE,
    Problem,
)
from interlock.errors import (
    ArrivedTooSlowly,
    InterlockError,
    MethodNotAllowed,
    NoHttp,
    RequestTooLarge,
    TooMany,
    Unexpected,
)
from interlock.wire.credentials import redacted

_CLOSING = frozenset({ArrivedTooSlowly, RequestTooLarge, NoHttp})
"""Errors after which the rest of the request is not read, so the connection is closed."""


def problem_of(error: InterlockError, request: str) -> Problem:
    """Return the error as a problem."""
    return Problem(
        type=f"/docs#{error.code}",
        title=title_of(type(error)),
        status=error.status,
        code=error.code,
        error=redacted(error.sentence),
        facts=error.facts,
        allowed=error.allowed,
        todo=error.todo,
        request=request,
    )


def response_of(error: InterlockError, request: str) -> Response:
    """Return the error as a response."""
    body = msgspec.json.encode(problem_of(error, request), enc_hook=str)
    # A credential that was put into an address or a field must not be repeated in the response.
    body = redacted(body.decode()).encode()
    return Response(body, status_code=error.status, headers=dict(_headers(error)), media_type=MEDIA_TYPE)


def unexpected() -> Unexpected:
    """Return the error of an unexpected exception."""
    return Unexpected(
        "Internal server error.",
        todo="Report it with the id of the request; the server's log has the details.",
    )


def title_of(kind: type[InterlockError]) -> str:
    """Return the description of an error code."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def every_error() -> list[type[InterlockError]]:
    """Return every error class, sorted by code."""
    return sorted(_kinds_below(InterlockError), key=lambda kind: kind.code)


def _kinds_below(kind: type[InterlockError]) -> Iterable[type[InterlockError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith("interlock."):
            yield from _kinds_below(child)


def _headers(error: InterlockError) -> Iterable[tuple[str, str]]:
    match error:
        case TooMany():
            yield "Retry-After", str(max(1, round(error.retry_after_s + 0.5)))
        case MethodNotAllowed():
            yield "Allow", ", ".join(error.allowed)
    if error.status == 401:
        scheme = "Signature" if error.code == "not_signed" else "Bearer"
        yield "WWW-Authenticate", f'{scheme} realm="interlock"'
    elif error.status == 503:
        yield "Retry-After", "1"
    if type(error) in _CLOSING:
        yield "Connection", "close"
