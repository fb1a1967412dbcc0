"""`interlock db`: on a real SQLite file, and with every wrong question."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from interlock.cli.main import main
from interlock.cli.options import parse_duration
from interlock.lifecycles.workload import WORKLOAD
from interlock.store.records import Change, Commit, Note, StepLine
from interlock.store.sqlite import SqliteStore, queries
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'interlock.db'}"


def keep_a_job(
    url: str, *, name: str = "j_1", state: str = "SUBMITTED", expected: int = 0, queue: str | None = None
) -> None:
    """Write a job as the program would."""

    async def write() -> None:
        store = SqliteStore(url, CATALOGUE)
        await store.open()
        steps: tuple[StepLine, ...] = ()
        if state == "CANCELED":
            steps = (StepLine("job", name, "cancel", "SUBMITTED", "CANCELED", "orchestrator"),)
        note = Note(steps=steps)
        change = Change(
            kind="job", id=name, expected=expected, state=state, body=b"{}", note=note, queue=queue
        )
        await store.commit([Commit(changes=(change,))])
        await store.close()

    asyncio.run(write())


def cli(*words: str) -> int:
    return main(["db", *words])


def test_migrating_makes_the_database_and_can_be_done_twice(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("migrate", "--store", url) == 0
    assert cli("migrate", "--store", url, "--json") == 0
    last = capsys.readouterr().out.split("\n", 1)[1]
    assert json.loads(last)["schema_version"] >= 1


def test_the_store_is_taken_from_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERLOCK_URL", url)
    keep_a_job(url)
    assert cli("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["records"] == {"job": {"SUBMITTED": 1}}


def test_an_audit_of_records_that_match_their_journal_reports_no_fault(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_a_job(url)
    keep_a_job(url, state="CANCELED", expected=1)
    assert cli("audit", "--store", url, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["records"], found["entries"], found["steps"]) == (True, 1, 2, 1)


def test_an_audit_does_not_look_for_the_journal_of_figures_which_have_none(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def count() -> None:
        store = SqliteStore(url, CATALOGUE)
        await store.open()
        runtime = Runtime(store, DEFAULT_SETTINGS)
        await runtime.figures.round()
        await runtime.close()

    asyncio.run(count())
    assert cli("audit", "--store", url) == 0
    assert cli("audit", "--store", url, "--kind", "figures", "--json") == 0
    output = capsys.readouterr().out
    assert json.loads(output[output.index("{") :])["faults"] == []


def test_an_audit_finds_a_record_whose_state_was_changed_with_sql(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_a_job(url)
    shell = sqlite3.connect(url.removeprefix("sqlite:///"))
    with shell:
        shell.execute("UPDATE records SET state = 'PENDING'")
    shell.close()
    assert cli("audit", "--store", url) == 1
    assert "replaying ends in SUBMITTED, but the record is PENDING" in capsys.readouterr().out


def test_db_prune_removes_only_ended_records_that_are_old_enough(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_a_job(url, name="j_living")
    keep_a_job(url, name="j_ended", state="CANCELED")
    assert cli("prune", "--older-than", "1d", "--store", url, "--json") == 0
    assert json.loads(capsys.readouterr().out)["job"]["records"] == 0
    assert cli("prune", "--older-than", "0s", "--kind", "job", "--store", url, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"job": {"records": 1, "entries": 1, "requests": 0}}


def test_pruning_a_queue_leaves_the_others(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep_a_job(url, name="j_living", queue="mail")
    keep_a_job(url, name="j_mail", state="CANCELED", queue="mail")
    keep_a_job(url, name="j_other", state="CANCELED", queue="other")
    assert cli("prune", "--older-than", "1d", "--queue", "mail", "--store", url, "--json") == 0
    assert json.loads(capsys.readouterr().out)["job"]["records"] == 0
    assert cli("prune", "--older-than", "0s", "--queue", "mail", "--store", url, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"job": {"records": 1, "entries": 1, "requests": 0}}
    assert cli("prune", "--older-than", "0s", "--queue", "mail", "--kind", "jbo", "--store", url) == 2
    assert "job" in capsys.readouterr().err


def test_pruning_removes_workloads_that_are_over_and_leaves_those_of_busy_agents(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def write() -> None:
        store = SqliteStore(url, CATALOGUE)
        await store.open()
        changes = tuple(
            Change(kind="workload", id=state.lower(), expected=0, state=state, body=b"{}", note=Note())
            for state in WORKLOAD.states
        )
        await store.commit([Commit(changes=changes)])
        await store.close()

    asyncio.run(write())
    assert cli("prune", "--older-than", "0s", "--kind", "workload", "--store", url, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"workload": {"records": 1, "entries": 1, "requests": 0}}
    assert cli("status", "--store", url, "--json") == 0
    left = json.loads(capsys.readouterr().out)["records"]["workload"]
    assert left == {state: 1 for state in WORKLOAD.states if state not in WORKLOAD.resting}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["status", "--store", "mysql://me:secret@there/it"], "is not the URL of a store"),
        (["status", "--store", "sqlite:////no/such/folder/here/it.db"], "folder"),
        (["audit", "--store", "memory:", "--kind", "jop"], "Did you mean job?"),
        (["prune", "--older-than", "soon", "--store", "memory:"], "is not a duration"),
        (["prune", "--older-than", "9999999999w", "--store", "memory:"], "is too long"),
    ],
)
def test_db_commands_exit_with_code_2_and_the_reason_for_invalid_arguments(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(*words) == 2
    captured = capsys.readouterr()
    assert says in captured.err + captured.out
    assert "secret" not in captured.err + captured.out
    assert "Traceback" not in captured.err


def test_durations_are_read_as_people_write_them() -> None:
    assert parse_duration("90s") == timedelta(seconds=90)
    assert parse_duration("1.5H") == timedelta(minutes=90)
    assert parse_duration("4w") == timedelta(days=28)


def test_a_pruned_file_can_be_made_smaller_again_and_again(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    for part in ("first", "second"):
        with sqlite3.connect(path) as shell:
            keep_a_job(url, name=f"j_{part}")
            shell.execute("CREATE TABLE ballast AS SELECT zeroblob(2000000) AS b")
            shell.execute("DROP TABLE ballast")
        shell.close()
        before = path.stat().st_size
        assert cli("vacuum", "--store", url, "--json") == 0
        assert json.loads(capsys.readouterr().out)["freed_bytes"] > 1_500_000
        assert path.stat().st_size < before - 1_500_000
    assert cli("audit", "--store", url) == 0
    assert cli("vacuum", "--store", "memory:") == 0
    assert "by itself" in capsys.readouterr().out


def test_a_count_that_ends_at_the_cap_is_marked(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        keep_a_job(url, name=f"j_{number}")
    monkeypatch.setattr(queries, "_STATUS_CAP", 2)
    assert cli("status", "--store", url) == 0
    shown = capsys.readouterr().out
    assert "SUBMITTED\t2+" in shown
    assert "2+ entries" in shown
