"""From what the driver raises to what a caller can act on.

What matters most is whether something may have been done. The server refuses a script before its
first write or not at all, so an error that it answers means that nothing was done; an answer that
never came means that nobody knows.
"""

from __future__ import annotations

import re

from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import TimeoutError as DriverTimeout

from interlock.errors import StoreError, StoreMisconfigured, StoreUnavailable
from interlock.store.migrations import too_new
from interlock.store.redis.scripts import SCHEMA_VERSION, Script

_NEWER = re.compile(r"NEWERSCHEMA (\d+)")
NO_ANSWER = (LostConnection, DriverTimeout, OSError, EOFError)
"""What the driver raises when the connection was lost."""

_ONLY_FOR_NOW = {
    "READONLY": ("is a read-only replica", "Wait for the fail-over to end, or point the URL at the primary."),
    "LOADING": ("is still loading its data", "Try again when it has loaded."),
    "MASTERDOWN": ("is a replica that has lost its primary", "Point the URL at the primary."),
    "CLUSTERDOWN": ("belongs to a cluster that is down", "Try again when the cluster is whole."),
    "TRYAGAIN": ("is moving our keys to another node", "Try again in a moment."),
    "OOM": ("is out of memory", "Give it more memory (maxmemory), or prune; then try again."),
    "MISCONF": ("cannot write to its disk", "Mend its disk; its log says what is wrong."),
    "NOREPLICAS": ("has too few replicas to accept writes", "Try again when they are back."),
    "BUSY": ("is busy with somebody's script", "Try again when it has ended (SCRIPT KILL)."),
    "MAXCLIENTS": ("has no room for another client", "Raise its maxclients, or try again."),
}
_SET_UP_WRONG = {
    "NOPERM": "Allow this user all keys that begin with the prefix, the scripting commands and INFO (ACL).",
    "NOAUTH": "Put the user and the password into the URL.",
    "WRONGPASS": "Correct the user and the password in the URL.",
    "MOVED": "Connect to the node that holds the slot of the prefix, or use a server without a cluster.",
    "ASK": "Connect to the node that holds the slot of the prefix, or use a server without a cluster.",
    "CROSSSLOT": "Use a prefix without braces.",
    "WRONGTYPE": "Somebody else has written under this prefix: choose another one.",
}


def closed(shown: str) -> StoreUnavailable:
    """For every call after `close`, and before `open`."""
    return StoreUnavailable(
        f"The store at {shown} is not open; nothing was asked of it.",
        todo="Open a store first, and let nobody use it after it was closed.",
        facts={"url": shown, "outcome": "not done"},
    )


def unreachable(shown: str, why: str, script: Script | None, *, asked: bool) -> StoreUnavailable:
    """For a server that did not answer; `asked` when it may have received what was asked."""
    doubtful = asked and script is not None and script.writes
    outcome = "Whether it was done is unknown." if doubtful else "Nothing was done."
    return StoreUnavailable(
        f"The Redis server at {shown} {why}. {outcome}",
        todo="Read what is there and then decide again." if doubtful else "Try again when it can be reached.",
        facts={"url": shown, "outcome": "unknown" if doubtful else "not done"},
    )


def told(shown: str, error: Exception, script: Script | None, *, asked: bool) -> StoreError:
    """For whatever the driver has raised."""
    if isinstance(error.__cause__, RedisError):  # the driver wraps what the server says to a new connection
        return told(shown, error.__cause__, script, asked=asked)
    words = _words_of(error)
    for word, (what, todo) in _ONLY_FOR_NOW.items():
        if word in words:
            return StoreUnavailable(
                f"The Redis server at {shown} {what}. Nothing was done.",
                todo=todo,
                facts={"url": shown, "outcome": "not done", "answer": word},
            )
    for word, todo in _SET_UP_WRONG.items():
        if word in words:
            return StoreMisconfigured(
                f"The Redis server at {shown} refuses us: {_short(error)}.",
                todo=todo,
                facts={"url": shown, "outcome": "not done", "answer": word},
            )
    if isinstance(error, AuthenticationError | AuthorizationError):
        return StoreMisconfigured(
            f"The Redis server at {shown} refuses us: {_short(error)}.",
            todo=_SET_UP_WRONG["NOAUTH"],
            facts={"url": shown, "outcome": "not done"},
        )
    if isinstance(error, NO_ANSWER):
        return unreachable(shown, f"cannot be reached ({_short(error)})", script, asked=asked)
    if isinstance(error, ResponseError | RedisError):
        return _answered(shown, error)
    raise error


def _answered(shown: str, error: Exception) -> StoreError:
    if newer := _NEWER.search(str(error)):
        return too_new(int(newer[1]), SCHEMA_VERSION, running=True)
    return StoreError(
        f"The Redis server at {shown} answered {_short(error)}.",
        todo="Report this with the version of the server; it should not happen.",
        facts={"url": shown},
    )


def lost_its_place(error: Exception) -> bool:
    """Whether the server is no primary any more, so that every connection to it has to go."""
    return not _words_of(error).isdisjoint({"READONLY", "MASTERDOWN"})


def _words_of(error: Exception) -> set[str]:
    """The server's word for an error comes first, or somewhere inside when a script was running."""
    found = set(re.findall(r"[A-Z]{3,}", f"{getattr(error, 'status_code', None) or ''} {error}"))
    return found | ({"MAXCLIENTS"} if "max number of clients" in str(error) else set())


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:200].rstrip(".")
