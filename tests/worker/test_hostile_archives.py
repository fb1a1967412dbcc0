"""Archives that try to write, link or chmod outside their folder, and ordinary ones that still work.

Nothing here may depend on the patch level of the interpreter: `tarfile` only makes the archives.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effort import pick

from interlock.errors import InvalidArtifact
from interlock.worker import extraction
from interlock.worker.archives import found_in, pack
from interlock.worker.extraction import unpack

FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
BOMB_BYTES = 16 * 1_048_576


def one(
    name: str, kind: bytes = FILE, link: str = "", *, size: int = 1, mode: int = 0o644
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    made.size = size if kind == FILE else 0
    return made


class Site:
    """A folder of a job with a neighbour that no archive may touch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = root / "work" / "base"
        self.staging = root / "work" / "staging"
        self.outside = root / "outside"
        self.base.mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "keep").write_text("mine")
        (self.outside / "keep").chmod(0o640)

    def packed(self, members: Sequence[tarfile.TarInfo], format: int = tarfile.PAX_FORMAT) -> Path:  # noqa: A002
        path = self.root / "packed"
        with tarfile.open(path, "w:gz", format=format) as tar:
            for each in members:
                tar.addfile(each, io.BytesIO(b"x" * each.size) if each.isreg() else None)
        return path

    def unpack(self, packed: Path) -> list[str]:
        return unpack(packed, ["lib"], self.staging, self.base)

    def assert_untouched(self) -> None:
        assert sorted(path.name for path in self.root.iterdir()) == ["outside", "packed", "work"]
        assert sorted(path.name for path in (self.root / "work").iterdir()) in (
            ["base"],
            ["base", "staging"],
        )
        assert [path.name for path in self.outside.iterdir()] == ["keep"]
        kept = self.outside / "keep"
        assert kept.read_text() == "mine"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o640
        assert kept.stat().st_nlink == 1


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def beyond_path_max(target: str) -> Iterator[tarfile.TarInfo]:
    """CVE-2025-4517: links in a path that is too long to resolve, so that `realpath` stops looking."""
    long, path, steps = "d" * 247, "lib", "abcdefghijklmnop"
    for step in steps:
        yield one(f"{path}/{long}", FOLDER, mode=0o755)
        yield one(f"{path}/{step}", LINK, long)
        path = f"{path}/{long}"
    deep = f"lib/{'/'.join(steps)}/{'l' * 254}"
    yield one(deep, LINK, "../" * len(steps))
    yield one("lib/escape", LINK, f"{deep.removeprefix('lib/')}/../{target}")


def test_links_beyond_path_max_do_not_lead_out_of_the_folder(site: Site) -> None:
    """CVE-2025-4517: write a new file and overwrite an existing one outside."""
    up = "../../outside"
    hard = [one("lib/hard", HARD, "lib/escape/keep"), one("lib/hard", size=9)]
    packed = site.packed([*beyond_path_max(up), *hard])
    with pytest.raises(InvalidArtifact, match="cannot be unpacked"):
        site.unpack(packed)
    site.assert_untouched()
    packed = site.packed([*beyond_path_max(up), one("lib/escape/new", size=5)])
    with pytest.raises(InvalidArtifact):
        site.unpack(packed)
    site.assert_untouched()


def test_links_beyond_path_max_change_no_mode_outside(site: Site) -> None:
    """CVE-2024-12718 and CVE-2025-4330: metadata and links outside."""
    packed = site.packed([*beyond_path_max("../../outside"), one("lib/escape/", FOLDER, mode=0o777)])
    before = site.outside.stat()
    with pytest.raises(InvalidArtifact):
        site.unpack(packed)
    assert site.outside.stat().st_mode == before.st_mode
    assert site.outside.stat().st_mtime_ns == before.st_mtime_ns
    site.assert_untouched()


UP = "../../../outside"
HOSTILE: dict[str, list[tarfile.TarInfo]] = {
    "absolute": [one("/tmp/evil")],
    "absolute with the asked path": [one("//lib/evil")],
    "dots": [one("lib/../../evil")],
    "dots alone": [one("..", FOLDER)],
    "dots inside": [one("lib/a/../b")],
    "empty name": [one("")],
    "a link to the root": [one("lib/l", LINK, "/")],
    "a link to a file outside": [one("lib/l", LINK, f"{UP}/keep")],
    "a link out, and a file through it": [one("lib/l", LINK, UP), one("lib/l/evil")],
    "a link inside, and a file through it": [
        one("lib/d/a"),
        one("lib/l", LINK, "d"),
        one("lib/l/b"),
    ],
    "a link that climbs through another link": [
        one("lib/d/e/top", LINK, "../../.."),
        one("lib/d/e/out", LINK, "top/../../outside"),
    ],
    "an empty link": [one("lib/l", LINK, "")],
    "a link to itself by dots": [one("lib/l", LINK, "x/../../../../outside")],
    "a hard link out": [one("lib/h", HARD, f"lib/{UP}/keep")],
    "a hard link to an absolute path": [one("lib/h", HARD, "/etc/passwd")],
    "a hard link to a link": [one("lib/l", LINK, "a"), one("lib/h", HARD, "lib/l")],
    "a hard link to what is not there": [one("lib/h", HARD, "lib/none")],
    "a hard link to a folder": [one("lib/d/a"), one("lib/h", HARD, "lib/d")],
    "a hard link to itself": [one("lib/h", HARD, "lib/h")],
    "a hard link to what was not asked for": [one("else/a"), one("lib/h", HARD, "else/a")],
    "a folder that becomes a link": [one("lib/d/a"), one("lib/d", LINK, UP), one("lib/d/keep")],
    "a link that becomes a folder": [one("lib/d", LINK, "e"), one("lib/d/a")],
    "a file that becomes a folder": [one("lib/d"), one("lib/d/a")],
    "a file twice": [one("lib/a"), one("lib/a", size=2)],
    "a link twice": [one("lib/a", LINK, "b"), one("lib/a", LINK, "c")],
    "a file, then a link of that name": [one("lib/a"), one("lib/a", LINK, UP)],
    "the folder itself as a link": [one("lib", LINK, "../../outside")],
    "a pipe": [one("lib/p", tarfile.FIFOTYPE)],
    "a character device": [one("lib/c", tarfile.CHRTYPE)],
    "a block device": [one("lib/b", tarfile.BLKTYPE)],
    "an unknown kind": [one("lib/z", b"Z")],
    "a sparse file": [one("lib/s", tarfile.GNUTYPE_SPARSE)],
    "a name that is too long": [one(f"lib/{'n' * 256}")],
    "a path that is too long": [one("lib/" + "/".join(["n" * 200] * 25))],
    "a path that is too deep": [one("lib/" + "/".join(["n"] * 200))],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    site: Site,
    members: list[tarfile.TarInfo],
    format: int,  # noqa: A002
) -> None:
    packed = site.packed([one("lib/good"), *members], format)
    with pytest.raises(InvalidArtifact, match="cannot be unpacked") as refused:
        site.unpack(packed)
    assert "member" in refused.value.facts
    assert str(refused.value.facts["why"]) in refused.value.sentence
    assert list(site.base.iterdir()) == []
    site.assert_untouched()


def test_odd_modes_are_dropped(site: Site) -> None:
    packed = site.packed(
        [
            one("lib/d", FOLDER, mode=0o7777),
            one("lib/d/suid", mode=0o6777),
            one("lib/d/plain", mode=0o000),
        ]
    )
    assert site.unpack(packed) == ["lib"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.base.rglob("*")}
    assert modes == {"lib": 0o755, "d": 0o755, "suid": 0o755, "plain": 0o644}


def test_more_bytes_than_are_allowed_are_refused_before_they_are_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = one("lib/a", size=2**40).tobuf(tarfile.GNU_FORMAT)
    (site.root / "packed").write_bytes(gzip.compress(header + b"x" * 512))
    with pytest.raises(InvalidArtifact, match="bytes"):
        site.unpack(site.root / "packed")
    monkeypatch.setattr(extraction, "MOST_BYTES", 1_000_000)
    bomb = gzip.compress(one("lib/a", size=BOMB_BYTES).tobuf() + bytes(BOMB_BYTES))
    assert len(bomb) < BOMB_BYTES / 500
    (site.root / "packed").write_bytes(bomb)
    with pytest.raises(InvalidArtifact, match="1,000,000 bytes"):
        site.unpack(site.root / "packed")
    assert sum(path.stat().st_size for path in site.staging.rglob("*") if path.is_file()) == 0
    site.assert_untouched()


def test_members_that_were_not_requested_count_towards_the_size_limit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "MOST_BYTES", 1_000_000)
    packed = site.packed([one("else/a", size=2_000_000), one("lib/a")])
    with pytest.raises(InvalidArtifact, match="1,000,000 bytes"):
        site.unpack(packed)


def test_a_million_members_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    thousands = pick(quick=10, thorough=1_000)
    monkeypatch.setattr(extraction, "MOST_MEMBERS", thousands * 500)
    each = one("lib/d", FOLDER).tobuf()
    packed = site.root / "packed"
    with gzip.open(packed, "wb", compresslevel=1) as file:
        for _ in range(thousands):
            file.write(each * 1_000)
    with pytest.raises(InvalidArtifact, match=f"{thousands * 500:,} members"):
        site.unpack(packed)


def huge_header(kind: bytes) -> bytes:
    made = one("././@LongLink", kind)
    made.size = BOMB_BYTES
    return made.tobuf(tarfile.GNU_FORMAT) + b"a" * BOMB_BYTES


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"], ids=["pax", "global", "name", "link"])
def test_a_header_that_would_fill_the_memory_is_refused(site: Site, kind: bytes) -> None:
    packed = site.root / "packed"
    packed.write_bytes(gzip.compress(huge_header(kind), 1))
    with pytest.raises(InvalidArtifact, match="header"):
        site.unpack(packed)


def pax(*records: bytes, kind: bytes = b"x") -> bytes:
    body = b"".join(records)
    made = one("pax", kind)
    made.size = len(body)
    return made.tobuf() + body.ljust(-(-len(body) // 512) * 512, b"\0")


def record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    size = len(rest) + 1
    while len(str(size)) + len(rest) != size:
        size = len(str(size)) + len(rest)
    return str(size).encode() + rest


END = bytes(1024)
BROKEN: dict[str, Callable[[], bytes]] = {
    "no tar": lambda: b"hello" * 1000,
    "empty": lambda: b"",
    "a wrong checksum": lambda: one("lib/a").tobuf().replace(b"lib/a", b"lib/b") + END,
    "a negative size": lambda: with_size(b"\xff" * 12) + END,
    "a size that is no number": lambda: with_size(b"12x\0".ljust(12, b"\0")) + END,
    "a size beyond every disk": lambda: with_size(b"\x80" + b"\xff" * 11) + END,
    "broken off in a header": lambda: one("lib/a").tobuf()[:300],
    "broken off in a file": lambda: one("lib/a", size=2_000).tobuf() + b"x" * 600,
    "no end": lambda: one("lib/a").tobuf() + bytes(512),
    "records that are none": lambda: pax(b"99999 path=lib/x\n") + one("lib/a").tobuf() + bytes(512) + END,
    "records without a length": lambda: pax(b"path=lib/x\n") + one("lib/a").tobuf() + bytes(512) + END,
    "records of length 0": lambda: pax(b"0 path=lib/x\n") + one("lib/a").tobuf() + bytes(512) + END,
    "a sparse file by records": lambda: (
        pax(record(b"GNU.sparse.major", b"1")) + one("lib/a").tobuf() + bytes(512) + END
    ),
    "a name with a zero by records": lambda: (
        pax(record(b"path", b"lib/a\0b")) + one("lib/a").tobuf() + bytes(512) + END
    ),
    "a name outside by records": lambda: (
        pax(record(b"path", b"../../outside/evil")) + one("lib/a").tobuf() + bytes(512) + END
    ),
    "a name outside for all": lambda: (
        pax(record(b"path", b"../../outside/evil"), kind=b"g") + one("lib/a").tobuf() + bytes(512) + END
    ),
    "a size by records that is negative": lambda: (
        pax(record(b"size", b"-512")) + one("lib/a").tobuf() + bytes(512) + END
    ),
    "records about nothing": lambda: pax(record(b"path", b"lib/a")) + END,
}


def with_size(field: bytes) -> bytes:
    raw = bytearray(one("lib/a").tobuf())
    raw[124:136] = field
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


@pytest.mark.parametrize("made", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_archive_is_refused_with_one_error(site: Site, made: Callable[[], bytes]) -> None:
    packed = site.root / "packed"
    packed.write_bytes(gzip.compress(made()))
    with pytest.raises(InvalidArtifact, match="cannot be unpacked"):
        site.unpack(packed)
    assert list(site.base.iterdir()) == []
    site.assert_untouched()


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-20], lambda raw: raw[:200] + bytes(60) + raw[260:]])
def test_a_compressed_stream_that_is_damaged_is_refused(site: Site, spoil: Callable[[bytes], bytes]) -> None:
    packed = site.packed([one(f"lib/{number}", size=number) for number in range(200)])
    packed.write_bytes(spoil(packed.read_bytes()))
    with pytest.raises(InvalidArtifact, match="cannot be unpacked"):
        site.unpack(packed)


def test_nothing_is_put_through_a_link_of_the_checkout(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (site.base / "deep").symlink_to(site.base)
    packed = site.packed([one("deep/lib/a"), one("deep/lib/l", LINK, "../..")])
    with pytest.raises(InvalidArtifact, match="through a link"):
        unpack(packed, ["deep/lib"], site.staging, site.base)
    (site.base / "away").symlink_to(site.outside)
    packed = site.packed([one("lib/a"), one("away/lib/a")])
    with pytest.raises(InvalidArtifact, match="through a link"):
        unpack(packed, ["lib", "away/lib"], site.staging, site.base)
    assert sorted(path.name for path in site.base.iterdir()) == ["away", "deep"]
    site.assert_untouched()


def filled(base: Path) -> None:
    """What package managers leave: scripts, links to them, links between folders, odd names."""
    tool = base / "node_modules" / "tool"
    tool.mkdir(parents=True)
    (tool / "cli.js").write_text("#!/usr/bin/env node\n")
    (tool / "cli.js").chmod(0o755)
    (base / "node_modules" / ".bin").mkdir()
    (base / "node_modules" / ".bin" / "tool").symlink_to("../tool/cli.js")
    (base / "packages" / "own").mkdir(parents=True)
    (base / "packages" / "own" / "index.js").write_text("own")
    (base / "node_modules" / "own").symlink_to("../packages/own")
    (base / "node_modules" / "gone").symlink_to("tool/none")
    venv = base / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib" / "python3.11").mkdir(parents=True)
    (venv / "lib64").symlink_to("lib")
    (venv / "bin" / "python3").write_text("python")
    (venv / "bin" / "python").symlink_to("python3")
    (venv / "lib" / "python3.11" / ("n" * 200)).write_text("long")
    (venv / "lib" / "python3.11" / "grün 名.txt").write_text("named")
    with (venv / "lib" / "python3.11" / os.fsdecode(b"\xff.bin")).open("w") as file:
        file.write("bytes")
    (venv / "lib" / "python3.11" / "empty").touch()
    (venv / "lib" / "python3.11" / "block").write_bytes(bytes(512))


def seen(base: Path) -> dict[str, object]:
    return {
        path.relative_to(base).as_posix(): path.readlink()
        if path.is_symlink()
        else (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), int(path.stat().st_mtime))
        for path in base.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_a_cache_with_symlinks_and_unusual_file_names_is_packed_and_unpacked_unchanged(
    tmp_path: Path,
) -> None:
    base, target = tmp_path / "base", tmp_path / "target"
    target.mkdir()
    filled(base)
    paths = ["node_modules", "venv", "packages"]
    assert pack(base, found_in(base, paths).paths, tmp_path / "packed", cache=True) == 0
    assert unpack(tmp_path / "packed", paths, tmp_path / "staging", target) == paths
    assert seen(target) == seen(base)
    assert (target / "node_modules" / "own" / "index.js").read_text() == "own"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_other_tools_are_unpacked(site: Site, format: int) -> None:  # noqa: A002
    long = "/".join(["lib", *["n" * 40] * 4, "file"])
    members = [
        one("./lib/", FOLDER),
        one("./lib/a", size=700),
        one("lib/hard", HARD, "./lib/a"),
        one("lib/link", LINK, "a"),
        one(long, size=3),
    ]
    members[1].mtime = 1_000_000_000.5 if format == tarfile.PAX_FORMAT else 1_000_000_000
    assert site.unpack(site.packed(members, format)) == ["lib"]
    lib = site.base / "lib"
    assert (lib / "hard").read_bytes() == (lib / "link").read_bytes() == b"x" * 700
    assert int((lib / "a").stat().st_mtime) == 1_000_000_000
    assert (site.base / long).read_bytes() == b"xxx"


NAMES = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=40
)


@given(
    names=st.lists(st.lists(NAMES, min_size=1, max_size=6), max_size=8),
    kind=st.sampled_from([FILE, LINK, HARD, FOLDER]),
    link=st.lists(st.one_of(NAMES, st.just("..")), max_size=8),
    format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_unpacking_any_archive_changes_nothing_outside_its_folder(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[list[str]],
    kind: bytes,
    link: list[str],
    format: int,  # noqa: A002
) -> None:
    site = Site(tmp_path_factory.mktemp("any"))
    members = [one("/".join(["lib", *name]), kind, "/".join(link)) for name in names]
    try:
        site.unpack(site.packed([one("lib/good"), *members], format))
    except InvalidArtifact:
        assert list(site.base.iterdir()) == []
    site.assert_untouched()
    for path in site.base.rglob("*"):
        assert path.resolve().is_relative_to(site.base)
