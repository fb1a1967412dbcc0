"""The tasks of a small photo studio.

    interlock worker start interlock.demo.tasks

Most are quick. One fails twice before it succeeds, one saves checkpoints, so that it resumes after its worker
dies, one stops on request, and one exceeds its timeout.
"""

from __future__ import annotations

import asyncio

from interlock.wire.jobs import RetryRule
from interlock.worker.context import Context
from interlock.worker.tasks import task

FILM_SCENES = 30


@task(name="studio.develop", description="Develop one photo.")
async def develop(ctx: Context, photo: int) -> str:
    """Develop a photo: a short job, of which there are many."""
    for part in range(4):
        ctx.progress(part, 4)
        await asyncio.sleep(0.05 + (photo % 5) * 0.03)
    return f"photo-{photo:02}.jpg"


@task(
    name="studio.upload",
    description="Upload the album over a bad line.",
    retry={"infra": RetryRule(retries=3, first_pause_s=0.5)},
)
async def upload(ctx: Context, album: str) -> str:
    """Fail twice as networks do; the class of the failure allows a retry."""
    await asyncio.sleep(0.3)
    if ctx.attempt < 3:
        raise ConnectionError("connection reset by peer")
    return f"https://studio.example/{album}"


@task(name="studio.render", description="Render the film, scene by scene.")
async def render(ctx: Context, scene_s: float = 0.2) -> dict[str, int]:
    """Render a film, and resume an earlier attempt after its last scene."""
    first = ctx.restored(int) or 0
    if first:
        ctx.log(f"continuing after scene {first}, which was saved by an earlier attempt")
    for scene in range(first + 1, FILM_SCENES + 1):
        await asyncio.sleep(scene_s)
        ctx.checkpoint(scene)
        ctx.progress(scene, FILM_SCENES, f"scene {scene}")
    return {"scenes": FILM_SCENES, "rendered_by_this_attempt": FILM_SCENES - first}


@task(name="studio.archive", description="Archive everything there is; it takes for ever.")
async def archive(ctx: Context) -> None:
    """Archive tapes until a stop is requested."""
    tape = 0
    while True:
        tape += 1
        ctx.progress(tape, message=f"tape {tape}")
        ctx.raise_if_cancelled()
        await asyncio.sleep(0.2)


@task(name="studio.retouch", description="Retouch a photo, with a plug-in that hangs.", timeout_s=3.0)
async def retouch() -> None:
    """Run for ever; the timeout ends it."""
    await asyncio.sleep(3_600)
