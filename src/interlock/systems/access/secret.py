"""What a token looks like, and what is kept of it.

    il_6f2c9d41a07be358_8c1f…64 hex digits…

The first part names the record, so that checking a token is one look-up. The second is a secret of
256 bits of which only a digest is kept; there is nothing to guess, so a plain SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

_SHAPE = re.compile(r"il_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)

ID_BYTES = 8
SECRET_BYTES = 32


class Secret(msgspec.Struct, frozen=True):
    """A token, taken apart. It never shows its secret by accident."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"<token {self.id}>"

    def __str__(self) -> str:
        return repr(self)

    @property
    def text(self) -> str:
        """The token as it is handed over, once."""
        return f"il_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """What is kept of the secret."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def read_secret(text: str) -> Secret | None:
    """The parts of a token; None for anything that cannot be one."""
    found = _SHAPE.fullmatch(text)
    return Secret(found[1], found[2]) if found else None
