"""The commands of a handler: their lines go to the log of the job, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from interlock.processes.credentials import OURS
from interlock.processes.groups import End, Group
from interlock.processes.sandbox import NO_SANDBOX, PASSED, Sandbox
from interlock.worker.context import Context, TaskCancelled

LAST_LINES = 50
GRACE_S = 2.0
OUTSIDE = Sandbox(NO_SANDBOX)
SEEN_BY_ALL = PASSED | {"HOME", "USER", "LOGNAME", "TMPDIR"}
"""Variables of the worker that the steps of untrusted jobs see."""


class Commands:
    """Runs the commands of one attempt, and remembers the last lines of the latest."""

    def __init__(self, ctx: Context, box: Sandbox = OUTSIDE) -> None:
        self._ctx = ctx
        self._box = box
        self._workspace: Path | None = None
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def last_lines(self) -> str:
        """What the latest command has written last."""
        return "\n".join(self._last)

    async def enter(self, workspace: Path) -> None:
        """Give the workspace, with what is in it, to the steps that run from now on."""
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
        """Run one to its end; nothing of it is left when this returns or raises."""
        self._last.clear()
        group = await Group.start(
            arguments,
            self._hear,
            cwd=cwd,
            env=env,
            mask=self._ctx.mask,
            user=box.user,
            spared=box.spared,
        )
        ending = asyncio.ensure_future(group.ended())
        told = asyncio.ensure_future(self._ctx.wait_cancelled())
        try:
            await asyncio.wait((ending, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            if not ending.done():
                await _terminate(group, ending)
            if self._ctx.stop_reason is not None:
                dead = ending.result().confirmed_dead
                raise TaskCancelled(self._ctx.stop_reason, confirmed_dead=dead)
        if not ending.result().confirmed_dead:
            self._ctx.log("Not all that this step has started is known to have ended.", "warning")
        return ending.result()

    def environment(self, *, without: str = "") -> dict[str, str]:
        """Return what a step sees: the worker's surroundings, but nothing of what the worker knows.

        The token of a runner and the address of a store are in variables of ours, and no job needs them.
        Any other variable may be somebody's credential as well, so untrusted and isolated jobs see but a
        few. One secret may be meant for somebody else: the one with which the repository is fetched.
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

    def _hear(self, line: str, level: str) -> None:
        self._last.append(line)
        self._ctx.log(line, level)


async def _terminate(group: Group, ending: asyncio.Future[End]) -> None:
    """End the group also when whoever waits for that is cancelled meanwhile."""
    group.terminate(GRACE_S)
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            group.kill()
