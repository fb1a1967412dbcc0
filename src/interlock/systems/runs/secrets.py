"""Secrets from outside: read from the environment or a file, and never shown.

Several may hold at once, so that one can be replaced while the other side still uses the old one: the
words of the variable, and the lines of the file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path

from interlock.errors import InvalidSettings
from interlock.processes.credentials import ENVIRONMENT

LEAST_TEXT = 16
"""How many characters a secret has at least that somebody has made up."""
LEAST_KEY, MOST_KEY = 24, 64
"""How many bytes a key of Standard Webhooks has."""
_PREFIX = "whsec_"


class Secret:
    """Some bytes that no log, answer or traceback shows."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """The bytes themselves, for whoever signs or sends them."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def secret_texts(
    what: str,
    *,
    variable: str = "",
    file: str = "",
    least: int = LEAST_TEXT,
    todo: str = "",
    environment: Mapping[str, str] = ENVIRONMENT,
) -> tuple[Secret, ...]:
    """Every secret that the variable and the file hold; none when neither is there.

    `todo` says where a new one comes from, when it is not ours to make.
    """
    found = tuple(_words(what, variable, file, environment))
    for where, text in found:
        if len(text) < least:
            raise _unfit(what, where, f"has fewer than {least} characters", todo)
    return tuple(Secret(text.encode()) for _, text in found)


def signing_keys(
    what: str, *, variable: str = "", file: str = "", environment: Mapping[str, str] = ENVIRONMENT
) -> tuple[Secret, ...]:
    """The same for keys of Standard Webhooks: base64, with `whsec_` before it or without."""
    return tuple(_key(what, where, text) for where, text in _words(what, variable, file, environment))


def new_signing_key(random: bytes) -> str:
    """A key as it is handed to the other side."""
    return _PREFIX + base64.b64encode(random).decode()


def _words(what: str, variable: str, file: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for word in environment.get(variable, "").split() if variable else ():
        yield variable, word
    if file:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError:
            return  # as with a variable that is not set: another process may have it
        except UnicodeDecodeError:
            raise _unfit(what, file, "is no text") from None
        yield from ((file, line.strip()) for line in text.splitlines() if line.strip())


def _key(what: str, where: str, text: str) -> Secret:
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise _unfit(what, where, "is not base64") from None
    if not LEAST_KEY <= len(key) <= MOST_KEY:
        raise _unfit(what, where, f"has {len(key)} bytes and must have {LEAST_KEY} to {MOST_KEY}")
    return Secret(key)


def _unfit(what: str, where: str, why: str, todo: str = "") -> InvalidSettings:
    return InvalidSettings(
        f"The secret of {what}, from {where}, {why}.",
        todo=todo or "Make a new one: interlock webhook secret",
        facts={"secret_of": what, "from": where},
    )
