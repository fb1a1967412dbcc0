"""`interlock machine …`: look at, draw, check and compare lifecycles.

Only the words are here. What they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlock.errors import CannotWrite

if TYPE_CHECKING:
    from interlock.machine import Blueprint

FOUND_SOMETHING = 1

app = typer.Typer(
    help="Look at, draw, check and compare lifecycles.",
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
  0  fine
  1  the check found something
  2  the question was wrong""",
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="job, module:object, file.py:object, or a .json blueprint.")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Otherwise standard output.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


class Format(StrEnum):
    """What a machine can be drawn as."""

    SVG = "svg"
    MERMAID = "mermaid"
    DOT = "dot"
    MD = "md"
    JSON = "json"


_FORMAT_OF_SUFFIX = {
    "": Format.SVG,
    ".svg": Format.SVG,
    ".mmd": Format.MERMAID,
    ".mermaid": Format.MERMAID,
    ".dot": Format.DOT,
    ".gv": Format.DOT,
    ".md": Format.MD,
    ".json": Format.JSON,
}


def _examples(*commands: str) -> str:
    return "\n".join(("\b", "Examples:", *(f"  interlock machine {command}" for command in commands)))


@app.command("list", epilog=_examples("list", "list --json", "list | cut -f1"))
def list_machines(as_json: Json = False) -> None:
    """List the built-in machines."""
    from interlock.cli import machine_views, render
    from interlock.lifecycles import MACHINES
    from interlock.machine import blueprint_of

    blueprints = [blueprint_of(machine) for machine in MACHINES.values()]
    if as_json:
        render.print_json([machine_views.list_entry(blueprint) for blueprint in blueprints])
    else:
        render.print_sheets([machine_views.list_sheet(blueprints)])


@app.command("show", epilog=_examples("show job", "show shop.orders:ORDER", "show lease --json"))
def show(name: Name, as_json: Json = False) -> None:
    """Show the states and transitions of a machine.

    For each state whose turn it is and how long it may last; for each transition its owner, its
    guards and why.
    """
    from interlock.cli import loading, render

    blueprint = loading.load_blueprint(name)
    if as_json:
        typer.echo(blueprint.to_json(), nl=False)
    else:
        render.print_machine(blueprint)


@app.command(
    "draw",
    epilog=_examples(
        "draw job -o job.svg",
        "draw job --state running --path submitted,pending,running",
        "draw lease --format mermaid",
    ),
)
def draw(
    name: Name,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Otherwise by the suffix of FILE; svg without one."),
    ] = None,
    output: Output = None,
    state: Annotated[str | None, typer.Option(metavar="S", help="The state to light (svg).")] = None,
    path: Annotated[str, typer.Option(metavar="A,B,C", help="The states passed so far (svg).")] = "",
) -> None:
    """Draw a machine as a picture, a page or data."""
    from interlock.cli import loading

    chosen = form or _format_of(output)
    passed = [part.strip() for part in path.split(",") if part.strip()]
    if chosen is not Format.SVG and (state or passed):
        raise typer.BadParameter(f"only an svg can light states, not {chosen}", param_hint="--state, --path")
    text = _drawn(loading.load_blueprint(name), chosen, state, passed)
    if output is None or str(output) == "-":
        typer.echo(text, nl=False)
    else:
        _write(output, text)


@app.command("check", epilog=_examples("check", "check job lease", "check shop.orders:ORDER --json"))
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="job or module:object; otherwise all built-in ones."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check machines, and list every fault with its code.

    Without a name: the ten built-in machines and their couplings. JSON is one object for one name,
    otherwise a list of them.
    """
    from interlock.cli import machine_views, render

    verdicts = machine_views.check_machines(names or ())
    if as_json:
        answers = [machine_views.verdict_entry(verdict) for verdict in verdicts]
        render.print_json(answers[0] if len(names or ()) == 1 else answers)
    else:
        render.print_verdicts(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(FOUND_SOMETHING)


@app.command("diff", epilog=_examples("diff old-job.json job", "diff job shop.jobs:JOB --json"))
def diff(
    old: Annotated[str, typer.Argument(metavar="A", help="The table in use.")],
    new: Annotated[str, typer.Argument(metavar="B", help="The table that would replace it.")],
    as_json: Json = False,
) -> None:
    """Compare two tables.

    Says what changes from A to B, and which states in flight would be stranded; the exit code is 1
    when there are any.
    """
    from interlock.cli import loading, render
    from interlock.machine import compare

    difference = compare(loading.load_blueprint(old), loading.load_blueprint(new))
    if as_json:
        render.print_json(render.difference_entry(difference))
    else:
        render.print_difference(difference)
    if difference.stranded:
        raise typer.Exit(FOUND_SOMETHING)


@app.command(
    "couplings",
    epilog=_examples("couplings", "couplings --json", "couplings -o map.svg", "couplings | grep lease"),
)
def couplings(as_json: Json = False, output: Output = None) -> None:
    """List or draw what moves of one machine cause in another."""
    from interlock.cli import machine_views, render
    from interlock.lifecycles import COUPLINGS, interlocking

    if output is not None:
        _write(output, _drawn(interlocking(), _format_of(output), None, ()))
    elif as_json:
        render.print_json([machine_views.coupling_entry(coupling) for coupling in COUPLINGS])
    else:
        render.print_sheets([machine_views.couplings_sheet(COUPLINGS)])


def _format_of(output: Path | None) -> Format:
    suffix = "" if output is None else output.suffix.lower()
    if suffix in _FORMAT_OF_SUFFIX:
        return _FORMAT_OF_SUFFIX[suffix]
    known = ", ".join(f"{form}" for form in Format)
    raise typer.BadParameter(f"no format goes with {suffix}; add --format ({known})", param_hint="-o")


def _drawn(blueprint: Blueprint, form: Format, state: str | None, path: Sequence[str]) -> str:
    from interlock.cli import loading
    from interlock.machine import draw as pen
    from interlock.machine.draw.markdown import draw_markdown

    match form:
        case Format.SVG:
            current = None if state is None else blueprint.state_named(state)
            passed = [blueprint.state_named(name) for name in path]
            return pen.draw_svg(blueprint, current=current, path=passed)
        case Format.MERMAID:
            return pen.draw_mermaid(blueprint)
        case Format.DOT:
            return pen.draw_dot(blueprint)
        case Format.MD:
            return draw_markdown(blueprint, consequences=loading.consequences_of(blueprint))
        case Format.JSON:
            return blueprint.to_json()


def _write(output: Path, text: str) -> None:
    from interlock.cli.writing import write_whole

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
