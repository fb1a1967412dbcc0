"""Validation of simulations, and the job that executes one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import msgspec

from interlock.errors import InvalidJob, InvalidSimulation, NotJson, TooLarge, UnknownSimulation
from interlock.store.records import Change
from interlock.store.validation import MAX_ID
from interlock.systems.orchestrator.body import SimulationPart
from interlock.systems.orchestrator.submission import MAX_DELAY_S, JobParts, check_spec, new_job
from interlock.systems.orchestrator.texts import is_whole
from interlock.systems.simulations.settings import SimulationSettings
from interlock.wire.jobs import JobSpec
from interlock.wire.json_values import json_fault
from interlock.wire.simulations import PRIORITIES, SimulationSpec

MAX_STEPS = 2**53
MAX_TEXT = 2_000
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check(spec: SimulationSpec, settings: SimulationSettings) -> None:
    """Raise an error with all faults of a simulation, before it is stored."""
    faults = list(_faults(spec, settings))
    if faults:
        raise InvalidSimulation(
            "The simulation cannot be accepted: " + "; ".join(faults) + ".",
            allowed=PRIORITIES,
            todo="Correct it and try again; nothing was stored.",
            facts={"task": spec.task, "faults": faults},
        )


def job_spec(spec: SimulationSpec, run_id: str) -> JobSpec:
    """Return an ordinary job.

    It is not retried, and its heartbeats replace the timeout.
    """
    return JobSpec(
        task=spec.task or "-",
        input=spec.input,
        queue=spec.queue,
        priority=PRIORITIES.get(spec.priority, 0),
        labels=spec.labels,
        description=f"executes the simulation {run_id}",
        timeout_s=MAX_DELAY_S,
        job_timeout_s=MAX_DELAY_S,
        retries=0,
        losses=spec.losses,
    )


def job_change(
    spec: SimulationSpec,
    run_id: str,
    execution: int,
    job_id: str,
    now: datetime,
    settings: SimulationSettings,
    *,
    commit_id: str,
    actor: str,
) -> Change:
    """Return the job of one execution, to be committed with its simulation."""
    part = SimulationPart(run_id=run_id, execution=execution)
    return new_job(job_spec(spec, run_id), job_id, now, settings.jobs, JobParts(simulation=part)).change(
        commit_id=commit_id, actor=actor
    )


def check_value(noun: str, value: msgspec.Raw | msgspec.UnsetType, most: int) -> None:
    """Raise for a checkpoint or a result that is too large, or not valid JSON."""
    if not isinstance(value, msgspec.Raw):
        return
    if len(value) > most:
        raise TooLarge(
            f"The {noun} of a simulation has at most {most} bytes, not {len(value)}.",
            todo="Keep large data elsewhere, and save where it is.",
            facts={"bytes": len(value), "limit": most},
        )
    if fault := json_fault(value):
        raise NotJson(f"The {noun} of a simulation {fault}.", todo="Encode it as JSON that others can read.")


def unknown(run_id: str) -> UnknownSimulation:
    """Return the error of an unknown simulation."""
    return UnknownSimulation(
        f"There is no simulation {run_id}.",
        todo="Look for it with `interlock simulation list`; those that have ended are pruned after a while.",
        facts={"run_id": run_id},
    )


def _faults(spec: SimulationSpec, settings: SimulationSettings) -> Iterator[str]:
    if spec.run_id and not RUN_ID.fullmatch(spec.run_id):
        yield f"an id has 1 to {MAX_ID} letters, digits, dashes and underscores, such as flu-2024"
    if spec.priority not in PRIORITIES:
        yield f"there is no priority {spec.priority!r}; there are {', '.join(PRIORITIES)}"
    if spec.total_steps is not None and not 0 < spec.total_steps <= MAX_STEPS:
        yield f"total_steps is {spec.total_steps} and must be more than 0"
    for noun, text in (("path", spec.scenario_path), ("name", spec.scenario_name)):
        if len(text) > MAX_TEXT or not is_whole(text):
            yield f"the {noun} of a scenario has at most {MAX_TEXT} whole characters"
    try:
        check_spec(job_spec(msgspec.structs.replace(spec, run_id=""), "it"), settings.jobs)
    except InvalidJob as error:
        faults = error.facts["faults"]
        assert isinstance(faults, list)
        yield from faults
