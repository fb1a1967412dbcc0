"""`Jobs`: submit, read, wait for, cancel and retry jobs, one by one or in bulk.

It contains no rules; the tables have them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from interlock.engine.bulk import Item, Result, apply_all, commit_all_with_recovery
from interlock.engine.loader import every_entry
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Applied, Decision, Engine, IdempotencyKey, failed
from interlock.errors import (
    InterlockError,
    RequestIdReused,
    StoreUnavailable,
)
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.store.records import (
    Commit,
    Committed,
    Count,
    Entry,
    Illegal,
    Key,
    Outcome,
    Page,
    Query,
    Record,
    Recorded,
    Repeated,
    RequestReused,
    Work,
)
from interlock.systems.orchestrator.admissions import LimitsNotified
from interlock.systems.orchestrator.attachments import LOG, Chunk
from interlock.systems.orchestrator.body import unknown_job
from interlock.systems.orchestrator.cancellation import cancelled, commit_of
from interlock.systems.orchestrator.dead_letters import LetterBody, retry_once
from interlock.systems.orchestrator.dependencies import (
    DependenciesNotified,
    DependentSubmission,
    named_in,
    refuse_both,
)
from interlock.systems.orchestrator.explanation import explain, find_blockers, look_around
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.limits import Limits
from interlock.systems.orchestrator.notifications import RunsNotified, TreesNotified
from interlock.systems.orchestrator.queues import look_for_pause
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.systems.orchestrator.submission import (
    JobParts,
    NewJobs,
    check_specs,
    group_equal_specs,
    new_job,
    unique_part,
    without_context,
)
from interlock.systems.orchestrator.trees import TreeSubmission, tree_keys
from interlock.systems.orchestrator.uniqueness import KeyedSubmission, KeyForecast, apply_keyed, first_with
from interlock.systems.orchestrator.views import large_result_keys, tree_below, view_of
from interlock.systems.quarantine import QUARANTINED, STANDING
from interlock.text import counted
from interlock.wire.jobs import (
    NODES,
    Explanation,
    JobSpec,
    JobView,
    SubmittedJob,
    TreeView,
)

Present = Callable[[str, Record | None], Record]
"""Returns the record, or raises if there is none."""


async def cancel_all(
    engine: Engine,
    job_ids: Sequence[str],
    request_ids: Sequence[str | None],
    *,
    settings: OrchestratorSettings,
    present: Present,
    actor: str,
    reason: str,
) -> list[str | InterlockError]:
    """Return the new state of each job, or why it was not stopped."""

    def decide(
        job_id: str, request_key: IdempotencyKey | None, record: Record | None, now: datetime, commit_id: str
    ) -> Decision[str]:
        draft = cancelled(present(job_id, record), now, settings, "cancel", reason)
        state = str(draft.root.state)
        commit = commit_of(draft, commit_id=commit_id, actor=actor, reason=reason)
        request = request_key.answered(msgspec.json.encode(state)) if request_key else None
        return Decision(state, msgspec.structs.replace(commit, request=request))

    request_keys = [
        engine.key_for(request_id, f"cancel {job_id}", reason)
        for job_id, request_id in zip(job_ids, request_ids, strict=True)
    ]
    items = [
        Item(Key(JOB.name, job_id), partial(decide, job_id, each))
        for job_id, each in zip(job_ids, request_keys, strict=True)
    ]
    return await _answers_of(engine, items, request_keys)


async def retry_all(
    engine: Engine,
    job_ids: Sequence[str],
    request_ids: Sequence[str | None],
    *,
    settings: OrchestratorSettings,
    draw: Callable[[datetime], str],
    actor: str,
) -> list[str | InterlockError]:
    """Return the id of the new job for each, or why there is none."""

    async def one(job_id: str, request_id: str | None) -> str | InterlockError:
        request_key = engine.key_for(request_id, f"retry {job_id}", None)
        try:
            return await retry_once(
                engine, job_id, request_key, settings=settings, draw=draw, by=LetterBody(by=actor)
            )
        except StoreUnavailable:
            raise
        except InterlockError as error:
            return error

    return list(await asyncio.gather(*map(one, job_ids, request_ids)))


async def _answers_of(
    engine: Engine, items: Sequence[Item[str]], request_keys: Sequence[IdempotencyKey | None]
) -> list[str | InterlockError]:
    results = await apply_all(engine, items)
    return [await _answer(engine, each, result) for each, result in zip(request_keys, results, strict=True)]


async def _answer(
    engine: Engine, request_key: IdempotencyKey | None, result: Result[str]
) -> str | InterlockError:
    """Return the decision, or the earlier answer to the same request."""
    match result:
        case Applied(answer=answer):
            return answer
        case Repeated(recorded=recorded):
            return _recorded_id(recorded)
        case StoreUnavailable():
            raise result
        case RequestIdReused():
            return result
    before = None if request_key is None else await engine.recall(request_key)
    if before is None:
        return result
    return failed(before) if isinstance(before, RequestReused) else _recorded_id(before.recorded)


def _recorded_id(recorded: Recorded) -> str:
    return msgspec.json.decode(recorded.answer.body, type=str)


def _encoded(jobs: Sequence[SubmittedJob]) -> bytes:
    """Return the ids of jobs, and the actions unless they were created."""
    return msgspec.json.encode([f"{one.id} {one.how}" if one.how != "created" else one.id for one in jobs])


def _decoded(body: bytes) -> list[SubmittedJob]:
    pairs = [each.partition(" ") for each in msgspec.json.decode(body, type=list[str])]
    return [
        msgspec.convert({"id": job_id, "how": how or "created"}, SubmittedJob) for job_id, _, how in pairs
    ]


BULK = 500
"""Number of jobs submitted in one batch."""
MAX_COUNT = 10_000


class Jobs:
    """The jobs in a store."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: OrchestratorSettings = DEFAULT_SETTINGS,
        ids: JobIds | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._limits = limits
        self._forecast = KeyForecast()
        self._ids = ids or JobIds(secrets.randbelow)
        self.draw: Callable[[datetime], str] = self._ids.draw

    async def now(self) -> datetime:
        """Return the store's time, approximately."""
        return await self.engine.clock.now()

    # Submit

    async def submit(self, spec: JobSpec, *, actor: str = "", request_id: str | None = None) -> str:
        """Return the id of a new job, or of the one of an earlier request."""
        return (await self.submit_many([spec], actor=actor, request_id=request_id))[0]

    async def submit_many(
        self, specs: Sequence[JobSpec], *, actor: str = "", request_id: str | None = None
    ) -> list[str]:
        """Submit jobs; return their ids in order; see `submit_jobs`."""
        made = await self.submit_jobs(specs, actor=actor, request_id=request_id)
        return [each.id for each in made]

    async def submit_jobs(
        self, specs: Sequence[JobSpec], *, actor: str = "", request_id: str | None = None
    ) -> list[SubmittedJob]:
        """Submit jobs, and report for each whether it was created.

        If not, the report has the job with its unique key. All are validated before any is stored. With a
        request id, or if one has a unique key, they are created atomically; others in batches.
        """
        if any(spec.unique is not None for spec in specs):
            return await self._submit_unique(specs, actor, request_id)
        parts = [specs[start : start + BULK] for start in range(0, len(specs), BULK)]
        checked = [(part, group_equal_specs(part, self.settings)) for part in parts]
        common = [group.spec for _, groups in checked for group in groups]
        limits = self._limits
        if limits is not None and (limits.scopes or any(spec.limits for spec in common)):
            return [SubmittedJob(made) for made in await self._submit_limited(specs, actor, request_id)]
        if request_id is not None or any(map(_is_joined, common)):
            request_key = self.engine.key_for(request_id, "submit", [without_context(spec) for spec in specs])
            return await self._submit_together(specs, actor, request_key)
        if len(checked) == 1:
            return [SubmittedJob(made) for made in await self._submit_batch(*checked[0], actor)]
        return [SubmittedJob(made) for made in await self._submit_batches(checked, actor)]

    async def _submit_limited(
        self, given: Sequence[JobSpec], actor: str, request_id: str | None
    ) -> list[str]:
        """Submit jobs under limits, each with its ticket or not at all."""
        request_key = self.engine.key_for(request_id, "submit", [without_context(spec) for spec in given])
        specs = await self._under_limits(given, request_key)
        if isinstance(specs, Repeated):
            return [made.id for made in _decoded(specs.recorded.answer.body)]
        if request_key is not None or any(map(_is_joined, specs)):
            ids = [made.id for made in await self._submit_together(specs, actor, request_key)]
        else:
            ids = []
            for start in range(0, len(specs), BULK):
                part = specs[start : start + BULK]
                ids += await self._submit_batch(part, group_equal_specs(part, self.settings), actor)
        self.engine.bus.publish(LimitsNotified())
        return ids

    async def _submit_batches(
        self, batches: Sequence[tuple[Sequence[JobSpec], Sequence[NewJobs]]], actor: str
    ) -> list[str]:
        """Decide about one batch while the previous one is being stored."""
        ids: list[str] = []
        under_way: deque[asyncio.Task[list[str]]] = deque()
        try:
            for specs, groups in batches:
                under_way.append(asyncio.create_task(self._submit_batch(specs, groups, actor)))
                if len(under_way) > 1:
                    ids += await under_way.popleft()
            while under_way:
                ids += await under_way.popleft()
        finally:  # after an error or a cancellation the others are abandoned
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return ids

    async def _submit_batch(
        self, specs: Sequence[JobSpec], groups: Sequence[NewJobs], actor: str
    ) -> list[str]:
        now, commit_id = await self.engine.clock.now(), self.engine.commit_id()
        ids = self._ids.draw_many(now, len(specs))
        batches: list[Work] = [
            (group.commit if group.spec.limits or len(group.places) == 1 else group.batch)(
                [ids[place] for place in group.places], now, self.settings, commit_id=commit_id, actor=actor
            )
            for group in groups
        ]
        outcomes = iter(await commit_all_with_recovery(self.engine, batches))
        for group in groups:
            shared = next(outcomes) if group.spec.limits else None
            for place in group.places:
                outcome = next(outcomes) if shared is None else shared
                if not isinstance(outcome, Committed):
                    ids[place] = await self._submit_another(specs[place], outcome, actor)
        return ids

    async def _submit_another(self, spec: JobSpec, outcome: Outcome | InterlockError, actor: str) -> str:
        """Submit a job under another id after a collision; raise other errors."""
        match outcome:
            case InterlockError():
                raise outcome
            case Illegal() | RequestReused():
                raise failed(outcome)
            case _:
                return (await self._submit_batch([spec], group_equal_specs([spec], self.settings), actor))[0]

    async def _submit_together(
        self, specs: Sequence[JobSpec], actor: str, request_key: IdempotencyKey | None
    ) -> list[SubmittedJob]:
        """Create jobs in one commit with their parents, trees and unique keys."""
        parents = sorted({spec.parent_job_id for spec in specs if spec.parent_job_id is not None})
        keys = [Key(JOB.name, name) for name in parents]
        # The root of a job never changes, so it can be read beforehand.
        trees = tree_keys(await self.engine.store.load(keys)) if keys else []
        named = named_in(specs)
        refuse_both(parents, named)
        befores = [Key(JOB.name, name) for name in named]

        def decide(
            found: Sequence[Record | None], keyed: KeyedSubmission, now: datetime
        ) -> Decision[list[SubmittedJob]]:
            above = dict(zip(parents, found[: len(parents)], strict=True))
            kept = dict(zip(trees, found[len(parents) : len(found) - len(named)], strict=True))
            earlier = dict(zip(named, found[len(found) - len(named) :], strict=True))
            following = DependentSubmission(earlier, now, self.settings, keyed.changed, keyed.known)
            joining = TreeSubmission(above, kept, now, self.settings, self._ids.draw, following)
            joining.add_all(specs, keyed)
            commit_id = self.engine.commit_id()
            changes = (
                *joining.changes(commit_id=commit_id, actor=actor),
                *joining.parents(commit_id=commit_id),
                *keyed.changes(commit_id=commit_id, actor=actor),
            )
            request = request_key.answered(_encoded(joining.jobs)) if request_key else None
            commit = Commit(changes=changes, request=request) if changes or request else None
            return Decision(joining.jobs, commit)

        needed = [*keys, *trees, *befores]
        applied = await apply_keyed(
            self.engine, request_key, needed, specs, decide, self.settings, self._forecast
        )
        if isinstance(applied, Repeated):
            return _decoded(applied.recorded.answer.body)
        if any(spec.after is not None for spec in specs):
            self.engine.bus.publish(DependenciesNotified())
        return applied.answer

    async def _submit_unique(
        self, given: Sequence[JobSpec], actor: str, request_id: str | None
    ) -> list[SubmittedJob]:
        check_specs(given, self.settings)
        request_key = self.engine.key_for(request_id, "submit", [without_context(spec) for spec in given])
        specs = await self._under_limits(given, request_key)
        if isinstance(specs, Repeated):
            return _decoded(specs.recorded.answer.body)
        limited = any(spec.limits for spec in specs)
        if len(specs) == 1 and request_key is None and not _is_joined(specs[0]) and not limited:
            made = await self._submit_first(specs[0], actor)
            if made is not None:
                return [SubmittedJob(made)]
        jobs = await self._submit_together(specs, actor, request_key)
        if limited:
            self.engine.bus.publish(LimitsNotified())
        return jobs

    async def _under_limits(
        self, given: Sequence[JobSpec], request_key: IdempotencyKey | None
    ) -> Sequence[JobSpec] | Repeated:
        """Return the jobs with all of their limits, or the earlier answer."""
        if self._limits is None:
            return given
        try:
            return await self._limits.with_declared_limits(given)
        except InterlockError:
            before = None if request_key is None else await self.engine.recall(request_key)
            if not isinstance(before, Repeated):
                raise
            return before

    async def _submit_first(self, spec: JobSpec, actor: str) -> str | None:
        """Submit a job as the first with its key; None if it is not the first."""
        now, commit_id = await self.engine.clock.now(), self.engine.commit_id()
        job_id, part = self._ids.draw(now), unique_part(spec)
        assert spec.unique is not None
        draft = new_job(spec, job_id, now, self.settings, JobParts(unique=part))
        taken = first_with(part, spec.unique, job_id)
        commit = Commit(changes=(draft.change(commit_id=commit_id, actor=actor), taken))
        outcome = await commit_with_recovery(self.engine.store, self.engine.committer, commit)
        if isinstance(outcome, Illegal | RequestReused):
            raise failed(outcome)
        return job_id if isinstance(outcome, Committed) else None

    # Cancel and retry

    async def cancel(
        self,
        job_id: str,
        *,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
        why: str = "cancel",
    ) -> JobView:
        """Request the cancellation of a job: `why` is a code, `reason` a text."""
        request_key = self.engine.key_for(request_id, f"cancel {job_id}", reason)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            draft = cancelled(_present(job_id, found[0]), now, self.settings, why, reason)
            commit = commit_of(draft, commit_id=self.engine.commit_id(), actor=actor, reason=reason)
            request = request_key.answered(msgspec.json.encode(draft.root.state)) if request_key else None
            return Decision(None, msgspec.structs.replace(commit, request=request))

        async def do() -> JobView:
            await self.engine.apply_once(request_key, [Key(JOB.name, job_id)], decide)
            stopped = await self.get(job_id)
            if stopped.run_id is not None:
                self.engine.bus.publish(RunsNotified())
            if stopped.children or stopped.parent_job_id is not None:
                self.engine.bus.publish(TreesNotified())
            if stopped.limits:
                self.engine.bus.publish(LimitsNotified())
            if stopped.followers or stopped.batch_id is not None:
                self.engine.bus.publish(DependenciesNotified())
            return stopped

        return await self.engine.answer_once(request_key, JobView, do)

    async def cancel_all(
        self,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        actor: str = "",
        request_ids: Sequence[str | None] | None = None,
    ) -> list[str | InterlockError]:
        """Cancel many jobs; return the new state of each, or the refusal."""
        stopped = await cancel_all(
            self.engine,
            job_ids,
            request_ids or [None] * len(job_ids),
            settings=self.settings,
            present=_present,
            actor=actor,
            reason=reason,
        )
        self.engine.bus.publish(RunsNotified())  # some of them may belong to a run
        self.engine.bus.publish(TreesNotified())  # or to a tree
        self.engine.bus.publish(LimitsNotified())  # or have held a slot
        self.engine.bus.publish(DependenciesNotified())  # or others come after it
        return stopped

    async def retry(self, job_id: str, *, actor: str = "", request_id: str | None = None) -> str:
        """Resubmit a finished job as a new job that names its origin."""
        (made,) = await self.retry_all([job_id], actor=actor, request_ids=[request_id])
        if isinstance(made, InterlockError):
            raise made
        return made

    async def retry_all(
        self,
        job_ids: Sequence[str],
        *,
        actor: str = "",
        request_ids: Sequence[str | None] | None = None,
    ) -> list[str | InterlockError]:
        """Retry many jobs; return the id of each new one, or why there is none."""
        request_ids = request_ids or [None] * len(job_ids)
        made = await retry_all(
            self.engine,
            job_ids,
            request_ids,
            settings=self.settings,
            draw=self._ids.draw,
            actor=actor,
        )
        self.engine.bus.publish(LimitsNotified())  # some of them may have lined up
        return made

    # Views

    async def get(self, job_id: str) -> JobView:
        """Return the job."""
        return await self.view(await self._load(job_id))

    async def view(self, record: Record) -> JobView:
        """Return the view of a loaded job, with the results of other records."""
        return (await self.views([record]))[0]

    async def views(self, records: Sequence[Record]) -> list[JobView]:
        """Return the views of several loaded jobs."""
        keys = [key for record in records for key in large_result_keys(record)]
        found = await self.engine.store.load(keys) if keys else []
        kept = {each.id: msgspec.Raw(each.body) for each in found if each is not None}
        return [view_of(record, kept) for record in records]

    async def get_many(self, job_ids: Sequence[str]) -> list[JobView | None]:
        """Return several jobs; None for missing ones."""
        found = await self.engine.store.load([Key(JOB.name, job_id) for job_id in job_ids])
        views = {view.id: view for view in await self.views([record for record in found if record])}
        return [views.get(job_id) for job_id in job_ids]

    async def find(self, query: Query) -> tuple[list[JobView], str]:
        """Return a page of jobs, and the cursor of the next one."""
        page: Page = await self.engine.store.find(query)
        return await self.views(page.records), page.cursor

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Return the number of matches up to a cap, among `within` records."""
        return await self.engine.store.count(query, cap=cap, within=within)

    async def under_way(self, queues: Sequence[str]) -> bool:
        """Return whether a job in these queues is running."""
        for queue in queues:
            query = Query(kind=JOB.name, states=(job.RUNNING,), queue=queue)
            if (await self.count(query, cap=1)).number:
                return True
        return False

    async def tree(
        self, job_id: str, *, most: int = NODES, sees: Callable[[str], bool] | None = None
    ) -> TreeView:
        """Return a job and up to `most` descendants in visible queues."""
        return await tree_below(self.engine.store, await self._load(job_id), most, sees)

    async def history(self, job_id: str) -> list[Entry]:
        """Return its history, oldest first."""
        record = await self._load(job_id)
        return [entry async for entry in every_entry(self.engine.store, record.key)]

    async def logs(self, job_id: str) -> AsyncIterator[Chunk]:
        """Yield the log of its attempts, in the order of arrival."""
        cursor = ""
        while True:
            page = await self.engine.store.find(
                Query(kind=LOG.name, parent=job_id, newest_first=False, cursor=cursor)
            )
            for record in page.records:
                yield msgspec.json.decode(record.body, type=Chunk)
            if not (cursor := page.cursor):
                return

    async def explain(self, job_id: str, *, in_general: bool = True) -> Explanation:
        """Explain why it waits, or how it ended.

        The explanation has the role that acts next and the next deadline. `in_general` adds facts about all
        queues: the number of quarantined workers, and names of others.
        """
        record, now = await self._load(job_id), await self.engine.clock.now()
        ahead = await self._quarantined() if in_general and record.state not in job.ENDED else ""
        around = await look_around(self.engine.store, record, self.settings.tree_quotas)
        if record.state == job.PENDING:
            waiting = Query(kind=JOB.name, states=(job.PENDING,), queue=record.queue, until=record.created_at)
            before = await self.count(waiting, cap=MAX_COUNT, within=MAX_COUNT)
            number = f"{before.number}{' or more' if before.capped else ''}"
            ahead = (f"; {number} older ones wait there" if before.number else "") + ahead
        if self._limits is not None and (held := await self._limits.explain(record, now, names=in_general)):
            around = msgspec.structs.replace(around, limit=held.sentence)
            return explain(record, now, ahead=ahead, around=around, blocker=held)
        blocker = await look_for_pause(self.engine.store, record)
        if blocker is None:
            blockers = await find_blockers(self.engine.store, [record], now, names=in_general)
            blocker = blockers.get(record.id)
        return explain(record, now, ahead=ahead, around=around, blocker=blocker)

    async def _quarantined(self) -> str:
        held = (await self.count(Query(kind=STANDING.name, states=(QUARANTINED,)), cap=MAX_COUNT)).number
        are = f"{counted(held, 'worker')} {'is' if held == 1 else 'are'}"
        return f"; {are} quarantined (interlock worker quarantined)" if held else ""

    async def _load(self, job_id: str) -> Record:
        (record,) = await self.engine.store.load([Key(JOB.name, job_id)])
        return _present(job_id, record)


def _present(job_id: str, record: Record | None) -> Record:
    if record is None:
        raise unknown_job(job_id)
    return record


def _is_joined(spec: JobSpec) -> bool:
    """Return whether a job changes its parent or the jobs before it."""
    return spec.parent_job_id is not None or spec.after is not None
