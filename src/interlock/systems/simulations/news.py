"""What the journal says about a simulation, as news for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SIMULATION
from interlock.store.records import Entry
from interlock.systems.simulations import pulse
from interlock.systems.simulations.pulse import PULSE
from interlock.wire.simulations import SimulationNews

KINDS = frozenset({SIMULATION.name, PULSE.name})

_REQUESTED = {
    simulation.RequestPause.name: "pause_requested",
    simulation.Cancel.name: "cancel_requested",
}
_BEGUN = {simulation.Start.name: "started", simulation.Resume.name: "resumed"}


def news_of(entry: Entry) -> Iterator[SimulationNews]:
    """What has happened, in the order in which it did; nothing for what is not about people."""
    note = entry.note
    if note.refusal:
        return
    if entry.kind == PULSE.name:
        told = note.reason.split("\n") if any(s.event == pulse.danger.name for s in note.steps) else []
        for text in told:
            yield SimulationNews(event="danger", run_id=entry.id, at=entry.at, text=text, actor=note.actor)
        return
    if not note.steps and entry.version > 1 and note.reason:
        yield SimulationNews(
            event="resume_requested", run_id=entry.id, at=entry.at, text=note.reason, actor=note.actor
        )
    if entry.version == 1:
        yield SimulationNews(event="created", run_id=entry.id, at=entry.at, actor=note.actor)
    for step in note.steps:
        name = _BEGUN.get(step.event, step.target) if step.moves else _REQUESTED.get(step.event, "")
        if name:
            yield SimulationNews(event=name, run_id=entry.id, at=entry.at, text=note.reason, actor=note.actor)
