"""Trees of jobs: submit children, admit those that were held back, wake parents, cancel subtrees.

Any number of reconcilers may run. Each decides on the current records and commits the tree together with its
jobs; of two that decide about the same tree, one conflicts and reads again. Handling a message twice has no
effect.

Why: decisions 0127 and 0208.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from interlock.engine.bulk import Item, apply_all
from interlock.engine.loops import gather_all
from interlock.engine.outbox import DeliveryPolicy, message_in, sent, take_all, undelivered
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Decision, Engine, contended, failed
from interlock.errors import (
    InterlockError,
    InvalidJob,
    RequestIdReused,
    StoreUnavailable,
    UnknownLease,
)
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, Job, JobState
from interlock.store.records import (
    Change,
    Commit,
    Conflict,
    Illegal,
    Key,
    Query,
    Record,
    Repeated,
    RequestReused,
)
from interlock.systems.orchestrator.admissions import LimitsNotified
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.attachments import (
    HeartbeatWithChildren,
    NamedChildrenBody,
    named_children_change,
    named_children_key,
)
from interlock.systems.orchestrator.body import (
    AfterPart,
    Provenance,
    TreePart,
    UniquePart,
    decode_body,
    decode_tree,
    given_of,
    tree_change,
    tree_key,
)
from interlock.systems.orchestrator.cancellation import CancelChildren, cancelled, commit_of
from interlock.systems.orchestrator.dependencies import (
    DependenciesNotified,
    DependentSubmission,
    named_in,
)
from interlock.systems.orchestrator.failures import Failure, FailureClass
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.ids import Draw
from interlock.systems.orchestrator.notifications import RunsNotified
from interlock.systems.orchestrator.runner_messages import decide_message
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import JobParts, check_spec, delay_of, depth_below, new_job
from interlock.systems.orchestrator.tokens import raise_for_answer, read_token
from interlock.systems.orchestrator.tree_slots import (
    CANCEL_CHILDREN,
    LIVING_JOBS,
    TREE_TOPICS,
    TreeMessage,
    TreeSlots,
    check_workers,
    look_at,
    slots_filled,
)
from interlock.systems.orchestrator.uniqueness import KeyedSubmission, apply_keyed
from interlock.systems.orchestrator.views import children_of
from interlock.wire.jobs import MAX_CHILD_NAME, MAX_CHILDREN, SHELL, ChildPage, JobSpec, SubmittedJob
from interlock.wire.runner import Answer, Heard


class _FamilyFields(msgspec.Struct):
    """The part of a job's body that its tree and its children need."""

    data: Job
    tree: TreePart | None = None
    secrets_withheld: bool = False
    origin: Provenance | None = None


def root_of(record: Record) -> str:
    """Return the root of a job's tree; its own id without a parent."""
    part = msgspec.json.decode(record.body, type=_FamilyFields).tree
    return part.root_id if part is not None else record.id


def restrict_child(spec: JobSpec, parent: Record) -> tuple[JobSpec, Provenance | None]:
    """Return a child as its parent allows it, and its provenance.

    Secrets withheld from the parent are withheld from the child. The child of a fork's job is restricted to
    shell steps in the queue and with the labels of its parent, not those it requests.
    """
    family = msgspec.json.decode(parent.body, type=_FamilyFields)
    spec = replace(spec, secrets_withheld=spec.secrets_withheld or family.secrets_withheld)
    if family.origin is None or not family.origin.from_fork:
        return spec, family.origin
    if spec.task != SHELL:
        raise InvalidJob(
            f"A job of a change from a fork submits only {SHELL}, not {spec.task}.",
            todo=f"Submit {SHELL}, or do it in a run that is not about a fork.",
            allowed=[SHELL],
            facts={"task": spec.task, "parent_job_id": parent.id},
        )
    if spec.after is not None:
        raise InvalidJob(
            "A job of a change from a fork submits no jobs that come after others.",
            todo="Leave after out, or wait for the children in the handler.",
            facts={"task": spec.task, "parent_job_id": parent.id},
        )
    if spec.unique is not None:
        raise InvalidJob(
            "A job of a change from a fork submits no unique jobs: their keys are shared with other jobs.",
            todo="Leave unique out.",
            facts={"task": spec.task, "parent_job_id": parent.id},
        )
    return replace(spec, queue=parent.queue or spec.queue, labels=parent.labels), family.origin


class TreeSubmission:
    """New jobs, and the changes of their parents and trees."""

    def __init__(
        self,
        parents: Mapping[str, Record | None],
        trees: Mapping[Key, Record | None],
        now: datetime,
        settings: OrchestratorSettings,
        draw: Draw,
        following: DependentSubmission | None = None,
    ) -> None:
        self._following = following or DependentSubmission({}, now, settings)
        self._depths = {name: depth_below(name, record) for name, record in parents.items()}
        self._parents = {name: record for name, record in parents.items() if record is not None}
        self._trees = trees
        self._now, self._settings, self._draw = now, settings, draw
        self._seatings: dict[str, TreeSlots] = {}
        self.jobs: list[SubmittedJob] = []
        self._drafts: dict[str, JobAggregate] = {}
        self._born = Counter[str]()

    def add_all(self, specs: Sequence[JobSpec], keyed: KeyedSubmission) -> None:
        """Add jobs in order, or find the ones that have their unique keys."""
        for spec in specs:
            found = keyed.find(spec)
            if found is None:
                keyed.take(spec, self.add(spec, keyed.part(spec)))
            else:
                self.jobs.append(found)

    def add(self, spec: JobSpec, unique: UniquePart | None = None) -> JobAggregate:
        """Add a job, in order."""
        while (job_id := self._draw(self._now)) in self._parents:
            pass  # the id of a parent in the same commit
        after = self._following.part(spec, self.jobs)
        self.jobs.append(SubmittedJob(job_id))
        if spec.parent_job_id is None:
            draft = new_job(spec, job_id, self._now, self._settings, JobParts(unique=unique, after=after))
        else:
            self._born[spec.parent_job_id] += 1
            draft = self._child(spec, job_id, spec.parent_job_id, after)
        self._drafts[job_id] = draft
        if after is not None:
            self._following.follow(job_id, after, self._drafts)
        return draft

    def _child(self, spec: JobSpec, job_id: str, parent_id: str, after: AfterPart | None) -> JobAggregate:
        depth = self._depths[parent_id]
        spec, origin = restrict_child(spec, self._parents[parent_id])
        check_workers(spec.task, depth, spec.worker_count, self._settings.tree_quotas)
        root_id = root_of(self._parents[parent_id])
        if after is not None:
            self._seating(root_id).join_later(job_id)
            part = TreePart(root_id=root_id, if_fails=spec.if_fails)
            parts = JobParts(depth=depth, origin=origin, tree=part, after=after)
            return new_job(spec, job_id, self._now, self._settings, parts)
        seated = self._seating(root_id).join(job_id, parent_id, depth, spec.worker_count)
        delay_s = delay_of(spec, self._now)
        later = self._now + timedelta(seconds=delay_s) if delay_s and not seated else None
        part = TreePart(root_id=root_id, if_fails=spec.if_fails, not_before=later)
        parts = JobParts(depth=depth, origin=origin, tree=part)
        return new_job(spec, job_id, self._now, self._settings, parts, held=not seated)

    def _seating(self, root_id: str) -> TreeSlots:
        if root_id not in self._seatings:
            body = decode_tree(self._trees.get(tree_key(root_id)))
            self._seatings[root_id] = TreeSlots(body, self._settings.tree_quotas)
        return self._seatings[root_id]

    @property
    def ids(self) -> tuple[str, ...]:
        """The jobs in the order of their specs."""
        return tuple(each.id for each in self.jobs)

    @property
    def created(self) -> int:
        """Number of new jobs."""
        return len(self._drafts)

    def parents(self, *, commit_id: str) -> list[Change]:
        """Return the changes of the parents, which count their children."""
        changes = []
        for parent_id, record in self._parents.items():
            parent = JobAggregate.of(record, self._now, self._settings)
            parent.body.children += self._born[parent_id]
            changes.append(parent.change(commit_id=commit_id, actor=""))
        return changes

    def changes(self, *, commit_id: str, actor: str) -> list[Change]:
        """Return the changes of the jobs, and of the trees that they have joined."""
        changes: list[Change] = []
        for draft in self._drafts.values():
            changes += (draft.change(commit_id=commit_id, actor=actor), *limit_messages_of(draft))
        for draft in self._following.living:
            changes += (draft.change(commit_id=commit_id, actor=""), *limit_messages_of(draft))
        changes += self._following.messages()
        for root_id, seating in self._seatings.items():
            record = self._trees.get(tree_key(root_id))
            changes.append(tree_change(root_id, record, seating.body, commit_id=commit_id, over=False))
        return changes


def tree_keys(parents: Sequence[Record | None]) -> list[Key]:
    """Return the trees of children of these jobs."""
    return [tree_key(root_id) for root_id in sorted({root_of(each) for each in parents if each is not None})]


async def submit_children(
    engine: Engine,
    settings: OrchestratorSettings,
    draw: Draw,
    token_text: str,
    runner_id: str,
    name: str,
    specs: Sequence[JobSpec],
) -> tuple[str, ...]:
    """Return the ids of the children under this name, new or not."""
    token = read_token(token_text)
    if token is None:
        raise UnknownLease("This is not the token of a lease.", todo="Claim work first.")
    _check(name, specs)
    specs = [msgspec.structs.replace(spec, parent_job_id=token.job_id) for spec in specs]
    for spec in specs:
        check_spec(spec, settings)
    parent, names = Key(JOB.name, token.job_id), named_children_key(token.job_id, token.shard, name)
    trees = tree_keys(await engine.store.load([parent]))
    named = named_in(specs)
    before_them = [Key(JOB.name, each) for each in named]
    heartbeat = HeartbeatWithChildren(token=token_text, runner_id=runner_id, children=len(specs))

    def decide(
        found: Sequence[Record | None], keyed: KeyedSubmission, now: datetime
    ) -> Decision[Answer | tuple[str, ...]]:
        above, before, *others = found
        kept, earlier = others[: len(trees)], others[len(trees) :]
        commit_id = engine.commit_id()
        decided = decide_message(above, token, heartbeat, now, commit_id, settings)
        if above is None or decided.commit is None or not isinstance(decided.answer, Heard):
            return Decision(decided.answer, decided.commit)
        if before is not None:
            return Decision(_ids_of_repeat(before, name, specs))
        following = DependentSubmission(
            dict(zip(named, earlier, strict=True)), now, settings, keyed.changed, keyed.known
        )
        joining = TreeSubmission(
            {above.id: above}, dict(zip(trees, kept, strict=True)), now, settings, draw, following
        )
        joining.add_all(_inherited(specs, above), keyed)
        own = msgspec.structs.replace(heartbeat, children=joining.created)
        # A parent waits for those alone that are its own.
        commit = (
            decide_message(above, token, own, now, commit_id, settings).commit
            if keyed.found
            else decided.commit
        )
        assert commit is not None
        known = NamedChildrenBody(
            shard=token.shard, name=name, ids=joining.ids, fingerprint=_fingerprint(specs)
        )
        changes = (
            *commit.changes,
            *joining.changes(commit_id=commit_id, actor=runner_id),
            *keyed.changes(commit_id=commit_id, actor=runner_id),
            named_children_change(token.job_id, known, commit_id=commit_id, actor=runner_id),
        )
        return Decision(known.ids, msgspec.structs.replace(commit, changes=changes))

    applied = await apply_keyed(engine, None, [parent, names, *trees, *before_them], specs, decide, settings)
    assert not isinstance(applied, Repeated)  # it has no request
    if isinstance(applied.answer, tuple):
        return applied.answer
    raise_for_answer(applied.answer)
    raise AssertionError(applied.answer)


def _check(name: str, specs: Sequence[JobSpec]) -> None:
    if not (1 <= len(name) <= MAX_CHILD_NAME and name.isprintable()):
        raise InvalidJob(
            f"The name of children has 1 to {MAX_CHILD_NAME} printable characters.",
            todo="Give them another one.",
            facts={"name": name[:MAX_CHILD_NAME]},
        )
    if not 1 <= len(specs) <= MAX_CHILDREN:
        raise InvalidJob(
            f"A handler submits 1 to {MAX_CHILDREN} children at once, not {len(specs)}.",
            todo="Submit them in several portions, each under a name of its own.",
            facts={"children": len(specs), "most": MAX_CHILDREN},
        )


def _ids_of_repeat(record: Record, name: str, specs: Sequence[JobSpec]) -> tuple[str, ...]:
    known = msgspec.json.decode(record.body, type=NamedChildrenBody)
    if known.fingerprint != _fingerprint(specs):
        raise RequestIdReused(
            f"The handler has submitted other children under the name {name!r} before; those stay.",
            todo="Submit the same children under a name each time the handler runs, and others under "
            "another name.",
            facts={"name": name, "children": len(known.ids)},
        )
    return known.ids


def _fingerprint(specs: Sequence[JobSpec]) -> str:
    """Return a digest of tasks and inputs; other options may change."""
    parts = [(spec.task, spec.input) for spec in specs]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def _inherited(specs: Sequence[JobSpec], parent: Record) -> list[JobSpec]:
    """Return the specs with trace and metadata of their parent.

    Raise if one names a secret that the parent does not have.
    """
    more = sorted({name for spec in specs for name in spec.secrets} - set(decode_body(parent.body).secrets))
    if more:
        raise InvalidJob(
            f"A child receives only secrets of its parent, which has no {', '.join(more)}.",
            todo="Name them where the parent is submitted as well.",
            facts={"secrets": more},
        )
    given = given_of(parent)
    return [
        msgspec.structs.replace(
            spec, trace=spec.trace or given.trace, metadata={**given.metadata, **spec.metadata}
        )
        for spec in specs
    ]


MANY = 500
"""Number of messages processed, or jobs stopped, in one batch."""
PATIENCE_S = 60.0
"""Time for a process to handle its messages, before others do."""

RETRY_POLICY = DeliveryPolicy(max_tries=1_000_000, longest_pause_s=30.0)
"""Messages to a tree are retried practically forever, since it would stall without them."""


class Trees:
    """Reconciles the trees in a store."""

    def __init__(self, engine: Engine, settings: OrchestratorSettings, draw: Draw) -> None:
        self._engine = engine
        self._settings = settings
        self._draw = draw

    async def submit(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Submit children of the attempt of the token; idempotent per name."""
        ids = await submit_children(self._engine, self._settings, self._draw, token, runner_id, name, specs)
        if any(spec.limits for spec in specs):
            self._engine.bus.publish(LimitsNotified())
        if any(spec.after is not None for spec in specs):
            self._engine.bus.publish(DependenciesNotified())
        return ids

    async def children(
        self,
        token: str,
        runner_id: str,
        cursor: str = "",
        sees: Callable[[str], bool] | None = None,
    ) -> ChildPage:
        """Return a page of the visible children of the token's job."""
        return await children_of(self._engine, self._settings, token, runner_id, cursor, sees)

    async def keep(self, *, limit: int = MANY) -> int:
        """Process the messages of jobs to trees and children; return how many."""
        patience = timedelta(seconds=PATIENCE_S)
        taken = await take_all(self._engine.store, TREE_TOPICS, patience, limit=limit)
        orders = [each for each in taken if each.queue == CANCEL_CHILDREN]
        by_root: dict[str, list[tuple[TreeMessage, Record]]] = {}
        for record in taken:
            if record.queue != CANCEL_CHILDREN:
                message = message_in(record.body, TreeMessage)
                by_root.setdefault(message.root_id, []).append((message, record))
        await gather_all(self._done([record], self._stop_below(record)) for record in orders)
        await gather_all(
            self._done(
                [record for _, record in pairs],
                self._apply_messages(root_id, [message for message, _ in pairs]),
            )
            for root_id, pairs in by_root.items()
        )
        return len(taken)

    async def _done(self, letters: Sequence[Record], work: Coroutine[None, None, None]) -> None:
        """Run the work and mark its messages as sent; on failure, retry later."""
        commit_id = self._engine.commit_id()
        try:
            await work
        except Exception as error:  # noqa: BLE001 - no message may be lost
            now = await self._engine.clock.now()
            changes = [undelivered(record, error, now, RETRY_POLICY, commit_id) for record in letters]
        else:
            changes = [sent(record, commit_id) for record in letters]
        await self._engine.committer.commit_all([Commit(changes=(change,)) for change in changes])

    async def _apply_messages(self, root_id: str, messages: Sequence[TreeMessage]) -> None:
        """Process messages to a tree, failures before admissions."""
        for message in messages:
            if message.parent_id is not None and message.fails_parent:
                await self._fail(message.parent_id, message.job_id)
        parents = {
            message.parent_id: message.job_id
            for message in messages
            if message.parent_id and message.stops_siblings
        }
        for parent_id, job_id in parents.items():
            await self.stop_children(parent_id, "sibling", f"its sibling {job_id} did not succeed")
        await self.fill_slots(root_id, messages)

    # Slots

    async def fill_slots(self, root_id: str, messages: Sequence[TreeMessage]) -> None:
        """Give free slots to the waiting jobs."""
        conflict: Conflict | None = None
        for _ in range(self._engine.max_tries):
            look = await look_at(self._engine.store, root_id, messages, self._settings.tree_quotas)
            if look is None:
                return
            now = await self._engine.clock.now()
            commit = slots_filled(look, now, self._engine.commit_id(), self._settings)
            stamped = self._engine.stamped(commit, look.records)
            outcome = await commit_with_recovery(self._engine.store, self._engine.committer, stamped)
            if isinstance(outcome, Illegal | RequestReused):
                raise failed(outcome)
            if not isinstance(outcome, Conflict):
                return
            conflict = outcome
        raise contended([tree_key(root_id)], conflict, self._engine.max_tries)

    # Stop

    async def _stop_below(self, record: Record) -> None:
        request = message_in(record.body, CancelChildren)
        await self.stop_children(request.job_id, "parent", f"its parent {request.job_id} was stopped")

    async def stop_children(self, parent_id: str, why: str, reason: str) -> None:
        """Stop every child of a job; idempotent, since ended ones are skipped."""
        query = Query(kind=JOB.name, parent=parent_id, states=LIVING_JOBS, limit=MANY)
        while True:
            page = await self._engine.store.find(query)
            decide = partial(self._stop, why, reason)
            items = [Item(record.key, decide, record) for record in page.records]
            raise_for_retry(await apply_all(self._engine, items))
            if not page.cursor:
                self._engine.bus.publish(RunsNotified())
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)

    def _stop(
        self, why: str, reason: str, record: Record | None, now: datetime, commit_id: str
    ) -> Decision[None]:
        if record is None or JobState(record.state) in job.ENDED:
            return Decision(None)
        draft = cancelled(record, now, self._settings, why)
        return Decision(None, commit_of(draft, commit_id=commit_id, actor="orchestrator", reason=reason))

    async def _fail(self, parent_id: str, child_id: str) -> None:
        """Fail a parent with its child, unless it is stopped or has ended."""
        reason = f"its child {child_id} did not succeed"

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            parent, child = found
            if parent is None or JobState(parent.state) in job.ENDED:
                return Decision(None)
            draft = JobAggregate.of(parent, now, self._settings)
            draft.fire_due()
            if draft.root.data.stop_reason is not None or draft.send(job.Error(at=now)) is not None:
                return Decision(None)
            draft.body.failure = _with_its_child(child_id, child)
            return Decision(
                None,
                commit_of(draft, commit_id=self._engine.commit_id(), actor="orchestrator", reason=reason),
            )

        await self._engine.apply([Key(JOB.name, parent_id), Key(JOB.name, child_id)], decide)
        self._engine.bus.publish(RunsNotified())


def _with_its_child(child_id: str, child: Record | None) -> Failure:
    body = decode_body(child.body) if child is not None else None
    if body is None or body.failure is None:
        why = body.data.stop_reason if body is not None else "removed"
        return Failure(failure_class=FailureClass.USER, error=f"Its child {child_id} was stopped ({why}).")
    return Failure(
        failure_class=body.failure.failure_class, error=f"Its child {child_id} failed: {body.failure.error}"
    )


def raise_for_retry(results: Iterable[object]) -> None:
    """Raise the first error that needs a retry, but no refusal of a job."""
    for result in results:
        if isinstance(result, StoreUnavailable):
            raise result
        if isinstance(result, InterlockError) and result.code == "contended":
            raise result
