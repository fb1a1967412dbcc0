"""`interlock run approve` and `decline`: who waits, what for, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.shop import RunCli, Shop

from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.jobs import SHELL
from interlock.wire.runs import Plan, PlannedJob, RunSpec, Source

FORK = Source(repository="acme/shop", ref="refs/pull/7/head", sha="5f" * 20, from_fork=True, actor="mallory")


@pytest.fixture
def waiting(shop: Shop) -> str:
    """The id of a run that waits for an approval."""
    found: list[str] = []

    async def do(port: EmbeddedOrchestrator) -> None:
        plan = Plan(jobs=(PlannedJob(name="a", task=SHELL),))
        found.append((await port.services.runs.submit(RunSpec(plan=plan, source=FORK))).id)
        await port.recover()

    shop.do(do)
    return found[0]


def test_a_run_that_awaits_approval_shows_the_reason_and_the_approve_command(
    cli: RunCli, waiting: str
) -> None:
    listed = cli("run", "list", "state:awaiting_approval").stdout
    assert waiting in listed
    assert "waits for approval: a change from a fork (mallory)" in listed
    shown = cli("run", "show", waiting).stdout
    assert f"approval of a change from a fork (mallory): interlock run approve {waiting}" in shown
    assert "5f" * 20 in shown
    explained = cli("run", "explain", waiting).stdout
    assert "the change comes from a fork, commit 5f5f5f5f5f5f of acme/shop, asked for by mallory" in explained
    assert f"→ interlock run approve {waiting}" in explained


def test_an_approval_is_stored_with_its_comment_and_commit_and_a_second_one_is_refused(
    cli: RunCli, waiting: str
) -> None:
    answer = cli("run", "approve", waiting, "--comment", "read it", "--request-id", "one")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(waiting)
    assert cli("run", "approve", waiting, "--comment", "read it", "--request-id", "one").returncode == 0
    view = json.loads(cli("run", "show", waiting, "--json").stdout)
    (made,) = view["approvals"]
    assert (made["comment"], made["sha"], view["state"]) == ("read it", "5f" * 20, "QUEUED")
    assert "fork by " in cli("run", "show", waiting).stdout
    again = cli("run", "approve", waiting)
    assert again.returncode == 2
    assert "it does not wait for an approval" in again.stderr


def test_a_run_that_is_declined_is_canceled(cli: RunCli, waiting: str) -> None:
    view = json.loads(cli("run", "decline", waiting, "--reason", "no", "--json").stdout)
    assert (view["outcome"], view["reason"]) == ("CANCELED", "declined")
    assert "no" in cli("run", "history", waiting).stdout


def test_a_secret_needs_a_policy_where_there_is_no_server_either(
    cli: RunCli, shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_SECRET_NPM_TOKEN", "correct horse battery")
    with (folder / "interlock.toml").open("a") as file:
        file.write("\n[retries.tooling]\nretries = 0\n")
    step = 'test "$NPM_TOKEN" = "correct horse battery" && echo given'
    job_id = cli("submit", "--secret", "NPM_TOKEN", "--retries", "0", "--shell", step).stdout.strip()
    cli("worker", "start", "--shell", "--burst")
    assert "[secrets.NPM_TOKEN]" in cli("job", "show", job_id).stdout
    with (folder / "interlock.toml").open("a") as file:
        file.write('\n[secrets.NPM_TOKEN]\ntasks = ["interlock.shell"]\n')
    job_id = cli("submit", "--secret", "NPM_TOKEN", "--shell", step).stdout.strip()
    cli("worker", "start", "--shell", "--burst")
    assert "given" in cli("job", "logs", job_id).stdout
