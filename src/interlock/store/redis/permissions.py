"""Permissions of a user by the ACL of the server.

The server is asked with ACL DRYRUN, which carries nothing out: since Redis 7, and for users that may ask.
Otherwise nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from interlock.store.permissions import Permission, Severity
from interlock.store.redis.connections import execute_command

KEY, CHANNEL = "KEY", "CHANNEL"
COMMANDS = """
    DECRBY KEY 1|DEL KEY|EVALSHA 0 1 KEY|EXISTS KEY|GET KEY|HDEL KEY f|HGET KEY f|HKEYS KEY|HLEN KEY
    HMGET KEY f|HSET KEY f v|INCR KEY|INFO|LINDEX KEY 0|LLEN KEY|LRANGE KEY 0 1|MGET KEY|MSET KEY v
    PEXPIREAT KEY 1|PING|PUBLISH CHANNEL m|RENAME KEY KEY|RPUSH KEY v|SADD KEY v|SCAN 0|SCRIPT LOAD s
    SET KEY v|SISMEMBER KEY v|SMEMBERS KEY|SREM KEY v|SUBSCRIBE CHANNEL|TIME|TYPE KEY
    XADD KEY * f v|XDEL KEY 1-1|XLEN KEY|XRANGE KEY - +|ZADD KEY 1 v|ZCARD KEY|ZCOUNT KEY 0 1|ZRANGE KEY 0 1
    ZRANGEBYSCORE KEY 0 1|ZREM KEY v|ZREMRANGEBYRANK KEY 0 1
"""
"""The commands of the store and of its scripts, with arguments that the server accepts in a dry run."""


async def permissions_of(connection: AbstractConnection, tag: str, channel: str) -> list[Permission]:
    """Return the permissions; nothing where the server does not say."""
    key = f"{tag}:schema"
    refusals: list[str] = []
    try:
        user = (await execute_command(connection, "ACL", "WHOAMI")).decode()
        for line in commands():
            words = [{KEY: key, CHANNEL: channel}.get(word, word) for word in line]
            answer = await execute_command(connection, "ACL", "DRYRUN", user, *words)
            if answer != b"OK":
                refusals.append(_missing(line, answer.decode(errors="replace")))
    except ResponseError:  # an older server, or a user that may not ask
        return []
    if not refusals:
        return [
            Permission(sentence=f"The user {user} may run all commands of the store on the keys {tag}:*.")
        ]
    rules = list(dict.fromkeys(refusals))
    grants = " ".join(rule.format(tag=tag) for rule in rules)
    return [
        Permission(
            sentence=f"The ACL of the user {user} lacks {grants}.",
            missing=Severity.NOW,
            todo=f"ACL SETUSER {user} {grants}, and ACL SAVE if the server has an ACL file.",
        )
    ]


def commands() -> Iterator[list[str]]:
    """Yield the commands as words."""
    for line in COMMANDS.replace("|", "\n").split("\n"):
        if line.strip():
            yield line.split()


def _missing(line: list[str], refusal: str) -> str:
    """Return the rule that a user lacks, in the words of ACL SETUSER."""
    if "to access the" not in refusal:
        return f"+{'|'.join(line[:2]) if line[0] == 'SCRIPT' else line[0]}".lower()
    return "&{tag}:*" if CHANNEL in line else "~{tag}*"
