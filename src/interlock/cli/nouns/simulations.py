"""Commands `interlock simulation …`.

Only the declarations are here: each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli.forms import RecordsCommand
from interlock.cli.options import (
    Cursor,
    Id,
    Json,
    Limit,
    Place,
    Reason,
    RequestId,
    Store,
    WaitTimeout,
    add_views,
    epilog,
    examples,
    parse_seconds,
    with_wait,
)

if TYPE_CHECKING:
    from interlock.cli.verbs import Noun

app: typer.Typer = typer.Typer(
    help="Start, follow, pause, resume and cancel simulations.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nA simulation is long work in steps: a function with @simulation. It can be paused and resumed\n"
        "between two steps. When its worker dies, another one continues after the last saved step.",
        "\b\nID is the id it was given, or s_ and twelve hex digits. The start is enough where only one of\n"
        "the newest has it.",
    ),
)

Words = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Arguments, or one JSON object.")
]
Name = Annotated[str, typer.Option("--name", help="Name of the scenario.")]
OwnId = Annotated[
    str, typer.Option("--id", metavar="ID", help="Id to use, such as flu-2024 (default: random).")
]
Priority = Annotated[str | None, typer.Option(metavar="low|normal|high", help="Priority; higher runs first.")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Total number of steps, for progress.")]

OUTCOMES = """\b
Exit codes:
  0    it completed
  2    invalid usage, or the store is unavailable
  3    it failed
  4    it was cancelled
  5    it is paused or interrupted, or has not ended in time
  130  Ctrl-C; the simulation continues"""
WHAT = """\b
Values of WHAT:
  models.py            a file with one @simulation; models.py:flu names one of several
  shop.models:flu      the same in a module
  scenario.yml         a file with `simulation: WHAT`; optional: arguments, name, steps, priority"""


def _noun() -> Noun[Any]:
    from interlock.cli.nouns.simulation_views import NOUN

    return NOUN


@app.command(
    "run",
    epilog=epilog(
        WHAT,
        OUTCOMES.replace("Ctrl-C; the simulation continues", "Ctrl-C; it is interrupted, and can be resumed"),
        examples(
            "simulation run examples/epidemic.py people=500",
            "simulation run examples/negotiation.yml",
            "simulation run examples/epidemic.py --resume flu-1",
        ),
    ),
)
def run(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="Simulation to run.")],
    words: Words = None,
    run_id: OwnId = "",
    name: Name = "",
    steps: Steps = None,
    priority: Priority = None,
    resume_id: Annotated[
        str,
        typer.Option("--resume", metavar="ID", help="Resume this simulation here, instead of starting one."),
    ] = "",
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Run a simulation here to its end, with its own worker."""
    from interlock.cli.nouns import simulation_run, simulation_start

    options = simulation_start.SimulationOptions(
        what=what, words=tuple(words or ()), run_id=run_id, name=name, steps=steps, priority=priority
    )
    raise typer.Exit(simulation_run.run(store, options, resume=resume_id, as_json=as_json))


@app.command(
    "start",
    epilog=epilog(
        WHAT,
        with_wait(OUTCOMES),
        examples(
            "simulation start models.py:flu people=500 --id flu-1",
            "simulation start scenario.yml --wait",
            "simulation start shop.models.flu people=500 --unchecked --server http://127.0.0.1:8088",
        ),
    ),
)
def start(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="Simulation to start.")],
    words: Words = None,
    run_id: OwnId = "",
    name: Name = "",
    steps: Steps = None,
    priority: Priority = None,
    queue: Annotated[str, typer.Option(help="Queue to submit to.")] = "",
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Skip the local lookup of WHAT.")] = False,
    request_id: RequestId = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until it has ended or is paused.")] = False,
    timeout: WaitTimeout = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Start a simulation on the workers, and print its id."""
    from interlock.cli.nouns import simulation_start, simulation_watch

    options = simulation_start.SimulationOptions(
        what=what,
        words=tuple(words or ()),
        run_id=run_id,
        name=name,
        steps=steps,
        priority=priority,
        queue=queue,
        unchecked=unchecked,
    )
    timeout_s = parse_seconds(timeout)
    code = simulation_start.start(
        store,
        options,
        request_id,
        follow=simulation_watch.follow if wait else None,
        timeout_s=timeout_s,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command(
    "list",
    cls=RecordsCommand,
    epilog=examples(
        "simulation list", "simulation list --status running,paused", "simulation list flu --json"
    ),
)
def list_simulations(
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="Part of the id, task or scenario.")] = "",
    status: Annotated[str, typer.Option(help="Only these statuses, separated by commas.")] = "",
    priority: Priority = None,
    limit: Limit = 50,
    cursor: Cursor = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List simulations, newest first."""
    from interlock.cli.nouns import simulation_views

    statuses = tuple(filter(None, status.split(",")))
    simulation_views.show_list(
        store, text, statuses, priority or "", limit=limit, cursor=cursor, as_json=as_json
    )


add_views(
    app,
    "simulation",
    _noun,
    "flu-1",
    show="Show a simulation: state, progress, worker and history.",
)


@app.command(
    "metrics",
    epilog=examples(
        "simulation metrics flu-1",
        "simulation metrics flu-1 --name infected --last 20",
        "simulation metrics s_0a4f --json",
    ),
)
def metrics(
    run_id: Id,
    names: Annotated[
        list[str] | None, typer.Option("--name", metavar="METRIC", help="Only this metric; repeatable.")
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the last N samples.")] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Print the metrics of a simulation, one line for each sample."""
    from interlock.cli.nouns import simulation_views

    simulation_views.metrics(store, run_id, tuple(names or ()), last, as_json=as_json)


@app.command(
    "watch", epilog=epilog(OUTCOMES, examples("simulation watch flu-1", "simulation watch flu-1 --json"))
)
def watch(run_id: Id, timeout: WaitTimeout = None, store: Place = None, as_json: Json = False) -> None:
    """Follow a simulation: progress, rate and time left.

    If the store or the server becomes unavailable, the command waits for it.
    """
    from interlock.cli.nouns import simulation_watch

    raise typer.Exit(
        simulation_watch.watch_simulation(store, run_id, parse_seconds(timeout), as_json=as_json)
    )


@app.command("pause", epilog=examples("simulation pause flu-1", 'simulation pause flu-1 --reason "a demo"'))
def pause(
    run_id: Id,
    reason: Reason = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Pause a simulation after the current step."""
    from interlock.cli.nouns import simulation_views

    simulation_views.act(store, "pause", run_id, reason, request_id, as_json=as_json)


@app.command("resume", epilog=examples("simulation resume flu-1", "simulation resume flu-1 --queue gpu"))
def resume(
    run_id: Id,
    reason: Reason = "",
    queue: Annotated[str, typer.Option(help="Queue to resume it in (default: its own).")] = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Resume a simulation after its last saved step.

    With --queue it moves to that queue, such as one that `simulation run` has left.
    """
    from interlock.cli.nouns import simulation_views

    simulation_views.act(store, "resume", run_id, reason, request_id, as_json=as_json, queue=queue)


@app.command("cancel", epilog=examples("simulation cancel flu-1"))
def cancel(
    run_id: Id,
    reason: Reason = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Cancel a simulation, at the latest after the current step."""
    from interlock.cli.nouns import simulation_views

    simulation_views.act(store, "cancel", run_id, reason, request_id, as_json=as_json)


@app.command(
    "import", epilog=examples("simulation import results/", "simulation import results/ --task models.flu")
)
def import_runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of folders with a state.json each.")
    ],
    task: Annotated[str, typer.Option(help="Name of the @simulation that a resume executes.")] = "",
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Import runs from folders with a state.json each.

    Runs that were running become interrupted. A resume continues at the step of the snapshot if it has a
    "state" (the value that the simulation yielded after that step), and starts with step 1 otherwise.
    Existing runs are not changed.
    """
    from interlock.cli.nouns import simulation_views

    raise typer.Exit(simulation_views.import_runs(store, folder, task, as_json=as_json))


@app.command(
    "prune", epilog=examples("simulation prune --older-than 30d", "simulation prune --older-than 12h --json")
)
def prune(
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Minimum age, such as 12h or 30d.")],
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Remove old simulations, with their metrics and journal."""
    from interlock.cli.nouns import simulation_views

    simulation_views.prune(store, older_than, as_json=as_json)
