"""What a server says when it refuses, as the error that it is here."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec

from interlock.errors import ServerRefused
from interlock.wire.decoders import decode_as


class Problem(msgspec.Struct):
    """As much of a problem as is passed on."""

    code: str = "error"
    error: str = ""
    todo: str = ""
    facts: dict[str, Any] = {}


def refusal_of(response: httpx2.Response) -> ServerRefused:
    """The error of an answer that is none."""
    try:
        problem = decode_as(response.content, Problem)
    except msgspec.DecodeError:
        problem = Problem(error=f"The server answered {response.status_code}, and nothing that can be read.")
    return ServerRefused(
        problem.error or f"The server answered {response.status_code}.",
        todo=problem.todo,
        facts={**problem.facts, "code": problem.code, "status": response.status_code},
    )
