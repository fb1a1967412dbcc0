"""The checks of `interlock doctor` about permissions: the store, and the folder of blobs.

Why: decision 0554.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from interlock.cli import project
from interlock.store.permissions import Permission, ReportsPermissions, Severity
from interlock.store.urls import store_for
from interlock.systems.blobs import folder_for
from interlock.systems.catalogue import CATALOGUE


async def store_permissions(here: project.Project) -> list[Permission]:
    """Return the permissions on a store, also if it cannot be opened."""
    store = store_for(here.url, CATALOGUE)
    try:
        return list(await store.permissions()) if isinstance(store, ReportsPermissions) else []
    finally:
        await store.close()


def blob_permissions(here: project.Project) -> Iterator[Permission]:
    """Yield whether the folder of blobs can be written or made."""
    folder = folder_for(here.url, here.settings.blobs)
    if folder is None:
        return
    place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if place.is_dir() and os.access(place, os.R_OK | os.W_OK | os.X_OK):
        made = "can be written" if place == folder else "does not exist yet, and can be made"
        yield Permission(sentence=f"The folder of artifacts and caches, {folder}, {made}.")
        return
    yield Permission(
        sentence=f"Artifacts and caches cannot be stored in {folder}: {_fault_of(place)}.",
        missing=Severity.NOW,
        todo=f"Give this user the right to write to {place}, or name another folder: `directory` in [blobs].",
    )


def _fault_of(place: Path) -> str:
    return f"{place} cannot be written" if place.is_dir() else f"{place} is not a folder"
