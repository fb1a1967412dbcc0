"""What `interlock job watch` and `wait` do: choose jobs, follow them, and answer with the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from typing import Protocol

import typer

from interlock.cli import job_sheets, printing
from interlock.cli.answers import print_line
from interlock.cli.connecting import ask
from interlock.cli.finding import blocked, chosen
from interlock.cli.following import NOT_IN_TIME, Following, News, exit_code, has_ended
from interlock.errors import StoreUnavailable
from interlock.remote.interfaces import Reach
from interlock.wire.harmless import harmless
from interlock.wire.jobs import JobView

LOOK_FOR_WORKERS_S = 5.0
"""How often to look whether a worker is there that may take what is pending."""
LAST_LOOK_S = 20.0
"""How long a store may take to say how things stand when the time is over."""


class Screen(Protocol):
    """Where news is shown."""

    async def show(self, news: News) -> None:
        """Show what has happened."""
        ...


def watch(store: str | None, words: Sequence[str], timeout_s: float | None, *, as_json: bool) -> int:
    """Follow jobs to their end and show what happens; the answer is the exit code."""

    async def work(port: Reach) -> int:
        ids = await _chosen_ids(port, words)
        return await _followed(port, ids, _screen(port, as_json=as_json), timeout_s)

    return _until_interrupted(lambda: ask(store, work))


def wait(store: str | None, words: Sequence[str], timeout_s: float | None, *, as_json: bool) -> int:
    """Wait for jobs to end and say how each did; the answer is the exit code."""

    async def work(port: Reach) -> int:
        ids = await _chosen_ids(port, words)
        return await _followed(port, ids, nullcontext(Outcomes(as_json=as_json)), timeout_s, steps=False)

    return _until_interrupted(lambda: ask(store, work))


async def follow(
    port: Reach, ids: Sequence[str], timeout_s: float | None, *, verbose: bool
) -> tuple[int, list[JobView]]:
    """Follow jobs that were just submitted; return the exit code and the jobs as they ended.

    Shows the state of each; with `verbose` every transition, as `watch` does.
    """
    last = Remembered()
    if verbose:
        screen = _screen(port, as_json=False)
    else:
        screen = _live(port) if printing.on_terminal() else nullcontext(Stages())
    code = await _followed(port, ids, screen, timeout_s, steps=verbose, also=last)
    return code, [last.views[job_id] for job_id in ids if job_id in last.views]


async def follow_quietly(
    port: Reach, ids: Sequence[str], timeout_s: float | None
) -> tuple[int, list[JobView]]:
    """The same, with nothing shown; answers with the jobs as they ended."""
    last = Remembered()
    code = await _followed(port, ids, nullcontext(last), timeout_s, steps=False)
    return code, [last.views[job_id] for job_id in ids if job_id in last.views]


async def _chosen_ids(port: Reach, words: Sequence[str]) -> list[str]:
    views = await chosen(port.here.jobs, words)
    if not views:
        typer.echo("No job matches.", err=True)
    return [view.id for view in views]


async def _followed(
    port: Reach,
    ids: Sequence[str],
    screen: AbstractContextManager[Screen],
    timeout_s: float | None,
    *,
    steps: bool = True,
    also: Screen | None = None,
) -> int:
    latest: dict[str, JobView] = {}
    following = Following(port, ids, tell_steps=steps, in_trouble=Trouble())
    nobody = NoWorker(port)
    with screen as shown:
        try:
            async with asyncio.timeout(timeout_s), aclosing(following.news()) as news:
                async for piece in news:
                    latest |= {view.id: view for view in piece.views}
                    await shown.show(piece)
                    if also is not None:
                        await also.show(piece)
                    await nobody.look(latest.values())
        except TimeoutError:
            if not latest:  # the time was over before the first look
                latest = await _last_look(following, shown)
            living = [job_id for job_id in ids if job_id not in latest or not has_ended(latest[job_id])]
            if living:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_LOOK_S):
                        await nobody.look(latest.values())
                typer.echo(f"Not ended in time: {', '.join(living)}.", err=True)
                return NOT_IN_TIME
    return exit_code(latest.values())


async def _last_look(following: Following, shown: Screen) -> dict[str, JobView]:
    """Show the jobs as they are now, if the store answers."""
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(LAST_LOOK_S):
            piece = await following.look()
            await shown.show(piece)
            return {view.id: view for view in piece.views}
    return {}


def _until_interrupted(follow: Callable[[], int]) -> int:
    try:
        return follow()
    except KeyboardInterrupt:
        typer.echo("Stopped watching; whatever runs goes on.", err=True)
        raise


def _screen(port: Reach, *, as_json: bool) -> AbstractContextManager[Screen]:
    if as_json:
        return nullcontext(JsonLines())
    return _live(port) if printing.on_terminal() else nullcontext(Transitions())


def _live(port: Reach) -> AbstractContextManager[Screen]:
    from interlock.cli.live import LiveTable  # a pipe need not wait for rich

    return LiveTable(port.now)


class Transitions:
    """A line for each transition, for a pipe."""

    async def show(self, news: News) -> None:
        """One line each, there at once."""
        for step in news.steps:
            printing.print_row(job_sheets.step_row(step))


class Stages:
    """A line for each state that a job reaches, on stderr: stdout is for the results."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    async def show(self, news: News) -> None:
        """Tell which jobs are in another state than before."""
        for view in news.views:
            if self._states.get(view.id) != view.state:
                self._states[view.id] = view.state
                told = harmless(" ".join(job_sheets.said(view).split()))
                typer.echo(f"{view.id} {view.state} {told}".rstrip(), err=True)


class JsonLines:
    """A line of JSON for each transition, and one for each job when it has ended."""

    async def show(self, news: News) -> None:
        """One line each, there at once."""
        for step in news.steps:
            print_line({"step": step})
        for view in news.views:
            if has_ended(view):
                print_line({"job": view})


class Outcomes:
    """A line for each job, when it has ended."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    async def show(self, news: News) -> None:
        """How those ended that have."""
        for view in news.views:
            if not has_ended(view):
                continue
            if self._as_json:
                print_line(view)
            else:
                printing.print_row((view.id, view.state, job_sheets.said(view)))


class Remembered:
    """Nothing is shown."""

    def __init__(self) -> None:
        self.views: dict[str, JobView] = {}

    async def show(self, news: News) -> None:
        """Keep what is known."""
        self.views |= {view.id: view for view in news.views}


class NoWorker:
    """Says why no live worker takes a job that is waited for, once for each reason."""

    def __init__(self, port: Reach) -> None:
        self._port = port
        self._told: set[str] = set()
        self._next_look_at = float("-inf")

    async def look(self, views: Iterable[JobView]) -> None:
        """Look at what is pending, now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._next_look_at:
            return
        with suppress(StoreUnavailable):
            for told in await blocked(self._port.here.jobs, views):
                if told.blocked not in self._told:
                    self._told.add(told.blocked)
                    todo = f" → {told.todo}" if told.todo else ""
                    typer.echo(harmless(f"Waiting ({told.job_id}): {told.blocked}{todo}"), err=True)
        self._next_look_at = now + LOOK_FOR_WORKERS_S


class Trouble:
    """Says once that the store is away."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, error: StoreUnavailable) -> None:
        if not self._told:
            typer.echo(f"{error.sentence} Still trying; Ctrl-C ends this, not the job.", err=True)
        self._told = True
