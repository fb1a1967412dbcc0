"""Short words for handlers that wait, and for those who answer."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.systems.orchestrator.house import RUNNER, House, release

from interlock.engine.audit import audit
from interlock.systems.catalogue import JOURNALLED
from interlock.wire.runner import Grant
from interlock.wire.waits import ApprovalQuestion, SignalView, WaitAnswer, WaitRequest

DEPLOY = ApprovalQuestion(text="Deploy?")


async def ask(house: House, grant: Grant, name: str = "paid", number: int = 1, **more: Any) -> WaitAnswer:
    """What a handler is told that waits."""
    request = WaitRequest(token=grant.token, runner_id=RUNNER, name=name, number=number, **more)
    return await house.port.await_signal(request)


async def approval(house: House, grant: Grant, number: int = 1, **more: Any) -> WaitAnswer:
    """What a handler is told that asks a person."""
    return await ask(house, grant, "", number, **{"question": DEPLOY, **more})


async def parked(house: House, grant: Grant, answer: WaitAnswer) -> None:
    """The handler ends, as the worker says it does."""
    assert answer.state == "WAITING"
    await house.heard(release(grant, reason="signal", await_signal=answer.id))


async def waiting(house: House, name: str = "paid", **more: Any) -> Grant:
    """A job whose handler waits, without a lease."""
    grant = await house.started()
    await parked(house, grant, await ask(house, grant, name, **more))
    return grant


async def send(
    house: House, grant: Grant, data: object = None, name: str = "paid", **more: Any
) -> SignalView:
    """Send a signal."""
    raw = msgspec.Raw(msgspec.json.encode(data))
    return await house.port.services.waits.signal(grant.job_id, name, raw, actor="anna", **more)


def told(answer: WaitAnswer) -> object:
    """The data that a handler got."""
    assert answer.state == "RECEIVED"
    assert isinstance(answer.data, msgspec.Raw)
    return msgspec.json.decode(answer.data)


async def faults(house: House) -> list[object]:
    """Where journal and records disagree, of jobs and of their waits."""
    return list((await audit(house.store, JOURNALLED, ("job", "job_wait", "message"))).faults)
