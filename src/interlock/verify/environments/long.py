"""Environments for a long evening: together with the quick ones more than five million states."""

from __future__ import annotations

from interlock.verify.jobs.plan import Plan

LONG: tuple[Plan, ...] = ()
