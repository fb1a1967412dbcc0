"""Sealed cursors, for tokens that are confined to queues.

A cursor of a store is a place in a list of everybody: a number that counts all records, or the id of a
record that the token may not see. A sealed cursor says neither, and is good for one token and one list.

It is encrypted deterministically and authenticated (a synthetic IV: the keyed hash of the content is
both the check and the start of the key stream), padded so that its length says nothing. The key is kept
with the token in the store, so that a cursor is good at every server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from binascii import Error as NotBase64

BLOCK = 96
"""Content is padded to a multiple of this; cursors of stores have up to 85 bytes."""
CHECK = 16


def sealed(key: str, where: str, cursor: str) -> str:
    """Return the cursor as it is handed out; `where` names the list that it belongs to."""
    content = cursor.encode()
    content = content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")
    check = _check(key, where, content)
    return base64.urlsafe_b64encode(check + _xor(content, key, check)).decode().rstrip("=")


def opened(key: str, where: str, text: str) -> str | None:
    """Return what was sealed; None for anything that was not sealed for this list with this key."""
    try:
        whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (NotBase64, ValueError):
        return None
    check, hidden = whole[:CHECK], whole[CHECK:]
    content = _xor(hidden, key, check)
    if not hidden or not hmac.compare_digest(check, _check(key, where, content)):
        return None
    return content.rstrip(b"\0").decode()


def _check(key: str, where: str, content: bytes) -> bytes:
    return hmac.digest(key.encode(), b"check\0" + where.encode() + b"\0" + content, "sha256")[:CHECK]


def _xor(content: bytes, key: str, check: bytes) -> bytes:
    stream = hashlib.shake_256(b"stream\0" + key.encode() + check).digest(len(content))
    return bytes(one ^ other for one, other in zip(content, stream, strict=True))
