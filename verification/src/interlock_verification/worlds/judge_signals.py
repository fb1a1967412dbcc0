"""The judge of signals: it knows the acknowledged signals, and the answer to each wait."""

from __future__ import annotations

from interlock_verification.worlds.claims.signals import Answer, AnsweredWait, ReceivedSignals, RepeatedWait
from interlock_verification.worlds.network import ClaimWatcher


class SignalJudge:
    """Observes handlers and senders, and reports each answer to a wait."""

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
        if wait in answers:
            self._watcher.check(RepeatedWait(wait, answers[wait], answer), job_id)
        answers[wait] = answer
        got = [value for each in sorted(answers) if (value := answers[each]) is not None]
        self._watcher.check(ReceivedSignals(got), job_id)
        self._meet(job_id, wait)

    def _meet(self, job_id: str, wait: int) -> None:
        sent = [value for value, number in self._sent.get(job_id, {}).items() if number == wait]
        if job_id not in self._forgotten:
            self._watcher.check(AnsweredWait(wait, self._answers[job_id][wait], sent), job_id)
