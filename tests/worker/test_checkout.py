"""A commit in a fresh folder: real repositories, fetched with real git."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.worker.board import Board, Job
from tests.worker.conftest import Start

from interlock.worker import shell_files
from interlock.worker.shell import REF, without_credentials
from interlock.worker.shell_files import PREFIX, Workspace
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


class Repository:
    """A repository on this disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main", str(folder), cwd=folder.parent)

    def git(self, *words: str, cwd: Path | None = None) -> str:
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        done = subprocess.run(
            ["git", *who, *words], cwd=cwd or self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, text: str) -> str:
        (self.folder / "what").write_text(text)
        self.git("add", ".")
        self.git("commit", "-qm", text)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "shop")


async def checkout(board: Board, start: Start, run: str, **wanted: Any) -> Job:
    job = board.pin("interlock.shell", {"checkout": wanted, "run": run})
    start()
    await board.until_state(job, "succeeded", "failed")
    return job


async def test_the_requested_commit_is_checked_out_and_its_folder_is_removed_afterwards(
    board: Board, start: Start, repository: Repository, scratch: Path
) -> None:
    first = repository.commit("first")
    repository.commit("second")
    run = "cat what; echo; git rev-parse HEAD; mkdir sealed; touch sealed/x; chmod 0 sealed; pwd"
    job = await checkout(board, start, run, repository=str(repository.folder), sha=first)
    *lines, where = job.lines
    assert lines == ["first", first]
    assert Path(where).is_relative_to(scratch)
    assert list(scratch.iterdir()) == []


async def test_a_checkout_of_a_ref_without_a_sha_uses_the_commit_that_the_ref_points_at(
    board: Board, start: Start, repository: Repository
) -> None:
    repository.commit("old")
    repository.git("tag", "v1")
    repository.commit("new")
    job = await checkout(
        board, start, "cat what", repository=f"file://{repository.folder}", ref="refs/tags/v1"
    )
    assert job.lines == ["old"]


async def test_a_commit_that_only_a_refs_history_has_is_found_there(
    board: Board, start: Start, repository: Repository
) -> None:
    """A server may give out only what refs point at; then all of the ref is fetched."""
    first = repository.commit("first")
    repository.commit("second")
    repository.git("config", "uploadpack.allowAnySHA1InWant", "false")
    repository.git("config", "protocol.version", "0")
    address = f"file://{repository.folder}"
    job = await checkout(board, start, "cat what", repository=address, sha=first, ref="refs/heads/main")
    assert job.lines[-1] == "first"


async def test_the_checkout_of_a_missing_commit_fails_with_the_error_from_git(
    board: Board, start: Start, repository: Repository
) -> None:
    repository.commit("first")
    job = await checkout(board, start, "true", repository=str(repository.folder), sha="ab" * 20)
    assert "The checkout of" in job.failure.error
    assert "git fetch ended with exit code 128" in job.failure.error
    assert "not our ref" in job.failure.details


@pytest.mark.parametrize(
    "wanted",
    [
        {"repository": "--upload-pack=touch /tmp/harm"},
        {"repository": "x", "sha": "--harm"},
        {"repository": "x", "sha": "abc"},
        {"repository": "x", "ref": "--upload-pack=harm"},
        {"repository": "x", "ref": "a..b"},
        {"repository": "x\n", "ref": "main"},
    ],
)
async def test_a_checkout_with_an_unsafe_repository_sha_or_ref_fails_as_a_user_error(
    board: Board, start: Start, wanted: dict[str, str], scratch: Path
) -> None:
    job = await checkout(board, start, "true", **wanted)
    assert job.failure.failure_class == "user"
    assert "cannot be" in job.failure.error
    assert list(scratch.iterdir()) == []


async def test_a_protocol_that_runs_commands_is_refused(board: Board, start: Start, tmp_path: Path) -> None:
    job = await checkout(board, start, "true", repository=f"ext::touch {tmp_path}/harm")
    assert "not allowed" in job.failure.details
    assert not (tmp_path / "harm").exists()


async def test_a_checkout_ignores_the_git_hooks_and_git_configuration_of_the_machine(
    board: Board, start: Start, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/harm\n")
    (hooks / "post-checkout").chmod(0o755)
    settings = tmp_path / ".gitconfig"
    settings.write_text(f"[init]\n\ttemplateDir = {hooks.parent}\n[core]\n\thooksPath = {hooks}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hooks.parent))
    sha = repository.commit("first")
    (tmp_path / "harm").unlink(missing_ok=True)
    job = await checkout(board, start, "cat what", repository=str(repository.folder), sha=sha)
    assert job.lines == ["first"]
    assert not (tmp_path / "harm").exists()


async def test_a_new_workspace_removes_leftovers_of_dead_workers_but_no_workspace_in_use(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_files, "YOUNG_S", -1.0)
    left, used = scratch / f"{PREFIX}left", scratch / f"{PREFIX}used"
    for folder in (left, used):
        (folder / "checkout").mkdir(parents=True)
    outside = scratch / "outside"
    outside.mkdir()
    (scratch / f"{PREFIX}link").symlink_to(outside)
    (left / "link").symlink_to(outside)
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        async with Workspace() as folder:
            assert sorted(scratch.iterdir()) == sorted([scratch / f"{PREFIX}link", folder, outside, used])
    finally:
        os.close(lock)
    assert outside.is_dir()


def test_refs_are_as_git_names_them() -> None:
    for good in ("refs/heads/main", "refs/pull/7/head", "v1.0", "feature/ünï"):
        assert REF.fullmatch(good)
    for bad in ("-x", "a..b", "a b", "a:b", "a^", "a/", "a.lock", "a@{1}", "a//b", "/.a/.b", "a\\b"):
        assert not REF.fullmatch(bad), bad


def test_an_address_is_shown_without_its_password() -> None:
    assert without_credentials("https://me:hush@example.org/a@b.git") == "https://example.org/a@b.git"
