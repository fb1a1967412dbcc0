"""The Lua files. Each verb is one script, joined from its common parts and its own."""

from __future__ import annotations

import hashlib
from importlib import resources

import msgspec

from interlock.store.migrations import Migration, migrations_of

MIGRATIONS = migrations_of("interlock.store.redis", "migrations", "lua")
SCHEMA_VERSION = len(MIGRATIONS)


class Script(msgspec.Struct, frozen=True):
    """A script, with its digest on the server."""

    verb: str
    text: str
    sha: str
    writes: bool
    """Whether a missing answer leaves the outcome unknown."""


def _script(verb: str, *parts: str, writes: bool = False) -> Script:
    folder = resources.files(__package__).joinpath("lua")
    texts = [folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in ("common", *parts, verb)]
    return _named(verb, texts, writes)


def migrating(migration: Migration) -> Script:
    """Return the script that applies a migration, or a step of it.

    The store lacks the migration. It uses only `P` and `call`, because a migration never changes and other
    parts do. It answers `more` if it has to be called again.
    """
    floor = migration.number if migration.incompatible else 0
    texts = [
        "local P, call = KEYS[1] .. ':', redis.call",
        f"local NUMBER, FINGERPRINT, FLOOR = {migration.number}, '{migration.fingerprint}', {floor}",
        "if tonumber(call('HGET', P .. 'schema', 'version')) ~= NUMBER - 1 then return end",
        "if FLOOR > 0 then call('SET', P .. 'floor', FLOOR) end",
        f"local more = (function()\n{migration.text}\nend)()",
        "if more then return 'more' end",
        "call('HSET', P .. 'schema', 'version', NUMBER)",
        "call('HSET', P .. 'migrations', NUMBER, FINGERPRINT)",
    ]
    return _named("migrate", texts, writes=True)


def _named(verb: str, texts: list[str], writes: bool) -> Script:
    text = "\n".join((f"local KNOWN = {SCHEMA_VERSION}", *texts))
    return Script(verb, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)


OPEN = _script("open", writes=True)
RAISE_EPOCH = _script("raise_epoch", writes=True)
COMMIT = _script("commit", "placing", "showing", writes=True)
CLAIM = _script("claim", "placing", "answering", writes=True)
DUE = _script("due", "placing", "answering", writes=True)
PRUNE = _script("prune", "placing", "journal", "standing", writes=True)
LOAD = _script("load", "answering")
FIND = _script("find", "standing", "scanning", "answering")
COUNT = _script("count", "standing", "scanning")
NOW = _script("now")
RECALL = _script("recall")
FEED = _script("feed", "journal")
LATEST = _script("latest")
HISTORY = _script("history", "journal")
STATUS = _script("status", "journal")
