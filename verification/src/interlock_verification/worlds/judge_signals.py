"""Claims about signals: each is received once, in order, and again by a handler that runs again."""

from __future__ import annotations

from interlock_verification.worlds.network import ClaimWatcher

AGAIN = "a handler that runs again gets the answers that it got before"
ONCE = "a signal is received once, in the order of sending"
MET = "an acknowledged signal is the answer to the wait of its number"

SHUT = "no wait is open, and no signal is kept, when every job has ended"

Answer = int | None
"""The number that a signal carried; None for a wait that has timed out."""


class SignalJudge:
    """Observes handlers and senders, and checks every claim about signals."""

    def __init__(self, watcher: ClaimWatcher, forgotten: set[str]) -> None:
        self._watcher = watcher
        self._forgotten = forgotten
        self._answers: dict[str, dict[int, Answer]] = {}
        """By job, the answer to each wait."""
        self._sent: dict[str, dict[int, int]] = {}
        """By job, the number of the wait that each acknowledged signal is for."""

    def sent(self, job_id: str, value: int, wait: int, state: str) -> None:
        """Handle an acknowledged signal."""
        self._watcher.saw("a signal wakes a job" if state == "RECEIVED" else "a signal comes before the wait")
        self._sent.setdefault(job_id, {})[value] = wait
        if wait in self._answers.get(job_id, {}):
            self._meet(job_id, wait)

    def received(self, job_id: str, wait: int, answer: Answer) -> None:
        """Handle the answer that a handler got to one of its waits."""
        if answer is None:
            self._watcher.saw("a wait times out")
        answers = self._answers.setdefault(job_id, {})
        if job_id in self._forgotten:
            return
        if wait in answers and answers[wait] != answer:
            self._watcher.broke(AGAIN, f"wait {wait} got {answers[wait]}, then {answer}", job_id)
        answers[wait] = answer
        got = [answers[each] for each in sorted(answers) if answers[each] is not None]
        if got != sorted(set(got), key=lambda value: value or 0):
            self._watcher.broke(ONCE, f"the handler got {got}", job_id)
        self._meet(job_id, wait)

    def _meet(self, job_id: str, wait: int) -> None:
        answer = self._answers[job_id][wait]
        meant = [value for value, number in self._sent.get(job_id, {}).items() if number == wait]
        if job_id not in self._forgotten and meant and meant != [answer]:
            self._watcher.broke(MET, f"wait {wait} got {answer}, and signal {meant[0]} was for it", job_id)
