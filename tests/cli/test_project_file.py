"""`interlock.toml`: which store is meant and what it is run with, and what is said about a bad file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.shop import RunCli

from interlock.cli import project
from interlock.errors import InvalidSettings
from interlock.systems.orchestrator.failures import DEFAULT_RULES, FailureClass
from interlock.systems.settings import DEFAULT_SETTINGS

WHOLE = """
store = "sqlite:///shop.db"
losses = 5
tree_quotas = [20, 10, 5, 3, 2, 1]

[worker]
module = "shop_tasks"
queues = ["default", "mail"]
labels = ["gpu"]
slots = 20

[durations]
lease_ttl_s = 240
worker_silence_s = 240

[retries.flaky]
retries = 5

[[failures]]
class = "infra"
exit_codes = [42]
patterns = ["disk on fire"]

[limits]
max_input_bytes = 1000
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / "interlock.toml").write_text(text, encoding="utf-8")


def test_without_a_file_the_defaults_hold(here: Path) -> None:
    found = project.load()
    assert (found.url, found.settings, found.file) == ("sqlite:///interlock.db", DEFAULT_SETTINGS, None)


def test_everything_in_the_file_is_used(here: Path) -> None:
    write(here, WHOLE)
    found = project.load()
    settings = found.settings
    assert found.url == f"sqlite:///{here}/shop.db"
    assert (found.worker.module, found.worker.queues, found.worker.slots) == (
        "shop_tasks", ("default", "mail"), 20,
    )  # fmt: skip
    assert (settings.losses, settings.durations.lease_ttl_s, settings.max_input_bytes) == (5, 240, 1000)
    assert settings.tree_quotas == (20, 10, 5, 3, 2, 1)
    assert settings.failure_rules[0].exit_codes == (42,)
    assert settings.failure_rules[1:] == DEFAULT_RULES


def test_a_retry_rule_uses_the_default_for_every_setting_that_the_file_omits(here: Path) -> None:
    write(here, WHOLE)
    rules = project.load().settings.retries
    assert (rules[FailureClass.FLAKY].retries, rules[FailureClass.FLAKY].first_pause_s) == (5, 0.5)
    assert rules[FailureClass.INFRA] == DEFAULT_SETTINGS.retries[FailureClass.INFRA]


def test_the_file_is_found_from_a_folder_below_and_its_paths_are_its_own(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, 'store = "sqlite:///shop.db"')
    below = here / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert project.load().url == f"sqlite:///{here}/shop.db"


@pytest.mark.parametrize("url", ["sqlite:////var/lib/shop.db", "postgresql://me@there/shop", "memory:"])
def test_a_store_elsewhere_is_taken_as_it_is(here: Path, url: str) -> None:
    write(here, f'store = "{url}"')
    assert project.load().url == url


def test_the_command_line_takes_precedence_over_the_environment_and_then_the_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, WHOLE)
    monkeypatch.setenv("INTERLOCK_URL", "sqlite:///environment.db")
    assert project.load("sqlite:///typed.db").url == "sqlite:///typed.db"
    assert project.load().url == "sqlite:///environment.db"
    monkeypatch.setenv("INTERLOCK_URL", "")
    assert project.load().url.endswith("/shop.db")
    assert project.load("memory:").settings.losses == 5  # the rest of the file holds in any case


def test_commands_use_the_file(cli: RunCli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    write(folder, 'store = "sqlite:///shop.db"\n[limits]\nmax_input_bytes = 20\n')
    assert cli("db", "migrate").returncode == 0
    assert (folder / "shop.db").exists()
    assert cli("submit", "anything", "--unchecked", "x=1").returncode == 0
    assert json.loads(cli("db", "status", "--json").stdout)["records"] == {"job": {"PENDING": 1}}
    refused = cli("submit", "anything", "--unchecked", "x=12345678901234567890")
    assert (refused.returncode, "at most 20 bytes" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stor = 1", "there is no stor, did you mean store"),
        ("[worker]\nslotz = 1", "there is no worker.slotz, did you mean worker.slots"),
        ("[durations]\nlease_tl_s = 1", "there is no durations.lease_tl_s, did you mean durations.le"),
        ("[retries.flakey]\nretries = 1", "there is no retries.flakey, did you mean retries.flaky"),
        ("[retries.lost]\nretries = 1", "there is no retries.lost"),
        ("[retries.user]\nretrys = 1", "there is no retries.user.retrys, did you mean retries.user.retries"),
        ("[retries.user]\nretries = -1", "retries.user.retries is -1 and must not be negative"),
        ("[[failures]]\nklass = 1", "there is no failures.klass, did you mean failures.class"),
        ('[[failures]]\nclass = "odd"', "failures[0].class: invalid enum value 'odd'"),
        ('[[failures]]\nclass = "infra"\npatterns = ["("]', "the pattern '(' is not a regular expression"),
        ('[worker]\nslots = "many"', "worker.slots: expected int | null, got str"),
        ("[worker]\nslots = 0", "worker.slots is 0 and must be at least 1"),
        ("[limits]\nmax_input_bytes = 0", "limits.max_input_bytes is 0 and must be at least 1"),
        ("losses = -1", "losses is -1 and must not be negative"),
        ("retries = 3", "retries: expected object, got int"),
        ("[durations]\nlease_ttl_s = 5", "The durations contradict each other: shutdown_deadline_s"),
        ("a = 1\nb =\n", "line 2"),
        ("store = 'é'", ""),
    ],
)  # fmt: skip
def test_an_invalid_project_file_is_refused_with_its_path_and_the_reason(
    here: Path, text: str, says: str
) -> None:
    if not says:
        (here / "interlock.toml").write_bytes(text.encode("latin-1"))
    else:
        write(here, text)
    with pytest.raises(InvalidSettings) as caught:
        project.load()
    assert caught.value.sentence.startswith(f"{here}/interlock.toml cannot be used: ")
    assert says in caught.value.sentence


def test_a_bad_file_ends_a_command_with_code_2_and_no_traceback(cli: RunCli, folder: Path) -> None:
    write(folder, "stor = 1")
    for words in (
        ["job", "list"],
        ["db", "status"],
        ["submit", "x", "--unchecked"],
        ["worker", "start", "x"],
    ):
        answer = cli(*words)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "there is no stor, did you mean store" in answer.stderr


def test_retention_is_configured_by_outcome_and_has_a_minimum(tmp_path: Path) -> None:
    file = tmp_path / "interlock.toml"
    file.write_text('[retention]\ncompleted = "1d"\nfailed = "30d"\n', encoding="utf-8")
    assert project.load(start=tmp_path).retention.completed == "1d"
    file.write_text('[retention]\ncompleted = "5m"\n', encoding="utf-8")
    with pytest.raises(InvalidSettings, match=r"retention\.completed is 5m and must be at least 1h"):
        project.load(start=tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '[retention.queues.mail]\nfailed = "5m"',
            r"retention\.queues\.mail\.failed is 5m and must be at least 1h",
        ),
        (
            '[retention.queues.mail]\nfaild = "5d"',
            r"no retention\.queues\.mail\.faild, did you mean retention\.queues\.mail\.failed",
        ),
        ('[retention.queues]\nmail = "5d"', r"retention\.queues"),
        ('[retention.queues.""]\nfailed = "5d"', r"a queue without a name"),
    ],
)
def test_retention_of_a_queue_is_checked(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "interlock.toml"
    file.write_text('[retention.queues.mail]\nfailed = "90d"\n', encoding="utf-8")
    assert project.load(start=tmp_path).retention.queues["mail"].failed == "90d"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidSettings, match=why):
        project.load(start=tmp_path)
