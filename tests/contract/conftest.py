"""The contract suite on all stores: one empty database per test."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("interlock.testing.store_contract")

from interlock.testing.store_contract.fixtures import store  # noqa: E402

__all__ = ["store"]
