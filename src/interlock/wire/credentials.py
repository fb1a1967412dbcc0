"""Credentials: find and redact them in text, and hand one to git.

An access token is `il_6f2c9d41a07be358_8c1f…` with 64 hexadecimal digits at its end, the secret of a
session is the same with `is_`, and the token of a lease is `j_0123456789ab.1.1.5f1c…` with 32.

Git receives a secret as a setting in its environment, for one server only: arguments are visible to every
user of the machine, and `.git/config` stays. Redirects are not followed with it, and it only travels over
https.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from interlock.errors import InvalidArguments

TOKEN = r"i[ls]_[0-9a-f]{16}_[0-9a-f]{64}"
"""Pattern of an access token or of the secret of a session."""
LEASE = r"j_[0-9a-f]{12}\.[0-9]{1,4}\.[0-9]{1,6}\.[0-9a-f]{32}"
SHORTEST, LONGEST = 51, 84
"""Lengths in bytes of the shortest and the longest credential."""

_ANY = re.compile(f"{TOKEN}|{LEASE}", re.ASCII)
_LEASE_PARTS = re.compile(r"(j_[0-9a-f]{12}\.[0-9]{1,4}\.[0-9]{1,6})\.[0-9a-f]{32}", re.ASCII)
_TOKEN_PARTS = re.compile(r"(i[ls])_[0-9a-f]{16}_[0-9a-f]{64}", re.ASCII)


def may_have_any(text: str | bytes) -> bool:
    """Return whether a text could contain a credential.

    Cheap, and true for some that do not.
    """
    if isinstance(text, bytes):
        return b"il_" in text or b"is_" in text or b"j_" in text
    return "il_" in text or "is_" in text or "j_" in text


def redacted(text: str) -> str:
    """Return the text without credentials.

    A lease keeps the name of its attempt.
    """
    if not may_have_any(text):
        return text
    return _LEASE_PARTS.sub(r"\1.***", _TOKEN_PARTS.sub(r"\1_***", text))


def blanked(text: str) -> str:
    """Return the text with each credential replaced by as many asterisks.

    The length stays, because positions in a log are counted in bytes.
    """
    if not may_have_any(text):
        return text
    return _ANY.sub(lambda found: "*" * len(found[0]), text)


ANYBODY = "x-access-token"
"""User name that accompanies a token without one."""
_LOCAL = ("127.0.0.1", "::1", "localhost")


def authorization(address: str, secret: str) -> dict[str, str]:
    """Return git settings that send a secret to the server of an address.

    The secret is `TOKEN` or `USER:PASSWORD`.
    """
    check_secret(address)
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = f":{parts.port}" if parts.port is not None else ""
    pair = secret if ":" in secret else f"{ANYBODY}:{secret}"
    header = base64.b64encode(pair.encode()).decode()
    return {
        f"http.{parts.scheme}://{host}{port}/.extraHeader": f"Authorization: Basic {header}",
        "http.followRedirects": "false",
    }


def check_secret(address: str) -> None:
    """Raise for an address to which a secret must not be sent."""
    parts = urlsplit(address)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL):
        return
    raise InvalidArguments(
        "A secret for git goes over https only.",
        todo="Give the address of the repository as https://HOST/PATH; for ssh the machine has a key.",
        facts={"protocol": parts.scheme},
    )


def as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings of git as environment variables."""
    made = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made
