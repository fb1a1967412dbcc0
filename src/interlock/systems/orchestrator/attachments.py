"""What is kept beside a job because the job must not grow with it: lines, large results, artifacts.

Each is written once, in the commit of the message that brought it: so it is fenced like the message,
cannot arrive twice, and outlives a forced cancel. Each is a record of its own kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from interlock.engine.write_once import WriteOnce
from interlock.machine import command, consequence, end, state
from interlock.store.records import Change, Key
from interlock.wire.runner import Heartbeat, LogLine, size_of


class KeptState(StrEnum):
    """Where such a record stands."""

    OPEN = "open"
    KEPT = "kept"
    DISCARDED = "discarded"


OPEN, KEPT, DISCARDED = KeptState.OPEN, KeptState.KEPT, KeptState.DISCARDED

keep = command("keep", "It came with a message that was accepted under the live lease.", by="orchestrator")
discard = consequence("discard", "Nobody wants it.", by="operator")


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
RESULT = _kept_beside_a_job("result", "What an attempt returned, where that is large.")

CHILDREN = _kept_beside_a_job("children", "Jobs that a handler has submitted under a name.")
ARTIFACT = _kept_beside_a_job("artifact", "A file that an attempt has left behind; what it says is a blob.")


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """The body of some lines."""

    shard: int
    attempt: int
    sequence: int
    lines: tuple[LogLine, ...]
    offset: int = 0
    """Where in the log of the attempt they begin, in bytes."""
    missing: int = 0
    """How many bytes right before them had not arrived when they did."""
    late: bool = False
    """They were missing when later ones arrived."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a file that an attempt has left behind."""

    shard: int
    attempt: int
    name: str
    sha256: str
    size: int


class Upload(Heartbeat, frozen=True, kw_only=True, tag="artifact"):
    """A sign of life that brings a file, which is a blob by now.

    It is no message of the wire: only whoever has put the blob in its place says this.
    """

    name: str
    sha256: str
    size: int


class Saving(Heartbeat, frozen=True, kw_only=True, tag="cache"):
    """A sign of life that brings a cache, which is a blob by now. It is no message of the wire either."""

    kept: Change
    """The record that names it."""


class Births(Heartbeat, frozen=True, kw_only=True, tag="children"):
    """A sign of life that brings children of the job.

    It is no message of the wire either: only whoever makes the children in the same commit says this.
    """

    children: int


class Brood(msgspec.Struct, frozen=True, kw_only=True):
    """The body of children under a name."""

    shard: int
    name: str
    ids: tuple[str, ...]
    fingerprint: str
    """Of their tasks and inputs: the same name for others is a mistake, and no repeat."""


class Placed(msgspec.Struct, frozen=True):
    """A line as it is shown, and where it is in the log of its attempt."""

    offset: int
    line: LogLine


def lines_of(chunk: Chunk) -> Iterator[Placed]:
    """The lines of a chunk; what is missing before them, or that they come late, is a line as well."""
    at = chunk.offset
    if chunk.lines and (chunk.missing or chunk.late):
        noun = "byte is" if chunk.missing == 1 else "bytes are"
        told = f"{chunk.missing:,} {noun} missing here" if chunk.missing else f"Late, for byte {at:,}:"
        yield Placed(at - chunk.missing, LogLine(chunk.lines[0].at, "gap", told))
    for line in chunk.lines:
        yield Placed(at, line)
        at += size_of(line)


def chunk_change(job_id: str, name: str, chunk: Chunk, *, mark: str, actor: str) -> Change:
    """The lines of one message, to be committed with it; the name of the message makes it unique."""
    chunk_id = f"{job_id}.{chunk.shard}.{chunk.attempt}.{name}"
    body = msgspec.json.encode(chunk)
    return LOG.change(chunk_id, body, settle=True, parent=job_id, actor=actor, mark=mark)


def result_change(job_id: str, attempt_name: str, result: msgspec.Raw, *, mark: str, actor: str) -> Change:
    """A large result, to be committed with the completion that brought it."""
    name = result_key(job_id, attempt_name).id
    return RESULT.change(name, bytes(result), settle=True, parent=job_id, actor=actor, mark=mark)


def result_key(job_id: str, attempt_name: str) -> Key:
    """Where the large result of an attempt is."""
    return Key(RESULT.name, f"{job_id}.{attempt_name}")


def brood_change(job_id: str, brood: Brood, *, mark: str, actor: str) -> Change:
    """Children under a name, to be committed with them."""
    key = brood_key(job_id, brood.shard, brood.name)
    body = msgspec.json.encode(brood)
    return CHILDREN.change(key.id, body, settle=True, parent=job_id, actor=actor, mark=mark)


def brood_key(job_id: str, shard: int, name: str) -> Key:
    """Where the children of a shard under a name are: a later attempt looks at the same place."""
    return Key(CHILDREN.name, f"{job_id}.{shard}.{hashlib.sha256(name.encode()).hexdigest()[:20]}")


def artifact_change(job_id: str, artifact: Artifact, *, mark: str, actor: str) -> Change:
    """A file of an attempt, to be committed with the message that brought it."""
    key = artifact_key(job_id, f"{artifact.shard}.{artifact.attempt}", artifact.name)
    body = msgspec.json.encode(artifact)
    return ARTIFACT.change(key.id, body, settle=True, parent=job_id, actor=actor, mark=mark)


def artifact_key(job_id: str, attempt_name: str, name: str) -> Key:
    """Where the record of a file is; an attempt has one of each name."""
    return Key(ARTIFACT.name, f"{job_id}.{attempt_name}.{hashlib.sha256(name.encode()).hexdigest()[:20]}")
