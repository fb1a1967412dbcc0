"""The secrets of a handler, by name.

Why: decision 0187.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from interlock.errors import NotGiven
from interlock.wire.runner import Grant


class Secrets(Mapping[str, str]):
    """Values by name. Its representation shows only the names."""

    __slots__ = ("_grant",)

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def __getitem__(self, name: str) -> str:
        try:
            return self._grant.secrets[name]
        except KeyError:
            raise self._missing(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._grant.secrets

    def __iter__(self) -> Iterator[str]:
        return iter(self._grant.secrets)

    def __len__(self) -> int:
        return len(self._grant.secrets)

    def __repr__(self) -> str:
        return f"<Secrets {', '.join(self) or 'none'}>"

    def _missing(self, name: str) -> NotGiven:
        if self._grant.secrets_withheld:
            return NotGiven(
                f"The secret {name} is withheld: the change of this job comes from a fork.",
                todo="Check `name in ctx.secrets`, and do without it.",
                facts={"secret": name},
            )
        return NotGiven(
            f"The job was not given a secret {name}.",
            todo=f"Name it when the job is submitted: secrets=({name!r},)",
            facts={"secret": name, "given": list(self)},
        )
