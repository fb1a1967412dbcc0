"""`interlock job artifacts`: what attempts have left behind, from a store and through a server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.cli.shop import RUNNER, RunCli, Shop
from tests.server.running import program as server_program

from interlock.errors import InvalidArguments, InvalidArtifact, ServerRefused, UnknownArtifact, UnknownJob
from interlock.remote.downloads import saved
from interlock.sync import Interlock
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.artifacts import ArtifactView


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


@pytest.fixture
def job_id(shop: Shop) -> str:
    """A job with a report."""
    job_id = shop.submit()
    shop.take(job_id)
    token = shop.grants[job_id].token

    async def leave(port: EmbeddedOrchestrator) -> ArtifactView:
        return await port.keep_artifact(token, RUNNER, "report.txt", pieces(b"all well"))

    shop.do(leave)
    shop.complete(job_id)
    return job_id


def test_job_artifacts_lists_and_downloads_the_artifacts_of_a_job(
    shop: Shop, cli: RunCli, job_id: str
) -> None:
    listed = cli("job", "artifacts", job_id)
    digest = hashlib.sha256(b"all well").hexdigest()
    name, attempt, size, _, sha256 = listed.stdout.rstrip("\n").split("\t")
    assert (name, attempt, size, sha256) == ("report.txt", "1.1", "8", digest)
    (artifact,) = json.loads(cli("job", "artifacts", job_id, "--json").stdout)["artifacts"]
    assert (artifact["name"], artifact["sha256"], artifact["size"]) == ("report.txt", digest, 8)

    (shop.folder / "out").mkdir()
    fetched = cli("job", "artifacts", job_id, "--get", "report.txt", "--to", "out")
    assert (fetched.returncode, fetched.stdout) == (0, "out/report.txt\n")
    assert (shop.folder / "out" / "report.txt").read_bytes() == b"all well"
    assert [path.name for path in (shop.folder / "out").iterdir()] == ["report.txt"]


def test_the_same_through_a_server(shop: Shop, cli: RunCli, job_id: str) -> None:
    with server_program("--store", shop.url, folder=shop.folder) as (_, url, _):
        listed = cli("job", "artifacts", job_id, "--store", url)
        assert listed.stdout.startswith("report.txt\t1.1\t8\t")
        fetched = cli("job", "artifacts", job_id, "--get", "report.txt", "--json", "--store", url)
        assert json.loads(fetched.stdout)["path"] == "report.txt"
        missing = cli("job", "artifacts", job_id, "--get", "other", "--store", url)
    assert (shop.folder / "report.txt").read_bytes() == b"all well"
    assert (missing.returncode, "has no artifact 'other'" in missing.stderr) == (2, True)


def test_programs_list_and_fetch_them_too(shop: Shop, job_id: str, tmp_path: Path) -> None:
    with Interlock(shop.url) as il:
        assert [view.name for view in il.artifacts(job_id)] == ["report.txt"]
        assert il.fetch_artifact(job_id, "report.txt", tmp_path).read_bytes() == b"all well"
        named = il.fetch_artifact(job_id, "report.txt", tmp_path / "mine.txt")
        assert (named, named.read_bytes()) == (tmp_path / "mine.txt", b"all well")
        with pytest.raises(InvalidArguments, match=r"There is no folder .*nowhere"):
            il.fetch_artifact(job_id, "report.txt", tmp_path / "nowhere" / "mine.txt")
        with pytest.raises(UnknownJob):
            il.artifacts("j_000000000000")
        with pytest.raises(UnknownArtifact):
            il.fetch_artifact(job_id, "other", tmp_path)


def test_a_missing_job_artifact_or_target_folder_is_reported(shop: Shop, cli: RunCli, job_id: str) -> None:
    assert "There is no job" in cli("job", "artifacts", "j_000000000000").stderr
    get = ("job", "artifacts", job_id, "--get", "report.txt")
    assert "has no artifact" in cli(*get, "--attempt", "1.2").stderr
    nowhere = cli(*get, "--to", "missing")
    assert (nowhere.returncode, "there is no folder missing" in nowhere.stderr) == (2, True)


def test_a_file_that_arrives_changed_or_with_a_name_that_leads_elsewhere_is_not_written(
    shop: Shop, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    view = ArtifactView(
        job_id="j", name="x", shard=1, attempt=1, size=1, sha256="0" * 64, created_at=datetime.now(UTC)
    )
    with pytest.raises(ServerRefused, match="does not match its digest"):
        asyncio.run(saved(view, pieces(b"x"), there))
    with pytest.raises(InvalidArtifact):
        asyncio.run(saved(msgspec.structs.replace(view, name="../x"), pieces(b"x"), there))
    assert list(there.iterdir()) == []
