"""Where the values of secrets come from. A job names them; only its runner is ever given them.

    INTERLOCK_SECRET_NPM_TOKEN=…              a variable of this process: for jobs of every queue

    # the file that INTERLOCK_SECRETS_FILE names, which nobody else may read (mode 0600)
    [secrets]
    NPM_TOKEN = "…"                                      # for jobs of every queue
    DEPLOY_KEY = { value = "…", queues = ["deploy"] }    # for jobs of these queues only

The file goes before the variables, and is read again when it has changed. A value is looked up when a
runner is given the attempt, and goes to it with the grant: no record, journal, log or view has it.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from interlock.errors import InterlockError

PREFIX = "INTERLOCK_SECRET_"
FILE = "INTERLOCK_SECRETS_FILE"
SHORTEST = 4
"""What is shorter cannot be told from other text, and so could not be kept out of logs."""


class NoSecret(InterlockError):
    """A job cannot be given a secret that it names."""

    code = "no_secret"
    status = 422


class _Scoped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: str
    queues: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secrets: dict[str, str | _Scoped] = {}


class Vault:
    """Knows secrets by their names."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._read_at: tuple[str, int, int] | None = None
        self._known: Mapping[str, str | _Scoped] = {}

    def find(self, name: str, queue: str) -> str:
        """The value of a secret for a job of this queue; raises when there is none for it."""
        value = self._in_file(name, queue)
        if value is None:
            value = self._environment.get(f"{PREFIX}{name}")
        if value is None:
            raise NoSecret(
                f"There is no secret {name} for jobs of the queue {queue}.",
                todo=f"Set {PREFIX}{name} where the orchestrator runs, or put it into its file of secrets.",
                facts={"secret": name, "queue": queue},
            )
        if len(value) < SHORTEST:
            raise NoSecret(
                f"The secret {name} is shorter than {SHORTEST} characters: it could not be kept out of logs.",
                todo="Give it a longer value.",
                facts={"secret": name},
            )
        return value

    def _in_file(self, name: str, queue: str) -> str | None:
        path = self._environment.get(FILE)
        known = self._read(Path(path)).get(name) if path else None
        if isinstance(known, _Scoped):
            return known.value if queue in known.queues else None
        return known

    def _read(self, path: Path) -> Mapping[str, str | _Scoped]:
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                    raise _unusable(path, "others than its owner may read or write it", f"chmod 600 {path}")
                version = (str(path), found.st_mtime_ns, found.st_size)
                if version != self._read_at:
                    self._known = msgspec.convert(tomllib.load(file), _File).secrets
                    self._read_at = version
        except OSError as error:
            raise _unusable(path, str(error.strerror), f"Make it readable, or unset {FILE}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError):
            # Whatever could not be read may be a secret, so it is not repeated.
            todo = 'Write it as [secrets], NAME = "value".'
            raise _unusable(path, "it is not as it should be", todo) from None
        return self._known


def _unusable(path: Path, why: str, todo: str) -> NoSecret:
    return NoSecret(f"The file of secrets {path} is not used: {why}.", todo=todo, facts={"file": str(path)})
