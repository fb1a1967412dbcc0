"""What the workers of the journeys do.

The handlers speak to the test in two ways. They `note` lines in a pipe, which the test reads as they
come; and where they have to be held up they wait for a gate, a file that the test makes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from interlock import Context, task

NOTES, GATES = "JOURNEY_NOTES", "JOURNEY_GATES"
LONG_S = 3_600.0
"""Far longer than any test waits for anything."""
LOOK_S = 0.01


def note(line: str) -> None:
    """Tell the test; one write, so that the lines of many processes do not mix."""
    pipe = os.open(os.environ[NOTES], os.O_WRONLY)
    try:
        os.write(pipe, f"{line}\n".encode())
    finally:
        os.close(pipe)


def is_open(gate: str) -> bool:
    """Return whether the test has opened a gate."""
    return (Path(os.environ[GATES]) / gate).exists()


async def pass_through(gate: str) -> None:
    """Wait for the test to open it."""
    while not is_open(gate):
        await asyncio.sleep(LOOK_S)


@task
async def jot(number: int) -> int:
    """Write down a number, once for each time that it is executed."""
    note(f"jot {number}")
    return number


class FlakyError(Exception):
    """Of the class that is tried again."""


@task
async def at_second_try(ctx: Context) -> int:
    """Fail the first time."""
    if ctx.attempt == 1:
        raise FlakyError("try again")
    return ctx.attempt


@task
async def jot_slowly(number: int) -> int:
    """The same, but there is always something under way."""
    await asyncio.sleep(0.02)
    note(f"jot {number}")
    return number


@task
async def jot_later(number: int) -> int:
    """The same, once the test has opened a gate."""
    await pass_through("jot_later")
    note(f"jot {number}")
    return number


@task
async def held(ctx: Context, name: str) -> str:
    """Wait at a gate that each attempt has for itself; answers which attempt it was, in which process."""
    note(f"{name} began {ctx.attempt}")
    await pass_through(f"{name}.{ctx.attempt}")
    note(f"{name} ended {ctx.attempt}")
    return f"attempt {ctx.attempt} in {os.getpid()}"


@task
async def stepwise(ctx: Context, steps: int, stuck_after: int) -> dict[str, int]:
    """Save each step; the first attempt waits after `stuck_after` until it is told to stop."""
    first = ctx.restored(int) or 0
    for step in range(first + 1, steps + 1):
        ctx.checkpoint(step)
        ctx.progress(step, steps)
        note(f"stepwise {step}")
        if ctx.attempt == 1 and step == stuck_after:
            await ctx.wait_cancelled(LONG_S)
            ctx.raise_if_cancelled()
    return {"began_after": first, "attempt": ctx.attempt}


@task
async def kill_the_worker() -> None:
    """What a bad extension module does: the process is gone, whoever else is in it."""
    os.kill(os.getpid(), signal.SIGKILL)


@task
async def fail(words: str) -> None:
    """Fail as a program does that has a fault."""
    raise ValueError(words)


# Long ones, that a shutdown or a cancel meets


@task
async def polite(ctx: Context) -> None:
    """Save something, wait for the word to stop, and stop."""
    ctx.checkpoint("half of it")
    note(f"polite began {ctx.attempt} in {os.getpid()}")
    try:
        await ctx.wait_cancelled(LONG_S)
    finally:
        note("polite stopped")
    ctx.raise_if_cancelled()


@task
async def quiet(ctx: Context) -> None:
    """Say nothing to the orchestrator, not even what was saved, and wait for the word to stop."""
    note("quiet began")
    await ctx.wait_cancelled(LONG_S)
    note("quiet stopped")
    ctx.raise_if_cancelled()


@task
async def done_the_second_time(ctx: Context) -> None:
    """Be at it for as long as the first worker lives."""
    if ctx.attempt == 1:
        note("crowd began")
        await asyncio.sleep(LONG_S)


@task
async def deaf(ctx: Context) -> None:
    """Wait for something else, and never look whether it should stop."""
    note(f"deaf began {ctx.attempt} in {os.getpid()}")
    try:
        await asyncio.sleep(LONG_S)
    except asyncio.CancelledError:
        note("deaf stopped")
        raise


@task
async def stubborn(name: str) -> None:
    """Have the process hear no signal that could be ignored, with a child that hears none, either."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG_S})"])
    note(f"{name} began {child.pid}")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG_S)


@task
def polite_thread(ctx: Context) -> None:
    """The same as `polite`, in a thread."""
    ctx.checkpoint("half of it")
    note(f"polite_thread began {ctx.attempt} in {os.getpid()}")
    ctx.wait_cancelled_sync(LONG_S)
    note("polite_thread stopped")
    ctx.raise_if_cancelled()


@task
def deaf_thread(name: str) -> str:
    """Be in a thread that nobody can stop, until the test opens its gate."""
    note(f"{name} began")
    while not is_open(name):
        time.sleep(LOOK_S)
    note(f"{name} ended")
    return "a result that nobody asked for any more"


@task(executor="process")
def family(ctx: Context) -> None:
    """Be a process with a child of its own, and another one that has left for a session of its own."""
    sleeper = [sys.executable, "-c", f"import time; time.sleep({LONG_S})"]
    child = subprocess.Popen(sleeper)
    runaway = subprocess.Popen(sleeper, start_new_session=True)
    note(f"family began {ctx.attempt} in {os.getpid()} {child.pid} {runaway.pid}")
    time.sleep(LONG_S)


# Those that have children


@task
async def gather(ctx: Context, parts: int) -> int:
    """Have parts done by others, wait for them without a slot, and add up what they say."""
    note(f"gather began {ctx.attempt}")
    ctx.spend(0.5)
    ids = await ctx.submit_many([jot.spec(number) for number in range(parts)], child_name="parts")
    last = await ctx.submit(jot, number=parts)
    ctx.checkpoint(len(ids))
    children = await ctx.wait_children()
    assert [child.id for child in children] == [*ids, last]
    return sum(child.result(int) for child in children)


def _gather(ctx: Context, parts: int) -> int:
    ids = ctx.submit_many_sync([jot.spec(number) for number in range(parts)], child_name="parts")
    last = ctx.submit_sync(jot, number=parts)
    children = ctx.wait_children_sync()
    assert [child.id for child in children] == [*ids, last]
    return sum(child.result(int) for child in children)


@task
def gather_in_a_thread(ctx: Context, parts: int) -> int:
    """The same in a thread."""
    return _gather(ctx, parts)


@task(executor="process")
def gather_in_a_process(ctx: Context, parts: int) -> int:
    """The same in a process of its own."""
    return _gather(ctx, parts)


@task
async def submit_and_hang(ctx: Context) -> list[str]:
    """Submit; the first attempt goes no further."""
    ids = await ctx.submit_many([jot.spec(number) for number in range(5)])
    note(f"submitted {ctx.attempt}")
    if ctx.attempt == 1:
        await asyncio.sleep(LONG_S)
    return ids


@task
async def plant(ctx: Context, widths: list[int]) -> None:
    """Grow a tree, and stand until somebody says otherwise."""
    if widths:
        await ctx.submit_many([plant.spec(widths=widths[1:]) for _ in range(widths[0])])
    note("planted")
    await ctx.wait_cancelled(LONG_S)
    ctx.raise_if_cancelled()


# Those that last longer than a lease


@task
async def compute(name: str) -> None:
    """Hold up the event loop, as a handler does that computes, until the test opens a gate."""
    note(f"{name} began")
    while not is_open(name):
        time.sleep(LOOK_S)


@task
async def hold_the_gil(ctx: Context, pipes: list[str]) -> int:
    """Hold up every thread of the process, as an extension module does; but only the first time.

    It waits in C for each of the named pipes to be opened by the test, one after the other.
    """
    for pipe in pipes if ctx.attempt == 1 else ():
        note(f"holds {pipe}")
        os.close(ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY))
    return ctx.attempt


@task
async def orphanage() -> list[int]:
    """Make orphans, and wait until their last trace is gone; answers which process has adopted them."""
    script = "for i in 1 2 3; do sh -c 'echo $$; exec sleep 0.05' & done"
    shell = await asyncio.create_subprocess_exec(
        *("sh", "-c", script), stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    out, _ = await shell.communicate()
    orphans = [int(word) for word in out.split()]
    while any(Path(f"/proc/{pid}").exists() for pid in orphans):
        await asyncio.sleep(LOOK_S)
    return [os.getpid(), len(orphans)]
