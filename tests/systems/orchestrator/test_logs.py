"""The log of an attempt: what comes twice is stored once, and what is missing has a name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.systems.orchestrator.house import CANCEL_DEADLINE_S, House, beat, done, failed, stopped

from interlock.lifecycles.lease import Lease
from interlock.systems.orchestrator import attachments
from interlock.systems.orchestrator.attachments import Chunk, lines_of, placed
from interlock.systems.orchestrator.body import LeaseBody
from interlock.systems.settings import Settings
from interlock.wire.runner import Heartbeat, LogLine, size_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)
MOST = 1_000_000


def line(text: str) -> LogLine:
    return LogLine(NOW, "info", text)


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(map(line, texts))


def shown(chunks: list[Chunk]) -> list[str]:
    return [each.line.text for chunk in chunks for each in lines_of(chunk)]


async def test_lines_that_come_again_in_another_message_are_stored_once(house: House) -> None:
    """The answer to a heartbeat was lost, so its lines ride with the next one as well."""
    grant = await house.started()
    await house.heard(beat(grant, 1, log=lines("one", "two"), log_offset=0))
    await house.heard(beat(grant, 2, log=lines("one", "two", "three"), log_offset=0))
    await house.heard(done(grant, log=lines("two", "three", "four"), log_offset=4))
    assert shown(await house.chunks(grant.job_id)) == ["one", "two", "three", "four"]


async def test_a_gap_is_named_where_it_is(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1, log=lines("one"), log_offset=0))
    await house.heard(beat(grant, 2, log=lines("four"), log_offset=1_238))
    chunks = await house.chunks(grant.job_id)
    assert shown(chunks) == ["one", "1,234 bytes are missing here", "four"]
    positions = [(each.offset, each.line.level) for chunk in chunks for each in lines_of(chunk)]
    assert positions == [(0, "info"), (4, "gap"), (1_238, "info")]


async def test_log_lines_that_arrive_late_are_stored_with_the_offset_where_they_belong(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 2, log=lines("two"), log_offset=4))
    house.clock.jump(1)
    await house.heard(beat(grant, 1, log=lines("one"), log_offset=0))
    await house.heard(beat(grant, 3, log=lines("one", "two"), log_offset=0))
    expected = ["4 bytes are missing here", "two", "Late, for byte 0:", "one"]
    assert shown(await house.chunks(grant.job_id)) == expected


async def test_a_runner_that_does_not_count_has_its_lines_at_the_end(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1, log=lines("one")))
    await house.heard(beat(grant, 2, log=lines("two")))
    chunks = await house.chunks(grant.job_id)
    assert [(chunk.offset, chunk.missing) for chunk in chunks] == [(0, 0), (4, 0)]


async def test_a_full_log_is_marked_as_full_once_and_drops_further_lines() -> None:
    house = await House(Settings(max_log_bytes=10)).open()
    grant = await house.started()
    for number in range(4):
        await house.heard(beat(grant, number + 1, log=lines(f"line {number}"), log_offset=7 * number))
    await house.heard(failed(grant, details="why", log=lines("last"), log_offset=28))
    expected = ["line 0", "lin", "The log is full: of one attempt 10 bytes are kept.", "why"]
    assert shown(await house.chunks(grant.job_id)) == expected
    await house.close()


async def test_the_log_of_a_forcibly_canceled_attempt_is_kept_and_later_log_lines_are_refused(
    house: House,
) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1, log=lines("before"), log_offset=0))
    await house.jobs.cancel(grant.job_id)
    await house.heard(beat(grant, 2, log=lines("while stopping"), log_offset=7))
    await house.later(CANCEL_DEADLINE_S + 1)
    view = await house.view(grant.job_id)
    assert (view.state, view.attempts[-1].forced) == ("CANCELED", True)
    await house.stale(beat(grant, 3, log=lines("too late"), log_offset=22))
    await house.stale(stopped(grant, log=lines("too late"), log_offset=22))
    assert shown(await house.chunks(grant.job_id)) == ["before", "while stopping"]
    assert len(await house.refusals(grant.job_id)) == 2


async def test_whether_everything_is_gone_is_reported_with_the_attempt(house: House) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id)
    await house.heard(stopped(grant, confirmed_dead=False, log=lines("cannot end it"), log_offset=0))
    view = await house.view(grant.job_id)
    assert (view.state, view.attempts[-1].forced) == ("CANCELED", True)
    assert shown(await house.chunks(grant.job_id)) == ["cannot end it"]


@given(
    st.lists(st.text("aäx\x1b", max_size=5), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12),
)
def test_each_byte_of_a_log_is_stored_once_when_lines_are_resent_in_any_order(
    texts: list[str], sent: list[tuple[int, int]]
) -> None:
    stream = "".join(f"{text}\n" for text in texts).encode()
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + size_of(line(text)))
    held = LeaseBody(data=Lease(runner_id="r", expires_at=NOW), digest="", granted_at=NOW)
    stored: dict[int, bytes] = {}
    brought: set[int] = set()
    for number, ends in enumerate(sent, 1):
        first, last = (min(end, len(texts)) for end in ends)
        some = lines(*texts[first:last])
        message = Heartbeat(token="t", runner_id="r", sequence=number, log=some, log_offset=starts[first])
        brought |= set(range(starts[first], starts[last])) if some else set()
        for stretch in placed(held, message, MOST):
            at = stretch.offset
            for each in stretch.lines:
                for index, byte in enumerate(f"{each.text}\n".encode()):
                    assert at + index not in stored
                    stored[at + index] = bytes([byte])
                at += size_of(each)
    assert set(stored) == brought
    assert all(stream[at : at + 1] == byte for at, byte in stored.items())


def test_no_more_gaps_are_remembered_than_a_job_can_hold() -> None:
    held = LeaseBody(data=Lease(runner_id="r", expires_at=NOW), digest="", granted_at=NOW)
    for number in range(1, 2 * attachments.MOST_GAPS + 1):
        at = NOW + timedelta(seconds=number)
        report = Heartbeat(token="t", runner_id="r", log=(LogLine(at, "info", "x"),), log_offset=number * 100)
        placed(held, report, MOST)
    assert len(held.gaps) == attachments.MOST_GAPS


# What the orchestrator writes, because the attempt cannot


async def test_the_log_of_a_timed_out_attempt_ends_with_a_line_about_the_timeout(house: House) -> None:
    grant = await house.started(timeout_s=50.0)
    await house.heard(beat(grant, 1, log=lines("begun"), log_offset=0))
    await house.later(50)
    assert shown(await house.chunks(grant.job_id)) == ["begun", "It took longer than 50 s."]


async def test_the_log_reports_the_timeout_of_a_job_before_its_attempt_is_stopped(house: House) -> None:
    grant = await house.started(job_timeout_s=60.0)
    await house.heard(beat(grant, 1, log=lines("begun"), log_offset=0))
    await house.later(60)
    house.clock.jump(1)
    await house.heard(beat(grant, 2, log=lines("tidying up"), log_offset=6))
    await house.heard(stopped(grant))
    notice = "The job took longer than 60 s and is being stopped."
    assert shown(await house.chunks(grant.job_id)) == ["begun", notice, "tidying up"]


async def test_an_attempt_that_was_lost_has_a_last_line_that_names_its_runner(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1, log=lines("begun"), log_offset=0))
    await house.later(3_600)
    lease = (await house.view(grant.job_id)).attempts[0].lease
    assert lease is not None
    last = f"Its runner {lease.runner_id} sent no heartbeat in time."
    assert shown(await house.chunks(grant.job_id)) == ["begun", last]
