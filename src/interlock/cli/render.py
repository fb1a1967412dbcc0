"""How what is known about machines is shown; the plain ways of showing are those of `printing`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import typer

from interlock.cli.errors import colour_wanted
from interlock.cli.machine_views import Verdict, machine_sheets, silence_sheet
from interlock.cli.output import Sheet, on_terminal, print_json, print_sheets
from interlock.machine import Blueprint, Difference
from interlock.text import counted

__all__ = [
    "difference_entry",
    "on_terminal",
    "print_difference",
    "print_json",
    "print_machine",
    "print_sheets",
    "print_verdicts",
]

_COLOUR_OF_CHANGE = {"+": "green", "-": "red", "~": "yellow"}


def print_machine(blueprint: Blueprint) -> None:
    """One machine: what it promises, then its tables."""
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
        what = f"Deliberately nothing: {counted(len(silences.rows), 'pair')} of state and event"
        _line(_styled(f"{what}, see draw --format md, or show --json.", dim=True))


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """What was checked, and every fault with its code."""
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
    """What changed, and whom the new table would strand."""
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
    """The same for a program."""
    return {"ok": not difference.stranded, **msgspec.to_builtins(difference)}


def _line(*parts: str) -> None:
    """One line; the colours are taken out unless a terminal is there and NO_COLOR is not."""
    typer.echo("".join(parts), color=colour_wanted())


def _styled(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    return typer.style(text, fg=fg, bold=bold, dim=dim)


def _plain(verdict: Verdict) -> list[str]:
    faults = [f"fault\t{verdict.machine}\t{fault.code}\t{fault.sentence}" for fault in verdict.faults]
    return faults or [f"ok\t{verdict.machine}"]


def _summary(verdicts: Sequence[Verdict]) -> str:
    faults = sum(len(verdict.faults) for verdict in verdicts)
    found = counted(faults, "fault") if faults else "all sound"
    return f"{len(verdicts)} checked, {found}."
