"""Base of all views: conversion to plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of views."""

    def to_dict(self) -> dict[str, Any]:
        """Return the view as plain JSON values: dicts, lists, text and numbers.

        Times are text.
        """
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield names and plain values, for `dict(view)` and for FastAPI."""
        return iter(self.to_dict().items())
