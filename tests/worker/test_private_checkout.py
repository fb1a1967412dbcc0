"""A private repository, fetched from a real git server that asks for a password."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.worker.board import Board, Job
from tests.worker.conftest import Start
from tests.worker.git_server import GitServer, git_server
from tests.worker.test_checkout import Repository

from interlock.errors import InvalidArguments
from interlock.systems.runs.workflows import PlanRequest
from interlock.systems.runs.workflows.git import Repositories, WorkflowPlanner
from interlock.wire.credentials import authorization
from interlock.wire.runs import RunSpec, Source
from interlock.worker.tasks import Registry

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def registry() -> Registry:
    """Nothing has to be registered for a shell."""
    return Registry()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "served"
    folder.mkdir()
    return Repository(folder / "shop")


@pytest.fixture
def server(repository: Repository) -> Iterator[GitServer]:
    with git_server(repository.folder.parent, "x-access-token", TOKEN) as one:
        yield one


LOOK = """
cat what; echo; env | grep -c SHOP; git remote -v; cat .git/config .git/FETCH_HEAD
grep -rl "$(printf correct-horse-%s battery-staple)" .git "$INTERLOCK_WORKSPACE" || echo "nowhere on the disk"
"""


async def checkout(board: Board, start: Start, url: str, **more: Any) -> Job:
    wanted = {"repository": f"{url}/shop/.git", "ref": "refs/heads/main", "secret": "SHOP", **more}
    job = board.pin("interlock.shell", {"checkout": wanted, "run": LOOK})
    job.secrets = {"SHOP": TOKEN} if not more.get("secret") else {}
    start()
    await board.until_state(job, "succeeded", "failed")
    return job


async def test_a_private_repository_is_fetched_and_the_secret_is_nowhere_afterwards(
    board: Board, start: Start, repository: Repository, server: GitServer
) -> None:
    repository.commit("first")
    job = await checkout(board, start, server.url)
    assert job.state == "succeeded", job.lines
    assert job.lines[0] == "first"
    assert job.lines[1] == "0", "the steps do not see it"
    assert job.lines[-1] == "nowhere on the disk"
    pair = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    assert server.seen[0] == f"Basic {pair}"
    assert not any(TOKEN in line or pair in line for line in job.lines)


async def test_a_checkout_with_a_wrong_or_missing_secret_fails_without_a_password_prompt(
    board: Board, start: Start, repository: Repository, server: GitServer
) -> None:
    repository.commit("first")
    server.expected = "Basic other"
    job = await checkout(board, start, server.url)
    assert "The checkout of" in job.failure.error
    assert TOKEN not in msgspec.json.encode(job.failure).decode()
    job = await checkout(board, start, server.url, secret="NOBODY")
    assert "was not given a secret NOBODY" in job.failure.error


async def test_a_checkout_from_a_git_server_that_redirects_fails_without_sending_the_secret_elsewhere(
    board: Board, start: Start, repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    repository.commit("first")
    with git_server(tmp_path, "a", "b") as thief:
        server.elsewhere = thief.url
        job = await checkout(board, start, server.url)
        assert job.state == "failed"
        assert thief.seen == []


async def test_a_planner_fetches_with_the_secret_and_passes_only_its_name_to_runners(
    repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    (repository.folder / ".interlock").mkdir()
    (repository.folder / ".interlock" / "ci.yml").write_text(
        "jobs: {a: {secrets: OTHER, steps: [{run: make}]}, b: {checkout: false, steps: [{run: make}]}}"
    )
    sha = repository.commit("first")
    repositories = Repositories(
        {"shop/web": server.url.replace("://", "://me:pass@") + "/shop/.git"},
        tmp_path / "mirrors",
        secrets={"shop/web": "SHOP"},
        find={"SHOP": TOKEN}.__getitem__,
    )
    source = Source(repository="shop/web", sha=sha, ref="refs/heads/main")
    spec = RunSpec(planner="workflow", source=source)
    a, b = (await WorkflowPlanner(repositories).plan(PlanRequest(run_id="r", spec=spec))).jobs
    given = msgspec.json.decode(a.input)["checkout"]
    assert given == {"repository": f"{server.url}/shop/.git", "sha": sha, "ref": source.ref, "secret": "SHOP"}
    assert (a.secrets, b.secrets) == (("OTHER", "SHOP"), ())
    stored = [path for path in (tmp_path / "mirrors").rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in path.read_bytes() for path in stored)


@pytest.mark.parametrize(
    "address", ["http://example.org/a.git", "ssh://git@example.org/a.git", "/srv/a.git", "file:///srv/a.git"]
)
def test_a_checkout_secret_is_refused_for_every_address_that_is_not_https(address: str) -> None:
    with pytest.raises(InvalidArguments, match="https only"):
        authorization(address, TOKEN)


def test_the_header_is_for_one_server_only() -> None:
    (header, value), _ = authorization("https://me@Example.org:8443/a.git", "ann:pass:word").items()
    assert header == "http.https://example.org:8443/.extraHeader"
    assert base64.b64decode(value.removeprefix("Authorization: Basic ")) == b"ann:pass:word"
