"""Caches: files that a job has saved under a key, for later jobs of the same repository.

Guarantees of the table:

* A cache is visible only as a whole, and never changes: saving under the same key later makes another
  cache, and the newest one is found.
* A cache of a change from a fork is visible only to its own pull request, so a fork cannot prepare files
  for others.
* It expires: when no job has used it for `cache_unused_s`, or when newer ones need its space.

A cache may be removed at any time. That is no failure: the job does the work itself.

Scope. A job of a run, and its children, share caches with the runs of its repository (or of its workflow, if
there is none); a single job shares with those of its queue. Runs whose repository was named only by a
submitter share with each other, and not with those that a webhook or an operator has started. A change from
a fork shares only with the runs of its own pull request. The scope is computed here: no runner can choose it.

Authority. Reading and saving need the live lease of an attempt. A saved cache is committed with it, as
artifacts are: a runner that lost its lease during the upload leaves an unnamed blob. Other jobs whose
secrets are withheld may read caches, but not save any.

Space. All caches together have a limit. Saving evicts first: the least recently used caches, and those of
forks before all others. A fork uses only the space that others leave, and evicts none of them. The content
of a cache is stored apart from artifacts, so that it can be removed at once with its name.

Why: decision 0190.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import CacheRefused, InterlockError, NoBlobs, UnknownLease
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    Tone,
    command,
    consequence,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.machine.cascade import EventRules
from interlock.store.records import Change, Commit, Key, Query, Record
from interlock.systems.blobs import Blobs, BlobSettings
from interlock.systems.orchestrator.attachments import CacheHeartbeat
from interlock.systems.orchestrator.body import Provenance, decode_body
from interlock.systems.orchestrator.tokens import Token, raise_for_answer, read_token
from interlock.systems.runs.body import decode_run
from interlock.wire.artifacts import (
    CacheView,
    checked_key,
)
from interlock.wire.runner import Heartbeat, Message, SendMessages


class CacheState(StrEnum):
    """The states of a cache."""

    SAVING = "saving"
    KEPT = "kept"
    EXPIRED = "expired"
    EVICTED = "evicted"
    REMOVED = "removed"


SAVING, KEPT = CacheState.SAVING, CacheState.KEPT
EXPIRED, EVICTED, REMOVED = CacheState.EXPIRED, CacheState.EVICTED, CacheState.REMOVED
ENDED = (EXPIRED, EVICTED, REMOVED)

save: Event = command("save", "A job has uploaded it completely, under its live lease.", by="orchestrator")
used: Event = command("used", "A job has restored it.", by="orchestrator")
expire: Event = timer("expire", "It has not been used for a long time.", by="clock")
evict: Event = consequence("evict", "Newer caches need its space.", by="orchestrator")
remove: Event = command("remove", "An operator deletes it.", by="operator")

UNUSED = Deadline(expire, "cache_unused_s", 7 * 86_400.0, since="a job restored it, or saved it")

# fmt: off
CACHE = Machine[CacheState, None](
    "cache",
    "Files that a job has saved for later jobs; their content is a blob.",
    initial=SAVING,
    spine=(SAVING, KEPT, EXPIRED),
    stop=(remove,),
    states=(
        state(SAVING, "Being uploaded; the record is written only when it is complete.",
              turn="orchestrator", tone=Tone.ACTIVE),
        state(KEPT, "Jobs with its key can restore it.", turn="orchestrator", within=UNUSED),
        end(EXPIRED, "It has not been used for a long time."),
        end(EVICTED, "Newer caches needed its space.", tone=Tone.STOPPED),
        end(REMOVED, "An operator deleted it."),
    ),
    rows=(
        on(save, SAVING, KEPT, owner="orchestrator", why="The upload is complete."),
        on(used, KEPT, STAY, owner="orchestrator", arms=UNUSED, why="Caches in use are kept for longer."),
        on(expire, KEPT, EXPIRED, owner="clock",
           why="Keys change, and old ones are never deleted explicitly."),
        on(evict, KEPT, EVICTED, owner="orchestrator", why="The space for caches is limited."),
        on(remove, (SAVING, KEPT), REMOVED, owner="operator", why="It holds unwanted files."),
        ignore(expire, (SAVING, *ENDED), why="it was removed"),
        ignore(evict, (SAVING, *ENDED), why="it was removed"),
        ignore(remove, ENDED, why="it is over"),
    ),
)
# fmt: on


class CacheBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a cache's record."""

    scope: str
    """The repository, or the pull request from a fork, that may use it."""
    key: str
    sha256: str
    size: int
    job_id: str
    """The job that saved it."""
    used_at: datetime
    fork: bool = False
    """Whether it belongs to a change from a fork, and is evicted before others."""


_CACHES = RecordKind(
    CACHE,
    CacheBody,
    columns=lambda body: Columns(labels=labels_of(body.scope, body.key)),
    events=EventRules(quiet=(used,), sent=(evict,)),
)


def body_of(record: Record) -> CacheBody:
    """Return the body of a record."""
    return _CACHES.body_of(record)


def view_of(record: Record) -> CacheView:
    """Return a cache for display."""
    body = body_of(record)
    return CacheView(key=body.key, size=body.size, sha256=body.sha256, created_at=record.created_at)


def labels_of(scope: str, key: str = "") -> tuple[str, ...]:
    """Return the labels by which caches of a scope or a key are found."""
    found = [f"scope.{_digest(scope)}"] + ([f"key.{_digest(scope, key)}"] if key else [])
    return tuple(sorted(found))


def new_cache(body: CacheBody, attempt: str, unused_s: float) -> Change:
    """Return a new cache, named by its attempt, which saves it once."""
    name = f"{_digest(body.scope, body.key)}.{body.job_id}.{attempt}"
    cache = _CACHES.lasting(cache_unused_s=unused_s).new(name, body, body.used_at)
    cache.must(save)
    return cache.change(actor="orchestrator", cause=body.job_id)


def decide_event(record: Record, event: Event, now: datetime, unused_s: float) -> Change | None:
    """Return the change for an event; None if the cache has ended.

    A use refreshes `used_at`.
    """
    cache = _CACHES.lasting(cache_unused_s=unused_s).of(record, now)
    if cache.send(event):
        return None
    if cache.state is KEPT:
        cache.body = msgspec.structs.replace(cache.body, used_at=now)
    return cache.change(actor="orchestrator")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


PAGE = 500
MOST = 10_000
"""Maximum number of caches to examine for eviction."""
SEARCHED = 2_000
"""Maximum number of newest caches of a scope to search by prefix."""
NOTED_EVERY = timedelta(hours=1)
"""Interval in which uses of a cache are recorded."""

Opened = tuple[CacheView, AsyncIterator[bytes]]


class RunCaches:
    """Saves and opens caches."""

    def __init__(
        self, engine: Engine, send_messages: SendMessages, blobs: Blobs | None, settings: BlobSettings
    ) -> None:
        self._engine = engine
        self._send = send_messages
        self._blobs = blobs
        self._most = settings.max_cache_bytes
        self._unused_s = settings.keep_cache_days * 86_400.0

    async def open(self, token: str, runner_id: str, key: str, prefixes: Sequence[str] = ()) -> Opened | None:
        """Return the cache of the key, or the newest one with a prefix.

        The first matching prefix counts.
        """
        for each in (key, *prefixes):
            checked_key(each)
        if self._blobs is None:
            return None
        await self._send_one(Heartbeat(token=token, runner_id=runner_id))
        scope = (await self._work(token)).scope
        record = await self._find(scope, key, prefixes)
        if record is None:
            return None
        await self._note_use(record)
        return view_of(record), self._blobs.read(body_of(record).sha256)

    async def keep(self, token: str, runner_id: str, key: str, pieces: AsyncIterable[bytes]) -> CacheView:
        """Save the content under the key.

        An existing cache of the key is kept and returned.
        """
        checked_key(key)
        if self._blobs is None:
            raise NoBlobs(
                "No folder for caches is configured.",
                todo='Name one in interlock.toml: [blobs] directory = "/srv/interlock/blobs".',
            )
        await self._send_one(Heartbeat(token=token, runner_id=runner_id))
        work = await self._work(token)
        if work.withheld and not work.fork:
            raise CacheRefused(
                "A job whose secrets are withheld saves no caches: trusted jobs would use them.",
                todo="Nothing; it can still restore the caches of its queue.",
                facts={"key": key},
            )
        if (known := await self._exact(work.scope, key)) is not None:
            return view_of(known)
        blob = await self._blobs.put(pieces)
        if await self._make_room(blob.size, fork=work.fork) is None:
            if all(body_of(record).sha256 != blob.sha256 for record in await self._all()):
                await self._blobs.remove(blob.sha256)
            raise CacheRefused(
                "There is no room for a cache of a change from a fork: it never evicts other caches.",
                todo="Nothing; the job continues without it. max_cache_bytes in [blobs] makes more room.",
                facts={"key": key, "size": blob.size},
            )
        body = CacheBody(
            scope=work.scope,
            fork=work.fork,
            key=key,
            sha256=blob.sha256,
            size=blob.size,
            job_id=work.token.job_id,
            used_at=await self._engine.clock.now(),
        )
        change = new_cache(body, f"{work.token.shard}.{work.token.index}", self._unused_s)
        try:
            await self._send_one(CacheHeartbeat(token=token, runner_id=runner_id, kept=change))
        except InterlockError:
            # The attempt may have saved it before, without receiving the answer.
            (record,) = await self._engine.store.load([change.key])
            if record is None:
                raise
            return view_of(record)
        return CacheView(key=key, size=blob.size, sha256=blob.sha256, created_at=body.used_at)

    async def tidy(self) -> int:
        """Expire unused caches and evict those over the limit.

        Return the number removed.
        """
        now = await self._engine.clock.now()
        known = await self._all()
        over = [each for each in known if each.deadline_at and each.deadline_at <= now]
        await self._end(over, known, expire)
        return len(over) + (await self._make_room(0) or 0)

    # Scope

    async def _work(self, token: str) -> _Work:
        about = read_token(token)
        assert about is not None  # the heartbeat was accepted
        (record,) = await self._engine.store.load([Key(JOB.name, about.job_id)])
        if record is None:
            raise UnknownLease(f"There is no such lease on an attempt of {about.job_id}.")
        body = decode_body(record.body)
        origin = body.origin or Provenance()
        if origin.from_fork:
            return _Work(about, fork_scope(origin), withheld=True, fork=True)
        if origin.repository:
            claimed = "claimed " if origin.claimed else ""
            return _Work(about, f"{claimed}{origin.repository.lower()}", body.secrets_withheld)
        if body.run is None:
            return _Work(about, f"queue {record.queue}", body.secrets_withheld)
        (run,) = await self._engine.store.load([Key(RUN.name, body.run.run_id)])
        spec = decode_run(run.body).spec if run is not None else None
        repository = spec.source.repository.lower() if spec is not None else ""
        workflow = spec.workflow if spec is not None else body.run.run_id
        return _Work(about, repository or f"workflow {workflow}", body.secrets_withheld)

    # Search

    async def _find(self, scope: str, key: str, prefixes: Sequence[str]) -> Record | None:
        exact = await self._exact(scope, key)
        if exact is not None or not prefixes:
            return exact
        newest = await self._records(SEARCHED, labels_of(scope))
        for prefix in prefixes:
            for record in newest:
                if body_of(record).key.startswith(prefix) and await self._is_there(record):
                    return record
        return None

    async def _exact(self, scope: str, key: str) -> Record | None:
        for record in await self._records(1, labels_of(scope, key)):
            if await self._is_there(record):
                return record
        return None

    async def _is_there(self, record: Record) -> bool:
        """Return whether the cache has not expired and its content exists."""
        assert self._blobs is not None
        now = await self._engine.clock.now()
        if record.deadline_at is not None and record.deadline_at <= now:
            return False
        return await self._blobs.has(body_of(record).sha256)

    async def _all(self) -> list[Record]:
        return await self._records(MOST)

    async def _records(self, most: int, labels: tuple[str, ...] = ()) -> list[Record]:
        query = Query(kind=CACHE.name, states=(KEPT,), labels=labels, limit=min(most, PAGE))
        found: list[Record] = []
        while True:
            page = await self._engine.store.find(query)
            found += page.records
            if not page.cursor or len(found) >= most:
                return found
            query = msgspec.structs.replace(query, cursor=page.cursor)

    # Save and evict

    async def _note_use(self, record: Record) -> None:
        now = await self._engine.clock.now()
        if now >= body_of(record).used_at + NOTED_EVERY:
            await self._apply(record, used)

    async def _make_room(self, more: int, *, fork: bool = False) -> int | None:
        """Evict the least recently used caches until there is enough space.

        Those of forks are evicted first. Return their number; None, without an eviction, if a fork would need
        the space of others.
        """
        known = await self._all()
        newest_first = sorted(known, key=lambda record: body_of(record).used_at, reverse=True)
        of_forks = [record for record in newest_first if body_of(record).fork]
        others = [record for record in newest_first if not body_of(record).fork]
        if fork and more + sum(body_of(record).size for record in others) > self._most:
            return None
        total, over = more, []
        for record in (*others, *of_forks):
            total += body_of(record).size
            if total > self._most:
                over.append(record)
        await self._end(over, known, evict)
        return len(over)

    async def _end(self, over: Sequence[Record], known: Sequence[Record], event: Event) -> None:
        """End the records first, then remove the content.

        So no reader opens a cache whose content is being removed. The content is removed with the last cache
        that refers to it.
        """
        names = {record.id for record in over}
        wanted = {body_of(record).sha256 for record in known if record.id not in names}
        for record in over:
            await self._apply(record, event)
            if self._blobs is not None and (sha256 := body_of(record).sha256) not in wanted:
                await self._blobs.remove(sha256)

    async def _apply(self, record: Record, event: Event) -> None:
        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            change = None if found[0] is None else decide_event(found[0], event, now, self._unused_s)
            return Decision(None, Commit(changes=(change,)) if change is not None else None)

        await self._engine.apply([record.key], decide)

    async def _send_one(self, message: Message) -> None:
        (answer,) = await self._send([message])
        raise_for_answer(answer)


class _Work(msgspec.Struct, frozen=True):
    """The job that asks, and its scope."""

    token: Token
    scope: str
    withheld: bool
    fork: bool = False


def fork_scope(origin: Provenance) -> str:
    """Return the scope of a change from a fork: its own pull request."""
    change = f"#{origin.pull_request}" if origin.pull_request is not None else origin.ref
    return f"fork {origin.repository.lower()} {change}"
