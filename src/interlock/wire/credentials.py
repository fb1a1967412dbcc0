"""The shapes of credentials, so that a text can be searched for them before it is stored or shown.

An access token is `il_6f2c9d41a07be358_8c1f…` with 64 hexadecimal digits at its end, the secret of a session
is the same with `is_`, and the token of a lease is `j_0123456789ab.1.1.5f1c…` with 32.
"""

from __future__ import annotations

import re

TOKEN = r"i[ls]_[0-9a-f]{16}_[0-9a-f]{64}"
"""Of an access token or a session."""
LEASE = r"j_[0-9a-f]{12}\.[0-9]{1,4}\.[0-9]{1,6}\.[0-9a-f]{32}"
LONGEST = 84
"""Bytes of the longest of them: all have a bounded length."""

_ANY = re.compile(f"{TOKEN}|{LEASE}", re.ASCII)
_LEASE_PARTS = re.compile(r"(j_[0-9a-f]{12}\.[0-9]{1,4}\.[0-9]{1,6})\.[0-9a-f]{32}", re.ASCII)
_TOKEN_PARTS = re.compile(r"(i[ls])_[0-9a-f]{16}_[0-9a-f]{64}", re.ASCII)


def may_have_any(text: str | bytes) -> bool:
    """Return whether a text could contain a credential; cheap, and true for some that do not."""
    if isinstance(text, bytes):
        return b"il_" in text or b"is_" in text or b"j_" in text
    return "il_" in text or "is_" in text or "j_" in text


def redacted(text: str) -> str:
    """Return the text without credentials; a lease keeps the name of its attempt."""
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
