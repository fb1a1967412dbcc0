"""`interlock doctor` names the permissions that are missing on a store, and the remedy, which helps."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shop import RunCli
from tests.privileges import needs_a_user_of_its_own, ordinary
from tests.waiting import PROGRAM_S

from interlock.cli import doctor, project
from interlock.cli.doctor import ERROR, OK, WARNING, Diagnosis
from interlock.store.redis import permissions as redis_permissions
from interlock.store.redis import scripts
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.testing.servers import PostgresServer, RedisServer, redis_server
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest


def diagnosed(url: str) -> list[Diagnosis]:
    return asyncio.run(doctor._all(project.load(url)))


def about(check: str, found: list[Diagnosis]) -> list[Diagnosis]:
    return [each for each in found if each.check == check]


def claimed(url: str) -> int:
    """Submit a job, and claim it."""

    async def work() -> int:
        port = EmbeddedOrchestrator(url)
        await port.connect()
        try:
            await port.services.jobs.submit(JobSpec(task="shop.send"))
            return len(await port.claim(ClaimRequest(runner_id="r", queues=("default",), limit=1)))
        finally:
            await port.disconnect()

    return asyncio.run(work())


# SQLite, and the folder of blobs


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that another user can reach: pytest closes its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.fixture
def made(cli: RunCli, folder: Path) -> Path:
    """A database with the mode that Interlock gives it, in the current folder."""
    assert cli("db", "migrate", "--store", "sqlite:///jobs.db").returncode == 0
    return folder / "jobs.db"


def diagnosed_by_an_ordinary_user(folder: Path) -> list[dict[str, Any]]:
    """Return the checks of a doctor whose user may not write what may only be read."""
    user = ordinary()
    answer = subprocess.run(
        [*user.command, "doctor", "--json", "--store", "sqlite:///jobs.db"],
        cwd=folder,
        env={**os.environ, **user.variables},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert answer.returncode == 1, answer.stdout + answer.stderr
    checks: list[dict[str, Any]] = json.loads(answer.stdout)["checks"]
    return checks


@pytest.mark.usefixtures("made")
def test_a_private_database_in_a_folder_that_can_be_written_is_in_order() -> None:
    found = diagnosed("sqlite:///jobs.db")
    assert [(each.status, each.todo) for each in about("permissions", found)] == [(OK, "")]
    (sentence,) = (each.sentence for each in about("permissions", found))
    assert sentence == "jobs.db and its folder can be written; other users cannot read it (mode 0600)."
    (blobs,) = about("blobs", found)
    assert (blobs.status, blobs.todo) == (OK, "")
    assert "jobs.db.blobs, does not exist yet, and can be made." in blobs.sentence


def test_a_database_that_every_user_can_read_is_a_warning_with_the_command_that_helps(made: Path) -> None:
    made.chmod(0o644)
    (found,) = about("permissions", diagnosed("sqlite:///jobs.db"))
    assert found.status == WARNING
    assert found.sentence == "Every user of this machine can read jobs.db (mode 0644)."
    subprocess.run(["sh", "-c", found.todo], check=True, timeout=PROGRAM_S)
    assert [each.status for each in about("permissions", diagnosed("sqlite:///jobs.db"))] == [OK]


def test_a_database_and_a_folder_that_cannot_be_written_are_errors_that_name_the_owner(made: Path) -> None:
    made.chmod(0o444)
    made.parent.chmod(0o555)
    found = diagnosed_by_an_ordinary_user(made.parent)
    missing = [each for each in found if each["check"] == "permissions"]
    assert [each["status"] for each in missing] == [ERROR, ERROR]
    owner = pwd.getpwuid(os.geteuid()).pw_name
    for each, place, mode in zip(missing, (made.parent, made), ("0555", "0444"), strict=True):
        assert each["sentence"].startswith(f"{place.resolve()}, ")
        assert each["sentence"].endswith(f"it belongs to {owner} (mode {mode}).")
        assert "chmod u+rw" in each["todo"] or f"Run as {owner}" in each["todo"]
    (blobs,) = (each for each in found if each["check"] == "blobs")
    assert blobs["status"] == ERROR
    assert "Artifacts and caches cannot be stored in jobs.db.blobs" in blobs["sentence"]


def test_a_log_of_sqlite_that_another_user_left_is_an_error(made: Path) -> None:
    needs_a_user_of_its_own(ordinary())
    wal = made.with_name("jobs.db-wal")
    made.parent.chmod(0o777)
    made.chmod(0o666)
    wal.touch()
    wal.chmod(0o444)
    found = diagnosed_by_an_ordinary_user(made.parent)
    (missing,) = (each for each in found if each["check"] == "permissions")
    assert missing["status"] == ERROR
    assert missing["sentence"].startswith(f"{wal.resolve()}, a file of the database, cannot be written by ")


@pytest.mark.usefixtures("made")
def test_a_folder_of_blobs_that_is_a_file_is_an_error(folder: Path) -> None:
    (folder / "taken").write_text("")
    (folder / "interlock.toml").write_text('[blobs]\ndirectory = "taken"\n')
    (found,) = about("blobs", diagnosed("sqlite:///jobs.db"))
    assert found.status == ERROR
    assert found.sentence.endswith("taken is not a folder.")
    assert "`directory` in [blobs]" in found.todo
    (folder / "interlock.toml").write_text('[blobs]\nurl = "s3://a-bucket"\n')
    assert about("blobs", diagnosed("sqlite:///jobs.db")) == []


# PostgreSQL


@pytest.fixture
def role(postgres: PostgresServer) -> Iterator[str]:
    """A role without privileges, which ends with the test."""
    postgres.sql('CREATE ROLE "the app" LOGIN')
    yield "the app"
    for (name,) in postgres.sql("SELECT datname FROM pg_database WHERE datallowconn"):
        postgres.sql('DROP OWNED BY "the app"', database=str(name))
    postgres.sql('DROP ROLE "the app"')


def test_the_owner_of_the_schema_lacks_nothing(postgres: PostgresServer) -> None:
    (found,) = about("permissions", diagnosed(postgres.new_database()))
    assert (found.status, found.todo) == (OK, "")
    assert found.sentence == "The role postgres may read, write and migrate the schema interlock."


def test_a_role_without_privileges_can_work_after_the_grants_that_doctor_names(
    postgres: PostgresServer, role: str
) -> None:
    name = postgres.new_database_name()
    url = postgres.url_of(name).replace("postgres@", "the%20app@")
    found = diagnosed(url)
    assert about("store", found)[0].status == ERROR
    missing = [each for each in about("permissions", found) if each.status == ERROR]
    assert (
        missing[0].sentence
        == 'The role "the app" lacks USAGE on the schema interlock: it can read nothing in it.'
    )
    assert all(each.todo.startswith("GRANT ") for each in missing)
    assert any("SELECT, INSERT, UPDATE, DELETE on the tables" in each.sentence for each in missing)
    for each in missing:
        postgres.sql(each.todo, database=name)
    (left,) = about("permissions", diagnosed(url))
    assert left.status == WARNING
    assert "lacks CREATE on it and the ownership of its tables" in left.sentence
    assert left.todo.endswith("run as postgres: interlock db migrate")
    assert claimed(url) == 1


def test_a_single_privilege_that_is_missing_is_named_with_its_table(
    postgres: PostgresServer, role: str
) -> None:
    name = postgres.new_database_name()
    for grant in (
        "USAGE, CREATE ON SCHEMA interlock",
        "ALL ON ALL TABLES IN SCHEMA interlock",
        "ALL ON ALL SEQUENCES IN SCHEMA interlock",
    ):
        postgres.sql(f'GRANT {grant} TO "{role}"', database=name)
    postgres.sql(f'REVOKE DELETE ON interlock.live FROM "{role}"', database=name)
    postgres.sql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA interlock FROM PUBLIC", database=name)
    postgres.sql(f'GRANT "{role}" TO postgres', database=name)
    found = about("permissions", diagnosed(postgres.url_of(name).replace("postgres@", "the%20app@")))
    sentences = [each.sentence for each in found if each.status == ERROR]
    assert 'The role "the app" lacks DELETE on the table live of the schema interlock.' in sentences
    assert any("lacks EXECUTE on the functions" in each for each in sentences)
    assert len(sentences) == 2


def test_doctor_names_the_grant_with_which_a_role_can_make_the_schema(
    postgres: PostgresServer, role: str
) -> None:
    name = postgres.new_database_name(template="template0")
    url = postgres.url_of(name).replace("postgres@", "the%20app@")
    (found,) = about("permissions", diagnosed(url))
    assert found.status == ERROR
    grant = found.todo.partition(": ")[2]
    assert grant == f'GRANT CREATE ON DATABASE {name} TO "{role}"'
    postgres.sql(grant, database=name)
    (found,) = about("permissions", diagnosed(url))
    assert (found.status, found.todo) == (OK, "")


# Redis


@pytest.fixture
def acl() -> Iterator[RedisServer]:
    """A server whose users a test may change."""
    with redis_server(append_only="off", tcp=True) as server:
        yield server


def named(server: RedisServer) -> str:
    return server.url.replace("redis://", "redis://app:secret@")


def test_a_user_without_commands_and_keys_can_work_after_the_rules_that_doctor_names(
    acl: RedisServer,
) -> None:
    few = ("+acl|whoami", "+acl|dryrun", "+info", "+config|get", "+select", "+client|setinfo")
    acl.run("ACL", "SETUSER", "app", "on", ">secret", "resetkeys", "resetchannels", "-@all", *few)
    found = diagnosed(named(acl))
    assert about("store", found)[0].status == ERROR
    (missing,) = about("permissions", found)
    assert missing.status == ERROR
    rules = missing.todo.partition(", and ")[0].split()
    assert rules[:3] == ["ACL", "SETUSER", "app"]
    assert {"+evalsha", "+script|load", "+zadd", "+subscribe"} <= {*rules}
    acl.run(*rules)
    (keys,) = about("permissions", diagnosed(named(acl)))
    assert keys.sentence == "The ACL of the user app lacks ~{interlock}* &{interlock}:*."
    acl.run(*keys.todo.partition(", and ")[0].split())
    (found_now,) = about("permissions", diagnosed(named(acl)))
    assert (found_now.status, found_now.todo) == (OK, "")
    assert claimed(named(acl)) == 1


def test_doctor_reports_no_permissions_of_a_user_that_may_not_read_them(acl: RedisServer) -> None:
    acl.run("ACL", "SETUSER", "app", "on", ">secret", "~{interlock}*", "&*", "+@all", "-acl")
    found = diagnosed(named(acl))
    assert about("store", found)[0].status == OK
    assert about("permissions", found) == []


def test_every_command_of_the_scripts_is_one_that_doctor_asks_about() -> None:
    texts = [each.text for each in vars(scripts).values() if isinstance(each, scripts.Script)]
    texts += [each.text for each in scripts.MIGRATIONS]
    used = set(re.findall(r"call\(\s*'([A-Z]+)'", "\n".join(texts)))
    assert {"ZADD", "HMGET", "XADD"} <= used
    assert used <= {line[0] for line in redis_permissions.commands()}
