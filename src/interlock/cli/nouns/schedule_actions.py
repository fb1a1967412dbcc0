"""Create, list, show, run and change schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import typer

from interlock.cli import output, project, verbs
from interlock.cli.connection import actor, run_connected
from interlock.cli.journal import entries_sheet
from interlock.cli.nouns.job_submit import SubmitOptions, specs_for
from interlock.cli.output import Sheet, ago, iso, print_struct, shown
from interlock.cli.verbs import ListPage, Noun, list_records
from interlock.errors import InvalidSchedule
from interlock.lifecycles.schedule import ACTIVE, ENDED, PAUSED
from interlock.remote.reach import Reach
from interlock.store.records import Entry
from interlock.text import counted, harmless
from interlock.wire.calendar import zone_named
from interlock.wire.schedules import Backfilled, FireView, ScheduleView
from interlock.worker.schedules import DeclaredSchedule, read_schedule
from interlock.worker.tasks import load_tasks

PAGE = 1_000


def create(
    store: str | None,
    name: str,
    words: Sequence[str],
    when: dict[str, Any],
    options: dict[str, Any],
    *,
    module: str | None,
    unchecked: bool,
    update: bool,
    request_id: str | None,
    as_json: bool,
) -> None:
    """Create a schedule, or change it."""
    here = project.load(store)
    chosen = SubmitOptions(
        task=words[0], arguments=tuple(words[1:]), module=module, unchecked=unchecked, options=options
    )
    (job,) = specs_for(chosen, here, ())
    spec = read_schedule({**when, "job": job})

    async def work(port: Reach) -> ScheduleView:
        act = port.here.schedules.put if update else port.here.schedules.create
        return await act(name, spec, actor=actor(), request_id=request_id)

    verbs.act(store, work, lines, as_json=as_json)


def apply(store: str | None, module: str | None, *, as_json: bool) -> None:
    """Register the declared schedules."""
    here = project.load(store)
    module = module or here.worker.module
    declared: dict[str, DeclaredSchedule] = {
        **(load_tasks(module).schedules if module else {}),
        **here.schedules,
    }
    if not declared:
        raise InvalidSchedule(
            "No schedule is declared" + (f" in {module}." if module else "."),
            todo=f"Declare one with @schedule, or as [schedules.NAME] in {project.FILE}.",
        )

    async def work(port: Reach) -> list[ScheduleView]:
        return [
            await port.here.schedules.put(name, each.spec, source=each.source, actor=actor())
            for name, each in declared.items()
        ]

    def all_lines(views: list[ScheduleView], now: datetime) -> list[str]:
        return [sentence(view, now) for view in views]

    verbs.act(store, work, all_lines, as_json=as_json)


def list_schedules(store: str | None, state: str, *, everything: bool, as_json: bool) -> None:
    """Print schedules, by name."""
    known = tuple(map(str, (ACTIVE, PAUSED, ENDED)))
    if state and state not in known:
        raise typer.BadParameter(f"{state!r} is none of {', '.join(known)}", param_hint="--state")
    states = (state,) if state else known if everything else known[:2]

    async def search(reach: Reach) -> ListPage[ScheduleView]:
        found: list[ScheduleView] = []
        cursor = ""
        while True:
            page, cursor = await reach.here.schedules.find(states=states, limit=PAGE, cursor=cursor)
            found += page
            if not cursor:
                return ListPage(sorted(found, key=lambda view: view.name))

    none = "There is no schedule" + (f" that is {state}." if state else ".")
    list_records(NOUN, store, search, as_json=as_json, none=none)


def history(store: str | None, name: str, *, as_json: bool) -> None:
    """Print the history of a schedule."""

    async def work(port: Reach) -> tuple[list[Entry], datetime]:
        return await port.here.schedules.history(name), await port.now()

    entries, now = run_connected(store, work)
    if as_json:
        print_struct(entries)
        return
    terminal = output.on_terminal()
    sheet = entries_sheet(name, entries, now, terminal=terminal, versions=False, initial=str(ACTIVE))
    output.print_sheets([sheet])


def show_next(store: str | None, name: str, count: int, *, as_json: bool) -> None:
    """Print the next fire times."""

    async def work(port: Reach) -> tuple[tuple[datetime, ...], ScheduleView, datetime]:
        schedules = port.here.schedules
        return await schedules.next(name, count), await schedules.get(name), await port.now()

    times, view, now = run_connected(store, work)
    if as_json:
        print_struct(times)
        return
    zone, terminal = zone_named(view.spec.tz), output.on_terminal()
    rows = [
        (at.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %Z") if terminal else iso(at), ago(at, now))
        for at in times
    ]
    output.print_sheets([Sheet("fire", view.text, ("fires", "in"), rows)])
    if not times:
        typer.echo(f"{name} is {view.state} and has no further fire.", err=True)


def change(store: str | None, verb: str, name: str, reason: str, *, as_json: bool) -> None:
    """Pause, resume or delete a schedule."""

    async def work(port: Reach) -> ScheduleView:
        view: ScheduleView = await getattr(port.here.schedules, verb)(name, reason=reason, actor=actor())
        return view

    verbs.act(store, work, lines, as_json=as_json)


def run(store: str | None, name: str, reason: str, request_id: str | None, *, as_json: bool) -> None:
    """Submit a job now."""

    async def work(port: Reach) -> FireView:
        return await port.here.schedules.run(name, reason=reason, actor=actor(), request_id=request_id)

    fire = run_connected(store, work)
    if as_json:
        print_struct(fire)
    else:
        typer.echo(fire.job_id)


def backfill(
    store: str | None,
    name: str,
    since: str,
    until: str,
    *,
    queued: bool,
    dry_run: bool,
    reason: str,
    request_id: str | None,
    as_json: bool,
) -> None:
    """Submit jobs of the past, or print the fire times that would get one."""

    async def work(port: Reach) -> Backfilled:
        return await port.here.schedules.backfill(
            name,
            since,
            until,
            queued=queued,
            dry_run=dry_run,
            reason=reason,
            actor=actor(),
            request_id=request_id,
        )

    done = run_connected(store, work)
    if as_json:
        print_struct(done)
        return
    for fire in done.jobs:
        output.print_row((fire.job_id, iso(fire.scheduled_for)))
    for at in done.fires:
        output.print_row((iso(at),))
    if dry_run:
        typer.echo(f"{counted(len(done.fires), 'fire time')} would get a job.", err=True)
    if done.waiting:
        typer.echo(f"{counted(done.waiting, 'fire')} will be submitted one after the other.", err=True)
    if done.present:
        typer.echo(f"{counted(done.present, 'fire time')} had a job already.", err=True)


def list_sheet(views: Sequence[ScheduleView], now: datetime, *, terminal: bool) -> Sheet:
    """Return one row for each schedule."""
    rows = [
        (
            view.name,
            view.state,
            view.text,
            shown(view.next_at, now, terminal=terminal),
            view.spec.job.task,
            view.recent[0].state if view.recent else "",
        )
        for view in views
    ]
    columns = ("name", "state", "fires", "next", "task", "last job")
    return Sheet("schedule", "Schedules", columns, rows, spare=("task",))


def sheets(view: ScheduleView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Return one schedule with its last jobs."""
    spec = view.spec
    facts = [
        ("state", view.state),
        ("task", spec.job.task),
        ("input", msgspec.json.encode(spec.job.input).decode()),
        ("queue", spec.job.queue),
        ("fires", spec.cron or spec.every or " ".join(spec.at)),
        ("zone", spec.tz),
        ("jitter", spec.jitter),
        ("catch up", f"all, up to {spec.catch_up_limit}" if spec.catch_up == "all" else spec.catch_up),
        ("overlap", spec.overlap),
        ("next", shown(view.next_at, now, terminal=terminal)),
        ("last", shown(view.last_at, now, terminal=terminal)),
        ("submitted", str(view.submitted)),
        ("skipped", str(view.skipped)),
        ("waiting", str(len(view.waiting) or "")),
        ("declared in", view.source),
        ("changed by", view.by),
        ("reason", view.reason),
    ]
    rows = [(noun, value) for noun, value in facts if value]
    jobs = [(iso(fire.scheduled_for), fire.job_id, fire.state or "pruned", fire.how) for fire in view.recent]
    return [
        Sheet("fact", "", ("name", "value"), rows),
        Sheet("job", "Last jobs", ("scheduled for", "id", "state", "how"), jobs),
    ]


def lines(view: ScheduleView, now: datetime) -> list[str]:
    """Return the schedule in a sentence."""
    return [sentence(view, now)]


def sentence(view: ScheduleView, now: datetime) -> str:
    """Return a schedule in a sentence: "nightly-report: every weekday at 02:00 in Berlin; next in 5 h"."""
    if view.state == PAUSED:
        then = f"paused{f' ({view.reason})' if view.reason else ''}"
    elif view.next_at is None:
        then = "ended"
    else:
        then = f"next {ago(view.next_at, now)}"
    return harmless(f"{view.name}: {view.text}; {then}")


NOUN: Noun[ScheduleView] = Noun(
    name="schedule",
    get=lambda reach, name: reach.here.schedules.get(name),
    list_sheet=list_sheet,
    lines=lines,
    sheets=sheets,
)
