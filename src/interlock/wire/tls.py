"""TLS: the certificate authorities that a client trusts, and checks of certificate files."""

from __future__ import annotations

import ssl

from interlock.errors import InvalidSettings

CA = "INTERLOCK_CA"
"""The environment variable that names a file of certificates."""


def trusting(ca: str | None) -> ssl.SSLContext | bool:
    """Return an SSL context that trusts only the certificates of a file (PEM).

    Return True without a file.
    """
    return True if ca is None else authorities(ca)


def authorities(ca: str) -> ssl.SSLContext:
    """Return an SSL context that trusts the certificates of a file (PEM).

    Raise if there are none.
    """
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"The certificates in {ca} cannot be used: {error}.",
            todo="Give a file in PEM format with the certificate of the authority of the other side.",
            facts={"ca": ca},
        ) from None


def check_pair(certificate: str, key: str) -> None:
    """Raise unless two files are a certificate and its private key.

    The error is `InvalidSettings`; the files are in PEM format.
    """
    try:
        # With a password, even an empty one, an encrypted key raises an error instead of prompting.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"The certificate {certificate} and its key {key} cannot be used: {error}.",
            todo="Give readable files in PEM format that belong together; the key without a password.",
            facts={"certificate": certificate, "key": key},
        ) from None
