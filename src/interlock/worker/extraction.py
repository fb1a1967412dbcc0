"""Read and unpack an archive from an untrusted source into the folder of a job.

The archive may come from any author of the repository, and the folder belongs to the change that is
built. So members are not unpacked in place: they go to a staging folder, through descriptors that follow no
link, and are moved to their places when all of them are complete, and only to free paths.

- Names are relative, without `..`, at most 4,096 bytes and 128 folders deep; no name occurs twice.
- Symbolic links are relative, climb (`..`) only at their beginning and no further than the folder of the job,
  and are made last, so that no file is written through them. Because the folder of a link is never a link
  itself, such a target cannot leave the folder of the job, through any other links.
- Hard links lead to earlier files of the same archive.
- Devices, pipes and sparse files are refused. Of the mode only "executable" is kept.
- Bytes, members and headers are bounded, and the disk is not filled.

`tarfile` is not used: the effect of its filters depends on the patch level of the interpreter
(CVE-2024-12718, CVE-2025-4138, CVE-2025-4330, CVE-2025-4435, CVE-2025-4517), and so does the memory and time
that its headers can take (CVE-2024-6232, CVE-2025-8194). `Tar` reads ustar, pax and GNU long names from a
stream, forward only, and validates every field of a header.

Why: decision 0298.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, TypeAlias, cast

import msgspec

from interlock.errors import InvalidArtifact
from interlock.worker.archives import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_MEMBERS,
    MOST_NAME,
    MOST_PATH,
    NO_FOLDER,
    Beneath,
    PathParts,
    climbs,
    fits,
    outside_error,
)

BLOCK = 512
MOST_HEADER = 65_536
"""Bytes in one extended header; names are much shorter."""
LARGEST = 2**53

ArchiveEntryKind: TypeAlias = Literal["file", "folder", "link", "hard"]
_KINDS: dict[bytes, ArchiveEntryKind] = {
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
    """The stream is not a supported archive; the text says why."""

    def __init__(self, why: str, member: str = "") -> None:
        super().__init__(why)
        self.member: str = member[:200]


class Member(msgspec.Struct, frozen=True):
    """The header of one member."""

    name: str
    kind: ArchiveEntryKind
    size: int
    executable: bool
    mtime: int
    target: str
    """The target of a link; empty for files and folders."""


class Tar:
    """The members of an archive, in order; read the content of one before asking for the next."""

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
        if len(self._stream.read(MOST_HEADER + 1)) > MOST_HEADER:  # this also checks that it is complete
            raise Unreadable("it has data after its end")

    def read(self, most: int) -> bytes:
        """Return the next bytes of the current member; empty at its end."""
        piece = self._read_exactly(min(most, self._content))
        self._content -= len(piece)
        return piece

    def _skip(self) -> None:
        while self.read(1_048_576):
            pass
        self._read_exactly(self._padding)

    def _header(self) -> bytes | None:
        """Return the next header; None at the end of the archive."""
        header = self._read_exactly(BLOCK)
        if header.count(0) == BLOCK:
            return None
        checksum = _number(header[148:156], "checksum")
        if checksum != sum(header[:148]) + 8 * 0x20 + sum(header[156:]):
            raise Unreadable("a header is damaged")
        return header

    def _extend(self, extra: dict[str, str], kind: bytes, size: int) -> None:
        """Apply an extended header to the next member, or to all that follow."""
        if size > MOST_HEADER:
            raise Unreadable(f"an extended header has {size:,} bytes, and {MOST_HEADER:,} are allowed")
        content = self._read_exactly(size)
        self._read_exactly(-size % BLOCK)
        match kind:
            case b"x":
                extra |= _records(content)
            case b"g":
                self._for_all |= _records(content)
            case _:
                extra["path" if kind == b"L" else "linkpath"] = _text(content.split(b"\0", 1)[0])

    def _read_exactly(self, size: int) -> bytes:
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
    if known == "file" and name.endswith("/"):  # the convention of archives before 1988
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


def _records(content: bytes) -> dict[str, str]:
    """Return the records of a pax header: lines `LENGTH KEY=VALUE`."""
    found: dict[str, str] = {}
    at = 0
    while at < len(content):
        length = _RECORD.match(content, at)
        end = at + int(length[1]) if length is not None else 0
        record = content[length.end() : end] if length is not None else b""
        key, equals, value = record.partition(b"=")
        if end > len(content) or not equals or not value.endswith(b"\n"):
            raise Unreadable("an extended header is damaged")
        found[_text(key)] = _text(value[:-1])
        at = end
    return found


def _number(field: bytes, what: str, least: int = 0) -> int:
    """Return an octal number, or a binary one in the format of GNU tar."""
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


PIECE = 1_048_576
_ROOM = 0.9
"""The part of the free space that an archive may take."""


def unpack(packed: Path, paths: Sequence[str], staging: Path, base: Path) -> list[str]:
    """Unpack the members below these paths; return the placed paths."""
    wanted = [_parts_of(path) for path in paths]
    staging.mkdir(mode=0o700, exist_ok=True)
    base = base.resolve()
    at = ""
    try:
        with gzip.open(packed) as stream, Beneath(staging) as inside:
            unpacking = _ArchiveExtractor(inside, Tar(cast(BinaryIO, stream), _room(staging)), wanted)
            try:
                unpacking.all()
            finally:
                at = unpacking.at
        at = ""
        with Beneath(staging) as source, Beneath(base) as target:
            return _put(source, target, dict(zip(paths, wanted, strict=True)))
    except Unreadable as error:
        raise _unusable(str(error), error.member or at) from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unusable(str(error) or type(error).__name__, at) from error


class _ArchiveExtractor:
    """Writes the members of one archive below the staging folder."""

    def __init__(self, inside: Beneath, tar: Tar, wanted: Sequence[PathParts]) -> None:
        self._inside = inside
        self._tar = tar
        self._wanted = wanted
        self._files: set[PathParts] = set()
        self._links: dict[PathParts, str] = {}
        self.at = ""
        """The name of the current member."""

    def all(self) -> None:
        size = 0
        for number, member in enumerate(self._tar, 1):
            self.at = member.name[:200]
            size += member.size
            if size > MOST_BYTES:
                raise Unreadable(f"it has more than {MOST_BYTES:,} bytes")
            if number > MOST_MEMBERS:
                raise Unreadable(f"it has more than {MOST_MEMBERS:,} members")
            parts = _checked(member.name, member.kind == "folder")
            if any(parts[: len(top)] == top for top in self._wanted):
                self._one(member, parts)
        for parts, target in self._links.items():
            self.at = "/".join(parts)[:200]
            with _as_archive_errors():
                os.symlink(target, parts[-1], dir_fd=self._inside.folder(parts[:-1], make=True))

    def _one(self, member: Member, parts: PathParts) -> None:
        if parts in self._links:
            raise Unreadable("it is in the archive twice")
        if member.kind == "link":
            self._links[parts] = _target(member.target, parts)
            return
        with _as_archive_errors():
            match member.kind:
                case "folder":
                    self._inside.folder(parts, make=True)
                case "hard":
                    self._hard(_checked(member.target), parts)
                case _:
                    self._file(member, parts)

    def _file(self, member: Member, parts: PathParts) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        within = self._inside.folder(parts[:-1], make=True)
        with os.fdopen(os.open(parts[-1], flags, 0o600, dir_fd=within), "wb", 0) as file:
            while piece := self._tar.read(PIECE):
                file.write(piece)
            os.fchmod(file.fileno(), 0o755 if member.executable else 0o644)
            with contextlib.suppress(OverflowError, OSError):  # the file system may not support the time
                os.utime(file.fileno(), (member.mtime, member.mtime))
        self._files.add(parts)

    def _hard(self, target: PathParts, parts: PathParts) -> None:
        if target not in self._files:
            raise Unreadable("it is a hard link to something else than an earlier file of the archive")
        source = os.dup(self._inside.folder(target[:-1]))
        try:
            within = self._inside.folder(parts[:-1], make=True)
            os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=within, follow_symlinks=False)
        finally:
            os.close(source)
        self._files.add(parts)


def _put(source: Beneath, target: Beneath, wanted: dict[str, PathParts]) -> list[str]:
    """Move unpacked paths to their places, unless occupied.

    Files of the change take precedence.
    """
    there = [path for path, parts in wanted.items() if _exists(source, parts)]
    free = [path for path in there if not _exists(target, wanted[path])]
    for path in free:
        parts = wanted[path]
        os.rename(
            parts[-1],
            parts[-1],
            src_dir_fd=source.folder(parts[:-1]),
            dst_dir_fd=target.folder(parts[:-1], make=True),
        )
    return free


def _exists(folder: Beneath, parts: PathParts) -> bool:
    """Return whether the path exists; raise if a link is on the way to it."""
    try:
        os.stat(parts[-1], dir_fd=folder.folder(parts[:-1]), follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NO_FOLDER:
            raise Unreadable(f"{'/'.join(parts)!r} leads through a link or a file of the job") from None
        raise
    return True


def _parts_of(path: str) -> PathParts:
    named = PurePosixPath(path)
    if named.is_absolute() or ".." in named.parts or not named.parts:
        raise outside_error(path)
    return named.parts


def _checked(name: str, folder: bool = False) -> PathParts:
    """Return the components of a name that stays below the target."""
    if name.startswith("/") or "\0" in name:
        raise Unreadable("its name is absolute or invalid")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or (not parts and not folder):
        raise Unreadable("its name leads elsewhere, or is empty")
    if parts and not fits(parts):
        raise Unreadable(
            f"its name is too long: {MOST_PATH:,} bytes are allowed, {MOST_NAME} between two slashes, "
            f"and {MOST_DEPTH} folders"
        )
    return parts


def _target(target: str, link: PathParts) -> str:
    """Return the target of a link, if it cannot lead out of the folder."""
    if not target or "\0" in target or len(os.fsencode(target)) >= MOST_PATH or climbs(target, len(link) - 1):
        raise Unreadable(f"it is a link to {target[:200]!r}, which may lead out of the folder of the job")
    return target


@contextlib.contextmanager
def _as_archive_errors() -> Iterator[None]:
    """Translate errors of the file system into errors of the archive."""
    try:
        yield
    except FileExistsError:
        raise Unreadable("it is in the archive twice") from None
    except OSError as error:
        if error.errno in NO_FOLDER:
            raise Unreadable("a part of its name is a file or a link") from None
        raise


def _room(staging: Path) -> int:
    """Return how many bytes of an archive may be read.

    That is the largest archive with its headers, if the disk has space.
    """
    disk = os.statvfs(staging)
    return min(MOST_BYTES + MOST_MEMBERS * 4_096, int(disk.f_bavail * disk.f_frsize * _ROOM))


def _unusable(why: str, member: str) -> InvalidArtifact:
    about = f" (at {member!r})" if member else ""
    return InvalidArtifact(
        f"The saved cache cannot be unpacked: {why}{about}.",
        todo="Nothing; the job continues without it.",
        facts={"member": member, "why": why},
    )
