"""Approvals: a job asks a person, whoever may answer does so once, and everybody can see who did and why."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest
from tests.server.running import Running, running
from tests.server.test_openapi import waiting_approval
from tests.systems.orchestrator import waiting_tasks
from tests.systems.orchestrator.house import House
from tests.systems.orchestrator.signals import DEPLOY, approval, faults, parked, send

from interlock import Context, Interlock, Registry, sync
from interlock.engine.loader import every_entry
from interlock.errors import (
    InvalidArguments,
    InvalidSignal,
    NotAllowed,
    TransitionNotAllowed,
    UnknownApproval,
    WaitTimeout,
)
from interlock.store.records import Key
from interlock.testing import in_memory
from interlock.testing.memory_interlock import InMemory
from interlock.wire.access import Role
from interlock.wire.runner import Grant
from interlock.wire.waits import ApprovalQuestion

REGISTRY = Registry()


@REGISTRY.task(name="deploy")
async def deploy(ctx: Context, place: str) -> str:
    answer = await ctx.approval(f"Deploy to {place}?", timeout="1d")
    verb = "deployed" if answer else "left alone"
    return f"{verb}, said {answer.by}: {answer.comment}"


@REGISTRY.task(name="order")
async def order(ctx: Context) -> list[object]:
    paid = await ctx.wait_for("paid", timeout="2h", type=dict[str, int])
    try:
        shipped = await ctx.wait_for("shipped", timeout="1h")
    except WaitTimeout as error:
        shipped = str(error)
    return [paid, shipped, ctx.attempt]


@REGISTRY.task(name="blocking")
def blocking(ctx: Context) -> list[object]:
    first = ctx.wait_for_sync("first", timeout="2h")
    return [first, ctx.approval_sync("Go on?", approvers="anna").approved]


@pytest.fixture
async def il() -> AsyncIterator[InMemory]:
    async with in_memory(REGISTRY) as il:
        yield il


async def asked(house: House, **question: object) -> str:
    """A job that waits for a person; the id of the approval."""
    grant = await house.started()
    text = ApprovalQuestion(text="Deploy?", **question)  # type: ignore[arg-type]
    answer = await approval(house, grant, question=text)
    await parked(house, grant, answer)
    return answer.id


async def test_a_handler_continues_with_the_answer_of_a_person(il: InMemory) -> None:
    jobs = [await il.submit(deploy, place) for place in ("here", "there")]
    await il.clock.jump("1s")
    waiting, cursor = await il.approvals.list()
    assert ([one.question for one in waiting], cursor) == (["Deploy to there?", "Deploy to here?"], "")
    assert waiting[0].job_id == jobs[1].id
    view = await il.approvals.approve(jobs[0].id, comment="fine")
    assert (view.state, view.by, view.comment) == ("APPROVED", "test", "fine")
    rejected = await il.approvals.reject(waiting[0].id, comment="not today")
    assert rejected.state == "REJECTED"
    assert await jobs[0].result(timeout_s=60) == "deployed, said test: fine"
    assert await jobs[1].result(timeout_s=60) == "left alone, said test: not today"
    assert await il.approvals.list() == ([], "")
    assert [one.state for one in (await il.approvals.list(ended=True))[0]] == ["REJECTED", "APPROVED"]


async def test_no_answer_in_time_is_a_failure_with_a_clear_reason(il: InMemory) -> None:
    job = await il.submit(deploy, "here")
    await il.clock.jump("1d")
    view = await il.wait(job.id, timeout_s=60)
    assert view.failure is not None
    assert view.failure.error == "WaitTimeout: No answer to 'Deploy to here?' has come in time."
    ((ended,), _) = await il.approvals.list(ended=True)
    assert ended.state == "TIMED_OUT"
    with pytest.raises(TransitionNotAllowed, match="is TIMED_OUT, so approve is refused"):
        await il.approvals.approve(ended.id)


async def test_signals_reach_a_handler_with_their_data_and_a_timeout_can_be_caught(il: InMemory) -> None:
    job = await il.submit(order)
    await job.signal("paid", {"sum": 3}, request_id="r")
    await job.signal("paid", {"sum": 3}, request_id="r")
    await il.clock.jump("2h")
    assert await job.result() == [{"sum": 3}, "No signal shipped has come in time.", 2]


async def test_a_job_whose_worker_is_killed_during_a_wait_continues_after_a_worker_restarts(
    il: InMemory,
) -> None:
    job = await il.submit(order)
    await il.clock.jump("1s")
    await il.worker.kill()
    await il.signal(job.id, "paid", {"sum": 1})
    await il.worker.start()
    await il.signal(job.id, "shipped", "by bike")
    assert await job.result(timeout_s=600) == [{"sum": 1}, "by bike", 2]


async def test_a_handler_in_a_thread_waits_as_well(il: InMemory) -> None:
    job = await il.submit(blocking)
    await il.signal(job.id, "first", 1)
    while not (waiting := (await il.approvals.list())[0]):
        await il.clock.jump("1s")
    with pytest.raises(NotAllowed, match="test is not an approver of the approval"):
        await il.approvals.approve(waiting[0].id)
    await il.services.waits.approve(waiting[0].id, actor="anna")
    assert await job.result(timeout_s=60) == [1, True]


async def test_a_handler_in_a_process_of_its_own_waits_as_well() -> None:
    async with in_memory(waiting_tasks.REGISTRY) as il:
        job = await il.submit(waiting_tasks.apart)
        await il.signal(job.id, "first", {"n": 1})
        while not (view := await job.view()).waits:
            assert view.state in ("PENDING", "RUNNING"), view.failure
            await il.clock.jump("1s")
        await il.clock.jump("1h")
        assert await job.result(timeout_s=600) == [{"n": 1}, "No signal second has come in time.", 2]


async def test_a_context_refuses_an_unknown_approval_role_and_an_invalid_wait_timeout() -> None:
    with pytest.raises(InvalidArguments, match="no role 'boss'"):
        await _nowhere().approval("Go?", role="boss")
    with pytest.raises(InvalidArguments, match="wait for"):
        await _nowhere().wait_for("paid", timeout="soon")


def _nowhere() -> Context:
    now = datetime.now(UTC)
    grant = Grant(
        token="t", job_id="j", task="t", input=msgspec.Raw(b"{}"), fence=1, granted_at=now, expires_at=now,
        ttl_s=1.0, heartbeat_every_s=1.0, timeout_s=1.0,
    )  # fmt: skip
    return Context(grant, now=lambda: now)


async def test_one_of_several_concurrent_answers_wins_and_the_refusals_name_its_actor(
    house: House,
) -> None:
    neighbour = await house.neighbour()
    approval_id = await asked(house)
    services = [each.port.services.waits for each in (house, neighbour)]
    came = await asyncio.gather(
        *(service.approve(approval_id, actor="anna") for service in services for _ in range(3)),
        *(service.reject(approval_id, actor="bert") for service in services for _ in range(3)),
        return_exceptions=True,
    )
    won = [one for one in came if not isinstance(one, BaseException)]
    refused = [one for one in came if isinstance(one, TransitionNotAllowed)]
    assert (len(won), len(refused)) == (1, 11)
    (view,) = won
    assert {one.facts["by"] for one in refused} == {view.by}
    assert (await services[0].get(approval_id)).state == view.state
    assert await faults(house) == []
    await neighbour.close()


async def test_the_journals_of_an_approval_and_its_job_record_the_actor_and_the_comment(house: House) -> None:
    approval_id = await asked(house)
    view = await house.port.services.waits.reject(approval_id, actor="anna", comment="not on a Friday")
    entries = [entry async for entry in every_entry(house.store, Key("job_wait", approval_id))]
    steps = [(step.event, step.target) for entry in entries for step in entry.note.steps]
    assert steps == [("ask", "WAITING"), ("reject", "REJECTED")]
    assert (entries[-1].note.actor, entries[-1].note.reason) == ("anna", "rejected by anna: not on a Friday")
    last = (await house.history(view.job_id))[-1]
    assert (last.note.actor, last.note.reason) == ("anna", "rejected by anna: not on a Friday")


async def test_a_repeated_answer_is_the_first_one(house: House) -> None:
    approval_id, waits = await asked(house), house.port.services.waits
    first = await waits.approve(approval_id, actor="anna", request_id="r")
    assert await waits.approve(approval_id, actor="anna", request_id="r") == first


async def test_an_approval_accepts_answers_only_from_named_approvers_or_the_required_role(
    house: House,
) -> None:
    waits = house.port.services.waits
    named = await asked(house, approvers=("anna", "bert"))
    with pytest.raises(NotAllowed, match="carl is not an approver of the approval") as refused:
        await waits.approve(named, actor="carl")
    assert refused.value.allowed == ("anna", "bert")
    ranked = await asked(house, role=Role.ADMIN)
    with pytest.raises(NotAllowed, match="dora is operator, and this approval needs admin"):
        await waits.reject(ranked, actor="dora", roles=(Role.OPERATOR,))
    assert (await waits.approve(named, actor="bert")).state == "APPROVED"
    assert (await waits.approve(ranked, actor="eva", roles=(Role.ADMIN,))).state == "APPROVED"


async def test_a_signal_is_no_answer_and_an_approval_no_signal(house: House) -> None:
    approval_id = await asked(house)
    job_id = approval_id.partition(".")[0]
    grant = await house.started()
    await send(house, grant, name="approval")
    answer = await approval(house, grant)
    assert answer.state == "WAITING", "a signal of that name approves nothing"
    with pytest.raises(UnknownApproval):
        await house.port.services.waits.approve(f"{grant.job_id}.signal.approval.1")
    for wrong in ("j_000000000000", "j_000000000000.approval.1", "x"):
        with pytest.raises(UnknownApproval):
            await house.port.services.waits.get(wrong)
    assert (await house.port.services.waits.get(job_id)).id == approval_id


async def test_an_invalid_approval_question_is_refused(house: House) -> None:
    grant = await house.started()
    for wrong in (
        ApprovalQuestion(text=""),
        ApprovalQuestion(text="x" * 501),
        ApprovalQuestion(text="Go?", approvers=("a",) * 21),
        ApprovalQuestion(text="Go?", role=Role.VIEWER),
    ):
        with pytest.raises(InvalidSignal):
            await approval(house, grant, question=wrong)


async def test_an_approval_explains_itself(house: House) -> None:
    approval_id = await asked(house)
    explained = await house.jobs.explain(approval_id.partition(".")[0])
    assert explained.sentence.startswith("It waits for a person to approve or reject: 'Deploy?'.")
    assert explained.todo == f"interlock approval approve {approval_id}"
    assert DEPLOY.text == "Deploy?"


async def test_over_http_a_viewer_is_refused_and_an_operator_is_named() -> None:
    async with running() as server:
        approval_id = await waiting_approval(server)
        job_id = approval_id.partition(".")[0]
        viewer, operator, submitter = [
            server.client(await server.token(role, str(role)))
            for role in (Role.VIEWER, Role.OPERATOR, Role.SUBMITTER)
        ]
        listed = (await viewer.get("/api/approvals")).json()["approvals"]
        assert [one["id"] for one in listed] == [approval_id]
        path = f"/api/approvals/{approval_id}/approve"
        for client in (viewer, submitter):
            answer = await client.post(path, json={})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
        done = await operator.post(path, json={"comment": "go"})
        assert (done.status_code, done.json()["state"], done.json()["by"]) == (200, "APPROVED", "operator")
        again = await operator.post(f"/api/approvals/{approval_id}/reject", json={})
        assert (again.status_code, again.json()["facts"]["by"]) == (409, "operator")
        assert (await viewer.post(f"/api/jobs/{job_id}/signals", json={"name": "a"})).status_code == 403
        sent = await submitter.post(f"/api/jobs/{job_id}/signals", json={"name": "a", "data": [1]})
        assert (sent.status_code, sent.json()["state"]) == (200, "KEPT")
        await _confined(server, approval_id, job_id)


async def _confined(server: Running, approval_id: str, job_id: str) -> None:
    """A token for another queue sees and does nothing here."""
    client = server.client(await server.token(Role.ADMIN, "mine", queues=("mine",)))
    assert (await client.get("/api/approvals?ended=true")).json()["approvals"] == []
    assert (await client.get(f"/api/approvals/{approval_id}")).status_code == 404
    assert (await client.post(f"/api/approvals/{approval_id}/approve", json={})).status_code == 404
    assert (await client.post(f"/api/jobs/{job_id}/signals", json={"name": "a"})).status_code == 404


async def test_the_clients_do_the_same_over_http_and_for_synchronous_code() -> None:
    async with running() as server, Interlock(server.url) as il:
        ids = [await waiting_approval(server) for _ in range(2)]
        assert [one.id for one in (await il.approvals.list())[0]] == ids[::-1]
        assert (await il.approvals.get(ids[0])).question == "Deploy?"
        assert (await il.approvals.reject(ids[0], comment="no")).comment == "no"
        with pytest.raises(TransitionNotAllowed, match="is REJECTED"):
            await il.approvals.approve(ids[0])
        assert (await il.signal(ids[0].partition(".")[0], "paid", {"sum": 1})).state == "KEPT"
        results: list[object] = []

        def elsewhere() -> None:
            with sync.Interlock(server.url) as blocking:
                results.append([one.id for one in blocking.approvals.list()[0]])
                results.append(blocking.approvals.get(ids[1]).state)
                results.append(blocking.approvals.approve(ids[1]).state)
                results.append(blocking.signal(ids[1].partition(".")[0], "paid").number)
                try:
                    blocking.approvals.reject(ids[1])
                except TransitionNotAllowed as error:
                    results.append(error.facts["state"])

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert results == [[ids[1]], "WAITING", "APPROVED", 1, "APPROVED"]
