"""Follow jobs live: `job watch`, `job wait` and `job tree`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from interlock.cli import output, watch
from interlock.cli.connection import run_connected
from interlock.cli.journal import step_row
from interlock.cli.nouns.job_views import blocked, chosen, job_status, progress_text, whole_id
from interlock.cli.output import iso, print_line, print_struct, span
from interlock.cli.watch import NOT_IN_TIME, JobFollower, News, Outage, Screen, exit_code, has_ended, looks
from interlock.errors import StoreUnavailable
from interlock.lifecycles import job
from interlock.remote.service_connection import ServiceConnection
from interlock.text import counted, harmless
from interlock.wire.jobs import JobView, TreeNode, TreeView

if TYPE_CHECKING:
    from rich.text import Text

CONTINUES = "Stopped watching; the jobs continue."
LOOK_FOR_WORKERS_S = 5.0
"""Interval of the check for a worker that takes the pending jobs."""
LAST_LOOK_S = 20.0
"""Deadline for the store to answer after the timeout."""


def watch_jobs(store: str | None, words: Sequence[str], timeout_s: float | None, *, as_json: bool) -> int:
    """Follow jobs until they end and show their steps; return the exit code."""

    async def work(port: ServiceConnection) -> int:
        ids = await _chosen_ids(port, words)
        return await _followed(port, ids, _screen(port, as_json=as_json), timeout_s)

    return watch.until_interrupted(store, work, CONTINUES)


def wait(store: str | None, words: Sequence[str], timeout_s: float | None, *, as_json: bool) -> int:
    """Wait for jobs to end and print their outcomes; return the exit code."""

    async def work(port: ServiceConnection) -> int:
        ids = await _chosen_ids(port, words)
        return await _followed(port, ids, nullcontext(Outcomes(as_json=as_json)), timeout_s, steps=False)

    return watch.until_interrupted(store, work, CONTINUES)


async def follow(
    port: ServiceConnection, ids: Sequence[str], timeout_s: float | None, *, verbose: bool
) -> tuple[int, list[JobView]]:
    """Follow new jobs; return the exit code and the jobs as they ended.

    Show the state of each, or every transition with `verbose`, as `watch` does.
    """
    last = LastViews()
    if verbose:
        screen = _screen(port, as_json=False)
    else:
        screen = _live(port) if output.on_terminal() else nullcontext(StateLines())
    code = await _followed(port, ids, screen, timeout_s, steps=verbose, also=last)
    return code, [last.views[job_id] for job_id in ids if job_id in last.views]


async def follow_quietly(
    port: ServiceConnection, ids: Sequence[str], timeout_s: float | None
) -> tuple[int, list[JobView]]:
    """Follow jobs without output; return the exit code and the ended jobs."""
    last = LastViews()
    code = await _followed(port, ids, nullcontext(last), timeout_s, steps=False)
    return code, [last.views[job_id] for job_id in ids if job_id in last.views]


async def _chosen_ids(port: ServiceConnection, words: Sequence[str]) -> list[str]:
    views = await chosen(port, words)
    if not views:
        typer.echo("No job matches.", err=True)
    return [view.id for view in views]


async def _followed(
    port: ServiceConnection,
    ids: Sequence[str],
    screen: AbstractContextManager[Screen[[News]]],
    timeout_s: float | None,
    *,
    steps: bool = True,
    also: Screen[[News]] | None = None,
) -> int:
    latest: dict[str, JobView] = {}
    following = JobFollower(port, ids, with_steps=steps, on_outage=Outage())
    no_worker = NoWorker(port)
    with screen as shown:
        try:
            async with asyncio.timeout(timeout_s), aclosing(following.news()) as news:
                async for piece in news:
                    latest |= {view.id: view for view in piece.views}
                    await shown.show(piece)
                    if also is not None:
                        await also.show(piece)
                    await no_worker.look(latest.values())
        except TimeoutError:
            if not latest:  # the time was over before the jobs were first read
                latest = await _last_look(following, shown)
            living = [job_id for job_id in ids if job_id not in latest or not has_ended(latest[job_id])]
            if living:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_LOOK_S):
                        await no_worker.look(latest.values())
                typer.echo(f"Not ended in time: {', '.join(living)}.", err=True)
                return NOT_IN_TIME
    return exit_code(latest.values())


async def _last_look(following: JobFollower, shown: Screen[[News]]) -> dict[str, JobView]:
    """Show the current jobs, if the store answers."""
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(LAST_LOOK_S):
            piece = await following.look()
            await shown.show(piece)
            return {view.id: view for view in piece.views}
    return {}


def _screen(port: ServiceConnection, *, as_json: bool) -> AbstractContextManager[Screen[[News]]]:
    return watch.screen(as_json=as_json, structs=_structs, rows=_rows, live=lambda: _live(port))


def _live(port: ServiceConnection) -> AbstractContextManager[Screen[[News]]]:
    from interlock.cli.live import LiveTable  # a pipe does not need rich, which is slow to import

    return LiveTable(port.now)


def _rows(news: News) -> Iterator[Sequence[str]]:
    yield from (step_row(step) for step in news.steps)


def _structs(news: News) -> Iterator[object]:
    yield from ({"step": step} for step in news.steps)
    yield from ({"job": view} for view in news.views if has_ended(view))


class StateLines:
    """A line for each state that a job reaches, on stderr: stdout is for the results."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    async def show(self, news: News) -> None:
        """Print jobs whose state has changed."""
        for view in news.views:
            if self._states.get(view.id) != view.state:
                self._states[view.id] = view.state
                status = harmless(" ".join(job_status(view).split()))
                typer.echo(f"{view.id} {view.state} {status}".rstrip(), err=True)


class Outcomes:
    """A line for each job, when it has ended."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    async def show(self, news: News) -> None:
        """Print the jobs that have ended."""
        for view in news.views:
            if not has_ended(view):
                continue
            if self._as_json:
                print_line(view)
            else:
                output.print_row((view.id, view.state, job_status(view)))


class LastViews:
    """Keeps the latest view of each job, without a display."""

    def __init__(self) -> None:
        self.views: dict[str, JobView] = {}

    async def show(self, news: News) -> None:
        """Keep the latest views."""
        self.views |= {view.id: view for view in news.views}


class NoWorker:
    """Reports why no live worker takes a job, once for each reason."""

    def __init__(self, port: ServiceConnection) -> None:
        self._port = port
        self._shown: set[str] = set()
        self._next_look_at = float("-inf")

    async def look(self, views: Iterable[JobView]) -> None:
        """Check the pending jobs, now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._next_look_at:
            return
        with suppress(StoreUnavailable):
            for explanation in await blocked(self._port.services.jobs, views):
                if explanation.blocked not in self._shown:
                    self._shown.add(explanation.blocked)
                    todo = f" → {explanation.todo}" if explanation.todo else ""
                    typer.echo(
                        harmless(f"Waiting ({explanation.job_id}): {explanation.blocked}{todo}"), err=True
                    )
        self._next_look_at = now + LOOK_FOR_WORKERS_S


MOST_CHILDREN = 20
"""Maximum number of children on a terminal; beyond it only unfinished ones are shown, and the rest is
counted.
"""
WAITS = {
    "children": "waits for its children",
    "place": "waits for a place",
    "signal": "waits for a signal",
    "approval": "waits for a person",
}


class TreeBranch(msgspec.Struct, frozen=True):
    """A job of a tree and those below it."""

    node: TreeNode
    below: list[TreeBranch]


def show_tree(
    store: str | None, text: str, *, most: int, once: bool, everything: bool, as_json: bool
) -> None:
    """Print the tree, kept up to date on a terminal until all has ended."""
    live = output.on_terminal() and not once and not as_json

    async def work(port: ServiceConnection) -> tuple[TreeView, datetime]:
        job_id = await whole_id(port, text)
        if live:
            await _follow(port, job_id, most, None if everything else MOST_CHILDREN)
        return await port.services.jobs.tree(job_id, most=most), await port.now()

    view, now = run_connected(store, work)
    if as_json:
        print_struct(view)
    elif not output.on_terminal():
        output.print_sheets([sheet_of(view)])
    elif not live:
        _print(view, now, None if everything else MOST_CHILDREN)
    if view.cut:
        typer.echo(f"The tree has more jobs: --limit {2 * most} shows more of them.", err=True)


def sheet_of(view: TreeView) -> output.Sheet:
    """Return one row for each job, for a pipe."""
    columns = ("id", "depth", "parent", "state", "task", "started", "ended", "cost", "tree cost", "message")
    rows = [
        (
            node.id,
            str(node.depth),
            node.parent_job_id or "",
            node.state,
            node.task,
            iso(node.started_at),
            iso(node.completed_at),
            _amount(node.cost),
            _amount(node.tree_cost),
            node_status(node),
        )
        for node in view.nodes
    ]
    return output.Sheet("node", "", columns, rows)


def tree_of(nodes: Sequence[TreeNode]) -> TreeBranch:
    """Return the tree of nodes that stand in depth-first order."""
    root = TreeBranch(nodes[0], [])
    path = [root]
    for node in nodes[1:]:
        del path[node.depth :]
        branch = TreeBranch(node, [])
        path[-1].below.append(branch)
        path.append(branch)
    return root


def lines_of(
    branch: TreeBranch, most: int | None, ahead: str = "", turn: str = ""
) -> Iterator[tuple[str, TreeNode | str]]:
    """Yield each job, or a summary of hidden jobs, with its tree lines."""
    yield ahead + turn, branch.node
    ahead += "" if not turn else ("   " if turn.startswith("└") else "│  ")
    shown = branch.below
    if most is not None and len(shown) > most:
        living = [each for each in shown if each.node.state not in job.ENDED]
        shown = living[:most]
    rest = len(branch.below) - len(shown)
    for place, child in enumerate(shown, 1):
        last = place == len(shown) and not rest
        yield from lines_of(child, most, ahead, "└─ " if last else "├─ ")
    if rest:
        names = {each.node.id for each in shown}
        states = Counter(each.node.state for each in branch.below if each.node.id not in names)
        counts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        yield f"{ahead}└─ ", f"{rest} more: {counts}"


def node_status(node: TreeNode) -> str:
    """Return the failure, stop reason, wait or progress of a job."""
    if node.failure is not None:
        return f"{node.failure.failure_class}: {node.failure.error}"
    if node.stop_reason is not None:
        return f"stopped: {node.stop_reason}" if node.completed_at else f"stopping: {node.stop_reason}"
    if node.completed_at is None and node.waits_for:
        return WAITS.get(node.waits_for, node.waits_for)
    if node.completed_at is None and node.progress is not None:
        return progress_text(node.progress)
    return node.description


async def _follow(port: ServiceConnection, job_id: str, most: int, children: int | None) -> None:
    from rich.live import Live

    from interlock.cli.tables import console_here

    def is_over(view: TreeView) -> bool:
        return all(state in job.ENDED for state in view.states)

    trees = looks(port, lambda: port.services.jobs.tree(job_id, most=most), is_over)
    with Live(console=console_here(), auto_refresh=False, vertical_overflow="crop") as live:
        async with aclosing(trees):
            async for view in trees:
                live.update(_drawing(view, await port.now(), children), refresh=True)


def _print(view: TreeView, now: datetime, children: int | None) -> None:
    from interlock.cli.tables import console_here

    console_here().print(_drawing(view, now, children))


def _drawing(view: TreeView, now: datetime, children: int | None) -> Text:
    from rich.text import Text

    lines = [_line(ahead, what, now) for ahead, what in lines_of(tree_of(view.nodes), children)]
    counts = ", ".join(f"{number} {state}" for state, number in sorted(view.states.items()))
    cost = view.nodes[0].tree_cost
    summary = f"{counted(len(view.nodes), 'job')}: {counts}" + (
        f"; cost {cost:g}" if cost is not None else ""
    )
    return Text("\n").join([*lines, Text(summary, style="dim")])


def _line(ahead: str, what: TreeNode | str, now: datetime) -> Text:
    from rich.text import Text

    from interlock.cli.tables import style_of

    line = Text(ahead, style="dim", no_wrap=True, overflow="ellipsis")
    if isinstance(what, str):
        return line.append(what, style="dim")
    line.append(f"{what.id} ", style="bold")
    line.append(f"{harmless(what.task)} ", style="")
    line.append(what.state, style=style_of(what.state))
    if what.started_at is not None:
        line.append(f"  {span(what.started_at, what.completed_at, now)}", style="dim")
    if what.tree_cost is not None:
        line.append(f"  {what.tree_cost:g}", style="dim")
    if status := node_status(what):
        line.append(f"  {harmless(' '.join(status.split()))}", style="italic")
    return line


def _amount(cost: float | None) -> str:
    return "" if cost is None else f"{cost:g}"
