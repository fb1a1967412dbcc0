"""Folders of attempts are removed whole, whatever a step has left in them, and nothing outside is touched."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.effort import pick
from tests.waiting import PROGRAM_S

from interlock.worker.shell_files import PREFIX, Workspace, remove

REMOVE_AS_NOBODY = """
import os, sys
from pathlib import Path
from interlock.worker.shell_files import remove
if os.getuid() == 0:
    os.setuid(65534)
folder = Path(sys.argv[1]) / "mine"
(folder / "closed" / "deeper").mkdir(parents=True)
(folder / "closed" / "deeper" / "file").write_text("x")
(folder / "closed" / "deeper").chmod(0o000)
(folder / "closed").chmod(0o500)
folder.chmod(0o000)
remove(folder)
print(folder.exists())
"""


def deep(folder: Path, levels: int) -> None:
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


async def test_folders_that_are_very_deep_are_removed_and_do_not_break_the_next_job(tmp_path: Path) -> None:
    async with Workspace(tmp_path) as folder:
        deep(folder, 1_200)
    assert list(tmp_path.iterdir()) == []
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    deep(left, 1_200)
    os.utime(left, (0, 0))
    async with Workspace(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_no_link_is_followed_when_a_folder_is_removed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir(mode=0o750)
    (outside / "keep").write_text("mine")
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "link").symlink_to(outside)
    (folder / "link").symlink_to(outside / "keep")
    os.mkfifo(folder / "deep" / "pipe")
    remove(folder)
    assert not folder.exists()
    assert [path.name for path in outside.iterdir()] == ["keep"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750
    (tmp_path / "named").symlink_to(outside)
    remove(tmp_path / "named")
    remove(tmp_path / "missing")
    assert (outside / "keep").read_text() == "mine"


def test_a_folder_that_becomes_a_link_while_it_is_removed_leads_nowhere(tmp_path: Path) -> None:
    """As a process that a step has left behind would do it."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    names = [f"f{number}" for number in range(50)]
    for name in names:
        (outside / name).write_text("mine")
    over = threading.Event()

    def swap(folder: Path) -> None:
        while not over.is_set():
            try:
                (folder / "a").rename(folder / "b")
                (folder / "a").symlink_to(outside)
                (folder / "a").unlink()
                (folder / "b").rename(folder / "a")
            except OSError:
                continue

    for number in range(pick(20, 500)):
        folder = tmp_path / f"folder-{number}"
        (folder / "a").mkdir(parents=True)
        for name in names:
            (folder / "a" / name).touch()
        over.clear()
        swapping = threading.Thread(target=swap, args=(folder,))
        swapping.start()
        remove(folder)
        over.set()
        swapping.join()
    assert sorted(path.name for path in outside.iterdir()) == sorted(names)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750


def test_a_workspace_with_unreadable_and_read_only_folders_is_removed_by_an_unprivileged_user() -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o777)
    try:
        result = subprocess.run(
            [sys.executable, "-c", REMOVE_AS_NOBODY, str(place)],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert result.stdout == "False\n", result.stderr
    finally:
        remove(place)
