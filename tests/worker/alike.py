"""Alike jobs on a board, as many as a test wants, and what becomes of them."""

from __future__ import annotations

from tests.worker.board import Board, Job


def pinned(board: Board, number: int = 5) -> list[Job]:
    return [board.pin("numbered", {"number": place}) for place in range(number)]


async def all_succeeded(board: Board, jobs: list[Job], *, but: Job | None = None) -> None:
    for place, job in enumerate(jobs):
        if job is not but:
            await board.until_state(job, "succeeded")
            assert job.result == place
            assert (job.attempts, job.losses) == (1, 0)
