"""Mask secrets in all output of a handler.

A secret is masked in every form in which programs commonly write it: plain, line by line, in base64 (at any
offset, and with any line wrapping), in hexadecimal, in a URL, in JSON, and quoted for a shell. Access tokens
and lease tokens are masked by their shape, of every principal. Output of a command arrives in pieces that
may end anywhere, so a stream holds back only a possible beginning of a secret: the result does not depend on
the pieces.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from urllib.parse import quote, quote_plus

import msgspec

from interlock.wire import credentials
from interlock.wire.runner import Failed, Succeeded

MASK = "***"
SHORTEST = 4
"""Shorter forms are not masked: they occur in too much other text."""
_WRAP = rb"(?:\r?\n)?"
_WHOLE = "surrogatepass"
_ESCAPE = re.compile("%[0-9A-F]{2}")
_SHAPES = f"(?:{credentials.TOKEN}|{credentials.LEASE})".encode()
_HEX = "[0-9a-f]"
_BEGINS_SHAPE = re.compile(
    # Each part only after the whole of the previous one.
    rf"i(?:[ls](?:_(?:{_HEX}{{0,15}}|{_HEX}{{16}}(?:_{_HEX}{{0,63}})?))?)?"
    rf"|j(?:_(?:{_HEX}{{0,11}}|{_HEX}{{12}}(?:\.(?:[0-9]{{0,4}}"
    rf"|[0-9]{{1,4}}\.(?:[0-9]{{0,6}}|[0-9]{{1,6}}\.{_HEX}{{0,31}})))?))?".encode()
)
"""An incomplete beginning of a token."""


class Form(msgspec.Struct, frozen=True):
    """One form in which a secret may be written."""

    text: bytes
    wrapped: bool = False
    """Whether line breaks may occur between any two of its characters."""

    @property
    def pattern(self) -> bytes:
        """The form as a regular expression."""
        if not self.wrapped:
            return re.escape(self.text)
        return _WRAP.join(re.escape(self.text[at : at + 1]) for at in range(len(self.text)))

    def may_begin(self, tail: bytes) -> bool:
        """Return whether the form may begin at the end of a piece.

        It would be incomplete there.
        """
        if tail[:1] != self.text[:1]:
            return False
        if self.wrapped:
            tail = tail.replace(b"\r\n", b"").replace(b"\n", b"").removesuffix(b"\r")
        return len(tail) < len(self.text) and self.text.startswith(tail)


class Mask:
    """Masks some secrets."""

    def __init__(self, secrets: Mapping[str, str], *, beside: Mask | None = None) -> None:
        forms = {form for value in secrets.values() for form in forms_of(value)}
        forms |= set() if beside is None else set(beside.forms)
        self.forms: list[Form] = sorted(forms, key=lambda form: (-len(form.text), form.text, form.wrapped))
        """The forms, longer ones first."""
        self.shortest: int = min((credentials.SHORTEST, *(len(form.text) for form in self.forms)))
        """Number of bytes below which a text contains none of them, and no credential."""

    @cached_property
    def _regex(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join((*(form.pattern for form in self.forms), _SHAPES)))

    @cached_property
    def _longest(self) -> int:
        lengths = (len(form.text) * (3 if form.wrapped else 1) for form in self.forms)
        return max((credentials.LONGEST, *lengths))

    @cached_property
    def _beginnings(self) -> frozenset[int]:
        return frozenset((*b"ij", *(form.text[0] for form in self.forms)))

    def text(self, text: str) -> str:
        """Return a masked text."""
        if not self.forms and not credentials.may_have_any(text):
            return text
        return self.all(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def raw(self, value: msgspec.Raw) -> msgspec.Raw:
        """Return a masked JSON value."""
        data = bytes(value)
        masked = self.all(data)
        return value if masked is data else msgspec.Raw(masked)

    def all(self, text: bytes) -> bytes:
        """Return masked bytes."""
        if len(text) < self.shortest or not (self.forms or credentials.may_have_any(text)):
            return text
        return self._regex.sub(MASK.encode(), text)

    def blanked(self, text: str) -> str:
        """Return a text with secrets replaced by asterisks.

        They have the same length, because offsets in a log are in bytes.
        """
        data = text.encode(errors="surrogatepass")
        masked = self._regex.sub(lambda found: b"*" * len(found[0]), data)
        return text if masked == data else masked.decode(errors="surrogatepass")

    def outcome(self, outcome: Succeeded | Failed) -> Succeeded | Failed:
        """Return a masked report."""
        if isinstance(outcome, Succeeded):
            data = bytes(outcome.result)
            masked = self.all(data)
            return outcome if masked is data else Succeeded(msgspec.Raw(masked))
        error, details = self.text(outcome.error), self.text(outcome.details)
        return msgspec.structs.replace(outcome, error=error, details=details)

    def split(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return the masked part of a piece to show, and the rest.

        The rest must wait.
        """
        shown: list[bytes] = []
        at, hold = 0, self._hold(piece, 0)
        for found in self._regex.finditer(piece):
            if found.start() >= hold:
                break
            shown += [piece[at : found.start()], MASK.encode()]
            at = found.end()
            hold = hold if at <= hold else self._hold(piece, at)
        return b"".join((*shown, piece[at:hold])), piece[hold:]

    def _hold(self, piece: bytes, at: int) -> int:
        """Return from where on a piece may be the beginning of a secret."""
        for place in range(max(at, len(piece) - self._longest), len(piece)):
            if piece[place] not in self._beginnings:
                continue
            tail = piece[place:]
            if _BEGINS_SHAPE.fullmatch(tail) or any(form.may_begin(tail) for form in self.forms):
                return place
        return len(piece)


NOTHING_SECRET = Mask({})


class MaskedStream:
    """Masks one stream of bytes that arrives in pieces."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the masked bytes that can be shown now."""
        shown, self._rest = self._mask.split(self._rest + piece)
        return shown

    def end(self) -> bytes:
        """Return the rest at the end of the stream."""
        rest, self._rest = self._rest, b""
        return self._mask.all(rest)


def forms_of(value: str) -> Iterator[Form]:
    """Yield every form of a secret."""
    texts = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    for text in texts:
        if len(text) >= SHORTEST:
            data = text.encode(errors="surrogatepass")
            yield Form(data)
            yield from (Form(each.encode(errors="surrogatepass")) for each in _quoted(text))
            yield from (Form(each) for each in (data.hex().encode(), data.hex().upper().encode()))
            yield from (Form(each, wrapped=True) for each in _in_base64(data) if len(each) >= SHORTEST)


def _quoted(text: str) -> Iterable[str]:
    urls = {quote(text, safe="", errors=_WHOLE), quote(text, errors=_WHOLE), quote_plus(text, errors=_WHOLE)}
    return {
        *urls,
        *(_ESCAPE.sub(lambda found: found[0].lower(), url) for url in urls),
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
        shlex.quote(text).strip("'"),
        text.replace("'", "'\\''"),
    }


def _in_base64(data: bytes) -> Iterator[bytes]:
    """Yield the base64 letters of a secret that are independent of its offset."""
    for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
        alone = encode(data)
        yield from (alone, alone.rstrip(b"="))
        for before, mixed in ((0, 0), (1, 2), (2, 3)):
            letters = encode(bytes(before) + data)
            whole = (before + len(data)) * 8 // 6
            yield letters[mixed:whole]
