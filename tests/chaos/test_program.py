"""`python -m interlock_verification.chaos`: what it prints, and what its exit code means."""

from __future__ import annotations

import pytest

from interlock_verification.chaos.__main__ import HARNESSES, main
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging


class Fixed:
    """A harness that finds what it is told to find."""

    NAME, STORES, SHORT, LONG = "fixed", ("memory",), 1, 2

    def __init__(self, *broken_promises: str) -> None:
        self._broken_promises = broken_promises

    def run(self, setup: Setup) -> ChaosVerdict:
        with judging(self.NAME, setup) as verdict:
            verdict.broken_promises += self._broken_promises
        return verdict


def test_the_program_prints_the_command_that_repeats_the_round_and_the_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--only", "random_faults", "--rounds", "5", "--seed", "11"]) == 0
    output = capsys.readouterr().out
    assert (
        "python -m interlock_verification.chaos --only random_faults --store memory --rounds 5 --seed 11\n"
        in output
    )
    assert "5 plans" in output
    assert "300 acknowledged, 0 lost, 0 doubled" in output
    assert "| random_faults | memory | 5 plans, " in output
    assert "All promises were kept." in output


def test_a_broken_promise_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {"fixed": Fixed("one was lost")}) == 1
    output = capsys.readouterr().out
    assert "broken promise: one was lost" in output
    assert "1 harnesses failed." in output


def test_in_broken_mode_it_is_well_when_everything_is_noticed() -> None:
    assert main(["--only", "random_faults", "--rounds", "10", "--seed", "1", "--broken"]) == 0


def test_in_broken_mode_something_unnoticed_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--broken"], {"fixed": Fixed()}) == 1
    assert "not noticed" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(HARNESSES))
def test_every_harness_documents_its_claim_and_its_broken_mode(name: str) -> None:
    words = HARNESSES[name].__doc__ or ""
    assert "Shows: " in words
    assert "Broken mode: " in words
    assert 0 < HARNESSES[name].SHORT < HARNESSES[name].LONG


def test_a_long_list_of_broken_promises_is_cut() -> None:
    verdict = ChaosVerdict(harness="h", setup=Setup(store="s", rounds=1), broken_promises=["no"] * 100)
    assert len(list(verdict.lines())) < 15
    assert "and 92 more" in list(verdict.lines())[-1]
