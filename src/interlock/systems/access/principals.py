"""Who is asking, and what a role allows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from interlock.errors import NotAllowed
from interlock.wire.access import (
    Role,
)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever a request comes from. The name is the actor of what the journal says about it."""

    name: str
    roles: tuple[Role, ...]
    queues: frozenset[str] = frozenset()
    """The queues that exist for it; none named means all of them."""
    token_id: str = ""
    """Empty for somebody who needs no token."""
    claim: str = ""
    """The lease that was shown instead of a token: it allows reports on its own attempt, and nothing else."""
    digest: str = ""
    """Of the secret of the token, so that it can be checked again while a stream is open."""
    session_id: str = ""
    """The session of a browser, where a cookie was shown."""

    @property
    def scoped(self) -> bool:
        """Whether some queues do not exist for it."""
        return bool(self.queues)

    def may(self, role: Role) -> bool:
        """Whether one of its roles allows what this one does."""
        return _is_enough(self.roles, role)

    def sees(self, queue: str) -> bool:
        """Whether a queue exists for it."""
        return not self.queues or queue in self.queues

    def need(self, role: Role) -> None:
        """Raise unless one of its roles is enough."""
        if not self.may(role):
            held = ", ".join(self.roles)
            raise NotAllowed(
                f"{self.name} is {held}, and this needs {role}.",
                todo=f"Use a token with the role {role}: interlock token create NAME --role {role}",
                allowed=enough_for(role),
                facts={"principal": self.name, "roles": list(self.roles), "needed": role},
            )

    def need_queues(self, queues: Iterable[str]) -> None:
        """Raise when one of the queues is out of its scope."""
        if foreign := sorted({queue for queue in queues if not self.sees(queue)}):
            raise NotAllowed(
                f"{self.name} may not use the queue {', '.join(foreign)}.",
                todo="Use one of its own queues, or a token for that queue.",
                allowed=sorted(self.queues),
                facts={"principal": self.name, "queues": foreign},
            )

    def need_everything(self, what: str) -> None:
        """Raise when it is confined to some queues, and what it asks for is about all of them."""
        if self.scoped:
            own = ", ".join(sorted(self.queues))
            raise NotAllowed(
                f"{self.name} is confined to {own}, and {what} is about all queues.",
                todo="Use a token that is not confined to queues.",
                facts={"principal": self.name, "queues": sorted(self.queues)},
            )


@lru_cache
def _is_enough(roles: tuple[Role, ...], needed: Role) -> bool:
    """There are few combinations, and each request asks for one."""
    return any(own.includes(needed) for own in roles)


def enough_for(role: Role) -> tuple[Role, ...]:
    """Every role that may do what this one does."""
    return tuple(each for each in Role if each.includes(role))


LOCAL = Principal(name="local", roles=(Role.ADMIN, Role.RUNNER))
"""Somebody on this very machine, where no token is asked for."""
