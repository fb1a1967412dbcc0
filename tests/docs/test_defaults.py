"""The defaults on the page about the configuration are those that a program has without a file."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from docs import references

from interlock.cli import project
from interlock.cli.nouns.worker_start import WorkerOptions, settings_for
from interlock.engine.retention import Retention
from interlock.server.settings import ServerSettings
from interlock.systems.settings import Settings
from interlock.worker.settings import WorkerSettings

ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)` \|", re.M)
CLASSES = re.compile(r"^\| `(\w+)` \|((?: `[\d.]+` \|){5})$", re.M)
WITH_DEFAULTS = (
    "[worker]",
    "[durations]",
    "[limits]",
    "[blobs]",
    "[dead_letters]",
    "[retention]",
    "[quarantine]",
)


class Effective(NamedTuple):
    """What programs do without options."""

    url: str
    settings: Settings
    worker: WorkerSettings
    kept: Retention


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the profiles and variables of whoever runs the tests."""
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    monkeypatch.delenv("INTERLOCK_PROFILE", raising=False)
    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))


def chapters(page: str) -> dict[str, str]:
    """Return the text of each section of the file, by its heading."""
    parts = re.split(r"^## ", page, flags=re.M)[1:]
    return {title.strip("`"): text for title, _, text in (part.partition("\n") for part in parts)}


def file_with_defaults(page: str) -> str:
    """Return a file with every default of the page that is a value."""
    found = chapters(page)
    lines = [f"{name} = {value}" for name, value in ROW.findall(found["Top level"])]
    for section in WITH_DEFAULTS:
        values = ROW.findall(found[section])
        lines += [section, *(f"{name} = {value}" for name, value in values if value != "{}")]
    names = re.findall(r"`(\w+)`", next(line for line in page.splitlines() if line.startswith("| class |")))
    for failure_class, row in CLASSES.findall(found["[retries.CLASS]"]):
        lines += [f"[retries.{failure_class}]"]
        lines += [f"{name} = {value}" for name, value in zip(names, re.findall(r"[\d.]+", row), strict=True)]
    return "\n".join(lines)


def effective(folder: Path, text: str | None = None) -> Effective:
    """Return what programs do in a folder, with this file or without one."""
    folder.mkdir()
    if text is not None:
        (folder / "interlock.toml").write_text(text, encoding="utf-8")
    here = project.load(start=folder)
    url = here.url.replace(f"{folder}/", "")
    kept = here.retention.over(ServerSettings().retention)
    return Effective(url, here.settings, settings_for(here, WorkerOptions()), kept)


def kept_jobs(kept: Retention) -> dict[str, Any]:
    return {state: kept.of("job", state) for state in ("COMPLETED", "FAILED", "CANCELED")}


def test_a_file_with_all_defaults_of_the_page_changes_nothing(tmp_path: Path) -> None:
    text = file_with_defaults(references.configuration_page())
    assert {"slots = 10", "[retries.infra]", 'completed = "30d"', 'store = "sqlite:///interlock.db"'} < {
        *text.splitlines()
    }
    without, with_all = effective(tmp_path / "a"), effective(tmp_path / "b", text)
    assert with_all[:3] == without[:3]
    assert kept_jobs(with_all.kept) == kept_jobs(without.kept)
    assert with_all.kept.default == without.kept.default


def test_the_name_of_a_worker_is_the_one_that_the_page_says(tmp_path: Path) -> None:
    assert "| `name` | the host name |" in references.configuration_page()
    assert effective(tmp_path / "a").worker.name == socket.gethostname()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("| `slots` | `10` |", "| `slots` | `4` |"),
        ("| `flaky` | `2` |", "| `flaky` | `3` |"),
        ('| `failed` | `"30d"` |', '| `failed` | `"7d"` |'),
    ],
)
def test_a_wrong_default_is_noticed(tmp_path: Path, right: str, wrong: str) -> None:
    page = references.configuration_page()
    assert right in page
    without = effective(tmp_path / "a")
    other = effective(tmp_path / "b", file_with_defaults(page.replace(right, wrong)))
    assert (*other[:3], kept_jobs(other.kept)) != (*without[:3], kept_jobs(without.kept))


def test_only_settings_that_may_be_left_empty_have_no_default() -> None:
    """Each of these does nothing, or is off, unless it is set."""
    rows = re.findall(r"^\| `(\w+)` \| none \|", references.configuration_page(), re.M)
    assert set(rows) == {
        "public_url",
        "module",
        "memory_limit_mb",
        "metrics_port",
        "max",
        "rate",
        "description",
        "url",
        "endpoint",
        "task",
        "webhook_secret_file",
        "workflow",
        "definition",
        "secret_env",
        "secret_file",
        "token_file",
        "cron",
        "every",
        "start",
        "end",
        "jitter",
    }
