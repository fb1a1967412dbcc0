"""Statements have nameless parameters: some versions of Python 3.12 warn of numbered ones, each time."""

from __future__ import annotations

import re
from pathlib import Path

from interlock.store.sqlite import store, writes

NUMBERED = re.compile(r"\?\d")
FOLDER = Path(store.__file__).parent


def test_a_numbered_statement_is_executed_with_nameless_parameters_in_their_order() -> None:
    text, pick = writes.numbered("UPDATE t SET a = ?2, b = ?10 WHERE c = ?1 AND a != ?2")
    assert text == "UPDATE t SET a = ?, b = ? WHERE c = ? AND a != ?"
    assert pick(tuple("abcdefghij")) == ("b", "j", "a", "b")


def test_no_statement_of_the_store_has_numbered_parameters() -> None:
    statements = [one for one in vars(writes).values() if isinstance(one, writes.RowStatement)]
    statements += [writes.update(True, writes._OWN_RESULT, writes._RUN)]
    assert len(statements) > 4
    assert [one.text for one in statements if NUMBERED.search(one.text)] == []
    others = [path for path in FOLDER.glob("*.py") if path.name != "writes.py"]
    assert len(others) > 5
    assert [path.name for path in others if NUMBERED.search(path.read_text(encoding="utf-8"))] == []
