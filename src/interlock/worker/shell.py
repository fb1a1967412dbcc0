"""`interlock.shell`: shell steps, one after the other, with a live log.

    {"run": "make test"}
    {"checkout": {"repository": "https://example.org/shop.git", "sha": "5f1c0d0…"},
     "steps": [{"name": "build", "run": "make", "timeout_s": 300},
               {"run": "make lint", "continue_on_error": true},
               {"run": "make test", "workdir": "backend", "env": {"SLOW": "1"}}],
     "env": {"CI": "1"}, "timeout_s": 600,
     "caches": [{"key": "pip", "files": ["requirements.txt"], "path": ".cache/pip"}],
     "artifacts": [{"name": "coverage", "path": "htmlcov"}]}

Each step is `sh -c`; its output becomes the job's log at once, with the levels `stdout` and `stderr`. With
`steps` the log also has the begin and the end of each, with separate levels (`step`, `passed` and `failed`),
so that readers can distinguish the steps. The first step that fails ends the job, with its exit code and its
last lines. When a step ends, or is stopped, all of its child processes are killed: a daemon does not outlive
its step. A cancelled job reports whether all of them are known to have ended. Artifacts are stored when the
steps have ended, even if one of them has failed. With a checkout, or with `workspace`, the steps run in a
fresh folder that is removed afterwards; caches need one. A worker that isolates steps always creates one.

A checkout is fetched with git into that folder. The repository is not trusted, so git runs without hooks,
settings of the machine or the user, credential helpers, other protocols or prompts, and the fetched commit is
compared with the requested one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.errors import InvalidArguments
from interlock.processes.credentials import OURS
from interlock.processes.groups import End, Group
from interlock.processes.sandbox import NO_SANDBOX, PASSED, Sandbox
from interlock.wire.credentials import as_variables, authorization
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.outcomes import StepFailed
from interlock.worker.process_executor import how_it_ended
from interlock.worker.shell_files import (
    Cache,
    ShellArtifact,
    ShellCaches,
    Workspace,
    check_caches,
    check_names,
    leave_behind,
    restored,
)
from interlock.worker.tasks import Task

LAST_LINES = 50
GRACE_S = 2.0
OUTSIDE = Sandbox(NO_SANDBOX)
SEEN_BY_ALL = PASSED | {"HOME", "USER", "LOGNAME", "TMPDIR"}
"""Environment variables of the worker for steps of untrusted jobs."""


class Commands:
    """Runs the commands of one attempt, and keeps the last lines of the latest."""

    def __init__(self, ctx: Context, box: Sandbox = OUTSIDE) -> None:
        self._ctx = ctx
        self._box = box
        self._workspace: Path | None = None
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def last_lines(self) -> str:
        """The last output of the latest command."""
        return "\n".join(self._last)

    async def enter(self, workspace: Path) -> None:
        """Use the workspace, with its content, for later steps."""
        self._workspace = workspace
        if self._box.isolates:
            await asyncio.to_thread(self._box.furnish, workspace)

    async def run_step(self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> End:
        """Run a command of the job to its end, in its sandbox if there is one."""
        boxed = self._box.arguments(arguments, self._workspace, cwd)
        return await self.run(boxed, env=env, cwd=cwd, box=self._box)

    async def run(
        self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: str | None, box: Sandbox = OUTSIDE
    ) -> End:
        """Run a command to its end, and end all its processes."""
        self._last.clear()
        group = await Group.start(
            arguments,
            self._receive,
            cwd=cwd,
            env=env,
            mask=self._ctx.mask,
            user=box.user,
            spared=box.spared,
        )
        ending = asyncio.ensure_future(group.ended())
        cancelled = asyncio.ensure_future(self._ctx.wait_cancelled())
        try:
            await asyncio.wait((ending, cancelled), return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
            if not ending.done():
                await _terminate(group, ending)
            if self._ctx.stop_reason is not None:
                dead = ending.result().confirmed_dead
                raise TaskCancelled(self._ctx.stop_reason, confirmed_dead=dead)
        if not ending.result().confirmed_dead:
            self._ctx.log("Some processes that this step has started may still run.", "warning")
        return ending.result()

    def environment(self, *, without: str = "") -> dict[str, str]:
        """Return the environment of a step.

        It is that of the worker, without the worker's credentials. The token of a runner and the address of a
        store are in variables of ours, and no job needs them. Any other variable may be a credential as well,
        so untrusted and isolated jobs get only a few. `without` excludes a secret that is for another
        purpose: the one with which the repository is fetched.
        """
        ctx = self._ctx
        seen = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        if self._box.isolates or ctx.untrusted:
            seen = {name: seen[name] for name in seen if name in SEEN_BY_ALL or name.startswith("LC_")}
        if self._workspace is not None:
            seen |= self._box.home(self._workspace)
            seen["INTERLOCK_WORKSPACE"] = str(self._workspace)
        return {
            **seen,
            "INTERLOCK_JOB_ID": ctx.job_id,
            "INTERLOCK_ATTEMPT": str(ctx.attempt),
            "INTERLOCK_SHARD": str(ctx.shard),
            "INTERLOCK_SHARDS": str(ctx.shards),
            "INTERLOCK_FENCE": str(ctx.fence),
            **{name: value for name, value in ctx.secrets.items() if name != without},
        }

    def _receive(self, line: str, level: str) -> None:
        self._last.append(line)
        self._ctx.log(line, level)


async def _terminate(group: Group, ending: asyncio.Future[End]) -> None:
    """End the group, even if the waiting task is cancelled meanwhile."""
    group.terminate(GRACE_S)
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            group.kill()


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
    """A commit of a repository."""

    repository: str
    """Its address; `owner/name` is one at GitHub."""
    sha: str = ""
    """The full commit; by default that of the ref."""
    ref: str = ""
    """`refs/heads/main`, `refs/tags/v1`, `refs/pull/7/head`."""
    depth: int = 1
    """Number of commits of the history to fetch; 0 for all."""
    secret: str = ""
    """The name of the secret with which a private repository is fetched: `TOKEN` or `USER:PASSWORD`."""


async def checked_out(
    commands: Commands, wanted: Checkout, workspace: Path, secrets: Mapping[str, str]
) -> Path:
    """Return the folder in the workspace with the commit."""
    _check(wanted)
    folder, address = workspace / "checkout", _address(wanted.repository)
    shown = authorization(address, secrets[wanted.secret]) if wanted.secret else {}
    git = _Git(commands, folder, address, shown)
    await git.run("init", "--quiet", "--template=", str(folder), cwd=workspace)
    if not wanted.sha:
        await git.fetch(wanted.ref or "HEAD", wanted.depth)
    elif await git.fetch(wanted.sha, wanted.depth, may_fail=bool(wanted.ref)):
        await git.fetch(wanted.ref, 0)  # a server may refuse commits that no ref points at
    await git.run("checkout", "--quiet", "--detach", wanted.sha or "FETCH_HEAD", "--")
    return folder


class _Git:
    def __init__(self, commands: Commands, folder: Path, address: str, shown: Mapping[str, str]) -> None:
        self._commands, self._folder, self._address = commands, folder, address
        self._shown = shown
        """Settings only for fetching."""

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
    """Return the environment of git.

    It has the path of programs, and no variable that changes git's behaviour.
    """
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
    """Return the address without credentials."""
    return re.sub(r"(?<=://)[^/@]*@", "", address)


NAME = "interlock.shell"
STEP_BEGAN, STEP_PASSED, STEP_FAILED = "step", "passed", "failed"
"""Levels of the lines at the begin and end of a step; its own output is stdout or stderr."""
UNPROTECTED = (
    "This job is untrusted, and this worker does not isolate steps: they can read what its user can read. "
    "Start it with --isolate (docs/guides/running-workers.md)."
)


class ShellStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step."""

    run: str
    name: str = ""
    env: dict[str, str] = {}
    workdir: str | None = None
    """Its folder; relative to that of the job."""
    timeout_s: float | None = None
    continue_on_error: bool = False
    """Whether later steps run although it failed."""

    @property
    def title(self) -> str:
        """Its name, or the first line of its command."""
        return self.name or self.run.strip().partition("\n")[0]


class StepEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a step, in the result of the job."""

    name: str
    duration_s: float
    exit_code: int | None = 0
    """None for a step that timed out."""


async def shell(
    ctx: Context,
    run: str | None = None,
    steps: list[ShellStep] | None = None,
    env: dict[str, str] | None = None,
    workdir: str | None = None,
    timeout_s: float | None = None,
    checkout: Checkout | None = None,
    artifacts: list[ShellArtifact] | None = None,
    workspace: bool = False,
    caches: list[Cache] | None = None,
) -> dict[str, Any]:
    """Run the steps; return the end of each."""
    wanted = _steps(run, steps)
    _warn(ctx)
    check_names(artifacts or [])
    check_caches(caches or [])
    ends: list[StepEnd] = []
    where: Path | None = None
    failure: StepFailed | None = None
    cached: ShellCaches | None = None
    async with contextlib.AsyncExitStack() as stack:
        box = stack.enter_context(Sandbox(ctx.sandbox))
        commands = Commands(ctx, box)
        try:
            async with asyncio.timeout(timeout_s):
                if checkout is not None or workspace or caches or box.isolates:
                    folder = await stack.enter_async_context(Workspace())
                    base = await checked_out(commands, checkout, folder, ctx.secrets) if checkout else folder
                    workdir = str(base / (workdir or ""))
                    cached = await restored(ctx, caches or [], Path(workdir), folder)
                    await commands.enter(folder)
                where = Path(workdir or "")
                given = commands.environment(without=checkout.secret if checkout else "")
                variables = {**given, **(env or {})}
                for index, step in enumerate(wanted):
                    ctx.progress(index, len(wanted), step.title)
                    ends.append(
                        await _run_logged_step(
                            ctx, commands, step, variables, workdir, aloud=steps is not None
                        )
                    )
        except StepFailed as failed:
            failure = failed
        except TimeoutError:
            doing = f"The step {wanted[len(ends)].title!r}" if len(ends) < len(wanted) else "The job"
            failure = _too_slow(commands, doing, timeout_s)
            ctx.log(str(failure), "error")
        if cached is not None and failure is None:
            await cached.save()
        if artifacts and where is not None:
            ctx.uploading()
            await leave_behind(ctx, artifacts, where, failed=failure is not None)
    if failure is not None:
        raise failure
    ctx.progress(len(wanted), len(wanted))
    return {"exit_code": 0, "steps": ends}


def _warn(ctx: Context) -> None:
    if ctx.withheld:
        ctx.log("Secrets are withheld from this job: its change comes from a fork.", "warning")
    if ctx.untrusted and ctx.sandbox.kind == NO_SANDBOX.kind:
        ctx.log(UNPROTECTED, "warning")


async def _run_logged_step(
    ctx: Context,
    commands: Commands,
    step: ShellStep,
    env: Mapping[str, str],
    workdir: str | None,
    *,
    aloud: bool,
) -> StepEnd:
    """Run a step; with `aloud` log its begin and end. Raise its failure."""
    if aloud:
        ctx.log(f"The step {step.title!r} begins.", STEP_BEGAN)
    began = time.monotonic()
    try:
        end = await _run_step(commands, step, env, workdir)
    except StepFailed as failed:
        after = "" if failed.exit_code is None else f" after {_lasted(time.monotonic() - began)}"
        ctx.log(f"{str(failed).removesuffix('.')}{after}.", STEP_FAILED if aloud else "error")
        raise
    if end.exit_code != 0:
        ended = "was stopped: it took too long" if end.exit_code is None else how_it_ended(end.exit_code)
        lasted = _lasted(end.duration_s)
        level = STEP_FAILED if aloud else "warning"
        ctx.log(f"The step {step.title!r} {ended} after {lasted}; the job continues.", level)
    elif aloud:
        ctx.log(f"The step {step.title!r} succeeded after {_lasted(end.duration_s)}.", STEP_PASSED)
    return end


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


async def _run_step(
    commands: Commands, step: ShellStep, env: Mapping[str, str], workdir: str | None
) -> StepEnd:
    began = time.monotonic()
    where = workdir if step.workdir is None else str(Path(workdir or "") / step.workdir)
    code: int | None = None
    too_slow = None
    limit = asyncio.timeout(step.timeout_s)
    try:
        async with limit:
            code = (await _start(commands, step, {**env, **step.env}, where)).code
    except TimeoutError:
        if not limit.expired():
            raise
        too_slow = _too_slow(commands, f"The step {step.title!r}", step.timeout_s)
    if not step.continue_on_error and code != 0:
        what = f"The step {step.title!r} {how_it_ended(code or 0)}."
        raise too_slow or StepFailed(what, exit_code=code, output=commands.last_lines)
    return StepEnd(step.title, time.monotonic() - began, code)


async def _start(commands: Commands, step: ShellStep, env: Mapping[str, str], where: str | None) -> End:
    try:
        return await commands.run_step(["sh", "-c", step.run], env=env, cwd=where)
    except OSError as error:
        what = f"The step {step.title!r} cannot start: {error.strerror}: {error.filename}"
        raise StepFailed(what, exit_code=None, output="", failure_class="user") from error


def _too_slow(commands: Commands, doing: str, timeout_s: float | None) -> StepFailed:
    what = f"{doing} was stopped: timeout_s is {timeout_s:g}."
    return StepFailed(what, exit_code=None, output=commands.last_lines, failure_class="timeout")


def _steps(run: str | None, steps: list[ShellStep] | None) -> list[ShellStep]:
    if (run is None) == (steps is None) or steps == []:
        raise InvalidArguments(
            f"{NAME} takes either one command or a list of steps.",
            todo='Give {"run": "..."} or {"steps": [{"run": "..."}, ...]}.',
        )
    return steps if steps is not None else [ShellStep(run or "")]


SHELL: Task[..., Any] = Task(shell, name=NAME, executor="async")
