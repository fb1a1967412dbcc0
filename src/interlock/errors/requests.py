"""Errors of HTTP requests: they say something about how a server was asked, not about what it was asked for.

A client tells them as `ServerRefused`, with their code among the facts.
"""

from __future__ import annotations

from interlock.errors.base import InterlockError


class BadRequest(InterlockError, code="bad_request", status=422):
    """A request that cannot be understood; `facts` say where it stops making sense."""


class NoHttp(BadRequest, code="no_http", status=400):
    """What was sent is no HTTP request, its head is too large, or it contradicts itself."""


class NotUtf8(BadRequest, code="not_utf8", status=400):
    """The body or the query of a request is not UTF-8; nothing was done."""


class UnknownPage(InterlockError, code="unknown_page", status=404):
    """There is nothing at this address."""


class MethodNotAllowed(InterlockError, code="method_not_allowed", status=405):
    """There is something at this address, but it is not done like that."""


class RequestTooLarge(InterlockError, code="request_too_large", status=413):
    """The body of a request is larger than the server takes; nothing was done."""


class UnsupportedMedia(InterlockError, code="unsupported_media", status=415):
    """The body of a request is not JSON by its own account."""


class ConflictingRequestIds(InterlockError, code="conflicting_request_ids", status=409):
    """The body and the header of a request carry different request ids; nothing was done."""


class TooMany(InterlockError, code="too_many_requests", status=429):
    """Somebody asks for more than their share."""

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

    def __reduce__(self) -> tuple[object, ...]:
        return _too_many, (self.sentence, self.retry_after_s, self.facts, self.todo)


def _too_many(sentence: str, retry_after_s: float, facts: dict[str, object], todo: str) -> TooMany:
    """Made anew from its facts when it comes from another process."""
    return TooMany(sentence, retry_after_s=retry_after_s, facts=facts, todo=todo)


class TooBusy(InterlockError, code="too_busy", status=503):
    """The server has as much to do as it can."""


class TookTooLong(InterlockError, code="took_too_long", status=504):
    """The answer was not ready in time; whether something was done may be unknown."""


class ArrivedTooSlowly(InterlockError, code="arrived_too_slowly", status=408):
    """The request did not arrive in time; nothing was done."""


class WrongHost(InterlockError, code="wrong_host", status=421):
    """The server is not called that; nothing was done."""


class ForeignOrigin(InterlockError, code="foreign_origin", status=403):
    """A page of somebody else asks a browser to change something here; nothing was done."""


class NotReady(InterlockError, code="not_ready", status=503):
    """The server is up, but cannot do its work at the moment."""


class Unexpected(InterlockError, code="unexpected", status=500):
    """A fault of the server. What happened is in its log, under the id of the request."""


class CannotListen(InterlockError, code="cannot_listen", status=500):
    """The address cannot be listened at; nothing was started."""


class NotSigned(InterlockError, code="not_signed", status=401):
    """A webhook whose signature is missing, too old, or made with another secret; nothing was done."""


class WebhookOff(InterlockError, code="webhook_off", status=404):
    """This server takes no webhooks of that name: it is not configured, or has no secret."""


class BadPayload(InterlockError, code="bad_payload", status=422):
    """A signed webhook whose body is not what its event should bring; nothing was done."""
