"""Gates of limits: the jobs that hold the slots of a key, the line, and admission. Pure.

A job under a limit is not ready before it is admitted, so a claim knows nothing of limits and pays nothing
for them. The *gate* of a key names the jobs that hold its slots; a *ticket* names jobs that wait for one, in
their order. A job is admitted in one commit with its ticket and with the gates of all its limits, each
compared by version: of two processes that would give the last slot away, one conflicts and reads again.

There is no counter. The record of a job has whether it holds a slot (`LimitPart.since`), and changes
with its leases: the commit that ends its last lease releases the slot and notifies the gate, and a gate that
is full reads the records of its holders from time to time.

Why: decisions 0407 and 0409.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.engine.outbox import outgoing
from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.job import JobState
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
    rest,
    state,
    timer,
)
from interlock.machine.cascade import EventRules
from interlock.store.ranking import rank_of
from interlock.store.records import Change, Commit, Key, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import LimitPart, decode_body
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.wire.limits import LimitSpec

# The gate of a key


class GateState(StrEnum):
    """State of a gate."""

    FREE = "free"
    HELD = "held"
    FULL = "full"


FREE, HELD, FULL = GateState.FREE, GateState.HELD, GateState.FULL

admit: Event = command("admit", "Jobs hold slots, and none waits.", by="orchestrator")
fill: Event = command("fill", "Jobs wait for a slot.", by="orchestrator")
clear: Event = command("clear", "No job holds a slot or waits for one.", by="orchestrator")
review: Event = timer("review", "It was full for long: its holders are checked.", by="clock")

REVIEW = Deadline(review, "limit_review_s", 60.0)

# fmt: off
GATE = Machine[GateState, None](
    "limit_gate",
    "Which jobs hold the slots of one key of a limit.",
    initial=FREE,
    spine=(FREE, HELD, FULL),
    stop=(clear,),
    states=(
        rest(FREE, "No job holds a slot."),
        state(HELD, "Jobs hold slots, and none waits.", turn="orchestrator"),
        state(FULL, "Jobs wait for a slot.", turn="orchestrator", within=REVIEW),
    ),
    rows=(
        on(admit, (FREE, FULL), HELD, owner="orchestrator", why="Every job that wants a slot has one."),
        on(fill, (FREE, HELD), FULL, owner="orchestrator", why="More jobs want a slot than are free."),
        on(clear, (HELD, FULL), FREE, owner="orchestrator", why="The last job has given its slot back."),
        on(review, FULL, STAY, owner="orchestrator", arms=REVIEW,
           why="A slot of a job that no worker has taken goes to a waiting job."),
        ignore(admit, HELD, why="jobs hold slots already"),
        ignore(fill, FULL, why="it is full"),
        ignore(clear, FREE, why="it is free"),
        ignore(review, (FREE, HELD), why="no job waits"),
    ),
)
# fmt: on


class GateBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Body of the gate of a key."""

    inside: dict[str, int] = {}
    """Jobs that hold slots, with how many, in the order of their admission."""
    behind: tuple[str, ...] = ()
    """Other keys whose next job waits for a slot here; they are served in turn."""
    offered: dict[str, datetime] = {}
    """Under a rate: those inside that were not known to have started, and when they were admitted."""
    level: float | None = None
    """Under a rate: how many could start at once at `level_at`, those that are offered included."""
    level_at: datetime | None = None

    @property
    def promised(self) -> int:
        """Return how many starts are promised to jobs that are offered."""
        return sum(self.inside.get(job_id, 0) for job_id in self.offered)

    def tokens(self, limit: LimitSpec, now: datetime) -> float:
        """Return how many could start now under the rate, offered ones included."""
        most = float(limit.capacity)
        if self.level is None or self.level_at is None:
            return most
        elapsed = max(0.0, (now - self.level_at).total_seconds())
        return min(most, self.level + elapsed * limit.each_second)

    def starts_left(self, limit: LimitSpec, now: datetime) -> int | None:
        """Return how many more may start now, or None without a rate."""
        if limit.rate is None:
            return None
        return max(0, int(self.tokens(limit, now) - self.promised + _TINY))


GATES = RecordKind(GATE, GateBody)


class TicketState(StrEnum):
    """State of a ticket."""

    LATER = "later"
    WAITING = "waiting"
    SERVED = "served"
    DROPPED = "dropped"


LATER, WAITING = TicketState.LATER, TicketState.WAITING
SERVED, DROPPED = TicketState.SERVED, TicketState.DROPPED

serve: Event = command("serve", "Its jobs were admitted, or want no slot any more.", by="orchestrator")
come: Event = timer("come", "The time of its jobs has come.", by="clock")
drop: Event = consequence("drop", "It is no longer wanted.", by="operator")

COMES = Deadline(come, "ticket_s", 1.0, "the time from which its jobs want a slot")

# fmt: off
TICKET = Machine[TicketState, None](
    "limit_ticket",
    "Jobs that wait for a slot of a limit, in their order.",
    initial=LATER,
    spine=(LATER, WAITING, SERVED),
    stop=(drop,),
    states=(
        state(LATER, "Its jobs want a slot later.", turn="clock", within=COMES),
        state(WAITING, "Its jobs are in line.", turn="orchestrator", tone=Tone.WAITING),
        end(SERVED, "Its jobs were admitted, or want no slot any more."),
        end(DROPPED, "No longer wanted."),
    ),
    rows=(
        on(come, LATER, WAITING, owner="clock", why="They could begin now."),
        on(serve, WAITING, SERVED, owner="orchestrator", why="None of its jobs waits any more."),
        on(drop, (LATER, WAITING), DROPPED, owner="operator", why="An operator has dropped it."),
        ignore(come, (WAITING, SERVED, DROPPED), why="it is in line, or over"),
        ignore(drop, (SERVED, DROPPED), why="it is over"),
    ),
)
# fmt: on


class TicketBody(msgspec.Struct, frozen=True):
    """The jobs of a ticket that are still in line, first come first."""

    ids: tuple[str, ...]


TICKETS = RecordKind(TICKET, TicketBody, events=EventRules(sent=(drop,)))


def new_ticket(
    name: str,
    key: str,
    ids: Sequence[str],
    at: datetime,
    now: datetime,
    *,
    priority: int = 0,
    commit_id: str = "",
) -> Change:
    """Return a ticket for jobs that want a slot of a key from this time on."""
    columns = Columns(parent=key, priority=priority)
    ticket = TICKETS.lasting(ticket_s=(at - now).total_seconds()).new(
        name, TicketBody(tuple(ids)), now, columns
    )
    return ticket.change(commit_id=commit_id, actor="orchestrator")


LIMITS = "limit.left"
"""The topic of messages to gates about jobs that have released their slots."""
_ENCODER = msgspec.json.Encoder()


class LimitMessage(msgspec.Struct, frozen=True):
    """A job has given its slots back."""

    job_id: str
    keys: tuple[str, ...]


def limit_messages_of(draft: JobAggregate) -> tuple[Change, ...]:
    """Return messages of a job that leaves gates or lines up, after `change`."""
    limits = draft.body.limits
    if limits is None or not (draft.left_limits or draft.lines_up_at):
        return ()
    messages: list[Change] = []
    if draft.left_limits:
        payload = _ENCODER.encode(LimitMessage(draft.id, draft.left_limits))
        messages.append(outgoing(f"{draft.id}.limit.{draft.version}", LIMITS, payload, draft.now))
    if draft.lines_up_at is not None:
        at, priority = draft.lines_up_at, draft.place.priority
        name = f"{draft.id}.{draft.version}"
        messages.append(new_ticket(name, limits.keys[0], (draft.id,), at, draft.now, priority=priority))
    return tuple(messages)


def with_limits(draft: JobAggregate, keys: Iterable[str]) -> None:
    """Put a job under these limits as well; it lines up with the next change."""
    limits = draft.body.limits or LimitPart(keys=())
    if limits.since is not None:
        draft.left_limits = limits.keys
    together = tuple(dict.fromkeys((*limits.keys, *keys)))
    draft.body.limits = msgspec.structs.replace(limits, keys=together, since=None, waits=False)


def adopted(
    record: Record, keys: Iterable[str], now: datetime, commit_id: str, settings: OrchestratorSettings
) -> Commit:
    """Return the commit by which a job lines up for newer limits."""
    draft = JobAggregate.of(record, now, settings)
    with_limits(draft, keys)
    reason = "it counts against a limit that was declared after it was submitted"
    change = draft.change(commit_id=commit_id, actor="orchestrator", reason=reason, note=True)
    return Commit(changes=(change, *limit_messages_of(draft)))


def is_leased(record: Record) -> bool:
    """Return whether a runner has an attempt of this job."""
    leases = [one.lease for one in decode_body(record.body).attempts]
    return any(one is not None and one.state in lease.LIVE for one in leases)


QUANTUM = 200
"""Maximum number of jobs that are admitted in one commit."""
OFFER = timedelta(seconds=60)
"""A job that no worker takes within this time after its admission goes to the end of the line."""
_LITTLE = timedelta(seconds=1)
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.1, 5.0
"""The shortest pause before a gate looks again whether its rate lets the next job start, and the longest one
before it looks whether an offered job has started."""
_TINY = 1e-6


def gate_key(key: str) -> Key:
    """Return the key of the record of a gate."""
    return Key(GATE.name, key)


class GateLook(msgspec.Struct, kw_only=True):
    """A key and everything that a decision about it depends on."""

    key: str
    limits: Mapping[str, LimitSpec]
    """The limits of this key and of all other keys that are met; without one a key is not limited."""
    names: Mapping[str, str]
    """The names of these limits, by key."""
    gates: dict[str, Record | None]
    tickets: Sequence[Record]
    """Tickets whose time has come, in the order of the line."""
    jobs: Mapping[str, Record | None]
    """The first jobs in line, and those that may have given their slots back."""
    gone: Collection[str] = ()
    """Jobs inside of which it has to be looked at whether they still are."""
    reviews: bool = False
    """Slots of jobs that were given to no worker are given to others."""

    @property
    def records(self) -> list[Record | None]:
        """Return all records that a commit may change."""
        return [*self.gates.values(), *self.tickets, *self.jobs.values()]


class Admission(msgspec.Struct, frozen=True):
    """A decision about a gate and its line."""

    commit: Commit | None
    admitted: int = 0
    served: int = 0
    """Number of jobs that left the line: those that were admitted, and those that want no slot any more."""
    more: bool = False
    """The line continues, and the next in it has not been looked at."""
    room: bool = False
    """Slots are left, so that others who wait for this key may be served."""
    behind: tuple[str, ...] = ()
    """Other keys that wait for this one."""
    look_at: datetime | None = None
    """The time at which the rate may let the next job start."""


class _Gate:
    """The slots of one key, while it is decided about."""

    def __init__(self, key: str, record: Record | None, limit: LimitSpec | None, name: str) -> None:
        self.key, self.record, self.limit, self.name = key, record, limit, name
        self.body = GATES.body_of(record) if record is not None else GateBody()
        self.used = sum(self.body.inside.values())
        self.look_at: datetime | None = None
        self._wanted = 1
        """Number of slots that the next job in line wants."""

    # The rate is a bucket of tokens that fills with time. A job takes its tokens when it starts, at the time
    # of its lease. There are never fewer tokens than are offered, so whenever a job starts its tokens are
    # there. A start that is not known yet makes the offered ones larger by as much as the bucket, or by more.

    def _tokens(self, now: datetime) -> float:
        assert self.limit is not None
        return self.body.tokens(self.limit, now)

    @property
    def _is_metered(self) -> bool:
        return self.limit is not None and self.limit.rate is not None

    def settle(self, job_id: str, limits: LimitPart | None, now: datetime) -> None:
        """Note that a job has started, if its record shows it or is missing."""
        since = self.body.offered.get(job_id)
        started_at = limits.started_at if limits is not None else now
        if since is None or started_at is None or started_at < since:
            return
        if self._is_metered:
            self.body.level = self._tokens(started_at) - self.body.inside.get(job_id, 0)
            self.body.level_at = max(started_at, self.body.level_at or started_at)
        del self.body.offered[job_id]
        if self.limit is None or self.limit.max is None:
            self.leave(job_id)

    def _may_start(self, slots: int, now: datetime) -> bool:
        if not self._is_metered:
            return True
        assert self.limit is not None
        wanted = min(slots, self.limit.capacity)
        return self._tokens(now) - self.body.promised >= wanted - _TINY

    def _next_at(self, now: datetime) -> datetime | None:
        """Return when the next in line may start; None if it may start now."""
        if not self._is_metered or self._may_start(self._wanted, now):
            return None
        assert self.limit is not None
        each_second, promised = self.limit.each_second, self.body.promised
        short_s = (self._wanted + promised - self._tokens(now)) / each_second
        if self._wanted + promised > self.limit.capacity:  # it waits until one that is offered starts
            short_s = min(short_s, LONGEST_LOOK_S)
        return now + timedelta(seconds=max(short_s, SHORTEST_LOOK_S))

    @property
    def room(self) -> bool:
        most = self.limit.max if self.limit is not None else None
        return most is None or self.used < most

    def has_room_for(self, slots: int, now: datetime) -> bool:
        """Return whether these slots are free; a job too large may be alone."""
        self._wanted = slots
        most = self.limit.max if self.limit is not None else None
        free = most is None or self.used + slots <= most or not self.body.inside
        return free and self._may_start(slots, now)

    def take(self, job_id: str, slots: int, at: datetime, limits: LimitPart) -> None:
        """Give slots to a job; its earlier `limits` show whether it has started."""
        if self.limit is None:
            return
        self.settle(job_id, limits, at)
        self.body.inside[job_id] = slots
        self.used += slots
        if self._is_metered:
            self.body.offered[job_id] = at

    @property
    def meters(self) -> bool:
        """Return whether an admission is good for one start."""
        return self._is_metered

    def leave(self, job_id: str) -> None:
        self.used -= self.body.inside.pop(job_id, 0)
        self.body.offered.pop(job_id, None)

    def wait(self, key: str) -> None:
        """Another key waits for a slot here."""
        if key not in self.body.behind:
            self.body.behind = (*self.body.behind, key)

    def change(self, now: datetime, commit_id: str, *, waiting: bool) -> Change | None:
        """Return the change of the gate; None if it stays as it is."""
        target = FULL if waiting or self.body.behind else HELD if self.body.inside else FREE
        record = self.record
        if record is None and target is FREE:
            return None
        columns = Columns(parent=self.name or None)
        gate = (
            GATES.of(record, now, self.body)
            if record is not None
            else GATES.new(self.key, self.body, now, columns)
        )
        gate.place(parent=columns.parent)
        due = gate.root.timer_at is not None and gate.root.timer_at <= now
        if gate.state != target:
            gate.must({FREE: clear, HELD: admit, FULL: fill}[target])
        elif due:
            gate.must(review)
        self.look_at = next_at = self._next_at(now) if target is FULL else None
        if next_at is not None:
            gate.expire_by(next_at)
        change = gate.change(commit_id=commit_id, actor="orchestrator")
        if record is None or gate.taken:
            return change
        was, becomes = (record.body, record.parent), (change.body, change.parent)
        return None if was == becomes and record.deadline_at == change.deadline_at else change


def decide_admission(
    look: GateLook, now: datetime, commit_id: str, settings: OrchestratorSettings, *, quantum: int = QUANTUM
) -> Admission:
    """Return the jobs that leave a gate, and those admitted.

    A job that needs more slots than are free is waited for: those behind it do not overtake it.
    """
    return _Decision(look, now, commit_id, settings, quantum).made()


class _Decision:
    """One decision about a gate and its line."""

    def __init__(
        self, look: GateLook, now: datetime, commit_id: str, settings: OrchestratorSettings, quantum: int
    ) -> None:
        self._look, self._now, self._commit_id, self._settings = look, now, commit_id, settings
        self._gates = {
            key: _Gate(key, record, look.limits.get(key), look.names.get(key, ""))
            for key, record in look.gates.items()
        }
        self._own = self._gates[look.key]
        self._changes: list[Change] = []
        # While other keys wait for this one, they and its own line are served in turn.
        self._left = 1 if self._own.body.behind else quantum
        self._admitted = self._passed = 0
        self._more = self._waits = False

    def made(self) -> Admission:
        for gate in self._gates.values():
            if gate is not self._own:  # keys that wait are noted again below
                gate.body.behind = tuple(key for key in gate.body.behind if key != self._look.key)
        self._let_go()
        tickets = self._serve()
        gates = [
            gate.change(self._now, self._commit_id, waiting=self._is_waiting(gate))
            for gate in self._gates.values()
        ]
        changes = (*[gate for gate in gates if gate is not None], *self._changes, *tickets)
        return Admission(
            Commit(changes=changes) if changes else None,
            self._admitted,
            self._passed,
            self._more,
            self._own.room,
            self._own.body.behind,
            self._own.look_at,
        )

    def _is_waiting(self, gate: _Gate) -> bool:
        """Return whether jobs wait at a gate, by its earlier state if not ours."""
        if gate is self._own:
            return self._waits or self._more
        return gate.record is not None and gate.record.state == FULL

    def _let_go(self) -> None:
        """Remove jobs that hold no slot any more by their own records."""
        for job_id in self._look.gone:
            if job_id not in self._own.body.inside:
                continue
            record = self._look.jobs.get(job_id)
            self._own.settle(job_id, _decode_limited(record.body).limits if record else None, self._now)
            limits = limits_of(record)
            if limits is None or limits.since is None or self._look.key not in limits.keys:
                self._own.leave(job_id)
            elif self._look.reviews and self._look.tickets and record is not None:
                self._withdraw(record, limits)

    def _withdraw(self, record: Record, limits: LimitPart) -> None:
        """Send a job that no worker takes to the end: others need its slots."""
        body = decode_body(record.body)
        offered = [limits.since, *(one.created_at for one in body.attempts if one.state in attempt.UNLEASED)]
        if is_leased(record) or max(filter(None, offered)) + OFFER > self._now:
            return
        draft = JobAggregate.of(record, self._now, self._settings)
        draft.body.limits = msgspec.structs.replace(limits, since=None, waits=False)
        draft.left_limits = limits.keys
        self._write(draft, "no worker has taken it; others wait for its slot")
        self._own.leave(record.id)

    def _write(self, draft: JobAggregate, reason: str) -> None:
        change = draft.change(commit_id=self._commit_id, actor="orchestrator", reason=reason, note=True)
        self._changes += (change, *limit_messages_of(draft))

    def _serve(self) -> list[Change]:
        """Serve the tickets in their order, until the next job finds no room."""
        changes = []
        self._waits = bool(self._look.tickets) and not self._own.room
        for record in self._look.tickets:
            ticket = TICKETS.of(record, self._now)
            ids = ticket.body.ids
            served = self._served(ids)
            if ticket.state == LATER:
                ticket.must(come)
            if served == len(ids):
                ticket.must(serve)
            if served:
                self._passed += served
                ticket.body = TicketBody(ids[served:])
            if served or ticket.taken:
                changes.append(ticket.change(commit_id=self._commit_id, actor="orchestrator"))
        return changes

    def _served(self, ids: Sequence[str]) -> int:
        """Return how many of these jobs, from the first on, leave the line."""
        for served, job_id in enumerate(ids):
            if self._waits or self._more or not self._admit(job_id):
                return served
        return len(ids)

    def _admit(self, job_id: str) -> bool:
        """Admit or skip a job; return False if the line stops here."""
        if job_id not in self._look.jobs:
            self._more = True
            return False
        record = self._look.jobs[job_id]
        limits = limits_of(record)
        if record is None or limits is None or limits.since is not None or not limits.waits:
            return True
        if self._left <= 0:
            self._more = True
            return False
        draft = JobAggregate.of(record, self._now, self._settings)
        at = draft.ready_at
        if at is None or at > self._now + _LITTLE:  # it was put off meanwhile
            draft.body.limits = msgspec.structs.replace(limits, waits=False)
            self._write(draft, "")
            return True
        return self._take(draft, limits, max(at, self._now))

    def _take(self, draft: JobAggregate, limits: LimitPart, at: datetime) -> bool:
        slots = limits.weight * draft.body.data.worker_count
        gates = [self._gates[key] for key in limits.keys if key in self._gates]
        for gate in gates:
            if not gate.has_room_for(slots, self._now):
                self._waits = True
                if gate is not self._own:
                    gate.wait(self._look.key)
                return False
        for gate in gates:
            gate.take(draft.id, slots, at, limits)
        draft.now = at
        metered = any(gate.meters for gate in gates)
        draft.body.limits = msgspec.structs.replace(limits, since=at, waits=False, metered=metered)
        self._write(draft, f"admitted by {', '.join(limits.keys)}")
        self._left -= 1
        self._admitted += 1
        return True


class _Limited(msgspec.Struct):
    """As much of a job's body as its gates need to know."""

    limits: LimitPart | None = None


_decode_limited = msgspec.json.Decoder(_Limited).decode


def limits_of(record: Record | None) -> LimitPart | None:
    """Return the limits of a job, or None if it is under none or has ended."""
    if record is None or JobState(record.state) in job.ENDED:
        return None
    return _decode_limited(record.body).limits


def in_line(tickets: Iterable[Record]) -> list[Record]:
    """Return tickets by age, with a head start for each step of priority."""
    return sorted(tickets, key=lambda each: (rank_of(each.created_at, each.priority), each.id))
