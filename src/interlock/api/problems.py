"""What every error is answered with (problem+json, RFC 9457), and the errors of requests themselves.

    {"type": "/docs#unknown_job", "title": "No job has that id.", "status": 404, "code": "unknown_job",
     "error": "There is no job j_0123456789ab.", "facts": {"job_id": "j_0123456789ab"}, "allowed": [],
     "todo": "Look for it with `interlock job list`; …", "request": "5f3a9c01d2e4b687"}

`type` leads to the page of the server that explains the code; `title` is the same for every error of
a code, `error` is about this one; `request` is what the server's log calls the request.
"""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.errors import InterlockError

MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What every error is answered with."""

    type: str
    title: str
    status: int
    code: str
    error: str
    facts: dict[str, Any] = {}
    allowed: tuple[str, ...] = ()
    todo: str = ""
    request: str = ""


class BadRequest(InterlockError):
    """A request that cannot be understood; `facts` say where it stops making sense."""

    code = "bad_request"
    status = 422


class NoHttp(BadRequest):
    """What was sent is no HTTP request, its head is too large, or it contradicts itself."""

    code = "no_http"
    status = 400


class NotUtf8(BadRequest):
    """The body or the query of a request is not UTF-8; nothing was done."""

    code = "not_utf8"
    status = 400


class UnknownPage(InterlockError):
    """There is nothing at this address."""

    code = "unknown_page"
    status = 404


class UnknownAttempt(InterlockError):
    """No attempt has that id."""

    code = "unknown_attempt"
    status = 404


class MethodNotAllowed(InterlockError):
    """There is something at this address, but it is not done like that."""

    code = "method_not_allowed"
    status = 405


class RequestTooLarge(InterlockError):
    """The body of a request is larger than the server takes; nothing was done."""

    code = "request_too_large"
    status = 413


class UnsupportedMedia(InterlockError):
    """The body of a request is not JSON by its own account."""

    code = "unsupported_media"
    status = 415


class ConflictingRequestIds(InterlockError):
    """The body and the header of a request carry different request ids; nothing was done."""

    code = "conflicting_request_ids"
    status = 409


class TooMany(InterlockError):
    """Somebody asks for more than their share."""

    code = "too_many_requests"
    status = 429

    def __init__(
        self,
        sentence: str,
        *,
        retry_after_s: float,
        facts: dict[str, object] | None = None,
        todo: str | None = None,
    ) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(sentence, todo=todo or f"Wait for {retry_after_s:.2g} s, then go on.", facts=facts)


class TooBusy(InterlockError):
    """The server has as much to do as it can."""

    code = "too_busy"
    status = 503


class TookTooLong(InterlockError):
    """The answer was not ready in time; whether something was done may be unknown."""

    code = "took_too_long"
    status = 504


class ArrivedTooSlowly(InterlockError):
    """The request did not arrive in time; nothing was done."""

    code = "arrived_too_slowly"
    status = 408


class WrongHost(InterlockError):
    """The server is not called that; nothing was done."""

    code = "wrong_host"
    status = 421


class ForeignOrigin(InterlockError):
    """A page of somebody else asks a browser to change something here; nothing was done."""

    code = "foreign_origin"
    status = 403


class NotReady(InterlockError):
    """The server is up, but cannot do its work at the moment."""

    code = "not_ready"
    status = 503


class Unexpected(InterlockError):
    """A fault of the server. What happened is in its log, under the id of the request."""

    code = "unexpected"
    status = 500
