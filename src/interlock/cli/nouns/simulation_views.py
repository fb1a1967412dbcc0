"""Simulations on the command line: search, columns and actions."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import typer

from interlock.cli import output, verbs
from interlock.cli.connection import actor, run_connected, run_in_store
from interlock.cli.options import parse_duration
from interlock.cli.output import Sheet, iso, lasting, print_struct, shown
from interlock.cli.verbs import ListPage, Noun, list_records
from interlock.errors import InvalidSimulation, UnknownSimulation
from interlock.lifecycles.simulation import SimulationState
from interlock.remote.service_connection import ServiceConnection
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.simulations.state_files import ImportResult
from interlock.systems.simulations.views import news_of
from interlock.text import counted
from interlock.wire.simulations import SimulationFilter, SimulationMetrics, SimulationNews, SimulationView

COLUMNS = ("id", "state", "steps", "scenario", "priority", "dangers", "worker", "created")
MOST_SOUGHT = 1_000


def show_list(
    store: str | None,
    text: str,
    statuses: tuple[str, ...],
    priority: str,
    *,
    limit: int,
    cursor: str,
    as_json: bool,
) -> None:
    """Print a page of simulations."""
    wanted = SimulationFilter(statuses=statuses, priority=priority, text=text)

    async def search(connection: ServiceConnection) -> ListPage[SimulationStory]:
        views, following = await connection.services.simulations.list_runs(wanted, cursor=cursor, limit=limit)
        return ListPage([SimulationStory(view) for view in views], following)

    def answer(page: ListPage[SimulationStory]) -> object:
        return {"simulations": [each.simulation for each in page.views], "cursor": page.cursor}

    list_records(NOUN, store, search, answer, as_json=as_json)


def metrics(store: str | None, text: str, names: tuple[str, ...], last: int | None, *, as_json: bool) -> None:
    """Print the metrics of a simulation.

    There is a line for each sample and a column for each metric.
    """

    async def work(port: ServiceConnection) -> SimulationMetrics:
        return await port.services.simulations.metrics(await whole_id(port, text))

    found = run_connected(store, work)
    for name in names:
        if name not in found.series:
            raise InvalidSimulation(
                f"The simulation {found.run_id} has recorded no metric {name}.",
                todo="Leave out --name to see all metrics.",
                facts={"run_id": found.run_id, "metric": name},
                allowed=tuple(found.series),
            )
    first = max(0, len(found.steps) - last) if last else 0
    series = {name: found.series[name][first:] for name in names or found.series}
    found = msgspec.structs.replace(found, steps=found.steps[first:], series=series)
    if as_json:
        print_struct(found)
        return
    rows = [
        (str(step), *("" if values[place] is None else f"{values[place]:g}" for values in series.values()))
        for place, step in enumerate(found.steps)
    ]
    output.print_sheets([Sheet("step", "", ("step", *series), rows)])
    if not found.steps:
        typer.echo(f"The simulation {found.run_id} has recorded no metrics.", err=True)
    elif found.stride > 1:
        typer.echo(f"Each line is the last of {found.stride} steps.", err=True)


def import_runs(store: str | None, folder: Path, task: str, *, as_json: bool) -> int:
    """Import runs from state files; return 1 if any could not be read."""

    async def work(port: EmbeddedOrchestrator) -> ImportResult:
        return await port.services.simulations.import_directory(folder, actor=actor(), task=task)

    imported = run_in_store(store, work)
    if as_json:
        print_struct(imported)
    else:
        again = dict.fromkeys(imported.without_state, "it has no state: a resume starts with step 1")
        rows = [(run_id, "imported", again.get(run_id, "")) for run_id in imported.made]
        rows += [(run_id, "was there", "") for run_id in imported.known]
        rows += [(path, "refused", why) for path, why in imported.refused.items()]
        output.print_sheets([Sheet("run", "", ("name", "what", "why"), rows)])
    return 1 if imported.refused else 0


def prune(store: str | None, older_than: str, *, as_json: bool) -> None:
    """Remove old simulations, batch by batch."""
    age: timedelta = parse_duration(older_than)

    async def work(port: EmbeddedOrchestrator) -> tuple[int, int]:
        removed, requests, more = 0, 0, True
        while more:
            pruned = await port.services.simulations.prune(age)
            removed, requests, more = removed + pruned.records, requests + pruned.requests, pruned.more
        return removed, requests

    removed, requests = run_in_store(store, work)
    if as_json:
        print_struct({"removed": removed, "requests": requests})
    else:
        print(f"Removed {counted(removed, 'simulation')} and {counted(requests, 'expired request id')}.")


async def whole_id(connection: ServiceConnection, text: str) -> str:
    """Return the id of a simulation from itself or a unique prefix."""
    simulations = connection.services.simulations
    try:
        return (await simulations.get(text)).run_id
    except UnknownSimulation:
        views, _ = await simulations.list_runs(SimulationFilter(text=text), limit=MOST_SOUGHT)
        names = (text, f"s_{text}")
        fitting = [view.run_id for view in views if view.run_id.startswith(names)]
        if len(fitting) != 1:
            raise
        return fitting[0]


class SimulationStory(msgspec.Struct, frozen=True):
    """A simulation, with its history if only one is shown."""

    simulation: SimulationView
    history: tuple[SimulationNews, ...] = ()


async def _story(connection: ServiceConnection, run_id: str) -> SimulationStory:
    entries = await connection.services.simulations.history(run_id)
    view = await connection.services.simulations.get(run_id)
    return SimulationStory(view, tuple(news for entry in entries for news in news_of(entry)))


def list_sheet(views: Sequence[SimulationStory], now: datetime, *, terminal: bool) -> Sheet:
    """Return one row for each simulation."""
    rows = [_row(each.simulation, now, terminal=terminal) for each in views]
    spare = ("worker", "priority", "dangers", "created")
    return Sheet("simulation", "", COLUMNS, rows, one_line=True, spare=spare)


def story_sheets(view: SimulationStory, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Return all tables about one simulation."""
    found = view.simulation
    facts = [(name, value) for name, value in _facts(found, now, terminal=terminal) if value]
    rows = [
        (shown(each.at, now, terminal=terminal), each.event, each.text, each.actor) for each in view.history
    ]
    return [
        Sheet("fact", f"Simulation {found.run_id}", ("name", "value"), facts),
        Sheet("event", "History", ("when", "to", "message", "by"), rows),
    ]


NOUN: Noun[SimulationStory] = Noun(
    name="simulation",
    id_of=lambda story: story.simulation.run_id,
    find=whole_id,
    get=_story,
    list_sheet=list_sheet,
    sheets=story_sheets,
)


def act(
    store: str | None,
    verb: str,
    text: str,
    reason: str,
    request_id: str | None,
    *,
    as_json: bool,
    **more: str,
) -> None:
    """Pause, resume or cancel a simulation, and print its status."""

    async def work(connection: ServiceConnection) -> SimulationView:
        run_id = await whole_id(connection, text)
        await connection.recover()  # the death of its worker may not have been noticed yet
        change: Callable[..., Awaitable[SimulationView]] = getattr(connection.services.simulations, verb)
        return await change(run_id, reason=reason, actor=actor(), request_id=request_id, **more)

    verbs.act(store, work, lambda view, _: [f"{view.run_id}\t{status_text(view)}"], as_json=as_json)


def _row(view: SimulationView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    return (
        view.run_id,
        status_text(view),
        steps_of(view),
        view.scenario_name or view.task,
        view.priority,
        str(view.danger_count or ""),
        view.worker_id or "",
        shown(view.created_at, now, terminal=terminal),
    )


def status_text(view: SimulationView) -> str:
    """Return the status, with the change that was requested."""
    if view.stale:
        return f"{view.status} (stale)"
    if view.resuming:
        return f"{view.status} (resuming)"
    wanted = "cancelling" if view.cancel_requested else "pausing" if view.pause_requested else ""
    return f"{view.status} ({wanted})" if wanted and view.status == "running" else view.status


def steps_of(view: SimulationView) -> str:
    """Return the progress in steps."""
    return f"{view.current_step}/{view.total_steps}" if view.total_steps else str(view.current_step)


def _facts(view: SimulationView, now: datetime, *, terminal: bool) -> list[tuple[str, str]]:
    result = bytes(view.result).decode() if isinstance(view.result, msgspec.Raw) else ""
    return [
        ("status", status_text(view)),
        ("steps", steps_of(view)),
        ("saved", f"after step {view.saved_step}" if view.saved_step else ""),
        ("scenario", " ".join(filter(None, (view.scenario_name, view.scenario_path)))),
        ("task", view.task),
        ("arguments", bytes(view.input).decode()),
        ("priority", view.priority),
        ("dangers", str(view.danger_count or "")),
        ("worker", view.worker_id or ""),
        ("job", view.job_id),
        ("created", shown(view.created_at, now, terminal=terminal)),
        ("started", shown(view.started_at, now, terminal=terminal)),
        ("paused", shown(view.paused_at, now, terminal=terminal)),
        ("completed", shown(view.completed_at, now, terminal=terminal)),
        ("heard", shown(view.last_heartbeat, now, terminal=terminal)),
        ("error", view.error or ""),
        ("trouble", view.trouble),
        ("result", result),
        ("version", f"{view.version}"),
        ("now", "" if terminal else iso(now)),
    ]


MEASURED = 20
"""Number of readings over which the rate is measured."""


class StepRate:
    """The rate of a simulation, and the time that is left at this rate."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=MEASURED)

    def note(self, at_s: float, step: int) -> None:
        """Record that it has reached this step."""
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((at_s, step))

    @property
    def rate(self) -> float | None:
        """Steps per second; None if unknown."""
        if len(self._seen) < 2:
            return None
        (began, first), (last, step) = self._seen[0], self._seen[-1]
        return (step - first) / (last - began) if last > began and step > first else None

    def left_s(self, view: SimulationView) -> float | None:
        """Return how many seconds are left; None if unknown."""
        if self.rate is None or not view.total_steps or view.status != SimulationState.RUNNING:
            return None
        return max(view.total_steps - view.current_step, 0) / self.rate

    def text(self, view: SimulationView) -> str:
        """Return both as text."""
        rate = f"{self.rate:.1f}/s" if self.rate is not None else ""
        left = self.left_s(view)
        return " ".join(filter(None, (rate, f"{lasting(left)} left" if left is not None else "")))
