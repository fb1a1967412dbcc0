"""What handlers write, kept beside the jobs: each message that carries lines adds one chunk.

A chunk is written once, in the commit of the message that brought it, so it is fenced like the
message itself, cannot arrive twice, and outlives a forced cancel. It is a record of its own: a job
does not grow with what it says.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from interlock.machine import Machine, command, consequence, end, ignore, on, state
from interlock.store.records import Change, Note, StepLine
from interlock.wire.runner import LogLine


class LogState(StrEnum):
    """Where a chunk stands."""

    OPEN = "open"
    KEPT = "kept"
    DISCARDED = "discarded"


OPEN, KEPT, DISCARDED = LogState.OPEN, LogState.KEPT, LogState.DISCARDED

keep = command("keep", "Its lines were accepted under the live lease.", by="orchestrator")
discard = consequence("discard", "Nobody wants it.", by="operator")

# fmt: off
LOG = Machine[LogState, None](
    "log",
    "Some lines that an attempt has written.",
    initial=OPEN,
    spine=(OPEN, KEPT),
    stop=(discard,),
    states=(
        state(OPEN, "On its way.", turn="orchestrator"),
        end(KEPT, "Stored; it is never changed."),
        end(DISCARDED, "Not wanted."),
    ),
    rows=(
        on(keep, OPEN, KEPT, owner="orchestrator", why="It came with a message that was accepted."),
        on(discard, OPEN, DISCARDED, owner="operator", why="Somebody said so."),
        ignore(discard, (KEPT, DISCARDED), why="it is over"),
    ),
)
# fmt: on

_KEEPING = StepLine(LOG.name, "", keep.name, OPEN, KEPT, "orchestrator")


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a chunk."""

    shard: int
    attempt: int
    sequence: int
    lines: tuple[LogLine, ...]


def chunk_change(
    job_id: str, shard: int, index: int, sequence: int, lines: tuple[LogLine, ...], *, mark: str, actor: str
) -> Change:
    """The lines of one message, to be committed with it; the number of the message makes it unique."""
    chunk = Chunk(shard=shard, attempt=index, sequence=sequence, lines=lines)
    return Change(
        kind=LOG.name,
        id=f"{job_id}.{shard}.{index}.{sequence}",
        expected=0,
        state=KEPT,
        body=msgspec.json.encode(chunk),
        parent=job_id,
        note=Note(steps=(_KEEPING,), actor=actor, request_id=mark),
    )
