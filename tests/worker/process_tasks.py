"""Tasks for processes of their own: such a process imports them from here."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from interlock.errors import JobError
from interlock.worker.context import Context
from interlock.worker.postponement import Snooze
from interlock.worker.tasks import Registry

REGISTRY = Registry()
task = REGISTRY.task


@task(name="where", executor="process")
def where() -> dict[str, int]:
    warden = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(") ")[2].split()
    facts = {"pid": os.getpid(), "group": os.getpgrp(), "session": os.getsid(0)}
    return {**facts, "parents_parent": int(warden[1]), "parents_session": int(warden[3])}


@task(name="talk", executor="process")
async def talk(ctx: Context, restored: bool = False) -> Any:
    ctx.progress(1, 2, "half")
    ctx.checkpoint({"at": 5})
    ctx.log("from afar", level="warning")
    ctx.spend(0.25)
    ctx.spend(0.5)
    print("printed")
    print("complained", file=sys.stderr)
    await asyncio.sleep(0)
    return {"attempt": ctx.attempt, "restored": ctx.restored()}


@task(name="fail", executor="process")
def fail() -> None:
    raise LookupError("nothing here")


@task(name="die", executor="process")
def die() -> None:
    os._exit(17)


@task(name="lose_warden", executor="process")
def lose_warden(note: str) -> None:
    """Ends the process that would clear up behind it, and does not end itself."""
    Path(note).write_text(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3_600)


@task(name="eat", executor="process")
def eat() -> int:
    return len(b"x" * (2 << 30))


@task(name="wait_politely", executor="process")
def wait_politely(ctx: Context) -> None:
    ctx.log("waiting")
    ctx.wait_cancelled_sync(600.0)
    ctx.checkpoint({"reason": ctx.stop_reason})
    ctx.raise_if_cancelled()


@task(name="deaf", executor="process")
def deaf(folder: str) -> None:
    """Ignores everything, and has a child that does so too."""
    ignore = "import signal,time;signal.signal(signal.SIGTERM,signal.SIG_IGN);"
    child = subprocess.Popen([sys.executable, "-c", ignore + "print(flush=True);time.sleep(600)"], stdout=-1)
    assert child.stdout is not None
    child.stdout.readline()
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    whole = Path(folder) / "pids.new"
    whole.write_text(f"{os.getpid()} {child.pid}")
    whole.rename(Path(folder) / "pids")
    time.sleep(600)


@task(name="quick")
async def quick(value: Any = None) -> Any:
    return value


@task(name="nap")
async def nap(seconds: float, ctx: Context) -> str:
    ctx.checkpoint({"began": True})
    ctx.log("napping")
    await ctx.wait_cancelled(seconds)
    ctx.raise_if_cancelled()
    return "rested"


@task(name="first_waits")
async def first_waits(ctx: Context, path: str) -> int:
    """The first attempt waits for a file; every other ends at once."""
    ctx.log("waiting")
    while ctx.attempt == 1 and not Path(path).exists():
        await asyncio.sleep(0.01)
    return ctx.attempt


@task(name="block")
async def block(seconds: float, ctx: Context) -> None:
    ctx.log("blocking")  # the renewer sends it, from its own thread
    time.sleep(seconds)


@task(name="leave_from_process", executor="process")
def leave_from_process(ctx: Context, path: str) -> dict[str, Any]:
    try:
        ctx.artifact_sync("not a name", path)
    except JobError as refused:
        ctx.log(refused.sentence)
    kept = ctx.artifact_sync("note", path)
    return {"name": kept.name, "size": kept.size}


@task(name="leave_from_process_async", executor="process")
async def leave_from_process_async(ctx: Context, path: str) -> int:
    return (await ctx.artifact("note", path)).size


@task(name="traced_over_there", executor="process")
def traced_over_there() -> str:
    from opentelemetry import trace

    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


@task(name="unsaid")
def unsaid() -> int:
    return os.getpid()


@task(name="snooze", executor="process")
def snooze() -> None:
    raise Snooze("10m")


@task(name="results_before", executor="process")
def results_before(ctx: Context) -> list[int]:
    return [each.result(int) for each in ctx.predecessors_sync()]


@task(name="results_before_async", executor="process")
async def results_before_async(ctx: Context) -> list[int]:
    return [each.result(int) for each in await ctx.predecessors()]
