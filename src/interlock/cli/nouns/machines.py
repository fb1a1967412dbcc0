"""Commands `interlock machine …`: show, draw, check and compare lifecycles.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import FOUND_SOMETHING, Json, examples
from interlock.errors import CannotWrite

if TYPE_CHECKING:
    from interlock.machine import Blueprint

app: typer.Typer = typer.Typer(
    help="Show, draw, check and compare lifecycles.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""\b
NAME is one of:
  job                   a built-in machine (interlock machine list)
  shop.orders:ORDER     your own, as module:object; the current directory is importable
  shop/orders.py:ORDER  your own, as file:object
  old-job.json          a blueprint exported with --format json (show, draw, diff)

\b
Exit codes:
  0  no faults
  1  the check found a fault
  2  invalid usage""",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Machine: job, module:object, file.py:object, or a .json blueprint.",
        autocompletion=completion.machine_names,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="File to write (default: standard output)."),
]


class DrawingFormat(StrEnum):
    """Formats in which a machine can be drawn."""

    SVG = "svg"
    MERMAID = "mermaid"
    DOT = "dot"
    MD = "md"
    JSON = "json"


_FORMAT_OF_SUFFIX = {
    "": DrawingFormat.SVG,
    ".svg": DrawingFormat.SVG,
    ".mmd": DrawingFormat.MERMAID,
    ".mermaid": DrawingFormat.MERMAID,
    ".dot": DrawingFormat.DOT,
    ".gv": DrawingFormat.DOT,
    ".md": DrawingFormat.MD,
    ".json": DrawingFormat.JSON,
}


@app.command(
    "list",
    cls=RecordsCommand,
    epilog=examples("machine list", "machine list --json", "machine list | cut -f1"),
)
def list_machines(as_json: Json = False) -> None:
    """List the built-in machines."""
    from interlock.cli import output
    from interlock.cli.nouns import machine_views
    from interlock.lifecycles import MACHINES
    from interlock.machine import blueprint_of

    blueprints = [blueprint_of(machine) for machine in MACHINES.values()]
    if as_json:
        output.print_json([machine_views.list_entry(blueprint) for blueprint in blueprints])
    else:
        output.print_sheets([machine_views.list_sheet(blueprints)])


@app.command(
    "show",
    cls=RecordsCommand,
    epilog=examples("machine show job", "machine show shop.orders:ORDER", "machine show lease --json"),
)
def show(name: Name, as_json: Json = False) -> None:
    """Show the states and transitions of a machine.

    Of each state: the component whose turn it is, and the deadline. Of each transition: owner, guards and
    reason.
    """
    from interlock.cli import machine_names
    from interlock.cli.nouns import machine_views

    blueprint = machine_names.load_blueprint(name)
    if as_json:
        typer.echo(blueprint.to_json(), nl=False)
    else:
        machine_views.print_machine(blueprint)


@app.command(
    "draw",
    epilog=examples(
        "machine draw job -o job.svg",
        "machine draw job --state running --path submitted,pending,running",
        "machine draw lease --format mermaid",
    ),
)
def draw(
    name: Name,
    form: Annotated[
        DrawingFormat | None,
        typer.Option("--format", help="Output format (default: by the suffix of FILE, or svg)."),
    ] = None,
    output: Output = None,
    state: Annotated[str | None, typer.Option(metavar="S", help="State to highlight (svg).")] = None,
    path: Annotated[
        str, typer.Option(metavar="A,B,C", help="States passed so far, to highlight (svg).")
    ] = "",
) -> None:
    """Draw a machine as a diagram, a page or data."""
    from interlock.cli import machine_names

    chosen = form or _format_of(output)
    passed = [part.strip() for part in path.split(",") if part.strip()]
    if chosen is not DrawingFormat.SVG and (state or passed):
        raise typer.BadParameter(f"only svg can highlight states, not {chosen}", param_hint="--state, --path")
    text = _drawn(machine_names.load_blueprint(name), chosen, state, passed)
    if output is None or str(output) == "-":
        typer.echo(text, nl=False)
    else:
        _write(output, text)


@app.command(
    "check",
    epilog=examples("machine check", "machine check job lease", "machine check shop.orders:ORDER --json"),
)
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Machine: job or module:object (default: all built-in ones)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check machines, and list every fault with its code.

    Without a name it checks the built-in machines and their couplings. JSON is one object for one name,
    otherwise a list.
    """
    from interlock.cli import output
    from interlock.cli.nouns import machine_views

    verdicts = machine_views.check_machines(names or ())
    if as_json:
        answers = [machine_views.verdict_entry(verdict) for verdict in verdicts]
        output.print_json(answers[0] if len(names or ()) == 1 else answers)
    else:
        machine_views.print_verdicts(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(FOUND_SOMETHING)


@app.command(
    "diff", epilog=examples("machine diff old-job.json job", "machine diff job shop.jobs:JOB --json")
)
def diff(
    old: Annotated[str, typer.Argument(metavar="A", help="Table in use.")],
    new: Annotated[str, typer.Argument(metavar="B", help="Table to replace it with.")],
    as_json: Json = False,
) -> None:
    """Compare two tables.

    Lists the changes from A to B, and the states in use that would be stranded; if there are any, the exit
    code is 1.
    """
    from interlock.cli import machine_names, output
    from interlock.cli.nouns import machine_views
    from interlock.machine import compare

    difference = compare(machine_names.load_blueprint(old), machine_names.load_blueprint(new))
    if as_json:
        output.print_json(machine_views.difference_entry(difference))
    else:
        machine_views.print_difference(difference)
    if difference.stranded:
        raise typer.Exit(FOUND_SOMETHING)


@app.command(
    "couplings",
    epilog=examples(
        "machine couplings",
        "machine couplings --json",
        "machine couplings -o map.svg",
        "machine couplings | grep lease",
    ),
)
def couplings(as_json: Json = False, output: Output = None) -> None:
    """List or draw the couplings between machines."""
    from interlock.cli.nouns import machine_views
    from interlock.cli.output import print_json, print_sheets
    from interlock.lifecycles import COUPLINGS, interlocking

    if output is not None:
        _write(output, _drawn(interlocking(), _format_of(output), None, ()))
    elif as_json:
        print_json([machine_views.coupling_entry(coupling) for coupling in COUPLINGS])
    else:
        print_sheets([machine_views.couplings_sheet(COUPLINGS)])


def _format_of(output: Path | None) -> DrawingFormat:
    suffix = "" if output is None else output.suffix.lower()
    if suffix in _FORMAT_OF_SUFFIX:
        return _FORMAT_OF_SUFFIX[suffix]
    known = ", ".join(f"{form}" for form in DrawingFormat)
    raise typer.BadParameter(f"no format goes with {suffix}; add --format ({known})", param_hint="-o")


def _drawn(blueprint: Blueprint, form: DrawingFormat, state: str | None, path: Sequence[str]) -> str:
    from interlock.cli import machine_names
    from interlock.machine import draw as pen
    from interlock.machine.draw.markdown import draw_markdown

    match form:
        case DrawingFormat.SVG:
            current = None if state is None else blueprint.state_named(state)
            passed = [blueprint.state_named(name) for name in path]
            return pen.draw_svg(blueprint, current=current, path=passed)
        case DrawingFormat.MERMAID:
            return pen.draw_mermaid(blueprint)
        case DrawingFormat.DOT:
            return pen.draw_dot(blueprint)
        case DrawingFormat.MD:
            return draw_markdown(blueprint, consequences=machine_names.consequences_of(blueprint))
        case DrawingFormat.JSON:
            return blueprint.to_json()


def _write(output: Path, text: str) -> None:
    from interlock.cli.output import write_whole

    try:
        write_whole(output, text)
    except OSError as error:
        why = error.strerror or str(error)
        raise CannotWrite(
            f"Cannot write {output}: {why}.",
            todo="Give a file in a folder that exists and may be written to.",
            facts={"file": str(output), "cause": why},
        ) from error
    typer.echo(f"Wrote {output}.", err=True)
