"""Only the live lease is heard, from its own runner, by the store's clock; and its secret stays one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import (
    ACK_WINDOW_S,
    RUNNER,
    TTL_S,
    House,
    ack,
    beat,
    done,
    failed,
    release,
    stopped,
)

from interlock.engine.clock import StoreClock
from interlock.errors import StoreUnavailable
from interlock.store.memory import MemoryStore
from interlock.store.records import Key, Record
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.orchestrator.tokens import read_token
from interlock.testing.clocks import JumpingClock
from interlock.wire.runner import ClaimRequest, Grant, LogLine, Message, NotHeard, Stale, StaleCode

EVERYTHING: list[Callable[..., Message]] = [ack, beat, done, failed, stopped, release]
ALL_MESSAGES = pytest.mark.parametrize("say", EVERYTHING, ids=lambda say: str(say.__name__))


def forged(grant: Grant, **parts: Any) -> Grant:
    """A grant whose token was tampered with."""
    job_id, shard, index, secret = grant.token.split(".")
    fields = {"job_id": job_id, "shard": shard, "index": index, "secret": secret} | parts
    return msgspec.structs.replace(grant, token="{job_id}.{shard}.{index}.{secret}".format(**fields))


async def unchanged_after(house: House, message: Message, job_id: str) -> Stale | NotHeard:
    """The answer to a message that must not change anything about a job."""
    before, chunks = await house.record(job_id), await house.chunks(job_id)
    answer = await house.say(message)
    assert await house.record(job_id) == before
    assert await house.chunks(job_id) == chunks
    assert isinstance(answer, Stale | NotHeard), answer
    return answer


@ALL_MESSAGES
async def test_a_wrong_secret_is_an_unknown_lease(house: House, say: Callable[..., Message]) -> None:
    grant = await house.started()
    for secret in ("0" * 32, "f" * 32, read_token(grant.token).secret[::-1]):  # type: ignore[union-attr]
        answer = await unchanged_after(house, say(forged(grant, secret=secret)), grant.job_id)
        assert isinstance(answer, Stale)
        assert answer.code is StaleCode.UNKNOWN_LEASE
    assert (await house.heard(done(grant))).state == "SUCCEEDED"


@ALL_MESSAGES
async def test_another_runner_with_the_right_token_is_refused_and_extends_nothing(
    house: House, say: Callable[..., Message]
) -> None:
    grant = await house.started()
    house.clock.jump(10)
    line = LogLine(house.clock(), "info", "not mine")
    message = say(grant, runner_id="somebody else", log=(line,))
    answer = await unchanged_after(house, message, grant.job_id)
    assert isinstance(answer, NotHeard)
    assert answer.code == "wrong_runner"
    assert len(await house.refusals(grant.job_id)) == 1


@ALL_MESSAGES
async def test_the_token_of_an_earlier_attempt_is_stale(house: House, say: Callable[..., Message]) -> None:
    old = await house.started()
    await house.later(TTL_S)
    new = await house.grant()
    answer = await unchanged_after(house, say(old), old.job_id)
    assert isinstance(answer, Stale)
    assert answer.code is StaleCode.LEASE_EXPIRED
    assert len(await house.refusals(old.job_id)) == 1
    assert (await house.heard(done(new))).state == "SUCCEEDED"


@ALL_MESSAGES
async def test_the_secret_of_one_attempt_opens_no_other(house: House, say: Callable[..., Message]) -> None:
    old = await house.started(worker_count=2)
    await house.later(TTL_S)
    await house.grant()
    await house.grant()
    for parts in ({"index": 2}, {"shard": 2}, {"index": 9}, {"shard": 9}):
        answer = await unchanged_after(house, say(forged(old, **parts)), old.job_id)
        assert isinstance(answer, Stale)
        assert answer.code is StaleCode.UNKNOWN_LEASE


@pytest.mark.parametrize("claim_ids", [("", "", ""), ("c1", "", ""), ("", "c1", "c2")])
async def test_runners_whose_claims_are_answered_together_cannot_report_for_each_other(
    house: House, claim_ids: Sequence[str]
) -> None:
    await asyncio.gather(*(house.submit() for _ in claim_ids))
    given = await house.port.services.orchestrator.claim_all(
        [
            ClaimRequest(runner_id=f"runner-{number}", limit=1, claim_id=claim_id)
            for number, claim_id in enumerate(claim_ids)
        ]
    )
    grants = [grant for some in given if isinstance(some, list) for grant in some]
    assert len({grant.job_id for grant in grants}) == len(claim_ids)
    for mine, other in permutations(grants, 2):
        secret = mine.token.rpartition(".")[2]
        message = done(forged(other, secret=secret))
        answer = await unchanged_after(house, message, other.job_id)
        assert isinstance(answer, Stale)
        assert answer.code is StaleCode.UNKNOWN_LEASE


async def test_the_token_of_another_job_does_not_open_this_one(house: House) -> None:
    mine, other = await house.started(), await house.started()
    mixed = forged(mine, job_id=other.job_id)
    answer = await unchanged_after(house, done(mixed), other.job_id)
    assert isinstance(answer, Stale)
    assert answer.code is StaleCode.UNKNOWN_LEASE
    assert (await house.view(mine.job_id)).state == "RUNNING"


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "garbage",
        "j_000000000000.1.1." + "0" * 32,
        "j_000000000000.1.1." + "0" * 31,
        "j_000000000000.٣.1." + "0" * 32,
        "j_000000000000.-1.1." + "0" * 32,
        "j_000000000000.1.1." + "G" * 32,
        "a.1.1.\n",
        "\x00",
        "\ud800.1.1.0",
        "x" * 100_000,
    ],
)
async def test_garbage_is_an_unknown_lease(house: House, token: str) -> None:
    grant = await house.started()
    answer = await house.stale(done(msgspec.structs.replace(grant, token=token)))
    assert answer.code is StaleCode.UNKNOWN_LEASE
    assert (await house.view(grant.job_id)).state == "RUNNING"


async def test_valid_reports_among_invalid_ones_are_accepted_and_answers_keep_their_order(
    house: House,
) -> None:
    first, second = await house.started(), await house.started()
    bad = msgspec.structs.replace(first, token="garbage")
    wrong = forged(second, secret="0" * 32)
    answers = await house.port.report([done(bad), done(first), done(wrong), beat(second), done(bad)])
    assert [type(answer).__name__ for answer in answers] == ["Stale", "Heard", "Stale", "Heard", "Stale"]
    assert (await house.view(first.job_id)).state == "COMPLETED"
    assert (await house.view(second.job_id)).state == "RUNNING"


@ALL_MESSAGES
async def test_expired_but_not_yet_swept_is_expired(house: House, say: Callable[..., Message]) -> None:
    grant = await house.started()
    house.clock.jump(TTL_S)
    line = LogLine(house.clock(), "info", "too late")
    answer = await house.stale(say(grant, log=(line,)))
    assert answer.code is StaleCode.LEASE_EXPIRED
    assert await house.states(grant.job_id) == ("RUNNING", ["STALE", "QUEUED"])
    texts = [each.text for chunk in await house.chunks(grant.job_id) for each in chunk.lines]
    assert texts == ["Its runner runner#1 sent no heartbeat in time."]
    assert len(await house.refusals(grant.job_id)) == 1
    assert await house.faults() == []


async def test_an_ack_after_the_window_is_expired_without_a_sweep(house: House) -> None:
    job_id = await house.submit()
    grant = await house.grant(acknowledge=False)
    house.clock.jump(ACK_WINDOW_S)
    assert (await house.stale(ack(grant))).code is StaleCode.LEASE_EXPIRED
    assert await house.states(job_id) == ("RUNNING", ["STALE", "QUEUED"])


async def test_an_ack_in_the_last_moment_of_the_window_is_in_time(house: House) -> None:
    await house.submit()
    grant = await house.grant(acknowledge=False)
    house.clock.jump(ACK_WINDOW_S - 0.000001)
    assert (await house.heard(ack(grant))).state == "STARTING"


@pytest.mark.parametrize("say", [beat, done, failed, stopped], ids=lambda say: str(say.__name__))
async def test_reports_under_a_lease_are_refused_until_the_lease_is_acknowledged(
    house: House, say: Callable[..., Message]
) -> None:
    job_id = await house.submit()
    grant = await house.grant(acknowledge=False)
    answer = await unchanged_after(house, say(grant), job_id)
    assert isinstance(answer, NotHeard)
    assert "acknowledge it first" in answer.error
    assert (await house.heard(ack(grant))).state == "STARTING"


class LateStore(MemoryStore):
    """Time passes between the decision and the commit."""

    wait: Callable[[], object] | None = None

    async def commit(self, commits: Any) -> Any:
        """Later than it was decided."""
        if self.wait is not None:
            wait, self.wait = self.wait, None
            wait()
        return await super().commit(commits)


@pytest.mark.parametrize("say", [beat, done, failed, release], ids=lambda say: str(say.__name__))
async def test_a_report_that_would_be_committed_after_its_lease_expires_is_refused_as_stale(
    say: Callable[..., Message],
) -> None:
    clock = JumpingClock()
    store = LateStore(CATALOGUE, clock=clock)
    house = await House(store=lambda: store, clock=clock).open()
    grant = await house.started()
    house.clock.jump(TTL_S - 1)
    store.wait = lambda: house.clock.jump(2)
    assert (await house.stale(say(grant))).code is StaleCode.LEASE_EXPIRED
    assert await house.states(grant.job_id) == ("RUNNING", ["STALE", "QUEUED"])
    await house.close()


async def test_a_machine_that_slept_is_informed_that_its_lease_has_expired(house: House) -> None:
    """While a machine sleeps its monotonic clock may stand still; the store has told us the time by then."""
    house.port.services.engine.clock = StoreClock(house.store, monotonic=lambda: 100.0)
    grant = await house.started()
    house.clock.jump(TTL_S)
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_EXPIRED


async def test_an_orchestrator_with_an_outdated_cache_recognises_the_new_lease_and_refuses_the_old_one(
    house: House,
) -> None:
    """One has given the work out and remembers it; meanwhile another one has expired and given it anew."""
    other = await house.neighbour()
    old = await house.started()
    house.clock.jump(TTL_S)
    await other.recover()
    new = await other.grant("runner#2")
    answer = await house.say(beat(new, runner_id="runner#2"))
    assert not isinstance(answer, Stale), "a live lease must not be called unknown"
    assert (await house.stale(done(old))).code is StaleCode.LEASE_EXPIRED


async def test_an_orchestrator_with_an_outdated_cache_accepts_the_ack_of_a_cancel_made_elsewhere(
    house: House,
) -> None:
    """The work was given out here, and the job canceled elsewhere: the first message must find out."""
    other = await house.neighbour()
    grant = await house.started()
    await other.jobs.cancel(grant.job_id)
    assert (await house.heard(stopped(grant))).state == "CANCELED"
    assert await house.refusals(grant.job_id) == []


async def test_an_orchestrator_with_an_outdated_cache_refuses_an_ack_under_a_revoked_lease(
    house: House,
) -> None:
    other = await house.neighbour()
    grant = await house.started()
    await other.jobs.cancel(grant.job_id)
    house.clock.jump(31)
    await other.recover()
    assert (await house.stale(ack(grant))).code is StaleCode.LEASE_REVOKED


# Secrets


def everything_stored(store: MemoryStore) -> str:
    records = [msgspec.json.encode(record) for record in store._records.values()]
    raw = [record.body for record in store._records.values()]
    return b"\n".join([*records, *raw, msgspec.json.encode(store._journal)]).decode()


async def test_the_secret_of_a_lease_is_not_in_the_store_the_views_the_logs_or_the_answers_to_reports(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    grant = await house.started(retries=1)
    token = read_token(grant.token)
    assert token is not None
    answers: list[object] = [
        await house.say(stopped(grant)),
        await house.say(beat(grant, runner_id="somebody else")),
        await house.say(beat(grant)),
        await house.say(failed(grant)),
        await house.say(failed(grant, error="another")),
        await house.say(done(grant)),
        await house.say(done(forged(grant, index=7))),
        await house.say(done(forged(grant, job_id="j_0"))),
    ]
    view = await house.view(grant.job_id)
    shown = [
        *answers,
        view,
        msgspec.json.encode(view),
        await house.history(grant.job_id),
        await house.body(grant.job_id),
        repr(token),
        caplog.text,
    ]
    assert isinstance(house.store, MemoryStore)
    assert token.secret not in everything_stored(house.store)
    assert token.secret not in "\n".join(map(repr, shown))


async def test_the_digest_is_not_shown_either(house: House) -> None:
    grant = await house.started()
    held = (await house.last(grant.job_id)).lease
    assert held is not None
    shown = msgspec.json.encode(await house.view(grant.job_id)) + msgspec.json.encode(
        await house.history(grant.job_id)
    )
    assert held.digest.encode() not in shown


async def test_the_secret_of_a_lease_is_not_in_the_repr_of_a_grant_or_a_report(house: House) -> None:
    """What is printed ends up in logs and tracebacks."""
    grant = await house.started()
    secret = grant.token.rpartition(".")[2]
    for carrier in (grant, beat(grant), done(grant), ack(grant), release(grant), stopped(grant)):
        assert secret not in repr(carrier), type(carrier).__name__


async def test_leases_of_two_claims_never_have_the_same_secret(house: House) -> None:
    for _ in range(20):
        await house.submit(worker_count=2)
    secrets: list[set[str]] = []
    while grants := await house.claim(limit=5):
        secrets.append({grant.token.rpartition(".")[2] for grant in grants})
    assert sum(map(len, secrets)) == len(set().union(*secrets)) == len(secrets) == 8


async def test_only_one_lease_of_a_shard_is_ever_live(house: House) -> None:
    job_id = await house.submit()
    for _ in range(3):
        await house.grant()
        await house.later(TTL_S)
        assert (await house.leases(job_id)).count("ACTIVE") == 0
    assert RUNNER in {one.lease.runner_id for one in (await house.view(job_id)).attempts if one.lease}


async def test_the_record_itself_is_never_handed_out_with_a_live_lease_after_its_end(house: House) -> None:
    grant = await house.started()
    await house.heard(done(grant))
    record: Record = await house.record(grant.job_id)
    assert (record.state, record.ready_at, record.deadline_at) == ("COMPLETED", None, None)


class FailingOver(MemoryStore):
    """A database that can be replaced by a replica which has not heard the latest."""

    fail_overs = 0

    async def epoch(self) -> int:
        """Another one after each fail-over."""
        return 1 + self.fail_overs

    def fail_over(self, back_to: Record) -> None:
        """The replica knows the record only as it was then."""
        self.fail_overs += 1
        self._put(back_to.key, back_to)


async def test_after_a_fail_over_that_it_did_not_notice_an_orchestrator_hands_out_higher_fences() -> None:
    """Found by a world: an idle server kept the old epoch, and gave a second runner the same fence."""
    clock = JumpingClock()
    store = FailingOver(CATALOGUE, clock=clock)
    house = await House(store=lambda: store, clock=clock).open()
    job_id = await house.submit()
    (queued,) = await store.load([Key("job", job_id)])
    assert queued is not None
    lost = await house.grant()
    clock.jump(2)
    store.fail_over(queued)
    again = await house.grant("runner#2")
    assert (again.shard, again.attempt) == (lost.shard, lost.attempt)
    assert again.fence > lost.fence
    await house.close()


async def test_a_lease_lost_in_a_store_failover_is_refused_although_the_orchestrator_has_it_cached() -> None:
    """Found by a world: the version is the same, what it stands for is not."""
    clock = JumpingClock()
    store = FailingOver(CATALOGUE, clock=clock)
    house = await House(store=lambda: store, clock=clock).open()
    job_id = await house.submit()
    (queued,) = await store.load([Key("job", job_id)])
    assert queued is not None
    lost = await house.grant()
    clock.jump(2)
    store.fail_over(queued)
    other = await house.neighbour()
    kept = await other.grant("runner#2")
    assert (await house.stale(done(lost))).code is StaleCode.UNKNOWN_LEASE
    assert (await other.heard(done(kept, runner_id="runner#2"))).state == "SUCCEEDED"
    await house.close()


class SilentStore(MemoryStore):
    """Does what a claim asks for and does not answer; whoever asks what came of it asks much later."""

    silent = False
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def claim(self, claim: Any, decide: Any) -> Any:
        """Done, but nobody is told."""
        outcomes = await super().claim(claim, decide)
        if self.silent:
            self.silent = False
            raise StoreUnavailable("No answer.")
        return outcomes

    async def load(self, keys: Any) -> Any:
        """Later."""
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().load(keys)


async def test_a_claim_that_is_found_out_about_after_its_leases_have_ended_gives_out_nothing() -> None:
    """Found by a world: a server that was frozen gave out what another had done meanwhile."""
    clock = JumpingClock()
    store = SilentStore(CATALOGUE, clock=clock)
    house = await House(store=lambda: store, clock=clock).open()
    other = await house.neighbour()
    await house.submit()

    async def sleep() -> None:
        clock.jump(TTL_S)
        await other.recover()
        await other.heard(done(await other.grant("runner#2"), runner_id="runner#2"))

    store.silent, store.meanwhile = True, sleep
    assert await house.claim() == []
    await house.close()
