"""What shell jobs leave behind: files of their folder, kept when the steps have ended, also badly."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from interlock.errors import InterlockError, StoreUnavailable
from interlock.wire.artifacts import checked_name
from interlock.worker.archives import PACKED, copy, found_in, pack
from interlock.worker.context import Context
from interlock.worker.outcomes import StepFailed

T = TypeVar("T")


class Artifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files that are kept under a name: one file as it is, anything else as a tar."""

    name: str
    path: str | list[str]
    """From where the job runs on; `*`, `?`, `[…]` and `**` stand for what they do in a shell."""

    @property
    def paths(self) -> list[str]:
        """All of them."""
        return [self.path] if isinstance(self.path, str) else self.path


def check_names(artifacts: Sequence[Artifact]) -> None:
    """Raise before anything is done for what could not be kept in the end."""
    for one in artifacts:
        checked_name(one.name if one.name.endswith(PACKED) else one.name + PACKED)


async def leave_behind(ctx: Context, artifacts: Sequence[Artifact], base: Path, *, failed: bool) -> None:
    """Keep all of them; one that cannot be kept fails a job that would have succeeded."""
    trouble: StepFailed | None = None
    for one in artifacts:
        try:
            await unless_cancelled(ctx, _leave(ctx, one, base))
        except (InterlockError, OSError) as error:
            told = error.sentence if isinstance(error, InterlockError) else str(error)
            away = isinstance(error, StoreUnavailable | OSError)
            what = f"The artifact {one.name!r} was not kept: {told}"
            ctx.log(what, "error")
            trouble = trouble or StepFailed(
                what, exit_code=None, output="", failure_class="infra" if away else "user"
            )
    if trouble is not None and not failed:
        raise trouble


async def unless_cancelled(ctx: Context, moving: Coroutine[Any, Any, T]) -> T:
    """Somebody who wants the job to stop does not wait for its files."""
    task = asyncio.ensure_future(moving)
    told = asyncio.ensure_future(ctx.wait_cancelled())
    try:
        await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
        ctx.raise_if_cancelled()
        return task.result()
    finally:
        for each in (task, told):
            each.cancel()
        await asyncio.wait((task, told))


async def _leave(ctx: Context, one: Artifact, base: Path) -> None:
    found = await asyncio.to_thread(found_in, base, one.paths)
    if not found.paths:
        ctx.log(f"The artifact {one.name!r} is empty: there is no {', '.join(one.paths)}.", "warning")
        return
    base = base.resolve()
    with tempfile.TemporaryDirectory(prefix="interlock-artifact-") as folder:
        packed = Path(folder) / "packed"
        if found.plain:
            await asyncio.to_thread(copy, base, found.paths[0], packed)
            kept = await ctx.artifact(one.name, packed)
        else:
            left_out = await asyncio.to_thread(pack, base, found.paths, packed)
            if left_out:
                ctx.log(f"Of {one.name!r} {left_out:,} links or special files are left out.", "warning")
            name = one.name if one.name.endswith(PACKED) else one.name + PACKED
            kept = await ctx.artifact(name, packed)
    ctx.log(f"Kept {kept.name}: {kept.size:,} bytes.")
