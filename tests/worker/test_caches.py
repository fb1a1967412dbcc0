"""What shell jobs save and find again, through a store of their own and through a server."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.server.running import running
from tests.worker.conftest import Start
from tests.worker.test_artifacts import Place
from tests.worker.test_checkout import Repository

from interlock.errors import InterlockError, InvalidArguments, InvalidArtifact
from interlock.worker import extraction
from interlock.worker.archives import found_in, pack
from interlock.worker.context import Context
from interlock.worker.extraction import unpack
from interlock.worker.shell_files import Cache, check_caches
from interlock.worker.tasks import Registry


@pytest.fixture
def registry() -> Registry:
    """Nothing has to be registered for a shell."""
    return Registry()


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workspaces are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture(params=["store", "server"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        yield Place(server, url, request.param)


CACHE = {"key": "deps", "files": ["*.lock"], "path": ["lib", ".tool/cache"], "restore_keys": ["deps-"]}
STEPS = """
test -e lib/a && echo "found $(cat lib/a)"
mkdir -p lib .tool/cache
echo "$WHICH" >lib/a; echo x >.tool/cache/x; ln -sf a lib/link; ln -sf /etc/passwd lib/away; chmod +x lib/a
"""


async def lines(place: Place, which: str, **more: Any) -> list[str]:
    given = {"run": STEPS, "env": {"WHICH": which}, "caches": [CACHE], **more}
    job = await place.done("interlock.shell", **given)
    assert job.state == "COMPLETED", job
    return [line for line in await place.lines(job.id) if "found" in line or line.startswith("Cache")]


async def test_a_job_restores_the_cache_of_an_earlier_job_by_its_key_or_a_restore_key(
    place: Place, start: Start, tmp_path: Path, scratch: Path
) -> None:
    repository = Repository(tmp_path / "shop")
    (repository.folder / "all.lock").write_text("1")
    repository.commit("first")
    start(connect=place.connect, supervised=False)
    checkout = {"repository": str(repository.folder)}
    nothing, saved = await lines(place, "one", checkout=checkout)
    key = nothing.split()[-1].rstrip(".")
    assert nothing == f"Cache: there is no cache {key}."
    assert saved.startswith(f"Cache: saved {key}, ")
    assert saved.endswith("without 1 links to elsewhere or special files.")

    restored, found = await lines(place, "two", checkout=checkout)
    assert restored.startswith(f"Cache: lib, .tool/cache from {key}, ")
    assert found == "found one"

    (repository.folder / "all.lock").write_text("2")
    repository.commit("second")
    older, found, again = await lines(place, "three", checkout=checkout)
    assert older.startswith(f"Cache: lib, .tool/cache from {key}, ")
    assert found == "found one"
    assert again.startswith("Cache: saved deps-")
    assert key not in again
    assert list(scratch.glob("interlock-workspace-*")) == []


async def test_steps_that_fail_save_nothing(place: Place, start: Start) -> None:
    start(connect=place.connect, supervised=False)
    failing = {"run": "mkdir lib; exit 1", "caches": [{"key": "k", "path": "lib"}]}
    assert (await place.done("interlock.shell", **failing)).state == "FAILED"
    job = await place.done("interlock.shell", run="true", caches=[{"key": "k", "path": "lib"}])
    assert await place.lines(job.id) == [
        "Cache: there is no cache k.",
        "Cache: there is no lib to be saved.",
    ]


async def test_restoring_a_cache_does_not_write_through_symlinks_of_the_checkout(
    place: Place, start: Start, tmp_path: Path
) -> None:
    start(connect=place.connect, supervised=False)
    cache = [{"key": "k", "path": ["lib", "out/deep"]}]
    await place.done("interlock.shell", run="mkdir lib out; echo 1 >lib/a; echo 1 >out/deep", caches=cache)
    repository = Repository(tmp_path / "shop")
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository.folder / "lib").symlink_to(outside)
    (repository.folder / "out").symlink_to(outside)
    repository.commit("links")
    checkout = {"repository": str(repository.folder)}
    job = await place.done("interlock.shell", run="ls lib/", checkout=checkout, caches=cache)
    assert job.state == "COMPLETED"
    assert list(outside.iterdir()) == []
    assert any("leads through a link" in line for line in await place.lines(job.id))


@pytest.mark.parametrize(
    "caches",
    [
        [{"key": "k", "path": "*.txt"}],
        [{"key": "k", "path": []}],
        [{"key": "a b", "path": "x"}],
        [{"key": "k", "path": "x", "restore_keys": [""]}],
        [{"key": "k", "path": "."}],
        [{"key": "k", "path": "x"}] * 11,
    ],
)
def test_a_cache_that_cannot_be_is_refused_before_anything_is_done(caches: Any) -> None:
    with pytest.raises(InvalidArguments):
        check_caches(msgspec.convert(caches, list[Cache]))


async def test_a_path_outside_is_reported_and_the_job_continues(place: Place, start: Start) -> None:
    start(connect=place.connect, supervised=False)
    job = await place.done("interlock.shell", run="true", caches=[{"key": "k", "path": "../../etc"}])
    assert job.state == "COMPLETED"
    assert "is not in the folder of the job" in (await place.lines(job.id))[-1]


async def test_a_hostile_cache_is_reported_and_the_job_continues_without_it(
    place: Place, start: Start, registry: Registry, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = member("lib/out", tarfile.SYMTYPE, str(outside))
    packed = tar_of(tmp_path / "packed", member("lib/good"), link, member("lib/out/evil"))

    @registry.task(name="poison")
    async def poison(ctx: Context) -> None:
        await ctx.caches.keep("k", packed)

    start(connect=place.connect, supervised=False)
    assert (await place.done("poison")).state == "COMPLETED"
    job = await place.done("interlock.shell", run="ls -A", caches=[{"key": "k", "path": "lib"}])
    assert job.state == "COMPLETED"
    lines = await place.lines(job.id)
    assert any("The cache k is not used" in line and "lib/out" in line for line in lines), lines
    assert not any("good" in line for line in lines)
    assert list(outside.iterdir()) == []


def tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 1) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size if kind == tarfile.REGTYPE else 0
    return made


@pytest.mark.parametrize(
    "members",
    [
        (member("lib/../../evil"),),
        (member("lib/link", tarfile.SYMTYPE, "/etc"), member("lib/link/evil")),
        (member("lib/link", tarfile.SYMTYPE, "../../.."),),
        (member("lib/hard", tarfile.LNKTYPE, "/etc/passwd"),),
        (member("lib/pipe", tarfile.FIFOTYPE),),
    ],
)
def test_a_tar_that_leads_out_of_the_folder_is_not_unpacked(
    tmp_path: Path, members: tuple[tarfile.TarInfo, ...]
) -> None:
    base = tmp_path / "work" / "base"
    base.mkdir(parents=True)
    packed = tar_of(tmp_path / "packed", member("lib/good"), *members)
    with pytest.raises(InvalidArtifact, match="cannot be unpacked"):
        unpack(packed, ["lib"], tmp_path / "work" / "staging", base)
    assert list(base.iterdir()) == []
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "work" / "evil").exists()


def test_only_requested_paths_are_unpacked_and_existing_paths_are_kept(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "there").write_text("mine")
    packed = tar_of(tmp_path / "packed", member("lib/a"), member("Makefile"), member("there"))
    assert unpack(packed, ["lib", "there", "missing"], tmp_path / "staging", base) == ["lib"]
    assert sorted(path.name for path in base.iterdir()) == ["lib", "there"]
    assert (base / "there").read_text() == "mine"


def test_a_tar_that_is_too_large_or_broken_off_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    packed = tar_of(tmp_path / "packed", member("lib/a", size=200_000), member("lib/b"))
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InterlockError):
        unpack(packed, ["lib"], tmp_path / "one", base)
    packed.write_bytes(whole)
    monkeypatch.setattr(extraction, "MOST_BYTES", 1_000)
    with pytest.raises(InterlockError, match="1,000 bytes"):
        unpack(packed, ["lib"], tmp_path / "two", base)
    assert list(base.iterdir()) == []


def test_links_inside_are_saved_as_links(tmp_path: Path) -> None:
    lib = tmp_path / "base" / "lib"
    lib.mkdir(parents=True)
    (lib / "a").write_text("a")
    (lib / "link").symlink_to("a")
    (lib / "absolute").symlink_to(lib / "a")
    (lib / "away").symlink_to("../../../etc")
    packed = tmp_path / "packed"
    found = found_in(tmp_path / "base", ["lib"])
    assert pack(tmp_path / "base", found.paths, packed, cache=True) == 2
    target = tmp_path / "target"
    target.mkdir()
    assert unpack(packed, ["lib"], tmp_path / "staging", target) == ["lib"]
    assert (target / "lib" / "link").readlink() == Path("a")
