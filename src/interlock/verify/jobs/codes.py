"""Messages, and what a worker knows, as small numbers: states are hashed and compared by the million.

The numbers follow from what they stand for alone, so that a story is told the same in every run.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple


class Say(IntEnum):
    """What is on its way."""

    ACK = 0
    BEAT = 1
    SUCCESS = 2
    FAILURE = 3
    RELEASE = 4
    STOPPED = 5
    SUBMIT = 6
    CANCEL = 7
    GRANT = 8
    BEGIN = 9
    TOLD = 10
    OVER = 11


ANSWERS = (Say.GRANT, Say.BEGIN, Say.TOLD, Say.OVER)
COMMANDS = (Say.SUBMIT, Say.CANCEL)
FIRST_COMMAND, FIRST_ANSWER = int(Say.SUBMIT), int(Say.GRANT)


class Note(NamedTuple):
    """One message: what, from or to which worker, and about which attempt of which job."""

    say: Say
    worker: int
    job: int
    shard: int
    attempt: int
    number: int


class Phase(IntEnum):
    """What a worker is at."""

    IDLE = 0
    ACKING = 1
    WORKING = 2
    REPORTING = 3


class Hand(NamedTuple):
    """What a worker knows: the attempt it has, how many heartbeats it sent, whether it was told to stop."""

    phase: Phase
    job: int
    shard: int
    attempt: int
    beats: int
    told: int


IDLE = 0


def write_note(say: int, worker: int, job: int, shard: int = 0, attempt: int = 0, number: int = 0) -> int:
    """A message as a number."""
    return ((((say << 2 | worker) << 2 | job) << 2 | shard) << 3 | attempt) << 3 | number


@cache
def read_note(code: int) -> Note:
    """A number as the message it stands for."""
    return Note(Say(code >> 12), code >> 10 & 3, code >> 8 & 3, code >> 6 & 3, code >> 3 & 7, code & 7)


def write_hand(phase: int, job: int, shard: int, attempt: int, beats: int = 0, told: int = 0) -> int:
    """What a worker knows as a number; 0 when it knows nothing."""
    return ((((phase << 2 | job) << 2 | shard) << 3 | attempt) << 3 | beats) << 1 | told


@cache
def read_hand(code: int) -> Hand:
    """A number as what a worker knows."""
    return Hand(Phase(code >> 11), code >> 9 & 3, code >> 7 & 3, code >> 4 & 7, code >> 1 & 7, code & 1)
