"""Processes are frozen between two writes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until_so

from interlock.testing import process_control, watchdog

WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
for line in sys.stdin:
    db.execute(line)
    print("done", flush=True)
"""


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        (sys.executable, "-c", WRITER, str(path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def tell(process: subprocess.Popen[str], sql: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(sql + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "db")) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE thing (name)")
    return tmp_path / "db"


def test_freezing_a_process_that_holds_the_write_lock_fails_and_leaves_the_process_running(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_control, "_LOCK_S", 0.1)
    monkeypatch.setattr(process_control, "_TRIES", 3)
    with writer(path) as process:
        tell(process, "BEGIN IMMEDIATE")

        with pytest.raises(process_control.NeverOutsideAWrite, match=str(process.pid)):
            process_control.freeze(process.pid, f"sqlite:///{path}")

        tell(process, "ROLLBACK")  # so it is running


def test_a_process_frozen_between_two_writes_does_not_block_other_writers(path: Path) -> None:
    with writer(path) as process:
        tell(process, "INSERT INTO thing VALUES ('one')")

        process_control.freeze(process.pid, f"sqlite:///{path}")

        assert process_control.is_frozen(process.pid)
        with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as other, other:
            other.execute("INSERT INTO thing VALUES ('two')")
        process.send_signal(signal.SIGCONT)
        tell(process, "INSERT INTO thing VALUES ('three')")


def test_a_process_with_a_store_on_a_server_is_frozen_without_a_lock_check(path: Path) -> None:
    with writer(path) as process:
        tell(process, "BEGIN IMMEDIATE")

        process_control.freeze(process.pid, "postgresql://nowhere/nothing")

        assert process_control.is_frozen(process.pid)


def test_a_process_that_has_ended_cannot_be_frozen(path: Path) -> None:
    with writer(path) as process:
        pass

    with pytest.raises(ProcessLookupError):
        process_control.freeze(process.pid, f"sqlite:///{path}")
    with pytest.raises(FileNotFoundError):
        process_control.is_frozen(process.pid)


def test_a_process_that_is_started_while_its_parent_is_being_frozen_is_frozen_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree, calls = watchdog.tree, iter(range(10))
    with subprocess.Popen(("sh", "-c", "read line; sleep 600 & wait"), stdin=subprocess.PIPE) as parent:

        def outdated(pid: int) -> list[int]:
            """Return the family once as it was before a child was born."""
            found = tree(pid)
            if next(calls) == 0:
                assert parent.stdin is not None
                parent.stdin.write(b"go\n")
                parent.stdin.flush()
                until_so(lambda: len(tree(pid)) == 2, "the child has been born")
            return found

        monkeypatch.setattr(watchdog, "tree", outdated)
        family = watchdog.freeze(parent.pid)
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in family]
        watchdog.send(family, signal.SIGKILL)
    assert (len(family), states) == (2, ["T", "T"])
