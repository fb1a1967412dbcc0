"""The principal of a request, and the permissions of a role."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from interlock.errors import NotAllowed
from interlock.wire.access import (
    Role,
)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated sender of a request. Its name is the actor in the journal."""

    name: str
    roles: tuple[Role, ...]
    queues: frozenset[str] = frozenset()
    """The visible queues; empty for all."""
    token_id: str = ""
    """Empty if no token is needed."""
    claim: str = ""
    """The lease that was used instead of a token: it allows only reports on its own attempt."""
    digest: str = ""
    """Digest of the token's secret, to check it again while a stream is open."""
    session_id: str = ""
    """The session of a browser, if a cookie was used."""

    @property
    def scoped(self) -> bool:
        """Whether it is limited to some queues."""
        return bool(self.queues)

    def may(self, role: Role) -> bool:
        """Return whether one of its roles includes this one."""
        return _is_enough(self.roles, role)

    def sees(self, queue: str) -> bool:
        """Return whether a queue is visible."""
        return not self.queues or queue in self.queues

    def need(self, role: Role) -> None:
        """Raise unless one of its roles is sufficient."""
        if not self.may(role):
            held = ", ".join(self.roles)
            raise NotAllowed(
                f"{self.name} is {held}, and this needs {role}.",
                todo=f"Use a token with the role {role}: interlock token create NAME --role {role}",
                allowed=enough_for(role),
                facts={"principal": self.name, "roles": list(self.roles), "needed": role},
            )

    def need_queues(self, queues: Iterable[str]) -> None:
        """Raise if one of the queues is out of scope."""
        if foreign := sorted({queue for queue in queues if not self.sees(queue)}):
            raise NotAllowed(
                f"{self.name} may not use the queue {', '.join(foreign)}.",
                todo="Use one of its own queues, or a token for that queue.",
                allowed=sorted(self.queues),
                facts={"principal": self.name, "queues": foreign},
            )

    def need_everything(self, what: str) -> None:
        """Raise if it is limited to some queues, for a request about all of them."""
        if self.scoped:
            own = ", ".join(sorted(self.queues))
            raise NotAllowed(
                f"{self.name} is restricted to {own}, and {what} concerns all queues.",
                todo="Use a token that is not restricted to queues.",
                facts={"principal": self.name, "queues": sorted(self.queues)},
            )


@lru_cache
def _is_enough(roles: tuple[Role, ...], needed: Role) -> bool:
    """Return whether a role is sufficient.

    Cached, since there are few combinations.
    """
    return any(own.includes(needed) for own in roles)


def enough_for(role: Role) -> tuple[Role, ...]:
    """Return every role that includes this one."""
    return tuple(each for each in Role if each.includes(role))


LOCAL = Principal(name="local", roles=(Role.ADMIN, Role.RUNNER))
"""A client on this machine, where no token is needed."""
