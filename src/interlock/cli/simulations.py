"""`interlock simulation …`: start simulations, follow them, pause, resume and cancel them.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import Json, Place, Store, epilog, examples, parse_seconds

app = typer.Typer(
    help="Start simulations, follow them, pause, resume and cancel them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nA simulation is long, stepped work: a function with @simulation. It can be paused and resumed\n"
        "between two steps, and when its worker dies it goes on elsewhere after its last saved step.",
        "\b\nID is the name it was given, or s_ and twelve hex digits; the beginning is enough where only\n"
        "one of the newest has it.",
    ),
)

RunId = Annotated[str, typer.Argument(metavar="ID", help="A simulation, by its id or the beginning of it.")]
Reason = Annotated[str, typer.Option(help="Why, for the journal.")]
RequestId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Do it once, however often this is sent with the same request id."),
]
Patience = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Give up after 90s, 15m, 12h; the simulation goes on."),
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its arguments, or one JSON object.")
]
Name = Annotated[str, typer.Option("--name", help="What the scenario is called.")]
OwnId = Annotated[str, typer.Option("--id", metavar="ID", help="An id of one's own, such as flu-2024.")]
Priority = Annotated[str | None, typer.Option(metavar="low|normal|high", help="Higher goes first.")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="How many steps there will be.")]

OUTCOMES = """\b
Exit codes:
  0    it has completed
  2    the question was wrong, or the store does not answer
  3    it has failed
  4    it was cancelled
  5    it stands (paused or interrupted), or has not ended in time
  130  Ctrl-C; the simulation goes on"""
WHAT = """\b
WHAT is one of:
  models.py            a file with one @simulation; models.py:flu names one of several
  shop.models:flu      the same in a module
  scenario.yml         a file with `simulation: WHAT` and `arguments:`, perhaps name, steps and priority"""


@app.command(
    "run",
    epilog=epilog(
        WHAT,
        OUTCOMES.replace("Ctrl-C; the simulation goes on", "Ctrl-C; it is interrupted, and can be resumed"),
        examples(
            "simulation run examples/epidemic.py people=500",
            "simulation run examples/negotiation.yml",
            "simulation run examples/epidemic.py --resume flu-1",
        ),
    ),
)
def run(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="What to run.")],
    words: Words = None,
    run_id: OwnId = "",
    name: Name = "",
    steps: Steps = None,
    priority: Priority = None,
    resume_id: Annotated[
        str, typer.Option("--resume", metavar="ID", help="Resume this simulation here, instead of a new one.")
    ] = "",
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Start a simulation and execute it here, with a worker of its own, to its end."""
    from interlock.cli import simulation_actions, simulation_run

    asked = simulation_actions.SimulationOptions(
        what=what, words=tuple(words or ()), run_id=run_id, name=name, steps=steps, priority=priority
    )
    raise typer.Exit(simulation_run.run(store, asked, resume=resume_id, as_json=as_json))


@app.command(
    "start",
    epilog=epilog(
        WHAT,
        OUTCOMES.replace("Exit codes:", "Exit codes with --wait; without it 0 or 2:"),
        examples(
            "simulation start models.py:flu people=500 --id flu-1",
            "simulation start scenario.yml --wait",
            "simulation start shop.models.flu people=500 --unchecked --server http://127.0.0.1:8088",
        ),
    ),
)
def start(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="What to start.")],
    words: Words = None,
    run_id: OwnId = "",
    name: Name = "",
    steps: Steps = None,
    priority: Priority = None,
    queue: Annotated[str, typer.Option(help="Which workers take it.")] = "",
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="WHAT is the name of a task that is not here.")
    ] = False,
    request_id: RequestId = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until it stands.")] = False,
    timeout: Patience = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Start a simulation for workers that know it; answers with its id, and nothing else."""
    from interlock.cli import simulation_actions

    asked = simulation_actions.SimulationOptions(
        what=what,
        words=tuple(words or ()),
        run_id=run_id,
        name=name,
        steps=steps,
        priority=priority,
        queue=queue,
        unchecked=unchecked,
    )
    patience_s = parse_seconds(timeout)
    code = simulation_actions.start(
        store, asked, request_id, wait=wait, patience_s=patience_s, as_json=as_json
    )
    raise typer.Exit(code)


@app.command(
    "list",
    epilog=examples(
        "simulation list", "simulation list --status running,paused", "simulation list flu --json"
    ),
)
def list_simulations(
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="Part of its id, task or scenario.")] = "",
    status: Annotated[str, typer.Option(help="Of these only, separated by commas.")] = "",
    priority: Priority = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    cursor: Annotated[str, typer.Option(metavar="TEXT", help="Go on where a list has ended.")] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List simulations, newest first."""
    from interlock.cli import simulation_views

    statuses = tuple(filter(None, status.split(",")))
    simulation_views.show_list(
        store, text, statuses, priority or "", limit=limit, cursor=cursor, as_json=as_json
    )


@app.command("show", epilog=examples("simulation show flu-1", "simulation show s_0a4f --json"))
def show(run_id: RunId, store: Place = None, as_json: Json = False) -> None:
    """Show a simulation: its state, how far it is, who executes it, and what has happened to it."""
    from interlock.cli import simulation_views

    simulation_views.show(store, run_id, as_json=as_json)


@app.command(
    "metrics",
    epilog=examples(
        "simulation metrics flu-1",
        "simulation metrics flu-1 --name infected --last 20",
        "simulation metrics s_0a4f --json",
    ),
)
def metrics(
    run_id: RunId,
    names: Annotated[
        list[str] | None, typer.Option("--name", metavar="METRIC", help="Only this metric; may be repeated.")
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the last N samples.")] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Print the metrics of a simulation over its steps, one line for each sample."""
    from interlock.cli import simulation_views

    simulation_views.metrics(store, run_id, tuple(names or ()), last, as_json=as_json)


@app.command(
    "watch", epilog=epilog(OUTCOMES, examples("simulation watch flu-1", "simulation watch flu-1 --json"))
)
def watch(run_id: RunId, timeout: Patience = None, store: Place = None, as_json: Json = False) -> None:
    """Follow a simulation until it stands: how far it is, how fast, and when it will be done.

    A server or a store that goes away meanwhile is waited for.
    """
    from interlock.cli import simulation_actions

    raise typer.Exit(simulation_actions.watch(store, run_id, parse_seconds(timeout), as_json=as_json))


@app.command("pause", epilog=examples("simulation pause flu-1", 'simulation pause flu-1 --reason "a demo"'))
def pause(
    run_id: RunId,
    reason: Reason = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Ask a simulation to stop after the present step."""
    from interlock.cli import simulation_actions

    simulation_actions.act(store, "pause", run_id, reason, request_id, as_json=as_json)


@app.command("resume", epilog=examples("simulation resume flu-1", "simulation resume flu-1 --queue gpu"))
def resume(
    run_id: RunId,
    reason: Reason = "",
    queue: Annotated[str, typer.Option(help="Queue to resume it in (default: its own).")] = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Go on with a simulation after its last saved step, on any worker of its queue.

    A simulation that waits in another queue is moved, such as one that `simulation run` has left.
    """
    from interlock.cli import simulation_actions

    simulation_actions.act(store, "resume", run_id, reason, request_id, as_json=as_json, queue=queue)


@app.command("cancel", epilog=examples("simulation cancel flu-1"))
def cancel(
    run_id: RunId,
    reason: Reason = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Stop a simulation for good: at once where it stands, else after the present step."""
    from interlock.cli import simulation_actions

    simulation_actions.act(store, "cancel", run_id, reason, request_id, as_json=as_json)


@app.command(
    "import", epilog=examples("simulation import results/", "simulation import results/ --task models.flu")
)
def import_runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Whose folders have a state.json each.")],
    task: Annotated[str, typer.Option(help="Name of the @simulation that a resume executes.")] = "",
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Import runs from folders with a state.json each.

    Runs that were running become interrupted. A resume goes on at the step of the snapshot if that has a
    "state" (what the simulation yielded after that step), and begins with step 1 otherwise. Runs that are
    there already are left alone.
    """
    from interlock.cli import simulation_views

    raise typer.Exit(simulation_views.import_runs(store, folder, task, as_json=as_json))


@app.command(
    "prune", epilog=examples("simulation prune --older-than 30d", "simulation prune --older-than 12h --json")
)
def prune(
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Such as 12h or 30d.")],
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Remove simulations that ended longer ago, with all that was kept about them."""
    from interlock.cli import simulation_views

    simulation_views.prune(store, older_than, as_json=as_json)
