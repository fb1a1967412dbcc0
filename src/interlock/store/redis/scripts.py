"""The Lua files. Each verb is one script: what its parts say, one after the other, and then its own."""

from __future__ import annotations

import hashlib
from importlib import resources

import msgspec


class Script(msgspec.Struct, frozen=True):
    """A script as the server knows it."""

    verb: str
    text: str
    sha: str
    writes: bool
    """Whether something may have been changed when no answer comes."""


def _script(verb: str, *parts: str, writes: bool = False) -> Script:
    folder = resources.files(__package__).joinpath("lua")
    text = "\n".join(
        folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in ("common", *parts, verb)
    )
    return Script(verb, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)


OPEN = _script("open", writes=True)
COMMIT = _script("commit", "placing", writes=True)
CLAIM = _script("claim", "placing", writes=True)
DUE = _script("due", "placing", writes=True)
PRUNE = _script("prune", "placing", writes=True)
LOAD = _script("load")
FIND = _script("find", "scanning")
COUNT = _script("count", "scanning")
NOW = _script("now")
RECALL = _script("recall")
FEED = _script("feed", "journal")
LATEST = _script("latest")
HISTORY = _script("history", "journal")
STATUS = _script("status", "journal")
