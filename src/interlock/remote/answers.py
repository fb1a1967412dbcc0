"""What a server answers with, as far as it is read here. What is unknown is passed over."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from interlock.store.records import Entry, Note, StepLine
from interlock.systems.orchestrator.attachments import Chunk
from interlock.wire.jobs import JobView, QueueView
from interlock.wire.runner import LogLine
from interlock.wire.runs import RunJobView, RunView


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error."""

    code: str = "error"
    error: str = ""
    todo: str = ""
    allowed: tuple[str, ...] = ()
    facts: dict[str, Any] = {}


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The server can do its work; the time is that of its store."""

    store_at: datetime


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """New jobs, in their order."""

    ids: tuple[str, ...]


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """How many match."""

    number: int
    capped: bool = False


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs."""

    jobs: tuple[JobView, ...]
    cursor: str = ""
    count: Number | None = None


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some runs."""

    runs: tuple[RunView, ...]
    cursor: str = ""


class RunJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs of a run."""

    jobs: tuple[RunJobView, ...]
    next: int | None = None


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """The queues."""

    queues: tuple[QueueView, ...]


class StepRead(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One step of one machine."""

    machine: str
    event: str
    source: str
    target: str
    owner: str
    entity: str = ""
    moves: bool = True

    def line(self) -> StepLine:
        """As the journal keeps it."""
        return StepLine(
            self.machine, self.entity, self.event, self.source, self.target, self.owner, self.moves
        )


class EntryRead(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says about one change, or about one refusal."""

    cursor: str
    at: datetime
    kind: str
    id: str
    version: int
    steps: tuple[StepRead, ...] = ()
    actor: str = ""
    reason: str = ""
    cause: str = ""
    request_id: str = ""
    refusal: str = ""

    def entry(self) -> Entry:
        """As the journal keeps it."""
        note = Note(
            steps=tuple(step.line() for step in self.steps),
            actor=self.actor,
            reason=self.reason,
            cause=self.cause,
            request_id=self.request_id,
            refusal=self.refusal,
        )
        return Entry(
            cursor=self.cursor, at=self.at, kind=self.kind, id=self.id, version=self.version, note=note
        )


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of one record."""

    entries: tuple[EntryRead, ...]
    after: int | None = None


class JournalPage(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the journal."""

    entries: tuple[EntryRead, ...]
    cursor: str
    gap: bool = False


class LineRead(msgspec.Struct, frozen=True, kw_only=True):
    """One line that an attempt has written."""

    at: datetime
    level: str
    text: str
    shard: int
    attempt: int
    offset: int = 0

    def chunk(self) -> Chunk:
        """The line by itself."""
        line = LogLine(self.at, self.level, self.text)
        return Chunk(shard=self.shard, attempt=self.attempt, sequence=0, lines=(line,), offset=self.offset)


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines."""

    lines: tuple[LineRead, ...]
    cursor: str = ""
