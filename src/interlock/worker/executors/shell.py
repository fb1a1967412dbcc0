"""`interlock.shell`: shell steps, one after the other, with a live log.

    {"run": "make test"}
    {"steps": [{"name": "build", "run": "make"}, {"run": "make test"}], "env": {"CI": "1"},
     "cwd": "/src", "timeout_s": 600}

Each step is `sh -c` in a process group of its own; what it writes becomes the job's log as it comes,
with the levels `stdout` and `stderr`. The first step that fails ends the job, with its exit code and
its last lines. Told to stop, the step is terminated with everything it has started.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import Any

import msgspec

from interlock.errors import InvalidArguments
from interlock.worker.context import Context
from interlock.worker.executors.groups import Group
from interlock.worker.executors.subprocesses import how_it_ended
from interlock.worker.outcomes import StepFailed
from interlock.worker.tasks import Task

NAME = "interlock.shell"
LAST_LINES = 50
GRACE_S = 2.0


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command."""

    run: str
    name: str = ""


async def shell(
    ctx: Context,
    run: str | None = None,
    steps: list[Step] | None = None,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Run the steps; the result has the duration of each."""
    wanted = _steps(run, steps)
    durations = []
    last: deque[str] = deque(maxlen=LAST_LINES)
    try:
        async with asyncio.timeout(timeout_s):
            for index, step in enumerate(wanted):
                ctx.progress(index, len(wanted), _title(step))
                began = time.monotonic()
                await run_step(ctx, step, {**os.environ, **(env or {})}, cwd, last)
                durations.append({"name": _title(step), "duration_s": time.monotonic() - began})
    except TimeoutError:
        took = f"The step {_title(wanted[len(durations)])!r} was stopped: timeout_s is {timeout_s:g}."
        raise StepFailed(took, exit_code=None, output="\n".join(last), failure_class="timeout") from None
    ctx.progress(len(wanted), len(wanted))
    return {"exit_code": 0, "steps": durations}


async def run_step(ctx: Context, step: Step, env: dict[str, str], cwd: str | None, last: deque[str]) -> None:
    """Run one step to its end; nothing of it is left when this returns or raises."""
    last.clear()

    def hear(line: str, level: str) -> None:
        last.append(line)
        ctx.log(line, level)

    group = await Group.start(["sh", "-c", step.run], hear, cwd=cwd, env=env)
    ending = asyncio.ensure_future(group.ended())
    told = asyncio.ensure_future(ctx.wait_cancelled())
    try:
        await asyncio.wait((ending, told), return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        if not ending.done():
            await _terminate(group, ending)
    ctx.raise_if_cancelled()
    code = ending.result()
    if code:
        what = f"The step {_title(step)!r} {how_it_ended(code)}."
        raise StepFailed(what, exit_code=code, output="\n".join(last))


async def _terminate(group: Group, ending: asyncio.Future[int]) -> None:
    """End the group also when whoever waits for that is cancelled meanwhile."""
    group.terminate(GRACE_S)
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            group.kill()


def _title(step: Step) -> str:
    return step.name or step.run.strip().partition("\n")[0]


def _steps(run: str | None, steps: list[Step] | None) -> list[Step]:
    if (run is None) == (steps is None) or steps == []:
        raise InvalidArguments(
            f"{NAME} takes either one command or a list of steps.",
            todo='Give {"run": "..."} or {"steps": [{"run": "..."}, ...]}.',
        )
    return steps if steps is not None else [Step(run or "")]


SHELL: Task[..., Any] = Task(shell, name=NAME)
