"""Commands `interlock machine …`: show, draw, check and compare lifecycles.

Each command imports its modules when it runs, so that `--help` is quick. A declaration with faults never
becomes a machine: it raises while its module is imported, and `machine check` reports that error as its
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli import completion
from interlock.cli.errors import colour_wanted
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import FOUND_SOMETHING, Json, examples
from interlock.errors import CannotWrite, MalformedCouplings, MalformedTable
from interlock.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from interlock.cli.output import Sheet
    from interlock.machine import Blueprint, Coupling, Couplings, Difference, Fault, Machine
    from interlock.machine.blueprint import DeadlineSheet, KeptSheet, StateSheet, TransitionSheet


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
    from interlock.lifecycles import MACHINES
    from interlock.machine import blueprint_of

    blueprints = [blueprint_of(machine) for machine in MACHINES.values()]
    if as_json:
        output.print_json([list_entry(blueprint) for blueprint in blueprints])
    else:
        output.print_sheets([list_sheet(blueprints)])


@app.command(
    "show",
    cls=RecordsCommand,
    epilog=examples("machine show job", "machine show shop.orders:ORDER", "machine show lease --json"),
)
def show(name: Name, as_json: Json = False) -> None:
    """Show the states and transitions of a machine.

    Of each state: the component that acts next, and the deadline. Of each transition: owner, guards and
    reason.
    """
    from interlock.cli import machine_names

    blueprint = machine_names.load_blueprint(name)
    if as_json:
        typer.echo(blueprint.to_json(), nl=False)
    else:
        print_machine(blueprint)


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

    verdicts = check_machines(names or ())
    if as_json:
        answers = [verdict_entry(verdict) for verdict in verdicts]
        output.print_json(answers[0] if len(names or ()) == 1 else answers)
    else:
        print_verdicts(verdicts)
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
    from interlock.machine import compare

    difference = compare(machine_names.load_blueprint(old), machine_names.load_blueprint(new))
    if as_json:
        output.print_json(difference_entry(difference))
    else:
        print_difference(difference)
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
    from interlock.cli.output import print_json, print_sheets
    from interlock.lifecycles import COUPLINGS, interlocking

    if output is not None:
        _write(output, _drawn(interlocking(), _format_of(output), None, ()))
    elif as_json:
        print_json([coupling_entry(coupling) for coupling in COUPLINGS])
    else:
        print_sheets([couplings_sheet(COUPLINGS)])


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
    from interlock.cli.files import write_whole

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


def list_sheet(blueprints: Iterable[Blueprint], *_: object, **__: bool) -> Sheet:
    """Return one row for each machine."""
    from interlock.cli.output import Sheet
    from interlock.machine.draw.text import first_sentence

    rows = [
        (
            blueprint.machine,
            str(len(blueprint.states)),
            _joined(state.name for state in blueprint.states if state.terminal),
            _joined(blueprint.owners),
            blueprint.fingerprint,
            first_sentence(blueprint.doc),
        )
        for blueprint in blueprints
    ]
    return Sheet("machine", "", ("name", "states", "ends", "owners", "fingerprint", "what it is"), rows)


def list_entry(blueprint: Blueprint) -> dict[str, object]:
    """Return a machine of the list for a program."""
    from interlock.machine.draw.text import first_sentence

    return {
        "machine": blueprint.machine,
        "doc": first_sentence(blueprint.doc),
        "initial": blueprint.initial,
        "states": [state.name for state in blueprint.states],
        "terminal": [state.name for state in blueprint.states if state.terminal],
        "transitions": len(blueprint.transitions),
        "owners": list(blueprint.owners),
        "fingerprint": blueprint.fingerprint,
    }


def machine_sheets(blueprint: Blueprint, *, joined: bool) -> list[Sheet]:
    """Return all tables of a machine; `joined` joins the sources of a row."""
    from interlock.cli.output import Sheet

    return [
        Sheet("state", "States", ("state", "turn", "at most", "meaning"), _states(blueprint)),
        Sheet(
            "transition",
            "Transitions",
            ("from", "event", "to", "owner", "only if", "why"),
            _transitions(blueprint, joined=joined),
        ),
        Sheet(
            "kept",
            "Accepted without a transition",
            ("in", "event", "owner", "only if", "why"),
            _kept(blueprint, joined=joined),
        ),
        Sheet(
            "walk",
            "Taken in two steps",
            ("in", "event", "first", "why"),
            [(walk.state, walk.event, walk.first, walk.why) for walk in blueprint.walks],
        ),
    ]


def silence_sheet(blueprint: Blueprint) -> Sheet:
    """Return the state and event pairs ignored or refused on purpose."""
    from interlock.cli.output import Sheet

    answers = (("ignored", blueprint.ignored), ("refused", blueprint.refused))
    rows = [(s.state, s.event, answer, s.why) for answer, silences in answers for s in silences]
    return Sheet("nothing", "Ignored or refused on purpose", ("in", "event", "is", "because"), rows)


def couplings_sheet(couplings: Iterable[Coupling[Any]]) -> Sheet:
    """Return one row for each coupling."""
    from interlock.cli.output import Sheet

    rows = [(coupling.sentence, coupling.why) for coupling in couplings]
    return Sheet("coupling", "", ("when, and what follows", "why"), rows)


def coupling_entry(coupling: Coupling[Any]) -> dict[str, object]:
    """Return a coupling for a program."""
    return {
        "cause": coupling.cause.name,
        "into": [str(name) for name in coupling.into],
        "holding": coupling.holding,
        "out_of": [str(name) for name in coupling.out_of],
        "by": [event.name for event in coupling.by],
        "if": [condition.__name__ for condition in coupling.when],
        "effect": coupling.effect.name,
        "event": None if coupling.event is None else coupling.event.name,
        "to": coupling.to,
        "sentence": coupling.sentence,
        "why": coupling.why,
    }


def _states(blueprint: Blueprint) -> list[tuple[str, ...]]:
    return [(state.name, _turn(state), _at_most(state.within), state.doc) for state in blueprint.states]


def _turn(state: StateSheet) -> str:
    if state.terminal:
        return "(end)"
    return "(may stay)" if state.resting else state.turn or "(the clock)"


def _at_most(deadline: DeadlineSheet | None) -> str:
    from interlock.machine.draw.text import format_duration

    if deadline is None:
        return ""
    return f"{format_duration(deadline.seconds)} since {deadline.since} ({deadline.setting})"


def _transitions(blueprint: Blueprint, *, joined: bool) -> list[tuple[str, ...]]:
    def cells(row: TransitionSheet) -> tuple[str, ...]:
        return (row.event, row.target, row.owner, _joined(row.guards), row.why)

    return _by_source([(row.source, cells(row)) for row in blueprint.transitions], joined=joined)


def _kept(blueprint: Blueprint, *, joined: bool) -> list[tuple[str, ...]]:
    def cells(row: KeptSheet) -> tuple[str, ...]:
        return (row.event, row.owner, _joined(row.guards), row.why)

    return _by_source([(row.state, cells(row)) for row in blueprint.kept], joined=joined)


def _by_source(pairs: list[tuple[str, tuple[str, ...]]], *, joined: bool) -> list[tuple[str, ...]]:
    if not joined:
        return [(source, *row) for source, row in pairs]
    groups = groupby(pairs, key=lambda pair: pair[1])
    return [(_joined(source for source, _ in group), *row) for row, group in groups]


def _joined(words: Iterable[str]) -> str:
    return ", ".join(words)


_OF_COUPLINGS = "couplings"
BAD_COUPLING = "bad-coupling"


@dataclass(frozen=True, slots=True)
class MachineVerdict:
    """The result of checking one machine: every fault found."""

    machine: str
    ok: bool
    faults: tuple[Fault, ...] = ()


def check_machines(names: Sequence[str]) -> list[MachineVerdict]:
    """Check the machines; return a verdict on each.

    By default these are the built-in ones and their couplings.
    """
    try:
        from interlock import lifecycles  # the import declares them, so a fault appears here
    except (MalformedTable, MalformedCouplings) as error:
        return [_raised_verdict(error, "lifecycles")]
    if names:
        return [_on_name(name) for name in names]
    built_in = [_on_machine(machine) for machine in lifecycles.MACHINES.values()]
    return [*built_in, _on_couplings(lifecycles.COUPLINGS)]


def verdict_entry(verdict: MachineVerdict) -> dict[str, object]:
    """Return a verdict for a program."""
    import msgspec

    entry: dict[str, object] = msgspec.to_builtins(verdict)
    return entry


def _on_name(name: str) -> MachineVerdict:
    from interlock.cli.machine_names import load_machine  # it needs lifecycles without faults

    try:
        return _on_machine(load_machine(name))
    except (MalformedTable, MalformedCouplings) as error:
        return _raised_verdict(error, name)


def _on_machine(machine: Machine[Any, Any]) -> MachineVerdict:
    from interlock.machine import find_faults

    return _verdict(machine.name, find_faults(machine.table))


def _on_couplings(couplings: Couplings[Any]) -> MachineVerdict:
    from interlock.machine import Couplings

    try:
        Couplings(couplings.all)
    except MalformedCouplings as error:
        return _raised_verdict(error, _OF_COUPLINGS)
    return _verdict(_OF_COUPLINGS, ())


def _raised_verdict(error: MalformedTable | MalformedCouplings, name: str) -> MachineVerdict:
    """Return the faults that a declaration raised, as pairs or sentences."""
    from interlock.machine import Fault

    listed = error.facts.get("faults")
    faults = listed if isinstance(listed, list) else [error.sentence]
    pairs = ([BAD_COUPLING, fault] if isinstance(fault, str) else fault for fault in faults)
    return _verdict(str(error.facts.get("machine", name)), (Fault(*pair) for pair in pairs))


def _verdict(name: str, faults: Iterable[Fault]) -> MachineVerdict:
    found = tuple(faults)
    return MachineVerdict(name, not found, found)


_COLOUR_OF_CHANGE = {"+": "green", "-": "red", "~": "yellow"}


def print_machine(blueprint: Blueprint) -> None:
    """Print one machine: its description, then its tables."""
    from interlock.cli.output import Sheet, on_terminal, print_sheets

    silences = silence_sheet(blueprint)
    if not on_terminal():
        about = Sheet("machine", "", (), [(blueprint.machine, blueprint.initial, blueprint.fingerprint)])
        print_sheets([about, *machine_sheets(blueprint, joined=False), silences])
        return
    _line(_styled(blueprint.machine, bold=True), "  ", _styled(blueprint.fingerprint, dim=True))
    _line(blueprint.doc.strip())
    _line(f"It begins in {blueprint.initial}.\n")
    print_sheets(machine_sheets(blueprint, joined=True))
    if silences.rows:
        what = f"Ignored or refused on purpose: {counted(len(silences.rows), 'pair')} of state and event"
        _line(_styled(f"{what}, see draw --format md, or show --json.", dim=True))


def print_verdicts(verdicts: Sequence[MachineVerdict]) -> None:
    """Print each checked machine and every fault with its code."""
    from interlock.cli.output import on_terminal

    if not on_terminal():
        for verdict in verdicts:
            print("\n".join(_plain(verdict)))
        return
    for verdict in verdicts:
        mark = _styled("✓", fg="green") if verdict.ok else _styled("✗", fg="red")
        _line(mark, " ", verdict.machine)
        for fault in verdict.faults:
            _line("  ", _styled(fault.code, fg="red"), ": ", fault.sentence)
    _line(_styled(_summary(verdicts), dim=True))


def print_difference(difference: Difference) -> None:
    """Print the changes, and the states in use that would be stranded."""
    if difference.old == difference.new and not difference.changes:
        _line(f"Nothing differs: both are {difference.new}.")
    elif not difference.changes:
        _line(f"Nothing differs between {difference.old} and {difference.new}.")
    else:
        _line(_styled(f"{difference.old} → {difference.new}", bold=True))
    for change in difference.changes:
        _line(_styled(change, fg=_COLOUR_OF_CHANGE.get(change[:1])))
    for stranded in difference.stranded:
        _line(_styled("! stranded", fg="red", bold=True), f" {stranded.state}: {stranded.why}")
    if difference.changes and not difference.stranded:
        _line(_styled("Nothing in flight would be stranded.", fg="green"))


def difference_entry(difference: Difference) -> dict[str, object]:
    """Return a comparison for a program."""
    import msgspec

    return {"ok": not difference.stranded, **msgspec.to_builtins(difference)}


def _line(*parts: str) -> None:
    """Print one line, with colours only on a terminal and without NO_COLOR."""
    typer.echo("".join(parts), color=colour_wanted())


def _styled(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    return typer.style(text, fg=fg, bold=bold, dim=dim)


def _plain(verdict: MachineVerdict) -> list[str]:
    faults = [f"fault\t{verdict.machine}\t{fault.code}\t{fault.sentence}" for fault in verdict.faults]
    return faults or [f"ok\t{verdict.machine}"]


def _summary(verdicts: Sequence[MachineVerdict]) -> str:
    faults = sum(len(verdict.faults) for verdict in verdicts)
    found = counted(faults, "fault") if faults else "all sound"
    return f"{len(verdicts)} checked, {found}."
