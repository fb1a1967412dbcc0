"""A conformance kit for runners, in any language.

Each scenario is a sentence that must be true of every runner. `check` plays the scenarios to a runner
process and returns a verdict for each.

Why: decision 0188.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from interlock.processes.groups import began
from interlock.testing.runner_server import (
    UNDER_WAY_S,
    HangUp,
    KitLease,
    KitOrchestrator,
    KitRequest,
    KitServer,
    Pace,
    Reply,
    problem,
)
from interlock.wire.runner import CancelAck, Complete, Release, Succeeded

QUICK = "echo ran >> '{ran}'"
SLOW = f"{QUICK}; echo $$ > '{{pid}}.new'; mv '{{pid}}.new' '{{pid}}'; exec sleep 600"
LAST_BYTES = 2_000
LOOK_EVERY_S = 0.05
"""Interval of polls of files and processes."""


class Broken(Exception):
    """The runner has violated the protocol."""


class JobInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of the jobs for a runner. In the texts, `{ran}` is a file to which a job appends a line when it
    starts, and `{pid}` a file for its process id.
    """

    task: str = "interlock.shell"
    quick: dict[str, Any] = msgspec.field(default_factory=lambda: {"run": QUICK})
    slow: dict[str, Any] = msgspec.field(default_factory=lambda: {"run": SLOW})


class Piece:
    """A job, and the traces of its execution."""

    def __init__(self, folder: Path, number: int) -> None:
        self.ran_file: Path = folder / f"{number}.ran"
        self.pid_file: Path = folder / f"{number}.pid"
        self._process: tuple[int, str] | None = None
        """The process id and the start time: when the process has ended, another one may get its id."""

    @property
    def times(self) -> int:
        """The number of starts."""
        return len(self.ran_file.read_text().splitlines()) if self.ran_file.exists() else 0

    @property
    def begun(self) -> bool:
        """Whether it has written its process id; the process may have ended since."""
        if self._process is None:
            with contextlib.suppress(OSError, ValueError):
                pid = int(self.pid_file.read_text())
                self._process = pid, began(pid)
        return self._process is not None

    @property
    def running(self) -> bool:
        """Whether its process is running."""
        if not self.begun or self._process is None:
            return False
        pid, start = self._process
        return bool(start) and began(pid) == start

    def kill(self) -> None:
        """Kill its process if it is running."""
        if self.running and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process[0], signal.SIGKILL)


class Stage:
    """The stage of a scenario: a server, a runner and its jobs."""

    def __init__(
        self, orchestrator: KitOrchestrator, folder: Path, work: JobInputs, command: Sequence[str]
    ) -> None:
        self.orchestrator: KitOrchestrator = orchestrator
        self.folder: Path = folder
        self.command: tuple[str, ...] = tuple(command)
        self.remarks: list[str] = []
        self._work = work
        self._pieces: list[Piece] = []
        self._may_go = False
        self._process: asyncio.subprocess.Process | None = None

    # The runner

    async def start(self, url: str, environment: Mapping[str, str]) -> None:
        """Start the runner; `{url}` is replaced by the address of the server."""
        if self.command:
            output = (self.folder / "output").open("wb")
            with output:
                self._process = await asyncio.create_subprocess_exec(
                    *(word.replace("{url}", url) for word in self.command),
                    env={**os.environ, **environment},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )

    async def end(self) -> None:
        """Kill the runner and the processes of its jobs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        for piece in self._pieces:
            piece.kill()

    def ask_to_go(self) -> None:
        """Send SIGTERM to the runner."""
        assert self._process is not None
        self._may_go = True
        self._process.terminate()

    @property
    def gone(self) -> bool:
        """Whether the runner has ended."""
        return self._process is not None and self._process.returncode is not None

    @property
    def _exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def last_words(self) -> str:
        """The end of the runner's output."""
        file = self.folder / "output"
        return file.read_bytes()[-LAST_BYTES:].decode(errors="replace").strip() if file.exists() else ""

    # Its work

    def quick(self) -> Piece:
        """Submit a job that takes no time."""
        return self._put(self._work.quick)

    def slow(self) -> Piece:
        """Submit a job that does not end by itself."""
        return self._put(self._work.slow)

    def _put(self, arguments: dict[str, Any]) -> Piece:
        piece = Piece(self.folder, len(self._pieces) + 1)
        self._pieces.append(piece)
        text = msgspec.json.encode(arguments).decode()
        text = text.replace("{ran}", str(piece.ran_file)).replace("{pid}", str(piece.pid_file))
        self.orchestrator.put(self._work.task, msgspec.json.decode(text))
        return piece

    # Waiting

    async def until(self, holds: Callable[[], object], what: str, within_s: float | None = None) -> None:
        """Wait until a condition holds; fail the runner when it does not in time."""
        within_s = self.orchestrator.pace.patience_s if within_s is None else within_s
        until = self.orchestrator.clock() + within_s
        while not holds():
            if self.orchestrator.clock() >= until:
                raise Broken(f"{what} within {within_s:g} s")
            if self.gone and not self._may_go:
                raise Broken(f"It has ended by itself, with exit code {self._exit_code}")
            await self._a_moment()

    async def for_a_while(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        until = self.orchestrator.clock() + seconds
        while self.orchestrator.clock() < until:
            await self._a_moment()

    async def polled(self) -> None:
        """Wait until the runner has asked for work."""
        await self.until(
            lambda: self.orchestrator.claims, "It has not claimed work", self.orchestrator.pace.start_s
        )

    async def lease(self) -> KitLease:
        """Return the first lease, once there is one."""
        await self.until(
            lambda: self.orchestrator.leases,
            "It has not claimed the available work",
            self.orchestrator.pace.start_s,
        )
        return next(iter(self.orchestrator.leases.values()))

    async def at_work(self) -> tuple[KitLease, Piece]:
        """Return a slow job that is in progress, and its lease."""
        piece = self.slow()
        lease = await self.lease()
        await self.until(
            lambda: piece.begun, "It has not begun the work that it was given", self.orchestrator.pace.start_s
        )
        return lease, piece

    async def _a_moment(self) -> None:
        changed = self.orchestrator.changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await changed.wait()


AFTERWARDS_S = 1.0
"""Time for which the kit observes after the end, in case a job is executed again."""

PlayScenario: TypeAlias = Callable[[Stage], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True):
    """A scenario."""

    name: str
    claim: str
    play: PlayScenario
    needs_process: bool = False
    """The scenario needs a runner that the kit has started."""


async def _works(stage: Stage) -> None:
    piece = stage.quick()
    await _completed(stage, await stage.lease(), piece)


async def _unknown_fields(stage: Stage) -> None:
    stage.orchestrator.more = {"from_the_future": {"a": [1, None]}, "another": "x"}
    await _works(stage)


async def _lost_lease(stage: Stage) -> None:
    lost = 0

    async def hang_up_once(request: KitRequest, what: str) -> Reply | None:
        nonlocal lost
        if what == "lease" and stage.orchestrator.waiting and not lost:
            lost += 1
            await stage.orchestrator.respond(request, what)
            for lease in stage.orchestrator.leases.values():
                lease.ended_at = None
            raise HangUp
        return None

    stage.orchestrator.before = hang_up_once
    piece = stage.quick()
    lease = await stage.lease()
    if not stage.orchestrator.claims[0].claim_id:
        stage.remarks.append(
            "It gives its claims no claim_id: work whose grant is lost waits for its lease to end."
        )
        return
    await _completed(stage, lease, piece)


async def _lost_completion(stage: Stage) -> None:
    lost = 0

    async def hang_up_once(request: KitRequest, what: str) -> Reply | None:
        nonlocal lost
        if b'"outcome"' in request.body and lost < 2:
            lost += 1
            await stage.orchestrator.respond(request, what)
            raise HangUp
        return None

    stage.orchestrator.before = hang_up_once
    piece = stage.quick()
    lease = await stage.lease()
    await stage.until(lambda: lost, "It has not reported how the attempt ended")
    before = len(lease.messages)
    await stage.until(
        lambda: len(lease.messages) > before + 1,
        "The answer to its completion was lost, and it has not repeated it",
    )
    await _completed(stage, lease, piece)


async def _renews(stage: Stage) -> None:
    lease, _ = await stage.at_work()
    await _kept_alive(stage, lease)


async def _slow_answers(stage: Stage) -> None:
    async def be_slow(_: KitRequest, what: str) -> Reply | None:
        await asyncio.sleep(0.0 if what == "lease" else 0.7 * stage.orchestrator.pace.heartbeat_every_s)
        return None

    stage.orchestrator.before = be_slow
    lease, _ = await stage.at_work()
    await _kept_alive(stage, lease)


async def _busy(stage: Stage) -> None:
    """Return 503 now and then, but never for as long as a lease lives."""
    refused = 0

    async def be_busy(_: KitRequest, what: str) -> Reply | None:
        nonlocal refused
        if what != "greet" and refused < 3:
            refused += 1
            reply = problem(503, "store_unavailable", "Try again in a moment.")
            return msgspec.structs.replace(reply, headers=(("Retry-After", "0"),))
        return None

    stage.orchestrator.before = be_busy
    lease, _ = await stage.at_work()
    refused = 1
    await _kept_alive(stage, lease)


async def _cancelled(stage: Stage) -> None:
    lease, piece = await stage.at_work()
    lease.cancel = True
    await stage.until(lambda: lease.state == "ended", "It was asked to stop, and has not acknowledged that")
    ack = lease.last(CancelAck)
    if ack is None:
        raise Broken("It was asked to stop, and has sent something else than cancel-ack")
    if ack.confirmed_dead and piece.running:
        raise Broken("It reports that the work has ended, and the work is still running")
    await stage.until(lambda: not piece.running, "It has sent cancel-ack, and the work is still running")


async def _revoked(stage: Stage) -> None:
    lease, piece = await stage.at_work()
    lease.state = "revoked"
    await stage.until(lambda: lease.stale_at, "It has sent no heartbeat")
    await stage.until(
        lambda: not piece.running,
        "Its lease was revoked, and the work is still running",
        stage.orchestrator.pace.late_s,
    )
    await stage.for_a_while(UNDER_WAY_S + stage.orchestrator.pace.heartbeat_every_s)
    stage.quick()
    await stage.until(lambda: len(stage.orchestrator.leases) > 1, "It has not claimed new work")


async def _silence(stage: Stage) -> None:
    """Stop answering: only its own clock can tell that the lease has ended."""
    pace = stage.orchestrator.pace
    stage.orchestrator.pace = msgspec.structs.replace(pace, ttl_s=pace.silence_ttl_s)
    lease, piece = await stage.at_work()

    async def fall_silent(_: KitRequest, __: str) -> Reply | None:
        await asyncio.Event().wait()
        return None

    stage.orchestrator.before = fall_silent
    late = "The server is down and its lease has ended, and the work is still running"
    await stage.until(
        lambda: not piece.running, late, lease.ends_at + pace.late_s - stage.orchestrator.clock()
    )


async def _long_poll(stage: Stage) -> None:
    await stage.polled()
    await _asks_seldom(stage, "There is no work")
    await _works(stage)


async def _refused(stage: Stage) -> None:
    await stage.until(
        lambda: stage.orchestrator.requests, "It has sent no request", stage.orchestrator.pace.start_s
    )
    stage.orchestrator.token = "another"
    await _asks_seldom(stage, "Its token is refused (401)")


async def _asks_seldom(stage: Stage, why: str) -> None:
    """Fail the runner as soon as it has sent too many requests."""
    orchestrator, pace = stage.orchestrator, stage.orchestrator.pace
    before, since = len(orchestrator.requests), orchestrator.clock()
    requests, waited_s = 0, 0.0
    while waited_s < pace.idle_s and requests <= pace.requests_per_s * pace.idle_s:
        await stage.for_a_while(PULSE_S)
        requests, waited_s = len(orchestrator.requests) - before, orchestrator.clock() - since
    if requests > pace.requests_per_s * pace.idle_s:
        raise Broken(f"{why}, and it has asked {requests} times in {waited_s:.1f} s")


async def _goes_while_idle(stage: Stage) -> None:
    await stage.polled()
    stage.ask_to_go()
    await stage.until(
        lambda: stage.gone, "It was asked to shut down (SIGTERM), has no work, and has not exited"
    )


async def _goes_while_working(stage: Stage) -> None:
    lease, piece = await stage.at_work()
    stage.ask_to_go()
    await stage.for_a_while(UNDER_WAY_S)
    claims = len(stage.orchestrator.claims)
    within_s = 2 * stage.orchestrator.pace.patience_s
    gave = "It was asked to shut down (SIGTERM), and has neither finished nor released its work"
    await stage.until(lambda: lease.state != "live", gave, within_s)
    if lease.last(Release) is None and lease.last(Complete) is None:
        raise Broken(
            "It was asked to shut down (SIGTERM), and has let its lease expire instead of releasing it"
        )
    await stage.until(lambda: stage.gone, "It has released its work, and has not exited")
    if piece.running:
        raise Broken("It has exited, and the work is still running")
    if any(claim.wait_s > 0 for claim in stage.orchestrator.claims[claims:]):
        raise Broken("It was asked to shut down (SIGTERM), and has claimed more work")


async def _completed(stage: Stage, lease: KitLease, piece: Piece) -> None:
    await stage.until(lambda: lease.state == "ended", "It has not reported how the attempt ended")
    completion = lease.last(Complete)
    if completion is None or not isinstance(completion.outcome, Succeeded):
        raise Broken(f"The work succeeds, and it has reported something else: {lease.messages[-1]}")
    await stage.for_a_while(AFTERWARDS_S)
    if piece.times != 1:
        raise Broken(f"It has done the work {piece.times} times")


async def _kept_alive(stage: Stage, lease: KitLease) -> None:
    """Check that each of the next renewals arrives before the lease has ended."""
    lost = "It has let its lease expire while it worked: no heartbeat has renewed it"
    for number in range(lease.renewals + 1, lease.renewals + 4):
        left_s = lease.ends_at - stage.orchestrator.clock()
        await stage.until(lambda number=number: lease.renewals >= number, lost, left_s)  # type: ignore[misc]


SCENARIOS = (
    Scenario("works", "It executes an attempt once, and reports how it ended.", _works),
    Scenario("unknown-fields", "It ignores unknown fields.", _unknown_fields),
    Scenario(
        "lost-lease", "A claim whose response is lost is repeated, and its work executed once.", _lost_lease
    ),
    Scenario(
        "lost-completion", "A completion whose response is lost is repeated unchanged.", _lost_completion
    ),
    Scenario("heartbeats", "It renews its lease while it works.", _renews),
    Scenario("slow-answers", "Slow responses do not cost it the lease.", _slow_answers),
    Scenario("busy-server", "A short outage of the server does not cost it the lease.", _busy),
    Scenario("cancel", "Asked to stop, it stops the work and acknowledges that.", _cancelled),
    Scenario("revoked", "A revoked lease ends the work, and no further message is sent.", _revoked),
    Scenario("silence", "Without responses it stops the work before its lease expires.", _silence),
    Scenario("no-work", "Without work it waits (long poll), and does not poll in a tight loop.", _long_poll),
    Scenario("refused-token", "A refused token is not retried in a tight loop.", _refused),
    Scenario(
        "goes-idle",
        "Asked to shut down while it is idle, it exits.",
        _goes_while_idle,
        needs_process=True,
    ),
    Scenario(
        "goes-working",
        "Asked to shut down while it works, it finishes or releases its work.",
        _goes_while_working,
        needs_process=True,
    ),
)


PULSE_S = 0.1
SIDE_BY_SIDE = 5
"""Number of concurrent scenarios: a runner spends most of a scenario waiting."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a check."""

    command: tuple[str, ...] = ()
    """Command that starts the runner, `{url}` for the address; without one it is started by hand."""
    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    work: JobInputs = JobInputs()
    pace: Pace = Pace()
    scenarios: tuple[Scenario, ...] = SCENARIOS


class ScenarioVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a scenario."""

    scenario: str
    claim: str
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    skipped: str = ""
    took_s: float = 0.0
    last_words: str = ""
    """The end of the runner's output, where there is a fault."""


async def check(options: Check, tell: Callable[[ScenarioVerdict], None]) -> list[ScenarioVerdict]:
    """Play all scenarios; report each verdict as it is reached."""
    room = asyncio.Semaphore(1 if options.port or not options.command else SIDE_BY_SIDE)

    async def play(scenario: Scenario) -> ScenarioVerdict:
        async with room:
            verdict = await _play(scenario, options)
        tell(verdict)
        return verdict

    return list(await asyncio.gather(*map(play, options.scenarios)))


async def _play(scenario: Scenario, options: Check) -> ScenarioVerdict:
    if scenario.needs_process and not options.command:
        why = "it needs a runner that the kit has started: give its command after --"
        return ScenarioVerdict(scenario=scenario.name, claim=scenario.claim, skipped=why)
    began = time.monotonic()
    orchestrator = KitOrchestrator(options.pace, options.token)
    line = KitServer(orchestrator.answer)
    with tempfile.TemporaryDirectory(prefix="interlock-check-") as folder:
        stage = Stage(orchestrator, Path(folder), options.work, options.command)
        await line.open(options.host, options.port)
        broken: tuple[str, ...] = ()
        pulse = asyncio.create_task(_pulse(orchestrator))
        try:
            await stage.start(line.url, {"INTERLOCK_TOKEN": options.token})
            await scenario.play(stage)
        except Broken as error:
            broken = (f"{error}.",)
        finally:
            await stage.end()
            await line.close()
            pulse.cancel()
        faults = (*broken, *orchestrator.faults)
        return ScenarioVerdict(
            scenario=scenario.name,
            claim=scenario.claim,
            faults=faults,
            remarks=tuple(stage.remarks),
            took_s=time.monotonic() - began,
            last_words=stage.last_words if faults else "",
        )


async def _pulse(orchestrator: KitOrchestrator) -> None:
    while True:
        orchestrator.clock.pulse()
        await asyncio.sleep(PULSE_S)


def a_token() -> str:
    """Return a token for a runner that needs one."""
    return f"il_check_{secrets.token_hex(12)}"


def named(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Return the scenarios of these names, or all; raise KeyError."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    return tuple(known[name] for name in names) or SCENARIOS
