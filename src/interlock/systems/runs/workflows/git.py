"""Git for planners: a private mirror, the content of a commit, and its changed paths; and the planner itself.

Repositories and commits are untrusted. Git is started without a shell and without the settings of the
machine or of a user; it never prompts, runs no hooks, and uses only the protocols named here. Every call has
a deadline, after which its processes are killed.

Why: decision 0199.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from interlock.errors import InvalidSettings, PlanRefused
from interlock.systems.runs.workflows import MAX_BYTES, Clone, PlanRequest, WorkflowText
from interlock.wire.credentials import as_variables, authorization, check_secret
from interlock.wire.runs import Plan, RunSpec, Source

PROTOCOLS = ("file", "git", "http", "https", "ssh")
FOLDER = ".interlock"
MOST_FILES = 50
MOST_PATHS = 20_000
MOST_OUTPUT = 8_000_000
GIT_S = 60.0
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)
_REF = re.compile(r"refs/(?!.*(?:\.\.|@\{|//|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+(?<![/.])")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.quotePath": "false",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.recurseSubmodules": "false",
    "transfer.bundleURI": "false",
    "http.followRedirects": "false",
    "init.defaultBranch": "main",
}


FindSecret = Callable[[str], str]
"""Returns the value of a secret; raises if there is none."""


def no_secret(name: str) -> str:
    """Refuse every secret, where none are configured."""
    raise PlanRefused(f"There is no secret {name} here.", todo="Plan it where the secrets are.")


@dataclass(slots=True)
class Mirror:
    """A private copy of one repository, extended on demand."""

    address: str
    folder: Path
    timeout_s: float = GIT_S
    secret: str = ""
    """The name of the secret used to fetch it."""
    find: FindSecret = no_secret
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def clone(self) -> Clone:
        """The address for runners.

        A password in the server's address stays on the server.
        """
        return Clone(_shown(self.address), self.secret)

    async def fetch(self, sha: str, ref: str, base_sha: str) -> str:
        """Fetch a commit and its base; return the commit."""
        _refuse_bad_names(sha, ref, base_sha)
        async with self._turn:
            if not (self.folder / "HEAD").is_file():
                self.folder.mkdir(0o700, parents=True, exist_ok=True)
                await self._git("init", "--quiet", "--bare", "--template=", ".")
            commit = await self._fetched(sha, ref)
            if base_sha.strip("0") and not await self._has(base_sha):
                # Without the base the changed paths are unknown, and all count as changed.
                await self._get(base_sha, may_fail=True)
        return commit

    async def workflows(self, commit: str) -> list[WorkflowText]:
        """Return the files `.interlock/*.yml` of a commit."""
        listed = await self._git("ls-tree", "-l", "-z", "--full-tree", commit, "--", f"{FOLDER}/")
        found = []
        for entry in filter(None, listed.split(b"\0")):
            facts, _, path = entry.partition(b"\t")
            mode, kind, blob, size = facts.decode().split()
            name = path.decode(errors="replace")
            # A link could point anywhere, so only regular files count.
            if kind == "blob" and mode in ("100644", "100755") and name.endswith((".yml", ".yaml")):
                _refuse_large(name, int(size))
                found.append((name, blob))
        if len(found) > MOST_FILES:
            raise PlanRefused(
                f"There are {len(found)} workflow files in {FOLDER}, and {MOST_FILES} is the most.",
                facts={"files": len(found), "most": MOST_FILES},
            )
        return [WorkflowText(name, await self._git("cat-file", "blob", blob)) for name, blob in found]

    async def changed_paths(self, commit: str, base_sha: str) -> tuple[str, ...] | None:
        """Return the paths that a commit changes since its merge base.

        Return None if unknown.
        """
        if not base_sha.strip("0") or not await self._has(base_sha):
            return None
        common = await self._git("merge-base", base_sha, commit, may_fail=True)
        since = common.decode().strip() or base_sha
        changed = await self._git(
            "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", since, commit, "--"
        )
        paths = tuple(path.decode(errors="replace") for path in changed.split(b"\0") if path)
        return paths if len(paths) <= MOST_PATHS else None

    async def descends(self, sha: str, older: str) -> bool | None:
        """Return whether a commit has another one in its history.

        Return None unless both were fetched.
        """
        known = (self.folder / "HEAD").is_file() and all(_SHA.fullmatch(each) for each in (sha, older))
        if not known or not await self._has(sha) or not await self._has(older):
            return None
        words = ("merge-base", "--is-ancestor", older, sha)
        code, _, _ = await run_git(words, self.folder, self.timeout_s)
        return {0: True, 1: False}.get(code)

    async def _fetched(self, sha: str, ref: str) -> str:
        if sha and await self._has(sha):
            return sha
        if sha and await self._get(sha, may_fail=bool(ref)):
            return sha
        await self._get(ref)  # a server may refuse commits that no ref points at
        if not sha:
            return (await self._git("rev-parse", "--verify", f"{_place(ref)}^{{commit}}")).decode().strip()
        if await self._has(sha):
            return sha
        raise PlanRefused(
            f"The commit {sha} is not in {_shown(self.address)}, nor is it in {ref}.",
            todo="It may have been replaced by a later push; then that one is planned.",
            facts={"sha": sha, "ref": ref},
        )

    async def _has(self, sha: str) -> bool:
        return bool(await self._git("cat-file", "-t", f"{sha}^{{commit}}", may_fail=True))

    async def _get(self, name: str, *, may_fail: bool = False) -> bool:
        flags = ("--quiet", "--no-tags", "--force", "--no-recurse-submodules", "--no-write-fetch-head")
        await self._git("fetch", *flags, "--", self.address, f"+{name}:{_place(name)}", may_fail=may_fail)
        return bool(await self._git("rev-parse", "--verify", "--quiet", _place(name), may_fail=True))

    async def _git(self, *words: str, may_fail: bool = False) -> bytes:
        more = {}
        if self.secret and words[0] == "fetch":
            more = authorization(self.address, self.find(self.secret))
        code, output, errors = await run_git(words, self.folder, self.timeout_s, more)
        if code and not may_fail:
            raise PlanRefused(
                f"git {words[0]} of {_shown(self.address)} ended with {code}: {_last_line(errors)}",
                todo="See whether the server can reach the repository, and may read it.",
                facts={"git": words[0], "exit_code": code, "output": _shown(errors)[-2_000:]},
            )
        return b"" if code else output


class Repositories:
    """The repositories of a server, with their addresses. Requests can name no other."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        folder: Path,
        timeout_s: float = GIT_S,
        *,
        secrets: Mapping[str, str] = {},
        find: FindSecret = no_secret,
    ) -> None:
        for address in addresses.values():
            check_address(address)
        for name in secrets:
            check_secret(addresses.get(name, ""))
        self._addresses, self._secrets, self._find = dict(addresses), dict(secrets), find
        self._folder = folder
        self._timeout_s = timeout_s
        self._mirrors: dict[str, Mirror] = {}

    def mirror(self, repository: str) -> Mirror:
        """Return the mirror of a repository; raise if it is not configured."""
        address = self._addresses.get(repository)
        if address is None:
            raise PlanRefused(
                f"This server does not know the repository {repository[:200]!r}.",
                allowed=tuple(sorted(self._addresses)),
                todo="Name it, with its address, in the settings of the server.",
                facts={"repository": repository[:200]},
            )
        name = hashlib.sha256(address.encode()).hexdigest()[:16]
        folder = self._folder / f"{name}.git"
        made = Mirror(address, folder, self._timeout_s, self._secrets.get(repository, ""), self._find)
        return self._mirrors.setdefault(repository, made)


async def run_git(
    words: tuple[str, ...], folder: Path, timeout_s: float, more: Mapping[str, str] = {}
) -> tuple[int, bytes, str]:
    """Run git with additional settings.

    Return its exit code, output and errors.
    """
    process = await asyncio.create_subprocess_exec(
        "git",
        *words,
        cwd=folder,
        env=_surroundings(more),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await asyncio.gather(_read(process.stdout), _read(process.stderr))
            if len(output) > MOST_OUTPUT:
                raise _too_much(words[0])
            await process.wait()
    except TimeoutError:
        raise PlanRefused(
            f"git {words[0]} was stopped: it took longer than {timeout_s:g} s.",
            todo="See whether the server can reach the repository.",
            facts={"git": words[0], "timeout_s": timeout_s},
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return process.returncode or 0, output, errors.decode(errors="replace")


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """Read a stream up to a limit."""
    read = bytearray()
    while stream is not None and len(read) <= MOST_OUTPUT and (piece := await stream.read(65_536)):
        read += piece
    return bytes(read)


def _too_much(what: str) -> PlanRefused:
    return PlanRefused(
        f"git {what} printed more than {MOST_OUTPUT:,} bytes.",
        todo="Give the changed paths with the request, or make the files smaller.",
        facts={"git": what, "most": MOST_OUTPUT},
    )


def check_address(address: str) -> None:
    """Raise if git could misread the address, for example as an option."""
    protocol = _ADDRESS.match(address)
    fine = protocol[1] in PROTOCOLS if protocol else "::" not in address
    if not address or address.startswith("-") or not address.isprintable() or not fine:
        raise InvalidSettings(
            f"{_shown(address)!r} is not the address of a repository.",
            allowed=PROTOCOLS,
            todo="Give a folder, or an address such as https://example.org/shop.git.",
            facts={"address": _shown(address)},
        )


def _surroundings(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "SSH_AUTH_SOCK", "TMPDIR") if name in os.environ}
    return {
        **kept,
        **as_variables({**_SETTINGS, **more}),
        "HOME": os.devnull,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _refuse_large(path: str, size: int) -> None:
    if size > MAX_BYTES:
        raise PlanRefused(
            f"{path} is {size:,} bytes large, and {MAX_BYTES:,} is the most.",
            facts={"file": path, "bytes": size, "most": MAX_BYTES},
        )


def _refuse_bad_names(sha: str, ref: str, base_sha: str) -> None:
    shapes = (("sha", sha, _SHA), ("ref", ref, _REF), ("base_sha", base_sha, _SHA))
    for what, value, shape in shapes:
        if value and not shape.fullmatch(value):
            raise PlanRefused(
                f"{value[:200]!r} is no {what}.",
                todo="Commits are named in full, in hex; refs as refs/heads/NAME.",
                facts={what: value[:200]},
            )
    if not sha and not ref:
        raise PlanRefused(
            "The request names neither a commit nor a ref.", todo="Give source.sha or source.ref."
        )


def _place(name: str) -> str:
    """Return the ref of a fetched name.

    There is one for each name, so that the mirror does not grow forever.
    """
    return f"refs/interlock/{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _shown(text: str) -> str:
    return _CREDENTIALS.sub("", text)


def _last_line(text: str) -> str:
    lines = [line for line in _shown(text).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason is known"


class WorkflowPlanner:
    """Makes plans from workflow files. Parsing is slow, so it runs in a thread."""

    def __init__(self, repositories: Repositories | None = None) -> None:
        self._repositories = repositories

    async def plan(self, request: PlanRequest) -> Plan:
        """Return the plan of the file in the request, or of its commit's files."""
        spec = request.spec
        if spec.definition.strip():
            return await asyncio.to_thread(_plan_of_text, spec)
        if self._repositories is None or not spec.source.repository:
            raise PlanRefused(
                "There is no workflow file in the request, and no repository to look for one.",
                todo="Give its text as `definition`, or name the repository and the commit.",
                facts={"run_id": request.run_id},
            )
        return await self._plan_of_commit(spec, self._repositories.mirror(spec.source.repository))

    async def descends(self, repository: str, sha: str, older: str) -> bool | None:
        """Return whether a commit has another one in its history.

        Return None if unknown here.
        """
        try:
            known = None if self._repositories is None else self._repositories.mirror(repository)
            return None if known is None else await known.descends(sha, older)
        except PlanRefused:
            return None

    async def _plan_of_commit(self, spec: RunSpec, mirror: Mirror) -> Plan:
        source = spec.source
        commit = await mirror.fetch(source.sha, source.ref, source.base_sha)
        texts = await mirror.workflows(commit)
        if not texts:
            raise PlanRefused(
                f"The commit {commit[:12]} of {source.repository} has no workflow file.",
                todo=f"Add one: {FOLDER}/ci.yml.",
                facts={"repository": source.repository, "sha": commit},
            )
        changed = source.changed_paths
        if changed is None:
            changed = await mirror.changed_paths(commit, source.base_sha)
        known = msgspec.structs.replace(source, sha=commit, changed_paths=changed)
        return await asyncio.to_thread(_plan_of_files, texts, known, spec.inputs, mirror.clone)


# Most processes never see a workflow file, and loading what reads one takes a tenth of the time of `import`.


def _plan_of_text(spec: RunSpec) -> Plan:
    from interlock.systems.runs.workflows import workflow  # noqa: PLC0415 - see above

    return workflow.plan_of_text(spec)


def _plan_of_files(
    texts: list[WorkflowText], source: Source, inputs: Mapping[str, str], clone: Clone
) -> Plan:
    from interlock.systems.runs.workflows import workflow  # noqa: PLC0415 - see above

    return workflow.plan_of_files(texts, source, inputs, clone)
