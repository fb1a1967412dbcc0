"""Profiles: names for stores and servers, with the token of each, in a file of the user.

    use = "prod"

    [profiles.prod]
    url = "https://jobs.example.org:8088"
    token = "il_…"

The file is `~/.config/interlock/profiles.toml` (or below XDG_CONFIG_HOME) and has mode 0600. A token is used
with the URL of its own profile only.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from shlex import quote

import msgspec

from interlock.cli.files import write_whole
from interlock.errors import InvalidSettings, UnknownProfile
from interlock.processes import credentials

VARIABLE = "INTERLOCK_PROFILE"
_CA = "INTERLOCK_CA"
PRIVATE = 0o600


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A store or a server of the user."""

    url: str
    token: str = ""
    ca: str = ""


class Profiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The profiles of the user, and the one in use."""

    use: str = ""
    profiles: dict[str, Profile] = msgspec.field(default_factory=dict)

    def named(self, name: str) -> Profile:
        """Return a profile; raise if there is none of that name."""
        if name not in self.profiles:
            error = UnknownProfile(name, sorted(self.profiles))
            error.todo = f"{error.todo} To create it: interlock config set {quote(name)} URL".lstrip()
            raise error
        return self.profiles[name]


def path() -> Path:
    """Return the file of this user."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "interlock" / "profiles.toml"


def read() -> Profiles:
    """Return the profiles; none if there is no file."""
    file = path()
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Profiles)
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise InvalidSettings(
            f"{file} cannot be read: {error}.",
            todo="Correct it, or remove it and create the profiles again: interlock config set NAME URL",
            facts={"file": str(file)},
        ) from None


def write(found: Profiles) -> None:
    """Write the file, readable by its owner only."""
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"use = {_quoted(found.use)}"] if found.use else []
    for name, profile in sorted(found.profiles.items()):
        fields = msgspec.to_builtins(profile)
        lines += ["", f"[profiles.{_quoted(name)}]", *(f"{key} = {_quoted(fields[key])}" for key in fields)]
    before = os.umask(0o077)
    try:
        write_whole(file, "\n".join([*lines, ""]))
    finally:
        os.umask(before)
    file.chmod(PRIVATE)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # which TOML reads alike


def named_url() -> str | None:
    """Return the URL of the named profile, or None if none is named.

    INTERLOCK_PROFILE or `--profile` names it.
    """
    name = os.environ.get(VARIABLE)
    return _taken(read().named(name)) if name else None


def used_url() -> str | None:
    """Return the URL of the profile in use; None if there is none."""
    found = read()
    return _taken(found.named(found.use)) if found.use else None


def _taken(profile: Profile) -> str:
    """Return a profile's URL; keep its credentials unless some are set."""
    if profile.token and not credentials.token():
        credentials.hold(credentials.TOKEN, profile.token)
    if profile.ca:
        os.environ.setdefault(_CA, profile.ca)
    return profile.url
