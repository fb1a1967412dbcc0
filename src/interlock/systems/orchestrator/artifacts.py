"""Files that attempts leave behind: what they say is a blob, and a record beside the job names it.

A file is taken only from whoever holds the live lease of the attempt. That is looked at before the
first byte is read, and again in the commit that writes the record: so a runner that was given up while
it uploaded leaves nothing behind but a blob without a name, which ages and is removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from interlock.errors import ArtifactExists, InterlockError, NoBlobs, UnknownArtifact
from interlock.store.contract import Store
from interlock.store.records import Key, Query, Record
from interlock.systems.blobs.limits import gone
from interlock.systems.blobs.port import Blobs
from interlock.systems.orchestrator.answers import raise_for_answer
from interlock.systems.orchestrator.attachments import ARTIFACT, Artifact, Upload, artifact_key
from interlock.systems.orchestrator.tokens import read_token
from interlock.wire.artifacts import ArtifactView, checked_name, newest
from interlock.wire.runner import Answer, Heartbeat, Message

PAGE = 500

Hear = Callable[[Sequence[Message]], Awaitable[list[Answer]]]


class Artifacts:
    """What attempts have left behind, and how they do it."""

    def __init__(self, store: Store, hear: Hear, blobs: Blobs | None) -> None:
        self._store = store
        self._hear = hear
        self._blobs = blobs

    async def keep(self, token: str, runner_id: str, name: str, pieces: AsyncIterable[bytes]) -> ArtifactView:
        """Keep a file of the attempt that the token is about. The same file again is kept once."""
        checked_name(name)
        blobs = self._place()
        await self._say(Heartbeat(token=token, runner_id=runner_id))
        blob = await blobs.put(pieces)
        if (kept := await self._kept(token, name)) is not None:
            return _same(kept, blob.sha256)
        upload = Upload(token=token, runner_id=runner_id, name=name, sha256=blob.sha256, size=blob.size)
        try:
            await self._say(upload)
        except InterlockError:
            # Somebody else may have brought the same file in the same moment.
            if (kept := await self._kept(token, name)) is None:
                raise
            return _same(kept, blob.sha256)
        kept = await self._kept(token, name)
        assert kept is not None
        return kept

    async def list(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Everything that the attempts of a job have left behind, oldest first."""
        query = Query(kind=ARTIFACT.name, parent=job_id, newest_first=False, limit=PAGE)
        found: list[ArtifactView] = []
        while True:
            page = await self._store.find(query)
            found += map(_view, page.records)
            if not page.cursor:
                return tuple(
                    sorted(found, key=lambda one: (one.created_at, one.shard, one.attempt, one.name))
                )
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def find(self, job_id: str, name: str, attempt: str = "") -> ArtifactView:
        """One of them: of several attempts the last that has left one, unless one is named (`1.2`)."""
        view = newest(await self.list(job_id), name, attempt)
        if view is None:
            raise unknown_artifact(job_id, name, attempt)
        if self._blobs is None or not await self._blobs.has(view.sha256):
            raise gone(view.sha256)
        return view

    def read(self, view: ArtifactView) -> AsyncIterator[bytes]:
        """What it says, piece by piece."""
        return self._place().read(view.sha256)

    @asynccontextmanager
    async def opened(
        self, job_id: str, name: str, attempt: str = ""
    ) -> AsyncIterator[tuple[ArtifactView, AsyncIterator[bytes]]]:
        """One of them, and what it says."""
        view = await self.find(job_id, name, attempt)
        yield view, self.read(view)

    def _place(self) -> Blobs:
        if self._blobs is None:
            raise NoBlobs(
                "There is no folder where artifacts could be kept.",
                todo='Name one in interlock.toml: [blobs] directory = "/srv/interlock/blobs".',
            )
        return self._blobs

    async def _say(self, message: Message) -> None:
        (answer,) = await self._hear([message])
        raise_for_answer(answer)

    async def _kept(self, token: str, name: str) -> ArtifactView | None:
        about = read_token(token)
        assert about is not None  # it was heard
        key: Key = artifact_key(about.job_id, f"{about.shard}.{about.index}", name)
        (record,) = await self._store.load([key])
        return None if record is None else _view(record)


def unknown_artifact(job_id: str, name: str, attempt: str = "") -> UnknownArtifact:
    """The same words from a store and from a server."""
    which = f"The attempt {attempt} of {job_id}" if attempt else job_id
    return UnknownArtifact(
        f"{which} has left nothing behind under the name {name[:64]!r}.",
        todo=f"See what there is: interlock job artifacts {job_id}",
        facts={"job_id": job_id, "name": name[:64]},
    )


def _same(kept: ArtifactView, sha256: str) -> ArtifactView:
    if kept.sha256 == sha256:
        return kept
    raise ArtifactExists(
        f"The attempt has left another file behind under the name {kept.name!r}; that one stays.",
        todo="Use another name.",
        facts={"name": kept.name, "sha256": kept.sha256},
    )


def _view(record: Record) -> ArtifactView:
    body = msgspec.json.decode(record.body, type=Artifact)
    return ArtifactView(
        job_id=record.parent or "",
        name=body.name,
        shard=body.shard,
        attempt=body.attempt,
        size=body.size,
        sha256=body.sha256,
        created_at=record.created_at,
    )
