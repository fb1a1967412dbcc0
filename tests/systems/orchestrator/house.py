"""An orchestrator in memory whose clock jumps, with short words for what is said to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from tests.clocks import AskingClock

from interlock.engine.audit import audit
from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.store.records import Entry, Key, Record, StepLine
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.orchestrator.attachments import LOG, Chunk
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body
from interlock.systems.orchestrator.jobs import Jobs
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.testing.clocks import JumpingClock
from interlock.wire.jobs import JobSpec, JobView
from interlock.wire.runner import (
    Ack,
    Answer,
    CancelAck,
    ClaimRequest,
    Complete,
    Failed,
    Grant,
    Heard,
    Heartbeat,
    Message,
    NotHeard,
    Release,
    Stale,
    Succeeded,
)

TTL_S = DEFAULT_SETTINGS.durations.lease_ttl_s
ACK_WINDOW_S = DEFAULT_SETTINGS.durations.ack_window_s
CANCEL_DEADLINE_S = DEFAULT_SETTINGS.durations.cancel_deadline_s

RUNNER = "runner#1"

Said = TypeVar("Said", Ack, Heartbeat, Complete, CancelAck, Release)


class House:
    """One orchestrator on one store."""

    def __init__(
        self,
        settings: Settings = DEFAULT_SETTINGS,
        *,
        store: Callable[[], Store] | None = None,
        clock: JumpingClock | None = None,
        url: str = "memory:",
    ) -> None:
        self.clock = clock or JumpingClock()
        self.settings = settings
        make = store or (lambda: MemoryStore(CATALOGUE, clock=self.clock))
        self.port = EmbeddedOrchestrator(url, settings=settings, store=make if url == "memory:" else None)

    async def open(self, *, asking: bool = True) -> House:
        """Connect; where the clock jumps it is asked each time, elsewhere as in production."""
        await self.port.connect()
        here = self.port.services
        if asking:
            here.engine.clock = AskingClock(here.store)
        return self

    async def close(self) -> None:
        """Let go."""
        await self.port.disconnect()

    async def neighbour(self) -> House:
        """Another orchestrator on the same store, as if in another process."""
        store = self.store
        return await House(self.settings, store=lambda: store, clock=self.clock).open()

    @property
    def store(self) -> Store:
        """What it is on."""
        return self.port.services.store

    @property
    def jobs(self) -> Jobs:
        """What people do with jobs."""
        return self.port.services.jobs

    # What people and runners do

    async def submit(self, task: str = "build", **spec: Any) -> str:
        """A new job."""
        return await self.jobs.submit(JobSpec(task=task, **spec))

    async def claim(self, runner: str = RUNNER, *, limit: int = 10, **request: Any) -> list[Grant]:
        """Whatever there is for a runner."""
        return await self.port.claim(ClaimRequest(runner_id=runner, limit=limit, **request))

    async def grant(self, runner: str = RUNNER, **request: Any) -> Grant:
        """The one attempt that there is for a runner."""
        (given,) = await self.claim(runner, limit=1, **request)
        return given

    async def started(self, **spec: Any) -> Grant:
        """A new job, given to a runner that has taken it."""
        job_id = await self.submit(**spec)
        given = await self.grant(queues=(spec.get("queue", "default"),), labels=spec.get("labels", ()))
        assert given.job_id == job_id
        return given

    async def say(self, message: Message) -> Answer:
        """The answer to one message."""
        (answer,) = await self.port.report([message])
        return answer

    async def heard(self, message: Message) -> Heard:
        """The answer to a message that is accepted."""
        answer = await self.say(message)
        assert isinstance(answer, Heard), answer
        return answer

    async def stale(self, message: Message) -> Stale:
        """The answer to a message that comes under a lease that has ended."""
        answer = await self.say(message)
        assert isinstance(answer, Stale), answer
        return answer

    async def refused(self, message: Message) -> NotHeard:
        """The answer to a message that is not accepted although the lease lives, or has ended well."""
        answer = await self.say(message)
        assert isinstance(answer, NotHeard), answer
        return answer

    async def recover(self, times: int = 1) -> int:
        """Sweep and deliver, once or several times over."""
        return sum([await self.port.recover() for _ in range(times)])

    async def later(self, seconds: float) -> None:
        """So much later, somebody looks after deadlines."""
        self.clock.jump(seconds)
        await self.recover()

    # What has become of it

    async def view(self, job_id: str) -> JobView:
        """As everybody sees it."""
        return await self.jobs.get(job_id)

    async def record(self, job_id: str) -> Record:
        """As the store keeps it."""
        (record,) = await self.store.load([Key("job", job_id)])
        assert record is not None
        return record

    async def body(self, job_id: str) -> JobBody:
        """What is in it."""
        return decode_body((await self.record(job_id)).body)

    async def last(self, job_id: str) -> AttemptBody:
        """The newest attempt."""
        return (await self.body(job_id)).attempts[-1]

    async def states(self, job_id: str) -> tuple[str, list[str]]:
        """Of the job and of its attempts."""
        view = await self.view(job_id)
        return view.state, [one.state for one in view.attempts]

    async def leases(self, job_id: str) -> list[str]:
        """The states of the leases there are."""
        return [one.lease.state for one in (await self.view(job_id)).attempts if one.lease]

    async def history(self, job_id: str) -> list[Entry]:
        """All that was journalled of it."""
        return await self.jobs.history(job_id)

    async def refusals(self, job_id: str) -> list[str]:
        """What was refused, in words."""
        return [entry.note.refusal for entry in await self.history(job_id) if entry.note.refusal]

    async def chunks(self, job_id: str) -> list[Chunk]:
        """What its attempts have written."""
        return [chunk async for chunk in self.jobs.logs(job_id)]

    async def faults(self) -> list[object]:
        """Where journal and records disagree."""
        return list((await audit(self.store, JOURNALLED, ("job", "message", LOG.name))).faults)

    async def number_of_jobs(self) -> int:
        """How many there are, in whichever state."""
        return sum((await self.store.status()).records.get("job", {}).values())


def ack(grant: Grant, sequence: int = 0, **more: Any) -> Ack:
    """The runner begins."""
    return _said(Ack, grant, sequence, more)


def beat(grant: Grant, sequence: int = 1, **more: Any) -> Heartbeat:
    """The runner is still at it."""
    return _said(Heartbeat, grant, sequence, more)


def done(grant: Grant, result: bytes = b"null", sequence: int = 90, **more: Any) -> Complete:
    """The handler has returned."""
    return _said(Complete, grant, sequence, {"outcome": Succeeded(msgspec.Raw(result)), **more})


def failed(grant: Grant, failure_class: str = "user", sequence: int = 90, **why: Any) -> Complete:
    """The handler has failed; `why` are fields of the failure or of the message."""
    failure_fields = {name: why.pop(name) for name in Failed.__struct_fields__ if name in why}
    outcome = Failed(**{"error": "It broke.", "failure_class": failure_class, **failure_fields})
    return _said(Complete, grant, sequence, {"outcome": outcome, **why})


def stopped(grant: Grant, sequence: int = 91, **more: Any) -> CancelAck:
    """The runner has stopped, as asked."""
    return _said(CancelAck, grant, sequence, more)


def release(grant: Grant, sequence: int = 92, **more: Any) -> Release:
    """The runner gives it back."""
    return _said(Release, grant, sequence, more)


def _said(kind: type[Said], grant: Grant, sequence: int, more: dict[str, Any]) -> Said:
    return kind(**{"token": grant.token, "runner_id": RUNNER, "sequence": sequence, **more})


def moves(entry: Entry, machine: str = "") -> list[tuple[str, str]]:
    """From where to where an entry says that something went, of one machine or of all."""
    return [
        (step.source, step.target)
        for step in entry.note.steps
        if step.moves and machine in ("", step.machine)
    ]


def steps(entries: list[Entry]) -> list[StepLine]:
    """Every step in these entries."""
    return [step for entry in entries for step in entry.note.steps]
