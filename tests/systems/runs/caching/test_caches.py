"""Caches: only under a live lease, only of one's own repository, within bounds; forks are in test_forks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.systems.orchestrator.house import RUNNER, TTL_S
from tests.systems.runs.site import Site, planned

from interlock.errors import CacheRefused, InterlockError, InvalidArguments, LeaseExpired, NoBlobs
from interlock.systems.blobs import BlobSettings, DirectoryBlobs
from interlock.systems.orchestrator.attachments import CacheHeartbeat
from interlock.systems.runs.caches import CacheBody, new_cache
from interlock.systems.settings import Settings
from interlock.wire.runner import Grant, NotHeard
from interlock.wire.runs import Source

SHOP = Source(repository="Shop/Web")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
async def site(folder: Path) -> AsyncIterator[Site]:
    blobs = BlobSettings(directory=str(folder), max_cache_bytes=100, max_blob_bytes=80)
    opened = Site(Settings(blobs=blobs))
    await opened.open()
    yield opened
    await opened.close()


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def job_of(site: Site, source: Source = SHOP, **more: Any) -> Grant:
    run_id = await site.begin(planned("a"), source=source, **more)
    names = await site.names(run_id)
    (grant,) = [each for each in await site.claim(limit=100) if each.job_id in names]
    return grant


async def save(site: Site, grant: Grant, key: str, content: bytes = b"libraries") -> str:
    return (await site.port.keep_cache(grant.token, RUNNER, key, pieces(content))).key


async def fetch(site: Site, grant: Grant, key: str, *prefixes: str) -> tuple[str, bytes] | None:
    async with site.port.open_cache(grant.token, RUNNER, key, prefixes) as found:
        if found is None:
            return None
        view, read = found
        return view.key, b"".join([piece async for piece in read])


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


async def test_a_cache_is_shared_by_the_runs_of_one_repository_and_by_no_other_repository(site: Site) -> None:
    first, later = await job_of(site), await job_of(site, Source(repository="shop/web"))
    assert await fetch(site, first, "pip-1") is None
    assert await save(site, first, "pip-1") == "pip-1"
    assert await fetch(site, later, "pip-1") == ("pip-1", b"libraries")
    assert await fetch(site, await job_of(site, Source(repository="other/web")), "pip-1") is None
    assert await site.all_faults() == []


async def test_a_job_on_its_own_shares_with_its_queue(site: Site) -> None:
    one, other = await site.started(), await site.started()
    await save(site, one, "k")
    assert await fetch(site, other, "k") == ("k", b"libraries")
    assert await fetch(site, await job_of(site, Source(), workflow="w"), "k") is None


async def test_without_the_key_the_newest_that_begins_like_it_is_found(site: Site) -> None:
    for key, content in (("pip-3.11-a", b"1"), ("pip-3.12-a", b"2"), ("pip-3.11-b", b"3"), ("npm-a", b"4")):
        await save(site, await job_of(site), key, content)
        site.clock.jump(1)
    asking = await job_of(site)
    assert await fetch(site, asking, "pip-3.11-c", "pip-3.11-", "pip-") == ("pip-3.11-b", b"3")
    assert await fetch(site, asking, "pip-3.13-c", "pip-3.13-", "pip-3.12") == ("pip-3.12-a", b"2")
    assert await fetch(site, asking, "pip-3.11-a", "pip-") == ("pip-3.11-a", b"1")
    assert await fetch(site, asking, "go-a", "go-") is None


async def test_a_second_save_under_a_cache_key_does_not_replace_the_first(site: Site) -> None:
    first, second = await job_of(site), await job_of(site)
    await save(site, first, "k", b"one")
    await save(site, second, "k", b"two")
    assert await fetch(site, second, "k") == ("k", b"one")


async def test_a_job_with_withheld_secrets_can_restore_a_cache_but_not_save_one(
    site: Site, folder: Path
) -> None:
    await save(site, await site.started(), "k")
    withheld = await site.started(secrets_withheld=True)
    assert await fetch(site, withheld, "k") == ("k", b"libraries")
    before = files(folder)
    with pytest.raises(CacheRefused, match="secrets are withheld"):
        await save(site, withheld, "poisoned")
    assert files(folder) == before
    body = CacheBody(
        scope="queue default",
        key="x",
        sha256="0" * 64,
        size=1,
        job_id=withheld.job_id,
        used_at=withheld.granted_at,
    )
    forced = CacheHeartbeat(token=withheld.token, runner_id=RUNNER, kept=new_cache(body, "1.1", 60.0))
    (answer,) = await site.port.services.orchestrator.report([forced])  # the commit itself refuses it as well
    assert isinstance(answer, NotHeard)
    assert answer.code == "cache_refused"


async def test_a_runner_that_was_given_up_neither_saves_nor_reads(site: Site, folder: Path) -> None:
    grant = await job_of(site)
    site.clock.jump(TTL_S + 1)
    for doing in (save, fetch):
        with pytest.raises(LeaseExpired):
            await doing(site, grant, "k")
    assert files(folder) == []


async def test_a_runner_that_is_given_up_while_it_uploads_saves_nothing(site: Site) -> None:
    grant = await job_of(site)

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        site.clock.jump(TTL_S + 1)

    with pytest.raises(LeaseExpired):
        await site.port.keep_cache(grant.token, RUNNER, "k", slow())
    assert await fetch(site, await job_of(site), "k") is None


async def test_a_cache_upload_that_fails_midway_saves_nothing_and_its_key_can_be_saved_again(
    site: Site,
) -> None:
    grant = await job_of(site)

    async def breaking() -> AsyncIterator[bytes]:
        yield b"x"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await site.port.keep_cache(grant.token, RUNNER, "k", breaking())
    assert await fetch(site, grant, "k") is None
    await save(site, grant, "k")
    assert await fetch(site, grant, "k") == ("k", b"libraries")


async def test_the_least_recently_used_caches_are_evicted_when_the_cache_limit_is_exceeded(
    site: Site, folder: Path
) -> None:
    for key in ("old", "used", "new"):
        await save(site, await job_of(site), key, key.encode() * 8)
        site.clock.jump(7_200)
    asking = await job_of(site)
    assert await fetch(site, asking, "old") is not None
    site.clock.jump(60)
    await save(site, await job_of(site), "large", b"x" * 60)
    asking = await job_of(site)
    assert await fetch(site, asking, "large") is not None
    assert await fetch(site, asking, "old") is not None
    assert await fetch(site, asking, "used") is None
    assert sum(path.stat().st_size for path in files(folder)) <= 100
    with pytest.raises(InterlockError, match="80 bytes"):
        await save(site, asking, "huge", b"x" * 81)


async def test_an_unused_cache_expires_and_its_key_can_be_saved_again(site: Site, folder: Path) -> None:
    grant = await job_of(site)
    await save(site, grant, "k", b"old")
    site.clock.jump(7 * 86_400 + 1)
    again = await job_of(site)
    assert await fetch(site, again, "k") is None, "expired is expired, swept or not"
    assert await site.port.services.caches.tidy() == 1
    assert files(folder) == []
    await save(site, again, "k", b"new")
    assert await fetch(site, again, "k") == ("k", b"new")
    assert await site.all_faults() == []


async def test_a_cache_key_whose_stored_content_is_missing_can_be_saved_again(
    site: Site, folder: Path
) -> None:
    await save(site, await job_of(site), "k")
    for path in files(folder):
        path.unlink()
    later = await job_of(site)
    assert await fetch(site, later, "k", "k") is None
    await save(site, later, "k", b"again")
    assert await fetch(site, later, "k") == ("k", b"again")


@pytest.mark.parametrize("key", ["", "../x", "a b", "a,b", "-a", "a\n", "x" * 201, "ключ"])
async def test_a_key_that_cannot_be_one_is_refused(site: Site, key: str) -> None:
    grant = await job_of(site)
    for doing in (save, fetch):
        with pytest.raises(InvalidArguments, match="cannot be the key"):
            await doing(site, grant, key)


async def test_without_a_place_for_blobs_there_are_no_caches() -> None:
    site = Site()
    await site.open()
    grant = await site.started()
    assert await fetch(site, grant, "k") is None
    with pytest.raises(NoBlobs):
        await save(site, grant, "k")
    await site.close()


async def test_caches_are_no_artifacts_when_those_are_pruned(site: Site, folder: Path) -> None:
    await save(site, await job_of(site), "k")
    assert (folder / "caches").is_dir()
    artifacts = DirectoryBlobs(folder, BlobSettings(), clock=lambda: 9_999_999_999.0)
    assert await artifacts.prune(timedelta(days=1)) == 0
    assert len(files(folder)) == 1
