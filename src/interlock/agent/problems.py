"""A refusal over gRPC: a status that says what kind it is, and the same words as everywhere else."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
import msgspec
from grpc import aio

from interlock.errors import InterlockError

PROBLEM = "interlock-problem-bin"
"""The metadata in which the whole problem travels, as JSON."""

_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.UNAVAILABLE,
}


async def refuse(context: aio.ServicerContext[Any, Any], error: InterlockError) -> NoReturn:
    """End the call with what went wrong."""
    problem = msgspec.json.encode(error.as_dict(), enc_hook=str)
    code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
    await context.abort(code, error.sentence, ((PROBLEM, problem),))
