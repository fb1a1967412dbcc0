"""Isolate the commands of a job from the process that runs them, and from other jobs.

    none        the user, the files and the network of the worker
    user        a separate user for each job, without other files and processes; requires root
    bubblewrap  in addition, a file system with only the system's programs (read-only) and the
                workspace of the job, and only the processes of the job; optionally no network

An unavailable sandbox is an error when a worker starts, and never ignored.

Why: decision 0303.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from interlock.errors import InvalidSettings

KINDS = ("none", "user", "bubblewrap")
BWRAP = "bwrap"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
"""The visible file system, read-only, besides the workspace."""
RESOLVER = "/run/systemd/resolve"
"""The target of /etc/resolv.conf on many systems."""
PASSED = frozenset(
    (
        *("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    )
)
"""Variables of the worker that a command in a sandbox sees, besides those beginning with LC_."""
HIGHEST_USER = 2_000_000_000
"""User ids go up to twice as much, but not in every program."""
USERS = 1_000_000
TRY_S = 60.0
NEEDS_ROOT = "Start the worker as root (steps do not run as root then), or use --isolate bubblewrap."
NEEDS_NAMESPACES = (
    "Allow unprivileged user namespaces (in a container its seccomp profile decides), or use --isolate user "
    "as root."
)


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The isolation of commands."""

    kind: str = "none"
    network: bool = True
    """Whether commands can use the network; only bubblewrap can remove it."""
    mounts: tuple[str, ...] = ()
    """Additional visible folders, read-only."""
    hidden: tuple[str, ...] = ()
    """Hidden files in visible folders."""


NO_SANDBOX = SandboxSettings()


def check(settings: SandboxSettings) -> None:
    """Raise unless commands can be isolated according to the settings."""
    if settings.kind not in KINDS:
        raise _unusable(f"isolate is {settings.kind!r}", f"Use one of: {', '.join(KINDS)}.")
    if not settings.network and settings.kind != "bubblewrap":
        raise _unusable(
            "the network can only be taken away by bubblewrap", "Use --isolate bubblewrap --no-network."
        )
    if settings.kind == "user" and os.geteuid() != 0:
        raise _unusable("only root can give each job a user of its own", NEEDS_ROOT)
    if settings.kind == "bubblewrap" and shutil.which(BWRAP) is None:
        raise _unusable(f"there is no program {BWRAP}", "Install it: apt install bubblewrap")
    if settings.kind != "none":
        _try(settings)


def _try(settings: SandboxSettings) -> None:
    """Run a command as a job would; raise if it does not run."""
    todo = NEEDS_ROOT if settings.kind == "user" else NEEDS_NAMESPACES
    try:
        with tempfile.TemporaryDirectory() as folder, Sandbox(settings) as box:
            box.own(Path(folder))
            tried = subprocess.run(
                box.arguments(["true"], Path(folder), folder),
                user=box.user,
                group=box.user,
                extra_groups=None if box.user is None else [],
                capture_output=True,
                text=True,
                timeout=TRY_S,
                check=False,
            )
    except OSError as error:
        raise _unusable(f"{settings.kind} does not work here: {error.strerror}", todo) from None
    if tried.returncode:
        raise _unusable(f"{settings.kind} does not work here: {tried.stderr.strip()[-300:]}", todo)


def _unusable(why: str, todo: str) -> InvalidSettings:
    return InvalidSettings(f"Steps cannot be isolated: {why}.", todo=todo, facts={"why": why})


class Sandbox:
    """The sandbox of one job, while entered."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._user: _User | None = None

    @property
    def isolates(self) -> bool:
        """Whether commands are isolated; then each needs its own workspace."""
        return self._settings.kind != "none"

    @property
    def user(self) -> int | None:
        """The user id that commands run as; None for that of the worker."""
        return None if self._user is None else self._user.number

    @property
    def spared(self) -> str:
        """The name of processes that end only with all processes in them."""
        return BWRAP if self._settings.kind == "bubblewrap" else ""

    def __enter__(self) -> Self:
        # Even below bubblewrap, root must not run commands: files of root would be theirs.
        if self.isolates and os.geteuid() == 0:
            self._user = _User()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._user is not None:
            self._user.release()

    def furnish(self, folder: Path) -> None:
        """Prepare a workspace for the job.

        Its home is in it, and all of it belongs to the job's user.
        """
        for each in map(Path, self.home(folder).values()):
            each.mkdir(mode=0o700, exist_ok=True)
        self.own(folder)

    def home(self, folder: Path) -> dict[str, str]:
        """Return the environment variables of the home and temporary folders."""
        return {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")} if self.isolates else {}

    def own(self, folder: Path) -> None:
        """Give a folder with its content to the job's user; follow no links."""
        if self.user is None:
            return
        os.lchown(folder, self.user, self.user)
        for above, folders, files in os.walk(folder):
            for name in (*folders, *files):
                os.lchown(Path(above) / name, self.user, self.user)

    def arguments(self, arguments: Sequence[str], folder: Path | None, cwd: str | None) -> list[str]:
        """Return the command line that runs a command in this sandbox."""
        if self._settings.kind != "bubblewrap":
            return list(arguments)
        return [BWRAP, *self._bubblewrap(folder, cwd), "--", *arguments]

    def _bubblewrap(self, folder: Path | None, cwd: str | None) -> Iterator[str]:
        settings = self._settings
        yield from ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
        yield from ("--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL")
        if not settings.network:
            yield "--unshare-net"
        yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
        for shown in (*SYSTEM, RESOLVER, *settings.mounts):
            yield from ("--ro-bind-try", shown, shown)
        # A separate user cannot read files of the worker, and could not cover unreachable ones.
        for hidden in settings.hidden if self.user is None else ():
            if Path(hidden).exists():
                yield from ("--ro-bind", "/dev/null", os.path.realpath(hidden))
        if folder is not None:
            yield from ("--bind", str(folder), str(folder))
        if cwd is not None:
            yield from ("--chdir", cwd)


class _User:
    """A user id that is unique on this machine, across workers, until it is released.

    It is drawn anew each time, so that files left by a job do not belong to a later one.
    """

    def __init__(self) -> None:
        first, last = _range()
        folder = _lock_folder()
        while True:
            self.number = first + secrets.randbelow(last - first)
            with contextlib.suppress(KeyError):
                pwd.getpwuid(self.number)
                continue
            self._path = folder / str(self.number)
            self._lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
            else:
                return

    def release(self) -> None:
        """Release the user id."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._lock)


def _lock_folder() -> Path:
    folder = Path("/run/interlock-users")
    if not folder.parent.is_dir():
        folder = Path(tempfile.gettempdir()) / "interlock-users"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _range() -> tuple[int, int]:
    """Return the user ids of this system; a container may have few."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    first, length = max(((int(a), int(c)) for a, _, c in map(str.split, lines)), key=lambda line: line[1])
    last = min(first + length, HIGHEST_USER)
    return max(last - USERS, (first + last) // 2), last
