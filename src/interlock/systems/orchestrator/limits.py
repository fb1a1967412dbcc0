"""`Limits`: declare limits, and show which jobs hold slots and which wait. `admissions` admits jobs.

Why: decision 0408.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from interlock.engine.aggregate import RecordKind
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InvalidLimit, UnknownLimit
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.machine import STAY, Event, Machine, command, end, ignore, on, state
from interlock.store.records import (
    Commit,
    Key,
    Query,
    Record,
)
from interlock.systems.orchestrator.admissions import MANY, Admissions, LimitsNotified
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.explanation import Blocker
from interlock.systems.orchestrator.gates import (
    FULL,
    GATE,
    GATES,
    adopted,
    gate_key,
    is_leased,
    limits_of,
)
from interlock.systems.orchestrator.limit_views import SHOWN_KEYS, LimitViews
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.text import nearest
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import (
    QUEUE_PREFIX,
    TASK_PREFIX,
    KeyPage,
    LimitList,
    LimitSpec,
    LimitView,
    check_limit,
    definition_of,
)


class LimitState(StrEnum):
    """State of a limit."""

    SET = "set"
    DELETED = "deleted"


SET, DELETED = LimitState.SET, LimitState.DELETED

put: Event = command("put", "Change the limit.", by="operator")
delete: Event = command("delete", "Delete the limit.", by="operator")

# fmt: off
LIMIT = Machine[LimitState, None](
    "limit",
    "How many jobs of a key may run at the same time.",
    initial=SET,
    spine=(SET, DELETED),
    stop=(delete,),
    states=(
        state(SET, "Jobs of its keys wait for slots.", turn="operator"),
        end(DELETED, "Its jobs wait for no slot."),
    ),
    rows=(
        on(put, SET, STAY, owner="operator", why="The limit was changed; running jobs continue."),
        on(put, DELETED, SET, owner="operator", leaves_terminal=True, why="It is declared again."),
        on(delete, SET, DELETED, owner="operator", why="The limit is no longer needed."),
        ignore(delete, DELETED, why="it is deleted"),
    ),
)
# fmt: on


class LimitBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of the record of a limit."""

    spec: LimitSpec
    source: str = ""
    by: str = ""


DEFINITIONS = RecordKind(LIMIT, LimitBody)
_SELDOM = 10
"""In how many rounds it is looked for leftovers where no limit is declared."""

BY_HAND = "api"
"""The source of limits that were set by a person, or by a program at run time."""
MOST = 1_000
"""Maximum number of limits."""
SHOWN_IDS = 5


class Limits:
    """The limits in a store."""

    def __init__(self, engine: Engine, *, settings: OrchestratorSettings = DEFAULT_SETTINGS) -> None:
        self._engine = engine
        self._settings = settings
        self._known: dict[str, LimitSpec] | None = None
        self._rounds = 0
        self._adopting: dict[str, str] = {}
        """Limits of queues and tasks whose earlier jobs are being looked for, and how far that is."""
        self._admissions = Admissions(engine, settings, self.look)
        self._views = LimitViews(engine)
        self.scopes: frozenset[str] | None = None
        """Limits of whole queues and tasks, as far as they are known here; None before the first look."""

    # Declaring

    async def set(
        self,
        name: str,
        spec: LimitSpec,
        *,
        source: str = BY_HAND,
        actor: str = "",
        request_id: str | None = None,
    ) -> LimitView:
        """Declare a limit, or change it; running jobs continue."""
        check_limit(name, spec)
        if name not in (known := await self.look()) and len(known) >= MOST:
            raise InvalidLimit(
                f"There are {MOST} limits, and there cannot be more.",
                todo="Use a pattern such as tenant:* for many keys, or delete a limit.",
                facts={"limit": name, "most": MOST},
            )
        idempotency_key = self._engine.key_for(request_id, "set limit", (name, spec))
        key = Key(LIMIT.name, name)
        body = LimitBody(spec=spec, source=source, by=actor)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            record = found[0]
            if record is not None and record.state == SET and DEFINITIONS.body_of(record).spec == spec:
                return Decision(None)
            entity = DEFINITIONS.upsert(record, name, body, now)
            if record is not None:
                entity.must(put)
            change = entity.change(actor=actor, reason=limit_text(spec), note=True)
            return Decision(
                None,
                Commit(
                    changes=(change,), request=idempotency_key.answered(b"null") if idempotency_key else None
                ),
            )

        async def do() -> LimitView:
            await self._engine.apply_once(idempotency_key, [key], decide)
            await self.look()
            await self._serve_all(name)
            if name in (self.scopes or ()):
                self._adopting[name] = ""
                self._engine.bus.publish(LimitsNotified())
            return await self.get(name)

        return await self._engine.answer_once(idempotency_key, LimitView, do)

    async def declare(self, name: str, spec: LimitSpec, *, source: str, actor: str = "") -> LimitView:
        """Declare a limit of a program, unless one was set by hand."""
        (record,) = await self._engine.store.load([Key(LIMIT.name, name)])
        if record is not None and record.state == SET and DEFINITIONS.body_of(record).source == BY_HAND:
            return await self._views.limit(_view(record))
        return await self.set(name, spec, source=source, actor=actor)

    async def delete(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> LimitView:
        """Limit nothing any more; jobs that wait for a slot are admitted."""
        idempotency_key = self._engine.key_for(request_id, "delete limit", (name, reason))
        key = Key(LIMIT.name, name)
        before = (
            await self.get(name)
            if idempotency_key is None or await self._engine.recall(idempotency_key) is None
            else None
        )

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            if found[0] is None or found[0].state == DELETED:
                raise self._unknown(name)
            entity = DEFINITIONS.of(found[0], now)
            entity.must(delete)
            change = entity.change(actor=actor, reason=reason)
            return Decision(
                None,
                Commit(
                    changes=(change,), request=idempotency_key.answered(b"null") if idempotency_key else None
                ),
            )

        async def do() -> LimitView:
            await self._engine.apply_once(idempotency_key, [key], decide)
            await self.look()
            await self._serve_all(name)
            return before or await self._views.limit(_view(await self._load(name, deleted=True)))

        return await self._engine.answer_once(idempotency_key, LimitView, do)

    async def _serve_all(self, name: str) -> None:
        """Give the slots of a changed limit to the jobs that wait.

        Of many keys some follow with their review.
        """
        full = Query(kind=GATE.name, parent=name, states=(FULL,), limit=MANY)
        page = await self._engine.store.find(full)
        await self._admissions.serve_all([record.id for record in page.records])

    # Knowing

    async def look(self) -> Mapping[str, LimitSpec]:
        """Read again which limits there are."""
        found = await self._engine.store.find(Query(kind=LIMIT.name, states=(SET,), limit=MOST))
        self._known = {record.id: DEFINITIONS.body_of(record).spec for record in found.records}
        self.scopes = frozenset(name for name in self._known if name.startswith((QUEUE_PREFIX, TASK_PREFIX)))
        return self._known

    async def known(self) -> Mapping[str, LimitSpec]:
        """Return the limits as they were read last."""
        return await self.look() if self._known is None else self._known

    async def keep(self, *, limit: int = MANY) -> int:
        """Admit jobs in line and jobs that wait for freed slots.

        Return the number of messages and records that were processed.
        """
        seen = 0
        for name in list(self._adopting):
            seen += await self._adopt_earlier(name)
        return seen + await self._admissions.keep(limit=limit)

    async def _adopt_earlier(self, name: str) -> int:
        """Line up a page of jobs that are older than a limit.

        They were submitted before the limit of their queue or task was declared. A claim does that as well
        with jobs that it finds. But jobs that have lined up come after those that have not, so it would have
        to find all of them first.
        """
        queue = name.removeprefix(QUEUE_PREFIX) if name.startswith(QUEUE_PREFIX) else None
        query = Query(
            kind=JOB.name,
            states=(job.PENDING,),
            queue=None if queue is None or queue.endswith("*") else queue,
            newest_first=False,
            cursor=self._adopting[name],
            limit=MANY,
            within=LOOKED_AT,
        )
        page = await self._engine.store.find(query)
        now, commit_id = await self._engine.clock.now(), self._engine.commit_id()
        ready = [record for record in page.records if record.ready_at is not None]
        _, commits = self.adopt(ready, now, commit_id)
        stamped = [self._engine.stamped(commit, ready) for commit in commits]
        await self._engine.committer.commit_all(stamped)  # one that was given out meanwhile stays as it is
        if page.cursor:
            self._adopting[name] = page.cursor
        else:
            self._adopting.pop(name, None)
        return len(page.records) + bool(page.cursor)

    def close(self) -> None:
        """Stop admitting jobs: the scheduled round is cancelled."""
        self._admissions.close()

    async def keep_occasionally(self, *, limit: int = MANY) -> int:
        """Do as `keep`, but seldom while no limit is declared.

        Then only leftovers are found.
        """
        self._rounds += 1
        if not self._known and self._rounds % _SELDOM:
            return 0
        return await self.keep(limit=limit)

    def scopes_of(self, task: str, queue: str) -> tuple[str, ...]:
        """Return the limits of a task and queue that apply without being named."""
        names = self._known or {}
        both = (f"{TASK_PREFIX}{task}", f"{QUEUE_PREFIX}{queue}")
        return tuple(key for key in both if definition_of(key, names) is not None)

    def adopt(
        self, records: Sequence[Record], now: datetime, commit_id: str
    ) -> tuple[list[Record], list[Commit]]:
        """Return the ready jobs that may be granted, and commits for others.

        By these commits the others line up. They were submitted before the limit of their queue or task was
        declared, or where it was not known.
        """
        free, commits = [], []
        for record in records:
            body = decode_body(record.body)
            keys = self.scopes_of(body.task, record.queue or "")
            had = body.limits.keys if body.limits is not None else ()
            if set(keys) <= set(had) or is_leased(record):
                free.append(record)
            else:
                commits.append(adopted(record, keys, now, commit_id, self._settings))
        return free, commits

    async def with_declared_limits(self, specs: Sequence[JobSpec]) -> Sequence[JobSpec]:
        """Return jobs to submit with all limits that they count against.

        Raise for an unknown one.
        """
        await self.known()
        if not self.scopes and not any(spec.limits for spec in specs):
            return specs
        stamped = []
        for spec in specs:
            await self.check(spec)
            keys = tuple(dict.fromkeys((*spec.limits, *self.scopes_of(spec.task, spec.queue))))
            stamped.append(spec if keys == spec.limits else replace(spec, limits=keys))
        return stamped

    async def check(self, spec: JobSpec) -> None:
        """Raise if a job's limits are not declared or never have its slots."""
        if not spec.limits:
            return
        names = await self.known()
        if any(definition_of(key, names) is None for key in spec.limits):
            names = await self.look()
        for key in spec.limits:
            name = definition_of(key, names)
            if name is None:
                raise self._unknown(key)
            _check_weight(name, names[name], spec)

    def _unknown(self, name: str) -> UnknownLimit:
        guess = nearest(name, sorted(self._known or {}))
        return UnknownLimit(
            f"There is no limit {name}." + (f" Did you mean {guess}?" if guess else ""),
            todo=f"Declare it: interlock limit set {name} --max 5",
            facts={"limit": name},
        )

    # Looking

    async def list(self) -> list[LimitView]:
        """Return all limits, by name, with the keys that are in use."""
        return list((await self.page()).limits)

    async def page(self, *, keys: int = SHOWN_KEYS, limit: int = MOST, after: str = "") -> LimitList:
        """Return a page of the limits after a name, sorted by name.

        Each has up to `keys` of its keys that are in use.
        """
        found = await self._engine.store.find(Query(kind=LIMIT.name, states=(SET,), limit=MOST))
        records = sorted((each for each in found.records if each.id > after), key=lambda each: each.id)
        some = await self._views.limits([_view(record) for record in records[:limit]], keys=keys)
        return LimitList(limits=tuple(some), cursor=some[-1].name if len(records) > limit else "")

    async def get(self, name: str) -> LimitView:
        """Return a limit with its keys in use, holders of slots, and waiters.

        Waiters are counted. For a single key, which may be one of a pattern, the view also has the first jobs
        in line.
        """
        known = await self.look()
        found = definition_of(name, known) or name
        view = _view(await self._load(found))
        if name.endswith("*"):
            return await self._views.limit(view, holders=True)
        return await self._views.one_key(view, name)

    async def keys(self, name: str, *, state: str = "", limit: int = 50, cursor: str = "") -> KeyPage:
        """Return a page of the keys of a limit, in use or in this `state`."""
        return await self._views.keys(_view(await self._load(name)), state, limit=limit, cursor=cursor)

    async def _load(self, name: str, *, deleted: bool = False) -> Record:
        (record,) = await self._engine.store.load([Key(LIMIT.name, name)])
        if record is None or (record.state == DELETED and not deleted):
            await self.known()
            raise self._unknown(name)
        return record

    async def explain(self, record: Record, now: datetime, *, names: bool) -> Blocker | None:
        """Return the limit that a job waits for and the holders of its slots.

        It is None if the job waits for none. Without `names` no other job is named: the caller may not see
        it.
        """
        limits = limits_of(record)
        if limits is None or not limits.waits:
            return None
        body = decode_body(record.body)
        ready = [at for one in body.attempts if (at := one.ready_in(record.created_at)) is not None]
        if not ready or min(ready) > now:
            return None
        known = await self.look()
        slots = limits.weight * body.data.worker_count
        gates = await self._engine.store.load([gate_key(key) for key in limits.keys])
        for key, gate in zip(limits.keys, gates, strict=True):
            name = definition_of(key, known)
            most = known[name].max if name is not None else None
            inside = GATES.body_of(gate).inside if gate is not None else {}
            used = sum(inside.values())
            if most is not None and inside and used + slots > most:
                by = f" by {_some(inside)}" if names else ""
                wanted = f", and it wants {slots}" if slots > 1 else ""
                sentence = f"It waits for the limit {key}: {used} of {most} in use{by}{wanted}."
                return Blocker(sentence, f"interlock limit show {shlex.quote(name or key)}")
            if name is not None and known[name].rate is not None and gate is not None and gate.state == FULL:
                sentence = f"It waits for the limit {key}: {limit_text(known[name])}."
                return Blocker(sentence, f"interlock limit show {shlex.quote(name)}")
        return Blocker(f"It is in the line of the limit {limits.keys[0]}, and is about to be admitted.", "")


def _check_weight(name: str, limit: LimitSpec, spec: JobSpec) -> None:
    """Raise for a job that could never have its slots."""
    wanted = spec.weight * spec.worker_count
    if limit.max is not None and wanted > limit.max:
        why = f"The limit {name} has {limit.max} slots, and the job wants {wanted}."
    elif limit.rate is not None and spec.worker_count > 1:
        why = f"The limit {name} has a rate, and the job wants {spec.worker_count} workers."
    elif limit.rate is not None and wanted > limit.capacity:
        why = f"The limit {name} lets {limit.capacity} start at once, and the job counts as {wanted}."
    else:
        return
    raise InvalidLimit(
        why,
        todo="Submit it with a smaller weight or worker_count, or raise the limit.",
        facts={"limit": name, "max": limit.max, "burst": limit.burst, "weight": spec.weight},
    )


def _some(ids: Collection[str]) -> str:
    shown = ", ".join(list(ids)[:SHOWN_IDS])
    return shown if len(ids) <= SHOWN_IDS else f"{shown} and {len(ids) - SHOWN_IDS} more"


def _view(record: Record) -> LimitView:
    """Return a limit as it was declared."""
    body = DEFINITIONS.body_of(record)
    return LimitView(
        name=record.id,
        spec=body.spec,
        created_at=record.created_at,
        updated_at=record.updated_at,
        source=body.source,
        by=body.by,
    )


def limit_text(spec: LimitSpec) -> str:
    """Return a limit in words."""
    parts = [] if spec.max is None else [f"{spec.max} at a time"]
    if spec.rate is not None:
        parts.append(f"{spec.rate} every {spec.period_s:g} s, at most {spec.capacity} at once")
    return ", ".join(parts)
