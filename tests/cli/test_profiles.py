"""`interlock config`: names for stores and servers, and which of them a command uses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.cli.shop import RunCli

from interlock.cli import profiles, project
from interlock.errors import InvalidSettings
from interlock.processes import credentials


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without profiles, variables and tokens."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    for name in ("INTERLOCK_URL", "INTERLOCK_PROFILE", "INTERLOCK_CA", "INTERLOCK_TOKEN"):
        monkeypatch.setenv(name, "")  # so that what a command sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setattr(credentials, "_held", held := dict[str, str]())
    monkeypatch.setattr(credentials, "ENVIRONMENT", held)
    return folder / "interlock" / "profiles.toml"


def test_a_profile_is_made_listed_used_and_removed(cli: RunCli, home: Path, folder: Path) -> None:
    (folder / "token.txt").write_text("il_hush\n")
    cli("config", "set", "prod", "https://jobs.example.org", "--token-file", "token.txt")
    cli("config", "set", "local", f"sqlite:///{folder}/jobs.db")
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert cli("config", "use", "prod").stdout == "Commands use prod: https://jobs.example.org\n"
    listed = cli("config", "list", "--json")
    assert "hush" not in listed.stdout
    assert json.loads(listed.stdout) == [
        {"name": "local", "url": f"sqlite:///{folder}/jobs.db", "token": False, "in_use": False},
        {"name": "prod", "url": "https://jobs.example.org", "token": True, "in_use": True},
    ]
    assert cli("config", "remove", "prod").returncode == 0
    assert "hush" not in home.read_text()
    assert (profiles.read().use, list(profiles.read().profiles)) == ("", ["local"])


def test_an_unreadable_token_file_is_reported_and_no_profile_is_saved(cli: RunCli, folder: Path) -> None:
    (folder / "picture.png").write_bytes(b"\x89PNG")
    for file in ("missing.txt", "picture.png", "."):
        answer = cli("config", "set", "prod", "https://jobs.example.org", "--token-file", file)
        assert answer.returncode == 2
        assert f"The token cannot be read from {file}" in answer.stderr
        assert "Traceback" not in answer.stderr
    assert profiles.read().profiles == {}


@pytest.mark.usefixtures("folder")
def test_an_unknown_profile_is_refused_with_the_closest_existing_name(cli: RunCli) -> None:
    cli("config", "set", "prod", "https://jobs.example.org")
    for words in (("config", "use", "prd"), ("config", "remove", "prd"), ("--profile", "prd", "job", "list")):
        answer = cli(*words)
        assert answer.returncode == 2
        assert "There is no profile 'prd'. Did you mean prod?" in answer.stderr
    for wrong in (("use",), ("use", "prod", "--none")):
        assert cli("config", *wrong).returncode == 2


@pytest.mark.usefixtures("folder")
def test_the_error_of_an_unknown_profile_names_the_command_that_creates_it(cli: RunCli) -> None:
    create = "To create it: interlock config set prod URL\n"
    for words in (("config", "use", "prod"), ("--profile", "prod", "job", "list")):
        assert cli(*words).stderr == f"Error: There is no profile 'prod'.\n→ {create}"
    cli("config", "set", "local", "sqlite:///jobs.db")
    assert cli("config", "use", "prod").stderr.endswith(f"→ Use one of: local. {create}")


def test_the_order_in_which_a_store_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: profiles.Profile(url=f"https://{name}.example") for name in ("used", "named")}
    assert project.load().url == "sqlite:///interlock.db"
    profiles.write(profiles.Profiles(use="used", profiles=made))
    assert project.load().url == "https://used.example"
    (folder / "interlock.toml").write_text('store = "https://project.example"\n')
    assert project.load().url == "https://project.example"
    monkeypatch.setenv("INTERLOCK_PROFILE", "named")
    assert project.load().url == "https://named.example"
    monkeypatch.setenv("INTERLOCK_URL", "https://variable.example")
    assert project.load().url == "https://variable.example"
    assert project.load("https://word.example").url == "https://word.example"


@pytest.mark.usefixtures("folder")
def test_the_token_of_a_profile_is_used_only_for_the_server_of_that_profile() -> None:
    prod = profiles.Profile(url="https://prod.example", token="il_hush", ca="/etc/ca.pem")
    profiles.write(profiles.Profiles(use="prod", profiles={"prod": prod}))
    project.load("https://elsewhere.example")
    assert credentials.token() is None
    project.load()
    assert credentials.token() == "il_hush"


@pytest.mark.usefixtures("folder")
def test_any_name_url_and_token_survives_the_file() -> None:
    odd = profiles.Profile(url='https://a"b\\c/ü', token="\x7f\n]['\"")
    found = profiles.Profiles(use="a.b c", profiles={"a.b c": odd, "": odd})
    profiles.write(found)
    assert profiles.read() == found


@pytest.mark.parametrize("text", ["use = ", "profiles = 3", "[profiles.a]\nurl = 1", "colour = 'red'"])
def test_an_invalid_profiles_file_is_refused_with_its_path_and_a_command_to_fix_it(
    cli: RunCli, home: Path, text: str
) -> None:
    home.parent.mkdir()
    home.write_text(text)
    answer = cli("config", "list")
    assert answer.returncode == 2
    assert str(home) in answer.stderr
    assert "interlock config set" in answer.stderr
    with pytest.raises(InvalidSettings):
        project.load()
