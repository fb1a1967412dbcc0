"""The life of a token: it works until somebody revokes it, or until its time is over."""

from __future__ import annotations

from enum import StrEnum

from interlock.machine import Deadline, Machine, command, end, ignore, on, state, timer


class TokenState(StrEnum):
    """Where a token stands."""

    ACTIVE = "active"
    REVOKED = "revoked"
    EXPIRED = "expired"


ACTIVE, REVOKED, EXPIRED = TokenState.ACTIVE, TokenState.REVOKED, TokenState.EXPIRED

revoke = command("revoke", "Somebody takes it back.", by="admin")
expire = timer("expire", "Its time is over.", by="clock")

LIFETIME = Deadline(expire, "token_lifetime_s", 90 * 86_400.0, since="it was made, unless it says otherwise")
"""How long a token lasts unless somebody says otherwise."""

# fmt: off
TOKEN = Machine[TokenState, None](
    "token",
    "A secret that stands for somebody, with a role.",
    initial=ACTIVE,
    spine=(ACTIVE, EXPIRED),
    stop=(revoke,),
    states=(
        state(ACTIVE, "Whoever has it is let in.", turn="admin", within=LIFETIME),
        end(REVOKED, "Somebody has taken it back."),
        end(EXPIRED, "Its time is over."),
    ),
    rows=(
        on(revoke, ACTIVE, REVOKED, owner="admin", why="It is not wanted any more, or somebody else has it."),
        on(expire, ACTIVE, EXPIRED, owner="clock", why="A secret that lasts for ever is found one day."),
        ignore(expire, (REVOKED, EXPIRED), why="it is over"),
    ),
)
# fmt: on
