"""Whose word a client takes for it that a server is the one it wants."""

from __future__ import annotations

import ssl

from interlock.errors import InvalidSettings

CA = "INTERLOCK_CA"
"""The environment variable that names a file of certificates."""


def trusting(ca: str | None) -> ssl.SSLContext | bool:
    """Only those in this file (PEM), where there is one; otherwise those that the system trusts."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"The certificates in {ca} cannot be used: {error}.",
            todo="Give a file in PEM format with the certificate of whoever has signed that of the server.",
            facts={"ca": ca},
        ) from None
