"""A step in words: what happens, then the rows of the tables that are taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock.store.records import StepLine
from interlock.verify.jobs.codes import Say, read_note

if TYPE_CHECKING:
    from interlock.verify.jobs.orchestrators import Done

_SAID = {
    Say.ACK: "takes it",
    Say.BEAT: "is still at it",
    Say.SUCCESS: "has succeeded",
    Say.FAILURE: "has failed",
    Say.RELEASE: "gives it back",
    Say.STOPPED: "has stopped, as asked",
}
_ANSWERS = {
    Say.GRANT: "receives the grant",
    Say.BEGIN: "is told to begin",
    Say.TOLD: "is told to stop",
    Say.OVER: "is told that it is over",
}


def tell(done: Done, before: Any, after: Any) -> list[str]:
    """The step as a sentence, and under it what the tables say."""
    told = [_sentence(done)]
    if done.entry is not None:
        told += [f"  answer: {done.entry.said}"] if done.entry.said else []
        told += rows(done.entry.lines)
    if len(after) == 5 and len(after[2]) > len(before[2]) + 1:
        told.append("  what was on its way under an ended lease is answered now")
    return told


def rows(lines: Sequence[StepLine]) -> list[str]:
    """The rows of the tables that were taken, as the journal has them."""
    return [
        f"  {line.machine + ' ' + line.entity if line.entity else line.machine}: "
        + (f"{line.source} → {line.target}" if line.moves else f"stays {line.target}")
        + f" by {line.event}"
        for line in lines
    ]


def _sentence(done: Done) -> str:
    job, worker = f"job {done.job + 1}", f"worker {done.who + 1}"
    what = done.what.removeprefix("decide ")
    by = "An orchestrator decides, and has yet to commit: " if done.what.startswith("decide ") else ""
    sentences = {
        "tick": "A tick passes.",
        "sweep": f"a sweep deals with what is overdue of {job}.",
        "submit": f"{job} is submitted.",
        "claim": f"{worker} asks for work and is given {_attempt(done)} of {job}.",
        "commit": f"an orchestrator commits what it decided about {job}: {_op(done.code)}.",
        "refused": f"the store refuses a commit about {job}: {_op(done.code)} was decided on an old version.",
        "orchestrator dies": f"an orchestrator dies with a decision about {job}: {_op(done.code)}.",
        "cancel": f"a user wants {job} stopped.",
        "release": f"the run's order reaches {job}: it may begin.",
        "stop": f"the run's order reaches {job}: it shall stop.",
        "crash": f"{worker} is killed and started again.",
    }
    sentence = sentences[what] if what in sentences else _about(done, what, job, worker)
    return by + sentence if by else sentence[0].upper() + sentence[1:]


def _about(done: Done, what: str, job: str, worker: str) -> str:
    note = read_note(done.code)
    about = f"{job} {note.shard}.{note.attempt}"
    if note.say is Say.CANCEL:
        again = "again, which the store remembers" if done.entry is None else "is carried out"
        return f"the user's cancel of {job} arrives and {again}."
    if what == "answer":
        return f"{worker} {_ANSWERS[note.say]}: {about}."
    if what == "lose":
        return f"the grant of {about} to worker {note.worker + 1} is lost on its way."
    said = _SAID[note.say]
    if what == "say":
        return f"{worker} says of {about}: it {said}."
    if what == "again":
        return f"the orchestrator looks again, and hears of {about} from {worker}: it {said}."
    return f"an orchestrator hears of {about} from {worker}: it {said}."


def _attempt(done: Done) -> str:
    return f"{done.entry.shard}.{done.entry.index}" if done.entry is not None else "something"


def _op(op: int) -> str:
    if op == -8:
        return "a sweep"
    if op < 0:
        return f"a claim of worker {-op}"
    note = read_note(op)
    if note.say is Say.CANCEL:
        return "a user's cancel"
    said = _SAID.get(note.say, "is answered")
    return f"worker {note.worker + 1} {said} ({note.shard}.{note.attempt})"
