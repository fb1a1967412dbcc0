"""What a worker and the process of one task say to each other: one JSON object per line."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from interlock.wire.artifacts import ArtifactView
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Failed, Grant, Progress, Succeeded
from interlock.wire.trees import ChildView


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Execute this. The grant comes without its token: a handler has no use for it."""

    module: str
    name: str
    grant: Grant
    path: list[str]
    main: str | None = None
    """The file of the program, when the task was defined in the program itself."""
    memory_limit_bytes: int | None = None
    max_result_bytes: int = 262_144
    trace: dict[str, str] = {}
    """What the handler's own spans continue; empty where nobody traces."""
    job_log_level: str = "info"
    """The lowest level of `logging` that is kept; `off` for nothing."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """The handler shall stop, and this is why."""

    reason: str


class Said(msgspec.Struct, frozen=True, tag="said", omit_defaults=True):
    """What the handler wants sent."""

    progress: Progress | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    log: tuple[tuple[str, str], ...] = ()
    """Level and text."""
    missed: int = 0
    """How many bytes of the log before these lines are lost."""
    heartbeat: bool = False
    uploading: bool = False


class Over(msgspec.Struct, frozen=True, tag="over"):
    """How the handler ended; neither succeeded nor failed when it did as it was told and stopped."""

    outcome: Succeeded | Failed | None = None
    cost: float | None = None
    waits: bool = False
    """It waits for the children of its job."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """The handler wants something of the children of its job; the answer carries the same number."""

    number: int
    name: str = ""
    specs: tuple[JobSpec, ...] = ()
    """Those to be submitted under the name; with none, what has become of all is wanted."""


class Told(msgspec.Struct, frozen=True, tag="told", omit_defaults=True):
    """The answer."""

    number: int
    ids: tuple[str, ...] = ()
    children: tuple[ChildView, ...] = ()
    error: str = ""
    todo: str = ""


class Keep(msgspec.Struct, frozen=True, tag="keep"):
    """A file shall be kept under a name; the answer carries the same number."""

    number: int
    name: str
    path: str


class Kept(msgspec.Struct, frozen=True, tag="kept", omit_defaults=True):
    """What became of it."""

    number: int
    artifact: ArtifactView | None = None
    error: str = ""
    todo: str = ""


Order: TypeAlias = Run | Stop | Kept | Told
Word: TypeAlias = Said | Over | Keep | Ask

read_order = msgspec.json.Decoder(Order).decode
read_word = msgspec.json.Decoder(Word).decode
MAX_LINE_BYTES = 16 * 1024 * 1024


def line_of(said: Order | Word) -> bytes:
    """An order or a word as a line."""
    return msgspec.json.encode(said) + b"\n"
