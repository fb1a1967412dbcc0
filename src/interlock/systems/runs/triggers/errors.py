"""What a sender of webhooks can be told."""

from __future__ import annotations

from interlock.errors import InterlockError


class NotSigned(InterlockError, code="not_signed", status=401):
    """A webhook whose signature is missing, too old, or made with another secret; nothing was done."""


class WebhookOff(InterlockError, code="webhook_off", status=404):
    """This server takes no webhooks of that name: it is not configured, or has no secret."""


class BadPayload(InterlockError, code="bad_payload", status=422):
    """A signed webhook whose body is not what its event should bring; nothing was done."""
