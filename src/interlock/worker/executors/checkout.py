"""A commit of a repository in a fresh folder, fetched with git.

The repository is somebody else's, so git is told to trust nothing that it could bring or find: no
hooks, no settings of the machine or of the user, no helpers for credentials or for other protocols,
no questions. What was fetched is compared with the commit that was asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from interlock.errors import InvalidArguments
from interlock.wire.git import as_variables, authorization
from interlock.worker.executors.commands import Commands
from interlock.worker.executors.subprocesses import how_it_ended
from interlock.worker.outcomes import StepFailed

SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
REF = re.compile(r"(?!-)(?!.*(\.\.|@\{|//|/\.|\.lock(/|$)))[^\x00-\x20\x7f~^:?*\[\\]+(?<![/.])")
SHORT = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
PROTOCOLS = "file:git:http:https:ssh"
_NOTHING_OF_ITS_OWN = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "credential.helper": "",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
}


class Checkout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which commit of which repository."""

    repository: str
    """Its address; `owner/name` is one at GitHub."""
    sha: str = ""
    """The commit, in full; with none, what the ref points at."""
    ref: str = ""
    """`refs/heads/main`, `refs/tags/v1`, `refs/pull/7/head`."""
    depth: int = 1
    """How many commits of the history come along; 0 for all."""
    secret: str = ""
    """The name of the secret with which a private one is fetched: `TOKEN` or `USER:PASSWORD`."""


async def checked_out(
    commands: Commands, wanted: Checkout, workspace: Path, secrets: Mapping[str, str]
) -> Path:
    """The folder in the workspace that the commit is in."""
    _check(wanted)
    folder, address = workspace / "checkout", _address(wanted.repository)
    shown = authorization(address, secrets[wanted.secret]) if wanted.secret else {}
    git = _Git(commands, folder, address, shown)
    await git.run("init", "--quiet", "--template=", str(folder), cwd=workspace)
    if not wanted.sha:
        await git.fetch(wanted.ref or "HEAD", wanted.depth)
    elif await git.fetch(wanted.sha, wanted.depth, may_fail=bool(wanted.ref)):
        await git.fetch(wanted.ref, 0)  # a server may give out no commits but those that refs point at
    await git.run("checkout", "--quiet", "--detach", wanted.sha or "FETCH_HEAD", "--")
    return folder


class _Git:
    def __init__(self, commands: Commands, folder: Path, address: str, shown: Mapping[str, str]) -> None:
        self._commands, self._folder, self._address = commands, folder, address
        self._shown = shown
        """Settings that only whoever fetches is given."""

    async def fetch(self, what: str, depth: int, *, may_fail: bool = False) -> int:
        flags = ["--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph"]
        shallow = [f"--depth={depth}"] if depth else []
        return await self.run("fetch", *flags, *shallow, "--", self._address, what, may_fail=may_fail)

    async def run(self, *words: str, cwd: Path | None = None, may_fail: bool = False) -> int:
        env = _surroundings(self._shown if words[0] == "fetch" else {})
        try:
            end = await self._commands.run(["git", *words], env=env, cwd=str(cwd or self._folder))
        except OSError as error:
            raise StepFailed(
                f"The checkout cannot start: git: {error.strerror}.",
                exit_code=None,
                output="",
                failure_class="tooling",
            ) from error
        if end.code and not may_fail:
            what = f"The checkout of {without_credentials(self._address)} failed: git {words[0]}"
            raise StepFailed(
                f"{what} {how_it_ended(end.code)}.", exit_code=end.code, output=self._commands.last_lines
            )
        return end.code


def _surroundings(shown: Mapping[str, str]) -> dict[str, str]:
    """The environment of git: where programs are, and nothing that could change what it does."""
    kept = {name: os.environ[name] for name in ("PATH", "SSH_AUTH_SOCK", "TMPDIR") if name in os.environ}
    return {
        **kept,
        **as_variables({**_NOTHING_OF_ITS_OWN, **shown}),
        "HOME": os.devnull,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def _check(wanted: Checkout) -> None:
    for name, value, shape in (("sha", wanted.sha, SHA), ("ref", wanted.ref, REF)):
        if value and not shape.fullmatch(value):
            raise InvalidArguments(
                f"The {name} of the checkout cannot be {value!r}.",
                todo="Give the commit in full, 40 hexadecimal digits, and the ref as git names it.",
                facts={"argument": f"checkout.{name}"},
            )
    if not wanted.repository or wanted.repository.startswith("-") or not wanted.repository.isprintable():
        raise InvalidArguments(
            f"The repository of the checkout cannot be {wanted.repository!r}.",
            todo="Give its address, such as https://example.org/shop.git.",
            facts={"argument": "checkout.repository"},
        )


def _address(repository: str) -> str:
    return f"https://github.com/{repository}.git" if SHORT.fullmatch(repository) else repository


def without_credentials(address: str) -> str:
    """The address as it may be shown."""
    return re.sub(r"(?<=://)[^/@]*@", "", address)
