"""How git is given a secret: as a setting in its environment, for one server only.

Arguments are seen by everybody on a machine, and what is in `.git/config` stays; neither ever holds it. The
header goes to the server of the repository and nowhere else: redirects are not followed with it, and it does
not go over a line that others can read.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import urlsplit

from interlock.errors import InvalidArguments

ANYBODY = "x-access-token"
"""Who a token belongs to, where only the token is given."""
_LOCAL = ("127.0.0.1", "::1", "localhost")


def authorization(address: str, secret: str) -> dict[str, str]:
    """The settings with which git shows a secret, `TOKEN` or `USER:PASSWORD`, to the server of an address."""
    check_secret(address)
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = f":{parts.port}" if parts.port is not None else ""
    pair = secret if ":" in secret else f"{ANYBODY}:{secret}"
    header = base64.b64encode(pair.encode()).decode()
    return {
        f"http.{parts.scheme}://{host}{port}/.extraHeader": f"Authorization: Basic {header}",
        "http.followRedirects": "false",
    }


def check_secret(address: str) -> None:
    """Raise for an address to which a secret cannot be given, or must not."""
    parts = urlsplit(address)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL):
        return
    raise InvalidArguments(
        "A secret for git goes over https only.",
        todo="Give the address of the repository as https://HOST/PATH; for ssh the machine has a key.",
        facts={"protocol": parts.scheme},
    )


def as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of git as its environment carries them."""
    made = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made
