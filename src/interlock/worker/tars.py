"""Read tar archives (ustar, pax, GNU long names) from a stream, forward only and within bounds.

`tarfile` is not used for archives of others: what its filters let through depends on the patch level of the
interpreter (CVE-2024-12718, CVE-2025-4138, CVE-2025-4330, CVE-2025-4435, CVE-2025-4517), and so does how much
memory and time its headers can take (CVE-2024-6232, CVE-2025-8194). Everything that a header can say is
checked here; sparse files, devices and unknown kinds are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Literal, TypeAlias

import msgspec

BLOCK = 512
MOST_HEADER = 65_536
"""Bytes in one extended header; names are much shorter."""
LARGEST = 2**53

Kind: TypeAlias = Literal["file", "folder", "link", "hard"]
_KINDS: dict[bytes, Kind] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hard",
    b"2": "link",
    b"5": "folder",
}
_SHORT = "it ends in the middle"
_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ")
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]*)?")


class Unreadable(Exception):
    """The stream is not an archive that is read here; the text says why."""

    def __init__(self, why: str, member: str = "") -> None:
        super().__init__(why)
        self.member = member[:200]


class Member(msgspec.Struct, frozen=True):
    """The header of one member."""

    name: str
    kind: Kind
    size: int
    executable: bool
    mtime: int
    target: str
    """What a link names; empty for files and folders."""


class Tar:
    """The members of an archive, in their order; read the content of one before asking for the next."""

    def __init__(self, stream: BinaryIO, most_bytes: int) -> None:
        self._stream = stream
        self._most = most_bytes
        self._content = 0
        self._padding = 0
        self._for_all: dict[str, str] = {}

    def __iter__(self) -> Iterator[Member]:
        extra: dict[str, str] = {}
        while (header := self._header()) is not None:
            kind, size = header[156:157], _number(header[124:136], "size")
            if kind in b"xgLK":
                self._extend(extra, kind, size)
                continue
            member = _member(header, kind, size, self._for_all | extra)
            extra = {}
            self._content, self._padding = member.size, -member.size % BLOCK
            yield member
            self._skip()
        if extra:
            raise Unreadable("an extended header is about nothing")
        if len(self._stream.read(MOST_HEADER + 1)) > MOST_HEADER:  # which finds out whether it is whole, too
            raise Unreadable("something follows its end")

    def read(self, most: int) -> bytes:
        """The next bytes of the present member; empty at its end."""
        piece = self._exactly(min(most, self._content))
        self._content -= len(piece)
        return piece

    def _skip(self) -> None:
        while self.read(1_048_576):
            pass
        self._exactly(self._padding)

    def _header(self) -> bytes | None:
        """The next header; None at the end of the archive."""
        header = self._exactly(BLOCK)
        if header.count(0) == BLOCK:
            return None
        said = _number(header[148:156], "checksum")
        if said != sum(header[:148]) + 8 * 0x20 + sum(header[156:]):
            raise Unreadable("a header is damaged")
        return header

    def _extend(self, extra: dict[str, str], kind: bytes, size: int) -> None:
        """Take what an extended header says about the next member, or about all that follow."""
        if size > MOST_HEADER:
            raise Unreadable(f"an extended header has {size:,} bytes, and {MOST_HEADER:,} are allowed")
        said = self._exactly(size)
        self._exactly(-size % BLOCK)
        match kind:
            case b"x":
                extra |= _records(said)
            case b"g":
                self._for_all |= _records(said)
            case _:
                extra["path" if kind == b"L" else "linkpath"] = _text(said.split(b"\0", 1)[0])

    def _exactly(self, size: int) -> bytes:
        self._most -= size
        if self._most < 0:
            raise Unreadable("it has more bytes than are allowed")
        piece = self._stream.read(size) if size else b""
        if len(piece) < size:
            raise Unreadable(_SHORT)
        return piece


def _member(header: bytes, kind: bytes, size: int, extra: dict[str, str]) -> Member:
    name = extra.get("path", _name(header))
    if kind not in _KINDS or any(key.startswith("GNU.sparse") for key in extra):
        raise Unreadable("it is a special or sparse file", name)
    known = _KINDS[kind]
    if known == "file" and name.endswith("/"):  # as archives from before 1988 say it
        known = "folder"
    if "size" in extra:
        if not extra["size"].isascii() or not extra["size"].isdigit() or len(extra["size"]) > 15:
            raise Unreadable("its size is not a number", name)
        size = int(extra["size"])
    mtime = extra.get("mtime", "")
    return Member(
        name=name,
        kind=known,
        size=size if known == "file" else 0,
        executable=bool(_number(header[100:108], "mode") & 0o100),
        mtime=int(mtime.split(".")[0])
        if _SECONDS.fullmatch(mtime)
        else _number(header[136:148], "mtime", least=-LARGEST),
        target=extra.get("linkpath", _text(_until_zero(header[157:257])))
        if known in ("link", "hard")
        else "",
    )


def _name(header: bytes) -> str:
    name = _until_zero(header[:100])
    prefix = _until_zero(header[345:500]) if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _records(said: bytes) -> dict[str, str]:
    """The records of a pax header: `LENGTH KEY=VALUE\\n`, each with its own length in front."""
    found: dict[str, str] = {}
    at = 0
    while at < len(said):
        length = _RECORD.match(said, at)
        end = at + int(length[1]) if length is not None else 0
        record = said[length.end() : end] if length is not None else b""
        key, equals, value = record.partition(b"=")
        if end > len(said) or not equals or not value.endswith(b"\n"):
            raise Unreadable("an extended header is damaged")
        found[_text(key)] = _text(value[:-1])
        at = end
    return found


def _number(field: bytes, what: str, least: int = 0) -> int:
    """An octal number, or a binary one as GNU tar writes what octal digits cannot hold."""
    if field[0] & 0x80:
        number = int.from_bytes(field, "big", signed=True) if field[0] == 0xFF else _positive(field)
    else:
        digits = field.replace(b"\0", b" ").strip() or b"0"
        if digits.strip(b"01234567"):
            raise Unreadable(f"the {what} in a header is not a number")
        number = int(digits, 8)
    if not least <= number <= LARGEST:
        raise Unreadable(f"the {what} in a header cannot be {number:,}")
    return number


def _positive(field: bytes) -> int:
    return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")


def _until_zero(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
