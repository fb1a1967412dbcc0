"""Drive a fleet: one workload on many agents, from the first call to the last report of each.

Why: decisions 0233 and 0278.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from interlock.errors import InterlockError, WorkloadFailed
from interlock.lifecycles import lease
from interlock.lifecycles.couplings import COUPLINGS, Deliverer, Recipient
from interlock.lifecycles.durations import DEFAULTS
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.workload import WORKLOAD
from interlock.machine.cascade import Cascade, Wiring, order
from interlock.systems.fleet.clocks import NS, CommonStart, began_ms, choose_start, took
from interlock.systems.fleet.member import ClientFactory, FleetMember, ReferenceClock
from interlock.systems.fleet.outcome import WorkloadProgress, progress_of
from interlock.systems.fleet.results import AgentReport, MergedReports, ResultInputs, result_of
from interlock.systems.fleet.spec import can_still_do
from interlock.systems.fleet.workloads import WorkloadRecorder, workload_id_of
from interlock.text import counted
from interlock.wire.workloads import (
    Happened,
    WorkloadFact,
    WorkloadResult,
    WorkloadSpec,
)

STOP_S = 18.0
"""Time for an agent to stop; it kills after 15 seconds."""
SLACK_S = 30.0
"""Extra time after its duration before a workload is stopped."""
PULSE_S = 1.0


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """The job that drives, and the parts of workload names."""

    job_id: str
    fence: int = 1
    controller: str = ""


class DriverPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The interface of a drive to its caller."""

    store_facts: Callable[[Sequence[WorkloadFact]], Awaitable[None]]
    """Stores events of agents."""
    news: Callable[[WorkloadProgress], None]
    """Shows the progress, every second."""
    log: Callable[[str, str], None]
    """Writes a log line with its level."""


class _Load(Cascade):
    """The effects of lease events of the driving job on the agents."""

    __slots__ = ("abort",)
    wiring = Wiring(
        (WORKLOAD,),
        COUPLINGS,
        {Recipient.ITS_AGENTS: order(lambda load, _: load.abort())},
        deliverer=Deliverer.DRIVER,
        own_timers=(WORKLOAD,),  # the agents have them
    )

    def __init__(self, now: datetime, abort: Callable[[], None]) -> None:
        super().__init__(now)
        self.abort = abort

    def parts(self) -> tuple[()]:
        """Return nothing: the machines of the workloads are in the agents."""
        return ()

    def seconds(self, setting: str) -> float:
        """Return how long a timer of an agent runs."""
        return float(getattr(DEFAULTS, setting))


class Drive:
    """One workload on one fleet. `stop` may be called at any time, from its event loop."""

    def __init__(
        self,
        spec: WorkloadSpec,
        driver: Driver,
        ports: DriverPorts,
        lines: ClientFactory,
        reference: ReferenceClock | None = None,
    ) -> None:
        self.spec = spec
        self.merged: MergedReports = MergedReports(spec.agents)
        self._driver = driver
        self._ports = ports
        self._reference = reference or ReferenceClock()
        names = (workload_id_of(driver.job_id, driver.fence, number) for number in range(len(spec.agents)))
        self._members = [
            FleetMember(lines(agent, self._reference), name)
            for agent, name in zip(spec.agents, names, strict=True)
        ]
        self._start: CommonStart | None = None
        self._started_at: datetime | None = None
        self._changed = asyncio.Event()
        self._stopped = ""
        self._ended = ""
        self._pulse_s = 0.0
        self._reads_since_s = 0.0
        self._silent: dict[str, float] = {}
        """Silent agents, and for how long."""

    def cancel_requested(self, reason: str) -> None:
        """Apply the cancellation of the job according to the table."""
        (requested,) = (
            step for step in LEASE.steps_at(lease.ACTIVE) if step.event == lease.request_cancel.name
        )
        now = datetime.fromtimestamp(self._reference.now_ns() / NS, UTC)
        _Load(now, partial(self.stop, reason)).follow_step(LEASE, requested, None)

    def stop(self, reason: str) -> None:
        """Stop the drive; the first reason counts."""
        self._stopped = self._stopped or reason
        self._end(reason)

    def _end(self, reason: str) -> None:
        """End the drive."""
        self._ended = self._ended or reason
        self._changed.set()

    async def run(self) -> WorkloadResult:
        """Drive the workload to its end; return the result.

        Raise if it could not be started.
        """
        recorder = WorkloadRecorder(self._ports.store_facts, lambda text: self._ports.log(text, "warning"))
        pulse = asyncio.create_task(self._pulse(recorder), name="pulse of the fleet")
        refusal: InterlockError | None = None
        try:
            refusal = await self._until_over()
        finally:
            await self._all_stopped(self._ended or "the controller ends")
            pulse.cancel()
            await asyncio.wait([pulse])
            self._record_all(recorder)
            await recorder.close()
            await _each(member.close() for member in self._members)
        if refusal is not None:
            raise refusal
        known = self._known()
        for _ in self.merged.leave_out(known.left_out):
            await asyncio.sleep(0)  # an hour of reports takes a minute
        return result_of(known, self.merged)

    async def _until_over(self) -> InterlockError | None:
        """Go through all phases; return the error if no agent was started."""
        for step in (self._prepare, self._gather, self._begin):
            try:
                await self._unless_stopped(step())
            except InterlockError as error:
                return error
            if self._ended:
                return None
        await self._follow()
        return None

    async def _prepare(self) -> None:
        await _each(self._prepared(member) for member in self._members)
        self._refuse_if_too_few()
        for member in self._living:
            if member.warning:
                self._ports.log(member.warning, "warning")
        offsets = {member.agent: member.offset for member in self._living if member.offset}
        # Insufficient clocks are reported before any agent prepares.
        choose_start(0, offsets, lead_s=self.spec.lead_s, skew_limit_s=self.spec.skew_limit_s)

    async def _gather(self) -> None:
        for member in self._living:
            member.begin(self.spec, self._driver.controller, self._merge)
        try:
            async with asyncio.timeout(self.spec.ready_within_s):
                await _each(member.ready.wait() for member in self._living)
        except TimeoutError:
            for member in self._living:
                if not member.ready.is_set():
                    member.give_up(f"it was not READY within {self.spec.ready_within_s:g} s")
        self._refuse_if_too_few()

    async def _begin(self) -> None:
        """Send the start to all READY agents.

        Clocks are measured now, to minimise drift.
        """
        await _each(self._measured(member) for member in self._living)
        self._refuse_if_too_few()
        offsets = {member.agent: member.offset for member in self._living if member.offset}
        lead_s, limit_s = self.spec.lead_s, self.spec.skew_limit_s
        start = choose_start(self._reference.now_ns(), offsets, lead_s=lead_s, skew_limit_s=limit_s)
        self._start = start
        self._started_at = datetime.fromtimestamp(start.at_ns / NS, UTC)
        sentence = f"All {len(offsets)} begin at {self._started_at.isoformat()}"
        self._ports.log(f"{sentence}, at most {took(start.bound_ns / 1e6)} apart.", "info")
        await _each(self._start_member(member, start.starts_ns[member.agent]) for member in self._living)
        # Some agents may have begun while another did not answer: from here on there is a result.
        self._stop_if_too_few()

    async def _follow(self) -> None:
        """Follow the agents until the workload is over.

        It ends with its agents, with a stop, with too many losses, or with its time.
        """
        duration_s = self.spec.duration_s or 3_600.0
        overs = [asyncio.create_task(self._noticed(member)) for member in self._members]
        try:
            async with asyncio.timeout(self.spec.lead_s + duration_s + SLACK_S):
                while self._living and not self._ended:
                    await self._changed.wait()
                    self._changed.clear()
                    self._stop_if_too_few()
        except TimeoutError:
            self._end(f"it had not ended {SLACK_S:g} s after its time was up")
        finally:
            for over in overs:
                over.cancel()

    async def _all_stopped(self, reason: str) -> None:
        living = self._living
        if living:
            self._ports.log(f"Stopping {counted(len(living), 'agent')}: {reason}.", "info")
        await _each(member.abort(reason, STOP_S) for member in living)

    # During the drive

    @property
    def _living(self) -> list[FleetMember]:
        return [member for member in self._members if not member.over.is_set()]

    async def _prepared(self, member: FleetMember) -> None:
        try:
            await member.prepare(self.spec)
        except InterlockError as error:
            self._lose(member, error)

    async def _measured(self, member: FleetMember) -> None:
        try:
            member.offset = await member.line.offset()
        except InterlockError as error:
            self._lose(member, error)

    async def _start_member(self, member: FleetMember, at_ns: int) -> None:
        try:
            late_ns = await member.line.start(member.workload_id, at_ns)
        except InterlockError as error:
            self._lose(member, error)
            return
        if late_ns > 0:
            self._ports.log(f"{member.agent} received the start {took(late_ns / 1e6)} too late.", "warning")

    async def _noticed(self, member: FleetMember) -> None:
        await member.over.wait()
        self._changed.set()

    def _lose(self, member: FleetMember, error: InterlockError) -> None:
        self._ports.log(error.sentence, "warning")
        member.give_up(error.sentence)

    def _merge(self, member: FleetMember, report: AgentReport) -> None:
        fault = self.merged.add(report)
        if fault and self.merged.parts[member.agent].fault == fault:
            self._ports.log(f"{member.agent} sends numbers that cannot be true: {fault}.", "warning")

    def _stop_if_too_few(self) -> None:
        lost = [member for member in self._members if member.lost]
        for member in lost:
            self.merged.lose(member.agent)
        if not can_still_do(self.spec.policy, len(self._members), len(lost)):
            self._end(f"too few agents are left: {self._why_lost(lost)}")

    def _refuse_if_too_few(self) -> None:
        lost = [member for member in self._members if member.lost]
        for member in lost:
            self.merged.lose(member.agent)
        if can_still_do(self.spec.policy, len(self._members), len(lost)):
            return
        raise too_few(self.spec, self._why_lost(lost), len(lost))

    def _why_lost(self, lost: Sequence[FleetMember]) -> str:
        return next((member.error for member in lost if member.error), "they were stopped").rstrip(".")

    async def _unless_stopped(self, step: Coroutine[Any, Any, None]) -> None:
        """Run a phase; abandon it when the drive is stopped."""
        doing = asyncio.create_task(step)
        stopping = asyncio.create_task(self._stop_requested())
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            doing.cancel()
            stopping.cancel()
            await asyncio.wait((doing, stopping))

    async def _stop_requested(self) -> None:
        while not self._ended:
            await self._changed.wait()
            self._changed.clear()

    # Progress and result

    async def _pulse(self, recorder: WorkloadRecorder) -> None:
        while True:
            self._record_all(recorder)
            self._notice_silence()
            self._ports.news(self._live())
            await asyncio.sleep(PULSE_S)

    def _notice_silence(self) -> None:
        """Find silent agents; log each once."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._pulse_s > 3 * PULSE_S:
            self._reads_since_s = now_s  # this process stalled, and pending reports are not read yet
        self._pulse_s = now_s
        reading_s = min(now_s - self._reads_since_s, self._elapsed_s)
        before, self._silent = self._silent, {}
        for member in self._living:
            quiet_s = min(now_s - member.last_report_s, reading_s)
            if member.happened in (Happened.READY, Happened.RUNNING) and quiet_s > member.quiet_s:
                self._silent[member.agent] = quiet_s
        for agent in self._silent.keys() - before.keys():
            self._ports.log(f"{agent} has reported nothing for {self._silent[agent]:.0f} s.", "warning")

    def _record_all(self, recorder: WorkloadRecorder) -> None:
        for member in self._members:
            if member.happened is None:
                continue
            part = self.merged.parts[member.agent]
            last, offset = part.last, member.offset
            recorder.record(
                WorkloadFact(
                    workload_id=member.workload_id,
                    job_id=self._driver.job_id,
                    happened=member.happened,
                    agent=member.agent,
                    kind=self.spec.kind,
                    error=member.error[:2_000],
                    operations=last.operations if last else 0,
                    errors=last.errors if last else 0,
                    rate=part.rate,
                    offset_ms=offset.offset_ns / 1e6 if offset else None,
                    uncertainty_ms=offset.uncertainty_ns / 1e6 if offset else None,
                    began_ms=began_ms(self._start, offset, part.started_at_ns),
                )
            )

    def _live(self) -> WorkloadProgress:
        states = {member.agent: member.happened for member in self._members}
        return progress_of(self.spec, self.merged, states, self._elapsed_s, self._silent)

    @property
    def _elapsed_s(self) -> float:
        """Seconds since the common start; 0 before it."""
        if self._start is None:
            return 0.0
        return max(0.0, (self._reference.now_ns() - self._start.at_ns) / NS)

    def _known(self) -> ResultInputs:
        return ResultInputs(
            spec=self.spec,
            endings={member.agent: member.ending for member in self._members},
            offsets={member.agent: member.offset for member in self._members if member.offset},
            start=self._start,
            started_at=self._started_at,
            stopped=self._stopped,
            versions={member.agent: member.version for member in self._members},
            warnings=[member.warning for member in self._members if member.warning],
        )


async def _each(doing: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Run all concurrently; their errors are handled elsewhere."""
    await asyncio.gather(*doing)


def too_few(spec: WorkloadSpec, why: str, lost: int) -> InterlockError:
    """Return the error of a start with fewer agents than the policy needs."""
    missing = f"{lost} of {len(spec.agents)} agents {'is' if lost == 1 else 'are'} missing"
    if len(spec.agents) == 1:
        missing = "the only agent is missing"
    return WorkloadFailed(
        f"Nothing was started: {missing}. {why}.",
        todo="Start them, leave them out, or accept it: policy majority or best-effort.",
        facts={"agents": len(spec.agents), "missing": lost, "policy": str(spec.policy)},
    )
