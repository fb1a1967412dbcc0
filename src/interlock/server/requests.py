"""Bodies and queries of requests, with limits.

A body that is too large, too deeply nested or too slow is refused before it is decoded. Errors of decoding
name the place in the body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive

from interlock.errors import (
    ArrivedTooSlowly,
    BadRequest,
    ConflictingRequestIds,
    NotUtf8,
    RequestTooLarge,
    UnsupportedMedia,
)
from interlock.server.limits import Within
from interlock.server.settings import ServerSettings

MAX_PARAMETERS = 50
MAX_REQUEST_ID = 64
MAX_DIGITS = 18
"""Maximum digits of Content-Length; Python refuses to parse thousands of digits."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_ROUNDS = 8
"""Bodies of up to this depth are measured without a look at each bracket."""
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_BYTE = re.compile(r" \(byte (\d+)\)$")
_PLACE = re.compile(r" - at `(.*)`$")

T = TypeVar("T")


class ClientGone(Exception):
    """The client has disconnected before the response."""


async def read_body(
    headers: Mapping[str, str],
    receive: Receive,
    settings: ServerSettings,
    in_time: Within,
    most: int | None = None,
) -> bytes:
    """Return the whole body; raise as soon as it is too large or too slow."""
    limit = settings.max_body_bytes if most is None else most
    check_announced(headers, limit)
    try:
        with in_time:
            body = await _collected(receive, limit, in_time)
    except TimeoutError:
        raise _too_slow(settings.body_s) from None
    check_body(body, headers, settings, most)
    return body


def check_body(
    body: bytes, headers: Mapping[str, str], settings: ServerSettings, most: int | None = None
) -> None:
    """Raise if a body is too large, of another type, or nested too deeply."""
    limit = settings.max_body_bytes if most is None else most
    if len(body) > limit:
        raise _too_large(limit)
    if body:
        if headers.get("content-type") != "application/json" or "content-encoding" in headers:
            _check_media(headers)
        check_depth(body, settings.max_json_depth)


async def stream_body(
    headers: Mapping[str, str], receive: Receive, settings: ServerSettings, most: int
) -> AsyncIterator[bytes]:
    """Yield a large body in chunks.

    Each has to arrive in time, and the total is limited.
    """
    check_announced(headers, most)
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(settings.body_s):
                message = await receive()
        except TimeoutError:
            raise _too_slow(settings.body_s) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > most:
            raise _too_large(most)
        yield piece


def check_announced(headers: Mapping[str, str], limit: int) -> None:
    """Raise if Content-Length exceeds the limit."""
    announced = headers.get("content-length", "0")
    if announced.isdecimal() and (len(announced) > MAX_DIGITS or int(announced) > limit):
        raise _too_large(limit)


async def _collected(receive: Receive, limit: int, in_time: Within) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        in_time.grow(len(parts[-1]))
        if in_time.size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)


def check_text(body: bytes) -> None:
    """Raise if a body is not UTF-8, also where it is stored undecoded."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8("body", error) from None


def check_depth(body: bytes, limit: int) -> None:
    """Raise if values are nested too deeply."""
    if body.count(b"[") + body.count(b"{") <= limit:
        return
    brackets = shallow = _outside_strings(body).translate(None, _NOT_BRACKETS)
    for _ in range(min(limit // 2, _ROUNDS)):  # each takes the innermost pairs out: one level, or two
        shallow = shallow.replace(b"[]", b"").replace(b"{}", b"")
        if not shallow:
            return
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        if depth > limit:
            raise BadRequest(
                f"The JSON is nested more than {limit} deep.",
                todo="Make it flatter; nothing was done.",
                facts={"limit": limit},
            )


def _outside_strings(body: bytes) -> bytes:
    """Return the parts outside strings; most bodies have no escaped quotes."""
    if b"\\" in body:
        return _STRING.sub(b"", body)
    return b"".join(body.split(b'"')[::2])


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode the body; errors name the place in it."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit("body", str(error)) from None
    except msgspec.DecodeError as error:
        raise _malformed(body, str(error)) from None
    except UnicodeDecodeError as error:
        raise _not_utf8("body", error) from None
    except RecursionError:
        raise BadRequest(
            "The JSON is nested too deeply.", todo="Make it flatter; nothing was done."
        ) from None


def read_query(kind: type[T], query: bytes) -> T:
    """Decode the query parameters, each at most once and none unknown."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except UnicodeError as error:
        raise _not_utf8("query", error) from None
    except ValueError as error:
        raise BadRequest(f"The query cannot be read: {error}.", todo="Encode it anew.") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        raise BadRequest(
            "A parameter is there twice.",
            todo="Give each once.",
            facts={"given": [name for name, _ in pairs]},
        )
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _misfit("query", str(error)) from None


def request_id_of(headers: Mapping[str, str], body: Any) -> str | None:
    """Return the request id: from the body, or the header Idempotency-Key."""
    in_header = headers.get("idempotency-key")
    if in_header is not None and len(in_header) > 1 and in_header[0] == in_header[-1] == '"':
        in_header = in_header[1:-1]
    in_body = getattr(body, "request_id", None)
    if in_header is not None and in_body is not None and in_header != in_body:
        raise ConflictingRequestIds(
            "The body and the header Idempotency-Key carry different request ids.",
            todo="Send one of them.",
            facts={"body": in_body, "header": in_header},
        )
    given: str | None = in_body if in_body is not None else in_header
    if given is not None and not (1 <= len(given) <= MAX_REQUEST_ID and given.isprintable()):
        raise BadRequest(
            f"A request id has 1 to {MAX_REQUEST_ID} printable characters.",
            todo="Shorten it; a UUID will do.",
            facts={"length": len(given)},
        )
    return given


def _check_media(headers: Mapping[str, str]) -> None:
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = headers.get("content-encoding", "identity").lower()
    if media != "application/json" and not media.endswith("+json"):
        raise UnsupportedMedia(
            f"The body is {media or 'of no type'}, and has to be application/json.",
            todo="Send it with `Content-Type: application/json`.",
            allowed=["application/json"],
            facts={"content_type": media},
        )
    if encoding != "identity":
        raise UnsupportedMedia(
            f"The body is encoded as {encoding}, which is not supported.",
            todo="Send it without Content-Encoding.",
            allowed=["identity"],
            facts={"content_encoding": encoding},
        )


def _too_slow(limit_s: float) -> ArrivedTooSlowly:
    return ArrivedTooSlowly(
        f"The body of the request did not arrive within {limit_s:g} s.",
        todo="Send it again; nothing was done.",
        facts={"limit_s": limit_s},
    )


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"A request has at most {limit} bytes.",
        todo="Keep large data elsewhere and pass a reference, or submit fewer jobs at once.",
        facts={"limit": limit},
    )


def _not_utf8(where: str, error: UnicodeError) -> NotUtf8:
    return NotUtf8(
        f"The {where} is not UTF-8: {getattr(error, 'reason', error)}.",
        todo="Encode it as UTF-8; nothing was done.",
        facts={"where": where, "byte": getattr(error, "start", 0)},
    )


def _misfit(where: str, message: str) -> BadRequest:
    found = _PLACE.search(message)
    what = _PLACE.sub("", message).replace("`", "")
    place = found[1] if found else "$"
    return BadRequest(
        f"The {where} does not fit at {place}: {what[:1].lower()}{what[1:]}.",
        todo="See /openapi.json for the expected form; nothing was done.",
        facts={"where": where, "path": place},
    )


def _malformed(body: bytes, message: str) -> BadRequest:
    found = _BYTE.search(message)
    what = _BYTE.sub("", message).removeprefix("JSON is malformed: ")
    byte = int(found[1]) if found else len(body)
    before = body[:byte]
    line, column = before.count(b"\n") + 1, byte - (before.rfind(b"\n") + 1) + 1
    return BadRequest(
        f"The body is not JSON: {what[:1].lower()}{what[1:]}, at line {line}, column {column}.",
        todo="Correct it; nothing was done.",
        facts={"byte": byte, "line": line, "column": column},
    )
