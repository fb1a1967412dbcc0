"""The contract on Redis.

Claiming takes two steps, since the decision is made here and not in the server. The first script removes the
records from the lanes and holds them for a few seconds. Then `decide` decides about them, and the second
script commits that by version and returns the undecided ones. A claimer that dies in between leaves holds
that expire; one that returns too late conflicts with newer versions. So a hold only avoids wasted work; the
version makes a claim safe.

Commits do not wait for a hold: a cancellation, or a heartbeat during a sweep of the same record, succeeds,
and the claimer gets `Conflict` for that record.

Why: decision 0384.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from interlock.backoff import Backoff
from interlock.errors import StoreError, StoreUnavailable
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities, Decide, StoreStatus, Wake
from interlock.store.cursors import write_cursor
from interlock.store.permissions import Permission
from interlock.store.ranking import moment
from interlock.store.records import (
    Claim,
    Count,
    Feed,
    Key,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Recorded,
    Work,
)
from interlock.store.redis import scripts
from interlock.store.redis.codec import (
    BEGINNING,
    START,
    Projections,
    cursor_of,
    journal_place,
    pack,
    pack_claim,
    pack_query,
    pack_text,
    pack_work,
    place_after,
    read_count,
    read_entries,
    read_found,
    read_loaded,
    read_outcomes,
    read_pruned,
    read_recorded,
    read_status,
    read_taken,
    stream_id,
)
from interlock.store.redis.codec import page_start as after_cursor
from interlock.store.redis.connections import Connections, hang_up, read_address
from interlock.store.redis.handshake import Handshake, check_names
from interlock.store.redis.permissions import permissions_of
from interlock.store.validation import (
    TIMEOUT_S,
    check_back,
    check_claim,
    check_commits,
    check_limit,
    check_prune,
    check_prune_by_queue,
    check_query,
    known_kind,
)

_MICROSECOND = timedelta(microseconds=1)
_MAX_TAKEN = 5_000
_MAX_PROMOTED = 1_000
_PROMOTING_ROUNDS = 10
_MAX_LOOKED_AT = 5_000
_MAX_WALKED = 1_000
_MAX_ENTRIES_PRUNED = 20_000
_MAX_REQUESTS_PRUNED = 1_000


_LOST = (RedisError, StoreError, OSError, EOFError, TimeoutError)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0


class RedisNotifier:
    """The subscribers of one store, and the task that listens for them while there are any.

    One connection listens for all of them on the channel on which commits are announced. A connection that
    starts to listen may have missed notifications, after a lost connection as well as at the very beginning,
    so all subscribers are woken once.
    """

    def __init__(self, links: Connections, channel: str, patience_s: float) -> None:
        self._links = links
        self.channel: str = channel
        self._patience_s = patience_s
        self._wakes: dict[object, Wake] = {}
        self._task: asyncio.Task[None] | None = None
        self.standing: bool = False
        """Whether the subscription is active."""

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` after commits; return a function that unsubscribes."""
        token = object()
        self._wakes[token] = wake
        self.listen()

        def stop() -> None:
            self._wakes.pop(token, None)

        return stop

    def listen(self) -> None:
        """Start listening if there are subscribers and no listener."""
        if self._wakes and self._links.is_open and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="interlock-redis-wakes")

    async def close(self) -> None:
        """Stop listening and forget the subscribers."""
        self._wakes.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                async with asyncio.timeout(self._patience_s):
                    connection = await self._links.connect()
                try:
                    await self._receive(connection)
                finally:
                    was_standing, self.standing = self.standing, False
                    await hang_up(connection)
                    if was_standing:
                        backoff.reset()
            except _LOST:
                await asyncio.sleep(backoff.next_s())

    async def _receive(self, connection: AbstractConnection) -> None:
        """Wake subscribers on every message and on the subscription.

        A silent connection is pinged, so that a dead one is noticed.
        """
        await connection.send_command("SUBSCRIBE", self.channel, check_health=False)
        silent = False
        while True:
            answer = await connection.read_response(timeout=self._patience_s)
            if answer is None and silent:
                raise TimeoutError
            if answer is None:
                silent = True
                await connection.send_command("PING", check_health=False)
                continue
            silent, self.standing = False, True
            if answer[0] != b"pong":
                self._wake()

    def _wake(self) -> None:
        """Wake subscribers through the loop.

        There an exception of one does not affect the others.
        """
        loop = asyncio.get_running_loop()
        for wake in self._wakes.values():
            loop.call_soon(wake)


class RedisStore:
    """The contract on Redis 6.2 or later, or Valkey. `hold_s` is the time for a claimer to decide."""

    def __init__(
        self,
        url: str,
        catalogue: Catalogue,
        *,
        prefix: str = "interlock",
        timeout_s: float = TIMEOUT_S,
        hold_s: float = 3.0,
    ) -> None:
        check_names(prefix, catalogue)
        tag = "{" + prefix + "}"
        self._tag = tag
        self._catalogue = catalogue
        self._hold_us = round(hold_s * 1_000_000)
        address = read_address(url)
        self._greeting = Handshake(tag, address.shown, catalogue)
        self._links = Connections(address, tag, timeout_s, self._greeting)
        self._wakes = RedisNotifier(self._links, f"{tag}:wake", timeout_s)
        self._projections = Projections(catalogue, address.shown_under or tag)
        self._floor_us = 0

    def __repr__(self) -> str:
        return f"RedisStore({self._links.shown!r})"

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities, from the server's settings; a bare shell can still write invalid data."""
        durable, durability = self._greeting.durability
        return Capabilities(durable=durable, durability=durability, shared=True, enforces_tables=True)

    async def open(self) -> None:
        """Check the server, create or migrate the schema, and load the tables."""
        self._links.unlock()
        try:
            while not await self._links.use(self._greeting.first, scripts.OPEN):
                pass
        except BaseException:
            await self._links.close()
            raise
        self._wakes.listen()

    async def learn(self, kinds: Catalogue) -> None:
        """Load kinds now, and again into a server that has lost them."""
        check_names("interlock", kinds)
        if any(self._catalogue.get(name) != kind for name, kind in kinds.items()):
            catalogue = {**self._catalogue, **kinds}
            self._greeting.learn(catalogue)
            await self._links.use(self._greeting.loading, scripts.OPEN)
            self._catalogue = catalogue

    async def close(self) -> None:
        """Close every connection."""
        await self._wakes.close()
        await self._links.close()

    async def now(self) -> datetime:
        """Return the server's clock, never behind earlier times."""
        return moment(self._raise_floor(int(await self._links.call(scripts.NOW, self._floor_us))))

    async def epoch(self) -> int:
        """Return the epoch, which grows when the server is another one.

        Every new connection checks it.
        """
        self._links.check_open()
        epoch: int = await self._links.use(self._greeting.again, scripts.OPEN)
        return epoch

    async def raise_epoch(self, above: int = 0) -> int:
        """Start an epoch above the larger one."""
        return int(await self._links.call(scripts.RAISE_EPOCH, above))

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Load the records."""
        for key in keys:
            known_kind(self._catalogue, key.kind)
        return read_loaded(await self._links.call(scripts.LOAD, pack([(key.kind, key.id) for key in keys])))

    async def find(self, query: Query) -> Page:
        """Scan the narrowest index until the page is full.

        One more record shows that there are more.
        """
        check_query(self._catalogue, query)
        after, until = after_cursor(query), self._links.deadline()
        left = query.within if query.within is not None and query.looks_through else None
        found: list[Record] = []
        while len(found) <= query.limit and left != 0:
            wanted = query.limit + 1 - len(found)
            bound = _MAX_LOOKED_AT if left is None else min(left, _MAX_LOOKED_AT)
            answer = await self._links.call(
                scripts.FIND, pack_query(query, after), wanted, bound, until=until
            )
            after, some = read_found(answer)
            found += some
            left = None if left is None else left - bound
            if after == START:
                break
        page = tuple(found[: query.limit])
        if len(found) > query.limit:
            return Page(page, cursor_of(page[-1]))
        return Page(page, "" if after == START else write_cursor(int(after[0]), after[1]))

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Count by the scan of `find` without reading records.

        If one index is sufficient, its size is the number.
        """
        check_query(self._catalogue, query)
        after, until, number, looked_at = START, self._links.deadline(), 0, 0
        while number <= cap:
            answer = await self._links.call(
                scripts.COUNT, pack_query(query, after), cap + 1 - number, _MAX_LOOKED_AT, until=until
            )
            found, after = read_count(answer)
            number += found
            looked_at += _MAX_LOOKED_AT
            if after == START:
                break
            if within is not None and looked_at >= within:
                return Count(min(number, cap), capped=True)
        return Count(min(number, cap), capped=number > cap)

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Commit the whole batch in one call, unless it is very large."""
        packed = self._packed(commits)
        return await self._commit(packed, "", self._links.deadline()) if commits else []

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Take, decide, commit.

        Before that, delayed records that are ready are moved into their lanes.
        """
        check_claim(self._catalogue, claim)
        packed = pack_claim(claim)
        limit, until = min(claim.limit, _MAX_TAKEN), self._links.deadline()
        answer = None
        for another in range(_PROMOTING_ROUNDS, -1, -1):
            patient = 1 if another else 0
            answer = await self._links.call(
                scripts.CLAIM,
                *(claim.kind, limit, self._floor_us, self._hold_us, _MAX_PROMOTED, patient, packed),
                until=until,
            )
            if answer is not None:
                break
        return await self._decided(answer, decide, until)

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Handle records past their deadline."""
        for kind in kinds:
            known_kind(self._catalogue, kind)
        check_limit(limit)
        until = self._links.deadline()
        packed = pack(list(dict.fromkeys(kinds)))
        answer = await self._links.call(
            scripts.DUE, min(limit, _MAX_TAKEN), self._floor_us, self._hold_us, packed, until=until
        )
        return await self._decided(answer, decide, until)

    async def recall(self, request_id: str) -> Recorded | None:
        """Return the recorded answer, unless it has expired."""
        fields = await self._links.call(scripts.RECALL, pack_text(request_id), self._floor_us)
        return None if fields is None else read_recorded(request_id, fields)

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return entries of the journal, one stream written by sequential scripts."""
        check_limit(limit)
        start = journal_place(after)
        answer = await self._links.call(scripts.FEED, stream_id(start), limit)
        pruned, entries = read_entries(answer, start, limit)
        gap = start < journal_place(pruned)
        if entries:
            return Feed(entries, entries[-1].cursor, gap)
        return Feed((), pruned if gap or not after else after, gap)

    async def latest(self, *, back: int = 0) -> str:
        """Return the cursor of the end of the journal, or of earlier.

        Each entry has a number.
        """
        check_back(back)
        cursor: bytes = await self._links.call(scripts.LATEST)
        epoch, number = journal_place(cursor.decode())
        return stream_id((epoch, number - back) if number > back else BEGINNING) if back else cursor.decode()

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the entries of one record."""
        known_kind(self._catalogue, key.kind)
        check_limit(limit)
        answer = await self._links.call(scripts.HISTORY, key.kind, pack_text(key.id), after_version, limit)
        _, entries = read_entries(answer, BEGINNING, limit)
        return Feed(entries, entries[-1].cursor if entries else "")

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Subscribe to the server; needs a running event loop."""
        return self._wakes.subscribe(wake)

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Prune one bounded batch: records, their entries, and expired requests."""
        check_prune(self._catalogue, kind, states, older_than)
        check_limit(limit)
        answer = await self._links.call(
            scripts.PRUNE,
            *(kind, older_than // _MICROSECOND, limit, self._floor_us, pack(list(dict.fromkeys(states)))),
            *(
                _MAX_ENTRIES_PRUNED,
                max(limit, _MAX_REQUESTS_PRUNED),
                self._projections.places(kind),
                pack(False),
            ),
        )
        return Pruned(*read_pruned(answer)[:4])

    async def prune_by_queue(
        self,
        *,
        kind: str,
        state: str,
        older_than: timedelta | None,
        queues: Mapping[str, timedelta],
        cursor: str = "",
        limit: int = 1_000,
        within: int = 5_000,
    ) -> Pruned:
        """Look at the next records of the state, in the order of their ends."""
        check_prune_by_queue(self._catalogue, kind, state, older_than, queues)
        check_limit(limit)
        check_limit(within)
        ages = {name: age // _MICROSECOND for name, age in queues.items()}
        general = False if older_than is None else older_than // _MICROSECOND
        walk = (ages, general, *place_after(cursor), min(within, _MAX_WALKED))
        answer = await self._links.call(
            scripts.PRUNE,
            *(kind, min((general, *ages.values()) if older_than is not None else ages.values(), default=0)),
            *(limit, self._floor_us, pack([state]), _MAX_ENTRIES_PRUNED, 0, self._projections.places(kind)),
            pack(walk),
        )
        records, entries, _, _, at, name = read_pruned(answer)
        on = write_cursor(int(at), name) if at else ""
        return Pruned(records, entries, more=bool(on), cursor=on)

    async def compact(self) -> int | None:
        """Return None: the server does that."""
        return None

    async def permissions(self) -> list[Permission]:
        """Return the permissions by ACL; empty where the server does not say."""
        found: list[Permission] = await self._links.use(
            lambda connection: permissions_of(connection, self._tag, self._wakes.channel)
        )
        return found

    async def status(self) -> StoreStatus:
        """Return the status, from sizes that the server knows without counting."""
        kinds = [(kind.name, kind.states) for kind in self._catalogue.values()]
        version, numbers, entries, oldest, requests = read_status(
            await self._links.call(scripts.STATUS, pack(kinds))
        )
        records = {
            name: {state: number for state, number in zip(states, counts, strict=True) if number}
            for (name, states), counts in zip(kinds, numbers, strict=True)
        }
        return StoreStatus(
            url=self._links.shown,
            server=self._greeting.server_name,
            schema_version=version,
            wanted_version=scripts.SCHEMA_VERSION,
            records={name: states for name, states in records.items() if states},
            entries=entries,
            oldest_entry_at=moment(int(oldest)) if oldest else None,
            requests=requests,
            size_bytes=await self._links.use(self._greeting.size_bytes),
        )

    async def _decided(self, answer: Any, decide: Decide, until: float) -> list[Outcome]:
        now, now_us, hold, taken = read_taken(answer)
        self._raise_floor(now_us)
        if not taken:
            return []
        try:
            commits = decide(taken, now)
            packed = self._packed(commits)
        except BaseException:
            # If this fails, the hold expires; the error of `decide` is more important.
            with suppress(StoreUnavailable):
                await self._commit(pack_work((), self._projections), hold, self._links.deadline())
            raise
        return await self._commit(packed, hold, until)

    def _packed(self, commits: Sequence[Work]) -> list[tuple[Sequence[Work], bytes]]:
        check_commits(self._catalogue, commits, self.capabilities.max_body_bytes)
        return pack_work(commits, self._projections)

    async def _commit(
        self, parts: Sequence[tuple[Sequence[Work], bytes]], hold: str, until: float
    ) -> list[Outcome]:
        """Commit in one call or several; the hold ends with the last."""
        outcomes: list[Outcome] = []
        for number, (commits, packed) in enumerate(parts, 1):
            ends = hold if number == len(parts) else ""
            answer = await self._links.call(scripts.COMMIT, packed, self._floor_us, ends, until=until)
            now_us, some = read_outcomes(answer, commits)
            self._raise_floor(now_us)
            outcomes += some
        return outcomes

    def _raise_floor(self, now_us: int) -> int:
        self._floor_us = max(self._floor_us, now_us)
        return self._floor_us
