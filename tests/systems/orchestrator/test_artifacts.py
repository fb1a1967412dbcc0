"""Files that attempts leave behind: only under the live lease, once, and found again with the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.systems.orchestrator.house import RUNNER, TTL_S, House, beat, done, failed

from interlock.errors import (
    ArtifactExists,
    ArtifactGone,
    InvalidArtifact,
    LeaseExpired,
    MessageRefused,
    NoBlobs,
    UnknownArtifact,
    UnknownLease,
    WrongRunner,
)
from interlock.systems.blobs import BlobSettings
from interlock.systems.orchestrator import runner_messages
from interlock.systems.settings import Settings
from interlock.wire.artifacts import ArtifactView
from interlock.wire.runner import Grant


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """In memory, with a clock that jumps and a folder for blobs."""
    settings = Settings(blobs=BlobSettings(directory=str(tmp_path / "blobs")))
    opened = await House(settings).open()
    yield opened
    await opened.close()


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def keep(
    house: House, grant: Grant, name: str = "report", *parts: bytes, by: str = RUNNER
) -> ArtifactView:
    return await house.port.keep_artifact(grant.token, by, name, pieces(*(parts or (b"all ", b"well"))))


async def content(house: House, job_id: str, name: str, attempt: str = "") -> bytes:
    async with house.port.services.artifacts.opened(job_id, name, attempt) as (_, read):
        return b"".join([piece async for piece in read])


async def listed(house: House, job_id: str) -> list[str]:
    return [view.name for view in await house.port.services.artifacts.list(job_id)]


async def test_a_file_is_kept_with_its_attempt_and_read_again(house: House) -> None:
    grant = await house.started()
    view = await keep(house, grant)
    assert (view.job_id, view.shard, view.attempt, view.size) == (grant.job_id, 1, 1, 8)
    assert await house.port.services.artifacts.list(grant.job_id) == (view,)
    await house.heard(done(grant))
    assert await content(house, grant.job_id, "report") == b"all well"
    assert not await house.faults()


async def test_the_same_file_again_is_kept_once_and_another_one_is_refused(house: House) -> None:
    grant = await house.started()
    first = await keep(house, grant)
    assert await keep(house, grant) == first
    with pytest.raises(ArtifactExists):
        await keep(house, grant, "report", b"something else")
    assert await content(house, grant.job_id, "report") == b"all well"


async def test_no_artifact_is_stored_under_a_lease_that_has_ended(house: House) -> None:
    grant = await house.started()
    house.clock.jump(TTL_S + 1)
    with pytest.raises(LeaseExpired):
        await keep(house, grant)
    assert await listed(house, grant.job_id) == []


async def test_a_lease_that_ends_during_the_upload_keeps_nothing(house: House) -> None:
    grant = await house.started()

    async def slow() -> AsyncIterator[bytes]:
        yield b"too "
        house.clock.jump(TTL_S + 1)
        yield b"late"

    with pytest.raises(LeaseExpired):
        await house.port.keep_artifact(grant.token, RUNNER, "report", slow())
    assert await listed(house, grant.job_id) == []
    assert not await house.faults()


async def test_after_the_report_nothing_more_is_kept(house: House) -> None:
    grant = await house.started()
    await house.heard(done(grant))
    with pytest.raises(UnknownLease):
        await keep(house, grant)


async def test_a_token_that_is_none_and_the_runner_of_another_are_refused_before_a_byte_is_read(
    house: House, tmp_path: Path
) -> None:
    grant = await house.started()

    async def never() -> AsyncIterator[bytes]:
        yield b"nobody should read this"
        raise AssertionError("somebody has read it")

    keep_artifact = house.port.keep_artifact
    for token in ("", "nonsense", grant.token[:-1] + ("0" if grant.token[-1] != "0" else "1")):
        with pytest.raises(UnknownLease):
            await keep_artifact(token, RUNNER, "report", never())
    with pytest.raises(WrongRunner):
        await keep_artifact(grant.token, "somebody-else", "report", never())
    for name in ("", "..", ".hidden", "a/b", "a\\b", "ä", "x" * 65, "a\n"):
        with pytest.raises(InvalidArtifact):
            await keep_artifact(grant.token, RUNNER, name, never())
    assert not (tmp_path / "blobs").exists()


async def test_of_several_attempts_the_last_one_is_meant_unless_another_is_named(house: House) -> None:
    first = await house.started(retries=1, retry={})
    await keep(house, first, "report", b"one")
    await house.heard(failed(first, failure_class="infra"))
    house.clock.jump(3_600)
    second = await house.grant()
    assert second.attempt == 2
    await keep(house, second, "report", b"two")
    assert await content(house, first.job_id, "report") == b"two"
    assert await content(house, first.job_id, "report", "1.1") == b"one"
    with pytest.raises(UnknownArtifact, match=r"attempt 1\.3"):
        await content(house, first.job_id, "report", "1.3")


async def test_an_attempt_cannot_leave_any_number_of_files_behind(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_messages, "MOST_ARTIFACTS", 2)
    grant = await house.started()
    await keep(house, grant, "a")
    await keep(house, grant, "b")
    with pytest.raises(MessageRefused, match="at most 2"):
        await keep(house, grant, "c")
    await house.heard(beat(grant))
    assert await listed(house, grant.job_id) == ["a", "b"]


async def test_a_removed_artifact_and_an_unknown_artifact_raise_different_errors(
    house: House, tmp_path: Path
) -> None:
    grant = await house.started()
    view = await keep(house, grant)
    (tmp_path / "blobs" / view.sha256[:2] / view.sha256).unlink()
    with pytest.raises(ArtifactGone):
        await content(house, grant.job_id, "report")
    with pytest.raises(UnknownArtifact):
        await content(house, grant.job_id, "other")


async def test_storing_an_artifact_without_a_blob_folder_is_refused_with_the_setting_to_add() -> None:
    house = await House().open()
    grant = await house.started()
    with pytest.raises(NoBlobs, match="No folder") as refused:
        await keep(house, grant)
    assert "[blobs]" in refused.value.todo
    await house.close()


async def test_concurrent_uploads_under_one_name_store_a_single_artifact(house: House) -> None:
    grant = await house.started()
    same = await asyncio.gather(*[keep(house, grant, "same") for _ in range(5)])
    assert len({view.sha256 for view in same}) == 1
    other = await asyncio.gather(
        *[keep(house, grant, "other", b"%d" % number) for number in range(5)], return_exceptions=True
    )
    assert sum(isinstance(one, ArtifactExists) for one in other) == 4
    assert sorted(await listed(house, grant.job_id)) == ["other", "same"]
    await house.heard(done(grant))
    assert not await house.faults()


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_every_store_lists_the_artifacts_of_a_job_and_refuses_uploads_after_its_end(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = _url(kind, tmp_path, request)
    settings = Settings(blobs=BlobSettings(directory=str(tmp_path / "blobs")))
    house = await House(settings, url=url).open(asking=False)
    try:
        grant = await house.started()
        view = await keep(house, grant)
        assert await keep(house, grant) == view
        await house.heard(done(grant))
        with pytest.raises(UnknownLease):
            await keep(house, grant, "late")
        assert await house.port.services.artifacts.list(grant.job_id) == (view,)
        assert await content(house, grant.job_id, "report", "1.1") == b"all well"
    finally:
        await house.close()


def _url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/jobs.db"
    server = request.getfixturevalue(kind)
    if kind == "postgres":
        return str(server.new_database())
    return f"unix://{server.folder / 'redis.sock'}?db={next(server.names)}"
