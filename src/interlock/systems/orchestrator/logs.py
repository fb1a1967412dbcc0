"""Where lines belong in the log of their attempt.

The log of an attempt is one stream of bytes, a line feed after each line. A message says at which
byte its lines begin. What is there already is not stored again, whichever message brought it; what
was skipped is a gap, which is named where it is and may be filled later. A runner that does not count
has its lines put at the end, and only the numbers of its messages keep them from coming twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime

import msgspec

from interlock.store.records import Change
from interlock.systems.orchestrator.attachments import Chunk, chunk_change
from interlock.systems.orchestrator.body import AttemptBody, LeaseBody
from interlock.systems.orchestrator.texts import (
    MAX_LEVEL,
    MAX_LINE,
    MAX_LINES,
    fitting,
    fitting_lines,
    opening,
)
from interlock.wire.runner import Complete, Failed, LogLine, Message, size_of

MOST_GAPS = 32
"""How many gaps are still waited for."""
NO_END = sys.maxsize


class Stretch(msgspec.Struct, frozen=True):
    """Lines that are new, without a gap between them."""

    offset: int
    lines: tuple[LogLine, ...]
    missing: int = 0
    """How many bytes before them have not arrived."""
    late: bool = False
    """They belong before others that were stored earlier."""


def placed(held: LeaseBody, message: Message, most: int) -> list[Stretch]:
    """What of the lines of a message is new; the lease is told how far its log has come."""
    lines, known = message.log, held.logged
    if not lines:
        return []
    begin = known if message.log_offset is None else message.log_offset
    end = begin + sum(map(size_of, lines))
    stretches = []
    for first, last in (*held.gaps, (known, NO_END)):
        if new := tuple(_between(lines, begin, first, min(last, most))):
            at, late = max(begin, first), last is not NO_END
            stretches.append(Stretch(at, new, 0 if late else at - first, late))
    if known < most <= end:
        stretches.append(Stretch(most, (_full(lines[-1].at, most),)))
    held.logged = max(known, end)
    held.gaps = tuple(_gaps(held.gaps, known, begin, end))[-MOST_GAPS:]
    return stretches


def chunk_changes(
    job_id: str, one: AttemptBody, message: Message, name: str, told: list[Stretch], now: datetime, mark: str
) -> list[Change]:
    """The records of what is new, and of the whole of a traceback."""
    assert one.lease is not None
    chunks = [_chunk(one, message.sequence, stretch) for stretch in told]
    failed = message.outcome if isinstance(message, Complete) else None
    if isinstance(failed, Failed) and failed.details and not failed.logged:
        *chunks, last = chunks or [_chunk(one, message.sequence, Stretch(one.lease.logged, ()))]
        explained = (*last.lines, LogLine(now, "error", failed.details))
        chunks.append(_fitting(msgspec.structs.replace(last, lines=explained)))
    # Of what arrives at the same instant the names decide which is first.
    return [
        chunk_change(job_id, f"{chunk.offset:014d}-{name}", chunk, mark=mark, actor=message.runner_id)
        for chunk in chunks
    ]


def _chunk(one: AttemptBody, sequence: int, stretch: Stretch) -> Chunk:
    clean = (
        LogLine(line.at, opening(line.level, MAX_LEVEL), fitting(line.text, MAX_LINE))
        for line in stretch.lines
    )
    chunk = Chunk(
        shard=one.shard,
        attempt=one.index,
        sequence=sequence,
        lines=tuple(clean),
        offset=stretch.offset,
        missing=stretch.missing,
        late=stretch.late,
    )
    return _fitting(chunk)


def _fitting(chunk: Chunk) -> Chunk:
    """Of one that is too long the end is kept, and what is left out is one more gap."""
    kept = fitting_lines(chunk.lines, MAX_LINES)
    left_out = sum(map(size_of, chunk.lines[: len(chunk.lines) - len(kept)]))
    return msgspec.structs.replace(
        chunk, lines=kept, offset=chunk.offset + left_out, missing=chunk.missing + left_out
    )


def _between(lines: tuple[LogLine, ...], at: int, first: int, last: int) -> Iterator[LogLine]:
    """The lines that lie between two bytes of the log, when they begin at a third."""
    for line in lines:
        size = size_of(line)
        begin, end = max(at, first) - at, min(at + size, last) - at
        if begin < end:
            yield line if (begin, end) == (0, size) else _part(line, begin, end)
        at += size


def _part(line: LogLine, begin: int, end: int) -> LogLine:
    text = line.text.encode(errors="replace")[begin:end].decode(errors="replace")
    return msgspec.structs.replace(line, text=text)


def _gaps(gaps: tuple[tuple[int, int], ...], known: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """What is still missing when this has arrived."""
    for first, last in gaps:
        if first < begin:
            yield first, min(last, begin)
        if end < last:
            yield max(first, end), last
    if known < begin:
        yield known, begin


def _full(at: datetime, most: int) -> LogLine:
    return LogLine(at, "gap", f"The log is full: of one attempt {most:,} bytes are kept.")
