"""Programs of an ordinary user, also where the tests run as root; and the program `bwrap`."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import site
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.debian import unpacked
from tests.waiting import PROGRAM_S

import interlock

NOBODY = "65534"
ROOT = os.geteuid() == 0
WITHOUT_CAPABILITIES = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--")
"""What is left of root without capabilities may do what any user may, with the files of root."""
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "--")


@dataclass(frozen=True)
class User:
    """How a program of Interlock is started as somebody."""

    prefix: tuple[str, ...] = ()
    python: str = sys.executable
    path: str = ""
    """Where its packages are, for another Python than that of the tests."""

    @property
    def command(self) -> tuple[str, ...]:
        """The words before those of `interlock`."""
        return (*self.prefix, self.python, "-m", "interlock")

    @property
    def variables(self) -> dict[str, str]:
        """What has to be in its environment."""
        compiled = {"PYTHONPYCACHEPREFIX": _compiled()} if self.prefix is AS_NOBODY else {}
        return {"PYTHONPATH": self.path, **compiled} if self.path else compiled

    def reaches_interlock(self) -> bool:
        """Return whether it can be started; `setpriv` may still reach what its user cannot, so twice."""
        own = "'import interlock, msgspec'"  # msgspec is compiled for one version of Python
        start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {own}], check=True)"
        tried = subprocess.run(
            [*self.prefix, self.python, "-c", start],
            cwd="/",
            env={**os.environ, **self.variables},
            capture_output=True,
            timeout=PROGRAM_S,
            check=False,
        )
        return tried.returncode == 0


ME = User()


@functools.cache
def _compiled() -> str:
    """A folder where another user keeps what it has compiled: each of its programs would do that anew."""
    folder = Path(tempfile.mkdtemp(prefix="interlock-tests-compiled-"))
    os.chown(folder, int(NOBODY), int(NOBODY))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


@functools.cache
def ordinary() -> User:
    """Return an ordinary user, which this one may be.

    Others may not be able to reach this Python (below /root, for example): then that of the system does.
    """
    if not ROOT:
        return ME
    packages = os.pathsep.join((str(Path(interlock.__file__).parents[1]), *site.getsitepackages()))
    candidates = (User(AS_NOBODY), User(AS_NOBODY, "/usr/bin/python3", packages))
    found = (user for user in candidates if Path(user.python).exists() and user.reaches_interlock())
    return next(found, User(WITHOUT_CAPABILITIES))


def needs_a_user_of_its_own(user: User) -> None:
    """Expect a test about another user to fail where there is only root without capabilities."""
    if user.prefix is WITHOUT_CAPABILITIES:
        pytest.xfail(
            f"No user but root can read {sys.executable}, and /usr/bin/python3 is of another version."
        )


def make_readable(folder: Path, user: User) -> None:
    """Give a folder with its files to a user."""
    if user.prefix is AS_NOBODY:
        for place in (folder, *folder.rglob("*")):
            os.chown(place, int(NOBODY), int(NOBODY))
        for above in folder.parents[:-2]:
            above.chmod(above.stat().st_mode | 0o011)


def _fetched_bubblewrap() -> Path:
    """Return a `bwrap` that finds the libraries that were fetched with it, and passes no variable on."""
    folder = unpacked("bubblewrap")
    program = folder / "usr" / "bin" / "bwrap"
    library = next(folder.glob("usr/lib/*/libcap.so.2"), None)
    loader = next(Path("/").glob("lib*/ld-linux*.so.*"), None)
    if library is None or loader is None:
        return program
    folder = folder / "with-libraries"
    named = folder / "loader" / "bwrap"  # a worker spares processes of this name when it ends a step
    named.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another test process was first
        named.symlink_to(loader)
    fresh = folder / f"bwrap-{os.getpid()}"
    fresh.write_text(f'#!/bin/sh\nexec {named} --library-path {library.parent} {program} "$@"\n')
    fresh.chmod(0o755)
    return fresh.rename(folder / "bwrap")


@functools.cache
def path_with_bubblewrap() -> str:
    """Return a search path on which there is a `bwrap` that works, fetched from Debian if need be.

    A machine may reach no packages, or forbid user namespaces: there the tests that need it are expected
    to fail, and say so.
    """
    path = os.environ.get("PATH", os.defpath)
    program = Path(shutil.which("bwrap") or _fetched_bubblewrap())
    if not program.exists():
        pytest.xfail("There is no bwrap, and no package of it can be fetched: apt install bubblewrap")
    prefix = AS_NOBODY if ROOT else ()
    words = [*prefix, str(program), "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
    tried = subprocess.run(words, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    if tried.returncode:
        pytest.xfail(f"bwrap does not work on this machine: {tried.stderr.strip()}")
    return f"{program.parent}{os.pathsep}{path}"
