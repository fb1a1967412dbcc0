"""Messages under leases: heartbeats that renew them, and reports that end them.

Leases are renewed together, from outside the event loop (`Renewer`).

Authority. Only the store decides whether a lease is live. Its answer to a heartbeat is final at once: a stale
lease is lost, and its task is stopped.

Trust window. Between two answers the worker trusts its lease, but only for as long as the store does: from
the moment the last answered renewal was *requested*, by the monotonic clock, for the time to live less a
margin. A worker that could not renew in that time (the store is unavailable, the process was stopped, a
handler has held the GIL) has lost the lease, and knows it before another worker begins.

Failure. The renewer has a separate thread, event loop and port. Neither a handler that blocks the event loop
of the worker nor a waiting poll delays it. A renewal without an answer is abandoned together with its
connection.

Reports are sent in batches from the event loop, whenever the port is free (`ReportQueue`). There is no timer:
while one batch is under way the next one gathers, so that a busy worker sends large batches and an idle one
sends at once. A report that cannot be delivered is retried until its lease has ended; after that it would not
be accepted.

Why: decisions 0014 and 0160.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from interlock.backoff import Backoff, nth_pause_s
from interlock.errors import StoreUnavailable
from interlock.wire.runner import (
    Answer,
    Complete,
    Grant,
    Heard,
    Heartbeat,
    Message,
    NotHeard,
    SendMessages,
    Stale,
    StaleCode,
    Succeeded,
)
from interlock.worker.cohorts import Cohort, CohortMember, FinishedCohort
from interlock.worker.context import UnsentMessages
from interlock.worker.host import MACHINE, LoopTick, Threads
from interlock.worker.outcomes import MAX_DETAILS_BYTES, NOTHING
from interlock.worker.port import OrchestratorPort
from interlock.worker.running_task import MAX_REPORT_BYTES, PayloadHandoff, RunningTask
from interlock.worker.settings import WorkerSettings
from interlock.worker.side_loop import SideLoop
from interlock.worker.telemetry import Log

Leased: TypeAlias = RunningTask | Cohort | FinishedCohort
"""The holder of a lease, or of several with the same terms."""
RenewalResult: TypeAlias = tuple[RunningTask | CohortMember, Answer | None]
Renewed: TypeAlias = Callable[[Sequence[RenewalResult]], None]
"""Called in the renewer's thread with the result for each lease; None if unknown. Of the jobs in a
cohort only those are listed whose lease was not simply renewed.
"""

_SHORTEST_PAUSE_S = 0.02
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_AFTER_TIMEOUT_S = 0.1
LATE = Stale(code=StaleCode.LEASE_EXPIRED, error="The lease could not be renewed in time.")


class _Beat:
    """The heartbeats of a task or of a cohort, with their payload."""

    __slots__ = ("grants", "leased", "unsent")

    def __init__(self, leased: Leased, unsent: UnsentMessages | None) -> None:
        self.leased = leased
        self.unsent = unsent
        self.grants = [leased.grant] if isinstance(leased, RunningTask) else leased.held()

    def messages(self) -> Sequence[Heartbeat]:
        """Return the messages to send."""
        leased = self.leased
        if isinstance(leased, RunningTask):
            return [leased.heartbeat(self.unsent)]
        self.grants, messages = leased.heartbeats()  # some may have left in the meantime
        return messages


class Renewer:
    """A thread that renews the leases of this process."""

    def __init__(
        self,
        settings: WorkerSettings,
        connect: Callable[[], OrchestratorPort],
        payloads: PayloadHandoff,
        renewed: Renewed,
        *,
        log: Log,
        monotonic: Callable[[], float] = time.monotonic,
        threads: Threads = MACHINE,
    ) -> None:
        self._settings = settings
        self._payloads = payloads
        self._renewed = renewed
        self._log = log
        self.beat: LoopTick = LoopTick("renew", monotonic, self.awaits)
        self._monotonic = monotonic
        self._leases: dict[Leased, float] = {}
        """Times at which the leases are due for renewal. Both threads add and remove, each in one step."""
        self._flush_wanted = self._renew_all = False
        self._flushed_at = float("-inf")
        self._wakes_at = float("-inf")
        """Time at which the loop wakes by itself; anything due earlier has to wake it."""
        self._side = SideLoop(
            "interlock-renewer",
            connect,
            self._rounds,
            failed=self._crashed,
            backoff=Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S),
            threads=threads,
        )

    def __len__(self) -> int:
        """Number of renewed leases."""
        return sum(one.count for one in list(self._leases))

    def start(self) -> None:
        """Start the thread; it connects when there is a lease to renew."""
        self._side.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Stop the thread, if it was started; a hanging one is abandoned."""
        self._side.stop(timeout_s)

    def add(self, running: Leased) -> None:
        """Renew this lease from now on; from any thread."""
        self._leases[running] = due = _next_heartbeat(running, running.renewed_at)
        if due < self._wakes_at:
            self._side.wake()

    def remove(self, running: Leased) -> None:
        """Stop renewing this lease."""
        self._leases.pop(running, None)

    def renew_now(self) -> None:
        """Renew every lease as soon as possible, to receive cancellations.

        Any thread may call this.
        """
        self._renew_all = True
        self._side.wake()

    def nudge(self) -> None:
        """Schedule sending messages of handlers; from any thread, cheap to repeat."""
        if not self._flush_wanted:
            self._flush_wanted = True
            self._side.wake()

    def awaits(self) -> bool:
        """Return whether a lease is due for renewal."""
        now = self._monotonic()
        return any(due <= now for due in list(self._leases.values()))

    def find_late(self) -> None:
        """Give up every lease that could not be renewed in time.

        Any thread may call this: the renewer itself may hang.
        """
        now = self._monotonic()
        late = [running for running in list(self._leases) if self._is_late(running, now)]
        if late:
            results: list[RenewalResult] = []
            for running in late:
                self.remove(running)
                results += [(each, LATE) for each in _stopped(running, "lost")]
            self._renewed(results)

    # In the thread

    def _crashed(self, error: Exception) -> None:
        self._log.error("loop_crashed", loop="renew", error=f"{type(error).__name__}: {error}")

    async def _rounds(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            self.beat.at = self._monotonic()
            self.find_late()
            if due := self._due():
                if await self._round(due):
                    backoff.reset()
                else:
                    await self._side.wait(min(backoff.next_s(), self._trusted_for_s()))
                continue
            await self._sleep()

    def _due(self) -> list[_Beat]:
        """Return the leases to renew, and those with messages.

        If one is due, all that were not just renewed are renewed.
        """
        now = self._monotonic()
        flush = self._flush_wanted and now >= self._flushed_at + self._settings.flush_every_s
        if flush:
            self._flush_wanted, self._flushed_at = False, now
        hurried, self._renew_all = self._renew_all, False
        leases = list(self._leases.items())
        anyone = any(due <= now for _, due in leases)
        chosen = []
        for running, due in leases:
            soon = hurried or (anyone and due <= now + running.grant.heartbeat_every_s / 2)
            unsent = None
            if isinstance(running, RunningTask) and (soon or flush):
                unsent = self._payloads.take_for_heartbeat(running)
            if soon or unsent is not None:
                chosen.append(_Beat(running, unsent))
        return chosen

    async def _round(self, due: list[_Beat]) -> bool:
        """Renew these leases together; return whether the store answered."""
        requested_at = self._monotonic()
        try:
            # Each has its own timeout: connecting takes another round trip.
            async with asyncio.timeout(self._patience_s(due, requested_at)):
                port = await self._side.connected()
            requested_at = self._monotonic()
            async with asyncio.timeout(self._patience_s(due, requested_at)):
                answers = iter(await self._send(port, due))
        except (StoreUnavailable, TimeoutError) as error:
            self._settle_payloads(due, delivered=False)
            self._renewed([(running, None) for running in _tasks_with_payload(due)])
            leases = sum(len(beat.grants) for beat in due)
            self._log.warning("renewal_failed", leases=leases, error=str(error) or "no answer in time")
            await self._side.abandon()
            return False
        except BaseException:
            self._settle_payloads(due, delivered=False)
            raise
        self._settle_payloads(due, delivered=True)
        results: list[RenewalResult] = []
        for beat in due:
            results += self._note(beat, [next(answers) for _ in beat.grants], requested_at)
        self._renewed(results)
        return True

    async def _send(self, port: OrchestratorPort, due: list[_Beat]) -> list[Answer]:
        answers = await port.report([message for beat in due for message in beat.messages()])
        carrying = [beat.unsent is not None for beat in due for _ in beat.grants]
        refused = [
            place for place, answer in enumerate(answers) if isinstance(answer, NotHeard) and carrying[place]
        ]
        if refused:  # its payload was refused; the lease has to be renewed nevertheless
            carriers = iter(_tasks_with_payload(due))
            by_place = {place: next(carriers) for place, carries in enumerate(carrying) if carries}
            for place in refused:
                job_id = by_place[place].grant.job_id
                self._log.warning("heartbeat_refused", task_id=job_id, answer=str(answers[place]))
            bare = await port.report([by_place[place].heartbeat(None) for place in refused])
            for place, answer in zip(refused, bare, strict=True):
                answers[place] = answer
        return answers

    def _note(self, beat: _Beat, answers: list[Answer], requested_at: float) -> Sequence[RenewalResult]:
        """Record the renewal, and stop handlers if requested.

        They are stopped here, since the event loop may be blocked.
        """
        leased = beat.leased
        if leased in self._leases:
            self._leases[leased] = _next_heartbeat(leased, requested_at)
        if not isinstance(leased, RunningTask):
            return _note_group(leased, beat.grants, answers, requested_at)
        (answer,) = answers
        if isinstance(answer, Stale):
            self.remove(leased)
            if not leased.sent:
                leased.stop("lost")
        elif not isinstance(answer, NotHeard):
            leased.renewed_at = requested_at
            leased.ttl_s = answer.ttl_s or leased.ttl_s
            if answer.cancel_requested and not leased.sent:
                leased.stop("cancel")
        return [(leased, answer)]

    def _settle_payloads(self, due: list[_Beat], *, delivered: bool) -> None:
        for beat in due:
            if beat.unsent is not None and isinstance(beat.leased, RunningTask):
                self._payloads.heartbeat_sent(beat.leased, beat.unsent, delivered=delivered)
                self._flush_wanted = self._flush_wanted or not delivered

    def _is_late(self, running: Leased, now: float) -> bool:
        return now >= self._lost_at(running) and not running.sent

    def _trusted_for_s(self) -> float:
        """Return how long every lease can still be trusted.

        A lease whose report is on its way is not given up at its end, so it does not count.
        """
        now = self._monotonic()
        left = (self._lost_at(running) - now for running in list(self._leases) if not running.sent)
        return max(_SHORTEST_PAUSE_S, min(left, default=_LONGEST_PAUSE_S))

    def _lost_at(self, running: Leased) -> float:
        return running.lease_ends_at() - self._settings.lease_margin_s(running.ttl_s)

    def _patience_s(self, due: list[_Beat], now: float) -> float:
        """Return the timeout of a renewal.

        It is a heartbeat interval, or the rest of the shortest trust window.
        """
        every_s = min(beat.leased.grant.heartbeat_every_s for beat in due)
        return max(0.05, min(every_s, min(self._lost_at(beat.leased) for beat in due) - now))

    async def _sleep(self) -> None:
        """Wait until the next lease is due: an idle worker does not wake up."""
        self._wakes_at = float("inf")  # first of all: adding a lease from now on wakes this loop
        self._wakes_at = at = self._next_at()
        await self._side.wait(None if at == float("inf") else max(0.0, at - self._monotonic()))
        self._wakes_at = float("-inf")

    def _next_at(self) -> float:
        moments = list(self._leases.values())
        moments += [self._lost_at(running) for running in list(self._leases) if not running.sent]
        if self._renew_all:
            return self._monotonic()
        if self._flush_wanted:
            moments.append(self._flushed_at + self._settings.flush_every_s)
        return min(moments, default=float("inf"))


def _tasks_with_payload(due: list[_Beat]) -> list[RunningTask]:
    """Return the tasks whose heartbeats have a payload; cohorts have none."""
    return [beat.leased for beat in due if beat.unsent is not None and isinstance(beat.leased, RunningTask)]


def _stopped(leased: Leased, reason: str) -> list[RunningTask | CohortMember]:
    """Tell all holders to stop; return each."""
    if isinstance(leased, RunningTask):
        leased.stop(reason)
        return [leased]
    assert isinstance(leased, Cohort), "a reported task cannot be stopped"
    held = leased.held()
    for grant in held:
        leased.stop(grant.job_id, reason)
    return [CohortMember(leased, grant) for grant in held]


def _note_group(
    group: Cohort | FinishedCohort, grants: list[Grant], answers: list[Answer], requested_at: float
) -> list[RenewalResult]:
    """Record the renewal of a cohort.

    Return the jobs that were not simply renewed. While one of them is not renewed, the cohort as a whole is
    not trusted for longer: the event loop takes that one out of it, and the next heartbeats renew the others.
    """
    accepted = [answer for answer in answers if isinstance(answer, Heard)]
    if accepted and not any(isinstance(answer, NotHeard) for answer in answers):
        group.renewed_at = requested_at
        group.ttl_s = min(answer.ttl_s or group.ttl_s for answer in accepted)
    if isinstance(group, FinishedCohort):
        return []  # the answer to their report decides
    results: list[RenewalResult] = []
    for grant, answer in zip(grants, answers, strict=True):
        if isinstance(answer, Stale):
            group.stop(grant.job_id, "lost")
        elif isinstance(answer, Heard) and answer.cancel_requested:
            group.stop(grant.job_id, "cancel")
        elif isinstance(answer, Heard):
            continue
        results.append((CohortMember(group, grant), answer))
    return results


def _next_heartbeat(running: Leased, after: float) -> float:
    """Return the time of the next heartbeat.

    It is at most shortly after the attempt's timeout, to stop at once.
    """
    times_out_at = running.claimed_at + running.grant.timeout_s + _AFTER_TIMEOUT_S
    regular = after + running.grant.heartbeat_every_s
    return times_out_at if after < times_out_at < regular else regular


Reporting: TypeAlias = RunningTask | FinishedCohort
Answered: TypeAlias = Callable[[Reporting, Sequence[Message], Sequence[Answer | None]], None]
"""Called with the messages and their answers; None if not delivered before the lease ended."""

MAX_BATCH = 500


class _Report(NamedTuple):
    """The messages of a task, or of the successful jobs of a cohort."""

    owner: Reporting
    messages: Sequence[Message]


class ReportQueue:
    """A queue of reports, and the loop that sends them."""

    def __init__(
        self,
        send: SendMessages,
        answered: Answered,
        *,
        failing: Callable[[float], None],
        log: Log,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._send = send
        self._answered = answered
        self._failing = failing
        self._log = log
        self.beat: LoopTick = LoopTick("report", monotonic, self.busy)
        self._monotonic = monotonic
        self._sleep = sleep
        self._waiting: deque[_Report] = deque()
        self._under_way: list[_Report] = []
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, owner: Reporting, messages: Sequence[Message]) -> None:
        """Queue messages; messages queued together are answered together."""
        self._waiting.append(_Report(owner, messages))
        if not self._filled.is_set():
            self._filled.set()
            self._emptied.clear()

    def busy(self) -> bool:
        """Return whether a report is queued or under way."""
        return bool(self._waiting or self._under_way)

    async def flushed(self) -> None:
        """Wait until all reports were delivered or dropped."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Send queued reports, again and again."""
        while True:
            if not self._waiting and not self._under_way:
                self._filled.clear()
                self._emptied.set()
                await self._filled.wait()
            await self._flush(self._take())

    async def _flush(self, batch: list[_Report]) -> None:
        """Send one batch, until it is answered or too late."""
        failing_since: float | None = None
        failures = 0
        while batch:
            self.beat.at = self._monotonic()
            messages = [message for report in batch for message in report.messages]
            try:
                answers = await self._send(messages)
            except StoreUnavailable as error:
                now = self._monotonic()
                failing_since = failing_since or now
                self._log.warning("report_delayed", messages=len(messages), error=error.sentence)
                self._failing(now - failing_since)
                failures += 1
                await self._sleep(nth_pause_s(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S))
                batch = self._under_way = self._still_leased(batch)
            else:
                reported, batch = batch, []
                self._under_way = []
                start = 0
                for owner, sent in reported:
                    self._answered(owner, sent, answers[start : start + len(sent)])
                    start += len(sent)

    def _take(self) -> list[_Report]:
        """Return the next batch, limited in number and size.

        A batch that a crash has interrupted comes first.
        """
        batch, waiting = self._under_way, self._waiting
        number = sum(len(report.messages) for report in batch)
        size = 0
        while waiting and size < MAX_REPORT_BYTES:
            number += len(waiting[0].messages)
            if batch and number > MAX_BATCH:
                break
            batch.append(waiting.popleft())
            size += sum(map(_size, batch[-1].messages))
        return batch

    def _still_leased(self, batch: list[_Report]) -> list[_Report]:
        now = self._monotonic()
        kept = []
        for report in batch:
            if now < report.owner.lease_ends_at():
                kept.append(report)
            else:
                self._answered(*report, [None] * len(report.messages))
        return kept


def _size(message: Message) -> int:
    if type(message) is not Complete or message.outcome is NOTHING:
        return 256
    outcome = message.outcome
    return memoryview(outcome.result).nbytes if isinstance(outcome, Succeeded) else MAX_DETAILS_BYTES
