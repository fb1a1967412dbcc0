"""Attachments of jobs: log lines, large results, lists of children and artifacts.

Each is a separate record, so that the record of the job does not grow with them. The content of an artifact
is a blob.

Why: decisions 0124 and 0133.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import WriteOnce
from interlock.errors import ArtifactExists, InterlockError, NoBlobs, UnknownArtifact
from interlock.machine import Event, command, consequence, end, state
from interlock.store.contract import Store
from interlock.store.records import Change, Key, Query, Record
from interlock.systems.blobs import Blobs, gone
from interlock.systems.orchestrator.body import AttemptBody, LeaseBody, Mail
from interlock.systems.orchestrator.texts import (
    MAX_LEVEL,
    MAX_LINE,
    MAX_LINES,
    fitting,
    fitting_lines,
    opening,
)
from interlock.systems.orchestrator.tokens import raise_for_answer, read_token
from interlock.wire.artifacts import ArtifactView, checked_name, newest
from interlock.wire.runner import Complete, Failed, Heartbeat, LogLine, Message, SendMessages, size_of


class KeptState(StrEnum):
    """The states of such a record."""

    OPEN = "open"
    KEPT = "kept"
    DISCARDED = "discarded"


OPEN, KEPT, DISCARDED = KeptState.OPEN, KeptState.KEPT, KeptState.DISCARDED

keep: Event = command(
    "keep", "It came with a message that was accepted under the live lease.", by="orchestrator"
)
discard: Event = consequence("discard", "It is no longer wanted.", by="operator")


def _kept_beside_a_job(name: str, doc: str) -> WriteOnce[KeptState]:
    return WriteOnce(
        name,
        doc,
        opened=state(OPEN, "On its way.", turn="orchestrator"),
        settled=end(KEPT, "Stored; it is never changed."),
        dropped=end(DISCARDED, "Not wanted."),
        settle=keep,
        why="It came with a message that was accepted.",
        drop=discard,
    )


LOG = _kept_beside_a_job("log", "Some lines that an attempt has written.")
RESULT = _kept_beside_a_job("result", "The return value of an attempt, where that is large.")

CHILDREN = _kept_beside_a_job("children", "Jobs that a handler has submitted under a name.")
ARTIFACT = _kept_beside_a_job("artifact", "An artifact of an attempt; its content is a blob.")


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a record of log lines."""

    shard: int
    attempt: int
    sequence: int
    lines: tuple[LogLine, ...]
    offset: int = 0
    """Their offset in the log of the attempt, in bytes."""
    missing: int = 0
    """Number of bytes right before them that had not arrived."""
    late: bool = False
    """Whether they arrived after later lines."""


class ArtifactBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an artifact's record."""

    shard: int
    attempt: int
    name: str
    sha256: str
    size: int


class ArtifactHeartbeat(Heartbeat, frozen=True, kw_only=True, tag="artifact"):
    """A heartbeat with a file, which is stored as a blob.

    It is not a message of the wire: only the process that stored the blob sends it.
    """

    name: str
    sha256: str
    size: int


class CacheHeartbeat(Heartbeat, frozen=True, kw_only=True, tag="cache"):
    """A heartbeat with a cache, which is stored as a blob. It is not a message of the wire either."""

    kept: Change
    """The record of the cache."""


class HeartbeatWithChildren(Heartbeat, frozen=True, kw_only=True, tag="children"):
    """A heartbeat with children of the job.

    It is not a message of the wire: only the process that creates the children in the same commit sends it.
    """

    children: int


class WaitHeartbeat(Heartbeat, frozen=True, kw_only=True, tag="wait"):
    """A heartbeat with a wait of the job; only the process that writes its record sends it."""

    address: str
    mail: Mail


class NamedChildrenBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a record of children under a name."""

    shard: int
    name: str
    ids: tuple[str, ...]
    fingerprint: str
    """Digest of their tasks and inputs: the same name for others is an error, not a repeat."""


class PlacedLine(msgspec.Struct, frozen=True):
    """A line for display, and its offset in the log of its attempt."""

    offset: int
    line: LogLine


def lines_of(chunk: Chunk) -> Iterator[PlacedLine]:
    """Yield the lines of a chunk, and one for a gap or a late arrival."""
    at = chunk.offset
    if chunk.lines and (chunk.missing or chunk.late):
        noun = "byte is" if chunk.missing == 1 else "bytes are"
        note = f"{chunk.missing:,} {noun} missing here" if chunk.missing else f"Late, for byte {at:,}:"
        yield PlacedLine(at - chunk.missing, LogLine(chunk.lines[0].at, "gap", note))
    for line in chunk.lines:
        yield PlacedLine(at, line)
        at += size_of(line)


def chunk_change(job_id: str, name: str, chunk: Chunk, *, commit_id: str, actor: str) -> Change:
    """Return the record of log lines, named after their message."""
    chunk_id = f"{job_id}.{chunk.shard}.{chunk.attempt}.{name}"
    body = msgspec.json.encode(chunk)
    return LOG.change(chunk_id, body, settle=True, parent=job_id, actor=actor, commit_id=commit_id)


def result_change(
    job_id: str, attempt_name: str, result: msgspec.Raw, *, commit_id: str, actor: str
) -> Change:
    """Return the record of a large result, to commit with the completion."""
    name = result_key(job_id, attempt_name).id
    return RESULT.change(name, bytes(result), settle=True, parent=job_id, actor=actor, commit_id=commit_id)


def result_key(job_id: str, attempt_name: str) -> Key:
    """Return the key of the large result of an attempt."""
    return Key(RESULT.name, f"{job_id}.{attempt_name}")


def named_children_change(job_id: str, named: NamedChildrenBody, *, commit_id: str, actor: str) -> Change:
    """Return the record of children under a name, to be committed with them."""
    key = named_children_key(job_id, named.shard, named.name)
    body = msgspec.json.encode(named)
    return CHILDREN.change(key.id, body, settle=True, parent=job_id, actor=actor, commit_id=commit_id)


def named_children_key(job_id: str, shard: int, name: str) -> Key:
    """Return the key of a shard's children by name, for all its attempts."""
    return Key(CHILDREN.name, f"{job_id}.{shard}.{hashlib.sha256(name.encode()).hexdigest()[:20]}")


def artifact_change(job_id: str, artifact: ArtifactBody, *, commit_id: str, actor: str) -> Change:
    """Return the record of an artifact, to be committed with its message."""
    key = artifact_key(job_id, f"{artifact.shard}.{artifact.attempt}", artifact.name)
    body = msgspec.json.encode(artifact)
    return ARTIFACT.change(key.id, body, settle=True, parent=job_id, actor=actor, commit_id=commit_id)


def artifact_key(job_id: str, attempt_name: str, name: str) -> Key:
    """Return the key of an artifact; names are unique within an attempt."""
    return Key(ARTIFACT.name, f"{job_id}.{attempt_name}.{hashlib.sha256(name.encode()).hexdigest()[:20]}")


MOST_GAPS = 32
"""Maximum number of gaps to remember."""
NO_END = sys.maxsize


class Stretch(msgspec.Struct, frozen=True):
    """New lines without a gap between them."""

    offset: int
    lines: tuple[LogLine, ...]
    missing: int = 0
    """Number of missing bytes before them."""
    late: bool = False
    """Whether they belong before lines that were stored earlier."""


def placed(held: LeaseBody, message: Message, most: int) -> list[Stretch]:
    """Return the new lines of a message, and move the lease's log position."""
    lines, known = message.log, held.logged
    if not lines:
        return []
    begin = known if message.log_offset is None else message.log_offset
    end = begin + sum(map(size_of, lines))
    stretches = []
    for first, last in (*held.gaps, (known, NO_END)):
        if new := tuple(_lines_between(lines, begin, first, min(last, most))):
            at, late = max(begin, first), last is not NO_END
            stretches.append(Stretch(at, new, 0 if late else at - first, late))
    if known < most <= end:
        stretches.append(Stretch(most, (_full(lines[-1].at, most),)))
    held.logged = max(known, end)
    held.gaps = tuple(_gaps(held.gaps, known, begin, end))[-MOST_GAPS:]
    return stretches


def chunk_changes(
    job_id: str,
    one: AttemptBody,
    message: Message,
    name: str,
    stretches: list[Stretch],
    now: datetime,
    commit_id: str,
) -> list[Change]:
    """Return the records of new lines, and of a whole traceback."""
    assert one.lease is not None
    chunks = [_chunk(one, message.sequence, stretch) for stretch in stretches]
    failed = message.outcome if isinstance(message, Complete) else None
    if isinstance(failed, Failed) and failed.details and not failed.logged:
        *chunks, last = chunks or [_chunk(one, message.sequence, Stretch(one.lease.logged, ()))]
        explained = (*last.lines, LogLine(now, "error", failed.details))
        chunks.append(_fitting(msgspec.structs.replace(last, lines=explained)))
    # The names order records of the same instant.
    return [
        chunk_change(
            job_id, f"{chunk.offset:014d}-{name}", chunk, commit_id=commit_id, actor=message.runner_id
        )
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
    """Return the end of a chunk that is too long; the rest becomes a gap."""
    kept = fitting_lines(chunk.lines, MAX_LINES)
    left_out = sum(map(size_of, chunk.lines[: len(chunk.lines) - len(kept)]))
    return msgspec.structs.replace(
        chunk, lines=kept, offset=chunk.offset + left_out, missing=chunk.missing + left_out
    )


def _lines_between(lines: tuple[LogLine, ...], at: int, first: int, last: int) -> Iterator[LogLine]:
    """Yield the lines between two offsets of the log."""
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
    """Yield the remaining gaps after these lines."""
    for first, last in gaps:
        if first < begin:
            yield first, min(last, begin)
        if end < last:
            yield max(first, end), last
    if known < begin:
        yield known, begin


def _full(at: datetime, most: int) -> LogLine:
    return LogLine(at, "gap", f"The log is full: of one attempt {most:,} bytes are kept.")


PAGE = 500


class Artifacts:
    """Stores and reads artifacts of attempts."""

    def __init__(self, store: Store, send: SendMessages, blobs: Blobs | None) -> None:
        self._store = store
        self._send = send
        self._blobs = blobs

    async def keep(self, token: str, runner_id: str, name: str, pieces: AsyncIterable[bytes]) -> ArtifactView:
        """Store a file of the attempt of the token; idempotent."""
        checked_name(name)
        blobs = self._place()
        await self._send_one(Heartbeat(token=token, runner_id=runner_id))
        blob = await blobs.put(pieces)
        if (kept := await self._kept(token, name)) is not None:
            return _same(kept, blob.sha256)
        upload = ArtifactHeartbeat(
            token=token, runner_id=runner_id, name=name, sha256=blob.sha256, size=blob.size
        )
        try:
            await self._send_one(upload)
        except InterlockError:
            # Another process may have stored the same file at the same time.
            if (kept := await self._kept(token, name)) is None:
                raise
            return _same(kept, blob.sha256)
        kept = await self._kept(token, name)
        assert kept is not None
        return kept

    async def list(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Return all artifacts of a job, oldest first."""
        query = Query(kind=ARTIFACT.name, parent=job_id, newest_first=False, limit=PAGE)
        found: list[ArtifactView] = []
        while True:
            page = await self._store.find(query)
            found += map(_view, page.records)
            if not page.cursor:
                return tuple(
                    sorted(found, key=lambda one: (one.created_at, one.shard, one.attempt, one.name))
                )
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def find(self, job_id: str, name: str, attempt: str = "") -> ArtifactView:
        """Return the artifact of the last attempt, or of `attempt` (`1.2`)."""
        view = newest(await self.list(job_id), name, attempt)
        if view is None:
            raise unknown_artifact(job_id, name, attempt)
        if self._blobs is None or not await self._blobs.has(view.sha256):
            raise gone(view.sha256)
        return view

    def read(self, view: ArtifactView) -> AsyncIterator[bytes]:
        """Yield the content of an artifact."""
        return self._place().read(view.sha256)

    @asynccontextmanager
    async def opened(
        self, job_id: str, name: str, attempt: str = ""
    ) -> AsyncIterator[tuple[ArtifactView, AsyncIterator[bytes]]]:
        """Yield an artifact and its content."""
        view = await self.find(job_id, name, attempt)
        yield view, self.read(view)

    def _place(self) -> Blobs:
        if self._blobs is None:
            raise NoBlobs(
                "No folder for artifacts is configured.",
                todo='Name one in interlock.toml: [blobs] directory = "/srv/interlock/blobs".',
            )
        return self._blobs

    async def _send_one(self, message: Message) -> None:
        (answer,) = await self._send([message])
        raise_for_answer(answer)

    async def _kept(self, token: str, name: str) -> ArtifactView | None:
        about = read_token(token)
        assert about is not None  # the message was accepted
        key: Key = artifact_key(about.job_id, f"{about.shard}.{about.index}", name)
        (record,) = await self._store.load([key])
        return None if record is None else _view(record)


def unknown_artifact(job_id: str, name: str, attempt: str = "") -> UnknownArtifact:
    """Return the error, the same from a store and from a server."""
    which = f"The attempt {attempt} of {job_id}" if attempt else job_id
    return UnknownArtifact(
        f"{which} has no artifact {name[:64]!r}.",
        todo=f"List the artifacts: interlock job artifacts {job_id}",
        facts={"job_id": job_id, "name": name[:64]},
    )


def _same(kept: ArtifactView, sha256: str) -> ArtifactView:
    if kept.sha256 == sha256:
        return kept
    raise ArtifactExists(
        f"The attempt has another artifact with the name {kept.name!r}; that one stays.",
        todo="Use another name.",
        facts={"name": kept.name, "sha256": kept.sha256},
    )


def _view(record: Record) -> ArtifactView:
    body = msgspec.json.decode(record.body, type=ArtifactBody)
    return ArtifactView(
        job_id=record.parent or "",
        name=body.name,
        shard=body.shard,
        attempt=body.attempt,
        size=body.size,
        sha256=body.sha256,
        created_at=record.created_at,
    )
