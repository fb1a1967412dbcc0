"""What handlers leave behind, through a store of their own and through a server."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S
from tests.worker import process_tasks
from tests.worker.board import Board, BoardPort, Job
from tests.worker.conftest import Start

from interlock.errors import InvalidArtifact
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.runtime import Runtime
from interlock.wire.jobs import JobSpec, JobView
from interlock.worker.archives import copy, found_in, pack
from interlock.worker.context import Context
from interlock.worker.http import HttpOrchestrator
from interlock.worker.port import OrchestratorPort
from interlock.worker.shell_files import remove
from interlock.worker.tasks import Registry


class Place:
    """Jobs, and a way for workers to them."""

    def __init__(self, server: Running, url: str, way: str) -> None:
        self._server = server
        self._url = url
        self._way = way

    @property
    def services(self) -> Runtime:
        return self._server.parts.runtime

    def connect(self) -> OrchestratorPort:
        if self._way == "store":
            return EmbeddedOrchestrator(self._url)
        return HttpOrchestrator(self._server.url, names=lambda: os.urandom(8).hex())

    async def done(self, task: str, **given: Any) -> JobView:
        """The job when it has ended."""
        spec = JobSpec(task=task, input=msgspec.Raw(msgspec.json.encode(given)))
        job_id = await self.services.jobs.submit(spec, actor="test")
        async with asyncio.timeout(PATIENCE_S):
            await self.services.waiting.ended(job_id)
        return await self.services.jobs.get(job_id)

    async def left(self, job_id: str) -> dict[str, bytes]:
        """Everything that it has left behind."""
        found = {}
        for view in await self.services.artifacts.list(job_id):
            async with self.services.artifacts.opened(job_id, view.name) as (_, pieces):
                found[view.name] = b"".join([piece async for piece in pieces])
        return found

    async def lines(self, job_id: str) -> list[str]:
        return [line.text async for chunk in self.services.jobs.logs(job_id) for line in chunk.lines]


@pytest.fixture(params=["store", "server"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        yield Place(server, url, request.param)


@pytest.fixture
def registry() -> Registry:
    """A task for each executor."""
    registry = Registry()
    for name in ("leave_from_process", "leave_from_process_async"):
        registry.add(process_tasks.REGISTRY.get(name))

    @registry.task(name="leave_async")
    async def leave_async(ctx: Context, path: str) -> int:
        return (await ctx.artifact("note", path)).size

    @registry.task(name="leave_in_thread", executor="thread")
    def leave_in_thread(ctx: Context, path: str) -> int:
        return ctx.artifact_sync("note", path).size

    return registry


def names_in(tar: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:gz") as opened:
        return {
            member.name: file.read() for member in opened if (file := opened.extractfile(member)) is not None
        }


async def test_a_shell_job_leaves_files_and_folders_behind_also_when_it_fails(
    place: Place, start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    start(connect=place.connect, supervised=False)
    artifacts = [
        {"name": "report.txt", "path": "report.txt"},
        {"name": "pages", "path": "html"},
        {"name": "tests", "path": ["*.xml", "html/a"]},
        {"name": "nothing", "path": "missing"},
    ]
    steps = "echo fine >report.txt; mkdir html; echo A >html/a; echo 1 >1.xml; echo 2 >2.xml"
    good = await place.done("interlock.shell", run=steps, workdir=str(folder), artifacts=artifacts)
    assert good.state == "COMPLETED"
    left = await place.left(good.id)
    assert sorted(left) == ["pages.tar.gz", "report.txt", "tests.tar.gz"]
    assert left["report.txt"] == b"fine\n"
    assert names_in(left["pages.tar.gz"]) == {"html/a": b"A\n"}
    assert names_in(left["tests.tar.gz"]) == {"1.xml": b"1\n", "2.xml": b"2\n", "html/a": b"A\n"}
    assert any("'nothing' is empty" in line for line in await place.lines(good.id))

    bad = await place.done(
        "interlock.shell", run="echo bad >report.txt; exit 3", workdir=str(folder), artifacts=artifacts[:1]
    )
    assert bad.state == "FAILED"
    assert bad.attempts[-1].failure is not None
    assert bad.attempts[-1].failure.exit_code == 3
    assert await place.left(bad.id) == {"report.txt": b"bad\n"}


async def test_tasks_of_every_executor_leave_files_behind(place: Place, start: Start, tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_bytes(b"x" * 700_000)
    start(connect=place.connect, supervised=False)
    for name in ("leave_async", "leave_in_thread", "leave_from_process_async", "leave_from_process"):
        job = await place.done(name, path=str(note))
        assert job.state == "COMPLETED", job.attempts[-1].failure
        assert await place.left(job.id) == {"note": note.read_bytes()}
    assert "'not a name' cannot be the name of an artifact." in await place.lines(job.id)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "leak", "leak*", "away/secret", ""])
async def test_no_path_leads_out_of_the_folder_of_the_job(
    board: Board, start: Start, tmp_path: Path, path: str
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "secret").write_text("key")
    (folder / "leak").symlink_to(tmp_path / "secret")
    (folder / "away").symlink_to(tmp_path)
    job: Job = board.pin(
        "interlock.shell",
        {"run": "true", "workdir": str(folder), "artifacts": [{"name": "loot", "path": path}]},
    )
    start()
    await board.until_state(job, "succeeded", "failed")
    assert "is not in the folder of the job" in job.failure.error


async def test_a_name_that_cannot_be_one_is_refused_before_anything_is_run(
    board: Board, start: Start, tmp_path: Path
) -> None:
    artifacts = [{"name": "../x", "path": "x"}]
    job = board.pin("interlock.shell", {"run": f"touch {tmp_path}/ran", "artifacts": artifacts})
    start()
    await board.until_state(job, "succeeded", "failed")
    assert "cannot be the name of an artifact" in job.failure.error
    assert not (tmp_path / "ran").exists()


async def test_a_job_fails_with_the_reason_when_the_orchestrator_does_not_store_artifacts(
    board: Board, start: Start, tmp_path: Path
) -> None:
    given = {"run": "echo >x", "workdir": str(tmp_path), "artifacts": [{"name": "x", "path": "x"}]}
    job = board.pin("interlock.shell", given)
    start()
    await board.until_state(job, "succeeded", "failed")
    assert job.failure.error == "The artifact 'x' was not stored: This orchestrator does not store artifacts."


async def test_a_job_that_is_cancelled_does_not_wait_for_its_files(
    board: Board, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def stuck(*_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(BoardPort, "keep_artifact", stuck, raising=False)
    given = {"run": "echo >x", "workdir": str(tmp_path), "artifacts": [{"name": "x", "path": "x"}]}
    job = board.pin("interlock.shell", given)
    start(stop_grace_s=600.0)
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
        board.cancel(job)
        await board.until_state(job, "canceled")
        await ended.wait()


def test_links_and_special_files_are_left_out_of_a_tar_and_equal_folders_are_equal_bytes(
    tmp_path: Path,
) -> None:
    base = tmp_path / "work"
    (base / "out" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("key")
    (base / "out" / "deep" / "file").write_text("hello")
    os.utime(base / "out" / "deep" / "file", (1_000, 1_000))
    (base / "out" / "link").symlink_to(tmp_path / "secret")
    (base / "out" / "folder").symlink_to(tmp_path)
    os.mkfifo(base / "out" / "pipe")
    found = found_in(base, ["out"])
    assert not found.plain
    for name in ("first", "second"):
        assert pack(base, found.paths, tmp_path / name) == 3
    first = (tmp_path / "first").read_bytes()
    assert names_in(first) == {"out/deep/file": b"hello"}
    assert first == (tmp_path / "second").read_bytes()


def test_an_artifact_pattern_does_not_follow_a_symlink_out_of_the_job_folder(tmp_path: Path) -> None:
    base, outside = tmp_path / "work", tmp_path / "outside"
    (base / "out").mkdir(parents=True)
    outside.mkdir()
    (outside / "id_rsa").write_text("key")
    (base / "out" / "a.txt").write_text("a")
    (base / "away").symlink_to(outside)
    (base / "also").symlink_to("out")
    with pytest.raises(InvalidArtifact) as refused:
        found_in(base, ["away/*"])
    assert "id_rsa" not in str(refused.value)
    assert found_in(base, ["*/id_rsa"]).paths == ()
    assert found_in(base, ["**/id_rsa"]).paths == ()
    assert found_in(base, ["also/*"]).paths == found_in(base, ["**/*.txt"]).paths == (base / "out" / "a.txt",)
    assert found_in(base, ["**/**/**/**/**/**/**/**/[ab].t?t"]).paths == (base / "out" / "a.txt",)


def test_a_path_that_becomes_a_symlink_after_it_was_matched_is_not_read(tmp_path: Path) -> None:
    """A process that a step has left behind swaps folders for links while they are packed."""
    base, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (base / "out" / "deep", outside):
        folder.mkdir(parents=True)
        (folder / "id_rsa").write_text("harmless" if folder != outside else "key")
    (base / "one").write_text("harmless")
    found, single = found_in(base, ["out"]), found_in(base, ["one"])
    (base / "out" / "deep" / "id_rsa").unlink()
    (base / "out" / "deep").rmdir()
    (base / "out" / "deep").symlink_to(outside)
    (base / "one").unlink()
    (base / "one").symlink_to(outside / "id_rsa")
    assert pack(base, found.paths, tmp_path / "packed") == 1
    assert names_in((tmp_path / "packed").read_bytes()) == {}
    with pytest.raises(OSError, match="symbolic link"):
        copy(base, single.paths[0], tmp_path / "copied")
    (base / "out").rename(base / "moved")
    (base / "out").symlink_to(outside)
    assert pack(base, [base / "out"], tmp_path / "packed", cache=True) == 1
    assert names_in((tmp_path / "packed").read_bytes()) == {}


def test_links_in_a_circle_and_very_deep_folders_are_left_out(tmp_path: Path) -> None:
    base = tmp_path / "work"
    base.mkdir()
    (base / "round").symlink_to("round")
    (base / "a").write_text("a")
    for path in ("round", "round/x", "round/*"):
        with pytest.raises(InvalidArtifact):
            found_in(base, [path])
    assert found_in(base, ["a", "r*/x"]).paths == (base / "a",)
    at = os.open(base, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert found_in(base, ["**/a"]).paths == (base / "a",)
    assert found_in(base, ["d/**/none"]).paths == ()
    for cache in (False, True):
        assert pack(base, [base], tmp_path / "packed", cache=cache) == 2 - cache
    remove(base)
