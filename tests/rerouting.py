"""Have a receiver of couplings reached in another way, to see that verification notices."""

from __future__ import annotations

import pytest

from interlock.machine.cascade import CouplingRoute, Wiring


def reroute(monkeypatch: pytest.MonkeyPatch, wiring: Wiring, receiver: str, route: CouplingRoute) -> None:
    """Put the route in place until the test ends; what is remembered of the old one is set aside."""
    monkeypatch.setitem(wiring.routes, receiver, route)
    monkeypatch.setattr(wiring, "known", {})
