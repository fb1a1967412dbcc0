"""Rows, verdicts and output of `interlock machine …`.

A declaration with faults never becomes a machine: it raises while its module is imported. `machine check`
reports that error as its answer. So nothing here imports the lifecycles before a command runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec
import typer

from interlock.cli.errors import colour_wanted
from interlock.cli.output import Sheet, on_terminal, print_sheets
from interlock.errors import MalformedCouplings, MalformedTable
from interlock.machine import Blueprint, Coupling, Couplings, Difference, Fault, find_faults
from interlock.machine.blueprint import DeadlineSheet, KeptSheet, StateSheet, TransitionSheet
from interlock.machine.couplings import AnyMachine
from interlock.machine.draw.text import first_sentence, humane
from interlock.text import counted


def list_sheet(blueprints: Iterable[Blueprint]) -> Sheet:
    """Return one row for each machine."""
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
    """Return all tables about one machine; `joined` puts the sources of one row on one line."""
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
    """Return the pairs of state and event that are ignored or refused on purpose."""
    answers = (("ignored", blueprint.ignored), ("refused", blueprint.refused))
    rows = [(s.state, s.event, answer, s.why) for answer, silences in answers for s in silences]
    return Sheet("nothing", "Ignored or refused on purpose", ("in", "event", "is", "because"), rows)


def couplings_sheet(couplings: Iterable[Coupling[Any]]) -> Sheet:
    """Return one row for each coupling."""
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
    if deadline is None:
        return ""
    return f"{humane(deadline.seconds)} since {deadline.since} ({deadline.setting})"


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


COUPLINGS = "couplings"
BAD_COUPLING = "bad-coupling"


class MachineVerdict(msgspec.Struct, frozen=True):
    """The result of checking one machine: every fault found."""

    machine: str
    ok: bool
    faults: tuple[Fault, ...] = ()


def check_machines(names: Sequence[str]) -> list[MachineVerdict]:
    """Check the machines, by default the built-in ones and their couplings; return a verdict on each."""
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
    entry: dict[str, object] = msgspec.to_builtins(verdict)
    return entry


def _on_name(name: str) -> MachineVerdict:
    from interlock.cli.machine_names import load_machine  # it needs lifecycles without faults

    try:
        return _on_machine(load_machine(name))
    except (MalformedTable, MalformedCouplings) as error:
        return _raised_verdict(error, name)


def _on_machine(machine: AnyMachine) -> MachineVerdict:
    return _verdict(machine.name, find_faults(machine.table))


def _on_couplings(couplings: Couplings[Any]) -> MachineVerdict:
    try:
        Couplings(couplings.all)
    except MalformedCouplings as error:
        return _raised_verdict(error, COUPLINGS)
    return _verdict(COUPLINGS, ())


def _raised_verdict(error: MalformedTable | MalformedCouplings, name: str) -> MachineVerdict:
    """Return the faults that a declaration raised; tables give pairs of code and sentence."""
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
    """Print the changes, and the states in use that the new table would strand."""
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
