"""The base of all errors, and of errors about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from interlock.text import nearest


class InterlockError(Exception):
    """A request that cannot be carried out, and the reason."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init_subclass__(cls, *, code: str = "", status: int = 0) -> None:
        super().__init_subclass__()
        cls.code, cls.status = code or cls.code, status or cls.status

    def __init__(
        self,
        sentence: str,
        *,
        allowed: Iterable[str] = (),
        todo: str = "",
        facts: dict[str, object] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.allowed: tuple[str, ...] = tuple(allowed)
        self.todo = todo
        self.facts: dict[str, object] = dict(facts or {})
        if todo:
            self.add_note(f"→ {todo}")  # a traceback shows it

    def as_dict(self) -> dict[str, object]:
        """Return the error as the API and `--json` show it."""
        return {
            "code": self.code,
            "status": self.status,
            "error": self.sentence,
            "facts": self.facts,
            "allowed": list(self.allowed),
            "todo": self.todo,
        }


class UnknownName(InterlockError, code="unknown_name", status=404):
    """The name is not known; the known ones are in `allowed`."""

    noun: ClassVar[str] = "name"

    def __init_subclass__(cls, *, noun: str = "", code: str = "", status: int = 0) -> None:
        super().__init_subclass__(code=code, status=status)
        cls.noun = noun or cls.noun

    def __init__(self, name: object, known: Sequence[str], *, where: str = "") -> None:
        self.name: str = str(name)
        self.known: tuple[str, ...] = tuple(known)
        self.where: str = where
        near = nearest(self.name, known) if self.name not in known else None
        place = f" of {where}" if where else ""
        guess = f" Did you mean {near}?" if near else ""
        super().__init__(
            f"There is no {self.noun} {self.name!r}{place}.{guess}",
            allowed=known,
            todo=f"Use one of: {', '.join(known)}." if known else "",
            facts={self.noun: self.name, "known": list(known)},
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _unknown_name, (type(self), self.name, self.known, self.where)


def _unknown_name(kind: type[UnknownName], name: str, known: tuple[str, ...], where: str) -> UnknownName:
    """Recreate the error of another process from its facts."""
    return kind(name, known, where=where)
