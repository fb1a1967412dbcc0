"""One mixed day of work, the same on every store: whatever it is kept in, it ends in the same states."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clocks import move_server, move_sqlite
from tests.systems.orchestrator.house import House, ack, beat, done, failed, release, stopped
from tests.waiting import PATIENCE_S, until

from interlock.errors import ClaimOver, InterlockError, RequestIdReused, TerminalState
from interlock.lifecycles import job
from interlock.lifecycles.durations import Durations
from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.store.records import Query
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.runner import Grant, LogLine, Progress, StaleCode

HASTY = Settings(
    durations=Durations(
        abort_warning_s=0.005,
        abort_kill_s=0.01,
        cancel_deadline_s=0.05,
        shutdown_soft_s=0.02,
        shutdown_deadline_s=0.06,
        ack_window_s=0.1,
        lease_ttl_s=0.1,
        heartbeat_every_s=0.04,
    )
)
"""For what is to run out; everything else has all the time in the world."""

JOB_TIMEOUT_S = 20.0
"""Long enough that the job is given out before, whatever the machine does, and shorter than a lease lives."""

AT_ONCE = RetryRule(retries=2, first_pause_s=0.0, jitter=0.0)


class Day:
    """Two orchestrators on one database: one that is patient and one that is not."""

    def __init__(self, patient: House, hasty: House, move: Callable[[float], None]) -> None:
        self.patient = patient
        self.hasty = hasty
        self.move = move
        self.names: dict[str, str] = {}

    async def submit(self, name: str, **spec: Any) -> str:
        """A job in a queue of its own, so that whoever asks for it gets it."""
        self.names[name] = await self.patient.submit(name, queue=name, **spec)
        return self.names[name]

    async def grant(self, name: str, *, house: House | None = None, **request: Any) -> Grant:
        """The next attempt of that job; the store's clock may be a little behind whoever made it ready."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                given = await (house or self.patient).claim(limit=1, queues=(name,), **request)
                if given:
                    return given[0]

    async def over(self, at: datetime | None) -> None:
        """Come back when the store's clock has passed a moment and somebody has looked."""
        assert at is not None
        left_s = (at - await self.patient.store.now()).total_seconds()
        if left_s > 1:
            self.move(math.ceil(left_s))
        while await self.patient.store.now() <= at:
            pass
        while await self.patient.recover():
            pass

    async def expired(self, grant: Grant) -> None:
        """The lease has run out."""
        await self.over(grant.expires_at)


async def do(day: Day) -> None:
    """Everything that can happen to a job."""
    await day.submit("completed", input=msgspec.Raw('{"größe":"\\u0000 ☃"}'.encode()), labels=("b", "a"))
    grant = await day.grant("completed", labels=("a", "b", "c"), acknowledge=False)
    await day.patient.heard(ack(grant))
    line = LogLine(grant.granted_at, "info", "☃ \x00 hello")
    saving = beat(grant, 1, progress=Progress(done=1), checkpoint=msgspec.Raw(b"[1]"), log=(line,))
    assert await day.patient.heard(saving) == await day.patient.heard(saving)
    await day.patient.heard(done(grant, b'{"a":[1.5,null,"\xc3\x9f"]}'))
    assert (await day.patient.refused(done(grant, b"2"))).code == "conflicting_completion"

    await day.submit("flaky", retry={"flaky": AT_ONCE})
    await day.patient.heard(failed(await day.grant("flaky"), "flaky"))
    await day.patient.heard(release(await day.grant("flaky"), checkpoint=msgspec.Raw(b"7")))
    grant = await day.grant("flaky")
    assert (grant.attempt, grant.checkpoint) == (3, msgspec.Raw(b"7"))
    await day.patient.heard(done(grant))

    await day.submit("failed")
    await day.patient.heard(failed(await day.grant("failed"), "", error="no", exception="a.ValueError"))

    await day.submit("lost")
    lost = await day.grant("lost", house=day.hasty)
    await day.expired(lost)
    assert (await day.patient.stale(done(lost))).code is StaleCode.LEASE_EXPIRED
    await day.patient.heard(done(await day.grant("lost")))

    await day.submit("unswept", losses=0)
    grant = await day.grant("unswept", house=day.hasty)
    # By the clock that judges: on SQLite that of another process may be ahead until its next commit.
    while await day.hasty.store.now() <= grant.expires_at:
        pass
    assert (await day.hasty.stale(done(grant))).code is StaleCode.LEASE_EXPIRED

    await day.submit("not taken")
    await day.expired(await day.grant("not taken", house=day.hasty, acknowledge=False))
    await day.patient.heard(done(await day.grant("not taken")))

    await day.submit("sharded", worker_count=3)
    for grant in [await day.grant("sharded") for _ in range(3)]:
        await day.patient.heard(done(grant, b"%d" % grant.shard))

    await day.submit("half failed", worker_count=3)
    first, second = await day.grant("half failed"), await day.grant("half failed")
    await day.patient.heard(failed(first))
    await day.patient.heard(stopped(second))
    await cancel_some(day)
    await run_out_of_time(day)
    await plant_a_tree(day)


async def cancel_some(day: Day) -> None:
    await day.patient.jobs.cancel(await day.submit("canceled waiting", delay_s=1_000.0))

    job_id = await day.submit("canceled granted")
    grant = await day.grant("canceled granted", acknowledge=False)
    await day.patient.jobs.cancel(job_id)
    assert (await day.patient.stale(ack(grant))).code is StaleCode.LEASE_REVOKED

    job_id = await day.submit("canceled politely")
    grant = await day.grant("canceled politely")
    await day.patient.jobs.cancel(job_id, request_id="c-1", actor="me")
    assert (await day.patient.heard(beat(grant))).cancel_requested
    await day.patient.heard(stopped(grant))

    job_id = await day.submit("canceled by force")
    grant = await day.grant("canceled by force")
    await day.hasty.jobs.cancel(job_id)
    await day.over((await day.patient.record(job_id)).deadline_at)
    assert (await day.patient.stale(done(grant))).code is StaleCode.LEASE_REVOKED

    job_id = await day.submit("canceled too late")
    grant = await day.grant("canceled too late")
    await day.patient.jobs.cancel(job_id)
    await day.patient.heard(done(grant, b"1"))
    with pytest.raises(InterlockError):
        await day.patient.jobs.cancel(job_id)


async def run_out_of_time(day: Day) -> None:
    job_id = await day.submit("timed out", timeout_s=0.05)
    await day.grant("timed out")
    await day.over((await day.patient.record(job_id)).deadline_at)

    job_id = await day.submit("job timed out", job_timeout_s=JOB_TIMEOUT_S)
    grant = await day.grant("job timed out")
    await day.over((await day.patient.record(job_id)).deadline_at)
    await day.patient.heard(stopped(grant))

    job_id = await day.submit("delayed", delay_s=0.1)
    view = await day.patient.view(job_id)
    await day.over(view.created_at + timedelta(seconds=0.1))
    await day.patient.heard(done(await day.grant("delayed")))


async def plant_a_tree(day: Day) -> None:
    parent = await day.submit("parent")
    child = await day.submit("child", parent_job_id=parent)
    grandchild = await day.submit("grandchild", parent_job_id=child)
    await day.patient.jobs.cancel(parent)

    async def all_stopped() -> bool:
        await day.patient.recover()  # some of it may be under way beside this
        return (await day.patient.jobs.get(grandchild)).state == job.CANCELED

    await until(all_stopped, "the whole tree was stopped")
    with pytest.raises(TerminalState):
        await day.patient.submit(parent_job_id=child)

    spec = JobSpec(task="asked once", queue="asked once")
    day.names["asked once"] = await day.patient.jobs.submit(spec, request_id="r-1")
    assert await day.hasty.jobs.submit(spec, request_id="r-1") == day.names["asked once"]
    with pytest.raises(RequestIdReused):
        await day.hasty.jobs.submit(JobSpec(task="other"), request_id="r-1")


COMPLETED, CANCELED, FAILED = "COMPLETED", "CANCELED", "FAILED"

EXPECTED: dict[str, tuple[str, list[str], list[str], str]] = {
    "completed": (COMPLETED, ["SUCCEEDED"], [COMPLETED], '{"a":[1.5,null,"ß"]}'),
    "flaky": (COMPLETED, [FAILED, "STALE", "SUCCEEDED"], [COMPLETED, "REVOKED", COMPLETED], "null"),
    "failed": (FAILED, [FAILED], [COMPLETED], "user"),
    "lost": (COMPLETED, ["STALE", "SUCCEEDED"], ["EXPIRED", COMPLETED], "null"),
    "unswept": (FAILED, ["STALE"], ["EXPIRED"], "lost"),
    "not taken": (COMPLETED, ["STALE", "SUCCEEDED"], ["EXPIRED", COMPLETED], "null"),
    "sharded": (COMPLETED, ["SUCCEEDED"] * 3, [COMPLETED] * 3, "[1,2,3]"),
    "half failed": (FAILED, [FAILED, CANCELED, CANCELED], [COMPLETED, CANCELED], "user"),
    "canceled waiting": (CANCELED, [CANCELED], [], "cancel"),
    "canceled granted": (CANCELED, [CANCELED], ["REVOKED"], "cancel"),
    "canceled politely": (CANCELED, [CANCELED], [CANCELED], "cancel"),
    "canceled by force": (CANCELED, [CANCELED], ["REVOKED"], "cancel"),
    "canceled too late": (CANCELED, [CANCELED], [COMPLETED], "cancel"),
    "timed out": (FAILED, ["TIMED_OUT"], ["REVOKED"], "timeout"),
    "job timed out": (CANCELED, [CANCELED], [CANCELED], "timeout"),
    "delayed": (COMPLETED, ["SUCCEEDED"], [COMPLETED], "null"),
    "parent": (CANCELED, [CANCELED], [], "cancel"),
    "child": (CANCELED, [CANCELED], [], "parent"),
    "grandchild": (CANCELED, [CANCELED], [], "parent"),
    "asked once": ("PENDING", ["QUEUED"], [], ""),
}


async def what_became_of(house: House, job_id: str) -> tuple[str, list[str], list[str], str]:
    view = await house.view(job_id)
    ended = view.stop_reason or (view.failure.failure_class if view.failure else "")
    if isinstance(view.result, msgspec.Raw):
        ended = msgspec.json.encode(msgspec.json.decode(view.result)).decode()
    leases = [one.lease.state for one in view.attempts if one.lease]
    return view.state, [one.state for one in view.attempts], leases, ended


class OpenHouse:
    """Opens houses on one database, whose clock can be moved."""

    def __init__(
        self, url: str, store: Callable[[], Store] | None, move: Callable[[Store, float], None]
    ) -> None:
        self.opened: list[House] = []
        self._url = url
        self._store = store
        self._move = move

    async def __call__(self, settings: Settings) -> House:
        self.opened.append(await House(settings, store=self._store, url=self._url).open(asking=False))
        return self.opened[-1]

    def move(self, seconds: float) -> None:
        """Set the clock of the store ahead."""
        self._move(self.opened[0].store, seconds)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def open_house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenHouse]:
    """Opens houses on one new database."""
    match request.param:
        case "memory":
            ahead = [timedelta(0)]
            memory = MemoryStore(CATALOGUE, clock=lambda: datetime.now(UTC) + ahead[0])

            def move(_: Store, seconds: float) -> None:
                ahead[0] += timedelta(seconds=seconds)

            opener = OpenHouse("memory:", lambda: memory, move)
        case "sqlite":
            opener = OpenHouse(f"sqlite:///{tmp_path / 'day.db'}", None, move_sqlite)
        case name:
            server = request.getfixturevalue(name)
            url = server.new_database() if name == "postgres" else server.url
            opener = OpenHouse(url, None, lambda _, seconds: move_server(server, seconds))
    yield opener
    for house in opener.opened:
        await house.close()
    if request.param == "redis":
        request.getfixturevalue("redis").run("FLUSHALL")


async def test_a_mixed_day_ends_in_the_same_states(open_house: OpenHouse) -> None:
    patient = await open_house(DEFAULT_SETTINGS)
    day = Day(patient, await open_house(HASTY), open_house.move)
    await do(day)
    found = {name: await what_became_of(patient, job_id) for name, job_id in day.names.items()}
    assert found == EXPECTED
    assert await patient.faults() == []
    (chunk,) = await patient.chunks(day.names["completed"])
    assert [line.text for line in chunk.lines] == ["☃ \x00 hello"]
    view = await patient.view(day.names["completed"])
    assert msgspec.json.decode(view.input) == {"größe": "\x00 ☃"}
    ended = [
        record
        for record in (await patient.store.find(Query(kind="job"))).records
        if record.state != "PENDING"
    ]
    assert [(record.id, record.ready_at, record.deadline_at) for record in ended] == [
        (record.id, None, None) for record in ended
    ]


@pytest.mark.parametrize("job_id", ["j_000000000000", "a\nb", "\x00", "\ud800", "x" * 100, ""])
async def test_a_strange_name_is_of_no_job_on_any_store(open_house: OpenHouse, job_id: str) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    with pytest.raises(InterlockError) as refused:
        await house.jobs.get(job_id)
    assert 400 <= refused.value.status < 500
    with pytest.raises(InterlockError):
        await house.submit(parent_job_id=job_id)
    assert await house.number_of_jobs() == 0


async def test_a_claim_that_two_hear_at_once_is_answered_alike_and_given_out_once(
    open_house: OpenHouse,
) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(2)]
    for _ in range(10):
        await houses[0].submit()
    for number in range(3):
        one, other = await asyncio.gather(*(house.claim(limit=2, claim_id=f"c{number}") for house in houses))
        assert len(one) == 2
        assert [grant.token for grant in one] == [grant.token for grant in other]
        again = await houses[number % 2].claim(limit=2, claim_id=f"c{number}")
        assert [grant.token for grant in again] == [grant.token for grant in one]
        for grant in again:
            await houses[0].heard(done(grant))
    with pytest.raises(ClaimOver):
        await houses[1].claim(limit=2, claim_id="c0")
    assert len(await houses[1].claim(limit=10)) == 4, "the others were not touched"


async def test_the_same_refusal_is_journalled_once_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    grant = await house.started()
    for number in range(5):
        await house.refused(beat(grant, number + 1, runner_id="somebody else"))
    assert len(await house.refusals(grant.job_id)) == 1
