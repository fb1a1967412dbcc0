"""The task that drives a fleet: workloads are jobs, with all that applies to jobs.

    interlock worker start interlock.workloads --queue workloads

Only the first attempt of a job drives: a later one sends nothing to any agent. Cancelling the job stops the
agents: the handler sends the abort to each of them, and ends when they have confirmed it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from interlock.errors import InterlockError, WorkloadFailed
from interlock.systems.fleet.agent_client import CA, CERT, KEY, TOKEN, Access, over_grpc
from interlock.systems.fleet.driver import Drive, Driver, DriverPorts
from interlock.systems.fleet.member import ClientFactory, ReferenceClock
from interlock.systems.fleet.outcome import LEVEL, WorkloadProgress, in_short, line_of
from interlock.systems.fleet.report import files_of
from interlock.systems.fleet.spec import DRIVE_S, NEVER_AGAIN, TASK, checked
from interlock.wire.workloads import (
    QUEUE,
    Verdict,
    WorkloadResult,
    WorkloadSpec,
)
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.tasks import task

CANCEL = "cancel"
"""Reason of a context when the job was cancelled."""
FIRST = 1
"""Number of the attempt that drives; later attempts do not."""


@task(
    name=TASK,
    queue=QUEUE,
    retry=NEVER_AGAIN,
    losses=0,
    timeout_s=DRIVE_S,
    executor="async",
    description="One workload on many agents.",
)
async def drive_workload(workload: WorkloadSpec, *, ctx: Context) -> WorkloadResult:
    """Drive one workload, save its result, and return a summary."""
    return await drive(workload, ctx, Watcher())


class Watcher:
    """An observer of a drive in the same process; this one does nothing."""

    def show(self, live: WorkloadProgress) -> None:
        """Show the progress, every second."""

    def save(self, result: WorkloadResult, files: Mapping[str, bytes]) -> None:
        """Save the result."""


async def drive(
    workload: WorkloadSpec, ctx: Context, watcher: Watcher, access: Access | None = None
) -> WorkloadResult:
    """Drive one workload with a watcher.

    Without `access`, it uses the credentials of the environment.
    """
    allowed = msgspec.structs.replace(access or access_here(), silence_s=workload.lost_after_s)
    driving = prepared(workload, ctx, watcher, over_grpc(allowed))
    result = await driven(driving, ctx)
    ctx.log(result.sentence)
    files = files_of(result, driving.merged.histograms_by_second())
    watcher.save(result, files)
    await _save(ctx, files)
    return worth(result, ctx)


def prepared(
    workload: WorkloadSpec,
    ctx: Context,
    watcher: Watcher,
    lines: ClientFactory,
    reference: ReferenceClock | None = None,
) -> Drive:
    """Return the drive of a job over these connections.

    Nothing is sent to any agent yet. Raise when there was an attempt before, of any outcome. A worker that
    shuts down or loses its connection gives work back, and it is granted again regardless of the retry rules;
    the progress of the former attempt is unknown here.
    """
    if ctx.attempt > FIRST:
        raise WorkloadFailed(
            "A worker has started it before, and load is never restarted automatically.",
            todo=f"To run it again: interlock job retry {ctx.job_id}",
            facts={"job_id": ctx.job_id, "attempt": ctx.attempt},
        )

    def news(live: WorkloadProgress) -> None:
        _show(ctx, live)
        watcher.show(live)

    driver = Driver(job_id=ctx.job_id, fence=ctx.fence, controller=f"job {ctx.job_id}")
    ports = DriverPorts(store_facts=ctx.report_workloads, news=news, log=ctx.log)
    return Drive(checked(workload), driver, ports, lines, reference)


def worth(result: WorkloadResult, ctx: Context) -> WorkloadResult:
    """Return the result for the job; raise if it was stopped or has failed."""
    match result.verdict:
        case Verdict.ABORTED:
            raise TaskCancelled(result.sentence)
        case Verdict.FAILED:
            raise WorkloadFailed(
                result.sentence,
                todo=f"Partial results were saved: interlock workload show {ctx.job_id}",
                facts={"job_id": ctx.job_id, "coverage": result.coverage.share},
            )
    return in_short(result)


def access_here() -> Access:
    """Return the credentials for agents from the environment."""
    token, ca, certificate, key = (os.environ.get(name, "") for name in (TOKEN, CA, CERT, KEY))
    return Access(token=token, ca=ca, certificate=certificate, key=key)


async def driven(drive: Drive, ctx: Context) -> WorkloadResult:
    """Run a drive, and stop it with the job.

    A cancellation waits until the agents have stopped.
    """
    driving = asyncio.create_task(drive.run(), name="drive")
    watching = asyncio.create_task(ctx.wait_cancelled(), name="stop of the job")
    try:
        while not driving.done():
            try:
                await asyncio.wait((driving, watching), return_when=asyncio.FIRST_COMPLETED)
                if watching.done() and not driving.done():
                    if ctx.stop_reason == CANCEL:
                        drive.cancel_requested(CANCEL)
                    else:
                        drive.stop(ctx.stop_reason or "the job was stopped")
                    await asyncio.wait((driving,))
            except asyncio.CancelledError:
                drive.stop("its handler was stopped")
        return driving.result()
    finally:
        watching.cancel()
        await asyncio.wait((watching,))


def _show(ctx: Context, live: WorkloadProgress) -> None:
    duration_s = live.duration_s or None
    elapsed_s = min(live.elapsed_s, duration_s or live.elapsed_s)
    ctx.progress(round(elapsed_s, 1), duration_s, live.sentence)
    if live.operations:
        ctx.log(line_of(live), LEVEL)


async def _save(ctx: Context, files: Mapping[str, bytes]) -> None:
    """Save the files as artifacts of the job, if there is a store for them."""
    with tempfile.TemporaryDirectory(prefix="interlock-workload-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.write_bytes(content)
            try:
                await ctx.artifact(name, path)
            except InterlockError as error:
                ctx.log(f"{name} could not be stored: {error.sentence}", "warning")
                return
