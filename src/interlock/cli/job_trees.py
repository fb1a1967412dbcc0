"""What `interlock job tree` does: a tree of jobs on a terminal while it grows, works and ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from interlock.cli import printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import ask
from interlock.cli.finding import whole_id
from interlock.cli.following import POLL_S, called_or_time
from interlock.cli.job_sheets import progress_text
from interlock.cli.times import iso, lasting
from interlock.lifecycles import job
from interlock.plurals import counted
from interlock.remote.interfaces import Reach
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.harmless import harmless
from interlock.wire.trees import TreeNode, TreeView

if TYPE_CHECKING:
    from rich.text import Text

MOST_CHILDREN = 20
"""Of more children than that, those are shown on a terminal that have not ended, and the rest is counted."""
WAITS = {"children": "waits for its children", "place": "waits for a place"}


class Twig(msgspec.Struct, frozen=True):
    """A job of a tree and those below it."""

    node: TreeNode
    below: list[Twig]


def show(store: str | None, text: str, *, most: int, once: bool, everything: bool, as_json: bool) -> None:
    """Print the tree; on a terminal it stays up to date until all of it has ended."""
    live = printing.on_terminal() and not once and not as_json

    async def work(port: Reach) -> tuple[TreeView, datetime]:
        job_id = await whole_id(port.here.jobs, text)
        if live:
            await _follow(port, job_id, most, None if everything else MOST_CHILDREN)
        return await port.here.jobs.tree(job_id, most=most), await port.now()

    view, now = ask(store, work)
    if as_json:
        print_struct(view)
    elif not printing.on_terminal():
        printing.print_sheets([sheet_of(view)])
    elif not live:
        _print(view, now, None if everything else MOST_CHILDREN)
    if view.cut:
        typer.echo(f"There is more than is shown: --limit {2 * most} shows more of it.", err=True)


def sheet_of(view: TreeView) -> printing.Sheet:
    """One line for each job, for a pipe."""
    columns = ("id", "depth", "parent", "state", "task", "started", "ended", "cost", "tree cost", "says")
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
            says(node),
        )
        for node in view.nodes
    ]
    return printing.Sheet("node", "", columns, rows)


def twigs_of(nodes: Sequence[TreeNode]) -> Twig:
    """The nodes as the tree that they are: each comes after its parent, and before its parent's siblings."""
    root = Twig(nodes[0], [])
    path = [root]
    for node in nodes[1:]:
        del path[node.depth :]
        twig = Twig(node, [])
        path[-1].below.append(twig)
        path.append(twig)
    return root


def lines_of(
    twig: Twig, most: int | None, ahead: str = "", turn: str = ""
) -> Iterator[tuple[str, TreeNode | str]]:
    """What is drawn before each job, and the job; or, in words, those that are not shown one by one."""
    yield ahead + turn, twig.node
    ahead += "" if not turn else ("   " if turn.startswith("└") else "│  ")
    shown = twig.below
    if most is not None and len(shown) > most:
        living = [each for each in shown if each.node.state not in job.ENDED]
        shown = living[:most]
    rest = len(twig.below) - len(shown)
    for place, child in enumerate(shown, 1):
        last = place == len(shown) and not rest
        yield from lines_of(child, most, ahead, "└─ " if last else "├─ ")
    if rest:
        names = {each.node.id for each in shown}
        states = Counter(each.node.state for each in twig.below if each.node.id not in names)
        told = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        yield f"{ahead}└─ ", f"{rest} more: {told}"


def says(node: TreeNode) -> str:
    """What a job says about itself: why it failed, what stops it, what it waits for, how far it is."""
    if node.failure is not None:
        return f"{node.failure.failure_class}: {node.failure.error}"
    if node.stop_reason is not None:
        return f"stopped: {node.stop_reason}" if node.completed_at else f"stopping: {node.stop_reason}"
    if node.completed_at is None and node.waits_for:
        return WAITS.get(node.waits_for, node.waits_for)
    if node.completed_at is None and node.progress is not None:
        return progress_text(node.progress)
    return node.description


async def _follow(port: Reach, job_id: str, most: int, children: int | None) -> None:
    from rich.live import Live

    from interlock.cli.tables import console_here

    called = asyncio.Event()
    stop = port.here.store.subscribe(waker(called))
    try:
        with Live(console=console_here(), auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                called.clear()
                view = await port.here.jobs.tree(job_id, most=most)
                live.update(_drawing(view, await port.now(), children), refresh=True)
                if all(state in job.ENDED for state in view.states):
                    return
                await port.recover()
                await called_or_time(called, POLL_S)
    finally:
        stop()


def _print(view: TreeView, now: datetime, children: int | None) -> None:
    from interlock.cli.tables import console_here

    console_here().print(_drawing(view, now, children))


def _drawing(view: TreeView, now: datetime, children: int | None) -> Text:
    from rich.text import Text

    lines = [_line(ahead, what, now) for ahead, what in lines_of(twigs_of(view.nodes), children)]
    told = ", ".join(f"{number} {state}" for state, number in sorted(view.states.items()))
    cost = view.nodes[0].tree_cost
    summary = f"{counted(len(view.nodes), 'job')}: {told}" + (f"; cost {cost:g}" if cost is not None else "")
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
        taken = ((what.completed_at or now) - what.started_at).total_seconds()
        line.append(f"  {lasting(max(0.0, taken))}", style="dim")
    if what.tree_cost is not None:
        line.append(f"  {what.tree_cost:g}", style="dim")
    if told := says(what):
        line.append(f"  {harmless(' '.join(told.split()))}", style="italic")
    return line


def _amount(cost: float | None) -> str:
    return "" if cost is None else f"{cost:g}"
