"""Errors of HTTP requests: they concern the form of a request, not its subject.

A client raises them as `ServerRefused`, with their code among the facts.
"""

from __future__ import annotations

from math import ceil

from interlock.errors.base import InterlockError


class BadRequest(InterlockError, code="bad_request", status=422):
    """The request is not valid; `facts` have the position of the fault."""


class NoHttp(BadRequest, code="no_http", status=400):
    """The request is not HTTP, its head is too large, or it is contradictory."""


class NotUtf8(BadRequest, code="not_utf8", status=400):
    """The body or the query of a request is not UTF-8; nothing was done."""


class UnknownPage(InterlockError, code="unknown_page", status=404):
    """No resource has this address."""


class MethodNotAllowed(InterlockError, code="method_not_allowed", status=405):
    """The resource at this address does not support this method."""


class RequestTooLarge(InterlockError, code="request_too_large", status=413):
    """The body of a request is larger than the server accepts; nothing was done."""


class UnsupportedMedia(InterlockError, code="unsupported_media", status=415):
    """The Content-Type of the body is not JSON."""


class ConflictingRequestIds(InterlockError, code="conflicting_request_ids", status=409):
    """The body and the header of a request carry different request ids; nothing was done."""


class TooMany(InterlockError, code="too_many_requests", status=429):
    """The client has exceeded its rate limit."""

    def __init__(
        self,
        sentence: str,
        *,
        retry_after_s: float,
        facts: dict[str, object] | None = None,
        todo: str | None = None,
    ) -> None:
        self.retry_after_s = retry_after_s
        shown = f"{retry_after_s:.2g}" if retry_after_s < 10 else f"{ceil(retry_after_s)}"
        super().__init__(sentence, todo=todo or f"Wait for {shown} s, then continue.", facts=facts)

    def __reduce__(self) -> tuple[object, ...]:
        return _too_many, (self.sentence, self.retry_after_s, self.facts, self.todo)


def _too_many(sentence: str, retry_after_s: float, facts: dict[str, object], todo: str) -> TooMany:
    """Recreate the error of another process from its facts."""
    return TooMany(sentence, retry_after_s=retry_after_s, facts=facts, todo=todo)


class TooBusy(InterlockError, code="too_busy", status=503):
    """The server has reached its limit of concurrent requests."""


class TookTooLong(InterlockError, code="took_too_long", status=504):
    """The answer was not ready in time; the request may have been carried out."""


class ArrivedTooSlowly(InterlockError, code="arrived_too_slowly", status=408):
    """The request did not arrive in time; nothing was done."""


class WrongHost(InterlockError, code="wrong_host", status=421):
    """The server does not have this host name; nothing was done."""


class ForeignOrigin(InterlockError, code="foreign_origin", status=403):
    """A page of another origin sent a request that changes something; nothing was done."""


class NotReady(InterlockError, code="not_ready", status=503):
    """The server runs, but cannot do its work at the moment."""


class Unexpected(InterlockError, code="unexpected", status=500):
    """A fault of the server. Its log has the details, under the id of the request."""


class CannotListen(InterlockError, code="cannot_listen", status=500):
    """The server cannot listen on the address; nothing was started."""


class NotSigned(InterlockError, code="not_signed", status=401):
    """The signature of the webhook is missing, too old, or made with another secret; nothing was done."""


class WebhookOff(InterlockError, code="webhook_off", status=404):
    """No webhook of this name is configured here, or it has no secret."""


class BadPayload(InterlockError, code="bad_payload", status=422):
    """The body of a signed webhook does not match its event; nothing was done."""
