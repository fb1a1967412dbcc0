"""A request that is sent again after what it did can no longer be done again.

Whoever repeats the cancel of a job that has ended by now is not refused: the request was carried
out, and its answer stands.
"""

from __future__ import annotations

from interlock.errors import TransitionRefused
from interlock.server.declaring import Call
from interlock.store.records import Recorded


async def answered_before(call: Call, endpoint: str, refused: TransitionRefused) -> Recorded:
    """What this very request was answered when it was done; raises the refusal when it never was."""
    if call.request_id is not None:
        recorded = await call.parts.store.recall(call.request_id)
        if recorded is not None and recorded.endpoint == endpoint:
            return recorded
    raise refused
