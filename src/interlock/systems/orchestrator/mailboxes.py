"""The mailbox of a job: which signals and waits it has under each name. Pure.

A wait and its signal meet under a number: the first wait for a name gets the first signal of that name, and
so on. The numbers are in the record of the job, so its version orders signals, waits and timeouts. Data and
answers are in records of their own (`waits.py`).

Why: decision 0422.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from interlock.engine.outbox import outgoing
from interlock.errors import InvalidSignal, MailboxFull
from interlock.lifecycles import attempt
from interlock.store.records import Change
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import AttemptBody, JobBody, Mail
from interlock.wire.waits import MAX_KEPT, MAX_NUMBER, OpenWait

CLOSE_WAITS = "job.waits"
"""The topic of messages that a job with signals or waits has ended."""
SIGNAL, APPROVAL, GATE = "signal", "approval", "gate"
NO_MAIL = Mail()


class JobEnded(msgspec.Struct, frozen=True):
    """A message to close the waits and drop the kept signals of a job."""

    job_id: str


def address_of(name: str, *, question: bool) -> str:
    """Return the key of a name in the mailbox."""
    noun = APPROVAL if question else SIGNAL
    return f"{noun}.{name}" if name else noun


def name_in(address: str) -> str:
    """Return the name of a signal or an approval, or "" without one."""
    return address.partition(".")[2]


def id_of(job_id: str, address: str, number: int) -> str:
    """Return the id of the record in which a wait and its answer meet."""
    return f"{job_id}.{address}.{number}"


def open_waits(body: JobBody) -> tuple[OpenWait, ...]:
    """Return the waits of a job that have no answer yet."""
    return tuple(
        OpenWait(
            id=mail.wait, name=name_in(address), question=mail.question, since=mail.since, until=mail.until
        )
        for address, mail in body.mail.items()
        if mail.wait and mail.since is not None and mail.until is not None
    )


def wait_of(one: AttemptBody, body: JobBody) -> OpenWait | None:
    """Return the wait for which an attempt is held back; None if it is not."""
    if not one.awaits or one.state is not attempt.CREATED:
        return None
    return next((each for each in open_waits(body) if each.id == one.awaits), None)


def next_signal(mailbox: Mapping[str, Mail], address: str) -> int:
    """Return the number of the next signal.

    It is for the wait that is open, or else for a later one. Raise if no more can be kept.
    """
    mail = mailbox.get(address, NO_MAIL)
    if mail.wait:
        return mail.asked
    number = max(mail.asked, mail.signalled) + 1
    kept = sum(each.kept for each in mailbox.values())
    facts: dict[str, object] = {"name": name_in(address), "kept": kept, "most": MAX_KEPT}
    if kept >= MAX_KEPT:
        raise MailboxFull(
            f"The job keeps {kept} signals, and its handler has waited for none of them yet.",
            todo="Send it again when the handler has taken some.",
            facts=facts,
        )
    if number > MAX_NUMBER:
        raise MailboxFull(
            f"The job has had {MAX_NUMBER} signals of this name.",
            todo="Use another name, or another job.",
            facts=facts,
        )
    return number


def check_number(mail: Mail, name: str, number: int) -> None:
    """Raise for a wait that skips others of its name."""
    if number > mail.asked + 1:
        raise InvalidSignal(
            f"This is wait {number} for {name or 'an approval'}, after wait {mail.asked}.",
            todo="Wait in the same order whenever the handler runs.",
            facts={"name": name, "number": number, "asked": mail.asked},
        )


def put(draft: JobAggregate, address: str, mail: Mail) -> None:
    """Change the content of the mailbox under a name."""
    draft.body.mail = {**draft.body.mail, address: mail}


def answered(draft: JobAggregate, address: str, *, signalled: int | None = None, wakes: bool = True) -> None:
    """Close the open wait under a name; make its attempts ready.

    The time for which they waited does not count towards the timeout of the job.
    """
    mail = draft.body.mail[address]
    unused = max((mail.until or draft.now) - draft.now, timedelta(0))
    for one in draft.body.attempts:
        if wakes and one.awaits == mail.wait and one.state is attempt.CREATED:
            one.awaits, one.ready_at = "", draft.now
            draft.extend_timer(-unused)
            draft.send_attempt(one, attempt.publish)
    number = mail.signalled if signalled is None else signalled
    put(draft, address, Mail(asked=mail.asked, signalled=number))


def mailbox_messages_of(draft: JobAggregate) -> Iterator[Change]:
    """Yield the message of a job that ends with signals or waits."""
    if draft.body.mail and draft.ended:
        message = msgspec.json.encode(JobEnded(draft.id))
        yield outgoing(f"{draft.id}.waits", CLOSE_WAITS, message, draft.now)
