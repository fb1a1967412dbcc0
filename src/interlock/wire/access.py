"""Roles, tokens and sessions: the permissions of a role, and views without secrets."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.wire.views import View

USUAL = timedelta(days=90)
"""Default lifetime of a token."""
MAX_LIFETIME = timedelta(days=3_660)
OVERLAPPING = timedelta(minutes=10)
"""Default time for which the old secret of a rotated token keeps working."""
MAX_OVERLAP = timedelta(days=30)


class Role(StrEnum):
    """Role of a principal. Each of the first four includes the permissions of the one before it."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    RUNNER = "runner"

    def includes(self, needed: Role) -> bool:
        """Return whether this role has all permissions of another role."""
        if self is needed:
            return True
        return self in _RANKS and needed in _RANKS and _RANKS.index(self) > _RANKS.index(needed)


_RANKS = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)


MEANINGS: dict[Role, str] = {
    Role.VIEWER: "Reads jobs, queues, machines and the journal.",
    Role.SUBMITTER: "The same, and submits and retries jobs.",
    Role.OPERATOR: "The same, and cancels jobs, singly or by a filter, and approves runs.",
    Role.ADMIN: "Everything except for the protocol of runners.",
    Role.RUNNER: "Claims work and reports on it; nothing else.",
}


class TokenView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token without its secret. The store keeps only a hash of the secret."""

    id: str
    name: str
    role: Role
    state: str
    created_at: datetime
    queues: tuple[str, ...] = ()
    """Queues to which the token is confined; empty: all queues."""
    expires_at: datetime | None = None
    rotated_at: datetime | None = None
    old_until: datetime | None = None
    """Time until which the old secret works, while the token is being rotated."""
    used_at: datetime | None = None
    """Time of the last use, to about a minute."""
    used_from: str = ""
    """Address of the client at the last use."""


class Issued(msgspec.Struct, frozen=True):
    """A new or rotated token. The secret is shown only this once."""

    token: str
    view: TokenView

    def __repr__(self) -> str:
        return f"<issued {self.view.name}>"


class SessionView(View, frozen=True, kw_only=True):
    """Session of a browser that has signed in, without its secret."""

    id: str
    name: str
    """Name of the token with which the browser signed in."""
    token_id: str
    state: str
    created_at: datetime
    expires_at: datetime
