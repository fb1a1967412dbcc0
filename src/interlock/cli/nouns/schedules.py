"""`interlock schedule …`: submit jobs at certain times.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import DryRun, Json, Place, add_views, epilog, examples, parse_seconds

if TYPE_CHECKING:
    from interlock.cli.verbs import Noun

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


def _noun() -> Noun[Any]:
    from interlock.cli.nouns.schedule_actions import NOUN

    return NOUN


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
    from interlock.cli.nouns import schedule_actions

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
    schedule_actions.create(
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
    from interlock.cli.nouns import schedule_actions

    schedule_actions.apply(store, module, as_json=as_json)


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
    from interlock.cli.nouns import schedule_actions

    schedule_actions.list_schedules(store, state, everything=everything, as_json=as_json)


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
    from interlock.cli.nouns import schedule_actions

    schedule_actions.history(store, name, as_json=as_json)


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
    from interlock.cli.nouns import schedule_actions

    schedule_actions.show_next(store, name, count, as_json=as_json)


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
    from interlock.cli.nouns import schedule_actions

    schedule_actions.run(store, name, reason, request_id, as_json=as_json)


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
    from interlock.cli.nouns import schedule_actions

    schedule_actions.backfill(
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
    from interlock.cli.nouns import schedule_actions

    schedule_actions.change(store, verb, name, reason, as_json=as_json)
