"""What `interlock run watch` does: follow one run to its outcome and show what happens, as it does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import typer

from interlock.cli import printing
from interlock.cli.answers import print_line
from interlock.cli.connecting import ask
from interlock.cli.following import CANCELED, COMPLETED, FAILED, NOT_IN_TIME, POLL_S, called_or_time
from interlock.cli.run_finding import whole_run_id
from interlock.cli.times import iso
from interlock.cli.watchers import Trouble
from interlock.errors import StoreUnavailable
from interlock.lifecycles.run import RunState
from interlock.remote.interfaces import Reach
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.runs import RunView

LEAST_PAUSE_S = 0.1
"""However much news there is, so long is it gathered."""
_CODES = {
    RunState.SUCCESS: COMPLETED,
    RunState.FAILED: FAILED,
    RunState.TIMEOUT: FAILED,
    RunState.CANCELED: CANCELED,
}


@dataclass(frozen=True, slots=True)
class Change:
    """Something of the run is in another state than before."""

    at: datetime
    what: str
    """The name of a job, or empty for the run itself."""
    before: str
    after: str
    says: str = ""


class Screen(Protocol):
    """Where news is shown."""

    async def show(self, view: RunView, changes: list[Change]) -> None:
        """Show how it is now."""
        ...


def watch(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a run to its outcome; the answer is the exit code."""

    async def work(port: Reach) -> int:
        run_id = await whole_run_id(port.here.runs, text)
        return await follow(port, run_id, timeout_s, as_json=as_json)

    try:
        return ask(store, work)
    except KeyboardInterrupt:
        typer.echo("Stopped watching; whatever runs goes on.", err=True)
        raise


async def follow(port: Reach, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show what happens to a run until its outcome is decided; the answer is the exit code."""
    last: RunView | None = None
    with _screen(port, as_json=as_json) as screen:
        try:
            async with asyncio.timeout(timeout_s), aclosing(news_of(port, run_id)) as news:
                async for view in news:
                    await screen.show(view, list(changes_between(last, view)))
                    last = view
        except TimeoutError:
            typer.echo(f"Not ended in time: {run_id}. See `interlock run explain {run_id}`.", err=True)
            return NOT_IN_TIME
    return exit_code(last)


def exit_code(view: RunView | None) -> int:
    """What the outcome of a run means to a shell."""
    if view is None or view.outcome is None:
        return NOT_IN_TIME
    return _CODES.get(RunState(view.outcome), FAILED)


async def news_of(port: Reach, run_id: str) -> AsyncGenerator[RunView, None]:
    """The run whenever something may have happened to it, until its outcome is decided."""
    called, trouble = asyncio.Event(), Trouble()
    stop = port.here.store.subscribe(waker(called))
    loop, swept_at = asyncio.get_running_loop(), float("-inf")
    try:
        while True:
            called.clear()
            try:
                view = await port.here.runs.view(run_id)
                yield view
                if view.outcome is not None and not _still_stopping(view):
                    return
                if loop.time() - swept_at >= POLL_S:
                    await port.recover()
                    swept_at = loop.time()
            except StoreUnavailable as error:
                trouble(error)  # it may come back; whoever cannot wait has a timeout
            await called_or_time(called, POLL_S)
            await asyncio.sleep(LEAST_PAUSE_S)
    finally:
        stop()


def _still_stopping(view: RunView) -> bool:
    """What is stopped because the outcome is decided is shown until it is."""
    return any(view.tally.get(state) for state in ("RUNNING", "STOPPING"))


def changes_between(before: RunView | None, after: RunView) -> Iterator[Change]:
    """What is in another state; at first, everything that has begun."""
    known = {job.name: job.state for job in before.jobs} if before is not None else {}
    for job in after.jobs:
        was = known.get(job.name, "" if before is None else "WAITING")
        if job.state != was and not (before is None and job.state == "WAITING"):
            at = job.completed_at or job.started_at or after.updated_at
            failure = job.failure.error if job.failure is not None else ""
            yield Change(at, job.name, was, job.state, failure or job.reason)
    if before is None or before.state != after.state:
        says = after.error or after.reason
        yield Change(after.updated_at, "", before.state if before else "", after.state, says)


def _screen(port: Reach, *, as_json: bool) -> AbstractContextManager[Screen]:
    if as_json:
        return nullcontext(JsonLines())
    if not printing.on_terminal():
        return nullcontext(Transitions())
    from interlock.cli.run_live import LiveGraph  # a pipe need not wait for rich

    return LiveGraph(port.now, shutil.get_terminal_size().columns)


class Transitions:
    """A line for each change, for a pipe."""

    async def show(self, view: RunView, changes: list[Change]) -> None:
        """One line each, there at once."""
        for change in changes:
            who = change.what or view.id
            printing.print_row((iso(change.at), who, change.before, change.after, change.says))


class JsonLines:
    """A line of JSON for each change, and one for the run when it has ended."""

    async def show(self, view: RunView, changes: list[Change]) -> None:
        """One line each, there at once."""
        for change in changes:
            told = {"at": change.at, "job": change.what, "from": change.before, "to": change.after}
            print_line({"change": {**told, "says": change.says}})
        if view.outcome is not None and not _still_stopping(view):
            print_line({"run": view})
