"""`interlock verify` is a command of another distribution: found when it is called, and not before."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from interlock.cli.main import main
from interlock.cli.verify import GROUP, NAME


def declare(monkeypatch: pytest.MonkeyPatch, *homes: str) -> None:
    """Let the installed distributions declare these commands `verify`, and no others."""
    declared = EntryPoints(EntryPoint(NAME, home, GROUP) for home in homes)
    monkeypatch.setattr(importlib.metadata, "entry_points", declared.select)


def test_the_distribution_of_this_repository_declares_the_command() -> None:
    (found,) = importlib.metadata.entry_points(group=GROUP, name=NAME)
    assert found.value == "interlock_verification.cli:app"


@pytest.mark.parametrize("words", [(), ("--help",), ("model", "--environment", "race"), ("world", "--json")])
def test_verify_exits_with_code_2_and_the_install_command_if_its_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    declare(monkeypatch)
    assert main(["verify", *words]) == 2
    captured = capsys.readouterr()
    assert "is not installed: interlock-verification" in captured.out + captured.err
    assert "pip install ./verification" in captured.out + captured.err


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ("interlock_verification.nowhere:app", "No module named 'interlock_verification.nowhere'"),
        ("interlock_verification.cli:nothing", "has no attribute 'nothing'"),
        ("interlock_verification.cli:QUICK_HOURS", "is not a group of commands"),
    ],
)
def test_verify_exits_with_code_2_and_the_reason_if_its_entry_point_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: str, why: str
) -> None:
    declare(monkeypatch, home)
    assert main(["verify", "model"]) == 2
    assert why in capsys.readouterr().err


def test_help_lists_the_command_without_looking_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(**_: str) -> EntryPoints:
        raise AssertionError("Entry points were read.")

    monkeypatch.setattr(importlib.metadata, "entry_points", look)
    assert main(["--help"]) == 0
    assert "verify" in capsys.readouterr().out


def test_its_help_and_its_wrong_usage_are_those_of_the_other_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "-h"]) == 0
    assert "Usage: interlock verify [OPTIONS] COMMAND" in capsys.readouterr().out
    assert main(["verify", "mutate", "--sampel", "3"]) == 2
    assert "No such option: --sampel" in capsys.readouterr().err
