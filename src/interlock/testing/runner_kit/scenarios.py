"""What is played to a runner. Each scenario is a sentence that has to be true of every runner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from interlock.testing.runner_kit.desk import UNDER_WAY_S, Lease, problem
from interlock.testing.runner_kit.http import Asked, HangUp, Reply
from interlock.testing.runner_kit.stage import Broken, Piece, Stage
from interlock.wire.runner import CancelAck, Complete, Release, Succeeded

AFTERWARDS_S = 1.0
"""How long the kit looks on when all is done, in case something is done once more."""

Play: TypeAlias = Callable[[Stage], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True):
    """One of them."""

    name: str
    claim: str
    play: Play
    needs_process: bool = False
    """It can only be played when the kit has started the runner."""


async def _works(stage: Stage) -> None:
    piece = stage.quick()
    await _completed(stage, await stage.lease(), piece)


async def _unknown_fields(stage: Stage) -> None:
    stage.desk.more = {"from_the_future": {"a": [1, None]}, "another": "x"}
    await _works(stage)


async def _lost_lease(stage: Stage) -> None:
    lost = 0

    async def hang_up_once(asked: Asked, what: str) -> Reply | None:
        nonlocal lost
        if what == "lease" and stage.desk.waiting and not lost:
            lost += 1
            await stage.desk.respond(asked, what)
            for lease in stage.desk.leases.values():
                lease.ended_at = None
            raise HangUp
        return None

    stage.desk.before = hang_up_once
    piece = stage.quick()
    lease = await stage.lease()
    if not stage.desk.claims[0].claim_id:
        stage.remarks.append(
            "It gives its claims no claim_id: work whose grant is lost waits for its lease to end."
        )
        return
    await _completed(stage, lease, piece)


async def _lost_completion(stage: Stage) -> None:
    lost = 0

    async def hang_up_once(asked: Asked, what: str) -> Reply | None:
        nonlocal lost
        if b'"outcome"' in asked.body and lost < 2:
            lost += 1
            await stage.desk.respond(asked, what)
            raise HangUp
        return None

    stage.desk.before = hang_up_once
    piece = stage.quick()
    lease = await stage.lease()
    await stage.until(lambda: lost, "It has not said how the attempt ended")
    said = len(lease.said)
    await stage.until(
        lambda: len(lease.said) > said + 1,
        "The answer to its completion was lost, and it has not repeated it",
    )
    await _completed(stage, lease, piece)


async def _renews(stage: Stage) -> None:
    lease, _ = await stage.at_work()
    await _kept_alive(stage, lease)


async def _slow_answers(stage: Stage) -> None:
    async def be_slow(_: Asked, what: str) -> Reply | None:
        await asyncio.sleep(0.0 if what == "lease" else 0.7 * stage.desk.pace.heartbeat_every_s)
        return None

    stage.desk.before = be_slow
    lease, _ = await stage.at_work()
    await _kept_alive(stage, lease)


async def _busy(stage: Stage) -> None:
    """Unavailable for a moment now and then, but never for as long as a lease lives."""
    refused = 0

    async def be_busy(_: Asked, what: str) -> Reply | None:
        nonlocal refused
        if what != "greet" and refused < 3:
            refused += 1
            reply = problem(503, "store_unavailable", "Try again in a moment.")
            return msgspec.structs.replace(reply, headers=(("Retry-After", "0"),))
        return None

    stage.desk.before = be_busy
    lease, _ = await stage.at_work()
    refused = 1
    await _kept_alive(stage, lease)


async def _cancelled(stage: Stage) -> None:
    lease, piece = await stage.at_work()
    lease.cancel = True
    await stage.until(lambda: lease.state == "ended", "It was asked to stop, and has not said that it has")
    said = lease.last(CancelAck)
    if said is None:
        raise Broken("It was asked to stop, and has said something else than cancel-ack")
    if said.confirmed_dead and piece.running:
        raise Broken("It says that the work is dead, and the work runs on")
    await stage.until(lambda: not piece.running, "It has said cancel-ack, and the work runs on")


async def _revoked(stage: Stage) -> None:
    lease, piece = await stage.at_work()
    lease.state = "revoked"
    await stage.until(lambda: lease.stale_at, "It has sent no heartbeat")
    await stage.until(
        lambda: not piece.running, "Its lease was revoked, and the work runs on", stage.desk.pace.late_s
    )
    await stage.for_a_while(UNDER_WAY_S + stage.desk.pace.heartbeat_every_s)
    stage.quick()
    await stage.until(lambda: len(stage.desk.leases) > 1, "It has not asked for new work")


async def _silence(stage: Stage) -> None:
    """Nobody answers any more: then only its own clock can tell the runner that the lease has ended."""
    pace = stage.desk.pace
    stage.desk.pace = msgspec.structs.replace(pace, ttl_s=pace.silence_ttl_s)
    lease, piece = await stage.at_work()

    async def fall_silent(_: Asked, __: str) -> Reply | None:
        await asyncio.Event().wait()
        return None

    stage.desk.before = fall_silent
    late = "Nobody answers, its lease has ended, and the work runs on: somebody else may be doing it"
    await stage.until(lambda: not piece.running, late, lease.ends_at + pace.late_s - stage.desk.clock())


async def _long_poll(stage: Stage) -> None:
    await stage.polled()
    before = len(stage.desk.requests)
    while_s = 2.0
    await stage.for_a_while(while_s)
    asked = len(stage.desk.requests) - before
    if asked > 10 * while_s:
        raise Broken(f"There is nothing to do, and it has asked {asked} times in {while_s:g} s")
    await _works(stage)


async def _refused(stage: Stage) -> None:
    await stage.until(lambda: stage.desk.requests, "It has not asked for anything", stage.desk.pace.start_s)
    stage.desk.token = "another"
    for_s = 2.0
    before = len(stage.desk.requests)
    await stage.for_a_while(for_s)
    asked = len(stage.desk.requests) - before
    if asked > 10 * for_s:
        raise Broken(f"Its token is refused (401), and it has asked {asked} times in {for_s:g} s")


async def _goes_while_idle(stage: Stage) -> None:
    await stage.polled()
    stage.ask_to_go()
    await stage.until(
        lambda: stage.gone, "It was asked to go (SIGTERM), has nothing to do, and is still there"
    )


async def _goes_while_working(stage: Stage) -> None:
    lease, piece = await stage.at_work()
    stage.ask_to_go()
    await stage.for_a_while(UNDER_WAY_S)
    claims = len(stage.desk.claims)
    within_s = 2 * stage.desk.pace.patience_s
    gave = "It was asked to go (SIGTERM), and has neither finished nor released what it has"
    await stage.until(lambda: lease.state != "live", gave, within_s)
    if lease.last(Release) is None and lease.last(Complete) is None:
        raise Broken("It was asked to go (SIGTERM), and has let its lease run out instead of releasing it")
    await stage.until(lambda: stage.gone, "It has released its work, and is still there")
    if piece.running:
        raise Broken("It has gone, and the work runs on")
    if any(claim.wait_s > 0 for claim in stage.desk.claims[claims:]):
        raise Broken("It was asked to go (SIGTERM), and has asked for more work")


async def _completed(stage: Stage, lease: Lease, piece: Piece) -> None:
    await stage.until(lambda: lease.state == "ended", "It has not said how the attempt ended")
    said = lease.last(Complete)
    if said is None or not isinstance(said.outcome, Succeeded):
        raise Broken(f"The work succeeds, and it has reported something else: {lease.said[-1]}")
    await stage.for_a_while(AFTERWARDS_S)
    if piece.times != 1:
        raise Broken(f"It has done the work {piece.times} times")


async def _kept_alive(stage: Stage, lease: Lease) -> None:
    """Each renewal comes before the lease has ended; a few say that there will be more."""
    lost = "It has let its lease run out while it worked: no heartbeat has renewed it"
    for number in range(lease.renewals + 1, lease.renewals + 4):
        left_s = lease.ends_at - stage.desk.clock()
        await stage.until(lambda number=number: lease.renewals >= number, lost, left_s)  # type: ignore[misc]


SCENARIOS = (
    Scenario("works", "It does what it is given, once, and says how it ended.", _works),
    Scenario("unknown-fields", "It passes over names that it does not know.", _unknown_fields),
    Scenario("lost-lease", "A claim whose answer is lost is repeated, and its work done once.", _lost_lease),
    Scenario("lost-completion", "A completion whose answer is lost is repeated as it was.", _lost_completion),
    Scenario("heartbeats", "While it works it renews its lease.", _renews),
    Scenario("slow-answers", "Answers that take their time do not cost it the lease.", _slow_answers),
    Scenario("busy-server", "A server that is unavailable for a moment does not, either.", _busy),
    Scenario("cancel", "Asked to stop, it stops the work and says so.", _cancelled),
    Scenario("revoked", "A lease that was taken away ends the work, and nothing more is said.", _revoked),
    Scenario("silence", "When nobody answers it stops before its lease has ended.", _silence),
    Scenario("no-work", "Without work it waits, and does not ask all the time.", _long_poll),
    Scenario("refused-token", "A token that is refused is not tried all the time.", _refused),
    Scenario("goes-idle", "Asked to go while it waits, it goes.", _goes_while_idle, needs_process=True),
    Scenario(
        "goes-working", "Asked to go while it works, it gives back.", _goes_while_working, needs_process=True
    ),
)
