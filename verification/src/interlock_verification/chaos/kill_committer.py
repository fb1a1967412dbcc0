"""kill -9 of the process that commits, at a random moment, again and again.

Shows: commits that were acknowledged to a process are stored after it was killed, at any moment, and
none of them twice; the next process finds a consistent database and continues.

Broken mode: the process acknowledges each step before it has committed it.

The processes are forked from one with everything imported, since starting them would take longer than their
life. Each is killed after a random number of acknowledgements and a random delay, one in eight while it is
still opening the store. Acknowledgements come through a pipe: those in the pipe at the death count.
"""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from multiprocessing.connection import Connection

from interlock_verification.chaos.counters import audited, clients_of, examine, keep_counting
from interlock_verification.chaos.databases import ALL_STORES, database, opened
from interlock_verification.chaos.forks import FORKS
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "kill_committer"
STORES = ALL_STORES
SHORT, LONG = 15, 1_000

ERA = 50
"""Kills between two checks. Each era has its own records, to bound the time of a check."""
MOST_ACKNOWLEDGED = 60
_GIVE_UP_S = 60.0
_FAILED = b"!"


def run(setup: Setup) -> ChaosVerdict:
    """Kill a process in every round."""
    dice = random.Random(setup.seed)
    with judging(NAME, setup) as verdict, database(setup.store) as url:
        acknowledged: set[str] = set()
        for number in range(setup.rounds):
            era = f"era{number // ERA}"
            acknowledged |= _one_life(url, era, f"r{number}", dice, verdict)
            verdict.add(kills=1)
            if (number + 1) % ERA == 0 or number + 1 == setup.rounds:
                asyncio.run(_judge(url, era, acknowledged, verdict))
                acknowledged = set()
    verdict.remarks.append(f"{verdict.rate('kills'):,.0f} kills a minute")
    return verdict


async def _judge(url: str, era: str, acknowledged: set[str], verdict: ChaosVerdict) -> None:
    async with opened(url) as store:
        found = await examine(store, acknowledged, era=era)
        verdict.add(
            acknowledged=found.acknowledged,
            applied=found.applied,
            lost=len(found.lost),
            doubled=len(found.doubled),
        )
        verdict.broken_promises += found.sentences()
        verdict.broken_promises += await audited(store)


def _one_life(url: str, era: str, name: str, dice: random.Random, verdict: ChaosVerdict) -> set[str]:
    """Let a process count, kill it, and return the acknowledged steps."""
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_count, args=(theirs, url, era, name, verdict.setup.broken), daemon=True)
    process.start()
    theirs.close()
    acknowledged: set[str] = set()
    wanted = 0 if dice.random() < 1 / 8 else dice.randint(1, MOST_ACKNOWLEDGED)
    try:
        while len(acknowledged) < wanted and (message := _acknowledged(ours)):
            acknowledged.add(message)
        time.sleep(dice.random() * (0.003 if wanted else 0.1))  # the random delay
        process.kill()
        while message := _acknowledged(ours):
            acknowledged.add(message)
    except _CommitterFailed as failure:
        verdict.blame(f"the process failed by itself in {name}: {failure}")
    finally:
        process.kill()
        process.join(_GIVE_UP_S)
        ours.close()
    return acknowledged


class _CommitterFailed(Exception):
    """The process ended before it was killed."""


def _acknowledged(pipe: Connection) -> str:
    """Return the next acknowledgement; empty at the end."""
    if not pipe.poll(_GIVE_UP_S):
        raise _CommitterFailed(f"it printed nothing for {_GIVE_UP_S:g} s")
    try:
        message = pipe.recv_bytes()
    except EOFError:
        return ""
    if message.startswith(_FAILED):
        raise _CommitterFailed(message[1:].decode())
    return message.decode()


def _count(pipe: Connection, url: str, era: str, name: str, early: bool) -> None:
    """Count, in the process that will be killed."""

    async def count() -> None:
        async with opened(url) as store:
            clients = clients_of(store, era)
            await keep_counting(clients, name, lambda intent: pipe.send_bytes(intent.encode()), early=early)

    try:
        asyncio.run(count())
    except BrokenPipeError:
        pass  # the harness has ended
    except BaseException:  # noqa: BLE001 - any exception is reported
        pipe.send_bytes(_FAILED + traceback.format_exc()[-2_000:].encode())
