"""The consequences that the resolutions demand, written down by hand; and that none of them misfires.

Each line says: when this machine takes this step, and these facts hold, then exactly these events go
to these machines (`+attempt` creates one).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from interlock.lifecycles import COUPLINGS, MACHINES, Circumstances
from interlock.lifecycles.attempt import ENDED as ATTEMPT_ENDED
from interlock.machine import Step

FACTS = Circumstances.__struct_fields__
EVERYTHING = [
    Circumstances(**dict(zip(FACTS, values, strict=True)))
    for values in product((False, True), repeat=len(FACTS))
]


def step(machine: str, source: str, event: str, target: str) -> Step[Any]:
    """The step of a machine that somebody describes by its two states and its event."""
    known = MACHINES[machine]
    found = [s for s in known.steps_at(known.state(source)) if (s.event, s.target) == (event, target)]
    assert len(found) == 1, f"{machine} has {len(found)} steps {source} + {event} → {target}"
    return found[0]


def consequences(taken: Step[Any], now: Circumstances) -> list[str]:
    return sorted(
        f"+{coupling.effect.name}"
        if coupling.event is None
        else f"{coupling.effect.name}.{coupling.event.name}"
        for coupling in COUPLINGS.after(taken, now)
    )


Demand = tuple[str, tuple[str, str, str, str], dict[str, bool], set[str]]
ON, OFF = True, False

DEMANDS: list[Demand] = [
    # what a run wants
    ("S2-4", ("run", "PLANNING", "planned", "QUEUED"), {}, {"+job"}),
    ("S2-8", ("run", "PLANNING", "planned", "QUEUED"), {"every_required_job_succeeded": ON},
     {"+job", "run.required_jobs_succeeded"}),
    ("R22", ("run", "QUEUED", "time_out", "TIMEOUT"), {"fail_fast": ON},
     {"job.cancel"}),
    ("S2-6", ("run", "PLAN_FAILED", "finalize", "FAILED"), {"fail_fast": OFF}, set()),
    ("S2-10", ("run", "RUNNING", "cancel", "CANCEL_REQUESTED"), {"anything_active": ON},
     {"job.cancel"}),
    ("S2-32", ("run", "QUEUED", "cancel", "CANCEL_REQUESTED"), {"anything_active": OFF},
     {"job.cancel", "run.all_stopped"}),
    ("R23", ("run", "CREATED", "cancel", "CANCEL_REQUESTED"), {"anything_active": OFF},
     {"job.cancel", "run.all_stopped"}),
    ("R23", ("run", "PLANNING", "cancel", "CANCEL_REQUESTED"), {"anything_active": OFF},
     {"job.cancel", "run.all_stopped"}),
    ("R22", ("run", "RUNNING", "time_out", "TIMEOUT"), {"fail_fast": OFF}, set()),
    ("R22", ("run", "RUNNING", "required_job_failed", "FAILED"), {"fail_fast": OFF}, set()),
    ("S2-13", ("run", "SUCCESS", "reported", "REPORTED"), {}, set()),
    # what a job wants
    ("S0-15", ("job", "SUBMITTED", "validate", "PENDING"), {}, {"+attempt"}),
    ("S0-19", ("job", "RUNNING", "cancel", "RUNNING"), {"anything_active": ON},
     {"attempt.cancel", "job.cancel"}),
    ("R6", ("job", "RUNNING", "timeout", "RUNNING"), {"anything_active": ON},
     {"attempt.cancel", "job.cancel"}),
    ("R7", ("job", "RUNNING", "cancel", "CANCELED"), {"stopping": ON, "anything_active": ON},
     {"attempt.cancel", "job.cancel", "run.required_job_failed", "simulation.interrupt"}),
    ("R7", ("job", "SUBMITTED", "cancel", "CANCELED"), {"required": OFF},
     {"attempt.cancel", "job.cancel", "simulation.interrupt"}),
    ("S2-7", ("job", "PENDING", "allocate_resources", "RUNNING"), {}, {"run.begin"}),
    ("S2-8", ("job", "RUNNING", "success", "COMPLETED"), {"every_required_job_succeeded": ON},
     {"run.required_jobs_succeeded"}),
    ("S2-8", ("job", "RUNNING", "success", "COMPLETED"), {"every_required_job_succeeded": OFF}, set()),
    ("R32", ("job", "RUNNING", "error", "FAILED"), {"required": OFF},
     {"attempt.cancel", "simulation.interrupt"}),
    ("R32", ("job", "RUNNING", "error", "FAILED"), {"required": ON},
     {"attempt.cancel", "job.cancel", "run.required_job_failed", "simulation.interrupt"}),
    ("ours", ("job", "RUNNING", "error", "FAILED"), {"required": OFF, "stops_siblings": ON},
     {"attempt.cancel", "job.cancel", "simulation.interrupt"}),
    ("ours", ("job", "RUNNING", "error", "FAILED"), {"required": OFF, "followed": ON},
     {"attempt.cancel", "job.cancel", "simulation.interrupt"}),
    ("ours", ("job", "RUNNING", "error", "FAILED"), {"required": OFF, "fails_parent": ON},
     {"attempt.cancel", "job.error", "simulation.interrupt"}),
    ("S2-11", ("job", "RUNNING", "success", "COMPLETED"), {"stopping": ON}, {"run.all_stopped"}),
    ("S2-11", ("job", "RUNNING", "success", "COMPLETED"), {"stopping": ON, "anything_active": ON}, set()),
    # what an attempt wants
    ("S2-17, S2-7", ("attempt", "QUEUED", "grant", "LEASED"), {}, {"+lease", "job.allocate_resources"}),
    ("S2-32", ("attempt", "CREATED", "cancel", "CANCEL_REQUESTED"), {}, {"attempt.withdraw"}),
    ("S2-32", ("attempt", "QUEUED", "cancel", "CANCEL_REQUESTED"), {}, {"attempt.withdraw"}),
    ("R24", ("attempt", "LEASED", "cancel", "CANCEL_REQUESTED"), {}, {"lease.revoke"}),
    ("S2-32", ("attempt", "STARTING", "cancel", "CANCEL_REQUESTED"), {}, {"lease.request_cancel"}),
    ("S2-32", ("attempt", "RUNNING", "cancel", "CANCEL_REQUESTED"), {}, {"lease.request_cancel"}),
    ("R19", ("attempt", "UPLOADING", "cancel", "CANCEL_REQUESTED"), {}, {"lease.request_cancel"}),
    ("R21", ("attempt", "RUNNING", "time_out", "TIMED_OUT"), {"tries_left": ON},
     {"+attempt", "lease.revoke"}),
    ("R21", ("attempt", "RUNNING", "time_out", "TIMED_OUT"), {}, {"job.error", "lease.revoke"}),
    ("S2-33", ("attempt", "CANCEL_REQUESTED", "force_cancel", "CANCELED"), {"stopping": ON},
     {"job.cancel", "lease.revoke"}),
    # what an attempt tells
    ("S2-28", ("attempt", "UPLOADING", "completed", "SUCCEEDED"), {"every_shard_succeeded": ON},
     {"job.success"}),
    ("R8", ("attempt", "UPLOADING", "completed", "SUCCEEDED"), {}, set()),
    ("S2-26", ("attempt", "UPLOADING", "completed", "FAILED"), {"tries_left": ON}, {"+attempt"}),
    ("S2-28", ("attempt", "UPLOADING", "completed", "FAILED"), {"losses_left": ON}, {"job.error"}),
    ("R20", ("attempt", "RUNNING", "lease_expired", "STALE"), {"losses_left": ON},
     {"+attempt", "simulation.interrupt"}),
    ("R20", ("attempt", "RUNNING", "lease_expired", "STALE"), {"tries_left": ON},
     {"job.error", "simulation.interrupt"}),
    ("R13", ("attempt", "RUNNING", "lease_revoked", "STALE"), {}, {"+attempt", "simulation.interrupt"}),
    ("R25", ("attempt", "CANCEL_REQUESTED", "completed", "CANCELED"), {"stopping": ON}, {"job.cancel"}),
    ("R26", ("attempt", "CANCEL_REQUESTED", "lease_expired", "CANCELED"), {"stopping": ON}, {"job.cancel"}),
    ("R26", ("attempt", "CANCEL_REQUESTED", "lease_expired", "CANCELED"),
     {"stopping": ON, "tries_left": ON, "losses_left": ON, "anything_active": ON}, set()),
    # what a lease tells
    ("S2-18", ("lease", "GRANTED", "ack", "ACTIVE"), {}, {"attempt.acknowledged"}),
    ("S2-19", ("lease", "ACTIVE", "heartbeat", "ACTIVE"), {}, {"attempt.heartbeat"}),
    ("S2-32", ("lease", "ACTIVE", "request_cancel", "ACTIVE"), {}, {"workload.ABORT_RECEIVED"}),
    ("S2-21", ("lease", "ACTIVE", "complete", "COMPLETED"), {}, {"attempt.completed"}),
    ("S2-25", ("lease", "ACTIVE", "cancel_ack", "CANCELED"), {}, {"attempt.cancel_acknowledged"}),
    ("S2-22", ("lease", "ACTIVE", "expire", "EXPIRED"), {}, {"attempt.lease_expired", "task.lease_expired"}),
    ("S2-22", ("lease", "GRANTED", "expire", "EXPIRED"), {}, {"attempt.lease_expired", "task.lease_expired"}),
    ("R24", ("lease", "GRANTED", "revoke", "REVOKED"), {}, {"attempt.lease_revoked", "task.lease_expired"}),
    ("R13", ("lease", "ACTIVE", "release", "REVOKED"), {}, {"attempt.lease_revoked", "task.lease_expired"}),
    # workers, processes and their tasks
    ("S0-8", ("worker", "RUNNING", "terminate", "TERMINATED"), {},
     {"lease.revoke", "process.shutdown_requested"}),
    ("S0-8, R1", ("worker", "FAILED", "terminate", "TERMINATED"), {},
     {"lease.revoke", "process.shutdown_requested"}),
    ("R20", ("worker", "RUNNING", "error_unrecoverable", "FAILED"), {}, {"lease.holder_lost"}),
    ("R20", ("worker", "RUNNING", "error_transient", "FAILED"), {}, {"lease.holder_lost"}),
    ("R5", ("worker", "RUNNING", "error_transient", "RUNNING"), {}, set()),
    ("R20", ("worker", "IDLE", "supervisor_timeout", "TERMINATED"), {},
     {"lease.holder_lost", "process.shutdown_requested"}),
    ("S0-6", ("worker", "RUNNING", "complete_tasks", "COMPLETED"), {}, set()),
    ("R20", ("lease", "ACTIVE", "holder_lost", "EXPIRED"), {},
     {"attempt.lease_expired", "task.lease_expired"}),
    ("S0-4", ("worker", "RUNNING", "pause", "PAUSED"), {}, set()),
    ("S0-29", ("worker", "RUNNING", "resources_exhausted", "PAUSED"), {}, {"lease.holder_lost"}),
    ("R45", ("simulation", "running", "pause", "paused"), {"stopping": ON}, {"simulation.cancel"}),
    ("R48", ("simulation", "running", "pause", "paused"), {"stopping": OFF}, set()),
    ("R14", ("process", "RUNNING", "error", "connecting"), {}, {"task.lease_expired"}),
    ("S1-4", ("process", "connecting", "connection_failed", "connecting"), {}, set()),
    ("R13", ("process", "RUNNING", "shutdown_requested", "shutting_down"), {}, {"task.shutdown_requested"}),
    ("R13", ("process", "shutting_down", "soft_deadline", "shutting_down"), {}, {"task.shutdown_requested"}),
    ("R13", ("process", "shutting_down", "task_ended", "shutting_down"), {}, set()),
    ("S1-13", ("task", "claiming", "claim_succeeded", "processing"), {}, {"lease.ack"}),
    ("S1-15", ("task", "processing", "processing_succeeded", "reporting"), {}, {"lease.complete"}),
    ("R11", ("task", "processing", "processing_failed", "reporting"), {}, {"lease.complete"}),
    ("R13", ("task", "processing", "shutdown_requested", "reporting"), {}, {"lease.release"}),
    ("ours", ("task", "processing", "processing_yielded", "reporting"), {}, {"lease.release"}),
    ("R10", ("task", "claiming", "claim_failed", "failed"), {}, {"process.task_ended"}),
    ("S1-13", ("task", "reporting", "report_succeeded", "completed"), {}, {"process.task_ended"}),
    ("S1-13", ("task", "processing", "lease_expired", "abandoned"), {}, {"process.task_ended"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("taken", "facts", "expected"),
    [
        pytest.param(*demand[1:], id=f"{demand[0]}-{'-'.join(demand[1])}-{n}")
        for n, demand in enumerate(DEMANDS)
    ],
)
def test_a_step_has_exactly_the_consequences_that_were_decided(
    taken: tuple[str, str, str, str], facts: dict[str, bool], expected: set[str]
) -> None:
    assert set(consequences(step(*taken), Circumstances(**facts))) == expected


FAILING = [
    ("RUNNING", "time_out", "TIMEOUT"),
    ("QUEUED", "time_out", "TIMEOUT"),
    ("RUNNING", "required_job_failed", "FAILED"),
]


@pytest.mark.parametrize(("source", "event", "outcome"), FAILING)
def test_the_jobs_of_a_run_that_failed_or_timed_out_are_cancelled(
    source: str, event: str, outcome: str
) -> None:
    """R22: fail-fast."""
    assert "job.cancel" in consequences(step("run", source, event, outcome), Circumstances(fail_fast=True))


def test_a_cancel_request_for_a_job_aborts_the_workload_that_the_job_drives() -> None:
    """R22: whatever is still active is cancelled, load included; the jobs of its run are what drives it."""
    cause = step("lease", "ACTIVE", "request_cancel", "ACTIVE")
    assert consequences(cause, Circumstances()) == ["workload.ABORT_RECEIVED"]


def test_a_plan_that_requires_nothing_succeeds_at_once() -> None:
    """S2-8, S2-14: of no required job all have succeeded, and nobody else would ever say so."""
    planned = step("run", "PLANNING", "planned", "QUEUED")
    assert any("run.required_jobs_succeeded" in consequences(planned, now) for now in EVERYTHING)


def test_dependents_of_a_required_job_that_failed_are_canceled() -> None:
    """R32: also where fail-fast is off, so that the run does not do it for them."""
    failed = step("job", "RUNNING", "error", "FAILED")
    assert "run.required_job_failed" in consequences(failed, Circumstances(required=True))
    slow = [now for now in EVERYTHING if now.required and not now.fail_fast]
    assert any("job.cancel" in consequences(failed, now) for now in slow)


def test_a_worker_that_is_out_of_resources_releases_its_leases() -> None:
    """S0-29: paused, and its resources are released."""
    paused = step("worker", "RUNNING", "resources_exhausted", "PAUSED")
    assert [sent for now in EVERYTHING for sent in consequences(paused, now) if sent.startswith("lease.")]


def test_a_simulation_that_was_to_be_cancelled_is_so_once_its_worker_has_paused_it() -> None:
    """R45: running, paused, cancelled; a cancel that was accepted must not end at paused."""
    paused = step("simulation", "running", "pause", "paused")
    assert any("simulation.cancel" in consequences(paused, now) for now in EVERYTHING)
    assert consequences(paused, Circumstances()) == [], "a pause alone is not a cancel"


def test_a_required_job_that_is_cancelled_alone_fails_its_run() -> None:
    """R32"""
    for source in ("SUBMITTED", "PENDING", "RUNNING"):
        alone = consequences(step("job", source, "cancel", "CANCELED"), Circumstances(required=True))
        assert "run.required_job_failed" in alone


def test_no_coupling_is_without_a_demand() -> None:
    """Whatever is not written down above, no document asks for."""
    demanded = [(step(*taken), Circumstances(**facts)) for _, taken, facts, _ in DEMANDS]
    unasked = [c.sentence for c in COUPLINGS if not any(c.follows(*one) for one in demanded)]
    assert unasked == []


def test_every_coupling_has_a_unique_sentence_and_a_reason() -> None:
    sentences = [coupling.sentence for coupling in COUPLINGS]
    assert len(set(sentences)) == len(sentences)
    assert all(coupling.why.strip() for coupling in COUPLINGS)


def test_the_couplings_name_only_existing_machines() -> None:
    for coupling in COUPLINGS:
        assert MACHINES[coupling.cause.name] is coupling.cause
        assert MACHINES[coupling.effect.name] is coupling.effect


def endings() -> list[Step[Any]]:
    attempt = MACHINES["attempt"]
    return [s for state in attempt.states for s in attempt.steps_from(state) if s.target in ATTEMPT_ENDED]


@pytest.mark.parametrize("ending", endings(), ids=lambda s: f"{s.source}-{s.event}-{s.target}")
def test_an_attempt_that_ends_has_one_successor_or_none_and_never_a_contradiction(
    ending: Step[Any],
) -> None:
    """S2-26, R20, R26: over every combination of circumstances."""
    for now in EVERYTHING:
        sent = consequences(ending, now)
        assert len(set(sent)) == len(sent), f"{now} sends one thing twice"
        verdicts = [s for s in sent if s in ("+attempt", "job.error", "job.success", "job.cancel")]
        if ending.target == "CANCELED" or now.stopping:
            assert verdicts == (["job.cancel"] if now.stopping and not now.anything_active else [])
        elif ending.target == "SUCCEEDED":
            assert verdicts == (["job.success"] if now.every_shard_succeeded else [])
        else:
            assert len(verdicts) == 1, f"{now} leads to {verdicts}"
            assert verdicts[0] in ("+attempt", "job.error")


def test_the_end_of_a_job_sends_its_run_at_most_one_verdict() -> None:
    job = MACHINES["job"]
    ends = [s for state in job.states for s in job.steps_from(state) if s.target in job.terminal]
    for ending, now in product(ends, EVERYTHING):
        sent = consequences(ending, now)
        verdicts = {"run.required_jobs_succeeded", "run.required_job_failed"} & set(sent)
        assert len(verdicts) <= 1
        assert ("run.all_stopped" in sent) == (now.stopping and not now.anything_active)
        if not now.required and ending.target != "COMPLETED":
            assert not verdicts, "R32: an optional job never changes the run"
