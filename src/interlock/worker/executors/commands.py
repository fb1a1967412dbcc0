"""One command of a handler: its lines go to the log of the job, and nothing of it is left behind."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence

from interlock.processes.groups import End, Group
from interlock.worker.context import Context, TaskCancelled

LAST_LINES = 50
GRACE_S = 2.0
OURS = "INTERLOCK_"


class Commands:
    """Runs the commands of one attempt, and remembers the last lines of the latest."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def last_lines(self) -> str:
        """What the latest command has written last."""
        return "\n".join(self._last)

    async def run(self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> End:
        """Run one to its end; nothing of it is left when this returns or raises."""
        self._last.clear()
        group = await Group.start(arguments, self._hear, cwd=cwd, env=env, mask=self._ctx.mask)
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


def environment(ctx: Context, *, without: str = "") -> dict[str, str]:
    """What a command of a job sees: the worker's surroundings, but nothing of what the worker knows.

    The token of a runner and the address of a store are in variables of ours, and no job needs them. One
    secret may be meant for somebody else: the one with which the repository is fetched.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {
        **inherited,
        "INTERLOCK_JOB_ID": ctx.job_id,
        "INTERLOCK_ATTEMPT": str(ctx.attempt),
        "INTERLOCK_SHARD": str(ctx.shard),
        "INTERLOCK_SHARDS": str(ctx.shards),
        "INTERLOCK_FENCE": str(ctx.fence),
        **{name: value for name, value in ctx.secrets.items() if name != without},
    }
