"""Defaults that guides name in words are the defaults of the code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from interlock.lifecycles.durations import DEFAULTS

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
SENTENCES = {
    "fleet.md": ("terminate it after {abort_warning_s} seconds and kill it after {abort_kill_s}",),
    "running-an-agent.md": (
        "at most {start_wait_s} seconds ahead",
        "after {abort_warning_s} s terminates it, after {abort_kill_s} s kills it",
        "IDLE again after {start_wait_s} seconds",
    ),
    "running-in-production.md": (
        "| {shutdown_deadline_s} s (`shutdown_deadline_s`) |",
        "Handlers may finish for {shutdown_soft_s} s",
        "`lease_ttl_s` ({lease_ttl_s} s)",
    ),
    "running-workers.md": (
        "without a heartbeat for {worker_silence_s} seconds",
        "may finish for {shutdown_soft_s} seconds",
        "The process exits after {shutdown_deadline_s} seconds",
        "{lease_ttl_s} s, renewed every {heartbeat_every_s} s",
        "forced after {cancel_deadline_s} s",
        "missed after {worker_silence_s} s",
        "stale after {simulation_stale_s} s, interrupted after {simulation_silence_s} s",
    ),
    "simulations.md": ("silent for {simulation_silence_s} s ({simulation_stale_s} s are shown",),
    "when-things-fail.md": ("it has {cancel_deadline_s} seconds",),
    "your-own-workload.md": ("after {abort_warning_s} seconds is terminated, after {abort_kill_s} killed",),
}


@pytest.mark.parametrize("page", SENTENCES)
def test_each_guide_states_the_default_durations_of_the_code(page: str) -> None:
    text = " ".join((GUIDES / page).read_text("utf-8").split())
    defaults = {name: f"{value:g}" for name, value in msgspec.structs.asdict(DEFAULTS).items()}
    missing = [sentence for each in SENTENCES[page] if (sentence := each.format_map(defaults)) not in text]
    assert not missing, f"{page} does not say: {missing}"
