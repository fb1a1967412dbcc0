"""Load, decide, commit, effects; and decide again when somebody was faster.

Deciding is pure, so it can be done as often as it takes: on a conflict the records are loaded anew
and the decider is asked again, and it may now decide something else, or nothing. What it decides is
committed whole or not at all, and effects are handed over only after that.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Generic, TypeAlias, TypeVar

import msgspec

from interlock.engine.chaining import chained
from interlock.engine.clock import Clock
from interlock.engine.committing import Committer
from interlock.engine.ids import Ids, random_id
from interlock.engine.loading import GroupLoad
from interlock.engine.surely import commit_surely
from interlock.errors import Contended, IllegalChange, InterlockError, RequestIdReused, StoreUnavailable
from interlock.store.contract import Decide, Store
from interlock.store.records import (
    Answer,
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
)

A = TypeVar("A")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.1
"""Between two tries that were in conflict, from the second on; with jitter."""

REMEMBERED_S = 3_600.0
"""For how long a repeat of a request is recognised, unless somebody says otherwise."""
REFUSAL_JOURNALLED_EVERY_S = 7 * 86_400.0
"""How often the journal repeats the same refusal, so that nothing can fill it by being refused."""


class Asked(msgspec.Struct, frozen=True):
    """A request that somebody may send again."""

    id: str
    endpoint: str
    fingerprint: str
    ttl_s: float = REMEMBERED_S

    @classmethod
    def of(
        cls, request_id: str | None, endpoint: str, content: object, *, ttl_s: float = REMEMBERED_S
    ) -> Asked | None:
        """What was asked for under this id; None without one."""
        if request_id is None:
            return None
        fingerprint = hashlib.sha256(msgspec.json.encode((endpoint, content))).hexdigest()[:32]
        return cls(request_id, endpoint, fingerprint, ttl_s)

    def answered(self, body: bytes) -> Request:
        """The request, to be committed together with what it has brought about."""
        return Request(
            id=self.id,
            endpoint=self.endpoint,
            fingerprint=self.fingerprint,
            answer=Answer(body=body),
            ttl_s=self.ttl_s,
        )


def journalled_once(refused: Refused, kind: str) -> Commit:
    """Return a commit that journals the first refusal of a kind about a record, and none of the next.

    The store recognises a repeat by a request id, so the bound holds for all servers together, and the
    record is left alone. `Engine` answers a repeat with what was decided this time.
    """
    named = f"refusal {refused.kind} {refused.id} {kind}"
    request_id = hashlib.sha256(named.encode()).hexdigest()[:48]
    asked = Asked(request_id, "refusal", request_id[:32], REFUSAL_JOURNALLED_EVERY_S)
    return Commit(refusals=(refused,), request=asked.answered(b"null"))


def is_known_refusal(commit: Commit, outcome: Outcome | InterlockError) -> bool:
    """Whether a commit has found that the journal has its refusal already."""
    return isinstance(outcome, Repeated) and bool(commit.refusals) and not commit.changes


class Decision(msgspec.Struct, Generic[A], frozen=True, gc=False):
    """What a decider wants: what shall become true, what is then to be done, and what to answer."""

    answer: A
    commit: Commit | None = None
    """None when nothing has to change."""
    effects: tuple[object, ...] = ()


class Applied(msgspec.Struct, Generic[A], frozen=True, gc=False):
    """What has become of it."""

    answer: A
    at: datetime
    effects: tuple[object, ...] = ()


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
        chain: bool = False,
        max_tries: int = 50,
    ) -> None:
        self.store = store
        self.committer = committer
        self.clock = clock
        self._ids = ids
        self._chain = chain
        self.max_tries = max_tries
        self._loads = GroupLoad(lambda: self.store)
        self.recalled: Callable[[Repeated | RequestReused], None] = _nobody_counts
        """Is told of every request that was recognised without a commit."""

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
                return Applied(decision.answer, await self.clock.now(), decision.effects)
            sealed = self.sealed(decision.commit, records)
            outcome = await commit_surely(self.store, self.committer, sealed)
            match outcome:
                case Committed(at):
                    return Applied(decision.answer, at, decision.effects)
                case Repeated():
                    if is_known_refusal(sealed, outcome):
                        return Applied(decision.answer, await self.clock.now(), decision.effects)
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
        self, asked: Asked | None, keys: Sequence[Key], decide: Decider[A]
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

    async def recall(self, asked: Asked) -> Repeated | RequestReused | None:
        """What has become of a request before; None when nobody has sent it, or not lately."""
        recorded = await self.store.recall(asked.id)
        if recorded is None:
            return None
        same = recorded.fingerprint == asked.fingerprint
        before = Repeated(recorded) if same else RequestReused(recorded, asked.fingerprint)
        self.recalled(before)
        return before

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
        """With a mark by which it can be told from every other, with when what it was decided on was written,
        and with its links in the chain."""
        if not self._chain and commit.request is None and _is_sealed(commit):
            return commit
        mark = commit.request.id if commit.request is not None else self._ids()
        seen = {record.key: record for record in records if record is not None}
        changes = [_dated(_marked(change, mark), seen) for change in commit.changes]
        if self._chain:
            links = {key: record.chain for key, record in seen.items()}
            changes = [chained(links.get(change.key, ""), change) for change in changes]
        refusals = [msgspec.structs.replace(r, note=_mark(r.note, mark)) for r in commit.refusals]
        return msgspec.structs.replace(commit, changes=tuple(changes), refusals=tuple(refusals))

    def _sealing(self, decide: Decide) -> Decide:
        def decide_sealed(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [self.sealed(commit, records) for commit in decide(records, now)]

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


def _marked(change: Change, mark: str) -> Change:
    if change.note is None:
        return change
    return msgspec.structs.replace(change, note=_mark(change.note, mark))


def _dated(change: Change, seen: Mapping[Key, Record]) -> Change:
    record = seen.get(change.key) if change.expected and change.expected_at is None else None
    return change if record is None else msgspec.structs.replace(change, expected_at=record.updated_at)


def _mark(note: Note, mark: str) -> Note:
    return note if note.request_id else msgspec.structs.replace(note, request_id=mark)


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
