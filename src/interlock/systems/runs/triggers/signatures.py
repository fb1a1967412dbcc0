"""Whether a delivery comes from whom it says: signatures over the raw bytes, compared in constant time.

GitHub sends `X-Hub-Signature-256: sha256=<hex>`, an HMAC of the body. Standard Webhooks
(https://www.standardwebhooks.com) sign `<id>.<timestamp>.<body>` and send `webhook-id`,
`webhook-timestamp` and `webhook-signature: v1,<base64> v1,<base64>`. Both may be checked against
several secrets, and every one of them is tried, so that the time says nothing about which one fits.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from interlock.systems.runs.secrets import Secret
from interlock.systems.runs.triggers.errors import NotSigned

TOLERANCE_S = 300
MAX_MESSAGE_ID = 256
_TODO = "Send it with the secret that this server is configured with; nothing was done."


def github_signature(secret: Secret, body: bytes) -> str:
    """What GitHub sends with a body."""
    return "sha256=" + hmac.new(secret.reveal(), body, hashlib.sha256).hexdigest()


def check_github(secrets: Iterable[Secret], headers: Mapping[str, str], body: bytes) -> None:
    """Raise unless the body was signed with one of the secrets."""
    sent = headers.get("x-hub-signature-256", "")
    if not sent:
        raise NotSigned("The delivery has no header X-Hub-Signature-256.", todo=_TODO)
    if not _any_equal([github_signature(secret, body) for secret in secrets], [sent]):
        raise NotSigned("The signature of the delivery fits no secret of this server.", todo=_TODO)


def standard_signature(key: Secret, message_id: str, timestamp: int, body: bytes) -> str:
    """What a sender of Standard Webhooks sends with a body."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key.reveal(), signed, hashlib.sha256).digest()).decode()


def standard_headers(keys: Sequence[Secret], message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """The headers of a message of ours; signed with every key, so that either side may go first."""
    timestamp = int(now.timestamp())
    signatures = [standard_signature(key, message_id, timestamp, body) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def check_standard(
    keys: Iterable[Secret],
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
    *,
    tolerance_s: float = TOLERANCE_S,
) -> str:
    """The id of the message; raises unless it was signed with one of the keys, and not long ago."""
    message_id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signatures = headers.get("webhook-signature", "").split()
    missing = [
        name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not headers.get(name)
    ]
    if missing:
        raise NotSigned(f"The delivery has no header {', '.join(missing)}.", todo=_TODO)
    if len(message_id) > MAX_MESSAGE_ID or not message_id.isprintable() or not message_id.isascii():
        raise NotSigned(f"A webhook-id has at most {MAX_MESSAGE_ID} printable characters.", todo=_TODO)
    timestamp = _timestamp(sent_at)
    expected = [standard_signature(key, message_id, timestamp, body) for key in keys]
    if not _any_equal(expected, signatures):
        raise NotSigned("No signature of the delivery fits a secret of this server.", todo=_TODO)
    if abs(now.timestamp() - timestamp) > tolerance_s:
        raise NotSigned(
            f"The delivery was signed more than {tolerance_s:g} s before or after now.",
            todo="Sign it anew when it is sent again, and set the clock of the sender.",
            facts={"webhook_timestamp": timestamp, "now": int(now.timestamp())},
        )
    return message_id


def _timestamp(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise NotSigned("The header webhook-timestamp is no number of seconds.", todo=_TODO)
    return int(text)


def _any_equal(expected: Sequence[str], sent: Sequence[str]) -> bool:
    """Every pair is compared, also after one was found."""
    pairs = [(one.encode(), other.encode("utf-8", "replace")) for one in expected for other in sent[:16]]
    return sum([hmac.compare_digest(one, other) for one, other in pairs]) > 0
