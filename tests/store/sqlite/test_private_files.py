"""Only the user who made a database can read it, whatever the umask; one that exists keeps its mode."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory(prefix="interlock-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def modes(folder: Path) -> dict[str, int]:
    return {
        path.name: stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir() if not path.is_symlink()
    }


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(str(path), CATALOGUE, timeout_s=PATIENCE_S)
    await store.open()
    return store


@pytest.mark.usefixtures("umask")
async def test_a_database_and_its_log_can_be_read_by_their_owner_alone(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a.db")
    try:
        assert modes(tmp_path) == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600}
    finally:
        await store.close()
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as shell:
        shell.execute("PRAGMA journal_mode = DELETE")
        shell.execute("BEGIN IMMEDIATE")
        shell.execute("CREATE TABLE another (x)")
        assert modes(tmp_path)["a.db-journal"] == 0o600


@pytest.mark.usefixtures("umask")
async def test_a_database_behind_a_link_is_made_private_as_well(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "a.db").symlink_to(tmp_path / "data" / "real.db")
    store = await opened(tmp_path / "a.db")
    await store.close()
    assert set(modes(tmp_path / "data").values()) == {0o600}


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o666, True), (0o660, False), (0o600, False)])
async def test_the_mode_of_a_database_that_exists_is_left_and_reported_once(
    shared: Path, mode: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = shared / "a.db"
    await (await opened(path)).close()
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, "interlock.store"):
        for _ in range(2):
            await (await opened(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == mode
    messages = [record.getMessage() for record in caplog.records if "chmod" in record.getMessage()]
    warning = f"{path} can be read by every user of this machine (mode {mode:04o}). "
    assert messages == ([f"{warning}If that is not intended: chmod 600 {path}*"] if warned else [])


async def test_a_database_in_a_private_folder_is_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o700)
    await (await opened(tmp_path / "a.db")).close()
    (tmp_path / "a.db").chmod(0o644)
    await (await opened(tmp_path / "a.db")).close()
    assert not [record for record in caplog.records if "chmod" in record.getMessage()]
