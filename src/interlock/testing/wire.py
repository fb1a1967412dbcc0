"""Just enough of two protocols to ask a private server something, so that no driver is needed for it.

For PostgreSQL: one connection, one simple query, answers as text. For Redis: one command.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

_TIMEOUT_S = 30.0
_PROTOCOL = 196_608  # 3.0


Answer: TypeAlias = "str | list[Answer] | None"
"""What Redis answers."""


class ServerRefused(Exception):
    """The server answered with an error."""


def ask_postgres(
    address: Path | tuple[str, int], database: str, statement: str, *, user: str = "postgres"
) -> list[list[str | None]]:
    """Run a statement; the rows that came back, every value as text."""
    with _connected(address) as connection, connection.makefile("rb") as answers:
        words = ("user", user, "database", database, "client_encoding", "UTF8", "")
        startup = struct.pack("!I", _PROTOCOL) + b"".join(word.encode() + b"\0" for word in words)
        connection.sendall(struct.pack("!I", len(startup) + 4) + startup)
        list(_until_ready(answers))
        query = statement.encode() + b"\0"
        connection.sendall(b"Q" + struct.pack("!I", len(query) + 4) + query)
        rows = [_row(payload) for kind, payload in _until_ready(answers) if kind == b"D"]
        connection.sendall(b"X" + struct.pack("!I", 4))
        return rows


def ask_redis(address: Path | tuple[str, int], *words: str) -> Answer:
    """Run a command; its answer, every value as text."""
    with _connected(address) as connection, connection.makefile("rb") as answers:
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return _redis_answer(answers)


def _redis_answer(answers: BinaryIO) -> Answer:
    line = answers.readline().decode().rstrip()
    kind, rest = line[:1], line[1:]
    match kind:
        case "+" | ":":
            return rest
        case "$":
            return None if rest == "-1" else answers.read(int(rest) + 2)[:-2].decode()
        case "*":
            return [_redis_answer(answers) for _ in range(int(rest))]
        case _:
            raise ServerRefused(rest or "The server hung up.")


def _connected(address: Path | tuple[str, int]) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=_TIMEOUT_S)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(str(address))
    except BaseException:
        connection.close()
        raise
    return connection


def _until_ready(answers: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The messages up to the one that says that the server is ready; an error is raised after it."""
    refusal = None
    while head := answers.read(5):
        kind, length = head[:1], struct.unpack("!I", head[1:])[0]
        payload = answers.read(length - 4)
        if kind == b"E":
            fields = {part[:1]: part[1:].decode() for part in payload.split(b"\0") if part}
            refusal = ServerRefused(f"{fields.get(b'C')}: {fields.get(b'M')}")
            if fields.get(b"S") == "FATAL":
                raise refusal
        if kind == b"Z":
            if refusal is not None:
                raise refusal
            return
        yield kind, payload
    raise ServerRefused("The server hung up.")


def _row(payload: bytes) -> list[str | None]:
    values: list[str | None] = []
    place = 2
    for _ in range(struct.unpack("!H", payload[:2])[0]):
        (length,) = struct.unpack_from("!i", payload, place)
        place += 4
        values.append(None if length < 0 else payload[place : place + length].decode())
        place += max(length, 0)
    return values
