"""Load, decide, commit; and decide again when another writer was faster.

Deciding is pure, so it can be done as often as it takes: on a conflict the records are loaded anew
and the decider is asked again, and it may now decide something else, or nothing. What it decides is
committed whole or not at all.

New ids come from a port (`Ids`), so that a simulated world can hand out its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Generic, Self, TypeAlias, TypeVar

import msgspec

from interlock.engine.bus import Bus
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
    Answer,
    Batch,
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Note,
    Outcome,
    Record,
    Refused,
    Repeated,
    Request,
    RequestReused,
    TooLate,
    Work,
)

Ids: TypeAlias = Callable[[], str]
"""A name that nobody else will get."""


def random_id() -> str:
    """Sixteen hex digits: 64 bits, which do not repeat within the life of a record."""
    return secrets.token_hex(8)


A = TypeVar("A")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.1
"""Between two tries that were in conflict, from the second on; with jitter."""

REMEMBERED_S = DEFAULTS.request_ttl_s
"""How long a repeat of a request is recognised, unless a setting says otherwise."""
SMALL_ANSWER = 4_096
"""Stored answers with more bytes are compressed: the view of a run has all its jobs."""
REFUSAL_JOURNALLED_EVERY_S = 7 * 86_400.0
"""How often the journal repeats the same refusal, so that nothing can fill it by being refused."""


class OwnRequestId(str):
    """The id that a store knows a request by, where that is not the one that the client has sent."""

    __slots__ = ("said",)
    said: str
    """As the client has sent it."""

    def __new__(cls, stored: str, said: str) -> Self:
        """Keep both."""
        made = super().__new__(cls, stored)
        made.said = said
        return made


def said_of(request_id: str) -> str:
    """Return a request id as the client has sent it."""
    return request_id.said if isinstance(request_id, OwnRequestId) else request_id


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A request that somebody may send again."""

    id: str
    endpoint: str
    fingerprint: str
    ttl_s: float = REMEMBERED_S
    said: str = ""
    """The id as the client has sent it, for the journal."""

    @property
    def answer(self) -> IdempotencyKey:
        """The id under which the answer is stored, where it is known only after the commit."""
        stored = hashlib.sha256(f"answer {self.id}".encode()).hexdigest()[:48]
        return IdempotencyKey(stored, self.endpoint, self.fingerprint, self.ttl_s)

    def answered(self, body: bytes) -> Request:
        """The request, to be committed together with what it has brought about."""
        return Request(
            id=self.id,
            endpoint=self.endpoint,
            fingerprint=self.fingerprint,
            answer=Answer(body=body),
            ttl_s=self.ttl_s,
            said=self.said,
        )


def journalled_once(refused: Refused, kind: str) -> Commit:
    """Return a commit that journals the first refusal of a kind about a record, and none of the next.

    The store recognises a repeat by a request id, so the bound holds for all servers together, and the
    record is left alone. `Engine` answers a repeat with what was decided this time.
    """
    named = f"refusal {refused.kind} {refused.id} {kind}"
    request_id = hashlib.sha256(named.encode()).hexdigest()[:48]
    asked = IdempotencyKey(request_id, "refusal", request_id[:32], REFUSAL_JOURNALLED_EVERY_S)
    return Commit(refusals=(refused,), request=asked.answered(b"null"))


def is_known_refusal(commit: Commit, outcome: Outcome | InterlockError) -> bool:
    """Whether a commit has found that the journal has its refusal already."""
    return isinstance(outcome, Repeated) and bool(commit.refusals) and not commit.changes


class Decision(msgspec.Struct, Generic[A], frozen=True, gc=False):
    """What a decider wants: what shall become true, and what to answer."""

    answer: A
    commit: Commit | None = None
    """None when nothing has to change."""


class Applied(msgspec.Struct, Generic[A], frozen=True, gc=False):
    """What has become of it."""

    answer: A
    at: datetime


Decider: TypeAlias = Callable[[Sequence[Record | None], datetime], Decision[A]]
"""Pure: from the records (None where there is none) and the time to a decision. May raise a refusal."""


class Engine:
    """What a system needs to make its decisions true."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        *,
        ids: Ids = random_id,
        max_tries: int = 50,
        remembered_s: float = REMEMBERED_S,
    ) -> None:
        self.store = store
        self.committer = committer
        self.clock = clock
        self.bus = Bus()
        self._ids = ids
        self.max_tries = max_tries
        self._remembered_s = remembered_s
        self._loads = GroupLoad(lambda: self.store)
        self.recalled: Callable[[Repeated | RequestReused], None] = _nobody_counts
        """Is told of every request that was recognised without a commit."""

    def asked(
        self, request_id: str | None, endpoint: str, content: object, *, ttl_s: float | None = None
    ) -> IdempotencyKey | None:
        """Return what is asked for under an id, which is remembered for `request_ttl_s`; None without one."""
        if request_id is None:
            return None
        fingerprint = hashlib.sha256(msgspec.json.encode((endpoint, content))).hexdigest()[:32]
        lasts_s = self._remembered_s if ttl_s is None else ttl_s
        return IdempotencyKey(str(request_id), endpoint, fingerprint, lasts_s, said_of(request_id))

    async def answer_once(
        self,
        asked: IdempotencyKey | None,
        kind: type[A],
        do: Callable[[], Awaitable[A]],
        *,
        whole: bool = False,
    ) -> A:
        """Return what `do` answers, or what was answered to the first request under this id.

        For answers that are known only after the commit, such as a view. `do` commits the request itself,
        so it is done once; its answer is stored before it is given, so every repeat gets the same one. With
        `whole`, `do` has ids of its own for its parts, and the answer is stored under the id itself.
        """
        if asked is None:
            return await do()
        about = asked if whole else asked.answer
        match await self._recalled(about):
            case Repeated() as before:
                self.recalled(before)
                return _answer_in(before, kind)
            case RequestReused() as reused:
                raise failed(_reused_as(reused, asked))
        answer = await do()
        commit = Commit(request=about.answered(_packed(msgspec.json.encode(answer))))
        match await commit_with_recovery(self.store, self.committer, commit):
            case Repeated() as before:  # a repeat of the request was faster
                return _answer_in(before, kind)
            case RequestReused() as reused:
                raise failed(_reused_as(reused, asked))
        return answer

    async def apply(self, keys: Sequence[Key], decide: Decider[A]) -> Applied[A] | Repeated:
        """Make what `decide` says of these records true.

        `Repeated` when the commit carried a request that was done before: its recorded answer stands.
        """
        conflict: Conflict | None = None
        not_before = datetime.min.replace(tzinfo=UTC)
        for tried in range(self.max_tries):
            await self._pause(tried)
            records = await self._loads.load(keys)
            decision = decide(records, max(await self.clock.now(), not_before))
            if decision.commit is None:
                return Applied(decision.answer, await self.clock.now())
            sealed = self.sealed(decision.commit, records)
            outcome = await commit_with_recovery(self.store, self.committer, sealed)
            match outcome:
                case Committed(at):
                    return Applied(decision.answer, at)
                case Repeated():
                    if is_known_refusal(sealed, outcome):
                        return Applied(decision.answer, await self.clock.now())
                    return outcome
                case Conflict():
                    conflict = outcome
                case TooLate(now=now):
                    not_before = now  # then the decider sees for itself that it is too late
                case RequestReused() | Illegal():
                    raise failed(outcome)
        raise contended(keys, conflict, self.max_tries)

    async def _pause(self, conflicts: int) -> None:
        """Wait a little after several conflicts: writers of one record must not keep meeting."""
        if conflicts > 1:
            chance = zlib.crc32(self._ids().encode()) / 2**32
            await asyncio.sleep(min(FIRST_PAUSE_S * 2.0 ** (conflicts - 2), LONGEST_PAUSE_S) * (0.5 + chance))

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Records as they stand, in the order of their keys; with what others ask for at this moment."""
        return await self._loads.load(keys)

    async def apply_once(
        self, asked: IdempotencyKey | None, keys: Sequence[Key], decide: Decider[A]
    ) -> Applied[A] | Repeated:
        """The same under a request id: a repeat is answered as before, also where it would now be refused."""
        try:
            return await self.apply(keys, decide)
        except (StoreUnavailable, RequestIdReused):
            raise
        except InterlockError:
            before = None if asked is None else await self.recall(asked)
            if before is None:
                raise
            if isinstance(before, RequestReused):
                raise failed(before) from None
            return before

    async def recall(self, asked: IdempotencyKey) -> Repeated | RequestReused | None:
        """What has become of a request before; None when nobody has sent it, or not lately."""
        before = await self._recalled(asked)
        if before is not None:
            self.recalled(before)
        return before

    async def _recalled(self, asked: IdempotencyKey) -> Repeated | RequestReused | None:
        recorded = await self.store.recall(asked.id)
        if recorded is None:
            return None
        same = recorded.fingerprint == asked.fingerprint
        return Repeated(recorded) if same else RequestReused(recorded, asked.fingerprint)

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """What the store gives this claimer, with what `decide` makes of it; sealed like all else."""
        return await self.store.claim(claim, self._sealing(decide))

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """The same for what has a deadline passed."""
        return await self.store.due(kinds, limit, self._sealing(decide))

    def mark(self) -> str:
        """What tells one decision from every other; whoever puts it into its notes saves the sealing."""
        return self._ids()

    def sealed(self, commit: Commit, records: Sequence[Record | None]) -> Commit:
        """Return the commit with its unique id, and the time of each version that it was decided on."""
        if commit.request is None and _is_sealed(commit):
            return commit
        request = commit.request
        mark, said = (self._ids(), "") if request is None else (request.id, request.said)
        seen = {record.key: record for record in records if record is not None}
        changes = [_dated(_marked(change, mark, said), seen) for change in commit.changes]
        refusals = [msgspec.structs.replace(r, note=_mark(r.note, mark, said)) for r in commit.refusals]
        return msgspec.structs.replace(commit, changes=tuple(changes), refusals=tuple(refusals))

    def _sealing(self, decide: Decide) -> Decide:
        """Seal what is decided; who decides on batches has put the mark and the times into them."""

        def decide_sealed(records: Sequence[Record], now: datetime) -> list[Work]:
            return [
                item if isinstance(item, Batch) else self.sealed(item, records)
                for item in decide(records, now)
            ]

        return decide_sealed


def _nobody_counts(_: Repeated | RequestReused) -> None:
    """For those who do not want to know."""


def _is_sealed(commit: Commit) -> bool:
    for change in commit.changes:
        if change.note is not None and not change.note.request_id:
            return False
        if change.expected and change.expected_at is None:
            return False
    return not commit.refusals or all(refused.note.request_id for refused in commit.refusals)


def _marked(change: Change, mark: str, said: str) -> Change:
    if change.note is None:
        return change
    return msgspec.structs.replace(change, note=_mark(change.note, mark, said))


def _dated(change: Change, seen: Mapping[Key, Record]) -> Change:
    record = seen.get(change.key) if change.expected and change.expected_at is None else None
    return change if record is None else msgspec.structs.replace(change, expected_at=record.updated_at)


def _mark(note: Note, mark: str, said: str) -> Note:
    """Return a note with the id of the client's request, or else with a mark that no other commit has."""
    if said:
        return msgspec.structs.replace(note, request_id=said)
    return note if note.request_id else msgspec.structs.replace(note, request_id=mark)


def _packed(body: bytes) -> bytes:
    return body if len(body) < SMALL_ANSWER else zlib.compress(body, 1)


def _answer_in(before: Repeated, kind: type[A]) -> A:
    body = before.recorded.answer.body
    # No JSON begins as zlib does.
    return msgspec.json.decode(zlib.decompress(body) if body[:1] == b"x" else body, type=kind)


def _reused_as(reused: RequestReused, asked: IdempotencyKey) -> RequestReused:
    """Return the same about the id that was asked under, not that of its answer."""
    recorded = msgspec.structs.replace(reused.recorded, id=asked.id)
    return RequestReused(recorded, reused.fingerprint)


def failed(outcome: RequestReused | Illegal) -> RequestIdReused | IllegalChange:
    """The error that such an outcome is told as."""
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
    """The error after so many conflicts."""
    what = (
        f"{conflict.key.kind} {conflict.key.id}" if conflict else ", ".join(f"{k.kind} {k.id}" for k in keys)
    )
    facts: dict[str, object] = {"tries": tries}
    if conflict is not None:
        facts |= {"expected": conflict.expected, "found": conflict.found}
    return Contended(
        f"Others changed {what} first, {tries} times in a row.", todo="Try again in a moment.", facts=facts
    )
