"""Lease tokens, which authorise reports about one attempt, and the errors for an ended lease.

Why: decisions 0120 and 0167.
"""

from __future__ import annotations

import hashlib
import hmac
import re

import msgspec

from interlock.errors import (
    CacheRefused,
    ConflictingCompletion,
    InterlockError,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    TooLarge,
    UnknownLease,
    WrongRunner,
)
from interlock.wire.runner import Answer, Heard, NotHeard, Stale

_SHAPE = re.compile(r"([\w-]{1,64})\.(\d{1,4})\.(\d{1,6})\.([0-9a-f]{32})", re.ASCII)

EPOCH_SHIFT = 32
"""A fence has the epoch above and the version below, within the exact range of JSON and doubles."""


class Token(msgspec.Struct, frozen=True, gc=False):
    """A parsed token."""

    job_id: str
    shard: int
    index: int
    secret: str
    digest: str
    """The stored digest of the secret."""

    def __str__(self) -> str:
        return f"{self.job_id}.{self.shard}.{self.index}.{self.secret}"

    def __repr__(self) -> str:
        return f"<token of {self.job_id}.{self.shard}.{self.index}>"

    def opens(self, digest: str) -> bool:
        """Return whether the digest is of this secret, in constant time."""
        return hmac.compare_digest(self.digest, digest)


def secret_of(seed: bytes) -> str:
    """Return the secret of all leases of a claim."""
    return hashlib.blake2s(seed, digest_size=16, person=b"claim").hexdigest()


def token_for(seed: bytes, job_id: str, shard: int, index: int) -> Token:
    """Return the token of one attempt in one claim."""
    secret = secret_of(seed)
    return Token(job_id, shard, index, secret, digest_of(secret))


def token_of_its_own(seed: bytes, job_id: str, shard: int, index: int) -> Token:
    """Return an attempt's own token, as claims of an earlier version had."""
    named = f"{job_id}.{shard}.{index}".encode()
    secret = hashlib.blake2s(seed + named, digest_size=16).hexdigest()
    return Token(job_id, shard, index, secret, digest_of(secret))


def is_the_same(text: str, known: str) -> bool:
    """Return whether two tokens are equal; compared in constant time."""
    return text.isascii() and hmac.compare_digest(text, known)


def job_of(text: str) -> str:
    """Return the job of a token, if it is valid."""
    return text.partition(".")[0]


def read_token(text: str) -> Token | None:
    """Parse a token; return None if it is invalid."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        return None
    job_id, shard, index, secret = found.groups()
    return Token(job_id, int(shard), int(index), secret, digest_of(secret))


def digest_of(secret: str) -> str:
    """Return the stored digest of a secret."""
    return hashlib.blake2s(secret.encode(), digest_size=16).hexdigest()


def fence_of(epoch: int, version: int) -> int:
    """Return a number that grows with each grant, also after a fail-over."""
    return (epoch << EPOCH_SHIFT) | version


def version_of(fence: int) -> int:
    """Return the version of the record in which the grant was made."""
    return fence & ((1 << EPOCH_SHIFT) - 1)


_ERRORS: dict[str, type[InterlockError]] = {
    error.code: error
    for error in (
        LeaseExpired,
        LeaseRevoked,
        UnknownLease,
        WrongRunner,
        ConflictingCompletion,
        TooLarge,
        CacheRefused,
    )
}


def raise_for_answer(answer: Answer) -> Heard:
    """Return an accepting answer; raise for any other."""
    match answer:
        case Heard():
            return answer
        case Stale(code=code, error=error, todo=todo):
            raise _ERRORS[code](error, todo=todo)
        case NotHeard(code=code, error=error, todo=todo, facts=facts):
            raise _ERRORS.get(code, MessageRefused)(error, todo=todo, facts={**facts, "refusal": code})
