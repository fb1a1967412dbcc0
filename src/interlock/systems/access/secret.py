"""What a token looks like, and what is kept of it; the secret of a session is of the same form.

    il_6f2c9d41a07be358_8c1f…64 hex digits…
    is_0b7d1f52c9e6a384_51d0…

The first part names the record, so that checking a token is one look-up. The second is a secret of
256 bits of which only a digest is kept; there is nothing to guess, so a plain SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

_SHAPE = re.compile(r"(il|is)_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
_PREFIXES = {"token": "il", "session": "is"}

ID_BYTES = 8
SECRET_BYTES = 32


class Secret(msgspec.Struct, frozen=True):
    """A token or a session, taken apart. It never shows its secret by accident."""

    id: str
    secret: str
    kind: str = "token"

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

    def __str__(self) -> str:
        return repr(self)

    @property
    def text(self) -> str:
        """The token as it is handed over, once."""
        return f"{_PREFIXES[self.kind]}_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """What is kept of the secret."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def read_secret(text: str, kind: str = "token") -> Secret | None:
    """Return the parts of a token, or of a session; None for anything that cannot be one."""
    found = _SHAPE.fullmatch(text)
    return Secret(found[2], found[3], kind) if found and found[1] == _PREFIXES[kind] else None
