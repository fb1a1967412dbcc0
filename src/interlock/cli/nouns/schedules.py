"""Commands `interlock schedule …`: submit jobs at certain times.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import DryRun, Json, Place, add_views, epilog, examples, parse_seconds
from interlock.errors import InvalidSchedule
from interlock.text import counted, harmless

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from interlock.cli.output import Sheet
    from interlock.cli.verbs import ListPage, Noun
    from interlock.remote.service_connection import ServiceConnection
    from interlock.store.records import Entry
    from interlock.wire.schedules import Backfilled, FireView, ScheduleView
    from interlock.worker.schedules import DeclaredSchedule


WHEN = """\b
WHEN is one of
  --cron '0 2 * * 1-5'          minute, hour, day, month, weekday; also @hourly, @daily, @weekly, @monthly
  --every 15m                   an interval: 30s, 15m, 12h, 7d
  --at 2026-12-24T18:00         a single time (repeatable)
A local time that does not exist fires right after the gap; one that exists twice fires once."""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the schedule.", autocompletion=completion.ids)
]
Reason = Annotated[str, typer.Option(help="Reason, for the journal.")]
RequestId = Annotated[
    str | None, typer.Option(metavar="ID", help="Idempotency key: repeating the command is safe.")
]

app: typer.Typer = typer.Typer(
    help="Submit jobs at certain times.", no_args_is_help=True, rich_markup_mode=None
)


def _noun() -> Noun[ScheduleView]:
    from interlock.cli.verbs import Noun

    return Noun(
        name="schedule",
        get=lambda connection, name: connection.services.schedules.get(name),
        list_sheet=list_sheet,
        lines=lines,
        sheets=sheets,
    )


@app.callback()
def schedule() -> None:
    """Submit jobs at certain times."""


@app.command(
    "create",
    epilog=epilog(
        WHEN,
        examples(
            "schedule create nightly-report shop.tasks:report --cron '0 2 * * 1-5' --tz Europe/Berlin",
            "schedule create poll shop.tasks:poll url=https://example.org --every 15m --jitter 1m",
            "schedule create poll shop.tasks:poll url=https://example.org --every 5m --update",
            "schedule create party shop.tasks:invite --at 2026-12-24T18:00 --tz Europe/Berlin",
        ),
    ),
)
def create(
    name: Name,
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="Task to submit, such as shop.tasks:report.",
            autocompletion=completion.task_names,
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON | KEY=VALUE...]", help="Arguments of the task.")
    ] = None,
    cron: Annotated[str, typer.Option(metavar="EXPRESSION", help="Cron expression.")] = "",
    every: Annotated[str, typer.Option(metavar="TIME", help="Interval, such as 15m.")] = "",
    at: Annotated[
        list[str] | None, typer.Option(metavar="TIME", help="Single fire time; repeatable.")
    ] = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="Time zone (default UTC).")] = "UTC",
    start: Annotated[str, typer.Option(metavar="TIME", help="No fire before this date or time.")] = "",
    end: Annotated[str, typer.Option(metavar="TIME", help="No fire after this date or time.")] = "",
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="DATE", help="No fire on this date, or FIRST..LAST; repeatable."),
    ] = None,
    jitter: Annotated[str, typer.Option(metavar="TIME", help="Delay each fire by up to this time.")] = "",
    catch_up: Annotated[
        str, typer.Option(metavar="WHICH", help="Missed fires to submit: none, latest (default) or all.")
    ] = "latest",
    catch_up_limit: Annotated[
        int, typer.Option(metavar="N", help="With --catch-up all: maximum number of jobs (default 10).")
    ] = 10,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="HOW", help="If the previous job has not ended: skip (default), queue, cancel or allow."
        ),
    ] = "skip",
    module: Annotated[
        str | None, typer.Option("--from", metavar="MODULE", help="Read the task from MODULE.")
    ] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Skip the local task lookup.")] = False,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="Queue to submit to.", autocompletion=completion.queue_names),
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Priority; higher runs first.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="Require workers with this label.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Timeout of one attempt.")] = None,
    retries: Annotated[int | None, typer.Option(help="Maximum number of retries after a failure.")] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Description, shown in lists.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Change the schedule if it exists.")] = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Create a schedule that submits a job at certain times."""
    when = {
        "cron": cron,
        "every": every,
        "at": tuple(at or ()),
        "tz": tz,
        "start": start,
        "end": end,
        "exclude": tuple(exclude or ()),
        "jitter": jitter,
        "catch_up": catch_up,
        "catch_up_limit": catch_up_limit,
        "overlap": overlap,
    }
    options = {
        "queue": queue,
        "priority": priority,
        "labels": tuple(labels or ()) or None,
        "timeout_s": parse_seconds(timeout),
        "retries": retries,
        "description": description,
    }
    put_schedule(
        store,
        name,
        (task, *(arguments or ())),
        when,
        {key: value for key, value in options.items() if value is not None},
        module=module,
        unchecked=unchecked,
        update=update,
        request_id=request_id,
        as_json=as_json,
    )


@app.command(
    "apply",
    epilog=examples("schedule apply shop.tasks", "schedule apply --server https://jobs.example.org:8088"),
)
def apply(
    module: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE",
            help="Module with the tasks (default: `module` below [worker] in interlock.toml).",
        ),
    ] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Register the declared schedules, as a starting worker does.

    These are the schedules of the module and of interlock.toml.
    """
    put_declared(store, module, as_json=as_json)


@app.command(
    "list", cls=RecordsCommand, epilog=examples("schedule list", "schedule list --state paused --json")
)
def list_schedules(
    state: Annotated[
        str, typer.Option(metavar="STATE", help="Only active, paused or ended ones (default: all but ended).")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Also ended schedules.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List schedules with their times and the outcome of their last job."""
    print_schedules(store, state, everything=everything, as_json=as_json)


add_views(
    app,
    "schedule",
    _noun,
    "nightly-report",
    argument=Name,
    show="Show a schedule, its next fire and its last jobs.",
)


@app.command("history", cls=RecordsCommand, epilog=examples("schedule history nightly-report"))
def history(name: Name, store: Place = None, as_json: Json = False) -> None:
    """Show the history of a schedule."""
    print_history(store, name, as_json=as_json)


@app.command(
    "next", epilog=examples("schedule next nightly-report", "schedule next nightly-report --count 3")
)
def show_next(
    name: Name,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="Number of fire times (default 10).")] = 10,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show the next fire times, in the time zone of the schedule."""
    print_next(store, name, count, as_json=as_json)


@app.command(
    "pause", epilog=examples("schedule pause nightly-report --reason 'the warehouse is being moved'")
)
def pause(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Pause a schedule.

    Fires that pass in the meantime are not caught up.
    """
    _act(store, "pause", name, reason, as_json=as_json)


@app.command("resume", epilog=examples("schedule resume nightly-report"))
def resume(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Submit jobs again, from the next fire on."""
    _act(store, "resume", name, reason, as_json=as_json)


@app.command("delete", epilog=examples("schedule delete nightly-report --reason 'no longer needed'"))
def delete(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """End a schedule; jobs it has submitted are not stopped."""
    _act(store, "delete", name, reason, as_json=as_json)


@app.command(
    "run", epilog=examples("schedule run nightly-report", "job watch $(interlock schedule run poll)")
)
def run(
    name: Name,
    reason: Reason = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit a job of the schedule now and print its id."""
    submit_now(store, name, reason, request_id, as_json=as_json)


@app.command(
    "backfill",
    epilog=examples(
        "schedule backfill nightly-report --since 2026-01-01 --until 2026-02-01",
        "schedule backfill nightly-report --since 2026-01-01 --until 2026-02-01 --queued",
        "schedule backfill nightly-report --since 2026-01-01 --until 2026-02-01 --dry-run",
    ),
)
def backfill(
    name: Name,
    since: Annotated[str, typer.Option(metavar="TIME", help="First date or time of the range.")],
    until: Annotated[str, typer.Option(metavar="TIME", help="End of the range (exclusive): a date or time.")],
    queued: Annotated[bool, typer.Option("--queued", help="Submit the jobs one after the other.")] = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit jobs for past fire times and print their ids."""
    submit_past(
        store,
        name,
        since,
        until,
        queued=queued,
        dry_run=dry_run,
        reason=reason,
        request_id=request_id,
        as_json=as_json,
    )


def _act(store: str | None, verb: str, name: str, reason: str, *, as_json: bool) -> None:
    change_schedule(store, verb, name, reason, as_json=as_json)


PAGE = 1_000


def put_schedule(
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
    from interlock.cli import project, verbs
    from interlock.cli.connection import actor
    from interlock.cli.nouns.job_submit import SubmitOptions, specs_for
    from interlock.worker.schedules import read_schedule

    here = project.load(store)
    chosen = SubmitOptions(
        task=words[0], arguments=tuple(words[1:]), module=module, unchecked=unchecked, options=options
    )
    (job,) = specs_for(chosen, here, ())
    spec = read_schedule({**when, "job": job})

    async def work(port: ServiceConnection) -> ScheduleView:
        act = port.services.schedules.put if update else port.services.schedules.create
        return await act(name, spec, actor=actor(), request_id=request_id)

    verbs.act(store, work, lines, as_json=as_json)


def put_declared(store: str | None, module: str | None, *, as_json: bool) -> None:
    """Register the declared schedules."""
    from interlock.cli import project, verbs
    from interlock.cli.connection import actor
    from interlock.worker.tasks import load_tasks

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

    async def work(port: ServiceConnection) -> list[ScheduleView]:
        return [
            await port.services.schedules.put(name, each.spec, source=each.source, actor=actor())
            for name, each in declared.items()
        ]

    def all_lines(views: list[ScheduleView], now: datetime) -> list[str]:
        return [sentence(view, now) for view in views]

    verbs.act(store, work, all_lines, as_json=as_json)


def print_schedules(store: str | None, state: str, *, everything: bool, as_json: bool) -> None:
    """Print schedules, by name."""
    from interlock.cli.verbs import ListPage, list_records
    from interlock.lifecycles.schedule import ACTIVE, ENDED, PAUSED

    known = tuple(map(str, (ACTIVE, PAUSED, ENDED)))
    if state and state not in known:
        raise typer.BadParameter(f"{state!r} is none of {', '.join(known)}", param_hint="--state")
    states = (state,) if state else known if everything else known[:2]

    async def search(connection: ServiceConnection) -> ListPage[ScheduleView]:
        found: list[ScheduleView] = []
        cursor = ""
        while True:
            page, cursor = await connection.services.schedules.find(states=states, limit=PAGE, cursor=cursor)
            found += page
            if not cursor:
                return ListPage(sorted(found, key=lambda view: view.name))

    none = "There is no schedule" + (f" that is {state}." if state else ".")
    list_records(_noun(), store, search, as_json=as_json, none=none)


def print_history(store: str | None, name: str, *, as_json: bool) -> None:
    """Print the history of a schedule."""
    from interlock.cli import output
    from interlock.cli.connection import run_connected
    from interlock.cli.journal import entries_sheet
    from interlock.cli.output import print_struct
    from interlock.lifecycles.schedule import ACTIVE

    async def work(port: ServiceConnection) -> tuple[list[Entry], datetime]:
        return await port.services.schedules.history(name), await port.now()

    entries, now = run_connected(store, work)
    if as_json:
        print_struct(entries)
        return
    terminal = output.on_terminal()
    sheet = entries_sheet(name, entries, now, terminal=terminal, versions=False, initial=str(ACTIVE))
    output.print_sheets([sheet])


def print_next(store: str | None, name: str, count: int, *, as_json: bool) -> None:
    """Print the next fire times."""
    from interlock.cli import output
    from interlock.cli.connection import run_connected
    from interlock.cli.output import Sheet, ago, iso, print_struct
    from interlock.wire.calendar import zone_named

    async def work(port: ServiceConnection) -> tuple[tuple[datetime, ...], ScheduleView, datetime]:
        schedules = port.services.schedules
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


def change_schedule(store: str | None, verb: str, name: str, reason: str, *, as_json: bool) -> None:
    """Pause, resume or delete a schedule."""
    from interlock.cli import verbs
    from interlock.cli.connection import actor

    async def work(port: ServiceConnection) -> ScheduleView:
        view: ScheduleView = await getattr(port.services.schedules, verb)(name, reason=reason, actor=actor())
        return view

    verbs.act(store, work, lines, as_json=as_json)


def submit_now(store: str | None, name: str, reason: str, request_id: str | None, *, as_json: bool) -> None:
    """Submit a job now."""
    from interlock.cli.connection import actor, run_connected
    from interlock.cli.output import print_struct

    async def work(port: ServiceConnection) -> FireView:
        return await port.services.schedules.run(name, reason=reason, actor=actor(), request_id=request_id)

    fire = run_connected(store, work)
    if as_json:
        print_struct(fire)
    else:
        typer.echo(fire.job_id)


def submit_past(
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
    from interlock.cli import output
    from interlock.cli.connection import actor, run_connected
    from interlock.cli.output import iso, print_struct

    async def work(port: ServiceConnection) -> Backfilled:
        return await port.services.schedules.backfill(
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
    from interlock.cli.output import Sheet, shown

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
    import msgspec

    from interlock.cli.output import Sheet, iso, shown

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
    """Return a schedule in a sentence.

    For example "nightly-report: every weekday at 02:00 in Berlin; next in 5 h".
    """
    from interlock.cli.output import ago
    from interlock.lifecycles.schedule import PAUSED

    if view.state == PAUSED:
        then = f"paused{f' ({view.reason})' if view.reason else ''}"
    elif view.next_at is None:
        then = "ended"
    else:
        then = f"next {ago(view.next_at, now)}"
    return harmless(f"{view.name}: {view.text}; {then}")
