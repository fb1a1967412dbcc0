"""`interlock demo`: declare, check and draw the machines, then follow one job through a crash.

Everything here happens in memory and on a pretended clock, but nothing is staged: the tables decide,
the couplings carry every consequence over, and each step is held against the invariants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from interlock.lifecycles import ATTEMPT, COUPLINGS, JOB, LEASE, MACHINES, Circumstances, attempt, job, lease
from interlock.lifecycles.attempt import Attempt, Completed
from interlock.lifecycles.job import Job
from interlock.lifecycles.lease import Ack, Complete, Expire, Heartbeat, Lease
from interlock.machine import (
    Coupling,
    Entry,
    Event,
    Machine,
    Refusal,
    Refused,
    blueprint_of,
    entries_of,
    find_faults,
)
from interlock.machine.draw import draw_svg

PICTURES = Path("build/machines")
MAX_LOSSES = 3
LEASE_TTL_S = 120.0
_BEGINNING = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
_COLOURS = {"job": "bright_blue", "attempt": "bright_magenta", "lease": "bright_yellow"}


def run_demo() -> int:
    """The whole demonstration; 0 when everything held."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 150  # a pipe has no width; do not cut what somebody may read later
    sound = show_machines(console)
    story = Story(console)
    told = tell(story)
    console.print()
    console.print(
        f"[bold]{len(story.journal)}[/] steps journalled, [bold]{story.refusals}[/] refused, "
        f"[bold]{story.claims}[/] invariants checked, [bold]{len(story.broken)}[/] broken."
    )
    for claim in story.broken:
        console.print(f"[red]broken:[/] {claim}")
    console.print(f"The pictures are in [bold]{PICTURES}/[/]; try [bold]interlock machine show job[/].")
    return 0 if sound and told and not story.broken else 1


def show_machines(console: Console) -> bool:
    """Check and draw all nine; True when no table has a fault."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    table = Table(title="The nine machines", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("machine", "states", "transitions", "faults", "fingerprint", "what it is"):
        table.add_column(heading, style="dim" if heading == "fingerprint" else None, no_wrap=True)
    sound = True
    for name, machine in MACHINES.items():
        faults = find_faults(machine.table)
        sound = sound and not faults
        blueprint = blueprint_of(machine)
        (PICTURES / f"{name}.svg").write_text(draw_svg(blueprint), encoding="utf-8")
        table.add_row(
            f"[bold]{name}[/]",
            str(len(blueprint.states)),
            str(len(blueprint.transitions)),
            "[green]none[/]" if not faults else f"[red]{len(faults)}[/]",
            blueprint.fingerprint,
            blueprint.doc,
        )
    console.print(table)
    console.print(f"{len(COUPLINGS.all)} couplings make the moves of one an event of another.\n")
    return sound


@dataclass
class Thing:
    """One record of the story."""

    name: str
    machine: Machine[Any, Any]
    state: Any
    data: Any
    parent: Thing | None = None


@dataclass
class Story:
    """A job, its attempts and their leases, in memory."""

    console: Console
    now: datetime = _BEGINNING
    things: list[Thing] = field(default_factory=list)
    journal: list[Entry] = field(default_factory=list)
    runner: str = ""
    losses: int = 0
    refusals: int = 0
    claims: int = 0
    broken: list[str] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        """Let time pass, on the pretended clock."""
        self.now += timedelta(seconds=seconds)

    def say(self, words: str) -> None:
        """A line that belongs to no record."""
        self.console.print(Text.assemble((self._time(), "dim"), "  ", (words, "italic")))

    def create(self, machine: Machine[Any, Any], parent: Thing | None) -> Thing:
        """A new record in its initial state."""
        number = sum(thing.machine is machine for thing in self.things) + 1
        thing = Thing(f"{machine.name} {number}", machine, machine.initial, self._data(machine), parent)
        self.things.append(thing)
        self._print(thing, "created", str(thing.state), "")
        return thing

    def send(self, thing: Thing, event: Event, cause: str = "") -> None:
        """Decide, take every step, journal it, check the invariants, and follow the couplings."""
        decision = thing.machine.decide(thing.state, thing.data, event)
        if isinstance(decision, Refused):
            self._print_refusal(thing, decision)
            return
        before_state, before = thing.state, thing.data
        thing.state, thing.data = decision.state, decision.data
        self.journal += entries_of(decision, entity=thing.name, at=self.now, cause=cause)
        self._check(thing, before_state, before)
        for step in decision.steps:
            arrow = f"{step.source} → {step.target}" if step.moves else f"stays {step.target}"
            self._print(thing, step.event, arrow, step.why)
            circumstances = self._circumstances(step.event)
            for coupling in COUPLINGS.after(step, circumstances):
                self._follow(coupling, thing, event)

    def newest(self, machine: Machine[Any, Any]) -> Thing:
        """The record of this machine that was created last."""
        return next(thing for thing in reversed(self.things) if thing.machine is machine)

    def _follow(self, coupling: Coupling[Circumstances], thing: Thing, event: Event) -> None:
        if coupling.effect not in (JOB, ATTEMPT, LEASE):
            return  # this story has no run, no worker and no simulation in it
        if coupling.event is None:
            parent = thing if coupling.effect is LEASE or thing.machine is JOB else thing.parent
            self.create(coupling.effect, parent)
            return
        make = _CONSEQUENCES.get(coupling.event)
        sent = make(self, event) if make is not None else coupling.event()
        self.send(self._related(coupling.effect, thing), sent, cause=thing.name)

    def _related(self, machine: Machine[Any, Any], thing: Thing) -> Thing:
        below = (child for child in self.things if child.machine is machine and child.parent is thing)
        return thing.parent if thing.parent and thing.parent.machine is machine else next(below)

    def _circumstances(self, event: str) -> Circumstances:
        self.losses += event == attempt.lease_expired.name
        return Circumstances(
            tries_left=True, losses_left=self.losses <= MAX_LOSSES, every_shard_succeeded=True
        )

    def _data(self, machine: Machine[Any, Any]) -> object:
        if machine is JOB:
            return Job(created_at=self.now)
        if machine is ATTEMPT:
            return Attempt()
        return Lease(runner_id=self.runner, expires_at=self.now + timedelta(seconds=30))

    def _check(self, thing: Thing, before_state: Any, before: Any) -> None:
        machine = thing.machine
        self.claims += len(machine.table.invariants)
        self.broken += machine.broken(thing.state, thing.data)
        self.broken += machine.broken_across(before_state, before, thing.state, thing.data)

    def _print(self, thing: Thing, event: str, what: str, why: str) -> None:
        colour = _COLOURS[thing.machine.name]
        indent = 2 * list(_COLOURS).index(thing.machine.name)
        who = Text(f"{' ' * indent}{thing.name}".ljust(15), style=colour)
        line = Text.assemble((self._time(), "dim"), "  ", who, event.ljust(20), " ")
        outcome = Text.from_markup(what)
        outcome.pad_right(max(0, 26 - outcome.cell_len))
        line.append_text(outcome).append(f" {why}", style="dim")
        self.console.print(line, soft_wrap=True)

    def _print_refusal(self, thing: Thing, refused: Refused[Any]) -> None:
        ignored = refused.kind is Refusal.IGNORED
        self.refusals += not ignored
        self._print(thing, refused.asked, "[dim]ignored[/]" if ignored else "[red]refused[/]", refused.why)

    def _time(self) -> str:
        return f"{(self.now - _BEGINNING).total_seconds():7.1f} s"


_CONSEQUENCES: dict[type[Event], Callable[[Story, Event], Event]] = {
    job.AllocateResources: lambda story, _: job.AllocateResources(at=story.now),
    job.Success: lambda story, _: job.Success(at=story.now),
    job.Error: lambda story, _: job.Error(at=story.now),
    attempt.Completed: lambda _, __: Completed(succeeded=True),
}
"""How a consequence that carries something is made; the others are plain names."""


def tell(story: Story) -> bool:
    """One job: taken, lost with its worker, tried again, and done. True when it ended well."""
    work = story.create(JOB, None)
    story.send(work, job.Validate(at=story.now))
    dispatch(story, "worker-1")
    story.wait(20)
    first = story.newest(LEASE)
    story.send(first, beat(story))
    story.wait(15)
    story.say("worker-1 falls silent: killed, frozen or cut off, nobody can tell")
    story.wait(LEASE_TTL_S - 15)
    story.send(first, Expire(at=story.now))
    story.wait(0.5)
    dispatch(story, "worker-2")
    story.wait(20)
    story.send(story.newest(LEASE), beat(story))
    story.wait(5)
    story.say("worker-1 was only frozen: it wakes up and reports its result")
    story.send(first, Complete(at=story.now, runner_id="worker-1"))
    story.wait(10)
    story.send(story.newest(LEASE), Complete(at=story.now, runner_id="worker-2"))
    return bool(work.state is job.COMPLETED and first.state is lease.EXPIRED)


def dispatch(story: Story, runner: str) -> None:
    """Publish the newest attempt and let a runner take it."""
    tried = story.newest(ATTEMPT)
    story.runner = runner
    story.send(tried, attempt.publish)
    story.say(f"{runner} asks for work")
    story.send(tried, attempt.grant)
    story.wait(0.2)
    story.send(story.newest(LEASE), Ack(at=story.now, runner_id=runner, ttl_s=LEASE_TTL_S))


def beat(story: Story) -> Heartbeat:
    """A heartbeat of whoever is at work."""
    return Heartbeat(at=story.now, runner_id=story.runner, ttl_s=LEASE_TTL_S)
