"""`interlock record …`: kinds of one's own on the command line, with a store and through a server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from interlock.cli.main import main

SHOP = Path(__file__).parents[2] / "examples" / "orders.py"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose file names the kinds."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(SHOP, tmp_path / "orders_for_records.py")
    (tmp_path / "interlock.toml").write_text('kinds = ["orders_for_records"]\n', encoding="utf-8")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it printed."""
    code = main(["record", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_record_commands_create_send_get_list_explain_and_watch_an_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "create", "order", "customer=ada", "amount=40", "--id", "o-1") == (0, "o-1\n", "")
    code, out, _ = run(capsys, "send", "order", "o-1", "pay", "amount=40", "--expected", "1")
    assert (code, out) == (0, "order o-1 is paid (version 2)\n")
    code, out, _ = run(capsys, "get", "order", "o-1", "--json")
    assert (code, json.loads(out)["data"]["paid"]) == (0, 40)
    code, out, _ = run(capsys, "get", "order", "o-1")
    assert "data.customer\tada" in out
    code, out, _ = run(capsys, "list", "order", "customer=ada", "--state", "paid")
    assert (code, out.splitlines()[-1].split("\t")[:3]) == (0, ["o-1", "paid", "2"])
    code, out, _ = run(capsys, "history", "order", "o-1")
    assert [line.split("\t")[2] for line in out.splitlines()[-2:]] == ["created", "pay"]
    code, out, _ = run(capsys, "explain", "order", "o-1")
    assert "interlock record send order o-1 ship tracking=…" in out
    assert run(capsys, "send", "order", "o-1", "close")[0] == 0
    code, out, _ = run(capsys, "watch", "order", "o-1")
    assert (code, out) == (0, "order o-1 is cancelled (version 3)\n")
    code, out, _ = run(capsys, "kinds", "--json")
    assert [kind["name"] for kind in json.loads(out)] == ["order"]


def test_a_refused_record_command_prints_the_reason_and_exits_with_its_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "create", "order", '{"customer": "ada", "amount": 40}', "--id", "o-1")
    code, _, err = run(capsys, "send", "order", "o-1", "ship", "tracking=T1")
    assert code == 2
    assert "The order is placed" in err
    code, out, err = run(capsys, "send", "order", "o-1", "pay", "amount=40", "--expected", "7", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "version_changed")
    code, _, err = run(capsys, "create", "order", "amount=much", "customer=ada")
    assert code == 2
    assert "Expected `int`" in err
    code, _, err = run(capsys, "get", "parcel", "o-1")
    assert code == 2
    assert "order" in err
    code, _, err = run(capsys, "watch", "order", "o-1", "--timeout", "0.01")
    assert code == 5


def test_the_database_commands_know_the_kinds_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "create", "order", "customer=ada", "amount=40", "--id", "o-1")
    run(capsys, "send", "order", "o-1", "cancel")
    assert main(["db", "audit", "--kind", "order"]) == 0
    assert main(["db", "prune", "--kind", "order", "--older-than", "0s", "--json"]) == 0
    capsys.readouterr()
    assert run(capsys, "list", "order")[1] == ""


def test_a_module_without_kinds_is_refused_with_an_error(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    (project / "nothing_for_records.py").write_text("", encoding="utf-8")
    code, _, err = run(capsys, "list", "order", "--kinds", "nothing_for_records")
    assert code == 2
    assert "it declares no kind" in err
