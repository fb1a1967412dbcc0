"""The error tree, drawn once.

Every error that a user can meet is one of these. Each carries a stable `code`, a sentence, the
facts it is about, what would have been allowed and what to do next; the API, the command line and
the dashboard all show the same words, and the API answers with `status`.

    InterlockError
    ├── MalformedTable            malformed_table          422  a declaration with faults, all of them listed
    ├── MalformedCouplings        malformed_couplings      422  the same for a list of couplings
    ├── MalformedBlueprint        malformed_blueprint      422  a file that is not an exported table
    ├── CannotLoad                cannot_load              422  a module, or something in it, that is no use
    ├── CannotWrite               cannot_write             500  a file that cannot be written
    ├── InvalidSettings           invalid_settings         422  durations that contradict each other
    ├── StoreError
    │   ├── BadStoreUrl           bad_store_url            422
    │   ├── StoreUnavailable      store_unavailable        503  the outcome may be unknown
    │   ├── StoreMisconfigured    store_misconfigured      503
    │   ├── StoreTooOld           store_too_old            503  the server's version
    │   ├── SchemaTooNew          schema_too_new           503  written by a newer program
    │   ├── ForeignSchema         foreign_schema           503  somebody else's tables
    │   ├── InvalidRecord         invalid_record           422
    │   ├── TooLarge              too_large                413
    │   └── PruneRefused          prune_refused            409
    ├── ServerRefused             server_refused           409  what a server has answered, in its own words
    ├── RunnerError
    │   ├── LeaseExpired          LEASE_EXPIRED            409  the runner was not heard in time
    │   ├── LeaseRevoked          LEASE_REVOKED            409  the right to execute was taken away
    │   ├── UnknownLease          UNKNOWN_LEASE            409
    │   ├── WrongRunner           wrong_runner             409  the lease belongs to another one
    │   └── MessageRefused        message_refused          409
    ├── CommitFailed
    │   ├── Contended             contended                409  others were faster, again and again
    │   ├── RequestIdReused       request_id_reused        409  the id belongs to another request
    │   └── IllegalChange         illegal_change           500  the store has refused a state
    ├── JobError
    │   ├── InvalidJob            invalid_job              422  a submission that breaks a rule
    │   ├── UnknownJob            unknown_job              404
    │   ├── InvalidArguments      invalid_arguments        422  they do not fit the task
    │   ├── NotJson               not_json                 422  a value that JSON cannot hold
    │   ├── ConflictingCompletion conflicting_completion   409  it ended before, in another way
    │   ├── JobFailed             job_failed               409  there is no result, and this is why
    │   ├── JobCanceled           job_canceled             409  the same for a job that was stopped
    │   └── ResultNotReady        result_not_ready         409  it has not ended yet
    ├── UnknownName
    │   ├── UnknownKind           unknown_kind             422
    │   ├── UnknownMachine        unknown_machine          404
    │   ├── UnknownState          unknown_state            422
    │   ├── UnknownEvent          unknown_event            422
    │   └── UnknownTask           unknown_task             422  no function goes by that name
    └── TransitionRefused
        ├── AlreadyThere          already_there            409
        ├── TerminalState         terminal_state           409
        ├── TransitionNotAllowed  transition_not_allowed   409
        ├── EventIgnored          event_ignored            409
        └── GuardRefused          guard_refused            409
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import ClassVar


class InterlockError(Exception):
    """Something that a user asked for cannot be done, and this is why."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(
        self,
        sentence: str,
        *,
        allowed: Iterable[str] = (),
        todo: str = "",
        facts: dict[str, object] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.allowed: tuple[str, ...] = tuple(allowed)
        self.todo = todo
        self.facts: dict[str, object] = dict(facts or {})

    def as_dict(self) -> dict[str, object]:
        """The error as the API and `--json` show it."""
        return {
            "code": self.code,
            "status": self.status,
            "error": self.sentence,
            "facts": self.facts,
            "allowed": list(self.allowed),
            "todo": self.todo,
        }


class MalformedTable(InterlockError):
    """A machine was declared with faults; nothing was made of it."""

    code = "malformed_table"
    status = 422


class MalformedCouplings(InterlockError):
    """Couplings were declared with faults; nothing was made of them."""

    code = "malformed_couplings"
    status = 422


class MalformedBlueprint(InterlockError):
    """A file that should hold an exported table does not."""

    code = "malformed_blueprint"
    status = 422


class CannotLoad(InterlockError):
    """A module, or something in it, that cannot be imported or used as what it should be."""

    code = "cannot_load"
    status = 422


class CannotWrite(InterlockError):
    """A file that cannot be written; nothing was changed."""

    code = "cannot_write"
    status = 500


class InvalidSettings(InterlockError):
    """Settings that are out of range or contradict each other."""

    code = "invalid_settings"
    status = 422


class StoreError(InterlockError):
    """The store cannot do, or will not do, what it was asked for."""

    code = "store_error"
    status = 500


class BadStoreUrl(StoreError):
    """The URL names no store."""

    code = "bad_store_url"
    status = 422


class StoreUnavailable(StoreError):
    """The database did not answer in time; whether a commit happened may be unknown."""

    code = "store_unavailable"
    status = 503


class StoreMisconfigured(StoreError):
    """The database is set up in a way in which promises could not be kept."""

    code = "store_misconfigured"
    status = 503


class StoreTooOld(StoreError):
    """The database server is older than what is needed."""

    code = "store_too_old"
    status = 503


class SchemaTooNew(StoreError):
    """The schema was written by a newer program than this one."""

    code = "schema_too_new"
    status = 503


class ForeignSchema(StoreError):
    """The database holds somebody else's tables under our names."""

    code = "foreign_schema"
    status = 503


class InvalidRecord(StoreError):
    """A record or commit that breaks the rules of the store; nothing was written."""

    code = "invalid_record"
    status = 422


class TooLarge(StoreError):
    """A body is larger than the store takes; nothing was written."""

    code = "too_large"
    status = 413


class PruneRefused(StoreError):
    """Only what has ended may be pruned."""

    code = "prune_refused"
    status = 409


class ServerRefused(InterlockError):
    """A server has refused a request; the sentence is its own, and `facts` have its code and status."""

    code = "server_refused"
    status = 409


class RunnerError(InterlockError):
    """What a runner says is not heard; nothing was changed."""

    code = "runner_error"
    status = 409


class LeaseExpired(RunnerError):
    """The lease has expired: the runner was not heard in time, and somebody else may have the work."""

    code = "LEASE_EXPIRED"


class LeaseRevoked(RunnerError):
    """The lease was taken away: the attempt timed out, was cancelled by force, or was given back."""

    code = "LEASE_REVOKED"


class UnknownLease(RunnerError):
    """There is no live lease with that token."""

    code = "UNKNOWN_LEASE"


class WrongRunner(RunnerError):
    """The lease belongs to another runner."""

    code = "wrong_runner"


class MessageRefused(RunnerError):
    """The lease lives, but what was said under it cannot be: `facts` say why."""

    code = "message_refused"


class CommitFailed(InterlockError):
    """What was decided did not become true; nothing was changed."""

    code = "commit_failed"
    status = 409


class Contended(CommitFailed):
    """Others changed the record first, each time it was tried."""

    code = "contended"


class RequestIdReused(CommitFailed):
    """The request id was used before, for something else."""

    code = "request_id_reused"


class IllegalChange(CommitFailed):
    """The store refused a change of state that no path of the table allows: a fault of the program."""

    code = "illegal_change"
    status = 500


class JobError(InterlockError):
    """Something about a job, its arguments or its result is not as it was asked for."""

    code = "job_error"
    status = 500


class InvalidJob(JobError):
    """A job that breaks a rule of submission; nothing was stored."""

    code = "invalid_job"
    status = 422


class UnknownJob(JobError):
    """No job has that id."""

    code = "unknown_job"
    status = 404


class InvalidArguments(JobError):
    """The arguments do not fit the task."""

    code = "invalid_arguments"
    status = 422


class NotJson(JobError):
    """A value that JSON cannot hold, and where in the whole it is."""

    code = "not_json"
    status = 422


class ConflictingCompletion(JobError):
    """The attempt has ended before, in another way; what was reported first stays."""

    code = "conflicting_completion"
    status = 409


class JobFailed(JobError):
    """The job has failed, so there is no result."""

    code = "job_failed"
    status = 409


class JobCanceled(JobError):
    """The job was canceled, so there is no result."""

    code = "job_canceled"
    status = 409


class ResultNotReady(JobError):
    """The job has not ended yet, so there is no result so far."""

    code = "result_not_ready"
    status = 409


class UnknownName(InterlockError):
    """A name that is not known here; the known ones are in `allowed`."""

    code = "unknown_name"
    status = 404
    noun: ClassVar[str] = "name"

    def __init__(self, name: object, known: Sequence[str], *, where: str = "") -> None:
        self.name, self.known, self.where = str(name), tuple(known), where
        near = nearest(self.name, known) if self.name not in known else None
        place = f" of {where}" if where else ""
        guess = f" Did you mean {near}?" if near else ""
        super().__init__(
            f"There is no {self.noun} {self.name!r}{place}.{guess}",
            allowed=known,
            todo=f"Use one of: {', '.join(known)}." if known else "",
            facts={self.noun: self.name, "known": list(known)},
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _unknown_name, (type(self), self.name, self.known, self.where)


def _unknown_name(kind: type[UnknownName], name: str, known: tuple[str, ...], where: str) -> UnknownName:
    """Made anew from its facts when it comes from another process."""
    return kind(name, known, where=where)


class UnknownMachine(UnknownName):
    """No machine goes by that name."""

    code = "unknown_machine"
    noun = "machine"


class UnknownKind(UnknownName):
    """The store has no such kind of record."""

    code = "unknown_kind"
    status = 422
    noun = "kind"


class UnknownState(UnknownName):
    """The machine has no such state."""

    code = "unknown_state"
    status = 422
    noun = "state"


class UnknownEvent(UnknownName):
    """The machine has no such event."""

    code = "unknown_event"
    status = 422
    noun = "event"


class UnknownTask(UnknownName):
    """No task goes by that name."""

    code = "unknown_task"
    status = 422
    noun = "task"


class TransitionRefused(InterlockError):
    """The table does not allow it; nothing was changed."""

    code = "transition_refused"
    status = 409


class AlreadyThere(TransitionRefused):
    """It is in the wanted state already."""

    code = "already_there"


class TerminalState(TransitionRefused):
    """It has ended; terminal states absorb."""

    code = "terminal_state"


class TransitionNotAllowed(TransitionRefused):
    """The table has no such row in this state."""

    code = "transition_not_allowed"


class EventIgnored(TransitionRefused):
    """The table says that this event deliberately does nothing in this state."""

    code = "event_ignored"


class GuardRefused(TransitionRefused):
    """The table has a row, and its guard does not hold."""

    code = "guard_refused"


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that somebody who typed `name` most likely meant."""
    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[close[0]] if close else None
