"""`Followers`: report ends of jobs to the jobs that come after them; release those, or stop them.

Any number of processes may do so. Each decides on the record of the job as it is, and of two that decide
about the same job one conflicts and reads again. A job that has received an end does not wait for it any
more, so a repeated message changes nothing.

Why: decision 0420.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from interlock.engine.bulk import Item, apply_all
from interlock.engine.outbox import DeliveryPolicy, message_in, sent, take_all, undelivered
from interlock.engine.unit_of_work import Applied, Decision, Engine, contended
from interlock.errors import UnknownLease
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.store.records import Commit, Key, Record
from interlock.systems.orchestrator.admissions import LimitsNotified
from interlock.systems.orchestrator.aggregate import SKIPPED, JobAggregate
from interlock.systems.orchestrator.batches import Batches, is_part
from interlock.systems.orchestrator.body import AfterPart, decode_body, given_of
from interlock.systems.orchestrator.cancellation import cancelled, commit_of, messages_of
from interlock.systems.orchestrator.dependencies import ENDS, EndMessage
from interlock.systems.orchestrator.grants import has_expired
from interlock.systems.orchestrator.notifications import TreesNotified
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import release
from interlock.systems.orchestrator.tokens import read_token
from interlock.systems.orchestrator.tree_slots import joins
from interlock.systems.orchestrator.trees import raise_for_retry
from interlock.systems.orchestrator.views import check_lease, child_view, large_result_keys, result_of
from interlock.wire.jobs import After, ChildView, PredecessorPage

UPSTREAM = "upstream"
"""Stop reason of a job that waits for a success which cannot come any more."""
FollowerVerdict: TypeAlias = Literal["waits", "released", "unmet"]
_ENCODER = msgspec.json.Encoder()
_NULL = msgspec.Raw(b"null")


class PredecessorResults(msgspec.Struct, frozen=True):
    """Results of jobs, for a job that comes after them."""

    ids: tuple[str, ...]
    values: tuple[msgspec.Raw, ...] = ()
    fault: str = ""
    """Reason why they cannot be passed on; empty if they can."""


class FollowerEffect(msgspec.Struct, frozen=True):
    """Effect of an end on a job that comes after."""

    wants: tuple[str, ...] = ()
    """Jobs whose results have to be read first; nothing was decided."""
    lined_up: bool = False
    """Whether it needs slots of limits now."""
    in_tree: bool = False
    """Whether it needs a place in its tree now."""


NOTHING = FollowerEffect()


def judge(part: AfterPart, ends: Mapping[str, EndMessage]) -> tuple[FollowerVerdict, EndMessage] | None:
    """Return the effect of ended jobs on a follower, and the decisive end.

    The effect is that it is released, is stopped, or still waits. It is None if the follower waits for none
    of these jobs.
    """
    ended = [ends[each] for each in part.left if each in ends]
    if not ended:
        return None
    good = [end for end in ended if end.counts or part.rule.on == "end"]
    bad = [end for end in ended if end.stops and end not in good]
    last = len(ended) == len(part.left)
    if part.rule.need == "any":
        if good:
            return "released", good[0]
        return ("unmet", bad[-1]) if last and bad else ("waits", ended[0])
    if bad:
        return "unmet", bad[0]
    return ("released", good[-1]) if last and len(good) == len(ended) else ("waits", ended[0])


def decide_follower(
    ends: Mapping[str, EndMessage],
    collected: Mapping[str, PredecessorResults],
    settings: OrchestratorSettings,
    record: Record | None,
    now: datetime,
    commit_id: str,
) -> Decision[FollowerEffect]:
    """Release or stop a job that comes after jobs which have ended.

    It may also have to wait for the others.
    """
    if record is None or JobState(record.state) in job.ENDED or has_expired(record, now):
        return Decision(NOTHING)  # a job that has expired is ended by the sweep
    draft = JobAggregate.of(record, now, settings)
    part = draft.body.after
    judged = judge(part, ends) if part is not None else None
    if part is None or judged is None:
        return Decision(NOTHING)
    verdict, end = judged
    if verdict == "waits":
        left = tuple(each for each in part.left if each not in ends)
        draft.body.after = replace(part, left=left)
        return Decision(NOTHING, Commit(changes=(draft.change(commit_id=commit_id, actor="orchestrator"),)))
    if verdict == "unmet":
        code = UPSTREAM if part.rule.otherwise == "cancel" else SKIPPED
        return _stopped(record, draft, code, f"it comes after {end.job_id}, which is {end.state}", commit_id)
    if part.rule.into:
        ids = part.rule.jobs if part.rule.need == "all" else (end.job_id,)
        results = collected.get(draft.id)
        if results is None or results.ids != ids:
            return Decision(FollowerEffect(wants=ids))
        if fault := results.fault or _pass_on(draft, part.rule, results.values):
            return _stopped(record, draft, UPSTREAM, fault, commit_id)
    return _released(draft, part, end, commit_id)


def _pass_on(draft: JobAggregate, rule: After, values: Sequence[msgspec.Raw]) -> str:
    """Put results into the input of a job; return why that cannot be."""
    assert draft.record is not None
    given = given_of(draft.record)
    arguments = msgspec.json.decode(given.input, type=dict[str, msgspec.Raw])
    single = len(values) == 1 and not rule.listed
    passed = values[0] if single else msgspec.Raw(_ENCODER.encode(values))
    filled = _ENCODER.encode({**arguments, rule.into: passed})
    if (most := draft.settings.max_input_bytes) < len(filled):
        return _too_large(len(filled), most)
    body = draft.body
    body.input, body.description = msgspec.Raw(filled), given.description
    body.trace, body.metadata = given.trace, given.metadata
    return ""


def _too_large(size: int, most: int) -> str:
    return (
        f"the results of the jobs before it make its input {size} bytes or larger, and {most} are allowed; "
        "read them with ctx.predecessors()"
    )


def _stopped(
    record: Record, draft: JobAggregate, code: str, why: str, commit_id: str
) -> Decision[FollowerEffect]:
    stopped = cancelled(record, draft.now, draft.settings, code, why)
    commit = commit_of(stopped, commit_id=commit_id, actor="orchestrator", reason=why)
    return Decision(NOTHING, commit)


def _released(
    draft: JobAggregate, part: AfterPart, end: EndMessage, commit_id: str
) -> Decision[FollowerEffect]:
    """Let a job wait for a place in its tree, and for a worker after a delay."""
    at = draft.now + timedelta(seconds=part.delay_s)
    if part.not_before is not None:
        at = max(at, part.not_before)
    draft.body.after = replace(part, left=())
    if part.start_within_s is not None:
        draft.body.not_after = at + timedelta(seconds=part.start_within_s)
        draft.arm(JOB, draft.root)
    joining = joins(draft, at) if draft.body.tree is not None else ()
    if not joining:
        release(draft, delay_s=(at - draft.now).total_seconds())
    why = f"{end.job_id}, which it comes after, is {end.state}"
    change = draft.change(commit_id=commit_id, actor="orchestrator", reason=why, note=True)
    followed = FollowerEffect(lined_up=draft.body.limits is not None, in_tree=bool(joining))
    return Decision(followed, Commit(changes=(change, *messages_of(draft, commit_id), *joining)))


MANY = 500
"""Number of ends that are handled in one round."""
PATIENCE = timedelta(seconds=60)
"""Time for a process to handle its messages, before others do."""
RETRY_POLICY = DeliveryPolicy(max_tries=1_000_000, longest_pause_s=30.0)
"""Ends are retried practically forever, since jobs would wait without them."""
ROUNDS = 5
"""Number of times that results are read for the jobs of one round."""
PAGE = 50
"""Number of jobs whose results are read at once."""


class Followers:
    """The jobs of a store that come after others."""

    def __init__(self, engine: Engine, settings: OrchestratorSettings, batches: Batches) -> None:
        self._engine = engine
        self._batches = batches
        self._settings = settings

    async def keep(self, *, limit: int = MANY) -> int:
        """Report ends to the jobs that wait for them; return the number of ends."""
        taken = await take_all(self._engine.store, (ENDS,), PATIENCE, limit=limit)
        if not taken:
            return 0
        followers: dict[str, dict[str, EndMessage]] = {}
        parts: dict[str, dict[str, EndMessage]] = {}
        for record in taken:
            end = message_in(record.body, EndMessage)
            for name in end.then:
                (parts if is_part(name) else followers).setdefault(name, {})[end.job_id] = end
        commit_id = self._engine.commit_id()
        try:
            await self._batches.note_ends(parts)
            await self._move_followers(followers)
        except Exception as error:  # noqa: BLE001 - no message may be lost
            now = await self._engine.clock.now()
            changes = [undelivered(record, error, now, RETRY_POLICY, commit_id) for record in taken]
        else:
            changes = [sent(record, commit_id) for record in taken]
        await self._engine.committer.commit_all([Commit(changes=(change,)) for change in changes])
        return len(taken)

    async def _move_followers(self, followers: Mapping[str, Mapping[str, EndMessage]]) -> None:
        collected: dict[str, PredecessorResults] = {}
        waiting = dict(followers)
        for _ in range(ROUNDS):
            items = [
                Item(Key(JOB.name, name), partial(decide_follower, ends, collected, self._settings))
                for name, ends in waiting.items()
            ]
            results = await apply_all(self._engine, items)
            raise_for_retry(results)
            moved = {
                name: each.answer
                for name, each in zip(waiting, results, strict=True)
                if isinstance(each, Applied)
            }
            self._notify(moved.values())
            wanting = {name: each.wants for name, each in moved.items() if each.wants}
            if not wanting:
                return
            collected = {name: await self._collect(ids) for name, ids in wanting.items()}
            waiting = {name: followers[name] for name in wanting}
        raise contended([Key(JOB.name, name) for name in waiting], None, ROUNDS)

    def _notify(self, moved: Collection[FollowerEffect]) -> None:
        if any(each.lined_up for each in moved):
            self._engine.bus.publish(LimitsNotified())
        if any(each.in_tree for each in moved):
            self._engine.bus.publish(TreesNotified())

    async def _collect(self, ids: tuple[str, ...]) -> PredecessorResults:
        """Return the results of ended jobs, which do not change any more."""
        values: list[msgspec.Raw] = []
        size, most = 0, self._settings.max_input_bytes
        for start in range(0, len(ids), PAGE):
            some = ids[start : start + PAGE]
            for job_id, (record, kept) in zip(some, await self._with_results(some), strict=True):
                if record is None:
                    return PredecessorResults(ids, fault=f"the result of {job_id} is gone, which was pruned")
                result = result_of(record, decode_body(record.body), kept)
                values.append(result if isinstance(result, msgspec.Raw) else _NULL)
                size += len(values[-1])
            if size > most:
                return PredecessorResults(ids, fault=_too_large(size, most))
        return PredecessorResults(ids, tuple(values))

    async def _with_results(
        self, ids: Sequence[str]
    ) -> list[tuple[Record | None, Mapping[str, msgspec.Raw]]]:
        store = self._engine.store
        records = await store.load([Key(JOB.name, each) for each in ids])
        keys = [key for record in records if record is not None for key in large_result_keys(record)]
        found = await store.load(keys) if keys else []
        kept = {each.id: msgspec.Raw(each.body) for each in found if each is not None}
        return [(record, kept) for record in records]

    async def predecessors(
        self,
        token_text: str,
        runner_id: str,
        cursor: str = "",
        sees: Callable[[str], bool] | None = None,
    ) -> PredecessorPage:
        """Return a page of the jobs that the token's job comes after.

        Only jobs of queues that `sees` allows are on it.
        """
        token = read_token(token_text)
        if token is None:
            raise UnknownLease("This is not the token of a lease.", todo="Claim work first.")
        (record,) = await self._engine.store.load([Key(JOB.name, token.job_id)])
        check_lease(record, token, token_text, runner_id, await self._engine.clock.now(), self._settings)
        assert record is not None  # otherwise there is no lease
        part = decode_body(record.body).after
        ids = part.rule.jobs if part is not None else ()
        start = int(cursor) if cursor.isdecimal() else 0
        some = ids[start : start + PAGE]
        found = await self._with_results(some)
        views = [
            child_view(each, kept) if each is not None else ChildView(id=name, task="", state=GONE)
            for name, (each, kept) in zip(some, found, strict=True)
            if each is None or sees is None or sees(each.queue or "")
        ]
        more = str(start + PAGE) if len(ids) > start + PAGE else ""
        return PredecessorPage(jobs=tuple(views), cursor=more)


GONE = "GONE"
"""Shown instead of the state of a job that was pruned."""
