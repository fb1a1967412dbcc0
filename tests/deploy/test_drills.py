"""The procedures of the guide about production, executed: the restore drill, an upgrade, and a rollback.

The old version is the code of the commit before the last migration of PostgreSQL.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.files import GUIDE, ROOT
from tests.waiting import PROGRAM_S

from interlock.testing.binaries import environment, postgres_programs
from interlock.testing.servers import PostgresServer, postgres_server

OLD_VERSION = "6c119dbe^"
"""It knows schema 20 of PostgreSQL, and the schema of SQLite that there is today."""
OWN = "postgresql://interlock@db/"
TASKS = """
from interlock import task

@task(name="shop.greet")
def greet(name: str) -> str:
    return f"Hello {name}"
"""


def chapter(title: str) -> str:
    """Return a chapter of the guide."""
    return GUIDE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(tcp=True) as running:
        yield running


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    archive = folder / "old.tar"
    command = ["git", "-C", str(ROOT), "archive", "--output", str(archive), f"{OLD_VERSION}:src"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    if found.returncode:
        pytest.xfail(f"This copy has no history to take the old version from: {found.stderr.strip()}")
    with tarfile.open(archive) as sources:
        sources.extractall(folder / "src", filter="data")
    return folder / "src"


class Installation:
    """A store in a folder with tasks, and the programs of two versions."""

    def __init__(self, folder: Path, url: str, old_source: Path | None = None) -> None:
        self.url = url
        self._folder = folder
        self._old = old_source
        (folder / "shop.py").write_text(TASKS, encoding="utf-8")

    def call(self, *words: str, old: bool = False, code: int = 0) -> str:
        """Run `interlock` of a version, which exits with this code; return what it prints."""
        more = {"PYTHONPATH": str(self._old)} if old else {}
        done = subprocess.run(
            [sys.executable, "-m", "interlock.cli.main", *words],
            cwd=self._folder,
            env={**os.environ, "INTERLOCK_URL": self.url, **more},
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    def do(self, name: str, *, old: bool = False) -> None:
        """Submit a job and let a worker do it."""
        self.call("submit", "shop.py:greet", f"name={name}", old=old)
        self.call("worker", "start", "shop.py", "--burst", old=old)

    def names(self, *, old: bool = False) -> set[str]:
        """Return the names in the completed jobs."""
        return {job["input"]["name"] for job in self.jobs("completed", old=old)}

    def jobs(self, state: str, *, old: bool = False) -> list[dict[str, Any]]:
        """Return the jobs in a state."""
        found: list[dict[str, Any]] = json.loads(
            self.call("job", "list", f"state:{state}", "--json", old=old)
        )["jobs"]
        return found

    def schema(self) -> int:
        return int(json.loads(self.call("db", "status", "--json"))["schema_version"])


def in_shell(script: str, folder: Path) -> str:
    """Run a script with the programs of PostgreSQL and Interlock; it ends with the first that fails."""
    programs = postgres_programs()
    folders = (
        str(Path(sys.executable).parent),
        str(Path(programs.path("pg_dump")).parent),
        os.environ["PATH"],
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**environment(programs.environment), "PATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def on(server: PostgresServer, script: str, database: str) -> str:
    """Return a script of the guide for a database of a test."""
    there = f"--host 127.0.0.1 --port {server.port} --username postgres"
    script = script.replace(f"{OWN}interlock_drill", server.url_of(f"{database}_drill"))
    script = script.replace(f"{OWN}interlock", server.url_of(database)).replace("--host db", there)
    return script.replace(" interlock_drill", f" {database}_drill")


@pytest.mark.long  # store/test_restored_backups.py restores one in make test
def test_the_restore_drill_of_the_guide_finds_every_job_and_no_fault(
    server: PostgresServer, tmp_path: Path
) -> None:
    name = server.new_database_name()
    live = Installation(tmp_path, server.url_of(name))
    live.do("Ann")
    live.call("submit", "shop.py:greet", "name=Bob")
    (drill, *_) = re.findall(r"^```sh\n(.*?)^```$", chapter("Back up, and practise the restore"), re.S | re.M)
    *steps, last = on(server, drill, name).splitlines()
    assert [step.split()[0] for step in steps[:3]] == ["pg_dump", "createdb", "pg_restore"]
    assert last.startswith("dropdb ")

    printed = in_shell("\n".join(steps), tmp_path)

    assert "epoch" in printed
    copy = Installation(tmp_path, server.url_of(f"{name}_drill"))
    audit = json.loads(copy.call("db", "audit", "--json"))
    assert (audit["faults"], audit["records"]) == (
        [],
        json.loads(live.call("db", "audit", "--json"))["records"],
    )
    assert copy.names() == {"Ann"}
    assert [job["input"] for job in copy.jobs("pending")] == [{"name": "Bob"}]
    forget = "SET session_replication_role = replica; DELETE FROM interlock.journal_packed"
    server.sql(forget, database=f"{name}_drill")
    copy.call("db", "audit", code=1)  # a copy that has lost its journal is noticed
    in_shell(last, tmp_path)
    assert server.sql(f"SELECT count(*) FROM pg_database WHERE datname = '{name}_drill'") == [["0"]]
    live.call("worker", "start", "shop.py", "--burst")
    assert live.names() == {"Ann", "Bob"}


@pytest.mark.long  # many programs, one after another
def test_after_a_migration_the_old_version_is_refused_and_a_rollback_restores_the_backup(
    server: PostgresServer, old_source: Path, tmp_path: Path
) -> None:
    name = server.new_database_name()
    shop = Installation(tmp_path, server.url_of(name), old_source)
    shop.do("before", old=True)
    in_shell(f"pg_dump --format=custom --file=copy.dump {shop.url}", tmp_path)
    shop.do("old, after the backup", old=True)

    shop.call("db", "migrate")
    shop.do("new")
    assert shop.names() == {"before", "old, after the backup", "new"}
    assert "schema_too_new" in shop.call("job", "list", "--json", old=True, code=2)
    migrated = shop.schema()

    page = (ROOT / "docs" / "guides" / "choosing-a-store.md").read_text(encoding="utf-8")
    drop = 'psql --command "DROP SCHEMA interlock CASCADE" URL'
    restore = "pg_restore --no-owner --single-transaction --dbname URL copy.dump"
    for command in (
        drop,
        restore,
    ):  # newer versions have functions that no backup names
        assert f"`{command}`" in page
        in_shell(command.replace("URL", shop.url), tmp_path)
    shop.call("db", "restored", old=True)
    shop.call("db", "audit", old=True)
    assert shop.names(old=True) == {"before"}, "what was done since the backup is lost"
    shop.do("old, again", old=True)
    assert shop.names(old=True) == {"before", "old, again"}
    assert shop.schema() == migrated, "the new version can be tried again"
    assert shop.names() == {"before", "old, again"}


@pytest.mark.long
def test_without_a_migration_the_old_version_just_starts_on_a_store_that_the_new_one_has_used(
    old_source: Path, tmp_path: Path
) -> None:
    shop = Installation(tmp_path, f"sqlite:///{tmp_path}/shop.db", old_source)
    shop.do("old", old=True)
    shop.do("new")
    shop.call("submit", "shop.py:greet", "name=waiting")
    shop.do("old again", old=True)
    assert shop.names(old=True) == shop.names() == {"old", "new", "waiting", "old again"}
    shop.call("db", "audit", old=True)
    shop.call("db", "audit")
