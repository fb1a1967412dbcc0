"""Decoders that several threads may use from the first moment on.

msgspec looks at a struct when it is first needed, and shows it to other threads before it is done with that;
whoever decodes by it then crashes the process. So one thread at a time makes decoders, and nobody decodes by
one that is not whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

LEARNING = threading.Lock()
"""Held by whoever makes a decoder."""


def decode_as(raw: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """What the JSON says, as one of the types that cross the wire."""
    known: Any = kind
    decoded: T = _decoder_of(known)(raw)
    return decoded


@lru_cache(maxsize=1_024)
def _decoder_of(kind: Any) -> Callable[[bytes | str | msgspec.Raw], Any]:
    with LEARNING:
        return msgspec.json.Decoder(kind).decode
