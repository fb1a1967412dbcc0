"""`check_lifecycle`: put a machine of your own to every order of its events.

    def test_a_ticket_keeps_its_promises() -> None:
        check_lifecycle(TICKET)

It raises `LifecycleBroken` with the shortest story that breaks a claim.
"""

from __future__ import annotations

from interlock.verify.lifecycles import Answer, Here, Lifecycle, LifecycleBroken, check_lifecycle, must
from interlock.verify.model_checker import always, eventually, sometimes

__all__ = [
    "Answer",
    "Here",
    "Lifecycle",
    "LifecycleBroken",
    "always",
    "check_lifecycle",
    "eventually",
    "must",
    "sometimes",
]
