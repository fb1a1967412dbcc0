"""A repeat under a request id gets the first answer, whole, whatever has happened since: on every store."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.systems.orchestrator.house import RUNNER, House, done, failed
from tests.systems.orchestrator.test_every_store_alike import OpenHouse, open_house
from tests.systems.simulations.worker import SPEC, begun

from interlock.engine.unit_of_work import OwnRequestId
from interlock.errors import InterlockError, RequestIdReused, SecretShownOnce, TransitionRefused
from interlock.lifecycles.durations import Durations
from interlock.systems.access.tokens import (
    Tokens,
    Use,
)
from interlock.systems.orchestrator.jobs import Jobs
from interlock.systems.orchestrator.waits import Waits
from interlock.systems.runs.runs import RunService
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.systems.simulations.manager import SimulationManager
from interlock.systems.supervisor.workers import Workers
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec
from interlock.wire.runs import Plan, PlannedJob, RunSpec, Source
from interlock.wire.waits import ApprovalQuestion, WaitRequest
from interlock.wire.workers import WorkerSpec

__all__ = ["open_house"]

AS = OwnRequestId("a1" * 16, "order-17")
"""As a server keeps the id of a client that has a token."""
RUN = RunSpec(workflow="ci", plan=Plan(jobs=(PlannedJob(name="a", task="t"), PlannedJob(name="b", task="t"))))
ANNA, TASK, GONE = WorkerSpec(name="anna"), JobSpec(task="t"), "interrupted"
FORK = msgspec.structs.replace(RUN, source=Source(ref="refs/pull/7/head", sha="5f" * 20, from_fork=True))


class Operation(NamedTuple):
    """Something that takes a request id."""

    of: type
    name: str
    prepare: Callable[[House], Awaitable[Any]]
    do: Callable[[Runtime, Any], Awaitable[Any]]
    change: Callable[[House, Any, Any], Awaitable[Any]]


async def nothing(_: House) -> str:
    return ""


async def worker(house: House) -> str:
    here = house.port.services.workers
    made = await here.register(ANNA)
    return (await here.start(made.id)).id


async def idle_worker(house: House) -> str:
    return (await house.port.services.workers.register(ANNA)).id


async def paused_worker(house: House) -> str:
    return (await house.port.services.workers.pause(await worker(house))).id


async def terminate(house: House, subject: str, answer: Any) -> None:
    await house.port.services.workers.terminate(subject or answer.id)


async def nobody_changes_it(_: House, __: str, ___: Any) -> None:
    """Its state is final."""


async def job(house: House) -> str:
    return await house.submit("t")


async def running_job(house: House) -> str:
    await house.submit("t")
    return (await house.grant()).job_id


async def ended_job(house: House) -> str:
    job_id = await house.submit("t")
    await house.heard(failed(await house.grant()))
    return job_id


async def work_on(house: House, _: Any, __: Any) -> None:
    for grant in await house.claim():
        await house.heard(done(grant))
    await house.later(31)


async def simulation(house: House) -> str:
    return (await house.port.services.simulations.create_run(SPEC)).run_id


async def stepping(house: House) -> str:
    run_id = await simulation(house)
    await begun(house)
    return run_id


async def standing(house: House) -> str:
    run_id = await stepping(house)
    await house.port.services.simulations.transition(run_id, "interrupted")
    return run_id


async def move(house: House, subject: str, answer: Any) -> None:
    here, run_id = house.port.services.simulations, subject or answer.run_id
    with suppress(TransitionRefused):
        await here.transition(run_id, "interrupted")
    with suppress(TransitionRefused):
        await here.cancel(run_id)
    with suppress(TransitionRefused):
        await here.resume(run_id)


async def run(house: House) -> str:
    return await _kept(house, RUN)


async def fork(house: House) -> str:
    return await _kept(house, FORK)


async def ended_run(house: House) -> str:
    run_id = await run(house)
    await house.port.services.runs.cancel(run_id)
    await house.port.services.runs.keep()
    return run_id


async def _kept(house: House, spec: RunSpec) -> str:
    runs = house.port.services.runs
    run_id = (await runs.submit(spec)).id
    await runs.keep()
    return run_id


async def go_on(house: House, _: Any, answer: Any) -> None:
    runs = house.port.services.runs
    await runs.keep()
    with suppress(InterlockError):
        await runs.cancel(answer.id)
    await runs.keep()


async def token(house: House) -> str:
    return (await house.port.services.tokens.create("ci", Role.VIEWER)).view.id


async def used(house: House, _: Any, __: Any) -> None:
    use = Use(await house.store.now(), "127.0.0.1")
    (view,) = await house.port.services.tokens.list(ended=True)
    await house.port.services.tokens.note_uses({view.id: use})


async def waiting(house: House) -> str:
    request = WaitRequest(
        token=(await house.started()).token, runner_id=RUNNER, question=ApprovalQuestion(text="Go?")
    )
    return (await house.port.await_signal(request)).id


W, J, S, R = Workers, Jobs, SimulationManager, RunService
OPERATIONS = (
    Operation(W, "register", nothing, lambda h, _: h.workers.register(ANNA, request_id=AS), terminate),
    Operation(W, "start", idle_worker, lambda h, s: h.workers.start(s, request_id=AS), terminate),
    Operation(W, "pause", worker, lambda h, s: h.workers.pause(s, request_id=AS), terminate),
    Operation(W, "resume", paused_worker, lambda h, s: h.workers.resume(s, request_id=AS), terminate),
    Operation(W, "drain", worker, lambda h, s: h.workers.drain(s, request_id=AS), terminate),
    Operation(W, "terminate", worker, lambda h, s: h.workers.terminate(s, request_id=AS), nobody_changes_it),
    Operation(J, "submit", nothing, lambda h, _: h.jobs.submit(TASK, request_id=AS), work_on),
    Operation(J, "submit_many", nothing, lambda h, _: h.jobs.submit_many([TASK] * 2, request_id=AS), work_on),
    Operation(J, "submit_jobs", nothing, lambda h, _: h.jobs.submit_jobs([TASK] * 2, request_id=AS), work_on),
    Operation(J, "cancel", running_job, lambda h, s: h.jobs.cancel(s, request_id=AS), work_on),
    Operation(J, "cancel_all", running_job, lambda h, s: h.jobs.cancel_all([s], request_ids=[AS]), work_on),
    Operation(J, "retry", ended_job, lambda h, s: h.jobs.retry(s, request_id=AS), work_on),
    Operation(J, "retry_all", ended_job, lambda h, s: h.jobs.retry_all([s], request_ids=[AS]), work_on),
    Operation(S, "create_run", nothing, lambda h, _: h.simulations.create_run(SPEC, request_id=AS), move),
    Operation(S, "pause", stepping, lambda h, s: h.simulations.pause(s, request_id=AS), move),
    Operation(S, "resume", standing, lambda h, s: h.simulations.resume(s, request_id=AS), move),
    Operation(S, "cancel", stepping, lambda h, s: h.simulations.cancel(s, request_id=AS), move),
    Operation(S, "transition", stepping, lambda h, s: h.simulations.transition(s, GONE, request_id=AS), move),
    Operation(R, "submit", nothing, lambda h, _: h.runs.submit(RUN, request_id=AS), go_on),
    Operation(R, "cancel", run, lambda h, s: h.runs.cancel(s, request_id=AS), go_on),
    Operation(R, "approve", fork, lambda h, s: h.runs.approve(s, request_id=AS), go_on),
    Operation(R, "decline", fork, lambda h, s: h.runs.decline(s, request_id=AS), go_on),
    Operation(R, "rerun", ended_run, lambda h, s: h.runs.rerun(s, request_id=AS), go_on),
    Operation(Waits, "signal", running_job, lambda h, s: h.waits.signal(s, "paid", request_id=AS), work_on),
    Operation(Waits, "approve", waiting, lambda h, s: h.waits.approve(s, request_id=AS), work_on),
    Operation(Waits, "reject", waiting, lambda h, s: h.waits.reject(s, request_id=AS), work_on),
    Operation(Tokens, "revoke", token, lambda h, s: h.tokens.revoke(s, request_id=AS), used),
)
SHOWN_ONCE = {(Tokens, "create"), (Tokens, "rotate")}
"""Their answer has a secret, which is stored nowhere; a repeat is refused."""


def test_every_operation_that_takes_a_request_id_is_in_the_table() -> None:
    takes = {
        (kind, name)
        for kind in (Workers, Jobs, SimulationManager, RunService, Tokens, Waits)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and {"request_id", "request_ids"} & set(inspect.signature(method).parameters)
    }
    assert takes == {(each.of, each.name) for each in OPERATIONS} | SHOWN_ONCE


SOME = 6
"""`make test` tries each of so many on a server: what a store keeps of a request is in the contract."""
EVERYWHERE = [
    pytest.param(
        store,
        operation,
        marks=pytest.mark.long if store in ("postgres", "redis") and number % SOME else (),
        id=f"{store}-{operation.of.__name__}.{operation.name}",
    )
    for store in ("memory", "sqlite", "postgres", "redis")
    for number, operation in enumerate(OPERATIONS)
]


@pytest.mark.parametrize(("open_house", "operation"), EVERYWHERE, indirect=["open_house"])
async def test_a_repeat_gets_the_first_answer_whole(open_house: OpenHouse, operation: Operation) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    here = house.port.services
    subject = await operation.prepare(house)
    first = await operation.do(here, subject)
    encoded = msgspec.json.encode(first)
    await operation.change(house, subject, first)
    again = await operation.do(here, subject)
    assert msgspec.json.encode(again) == encoded
    entries = (await house.store.feed(after="", limit=1_000)).entries
    assert [entry for entry in entries if entry.note.request_id == "order-17"], "as the client has sent it"
    assert not [entry for entry in entries if entry.note.request_id == str(AS)]


async def test_an_answer_that_was_lost_before_it_was_stored_is_given_once(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    workers, worker_id = house.port.services.workers, await worker(house)
    engine = workers.engine
    monkeypatch.setattr(engine, "answer_once", _crashing)
    with pytest.raises(ConnectionResetError):
        await workers.pause(worker_id, request_id="r1")
    monkeypatch.undo()
    await workers.resume(worker_id)
    answer = await workers.pause(worker_id, request_id="r1")
    assert answer.state == "RUNNING", "it was paused once, and is not paused again"
    await workers.terminate(worker_id)
    assert await workers.pause(worker_id, request_id="r1") == answer
    with pytest.raises(RequestIdReused, match="r1"):
        await workers.resume(worker_id, request_id="r1")


async def _crashing(_: object, __: object, do: Callable[[], Awaitable[Any]]) -> Any:
    await do()
    raise ConnectionResetError


async def test_the_answer_of_a_large_run_is_kept_small(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    jobs = tuple(PlannedJob(name=f"job-{number}", task="t") for number in range(200))
    spec = msgspec.structs.replace(RUN, plan=Plan(jobs=jobs))
    first = await house.port.services.runs.submit(spec, request_id="r1")
    await house.port.services.runs.cancel(first.id)
    again = await house.port.services.runs.submit(spec, request_id="r1")
    assert msgspec.json.encode(again) == msgspec.json.encode(first)
    key = house.port.services.engine.key_for("r1", "submit run", spec)
    assert key is not None
    recorded = await house.store.recall(key.answer.id)
    assert recorded is not None
    assert len(recorded.answer.body) < len(msgspec.json.encode(first)) / 4


async def test_how_long_a_request_id_is_remembered_is_a_setting(open_house: OpenHouse) -> None:
    settings = Settings(durations=Durations(request_ttl_s=86_400.0))
    house = await open_house(settings)
    await house.port.services.jobs.submit(JobSpec(task="t"), request_id="r1")
    recorded = await house.store.recall("r1")
    assert recorded is not None
    assert (recorded.expires_at - recorded.created_at).total_seconds() == 86_400


async def test_a_secret_is_still_shown_once(open_house: OpenHouse) -> None:
    tokens = (await open_house(DEFAULT_SETTINGS)).port.services.tokens
    await tokens.create("ci", Role.VIEWER, request_id="r1")
    with pytest.raises(SecretShownOnce):
        await tokens.create("ci", Role.VIEWER, request_id="r1")
