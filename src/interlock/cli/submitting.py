"""`interlock submit`: submit work.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from interlock.cli.durations import parse_seconds
from interlock.cli.options import OUTCOMES, Json, Place, epilog, examples

MOST = 100_000
_SHELL = "interlock.shell words"


class SubmitCommand(TyperCommand):
    """What stands behind `--` with nothing before it is a command for a shell, not a task."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the words behind `--` when there are no others."""
        behind = args[args.index("--") + 1 :] if "--" in args else []
        rest: list[str] = super().parse_args(ctx, args)
        given = [ctx.params["task"], *(ctx.params["arguments"] or ())]
        ctx.meta[_SHELL] = behind if behind and given == behind else []
        return rest


WORDS = """\b
TASK is one of:
  shop.tasks:send      a function with @task, as module:function or shop.tasks.send; its arguments are
                       checked before anything is stored
  send --from shop.tasks   a task by its name, in this module
  anything --unchecked     a name that only the workers know
  -                        JSON lines on standard input: {"task": ..., "input": {...}, "queue": ...}

\b
ARGUMENTS are one of:
  width=200 name=cat   by name; a value is JSON if it can be read as JSON, and text otherwise
  '{"width": 200}'     all of them as JSON; a JSON list is arguments by position
  -                    JSON lines on standard input: a job for each

\b
A command for a shell instead of a task:
  interlock submit -- make test
  interlock submit --shell 'make test && make deploy'"""


def register(app: typer.Typer) -> None:
    """Add the word to `interlock`."""
    app.command(
        "submit",
        cls=SubmitCommand,
        epilog=epilog(
            WORDS,
            OUTCOMES.replace("Exit codes:", "Exit codes with --wait; without it 0 or 2:"),
            examples(
                "submit shop.tasks:send address=a@b.example --queue mail",
                "submit shop.tasks:resize '{\"width\": 200}' --retries 3 --timeout 10m --wait",
                "submit shop.tasks:resize - < images.jsonl",
                "submit --shell 'make test' --label linux",
                "job watch $(interlock submit shop.tasks:send address=a@b.example)",
            ),
        ),
    )(submit)


def submit(
    ctx: typer.Context,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="What to do.")] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON | KEY=VALUE...]", help="Its arguments.")
    ] = None,
    shell: Annotated[str | None, typer.Option(metavar="COMMAND", help="Run this in a shell.")] = None,
    module: Annotated[
        str | None,
        typer.Option("--from", metavar="MODULE", help="Where the task is."),
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Do not look for the task; only workers know it.")
    ] = False,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Which workers shall take it.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="What a worker must have.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="In how many shards, 1 to 10.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="Not before 90s, 15m, 12h.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="For one attempt.")] = None,
    job_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="For all attempts together.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="How often to try again after a failure.")] = None,
    secrets: Annotated[
        list[str] | None, typer.Option("--secret", metavar="NAME", help="A secret that its runner is given.")
    ] = None,
    parent: Annotated[str | None, typer.Option(metavar="ID", help="The job it belongs to.")] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="For people.")] = None,
    request_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Make it once, however often it is sent."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=MOST, help="So many of the same.")] = 1,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended, and print its result last.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With --wait: print every transition.")
    ] = False,
    wait_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --wait: give up after that; the job goes on.")
    ] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit a job and print its id.

    With --wait its result is printed last, as JSON; of several jobs a line for each, with its id. --json
    prints the job as it stands, a line for each when there are several; with --wait as it ended.
    """
    from interlock.cli import specs, submissions

    options = {
        "queue": queue,
        "priority": priority,
        "labels": tuple(labels) if labels else None,
        "worker_count": workers,
        "delay_s": parse_seconds(delay),
        "timeout_s": parse_seconds(timeout),
        "job_timeout_s": parse_seconds(job_timeout),
        "retries": retries,
        "secrets": tuple(secrets) if secrets else None,
        "parent_job_id": parent,
        "description": description,
    }
    words = ctx.meta[_SHELL]
    asked = specs.Asked(
        task=None if words else task,
        arguments=() if words else tuple(arguments or ()),
        command=specs.command_of(shell, words),
        module=module,
        unchecked=unchecked,
        options={name: value for name, value in options.items() if value is not None},
        count=count,
    )
    patience_s = parse_seconds(wait_timeout)
    code = submissions.submit(store, asked, request_id, wait, patience_s, verbose=verbose, as_json=as_json)
    raise typer.Exit(code)
