"""The kernel: declare a lifecycle, check it, step it, draw it. It knows no lifecycle, clock or I/O.

Reading order:

    events       events of a machine
    table        the elements of a table
    check        the checks of a table
    decision     the answers: moved, or refused and why; and their journal entries
    machine      a checked table that decides: each pair of state and event is compiled into one function
    couplings    how the moves of one machine become events of another
    cascade      follow couplings to their end, over the parts of one record
    blueprint    a machine as plain data, which `compare` and `draw` read
"""

from interlock.machine.blueprint import Blueprint, blueprint_of
from interlock.machine.check import Fault, find_faults
from interlock.machine.compare import Difference, compare
from interlock.machine.couplings import Coupling, Couplings, couple, map_of
from interlock.machine.decision import Decision, Entry, Moved, Refusal, Refused, Step, entries_of
from interlock.machine.events import (
    Event,
    EventRef,
    Kind,
    command,
    consequence,
    event,
    message,
    signal,
    timer,
)
from interlock.machine.machine import Machine
from interlock.machine.table import (
    STAY,
    Across,
    Always,
    Deadline,
    Row,
    State,
    Table,
    Tone,
    end,
    ignore,
    on,
    refuse,
    rest,
    state,
    walk,
)

__all__ = [
    "STAY",
    "Across",
    "Always",
    "Blueprint",
    "Coupling",
    "Couplings",
    "Deadline",
    "Decision",
    "Difference",
    "Entry",
    "Event",
    "EventRef",
    "Fault",
    "Kind",
    "Machine",
    "Moved",
    "Refusal",
    "Refused",
    "Row",
    "State",
    "Step",
    "Table",
    "Tone",
    "blueprint_of",
    "command",
    "compare",
    "consequence",
    "couple",
    "end",
    "entries_of",
    "event",
    "find_faults",
    "ignore",
    "map_of",
    "message",
    "on",
    "refuse",
    "rest",
    "signal",
    "state",
    "timer",
    "walk",
]
