"""The table of a cache: some files that a job has saved under a key, for later jobs of the same repository.

What it promises:

* It is there as a whole or not at all, and never changes: whoever saves under the same key later makes
  a cache of its own, and the newest is the one that is found.
* What a change from a fork has saved is found by its own pull request only: nobody prepares files for others
  from a fork.
* It goes by itself: when nobody has used it for `cache_unused_s`, or when newer ones need its room.

A cache may be gone whenever somebody asks for it. That is no failure: the job does the work itself.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    command,
    consequence,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.store.records import Change, Record
from interlock.wire.caches import CacheView


class CacheState(StrEnum):
    """Where a cache stands."""

    SAVING = "saving"
    KEPT = "kept"
    EXPIRED = "expired"
    EVICTED = "evicted"
    REMOVED = "removed"


SAVING, KEPT = CacheState.SAVING, CacheState.KEPT
EXPIRED, EVICTED, REMOVED = CacheState.EXPIRED, CacheState.EVICTED, CacheState.REMOVED
ENDED = (EXPIRED, EVICTED, REMOVED)

save = command("save", "A job has brought it, all of it, under its live lease.", by="orchestrator")
used = command("used", "A job was given it.", by="orchestrator")
expire = timer("expire", "Nobody has used it for long.", by="clock")
evict = consequence("evict", "Newer ones need its room.", by="orchestrator")
remove = command("remove", "Somebody does not want it any more.", by="operator")

UNUSED = Deadline(expire, "cache_unused_s", 7 * 86_400.0, since="a job was given it, or saved it")

# fmt: off
CACHE = Machine[CacheState, None](
    "cache",
    "Files that a job has saved for later jobs; what they say is a blob.",
    initial=SAVING,
    spine=(SAVING, KEPT, EXPIRED),
    stop=(remove,),
    states=(
        state(SAVING, "On its way; no record says so, for it is written when all of it is there.",
              turn="orchestrator"),
        state(KEPT, "Whoever asks for its key is given it.", turn="orchestrator", within=UNUSED),
        end(EXPIRED, "Nobody has used it for long."),
        end(EVICTED, "Newer ones needed its room."),
        end(REMOVED, "Somebody did not want it any more."),
    ),
    rows=(
        on(save, SAVING, KEPT, owner="orchestrator", why="All of it is there."),
        on(used, KEPT, STAY, owner="orchestrator", arms=UNUSED, why="What is used is kept for longer."),
        on(expire, KEPT, EXPIRED, owner="clock", why="Keys change, and nobody says that one is over."),
        on(evict, KEPT, EVICTED, owner="orchestrator", why="There is room for so much only."),
        on(remove, (SAVING, KEPT), REMOVED, owner="operator", why="It holds what it should not."),
        ignore(expire, (SAVING, *ENDED), why="it is not kept"),
        ignore(evict, (SAVING, *ENDED), why="it is not kept"),
        ignore(remove, ENDED, why="it is over"),
    ),
)
# fmt: on


class CacheBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a cache."""

    scope: str
    """Whose it is: of which repository, or of which pull request from a fork."""
    key: str
    sha256: str
    size: int
    job_id: str
    """Who has saved it."""
    used_at: datetime
    fork: bool = False
    """It is of a change from a fork, and makes room for others."""


_CACHES = RecordKind(
    CACHE,
    CacheBody,
    columns=lambda body: Columns(labels=labels_of(body.scope, body.key)),
    quiet=(used,),
    sends=(evict,),
)


def body_of(record: Record) -> CacheBody:
    """What is known of it."""
    return _CACHES.body_of(record)


def view_of(record: Record) -> CacheView:
    """A cache as it is shown."""
    body = body_of(record)
    return CacheView(key=body.key, size=body.size, sha256=body.sha256, created_at=record.created_at)


def labels_of(scope: str, key: str = "") -> tuple[str, ...]:
    """What the caches of a scope, and those under a key, are found by."""
    found = [f"scope.{_digest(scope)}"] + ([f"key.{_digest(scope, key)}"] if key else [])
    return tuple(sorted(found))


def saved(body: CacheBody, attempt: str, unused_s: float) -> Change:
    """A new one. Its name is that of the attempt that has saved it, so it is saved once."""
    name = f"{_digest(body.scope, body.key)}.{body.job_id}.{attempt}"
    cache = _CACHES.lasting(cache_unused_s=unused_s).new(name, body, body.used_at)
    cache.must(save)
    return cache.change(actor="orchestrator", cause=body.job_id)


def told(record: Record, event: Event, now: datetime, unused_s: float) -> Change | None:
    """What an event makes of it; None when it is over. That it is used is no news."""
    cache = _CACHES.lasting(cache_unused_s=unused_s).of(record, now)
    if cache.send(event):
        return None
    if cache.state is KEPT:
        cache.body = msgspec.structs.replace(cache.body, used_at=now)
    return cache.change(actor="orchestrator")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
