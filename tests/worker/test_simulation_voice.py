"""The voice of simulations ends with its worker, and leaves nothing half-said behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from interlock.errors import StoreUnavailable
from interlock.wire.simulations import Beat
from interlock.worker.simulation_channel import Simulators


class Deaf:
    """A store that takes every word and answers none."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    async def connect(self) -> None:
        """There is nothing to connect to."""

    async def disconnect(self) -> None:
        """Nor to let go of."""

    async def simulate(self, *_: object) -> Any:
        self.asked.set()
        await asyncio.Event().wait()


def test_a_simulation_message_after_the_shutdown_is_refused_without_an_unawaited_coroutine() -> None:
    store = Deaf()
    voice = Simulators(lambda: store, "runner#1")  # type: ignore[arg-type, return-value]
    future = voice.send("token", Beat(step=1), PATIENCE_S)
    assert store.asked.wait(PATIENCE_S)
    voice.stop(PATIENCE_S)
    assert future.cancelled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StoreUnavailable, match="its worker is shutting down"):
            voice.send("token", Beat(step=2), PATIENCE_S)
        gc.collect()
