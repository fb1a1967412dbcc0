"""Load, decide, commit; and decide again when another writer was faster.

Decisions are pure, so they can be repeated: on a conflict the records are loaded again and the decider is
called again, and it may now decide something else, or nothing. A decision is committed atomically.

New ids come from a port (`Ids`), so that a simulated world can replace them.

Why: decisions 0003 and 0281.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Self, TypeAlias, TypeVar

import msgspec

from interlock.backoff import jittered_s, nth_pause_s
from interlock.engine.bus import Bus, RequestRecalled
from interlock.engine.clock import Clock
from interlock.engine.committer import Committer
from interlock.engine.loader import GroupLoad
from interlock.engine.recovery import commit_with_recovery
from interlock.errors import (
    Contended,
    IllegalChange,
    InterlockError,
    RequestIdReused,
    StoreUnavailable,
)
from interlock.lifecycles.durations import DEFAULTS
from interlock.store.contract import Decide, Store
from interlock.store.records import (
    Batch,
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Illegal,
    JournalledRefusal,
    Key,
    Note,
    Outcome,
    Record,
    Repeated,
    Request,
    RequestAnswer,
    RequestReused,
    TooLate,
    Work,
)

IdSource: TypeAlias = Callable[[], str]
"""Returns a unique id."""


random_id: IdSource = partial(secrets.token_hex, 8)
"""Returns sixteen hex digits: 64 bits, which do not repeat within the life of a record."""


A = TypeVar("A")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.1
"""Pause between two tries after conflicts, from the second on; with jitter."""

REMEMBERED_S = DEFAULTS.request_ttl_s
"""Default time for which a repeated request is recognised."""
SMALL_ANSWER = 4_096
"""Stored answers of more bytes are compressed: the view of a run has all its jobs."""
REFUSAL_JOURNALLED_EVERY_S = 7 * 86_400.0
"""Interval in which the same refusal is journalled again, to bound the journal."""


class OwnRequestId(str):
    """The id of a request in the store, if it differs from the client's."""

    __slots__ = ("sent",)
    sent: str
    """The id as the client has sent it."""

    def __new__(cls, stored: str, spelled: str) -> Self:
        """Create an id with both forms."""
        made = super().__new__(cls, stored)
        made.sent = spelled
        return made


def id_as_sent(request_id: str) -> str:
    """Return a request id as the client has sent it."""
    return request_id.sent if isinstance(request_id, OwnRequestId) else request_id


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A request that may be repeated."""

    id: str
    endpoint: str
    fingerprint: str
    ttl_s: float = REMEMBERED_S
    sent: str = ""
    """The id as the client has sent it, for the journal."""

    @property
    def answer(self) -> IdempotencyKey:
        """The id under which the answer is stored, if it is known only after the commit."""
        stored = hashlib.sha256(f"answer {self.id}".encode()).hexdigest()[:48]
        return IdempotencyKey(stored, self.endpoint, self.fingerprint, self.ttl_s)

    def answered(self, body: bytes) -> Request:
        """Return the request, to be committed together with its effect."""
        return Request(
            id=self.id,
            endpoint=self.endpoint,
            fingerprint=self.fingerprint,
            answer=RequestAnswer(body=body),
            ttl_s=self.ttl_s,
            said=self.sent,
        )


def journalled_once(refused: JournalledRefusal, kind: str) -> Commit:
    """Return a commit that journals only the first such refusal.

    That is the first one of a kind about a record. The store recognises a repeat by a request id, so the
    limit holds for all servers together, and the record is unchanged. `Engine` answers a repeat with the
    current decision.
    """
    named = f"refusal {refused.kind} {refused.id} {kind}"
    request_id = hashlib.sha256(named.encode()).hexdigest()[:48]
    idempotency_key = IdempotencyKey(request_id, "refusal", request_id[:32], REFUSAL_JOURNALLED_EVERY_S)
    return Commit(refusals=(refused,), request=idempotency_key.answered(b"null"))


def only_refuses(commit: Commit) -> bool:
    """Return whether a commit changes nothing.

    If it is repeated, the journal has its refusal already.
    """
    return bool(commit.refusals) and not commit.changes


class Decision(msgspec.Struct, Generic[A], frozen=True, gc=False):
    """The decision of a decider: the commit and the answer."""

    answer: A
    commit: Commit | None = None
    """None if nothing changes."""


class Applied(msgspec.Struct, Generic[A], frozen=True, gc=False):
    """The result of an applied decision."""

    answer: A
    at: datetime


Decider: TypeAlias = Callable[[Sequence[Record | None], datetime], Decision[A]]
"""Decides from the records (None for missing ones) and the time. Pure. May raise a refusal."""


class Engine:
    """Loads, decides and commits for the systems."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        *,
        ids: IdSource = random_id,
        max_tries: int = 50,
        remembered_s: float = REMEMBERED_S,
        bus: Bus | None = None,
    ) -> None:
        self.store = store
        self.committer = committer
        self.clock = clock
        self.bus: Bus = Bus() if bus is None else bus
        self.commit_id = ids
        """Returns the unique id of a new commit; notes that have it need not be stamped."""
        self.max_tries = max_tries
        self._remembered_s = remembered_s
        self._loads = GroupLoad(lambda: self.store)

    def key_for(
        self, request_id: str | None, endpoint: str, content: object, *, ttl_s: float | None = None
    ) -> IdempotencyKey | None:
        """Return the idempotency key of a request, or None without an id.

        It is remembered for `request_ttl_s`.
        """
        if request_id is None:
            return None
        fingerprint = hashlib.sha256(msgspec.json.encode((endpoint, content))).hexdigest()[:32]
        lasts_s = self._remembered_s if ttl_s is None else ttl_s
        return IdempotencyKey(str(request_id), endpoint, fingerprint, lasts_s, id_as_sent(request_id))

    async def answer_once(
        self,
        idempotency_key: IdempotencyKey | None,
        kind: type[A],
        do: Callable[[], Awaitable[A]],
        *,
        whole: bool = False,
    ) -> A:
        """Return the answer of `do`, or that of the first request with this id.

        For answers that are known only after the commit, such as a view. `do` commits the request itself, so
        it is done once; its answer is stored before it is returned, so every repeat gets the same one. With
        `whole`, `do` has separate ids for its parts, and the answer is stored under the id itself.
        """
        if idempotency_key is None:
            return await do()
        about = idempotency_key if whole else idempotency_key.answer
        match await self._recalled(about):
            case Repeated() as before:
                self.bus.publish(RequestRecalled(before))
                return _answer_in(before, kind)
            case RequestReused() as reused:
                raise failed(_reused_as(reused, idempotency_key))
        answer = await do()
        commit = Commit(request=about.answered(_packed(msgspec.json.encode(answer))))
        match await commit_with_recovery(self.store, self.committer, commit):
            case Repeated() as before:  # a repeat of the request was faster
                return _answer_in(before, kind)
            case RequestReused() as reused:
                raise failed(_reused_as(reused, idempotency_key))
        return answer

    async def apply(
        self, keys: Sequence[Key], decide: Decider[A], *, known: Sequence[Record | None] = ()
    ) -> Applied[A] | Repeated:
        """Commit the decision of `decide` about these records.

        Return `Repeated` if the commit had a request that was completed before: its recorded answer counts.
        `known` are the records as they were a moment ago, which are loaded only after a conflict.
        """
        conflict: Conflict | None = None
        not_before = datetime.min.replace(tzinfo=UTC)
        for tried in range(self.max_tries):
            await self._pause(tried)
            records, known = known or await self._loads.load(keys), ()
            decision = decide(records, max(await self.clock.now(), not_before))
            if decision.commit is None:
                return Applied(decision.answer, await self.clock.now())
            stamped = self.stamped(decision.commit, records)
            outcome = await commit_with_recovery(self.store, self.committer, stamped)
            match outcome:
                case Committed(at):
                    return Applied(decision.answer, at)
                case Repeated():
                    if only_refuses(stamped):
                        return Applied(decision.answer, await self.clock.now())
                    return outcome
                case Conflict():
                    conflict = outcome
                case TooLate(now=now):
                    not_before = now  # then the decider itself sees that it is too late
                case RequestReused() | Illegal():
                    raise failed(outcome)
        raise contended(keys, conflict, self.max_tries)

    async def _pause(self, conflicts: int) -> None:
        """Wait a little after several conflicts, so that writers stop colliding."""
        if conflicts > 1:
            pause_s = nth_pause_s(conflicts - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            await asyncio.sleep(jittered_s(pause_s, self.commit_id(), least=0.5, span=1.0))

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Load records in the order of their keys, joined with other loads."""
        return await self._loads.load(keys)

    async def apply_once(
        self,
        idempotency_key: IdempotencyKey | None,
        keys: Sequence[Key],
        decide: Decider[A],
        *,
        known: Sequence[Record | None] = (),
    ) -> Applied[A] | Repeated:
        """Apply under a request id.

        A repeat gets the first answer, even if it would now be refused.
        """
        try:
            return await self.apply(keys, decide, known=known)
        except (StoreUnavailable, RequestIdReused):
            raise
        except InterlockError:
            before = None if idempotency_key is None else await self.recall(idempotency_key)
            if before is None:
                raise
            if isinstance(before, RequestReused):
                raise failed(before) from None
            return before

    async def recall(self, idempotency_key: IdempotencyKey) -> Repeated | RequestReused | None:
        """Return the earlier result of a request, or None if there is none."""
        before = await self._recalled(idempotency_key)
        if before is not None:
            self.bus.publish(RequestRecalled(before))
        return before

    async def _recalled(self, idempotency_key: IdempotencyKey) -> Repeated | RequestReused | None:
        recorded = await self.store.recall(idempotency_key.id)
        if recorded is None:
            return None
        same = recorded.fingerprint == idempotency_key.fingerprint
        return Repeated(recorded) if same else RequestReused(recorded, idempotency_key.fingerprint)

    def claim(self, claim: Claim, decide: Decide) -> Coroutine[Any, Any, list[Outcome]]:
        """Claim records of the store, with stamped decisions."""
        return self.store.claim(claim, self._stamping(decide))

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Handle due records of the store, with stamped decisions."""
        return await self.store.due(kinds, limit, self._stamping(decide))

    def stamped(self, commit: Commit, records: Sequence[Record | None]) -> Commit:
        """Return the commit with its unique id and expected times.

        An expected time is that of a version that the commit was decided on.
        """
        request = commit.request
        if request is None and all(refused.note.request_id for refused in commit.refusals):
            for change in commit.changes:
                if change.note is not None and not change.note.request_id:
                    break
                if change.expected and change.expected_at is None:
                    break
            else:  # nothing is missing
                return commit
        commit_id, spelled = (self.commit_id(), "") if request is None else (request.id, request.said)
        seen = {record.key: record for record in records if record is not None}
        changes = [_dated(_change_with_id(change, commit_id, spelled), seen) for change in commit.changes]
        refusals = [
            msgspec.structs.replace(r, note=_with_id(r.note, commit_id, spelled)) for r in commit.refusals
        ]
        return msgspec.structs.replace(commit, changes=tuple(changes), refusals=tuple(refusals))

    def _stamping(self, decide: Decide) -> Decide:
        """Return a decider whose commits are stamped; batches have id and times."""

        def decide_stamped(records: Sequence[Record], now: datetime) -> list[Work]:
            self.clock.observe(now)
            return [
                item if isinstance(item, Batch) else self.stamped(item, records)
                for item in decide(records, now)
            ]

        return decide_stamped


def _change_with_id(change: Change, commit_id: str, spelled: str) -> Change:
    if change.note is None:
        return change
    return msgspec.structs.replace(change, note=_with_id(change.note, commit_id, spelled))


def _dated(change: Change, seen: Mapping[Key, Record]) -> Change:
    record = seen.get(change.key) if change.expected and change.expected_at is None else None
    return change if record is None else msgspec.structs.replace(change, expected_at=record.updated_at)


def _with_id(note: Note, commit_id: str, spelled: str) -> Note:
    """Return a note with the id of the client's request or of the commit."""
    if spelled:
        return msgspec.structs.replace(note, request_id=spelled)
    return note if note.request_id else msgspec.structs.replace(note, request_id=commit_id)


def _packed(body: bytes) -> bytes:
    return body if len(body) < SMALL_ANSWER else zlib.compress(body, 1)


def _answer_in(before: Repeated, kind: type[A]) -> A:
    body = before.recorded.answer.body
    # JSON never begins like zlib data.
    return msgspec.json.decode(zlib.decompress(body) if body[:1] == b"x" else body, type=kind)


def _reused_as(reused: RequestReused, idempotency_key: IdempotencyKey) -> RequestReused:
    """Return the outcome with the id of the request, not that of its answer."""
    recorded = msgspec.structs.replace(reused.recorded, id=idempotency_key.id)
    return RequestReused(recorded, reused.fingerprint)


def failed(outcome: RequestReused | Illegal) -> RequestIdReused | IllegalChange:
    """Return the error of an outcome."""
    match outcome:
        case RequestReused(recorded=recorded):
            return RequestIdReused(
                f"The request id {recorded.id} was used before, for {recorded.endpoint}.",
                todo="Give every request an id of its own; send the same id only to repeat the same request.",
                facts={"request_id": recorded.id, "endpoint": recorded.endpoint},
            )
        case Illegal(key=key, source=source, target=target):
            return IllegalChange(
                f"The store refused to take {key.kind} {key.id} from {source or 'nothing'} to {target}.",
                todo="This is a fault of the program; please report it with the facts.",
                facts={"kind": key.kind, "id": key.id, "from": source, "to": target},
            )


def contended(keys: Sequence[Key], conflict: Conflict | None, tries: int) -> Contended:
    """Return the error after too many conflicts."""
    what = (
        f"{conflict.key.kind} {conflict.key.id}" if conflict else ", ".join(f"{k.kind} {k.id}" for k in keys)
    )
    facts: dict[str, object] = {"tries": tries}
    if conflict is not None:
        facts |= {"expected": conflict.expected, "found": conflict.found}
    return Contended(
        f"Other commits changed {what} first, {tries} times in a row.",
        todo="Try again in a moment.",
        facts=facts,
    )
