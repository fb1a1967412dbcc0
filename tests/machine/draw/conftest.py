"""Sample machines to draw: the shapes that real ones have, and some that are meant to be awkward."""

from __future__ import annotations

import pytest

from interlock.machine.blueprint import (
    Blueprint,
    DeadlineSheet,
    KeptSheet,
    StateSheet,
    TransitionSheet,
)


def state(
    name: str,
    turn: str | None = None,
    within: float | None = None,
    *,
    terminal: bool = False,
    resting: bool = False,
) -> StateSheet:
    deadline = None if within is None else DeadlineSheet("deadline", "a_setting", within, "entry")
    return StateSheet(name, terminal, resting, f"What {name} means.", turn, deadline)


def end(name: str) -> StateSheet:
    return state(name, terminal=True)


def moves(*rows: str) -> tuple[TransitionSheet, ...]:
    """Rows like `A, B -> C: event by owner [guard, other guard]`."""
    found = []
    for row in rows:
        sources, rest = row.split(" -> ")
        target, rest = rest.split(": ")
        rest, _, guards = rest.partition(" [")
        event, owner = rest.split(" by ")
        listed = tuple(g for g in guards.rstrip("]").split(", ") if g)
        found += [
            TransitionSheet(event, source, target, owner, f"Why {event}.", listed)
            for source in sources.split(", ")
        ]
    return tuple(found)


def keeps(*rows: str) -> tuple[KeptSheet, ...]:
    """Rows like `A, B: event by owner`."""
    found = []
    for row in rows:
        states, rest = row.split(": ")
        event, owner = rest.split(" by ")
        found += [KeptSheet(event, name, owner) for name in states.split(", ")]
    return tuple(found)


def attempt() -> Blueprint:
    return Blueprint(
        machine="attempt",
        initial="CREATED",
        doc="One try of a job. A retry is a new attempt, so an attempt that ended stays ended.",
        spine=("CREATED", "QUEUED", "LEASED", "STARTING", "RUNNING", "UPLOADING", "SUCCEEDED"),
        states=(
            state("CREATED", "scheduler"),
            state("QUEUED", "scheduler"),
            state("LEASED", "runner", 30),
            state("STARTING", "runner", 60),
            state("RUNNING", "runner", 3600),
            state("UPLOADING", "runner", 600),
            state("CANCEL_REQUESTED", "runner", 120),
            end("SUCCEEDED"),
            end("FAILED"),
            end("CANCELED"),
            end("TIMED_OUT"),
            end("STALE"),
        ),
        transitions=moves(
            "CREATED -> QUEUED: enqueue by scheduler",
            "QUEUED -> LEASED: lease by scheduler",
            "LEASED -> STARTING: ack_lease by runner",
            "STARTING -> RUNNING: heartbeat by runner",
            "STARTING -> RUNNING: report_running by runner",
            "RUNNING -> UPLOADING: upload by runner",
            "UPLOADING -> SUCCEEDED: complete by runner [succeeded]",
            "RUNNING -> SUCCEEDED: complete by runner [succeeded]",
            "RUNNING, UPLOADING -> FAILED: complete by runner [failed]",
            "CANCEL_REQUESTED -> SUCCEEDED: complete by runner [succeeded]",
            "CANCEL_REQUESTED -> FAILED: complete by runner [failed]",
            "STARTING -> FAILED: start_failed by runner",
            "QUEUED, LEASED, STARTING, RUNNING -> CANCEL_REQUESTED: cancel by user [has_live_lease]",
            "CREATED, QUEUED -> CANCELED: cancel by user [no_live_lease]",
            "CANCEL_REQUESTED -> CANCELED: cancel_ack by runner",
            "CANCEL_REQUESTED -> CANCELED: cancel_deadline by clock",
            "RUNNING, UPLOADING -> TIMED_OUT: job_deadline by clock",
            "LEASED, STARTING, RUNNING, UPLOADING, CANCEL_REQUESTED -> STALE: lease_expired by clock",
        ),
        kept=keeps("RUNNING, UPLOADING, CANCEL_REQUESTED: heartbeat by runner"),
    )


def run() -> Blueprint:
    return Blueprint(
        machine="run",
        initial="CREATED",
        doc="Everything that one trigger asked for: a plan, its jobs, and one verdict.",
        spine=("CREATED", "PLANNING", "QUEUED", "RUNNING", "SUCCESS", "REPORTED"),
        states=(
            state("CREATED", "orchestrator"),
            state("PLANNING", "planner", 120),
            state("PLAN_FAILED", "orchestrator"),
            state("QUEUED", "orchestrator"),
            state("RUNNING", "orchestrator", 7200),
            state("CANCEL_REQUESTED", "orchestrator", 90),
            state("SUCCESS", "status reporter"),
            state("FAILED", "status reporter"),
            state("CANCELED", "status reporter"),
            state("TIMEOUT", "status reporter"),
            end("REPORTED"),
        ),
        transitions=moves(
            "CREATED -> PLANNING: plan by orchestrator",
            "PLANNING -> QUEUED: planned by orchestrator [jobs_created]",
            "PLANNING -> PLAN_FAILED: plan_error by orchestrator",
            "PLANNING -> PLAN_FAILED: plan_timeout by orchestrator",
            "PLAN_FAILED -> FAILED: give_up by orchestrator",
            "QUEUED -> RUNNING: attempt_started by orchestrator",
            "RUNNING -> SUCCESS: jobs_succeeded by orchestrator [all_required_succeeded]",
            "RUNNING -> FAILED: job_failed by orchestrator [a_required_job_is_out_of_retries]",
            "RUNNING, QUEUED -> CANCEL_REQUESTED: cancel by user",
            "RUNNING, QUEUED -> CANCEL_REQUESTED: supersede by orchestrator",
            "CANCEL_REQUESTED -> CANCELED: all_ended by orchestrator",
            "CANCEL_REQUESTED -> CANCELED: cancel_deadline by orchestrator",
            "RUNNING -> TIMEOUT: run_deadline by orchestrator",
            "SUCCESS, FAILED, CANCELED, TIMEOUT -> REPORTED: report by status reporter",
        ),
        kept=keeps("RUNNING, CANCEL_REQUESTED: job_ended by orchestrator"),
    )


def process() -> Blueprint:
    return Blueprint(
        machine="process",
        initial="starting",
        doc="A worker process, from its first breath to a clean stop.",
        spine=("starting", "connecting", "recovering", "running", "shutting_down", "stopped"),
        states=(
            state("starting", "worker"),
            state("connecting", "worker"),
            state("recovering", "worker"),
            state("running"),
            state("backing_off", "clock", 5),
            state("shutting_down", "worker", 30),
            end("stopped"),
        ),
        transitions=moves(
            "starting -> connecting: initialized by worker",
            "connecting -> recovering: connected by worker",
            "connecting -> connecting: connection_failed by worker",
            "recovering -> running: recovery_complete by worker",
            "running -> backing_off: no_tasks_available by worker",
            "running -> running: poll_cycle_complete by worker",
            "backing_off -> recovering: backoff_complete by clock",
            "running, backing_off, recovering, connecting -> shutting_down: shutdown_requested by signal",
            "shutting_down -> stopped: shutdown_complete by worker",
            "running, recovering -> connecting: error by worker",
        ),
    )


def workload() -> Blueprint:
    return Blueprint(
        machine="workload",
        initial="IDLE",
        doc="A coordinated workload on an agent; it always comes back to rest.",
        spine=("IDLE", "READY", "RUNNING"),
        states=(
            state("IDLE", resting=True),
            state("READY", "clock", 60),
            state("RUNNING", "agent", 3600),
            state("FAILED", "agent"),
            state("ABORTING", "agent", 15),
        ),
        transitions=moves(
            "IDLE -> READY: rpc_received by controller [valid]",
            "IDLE -> FAILED: rpc_received by controller [invalid]",
            "READY -> RUNNING: start_time_reached by clock",
            "READY -> IDLE: abort_received by controller",
            "READY -> IDLE: controller_disconnect by network",
            "RUNNING -> IDLE: duration_elapsed by clock",
            "RUNNING -> FAILED: workload_error by agent",
            "RUNNING -> ABORTING: abort_received by controller",
            "RUNNING -> ABORTING: controller_disconnect by network",
            "ABORTING -> IDLE: task_cancelled by agent",
            "ABORTING -> IDLE: graceful_timeout by clock",
            "ABORTING -> IDLE: kill_timeout by clock",
            "FAILED -> IDLE: reset by agent",
        ),
        kept=keeps("RUNNING, ABORTING: stats_tick by clock"),
    )


def lease() -> Blueprint:
    return Blueprint(
        machine="lease",
        initial="GRANTED",
        doc="The right of one runner to work on one attempt.",
        spine=("GRANTED", "ACTIVE", "COMPLETED"),
        states=(
            state("GRANTED", "runner", 30),
            state("ACTIVE", "runner", 60),
            end("EXPIRED"),
            end("REVOKED"),
            end("COMPLETED"),
            end("CANCELED"),
        ),
        transitions=moves(
            "GRANTED -> ACTIVE: ack by runner",
            "GRANTED, ACTIVE -> EXPIRED: ttl by clock",
            "ACTIVE -> COMPLETED: complete by runner",
            "ACTIVE -> CANCELED: cancel_ack by runner [cancel_was_requested]",
            "GRANTED, ACTIVE -> REVOKED: revoke by orchestrator",
        ),
        kept=keeps("ACTIVE: heartbeat by runner"),
    )


def door() -> Blueprint:
    return Blueprint(
        machine="door",
        initial="closed",
        states=(state("closed", resting=True), state("open"), state("locked")),
        transitions=moves(
            "closed -> open: push by anyone",
            "open -> closed: pull by anyone",
            "closed -> locked: turn_key by owner",
            "locked -> closed: turn_key by owner",
        ),
    )


def simulation() -> Blueprint:
    return Blueprint(
        machine="simulation",
        initial="pending",
        doc="A simulation run.",
        states=(
            state("pending", "worker"),
            state("running", "worker", 60),
            state("paused", "user"),
            state("interrupted", "user"),
            end("completed"),
            end("failed"),
            end("cancelled"),
        ),
        spine=("pending", "running", "completed"),
        transitions=moves(
            "pending -> running: start by worker",
            "running -> completed: finish by worker",
            "running -> failed: fail by worker",
            "running -> paused: pause by worker",
            "paused -> running: resume by worker",
            "pending, paused -> cancelled: cancel by user",
            "running, paused -> interrupted: heartbeat_lost by clock",
            "interrupted -> running: recover by worker",
        ),
        kept=keeps("running: heartbeat by worker", "running: progress by worker"),
    )


def awkward() -> Blueprint:
    """Sixteen states, no declared spine, and edges in every direction."""
    names = [f"S{index:02d}" for index in range(16)]
    names[3] = "A state with a rather long name"
    rows = []
    for index, name in enumerate(names):
        for step, event in ((5, "leap"), (3, "hop"), (11, "wander_back_a_long_way")):
            if (index * step) % 4 != 3:
                owner = ("north", "south", "east")[(index + step) % 3]
                rows.append(f"{name} -> {names[(index * step + 1) % 16]}: {event} by {owner}")
    rows.append(f"{', '.join(names[4:12])} -> {names[15]}: abandon by south")
    ends = {names[15]}
    return Blueprint(
        machine="awkward",
        initial=names[0],
        doc="Nobody would draw this by hand. " * 2,
        states=tuple(state(name, terminal=name in ends) for name in names),
        transitions=tuple(t for t in moves(*rows) if t.source not in ends),
    )


def hostile() -> Blueprint:
    """Names with everything that a format might trip over."""
    first, second, third = '<a & "b">', "naïve 状態 'x'", "end\\ of; {line}\n#1: [*] --> ~"
    return Blueprint(
        machine='"><script>alert(1)</script>',
        initial=first,
        doc="Quotes \" and ' and <tags> & ampersands -- and ]]> too.",
        states=(state(first, "a <b>"), state(second, within=0.25), end(third)),
        transitions=(
            TransitionSheet("go <now>", first, second, "me & you", "because <x>", ("a<b",)),
            TransitionSheet('say "hi"', second, third, "me & you"),
            TransitionSheet("über: alles; --> \x00", second, first, "\u202eyou"),
        ),
    )


SAMPLES = {
    build.__name__: build
    for build in (
        attempt, run, process, workload, lease, door, simulation, awkward, hostile,
    )
}  # fmt: skip


@pytest.fixture(params=sorted(SAMPLES))
def sample(request: pytest.FixtureRequest) -> Blueprint:
    """Each sample machine in turn."""
    name: str = request.param
    return SAMPLES[name]()


@pytest.fixture
def samples() -> dict[str, Blueprint]:
    """All sample machines by name."""
    return {name: build() for name, build in SAMPLES.items()}
