"""A Chromium for the tests: one that this machine has, else one that is fetched.

The headless shell comes first: it is Chromium without what draws windows, and takes a sixth less processor
time for the same pages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.debian import folder_of, unpacked
from tests.waiting import PROGRAM_S
from tools.dashboard import find_node

SHELL = "chromium-headless-shell"
INSTALLED = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--no-pings",
    "--no-proxy-server",
)
"""A browser that talks to nothing but the pages that it is told to open."""


# Playwright's own node needs libatomic, which a small system does not have; the one that builds the dashboard
# needs nothing.
if (_node := find_node()) is not None:
    os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(Path(_node.folder) / "node"))


FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir>/usr/share/fonts</dir>
<dir>{folder}/usr/share/fonts</dir>
<cachedir>{folder}/fonts.cache</cachedir>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
<match><edit name="family" mode="append_last"><string>DejaVu Sans</string></edit></match>
</fontconfig>
"""
"""Where Chromium finds the fonts that were unpacked with it.

Without any it crashes. It asks for no family where a page says `system-ui`, and would get one with serifs.
"""


class NoBrowser(Exception):
    """There is no Chromium and none could be fetched; the message says how to get one."""


class Chromium(NamedTuple):
    """A program, and the environment that it needs."""

    program: str
    environment: Mapping[str, str]


def chromium(of_playwright: str) -> Chromium:
    """Return a Chromium; `of_playwright` is where playwright would have put its own."""
    lock = Path(tempfile.gettempdir()) / f"interlock-tests-browser-{os.geteuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # there are several test processes
        found = _installed(of_playwright) or _fetched(of_playwright)
    if found is None:
        raise NoBrowser(
            "The tests of the dashboard need Chromium. None is installed, and none could be fetched from "
            "playwright or Debian.\n"
            f"→ Run: apt-get install --no-install-recommends chromium, or: {sys.executable} -m playwright "
            "install --with-deps chromium"
        )
    return found


def _installed(of_playwright: str) -> Chromium | None:
    for program in (*INSTALLED, of_playwright):
        if path := shutil.which(program):
            return Chromium(path, {})
    return _unpacked(SHELL, folder_of) or _unpacked("chromium", folder_of)


def _fetched(of_playwright: str) -> Chromium | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "playwright", "install", "chromium"],
            capture_output=True,
            timeout=PROGRAM_S,
            check=False,
        )
    if path := shutil.which(of_playwright):
        return Chromium(path, {})
    return _unpacked(SHELL, unpacked) or _unpacked("chromium", unpacked)


def _unpacked(package: str, folder_of_package: Callable[[str], Path]) -> Chromium | None:
    """Return Debian's Chromium with its libraries beside it; nothing was installed."""
    folder = folder_of_package(package)
    program = folder / "usr/lib/chromium" / package
    if not program.is_file():
        return None
    libraries = sorted({str(path.parent) for path in (folder / "usr/lib").glob("*-linux-gnu/**/*.so*")})
    fonts = folder / "fonts.conf"
    wanted = FONTS.format(folder=folder)
    if not fonts.exists() or fonts.read_text(encoding="utf-8") != wanted:
        fonts.write_text(wanted, encoding="utf-8")
    added = {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "FONTCONFIG_FILE": str(fonts)}
    return Chromium(str(program), added)
