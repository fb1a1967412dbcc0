"""Doing several things side by side, to the end: one that fails does not cut the others short."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def all_of(doing: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it; raises the first failure, when everything has ended."""
    waiting = list(doing)
    if len(waiting) == 1:
        await waiting[0]  # no task is needed for one thing
        return
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
