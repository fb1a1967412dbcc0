"""Webhooks and reporters in interlock.toml: what is said there, and secrets that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.cli import project
from interlock.errors import InvalidSettings
from interlock.systems.orchestrator.vault import SecretScope
from interlock.systems.runs.settings import RunSettings
from interlock.systems.runs.trigger_events import Evaluation
from interlock.systems.runs.webhook_security import Secret, new_signing_key

WHOLE = """
public_url = "https://ci.example.org"

[github]
webhook_secret_file = "{folder}/github"

[[triggers]]
repository = "acme/shop"
workflow = "ci"

[[triggers]]
refs = ["refs/tags/*"]
events = ["push"]
workflow = "release"
labels = ["linux"]
forks = false

[[hooks]]
name = "deploy"
secret_env = "DEPLOY"
workflow = "deploy"
planner = "flow"
definition = "a:b"
fields = {{ "source.sha" = "commit.id" }}

[[reporters]]
kind = "github"
check = true

[[reporters]]
kind = "webhook"
name = "team"
url = "https://hooks.example.org/ci"
secret_env = "TEAM"
allow = ["10.0.0.0/8"]
"""

KEY = new_signing_key(b"k" * 32)


def load(folder: Path, text: str) -> RunSettings:
    (folder / "interlock.toml").write_text(text, encoding="utf-8")
    return project.load(start=folder).settings.runs


def test_everything_is_read_with_the_secrets_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "github").write_text("the-new-secret-of-github\nthe-old-secret-of-github\n")
    monkeypatch.setenv("DEPLOY", KEY)
    monkeypatch.setenv("TEAM", f"{KEY} {KEY}")
    monkeypatch.setenv("INTERLOCK_GITHUB_TOKEN", "ghp_0123456789abcdef")
    edges = load(tmp_path, WHOLE.format(folder=tmp_path))
    assert edges.lacking == ()
    triggers, reporting = edges.triggers, edges.reporting
    assert len(triggers.github_secrets) == 2
    assert [rule.run.workflow for rule in triggers.rules] == ["ci", "release"]
    assert triggers.rules[1].run == Evaluation(workflow="release", labels=("linux",))
    assert [rule.forks for rule in triggers.rules] == ["approve", "never"]
    (hook,) = triggers.hooks
    assert (hook.name, hook.run.definition, hook.keys) == ("deploy", "a:b", (Secret(b"k" * 32),))
    assert (reporting.github[0].token, reporting.github[0].check) == (Secret(b"ghp_0123456789abcdef"), True)
    assert (reporting.webhooks[0].name, len(reporting.webhooks[0].keys)) == ("team", 2)
    assert reporting.public_url == "https://ci.example.org"
    for secret in ("secret-of-github", "ghp_", KEY[6:]):
        assert secret not in repr(edges)


def test_hooks_and_reporters_without_their_secret_are_reported_and_the_settings_still_load(
    tmp_path: Path,
) -> None:
    edges = load(tmp_path, WHOLE.format(folder=tmp_path))
    assert [line.partition(":")[0] for line in edges.lacking] == [
        "the hook deploy is refused",
        "webhooks of GitHub are refused",
        "the reporter github is left to other processes",
        "the reporter team is left to other processes",
    ]
    assert edges.triggers.github_secrets == ()
    assert edges.reporting.names == ("github", "team")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[github]\nwebhook_secret = 'x'", "there is no github.webhook_secret, did you mean github.webhook_"),
        ("[[triggers]]\nworkflw = 'ci'", "there is no triggers.workflw, did you mean triggers.workflow"),
        ("[[triggers]]\nevents = ['issues']", "triggers[0].events[0]: invalid enum value 'issues'"),
        ("[[hooks]]\nname = 'a'", "hook a names no secret_env and no secret_file"),
        ("[[hooks]]\nname = 'a/b'\nsecret_env = 'X'", "'a/b', and must be a name of its own"),
        (
            "[[hooks]]\nname = 'a'\nsecret_env = 'X'\nfields = {sha = 'x'}",
            "hook a: sha is not a field of a run",
        ),
        ("[[reporters]]\nkind = 'mail'", "reporters[0].kind: invalid enum value 'mail'"),
        ("[[reporters]]\nkind = 'webhook'", "a webhook needs a name, a url"),
        ("[[reporters]]\nkind = 'github'\napi = 'ftp://x'", "is not http(s)://"),
        (
            "[[reporters]]\nkind = 'github'\nallow = ['x']",
            "'x' does not appear to be an IPv4 or IPv6 network",
        ),
        ("[[triggers]]\nforks = 'maybe'", "triggers[0].forks: invalid enum value 'maybe'"),
        ("[[triggers]]\ntrusted = ['*']", "trusted names '*', and is a list of accounts"),
        (
            "[[triggers]]\nforks = 'never'\ntrusted = ['ann']",
            "forks are never evaluated, so trusted has no effect",
        ),
        ("[[triggers]]\nfork_queue = ''", "fork_queue has 1 to"),
        ("[[triggers]]\nfork_labels = ['']", "fork_labels are at most"),
        ("[secrets]\nKEY = 'hush'", "secrets.KEY has to be a table, [secrets.KEY]; no value is in this file"),
        ("[secrets.KEY]\nvalue = 'hush'", "there is no secrets.KEY.value"),
        ("[secrets.KEY]\nrepository = ['a/b']", "did you mean secrets.KEY.repositories"),
        ("[secrets.KEY]\nenvironments = ['prod']", "names prod, and there is no [environments.prod]"),
        ("[secrets.INTERLOCK_TOKEN]", "that cannot be the name of a secret"),
        ("[environments.prod]\nbranches = ['main']", "there is no environments.prod.branches"),
        ("public_url = 'ci.example.org'", "public_url: 'ci.example.org' is not http(s)://"),
    ],
)
def test_invalid_webhook_reporter_and_secret_settings_are_refused_with_the_reason(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load(tmp_path, text)
    assert says in caught.value.sentence
    assert "hush" not in str(caught.value)


FORKS = """
[[triggers]]
repository = "acme/shop"
forks = {forks}
trusted = ["octocat", "dependabot[bot]"]
fork_queue = "strangers"
fork_labels = ["isolated"]
"""


@pytest.mark.parametrize(
    ("policy", "meant"), [("true", "approve"), ('"approve"', "approve"), ('"trust"', "trust")]
)
def test_a_trigger_configures_the_policy_queue_and_labels_for_forks(
    tmp_path: Path, policy: str, meant: str
) -> None:
    (rule,) = load(tmp_path, FORKS.format(forks=policy)).triggers.rules
    assert (rule.forks, rule.trusted) == (meant, ("octocat", "dependabot[bot]"))
    assert (rule.fork_queue, rule.fork_labels) == ("strangers", ("isolated",))


def test_secrets_and_environments_are_named_without_values(tmp_path: Path) -> None:
    text = """
[secrets.NPM_TOKEN]
[secrets.DEPLOY_KEY]
repositories = ["acme/shop"]
environments = ["production"]
tasks = ["shop.*"]
queues = ["deploy"]
[environments.production]
repositories = ["acme/shop"]
refs = ["refs/heads/main"]
approval = true
"""
    (tmp_path / "interlock.toml").write_text(text, encoding="utf-8")
    policy = project.load(start=tmp_path).settings.secrets
    assert policy.secrets["NPM_TOKEN"] == SecretScope()
    assert policy.secrets["DEPLOY_KEY"].tasks == ("shop.*",)
    assert policy.environments["production"].approval


def test_a_token_of_github_that_is_too_short_is_not_ours_to_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_GITHUB_TOKEN", "ghp_short")
    with pytest.raises(InvalidSettings) as refused:
        load(tmp_path, '[[reporters]]\nkind = "github"\n')
    assert "from INTERLOCK_GITHUB_TOKEN, has fewer than 16 characters" in refused.value.sentence
    assert "GitHub shows it once" in refused.value.todo
    assert "webhook secret" not in refused.value.todo


def test_statuses_and_their_names_are_settings(tmp_path: Path) -> None:
    text = '[[reporters]]\nkind = "github"\ncontext = "ci/{workflow}"\nstatuses = "job"\n'
    (one,) = load(tmp_path, text).reporting.github
    assert (one.context, one.statuses) == ("ci/{workflow}", "job")


def test_two_reporters_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="two reporters github"):
        load(tmp_path, "[[reporters]]\nkind = 'github'\n[[reporters]]\nkind = 'github'\n")
