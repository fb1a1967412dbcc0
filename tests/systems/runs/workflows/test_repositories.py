"""Workflow files of a real git repository, as they are at some commit, and what the commit changes."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import InvalidSettings, PlanRefused
from interlock.systems.runs.workflows import PlanRequest, git
from interlock.systems.runs.workflows.git import Repositories, WorkflowPlanner, check_address
from interlock.wire.runs import Plan, RunSpec, Source

CI = """\
name: ci
jobs:
  lint: {steps: [{run: make lint}]}
  test: {needs: lint, if: "changed('src/**')", steps: [{run: make test}]}
"""


class Repository:
    """A repository that a test works in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> str:
        named = {
            f"GIT_{who}_{what}": "t@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        surroundings = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/", **named}
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=surroundings, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, **files: str | bytes) -> str:
        for path, text in files.items():
            place = self.folder / path.replace("__", "/").replace("_dot_", ".")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=a change")
        return self.git("rev-parse", "HEAD")


CI_FILE = "_dot_interlock__ci_dot_yml"
DOCS_FILE = "_dot_interlock__docs_dot_yml"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "shop")


@pytest.fixture
def repositories(repository: Repository, tmp_path: Path) -> Repositories:
    return Repositories({"shop/web": str(repository.folder)}, tmp_path / "mirrors")


async def planned(repositories: Repositories, **source: Any) -> Plan:
    spec = RunSpec(planner="workflow", source=Source(repository="shop/web", event="push", **source))
    return await WorkflowPlanner(repositories).plan(PlanRequest(run_id="r_1", spec=spec))


def names(plan: Plan) -> list[str]:
    return [job.name for job in plan.jobs]


async def test_the_files_are_read_as_they_are_at_the_commit(
    repository: Repository, repositories: Repositories
) -> None:
    first = repository.commit(**{CI_FILE: CI})
    second = repository.commit(**{CI_FILE: CI.replace("lint", "look"), "src__a_dot_py": "x"})
    assert names(await planned(repositories, sha=first)) == ["lint", "test"]
    assert names(await planned(repositories, sha=second)) == ["look", "test"]
    by_ref = await planned(repositories, ref="refs/heads/main")
    assert names(by_ref) == ["look", "test"]
    assert second.encode() in bytes(by_ref.jobs[0].input), "the runner is told the commit, not only the ref"


async def test_only_paths_changed_on_the_branch_since_its_merge_base_count_as_changed(
    repository: Repository, repositories: Repositories
) -> None:
    repository.commit(**{CI_FILE: CI})
    repository.git("checkout", "--quiet", "-b", "topic")
    topic = repository.commit(docs__a_dot_md="text")
    repository.git("checkout", "--quiet", "main")
    base = repository.commit(src__a_dot_py="meanwhile, on main")
    plan = await planned(repositories, sha=topic, base_sha=base)
    assert names(plan) == ["lint"], "what main has changed meanwhile is not part of the topic"
    assert [job.name for job in plan.skipped] == ["test"]
    assert names(await planned(repositories, sha=topic)) == ["lint", "test"], "without a base all counts"
    for unknown in ("0" * 40, "d" * 40):
        assert names(await planned(repositories, sha=topic, base_sha=unknown)) == ["lint", "test"]


async def test_several_files_are_one_plan_with_their_names_before_those_of_their_jobs(
    repository: Repository, repositories: Repositories
) -> None:
    docs = "on: {push: {branches: main}}\njobs: {build: {steps: [{run: make}]}}"
    sha = repository.commit(**{CI_FILE: CI, DOCS_FILE: docs})
    plan = await planned(repositories, sha=sha, ref="refs/heads/topic")
    assert names(plan) == ["ci / lint", "ci / test"]
    assert plan.jobs[1].needs == ("ci / lint",)
    assert [job.name for job in plan.skipped] == ["docs / build"]
    assert [job.workflow for job in plan.jobs] == ["ci", "ci"]
    assert [job.workflow for job in plan.skipped] == ["docs"]


async def test_a_fault_names_the_file_in_the_repository(
    repository: Repository, repositories: Repositories
) -> None:
    sha = repository.commit(**{CI_FILE: "jobs: {a: {stepz: []}}"})
    with pytest.raises(PlanRefused, match=r"\.interlock/ci\.yml:1:12: there is no key of a job 'stepz'"):
        await planned(repositories, sha=sha)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", r"\.interlock/ci\.yml:1:1: there is a byte that is no UTF-8"),
        (b"a" * 1_000_001, "1,000,001 bytes large, and 1,000,000 is the most"),
    ],
)
async def test_a_file_that_is_no_use_is_refused(
    repository: Repository, repositories: Repositories, content: bytes, message: str
) -> None:
    sha = repository.commit(**{CI_FILE: content})
    with pytest.raises(PlanRefused, match=message):
        await planned(repositories, sha=sha)


async def test_a_link_is_no_workflow_file(repository: Repository, repositories: Repositories) -> None:
    (repository.folder / ".interlock").mkdir()
    (repository.folder / ".interlock" / "ci.yml").symlink_to("/etc/passwd")
    sha = repository.commit()
    with pytest.raises(PlanRefused, match="has no workflow file"):
        await planned(repositories, sha=sha)


async def test_no_request_can_name_a_repository_that_the_server_was_not_given(
    repositories: Repositories, repository: Repository
) -> None:
    with pytest.raises(PlanRefused, match="does not know the repository"):
        repositories.mirror(str(repository.folder))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"sha": "--upload-pack=x"}, "is no sha"),
        ({"sha": "abc"}, "is no sha"),
        ({"ref": "--upload-pack=touch x"}, "is no ref"),
        ({"ref": "refs/heads/../../x"}, "is no ref"),
        ({"ref": "main"}, "is no ref"),
        ({"sha": "a" * 40, "base_sha": "HEAD"}, "is no base_sha"),
        ({}, "neither a commit nor a ref"),
        ({"sha": "a" * 40}, "git fetch of .* ended with"),
        ({"sha": "a" * 40, "ref": "refs/heads/main"}, "nor is it in refs/heads/main"),
        ({"ref": "refs/heads/nope"}, "git fetch of .* ended with"),
    ],
)
async def test_names_that_git_could_mistake_or_does_not_know_are_refused(
    repository: Repository, repositories: Repositories, source: dict[str, str], message: str
) -> None:
    repository.commit(**{CI_FILE: CI})
    with pytest.raises(PlanRefused, match=message):
        await planned(repositories, **source)


async def test_mirrors_can_be_read_by_their_owner_alone(
    repository: Repository, repositories: Repositories, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        await planned(repositories, sha=repository.commit(**{CI_FILE: CI}))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "mirrors").iterdir()} == {0o700}


@pytest.mark.parametrize(
    "address", ["", "--upload-pack=x", "ext::sh -c id", "ftp://example.org/x", "a\nb", "fd::1"]
)
def test_an_address_that_git_could_take_for_something_else_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings):
        Repositories({"x": address}, tmp_path)


@pytest.mark.parametrize(
    "address", ["/srv/git/shop", "https://example.org/shop.git", "ssh://git@example.org/x", "git@host:x.git"]
)
def test_addresses_of_repositories(address: str) -> None:
    check_address(address)


async def test_a_server_that_does_not_answer_is_given_up_and_credentials_are_not_shown(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://me:secret@127.0.0.1:{silent.getsockname()[1]}/x.git"
        repositories = Repositories({"shop/web": address}, tmp_path, timeout_s=0.5)
        with pytest.raises(PlanRefused) as refused:
            await planned(repositories, sha="a" * 40)
    assert "git fetch was stopped: it took longer than 0.5 s" in refused.value.sentence
    repositories = Repositories({"shop/web": address}, tmp_path / "again")
    with pytest.raises(PlanRefused) as refused:
        await planned(repositories, sha="a" * 40)
    assert "secret" not in str(refused.value.as_dict())


async def test_settings_and_hooks_of_the_machine_are_not_used(
    repository: Repository, repositories: Repositories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text('[url "/nowhere/"]\n  insteadOf = /\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    sha = repository.commit(**{CI_FILE: CI})
    assert names(await planned(repositories, sha=sha)) == ["lint", "test"]


async def test_many_at_once_use_one_mirror(repository: Repository, repositories: Repositories) -> None:
    shas = [repository.commit(**{CI_FILE: CI, "a": str(n)}) for n in range(4)]
    plans = await asyncio.gather(*(planned(repositories, sha=sha) for sha in shas))
    assert [names(plan) for plan in plans] == [["lint", "test"]] * 4


async def test_git_may_not_answer_without_end(
    repository: Repository, repositories: Repositories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "MOST_OUTPUT", 1_000)
    sha = repository.commit(**{CI_FILE: f"# {'x' * 2_000}\n{CI}"})
    with pytest.raises(PlanRefused, match="printed more than 1,000 bytes"):
        await planned(repositories, sha=sha)
