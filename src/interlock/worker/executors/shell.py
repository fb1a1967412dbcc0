"""`interlock.shell`: shell steps, one after the other, with a live log.

    {"run": "make test"}
    {"checkout": {"repository": "https://example.org/shop.git", "sha": "5f1c0d0…"},
     "steps": [{"name": "build", "run": "make", "timeout_s": 300},
               {"run": "make lint", "continue_on_error": true},
               {"run": "make test", "workdir": "backend", "env": {"SLOW": "1"}}],
     "env": {"CI": "1"}, "timeout_s": 600,
     "caches": [{"key": "pip", "files": ["requirements.txt"], "path": ".cache/pip"}],
     "artifacts": [{"name": "coverage", "path": "htmlcov"}]}

Each step is `sh -c`; what it writes becomes the job's log as it comes, with the levels `stdout` and
`stderr`. Of `steps` the log also says when each begins, and how it ended, with levels of their own (`step`,
`passed` and `failed`), so that readers can tell the steps apart. The first step that fails ends
the job, with its exit code and its last lines. When a step ends, or is told to stop, everything that it has
started ends with it: a daemon does not outlive its step. Whether all of it is known to be gone is what a
cancelled job says in the end. Artifacts are kept when the steps have ended, also when one of them has failed.
With a checkout, or with `workspace`, the steps run in a fresh folder that is gone afterwards; only there can
anything be cached. A worker that isolates steps gives each job such a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from interlock.errors import InvalidArguments
from interlock.processes.groups import End
from interlock.processes.sandbox import NO_SANDBOX, Sandbox
from interlock.worker.context import Context
from interlock.worker.executors.checkout import Checkout, checked_out
from interlock.worker.executors.commands import Commands
from interlock.worker.executors.shell_artifacts import Artifact, check_names, leave_behind
from interlock.worker.executors.shell_caches import Cache, Caches, check_caches, restored
from interlock.worker.executors.subprocesses import how_it_ended
from interlock.worker.executors.workspaces import Workspace
from interlock.worker.outcomes import StepFailed
from interlock.worker.tasks import Task

NAME = "interlock.shell"
STEP, PASSED, FAILED = "step", "passed", "failed"
"""Levels of the lines with which a step begins and ends; what a step writes itself is stdout or stderr."""
UNPROTECTED = (
    "This job is untrusted, and this worker does not isolate steps: they can read what its user can read. "
    "Start it with --isolate (docs/guides/running-workers.md)."
)


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command."""

    run: str
    name: str = ""
    env: dict[str, str] = {}
    workdir: str | None = None
    """Where it runs; what is not absolute begins where the job does."""
    timeout_s: float | None = None
    continue_on_error: bool = False
    """What comes after it runs although it failed."""

    @property
    def title(self) -> str:
        """Its name, or the first line of what it runs."""
        return self.name or self.run.strip().partition("\n")[0]


class StepEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a step ended, as the result of the job tells it."""

    name: str
    duration_s: float
    exit_code: int | None = 0
    """None for one that was stopped because it took too long."""


async def shell(
    ctx: Context,
    run: str | None = None,
    steps: list[Step] | None = None,
    env: dict[str, str] | None = None,
    workdir: str | None = None,
    timeout_s: float | None = None,
    checkout: Checkout | None = None,
    artifacts: list[Artifact] | None = None,
    workspace: bool = False,
    caches: list[Cache] | None = None,
) -> dict[str, Any]:
    """Run the steps; the result tells how each ended."""
    wanted = _steps(run, steps)
    _warn(ctx)
    check_names(artifacts or [])
    check_caches(caches or [])
    ends: list[StepEnd] = []
    where: Path | None = None
    failure: StepFailed | None = None
    cached: Caches | None = None
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
                    ends.append(await _told(ctx, commands, step, variables, workdir, aloud=steps is not None))
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
        ctx.log("Secrets are withheld from this job: what it is about comes from a fork.", "warning")
    if ctx.untrusted and ctx.sandbox.kind == NO_SANDBOX.kind:
        ctx.log(UNPROTECTED, "warning")


async def _told(
    ctx: Context,
    commands: Commands,
    step: Step,
    env: Mapping[str, str],
    workdir: str | None,
    *,
    aloud: bool,
) -> StepEnd:
    """Run a step; with `aloud` the log says when it begins and how it ended. A failure is raised."""
    if aloud:
        ctx.log(f"The step {step.title!r} begins.", STEP)
    began = time.monotonic()
    try:
        end = await _run_step(commands, step, env, workdir)
    except StepFailed as failed:
        after = "" if failed.exit_code is None else f" after {_lasted(time.monotonic() - began)}"
        ctx.log(f"{str(failed).removesuffix('.')}{after}.", FAILED if aloud else "error")
        raise
    if end.exit_code != 0:
        ended = "was stopped: it took too long" if end.exit_code is None else how_it_ended(end.exit_code)
        lasted = _lasted(end.duration_s)
        level = FAILED if aloud else "warning"
        ctx.log(f"The step {step.title!r} {ended} after {lasted}; the job goes on.", level)
    elif aloud:
        ctx.log(f"The step {step.title!r} succeeded after {_lasted(end.duration_s)}.", PASSED)
    return end


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


async def _run_step(commands: Commands, step: Step, env: Mapping[str, str], workdir: str | None) -> StepEnd:
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


async def _start(commands: Commands, step: Step, env: Mapping[str, str], where: str | None) -> End:
    try:
        return await commands.run_step(["sh", "-c", step.run], env=env, cwd=where)
    except OSError as error:
        what = f"The step {step.title!r} cannot start: {error.strerror}: {error.filename}"
        raise StepFailed(what, exit_code=None, output="", failure_class="user") from error


def _too_slow(commands: Commands, doing: str, timeout_s: float | None) -> StepFailed:
    what = f"{doing} was stopped: timeout_s is {timeout_s:g}."
    return StepFailed(what, exit_code=None, output=commands.last_lines, failure_class="timeout")


def _steps(run: str | None, steps: list[Step] | None) -> list[Step]:
    if (run is None) == (steps is None) or steps == []:
        raise InvalidArguments(
            f"{NAME} takes either one command or a list of steps.",
            todo='Give {"run": "..."} or {"steps": [{"run": "..."}, ...]}.',
        )
    return steps if steps is not None else [Step(run or "")]


SHELL: Task[..., Any] = Task(shell, name=NAME, executor="async")
