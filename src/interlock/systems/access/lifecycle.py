"""The life of a token: it works until it is revoked or expires, and its secret can be rotated meanwhile."""

from __future__ import annotations

from enum import StrEnum

from interlock.machine import STAY, Deadline, Machine, command, end, ignore, on, state, timer


class TokenState(StrEnum):
    """Where a token stands."""

    ACTIVE = "active"
    ROTATING = "rotating"
    REVOKED = "revoked"
    EXPIRED = "expired"


ACTIVE, ROTATING = TokenState.ACTIVE, TokenState.ROTATING
REVOKED, EXPIRED = TokenState.REVOKED, TokenState.EXPIRED
WORKING = (ACTIVE, ROTATING)
"""A token in one of these states lets its holder in."""

rotate = command("rotate", "Replace the secret; the old one works for a while.", by="admin")
rotate_at_once = command("rotate_at_once", "Replace the secret; the old one works no more.", by="admin")
retire = timer("retire", "The time of the old secret is over.", by="clock")
revoke = command("revoke", "Somebody takes it back.", by="admin")
expire = timer("expire", "Its time is over.", by="clock")

LIFETIME = Deadline(expire, "token_lifetime_s", 90 * 86_400.0, since="it was made, unless it says otherwise")
"""How long a token lasts unless somebody says otherwise."""
OVERLAP = Deadline(retire, "token_overlap_s", 600.0, since="it was rotated, unless it says otherwise")
"""How long the old secret works beside the new one, so that its holders can be given the new one."""

# fmt: off
TOKEN = Machine[TokenState, None](
    "token",
    "A secret that stands for somebody, with a role.",
    initial=ACTIVE,
    spine=(ACTIVE, ROTATING, EXPIRED),
    stop=(revoke,),
    states=(
        state(ACTIVE, "Whoever has it is let in.", turn="admin", within=LIFETIME),
        state(ROTATING, "Its new secret and its old one both let in.", turn="clock", within=OVERLAP),
        end(REVOKED, "Somebody has taken it back."),
        end(EXPIRED, "Its time is over."),
    ),
    rows=(
        on(rotate, ACTIVE, ROTATING, owner="admin", why="Holders of the old secret need time to change it."),
        on(rotate, ROTATING, STAY, owner="admin", arms=OVERLAP,
           why="The secret before the last one works no more."),
        on(rotate_at_once, ACTIVE, STAY, owner="admin", why="Somebody else may have the old secret."),
        on(rotate_at_once, ROTATING, ACTIVE, owner="admin", why="Somebody else may have an old secret."),
        on(retire, ROTATING, ACTIVE, owner="clock", why="Every holder has had time to change it."),
        on(revoke, WORKING, REVOKED, owner="admin", why="It is not wanted any more, or is not secret."),
        on(expire, WORKING, EXPIRED, owner="clock", why="A secret that lasts for ever is found one day."),
        ignore(retire, (ACTIVE, REVOKED, EXPIRED), why="no old secret works"),
        ignore(expire, (REVOKED, EXPIRED), why="it is over"),
    ),
)
# fmt: on
