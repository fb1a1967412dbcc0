"""Whatever people, runners and the clock do, and in whichever order it arrives, every job stays sound."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from tests.effort import pick
from tests.systems.orchestrator.house import House, ack, beat, done, failed, release, stopped
from tests.systems.orchestrator.soundness import wrongs_of

from interlock.errors import InvalidJob, TerminalState, TransitionRefused
from interlock.lifecycles import attempt, lease
from interlock.store.records import Query, Record
from interlock.systems.orchestrator.body import decode_body
from interlock.wire.runner import (
    Ack,
    CancelAck,
    Complete,
    Grant,
    Heard,
    Heartbeat,
    LogLine,
    Message,
    NotHeard,
    Progress,
    Release,
    Stale,
)

T = TypeVar("T")

CLASSES = st.sampled_from(["user", "infra", "tooling", "flaky", "timeout", ""])
PAUSES = st.sampled_from([0.001, 1.0, 5.0, 29.999, 30.0, 31.0, 60.0, 119.0, 120.0, 500.0])
RUNNERS = st.sampled_from(["runner#1", "runner#2"])


class AnyHistory(RuleBasedStateMachine):
    """Two orchestrators on one store; each rule speaks to one of them."""

    jobs = Bundle("jobs")
    grants = Bundle("grants")
    messages = Bundle("messages")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.numbers = 0
        self.releases: Counter[str] = Counter()
        self.owners: dict[str, str] = {}
        self.believed: dict[str, bytes] = {}
        self.ended: dict[str, str] = {}

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)

    @initialize(target=grants, worker_count=st.sampled_from([1, 3]), retries=st.sampled_from([None, 2]))
    def open(self, worker_count: int, retries: int | None) -> Any:
        """There is work from the beginning, and somebody has some of it."""

        async def both() -> tuple[House, House]:
            first = await House().open()
            return first, await first.neighbour()

        self.houses = self.run(both())
        self.house = self.houses[0]
        for _ in range(2):
            self.run(self.house.submit(worker_count=worker_count, retries=retries))
        return self.claim("runner#1", 0, acknowledge=True, limit=2)

    @rule(
        target=jobs,
        worker_count=st.sampled_from([1, 1, 1, 2, 3]),
        retries=st.sampled_from([None, 0, 2]),
        losses=st.sampled_from([None, 0, 1]),
        delay_s=st.sampled_from([0.0, 0.0, 30.0]),
        timeout_s=st.sampled_from([None, 50.0]),
        job_timeout_s=st.sampled_from([None, 100.0]),
    )
    def submit(self, **spec: Any) -> str:
        return self.run(self.house.submit(**spec))

    @rule(target=jobs, parent=jobs)
    def submit_child(self, parent: str) -> Any:
        try:
            return self.run(self.house.submit(parent_job_id=parent))
        except (InvalidJob, TerminalState):
            view = self.run(self.house.view(parent))
            assert view.completed_at or view.depth == 5
            return multiple()

    @rule(
        target=grants,
        runner=RUNNERS,
        who=st.integers(0, 1),
        acknowledge=st.booleans(),
        limit=st.integers(1, 3),
    )
    def claim_some(self, runner: str, who: int, acknowledge: bool, limit: int) -> Any:
        return self.claim(runner, who, acknowledge=acknowledge, limit=limit)

    def claim(self, runner: str, who: int, *, acknowledge: bool, limit: int) -> Any:
        given = self.run(self.houses[who].claim(runner, limit=limit, acknowledge=acknowledge))
        for grant in given:
            self.owners[grant.token] = runner
        return multiple(*given)

    @rule(target=messages, grant=grants, kind=st.sampled_from(["ack", "beat", "release", "stopped"]))
    def say(self, grant: Grant, kind: str) -> Message:
        say: Any = {"ack": ack, "beat": beat, "release": release, "stopped": stopped}[kind]
        return self._tell(say(grant, self._number(), runner_id=self.owners[grant.token]))

    @rule(target=messages, grant=grants, saved=st.integers(0, 9), wrote=st.booleans())
    def save(self, grant: Grant, saved: int, wrote: bool) -> Message:
        log = (LogLine(self.house.clock(), "info", "hello"),) if wrote else ()
        raw = msgspec.Raw(b"%d" % saved)
        return self._tell(
            beat(
                grant,
                self._number(),
                runner_id=self.owners[grant.token],
                checkpoint=raw,
                progress=Progress(done=saved),
                log=log,
            )
        )

    @rule(target=messages, grant=grants, result=st.integers(0, 2))
    def complete(self, grant: Grant, result: int) -> Message:
        owner = self.owners[grant.token]
        return self._tell(done(grant, b"%d" % result, sequence=self._number(), runner_id=owner))

    @rule(target=messages, grant=grants, failure_class=CLASSES)
    def fail(self, grant: Grant, failure_class: str) -> Message:
        owner = self.owners[grant.token]
        return self._tell(failed(grant, failure_class, sequence=self._number(), runner_id=owner))

    @rule(message=messages, who=st.integers(0, 1))
    def again(self, message: Message, who: int) -> None:
        """Duplicated, and out of order: it may be of long ago."""
        self._tell(message, who)

    @rule(message=messages)
    def from_somebody_else(self, message: Message) -> None:
        before = self._everything()
        (answer,) = self.run(
            self.house.port.report([msgspec.structs.replace(message, runner_id="a stranger")])
        )
        assert not isinstance(answer, Heard)
        self._nothing_believed(before)

    @precondition(lambda self: self.numbers)
    @rule(many=st.lists(messages, min_size=2, max_size=5), who=st.integers(0, 1))
    def several(self, many: list[Message], who: int) -> None:
        answers = self.run(self.houses[who].port.report(many))
        assert len(answers) == len(many)
        for message, answer in zip(many, answers, strict=True):
            self._note(message, answer)

    @rule(job_id=jobs, who=st.integers(0, 1))
    def cancel_any(self, job_id: str, who: int) -> None:
        self.cancel(job_id, who)

    def cancel(self, job_id: str, who: int) -> None:
        try:
            self.run(self.houses[who].jobs.cancel(job_id))
        except TransitionRefused:
            assert self.run(self.house.view(job_id)).completed_at or self._overdue(job_id)

    @rule(grant=grants, who=st.integers(0, 1))
    def cancel_what_somebody_has(self, grant: Grant, who: int) -> None:
        self.cancel(grant.job_id, who)

    @rule(seconds=PAUSES)
    def pass_time(self, seconds: float) -> None:
        self.house.clock.jump(seconds)

    @rule(who=st.integers(0, 1))
    def sweep(self, who: int) -> None:
        self.run(self.houses[who].recover())

    @precondition(lambda self: hasattr(self, "houses"))
    @invariant()
    def every_job_is_sound(self) -> None:
        for record in self._everything().values():
            wrongs = wrongs_of(record, releases=self.releases[record.id])
            assert not wrongs, f"{record.id}: {'; '.join(wrongs)}"
            was = self.ended.get(record.id, record.state)
            assert was == record.state, f"{record.id} was {was} and is {record.state}"
            if decode_body(record.body).data.completed_at:
                self.ended[record.id] = record.state

    @precondition(lambda self: hasattr(self, "houses"))
    @invariant()
    def journal_and_records_agree(self) -> None:
        assert self.run(self.house.faults()) == []

    def teardown(self) -> None:
        """Left alone for long enough, everything comes to an end or waits for a runner."""
        if hasattr(self, "houses"):
            for _ in range(14):
                self.run(self.house.later(90_000))
            for record in self._everything().values():
                body = decode_body(record.body)
                assert not any(one.lease and one.lease.state in lease.LIVE for one in body.attempts)
                assert record.deadline_at is None or record.state == "RUNNING"
            for house in self.houses:
                self.run(house.close())
        self.runner.close()

    # How it is done

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _tell(self, message: Message, who: int = 0) -> Message:
        wanted = self._expected(message)
        (answer,) = self.run(self.houses[who].port.report([message]))
        assert not wanted or type(answer).__name__ == wanted, f"{answer} instead of {wanted}"
        self._note(message, answer)
        return message

    def _expected(self, message: Message) -> str:
        """Which answer follows from what the store holds; empty where a deadline has to be judged first."""
        job_id, shard, index, _ = message.token.split(".")
        body = decode_body(self.run(self.house.record(job_id)).body)
        if self._overdue(job_id):
            return ""
        (one,) = (one for one in body.attempts if one.name == f"{shard}.{index}")
        assert one.lease is not None
        match one.lease.state, message:
            case (lease.GRANTED, Ack() | Release()) | (
                lease.ACTIVE,
                Ack() | Heartbeat() | Complete() | Release(),
            ):
                return "Heard"
            case lease.ACTIVE, CancelAck():
                return "Heard" if one.lease.data.cancel_requested else "NotHeard"
            case lease.GRANTED, _:
                return "NotHeard"
            case lease.COMPLETED, Complete():
                encoded = msgspec.json.encode((message.outcome, message.cost))
                return "Heard" if self.believed[message.token] == encoded else "NotHeard"
            case (lease.REVOKED, Release()) | (lease.CANCELED, CancelAck()):
                return ""  # a repeat, or the word of a runner that comes too late
            case _:
                return "Stale"

    def _note(self, message: Message, answer: Heard | Stale | NotHeard) -> None:
        """What was accepted once stands."""
        job_id = message.token.partition(".")[0]
        if isinstance(answer, NotHeard):
            assert answer.code != "contended"
        if not isinstance(answer, Heard):
            return
        if answer.state == attempt.STALE:
            self.releases[job_id] += 1
        if isinstance(message, Complete):
            encoded = msgspec.json.encode((message.outcome, message.cost))
            assert self.believed.setdefault(message.token, encoded) == encoded

    def _everything(self) -> dict[str, Record]:
        page = self.run(self.house.store.find(Query(kind="job", limit=1_000)))
        return {record.id: record for record in page.records}

    def _overdue(self, job_id: str) -> bool:
        deadline_at = self.run(self.house.record(job_id)).deadline_at
        return deadline_at is not None and deadline_at <= self.house.clock()

    def _nothing_believed(self, before: dict[str, Record]) -> None:
        """A stranger may bring to light that a deadline has passed, and nothing else."""
        for job_id, record in self._everything().items():
            old = before[job_id]
            if record != old:
                assert old.deadline_at is not None
                assert old.deadline_at <= self.house.clock()


# A failure is told as it was found: to make it shorter would take minutes.
AnyHistory.TestCase.settings = settings(
    max_examples=pick(20, 100),
    stateful_step_count=35,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
TestAnyHistory = AnyHistory.TestCase
