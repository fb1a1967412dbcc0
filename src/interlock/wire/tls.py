"""TLS: the certificate authorities that a client trusts, and checks of certificate files."""

from __future__ import annotations

import ssl

from interlock.errors import InvalidSettings

CA = "INTERLOCK_CA"
"""The environment variable that names a file of certificates."""


def trusting(ca: str | None) -> ssl.SSLContext | bool:
    """Only those in this file (PEM), where there is one; otherwise those that the system trusts."""
    return True if ca is None else authorities(ca)


def authorities(ca: str) -> ssl.SSLContext:
    """Trust those who are signed by the certificates in this file (PEM); raises if there are none."""
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"The certificates in {ca} cannot be used: {error}.",
            todo="Give a file in PEM format with the certificate of the authority of the other side.",
            facts={"ca": ca},
        ) from None


def check_pair(certificate: str, key: str) -> None:
    """Raise `InvalidSettings` unless two files (PEM) are a certificate and its private key."""
    try:
        # With a password, though it is empty, an encrypted key is an error and not a question.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"The certificate {certificate} and its key {key} cannot be used: {error}.",
            todo="Give readable files in PEM format that belong together; the key without a password.",
            facts={"certificate": certificate, "key": key},
        ) from None
