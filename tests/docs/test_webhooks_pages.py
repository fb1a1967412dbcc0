"""The pages about webhooks show what is really sent, and settings that can really be read."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from interlock.cli.project import ProjectFile, read_file
from interlock.cli.project_ci import policy_of
from interlock.systems.orchestrator.body import Provenance
from interlock.systems.orchestrator.vault import SecretRequester, Vault
from interlock.systems.runs.reports.report import RunReport, RunStatus
from interlock.systems.runs.reports.webhook import notice_of
from interlock.wire.jobs import FailureView
from interlock.wire.runs import RunJobView, RunView, Source

DOCS = Path(__file__).parents[2] / "docs"
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def test_the_sample_of_an_outgoing_webhook_equals_the_body_that_is_sent() -> None:
    failure = FailureView(failure_class="user", error="assert 1 == 2")
    run = RunView(
        id="r_0123456789ab",
        state="FAILED",
        version=5,
        workflow="ci",
        outcome="FAILED",
        reason="required_job_failed",
        created_at=NOW,
        updated_at=NOW,
        started_at=NOW,
        completed_at=NOW,
        source=Source(
            repository="acme/shop", ref="refs/heads/main", sha="b" * 40, event="push", changed_paths=("a",)
        ),
        tally={"COMPLETED": 3, "FAILED": 1},
        jobs=(RunJobView(name="test (3.12)", job_id="j_000000000001", state="FAILED", failure=failure),),
    )
    report = RunReport(
        run=run, status=RunStatus.FAILED, at=NOW, url="https://ci.example.org/runs/r_0123456789ab"
    )
    (sample,) = blocks("reference/outgoing-webhooks.md", "json")
    assert json.loads(sample) == json.loads(msgspec.json.encode(notice_of(report)))


def test_the_settings_of_the_guide_can_be_read_as_one_file(tmp_path: Path) -> None:
    snippets = blocks("guides/webhooks-and-statuses.md", "toml")
    file = tmp_path / "interlock.toml"
    file.write_text("\n".join(snippets), encoding="utf-8")
    read: ProjectFile = read_file(file)
    assert (len(read.triggers), len(read.hooks), len(read.reporters)) == (3, 1, 2)
    assert read.triggers[2].trusted == ("octocat", "dependabot[bot]")


def test_the_policy_of_the_guide_can_be_read_and_so_can_the_file_of_secrets(tmp_path: Path) -> None:
    file, policy = (each for each in blocks("guides/running-workers.md", "toml") if "DEPLOY_KEY" in each)
    (tmp_path / "interlock.toml").write_text(policy, encoding="utf-8")
    read = read_file(tmp_path / "interlock.toml")
    (tmp_path / "secrets.toml").write_text(file, encoding="utf-8")
    (tmp_path / "secrets.toml").chmod(0o600)
    vault = Vault({"INTERLOCK_SECRETS_FILE": str(tmp_path / "secrets.toml")}, policy_of(read))
    main = Provenance(repository="acme/shop", ref="refs/heads/main", environment="production")
    assert (
        vault.find("DEPLOY_KEY", SecretRequester(task="shop.deploy", queue="deploy", origin=main))
        == "a1b2c3d4e5f6"
    )
    assert vault.find("NPM_TOKEN", SecretRequester()) == "npm_1f2e3d4c5b6a"
