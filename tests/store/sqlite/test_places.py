"""Where a database can be, and what is said where it cannot."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import PROGRAM_S

from interlock.errors import BadStoreUrl, StoreMisconfigured
from interlock.store.sqlite import SqliteStore
from interlock.store.sqlite.database import path_of
from interlock.testing.store_contract import CATALOGUE

OPEN_AS_NOBODY = """
import asyncio, os, sys
from interlock.errors import StoreMisconfigured
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
if os.getuid() == 0:
    os.setuid(65534)
try:
    asyncio.run(SqliteStore(sys.argv[1], CATALOGUE).open())
except StoreMisconfigured as error:
    print(error.sentence)
"""


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///here.db", "here.db"),
        ("sqlite:////var/lib/there.db", "/var/lib/there.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        ("plain.db", "plain.db"),
        ("/plain/path?.db", "/plain/path?.db"),
    ],
)
def test_a_url_and_a_plain_path_name_a_file(url: str, path: str) -> None:
    assert path_of(url) == Path(path)


@pytest.mark.parametrize(
    "url",
    [
        *("", "sqlite:", "sqlite://", "sqlite:///", "sqlite://here.db", "sqlite:here.db"),
        *("sqlite:///a.db?mode=ro", "sqlite:///a.db#b", ":memory:", "sqlite:///:memory:", "a\x00b.db"),
    ],
)
def test_a_url_that_names_no_file_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        SqliteStore(url, CATALOGUE)
    assert refused.value.todo


async def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(BadStoreUrl, match="is a folder"):
        await SqliteStore(str(tmp_path), CATALOGUE).open()


async def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadStoreUrl, match="no folder"):
        await SqliteStore(str(tmp_path / "no" / "a.db"), CATALOGUE).open()
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Sir, " * 200)
    with pytest.raises(StoreMisconfigured, match="not an SQLite database"):
        await SqliteStore(str(letter), CATALOGUE).open()
    assert letter.read_text() == "Dear Sir, " * 200
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


async def test_a_place_where_no_file_can_be_made_is_refused() -> None:
    with pytest.raises((StoreMisconfigured, BadStoreUrl)) as refused:
        await SqliteStore("/proc/interlock.db", CATALOGUE).open()
    assert refused.value.todo


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Folders of tests are private; this one is for a test that becomes another user."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        Path(name).chmod(0o700)


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_file_or_folder_that_may_only_be_read_is_refused(open_folder: Path, what: str) -> None:
    path = open_folder / "a.db"
    store = SqliteStore(str(path), CATALOGUE)
    await store.open()
    await store.close()
    path.chmod(0o444 if what == "file" else 0o666)
    open_folder.chmod(0o777 if what == "file" else 0o555)
    result = subprocess.run(
        [sys.executable, "-c", OPEN_AS_NOBODY, str(path)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=True,
    )
    assert "cannot be written to" in result.stdout


async def test_a_name_in_an_error_is_the_path_and_nothing_else(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/a.db", CATALOGUE)
    assert repr(store) == f"SqliteStore('sqlite:///{tmp_path}/a.db')"
