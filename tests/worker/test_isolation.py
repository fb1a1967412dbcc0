"""Steps that are isolated work like others; an isolation that cannot be had is refused."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.privileges import ROOT, path_with_bubblewrap
from tests.server.running import running
from tests.worker.board import Board
from tests.worker.conftest import Start
from tests.worker.test_artifacts import Place

from interlock.errors import InvalidSettings
from interlock.processes import sandbox
from interlock.processes.sandbox import SandboxSettings
from interlock.worker.shell import UNPROTECTED
from interlock.worker.tasks import Registry

UNSAFE = "untrusted_steps_are_not_isolated"
KINDS = ["user", "bubblewrap"] if ROOT else ["bubblewrap"]


@pytest.fixture
def registry() -> Registry:
    """Nothing has to be registered for a shell."""
    return Registry()


@pytest.fixture(params=KINDS)
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SandboxSettings:
    """A way to isolate steps that works here."""
    if request.param == "bubblewrap":
        monkeypatch.setenv("PATH", path_with_bubblewrap())
    settings = SandboxSettings(kind=request.param)
    sandbox.check(settings)
    return settings


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        yield Place(server, url, "store")


async def test_an_isolated_job_has_a_workspace_artifacts_and_caches_like_any_other(
    place: Place, start: Start, isolation: SandboxSettings
) -> None:
    start(connect=place.connect, supervised=False, sandbox=isolation)
    given = {
        "steps": [
            {"run": 'cat deps/one 2>/dev/null; mkdir -p deps out; echo "$WHICH" > deps/one'},
            {"run": 'echo "$HOME" > out/home; test -w "$HOME" -a -w "$TMPDIR" -a -w "$INTERLOCK_WORKSPACE"'},
        ],
        "caches": [{"key": "deps", "path": "deps"}],
        "artifacts": [{"name": "home", "path": "out/home"}],
    }
    first = await place.done("interlock.shell", **given, env={"WHICH": "first"})
    assert first.state == "COMPLETED", await place.lines(first.id)
    assert b"/interlock-workspace-" in (await place.left(first.id))["home"]
    second = await place.done("interlock.shell", **given, env={"WHICH": "second"})
    assert "first" in await place.lines(second.id), "each job has a user of its own, and reads the cache"


async def test_an_isolated_step_receives_sigterm_before_it_is_killed(
    board: Board, start: Start, isolation: SandboxSettings
) -> None:
    script = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job = board.pin("interlock.shell", {"run": script})
    start(sandbox=isolation, stop_grace_s=60.0)
    await board.until(lambda: "up" in job.lines, "the step to run")
    board.cancel(job)
    await board.until_state(job, "canceled")
    assert "asked" in job.lines


async def test_an_isolated_step_inherits_locale_variables_but_no_credentials_from_its_worker(
    board: Board, start: Start, isolation: SandboxSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("LC_TIME", "C")
    job = board.pin("interlock.shell", {"run": "env", "env": {"OWN": "1"}})
    start(sandbox=isolation)
    await board.until_state(job, "succeeded", "failed")
    variables = dict(line.partition("=")[::2] for line in job.lines)
    assert "AWS_SECRET_ACCESS_KEY" not in variables
    assert variables["LC_TIME"] == "C"
    assert variables["OWN"] == "1"


async def test_an_untrusted_step_without_isolation_inherits_no_credentials_and_its_log_has_a_warning(
    board: Board, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    trusted, untrusted = (
        board.pin("interlock.shell", {"run": "env"}, untrusted=fork) for fork in (False, True)
    )
    worker = start()
    for job in (trusted, untrusted):
        await board.until_state(job, "succeeded")
    assert [line["task_id"] for line in worker.lines.all(UNSAFE)] == [untrusted.id]
    assert "AWS_SECRET_ACCESS_KEY=topsecret" in trusted.lines
    assert "AWS_SECRET_ACCESS_KEY=topsecret" not in untrusted.lines
    assert f"HOME={os.environ['HOME']}" in untrusted.lines
    assert UNPROTECTED in untrusted.lines
    assert UNPROTECTED not in trusted.lines


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SandboxSettings(kind="docker"), "isolate is 'docker'"),
        (SandboxSettings(network=False), "only be taken away by bubblewrap"),
        (SandboxSettings(kind="user", network=False), "only be taken away by bubblewrap"),
    ],
)
def test_an_isolation_that_cannot_be_is_refused(settings: SandboxSettings, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        sandbox.check(settings)


def test_a_missing_bubblewrap_raises_an_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidSettings) as refused:
        sandbox.check(SandboxSettings(kind="bubblewrap"))
    assert "apt install bubblewrap" in refused.value.todo


def test_missing_user_namespaces_raise_an_error_with_the_output_of_bubblewrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # also another user has to find the program in it
        program = Path(folder) / "bwrap"
        program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        with pytest.raises(InvalidSettings, match="No permissions to create new namespace") as refused:
            sandbox.check(SandboxSettings(kind="bubblewrap"))
    assert "user namespaces" in refused.value.todo
