"""The tasks of a small photo studio.

    interlock worker start interlock.demo.tasks

Most are quick. One fails twice before it succeeds, one saves how far it is, so that it goes on where
it was when its worker dies, one stops when it is asked to, and one takes longer than it may.
"""

from __future__ import annotations

import asyncio

from interlock.wire.jobs import RetryRule
from interlock.worker.context import Context
from interlock.worker.tasks import task

FILM_SCENES = 30


@task(name="studio.develop", description="Develop one photo.")
async def develop(ctx: Context, photo: int) -> str:
    """A short job, of which there are many."""
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
    """Fails twice as networks do; the class of the failure decides that it is tried again."""
    await asyncio.sleep(0.3)
    if ctx.attempt < 3:
        raise ConnectionError("connection reset by peer")
    return f"https://studio.example/{album}"


@task(name="studio.render", description="Render the film, scene by scene.")
async def render(ctx: Context, scene_s: float = 0.2) -> dict[str, int]:
    """Saves a checkpoint after each scene; whoever takes it over begins after the last one saved."""
    first = ctx.restored(int) or 0
    if first:
        ctx.log(f"going on after scene {first}, which was saved by an earlier attempt")
    for scene in range(first + 1, FILM_SCENES + 1):
        await asyncio.sleep(scene_s)
        ctx.checkpoint(scene)
        ctx.progress(scene, FILM_SCENES, f"scene {scene}")
    return {"scenes": FILM_SCENES, "rendered_by_this_attempt": FILM_SCENES - first}


@task(name="studio.archive", description="Archive everything there is; it takes for ever.")
async def archive(ctx: Context) -> None:
    """Stops when it is asked to, at the next tape."""
    tape = 0
    while True:
        tape += 1
        ctx.progress(tape, message=f"tape {tape}")
        ctx.raise_if_cancelled()
        await asyncio.sleep(0.2)


@task(name="studio.retouch", description="Retouch a photo, with a plug-in that hangs.", timeout_s=3.0)
async def retouch() -> None:
    """Never comes back; its timeout ends it."""
    await asyncio.sleep(3_600)
