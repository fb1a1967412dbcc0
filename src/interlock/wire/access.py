"""Roles, tokens and sessions, as they travel: what a role allows, and views without secrets."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.wire.views import View

USUAL = timedelta(days=90)
"""How long a token works, unless it says otherwise."""
MAX_LIFETIME = timedelta(days=3_660)
OVERLAPPING = timedelta(minutes=10)
"""How long the old secret of a rotated token works, unless the request says otherwise."""
MAX_OVERLAP = timedelta(days=30)


class Role(StrEnum):
    """What somebody may do. Each of the first four may do what the one before it may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    RUNNER = "runner"

    def includes(self, needed: Role) -> bool:
        """Whether this role may do what the other one may."""
        if self is needed:
            return True
        return self in _RANKS and needed in _RANKS and _RANKS.index(self) > _RANKS.index(needed)


_RANKS = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)


MEANINGS: dict[Role, str] = {
    Role.VIEWER: "Looks at jobs, queues, machines and the journal.",
    Role.SUBMITTER: "The same, and submits jobs and does ended ones again.",
    Role.OPERATOR: "The same, stops jobs, one by one or by a filter, and approves runs.",
    Role.ADMIN: "Everything that people can do.",
    Role.RUNNER: "Asks for work and reports on it; nothing else.",
}


class TokenView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token without its secret, of which nothing is kept that could be shown."""

    id: str
    name: str
    role: Role
    state: str
    created_at: datetime
    queues: tuple[str, ...] = ()
    """The queues that it is confined to; none named means all of them."""
    expires_at: datetime | None = None
    rotated_at: datetime | None = None
    old_until: datetime | None = None
    """While it is rotating: until when the old secret works."""
    used_at: datetime | None = None
    """When it was used last, to about a minute."""
    used_from: str = ""
    """The address that it was used from then."""


class Issued(msgspec.Struct, frozen=True):
    """A new token, or an old one with a new secret; this is the only time that the secret is shown."""

    token: str
    view: TokenView

    def __repr__(self) -> str:
        return f"<issued {self.view.name}>"


class SessionView(View, frozen=True, kw_only=True):
    """A browser that has signed in, without its secret."""

    id: str
    name: str
    """Of the token that was used."""
    token_id: str
    state: str
    created_at: datetime
    expires_at: datetime
