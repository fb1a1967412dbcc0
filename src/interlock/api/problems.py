"""The body of every error (problem+json, RFC 9457).

    {"type": "/docs#unknown_job", "title": "No job has this id.", "status": 404, "code": "unknown_job",
     "error": "There is no job j_0123456789ab.", "facts": {"job_id": "j_0123456789ab"}, "allowed": [],
     "todo": "Look for it with `interlock job list`; …", "request": "5f3a9c01d2e4b687"}

`type` links to the page of the server that explains the code; `title` is the same for every error of
a code, `error` is specific; `request` is the id of the request in the server's log.
"""

from __future__ import annotations

from typing import Any

import msgspec

MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every error."""

    type: str
    title: str
    status: int
    code: str
    error: str
    facts: dict[str, Any] = {}
    allowed: tuple[str, ...] = ()
    todo: str = ""
    request: str = ""
