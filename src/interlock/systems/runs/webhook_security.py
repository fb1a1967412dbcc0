"""Security of webhooks, in both directions: secrets, signatures, and public addresses.

Secrets are read from the environment or a file, and never shown. Several may be valid at once, so that one
can be replaced while the other side still uses the old one: the words of the variable, and the lines of the
file.

Signatures are made over the raw bytes and compared in constant time. GitHub sends
`X-Hub-Signature-256: sha256=<hex>`, an HMAC of the body. Standard Webhooks
(https://www.standardwebhooks.com) sign `<id>.<timestamp>.<body>` and send `webhook-id`,
`webhook-timestamp` and `webhook-signature: v1,<base64> v1,<base64>`. Both may be checked against
several secrets, and all of them are tried, so that the time does not reveal which one matches.

Addresses. The table of non-public addresses is our own, from IANA's registries of special-purpose
addresses: the answer of `ipaddress` depends on the patch level of the interpreter (`fec0::/10` and
`64:ff9b:1::/48` are global to some).

Why: decision 0192.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from interlock.errors import InvalidSettings, NotSigned
from interlock.processes.credentials import ENVIRONMENT

LEAST_TEXT = 16
"""Minimum length of a secret chosen by a person."""
LEAST_KEY, MOST_KEY = 24, 64
"""Minimum and maximum bytes of a key of Standard Webhooks."""
_PREFIX = "whsec_"


class Secret:
    """Bytes that no log, response or traceback shows."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Return the bytes, for signing or sending."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def secret_texts(
    what: str,
    *,
    variable: str = "",
    file: str = "",
    least: int = LEAST_TEXT,
    todo: str = "",
    environment: Mapping[str, str] = ENVIRONMENT,
) -> tuple[Secret, ...]:
    """Return all secrets in the variable and the file.

    Without both, there are none. `todo` is the advice for a new secret, if Interlock does not create it.
    """
    found = tuple(_words(what, variable, file, environment))
    for where, text in found:
        if len(text) < least:
            raise _unfit(what, where, f"has fewer than {least} characters", todo)
    return tuple(Secret(text.encode()) for _, text in found)


def signing_keys(
    what: str, *, variable: str = "", file: str = "", environment: Mapping[str, str] = ENVIRONMENT
) -> tuple[Secret, ...]:
    """Return the base64 keys of Standard Webhooks, with or without `whsec_`."""
    return tuple(_key(what, where, text) for where, text in _words(what, variable, file, environment))


def new_signing_key(random: bytes) -> str:
    """Return a new key, in the format for the other side."""
    return _PREFIX + base64.b64encode(random).decode()


def _words(what: str, variable: str, file: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for text in environment.get(variable, "").split() if variable else ():
        yield variable, text
    if file:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError:
            return  # as with an unset variable: another process may have it
        except UnicodeDecodeError:
            raise _unfit(what, file, "is no text") from None
        yield from ((file, line.strip()) for line in text.splitlines() if line.strip())


def _key(what: str, where: str, text: str) -> Secret:
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise _unfit(what, where, "is not base64") from None
    if not LEAST_KEY <= len(key) <= MOST_KEY:
        raise _unfit(what, where, f"has {len(key)} bytes and must have {LEAST_KEY} to {MOST_KEY}")
    return Secret(key)


def _unfit(what: str, where: str, why: str, todo: str = "") -> InvalidSettings:
    return InvalidSettings(
        f"The secret of {what}, from {where}, {why}.",
        todo=todo or "Make a new one: interlock webhook secret",
        facts={"secret_of": what, "from": where},
    )


TOLERANCE_S = 300
MAX_MESSAGE_ID = 256
_TODO = "Send it with the secret that this server is configured with; nothing was done."


def github_signature(secret: Secret, body: bytes) -> str:
    """Return the signature header of GitHub for a body."""
    return "sha256=" + hmac.new(secret.reveal(), body, hashlib.sha256).hexdigest()


def check_github(secrets: Iterable[Secret], headers: Mapping[str, str], body: bytes) -> None:
    """Raise unless the body was signed with one of the secrets."""
    sent = headers.get("x-hub-signature-256", "")
    if not sent:
        raise NotSigned("The delivery has no header X-Hub-Signature-256.", todo=_TODO)
    if not _any_equal([github_signature(secret, body) for secret in secrets], [sent]):
        raise NotSigned("The signature of the delivery fits no secret of this server.", todo=_TODO)


def standard_signature(key: Secret, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature header of Standard Webhooks for a body."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key.reveal(), signed, hashlib.sha256).digest()).decode()


def standard_headers(keys: Sequence[Secret], message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers of a message.

    Signed with every key, so that either side may rotate first.
    """
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
    """Return the id of the message.

    Raise unless it was signed with one of the keys, recently.
    """
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
        raise NotSigned("The header webhook-timestamp is not a number of seconds.", todo=_TODO)
    return int(text)


def _any_equal(expected: Sequence[str], sent: Sequence[str]) -> bool:
    """Return whether any pair is equal; compare all pairs, in constant time."""
    pairs = [(one.encode(), other.encode("utf-8", "replace")) for one in expected for other in sent[:16]]
    return sum([hmac.compare_digest(one, other) for one, other in pairs]) > 0


IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")
"""The only global unicast part of IPv6; NAT64 and mapped addresses contain an IPv4 address."""
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a carrier's NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, including metadata services of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocols of the IETF
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, retired
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocols of the IETF; among them Teredo, which holds an IPv4 address
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks; raise ValueError for an invalid one."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_public(address: IpAddress) -> bool:
    """Return whether an address, or one that it embeds, is public."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not any(address in network for network in _SPECIAL)
