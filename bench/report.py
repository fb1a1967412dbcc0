"""What a run shows: one table for each section on the screen, and every round as JSON on request."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count, getloadavg

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.rounds import Figure

PACKAGES = ("interlock", "transitions", "python-statemachine", "msgspec", "asyncpg", "redis")


class Line(msgspec.Struct, frozen=True):
    """One measure: its unit, and a figure for each contender."""

    measure: str
    unit: str
    figures: dict[str, Figure]

    def ratio(self, contender: str, base: str) -> float:
        """How many times as much `contender` needs as `base`."""
        return self.figures[contender].ratio(self.figures[base])


class Section(msgspec.Struct, frozen=True):
    """What one suite measured, and which of its aims it missed, in sentences."""

    title: str
    base: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """A whole run, with what has to be known to compare it with another."""

    at: datetime
    python: str
    machine: str
    cores: int
    load: float
    versions: dict[str, str]
    sections: tuple[Section, ...]
    command: str = ""
    """What was typed, without `--json` and `--keep`."""


def report(sections: tuple[Section, ...], command: str = "") -> Report:
    """The sections, with the circumstances under which they came about."""
    return Report(
        at=datetime.now(UTC),
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        cores=cpu_count() or 0,
        load=getloadavg()[0],
        versions={package: version(package) for package in PACKAGES},
        sections=sections,
        command=command,
    )


def show(run: Report, console: Console) -> None:
    """Print the run."""
    packages = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    console.print(f"Python {run.python}, {packages}")
    console.print(f"{run.machine}, {run.cores} cores, load {run.load:.1f}, {run.at:%Y-%m-%d %H:%M} UTC\n")
    for section in run.sections:
        console.print(_table(section))
        for note in section.notes:
            console.print(f"  {note}", style="dim", highlight=False)
        for sentence in section.missed:
            console.print(f"  missed: {sentence}", style="bold red", highlight=False)
        console.print()


def _table(section: Section) -> Table:
    title = f"{section.title}, beside {section.base}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", ""):
        table.add_column(heading, no_wrap=True)
    for heading in ("median", "min-max", "times"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in section.lines:
        for place, (contender, figure) in enumerate(line.figures.items()):
            table.add_row(
                f"{line.measure}, {line.unit}" if place == 0 else "",
                contender,
                number(figure.median),
                _span(figure),
                number(line.ratio(contender, section.base)) if contender != section.base else "",
            )
        table.add_section()
    return table


def _span(figure: Figure) -> str:
    if len(figure.rounds) == 1:
        return ""
    return f"{number(min(figure.rounds))}-{number(max(figure.rounds))}"


def number(value: float) -> str:
    """About three digits, which is more than the rounds agree on."""
    decimals = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}"
