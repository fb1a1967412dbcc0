"""`interlock doctor`: every check, and what it says to do."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.shop import RunCli, Shop
from tests.server.running import any_port, running

from interlock.cli import doctor as diagnosis
from interlock.cli import project
from interlock.cli.doctor import ERROR, OK, WARNING, Diagnosis
from interlock.processes import credentials
from interlock.store.contract import ServerConnections, StoreStatus, Vacuum
from interlock.wire.access import Role
from interlock.wire.workers import WorkerSpec, WorkerView


def checks(cli: RunCli, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    answer = cli("doctor", "--json", *words)
    assert answer.returncode == code, answer.stdout + answer.stderr
    found = json.loads(answer.stdout)
    assert found["ok"] is (code == 0)
    return {each["check"]: each for each in found["checks"]}


def test_a_database_that_does_not_exist_is_reported_and_not_created(cli: RunCli, folder: Path) -> None:
    found = checks(cli, "--store", f"sqlite:///{folder}/new.db")
    assert list(found) == ["version", "project", "store"]
    assert "does not exist yet" in found["store"]["sentence"]
    assert not (folder / "new.db").exists()


def test_a_sound_project_passes_every_check(cli: RunCli, shop: Shop) -> None:
    shop.do(_registered)
    found = checks(cli)
    everything = [
        *("version", "project", "store", "permissions", "blobs", "disk", "clock", "round trip"),
        *("workers", "work"),
    ]
    assert list(found) == everything
    assert "schema version" in found["store"]["sentence"]
    assert found["workers"]["sentence"] == "1 worker with 4 slots, 0 of them busy."
    assert found["work"]["sentence"] == "No problem found: 0 jobs pending, 0 running."


async def _registered(port: Any) -> None:
    await port.services.workers.register(WorkerSpec(name="web-1", queues=("default",), capacity=4))


def test_without_a_worker_and_without_jobs_the_worker_is_missed(cli: RunCli, shop: Shop) -> None:
    shop.do(_nothing)
    missing = checks(cli)["workers"]
    assert (missing["status"], missing["todo"]) == (WARNING, "interlock worker start MODULE")


async def _nothing(_: Any) -> None:
    """Open the database, which creates it."""


def test_a_job_that_no_worker_takes_is_an_error_with_the_command_that_helps(cli: RunCli, shop: Shop) -> None:
    shop.submit(queue="mail")
    found = checks(cli, code=1)["queue"]
    assert found["status"] == ERROR
    assert "Jobs wait in the queue mail." in found["sentence"]
    assert "worker start" in found["todo"]
    rows = [line.split("\t") for line in cli("doctor").stdout.splitlines()]
    assert ["queue", ERROR, found["sentence"], found["todo"]] in rows


def test_a_project_file_with_a_fault_is_reported_with_its_place(cli: RunCli, folder: Path) -> None:
    (folder / "interlock.toml").write_text("[worker]\nslots = 'many'\n")
    fault = checks(cli, code=1)["project"]
    assert fault["status"] == ERROR
    assert "slots" in fault["sentence"]


def test_doctor_reports_an_error_and_a_remedy_for_a_file_that_is_not_a_database(
    cli: RunCli, folder: Path
) -> None:
    (folder / "text.db").write_text("This is not a database. " * 100)
    fault = checks(cli, "--store", f"sqlite:///{folder}/text.db", code=1)["store"]
    assert fault["status"] == ERROR
    assert fault["todo"]


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("postgresql://a:hush@127.0.0.1:1/x?pool=2", "pg_isready -d postgresql://127.0.0.1:1"),
        ("postgresql:///x?host=/no/folder", "pg_isready -d 'postgresql://?host=%2Fno%2Ffolder'"),
        ("redis://:hush@127.0.0.1:1/0", "redis-cli -u redis://127.0.0.1:1 ping"),
        ("unix:///no/socket", "redis-cli -s /no/socket ping"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_doctor_names_the_command_that_tests_a_database_server_that_does_not_answer(
    cli: RunCli, url: str, command: str
) -> None:
    fault = checks(cli, "--store", url, code=1)["store"]
    assert fault["status"] == ERROR
    assert fault["todo"].endswith(f". To test it: {command}")
    assert "hush" not in str(fault)


async def test_doctor_checks_the_version_of_the_server_and_the_roles_of_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db", any_port(tokens_required=True)) as server:
        for role, expected in (
            (Role.ADMIN, "has the same version"),
            (Role.VIEWER, "only admins see its version"),
        ):
            token = await server.token(role, f"ask-{role}")
            monkeypatch.setitem(credentials._held, credentials.TOKEN, token)
            found = await _by_check(server.url)
            assert expected in found["server"].sentence
            assert f"The token ask-{role} has the roles" in found["permissions"].sentence
            assert {each.status for each in found.values()} <= {OK, WARNING}
        monkeypatch.setitem(credentials._held, credentials.TOKEN, "il_0000000000000000_" + "0" * 64)
        refused = await _by_check(server.url)
        assert refused["permissions"].status == ERROR
        assert refused["permissions"].todo


async def _by_check(url: str) -> dict[str, Diagnosis]:
    here = await asyncio.to_thread(project.load, url)
    return {each.check: each for each in await diagnosis._all(here)}


@pytest.mark.parametrize(
    ("offset_s", "bound_s", "status", "message"),
    [
        (0.4, 0.001, OK, "have the same time, to within 1 ms"),
        (2.5, 1.0, OK, "to within 1.0 s"),
        (7_200.0, 0.1, WARNING, "2 h ahead of that of the store"),
        (-90.0, 0.1, WARNING, "2 min behind that of the store"),
    ],
)
def test_doctor_warns_about_a_clock_offset_only_beyond_the_measurement_error(
    offset_s: float, bound_s: float, status: str, message: str
) -> None:
    found = diagnosis._offset(offset_s, bound_s, "store")
    assert (found.status, bool(found.todo)) == (status, status != OK)
    assert message in found.sentence


async def test_the_clock_of_a_machine_that_is_an_hour_off_is_noticed() -> None:
    async def an_hour_ago() -> datetime:
        return datetime.now(UTC) - timedelta(hours=1)

    found = {each.check: each async for each in diagnosis._clock(an_hour_ago, "store")}
    assert "ahead of that of the store" in found["clock"].sentence
    assert "takes" in found["round trip"].sentence


def test_workers_of_other_versions_are_listed_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "version", lambda _: "2.0")
    now = datetime.now(UTC)
    one = WorkerView(id="w_1", state="RUNNING", version=1, name="a", created_at=now, updated_at=now)
    workers = [
        msgspec.structs.replace(one, name=name, metadata={"interlock": version} if version else {})
        for name, version in (("new", "2.0"), ("old", "1.9"), ("older", "1.9"), ("silent", ""))
    ]
    (found,) = diagnosis._versions(workers)
    assert found.sentence == "2 workers (old, older) run Interlock 1.9, and this is 2.0."


SOUND = StoreStatus(
    url="postgresql://db",
    server="PostgreSQL 15",
    schema_version=1,
    wanted_version=1,
    records={},
    entries=0,
    oldest_entry_at=None,
    requests=0,
)


@pytest.mark.parametrize(("used", "status"), [(10, OK), (80, WARNING)])
def test_a_database_server_with_few_connections_left_is_a_warning(used: int, status: str) -> None:
    known = ServerConnections(ours=5, all=used, most=100, at_rest=3, busy=12)
    (found,) = diagnosis._connections(msgspec.structs.replace(SOUND, connections=known))
    assert found.status == status
    assert f"{used} of 100 connections" in found.sentence


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (None, []),
        (Vacuum(automatic=True), []),
        (Vacuum(automatic=True, oldest_transaction_s=60.0), []),
        (Vacuum(automatic=True, oldest_transaction_s=7_200.0), ["open for 2 h"]),
        (Vacuum(automatic=False, oldest_transaction_s=7_200.0), ["Autovacuum is off", "open for 2 h"]),
    ],
)
def test_doctor_warns_if_autovacuum_is_off_or_a_transaction_stays_open_for_hours(
    known: Vacuum | None, words: list[str]
) -> None:
    found = list(diagnosis._vacuum(msgspec.structs.replace(SOUND, vacuum=known)))
    assert [each.status for each in found] == [WARNING] * len(words)
    for each, word in zip(found, words, strict=True):
        assert word in each.sentence
        assert each.todo
