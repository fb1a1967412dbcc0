"""The tree of all errors.

Every public error is one of these, and all are imported from here. Each has a stable `code`, a message,
facts, the allowed alternatives and advice; the API, the command line and the dashboard all show the same
text, and the API returns `status`.

    InterlockError
    ├── MalformedTable            malformed_table          422  a declaration with faults, all of them listed
    ├── MalformedCouplings        malformed_couplings      422  a list of couplings with faults
    ├── MalformedBlueprint        malformed_blueprint      422  a file that is not an exported table
    ├── CannotLoad                cannot_load              422  a module or object that is unusable
    ├── CannotWrite               cannot_write             500  a file that cannot be written
    ├── InvalidSettings           invalid_settings         422  durations that contradict each other
    ├── StoreError
    │   ├── BadStoreUrl           bad_store_url            422
    │   ├── StoreUnavailable      store_unavailable        503  the outcome may be unknown
    │   ├── StoreMisconfigured    store_misconfigured      503
    │   ├── StoreTooOld           store_too_old            503  the server's version
    │   ├── SchemaTooNew          schema_too_new           503  written by a newer program
    │   ├── SchemaMismatch        schema_mismatch          503  made by other migrations
    │   ├── ForeignSchema         foreign_schema           503  tables of another program
    │   ├── InvalidRecord         invalid_record           422
    │   ├── TooLarge              too_large                413
    │   └── PruneRefused          prune_refused            409
    ├── ServerRefused             server_refused           409  the answer of a server
    ├── RunnerError
    │   ├── LeaseExpired          LEASE_EXPIRED            409  no heartbeat arrived in time
    │   ├── LeaseRevoked          LEASE_REVOKED            409  the right to execute was revoked
    │   ├── UnknownLease          UNKNOWN_LEASE            409
    │   ├── WrongRunner           wrong_runner             409  the lease belongs to another one
    │   └── MessageRefused        message_refused          409
    ├── ClaimOver                 claim_over               409  all leases of the named claim have ended
    ├── CommitFailed
    │   ├── Contended             contended                409  other processes were faster, repeatedly
    │   ├── VersionChanged        version_changed          409  the expected version is outdated
    │   ├── RequestIdReused       request_id_reused        409  the id belongs to another request
    │   └── IllegalChange         illegal_change           500  the store has refused a state
    ├── JobError
    │   ├── InvalidJob            invalid_job              422  a submission that breaks a rule
    │   ├── DuplicateJob          duplicate_job            409  another job has its unique key
    │   ├── UnknownJob            unknown_job              404
    │   ├── InvalidArguments      invalid_arguments        422  they do not fit the task
    │   ├── NotJson               not_json                 422  a value that JSON cannot hold
    │   ├── ConflictingCompletion conflicting_completion   409  it ended before with another outcome
    │   ├── JobFailed             job_failed               409  there is no result, with the reason
    │   ├── JobCanceled           job_canceled             409  the job was stopped
    │   ├── ResultNotReady        result_not_ready         409  it has not ended yet
    │   ├── InvalidSignal         invalid_signal           422  a signal or a wait that breaks a rule
    │   ├── MailboxFull           mailbox_full             409  too many signals that no handler waits for
    │   ├── WaitTimeout           wait_timeout             409  no signal and no answer came in time
    │   ├── UnknownApproval       unknown_approval         404
    │   ├── InvalidArtifact       invalid_artifact         422  a name or a path that it cannot have
    │   ├── UnknownArtifact       unknown_artifact         404
    │   ├── ArtifactExists        artifact_exists          409  another one has this name
    │   ├── ArtifactGone          artifact_gone            410  it is no longer stored
    │   ├── UnknownCache          unknown_cache            404
    │   ├── CacheRefused          cache_refused            409  this job may not save one
    │   ├── NotGiven              secret_not_given         500  a secret that the job did not receive
    │   └── NotExecuted           not_executed             409  the simulation has another worker
    ├── UnknownAttempt            unknown_attempt          404
    ├── NoSecret                  no_secret                422  a secret that a job cannot receive
    ├── NoBlobs                   no_blobs                 409  no storage for artifacts
    ├── BlobsFull                 blobs_full               507
    ├── PlanRefused               plan_refused             422  the definition cannot be planned
    ├── WorkerError
    │   ├── InvalidWorker         invalid_worker           422  a registration that breaks a rule
    │   └── UnknownWorker         unknown_worker           404
    ├── InvalidRun                invalid_run              422  a run that breaks a rule
    ├── UnknownRun                unknown_run              404
    ├── InvalidWorkload           invalid_workload         422  a workload that an agent cannot run
    ├── UnknownWorkload           unknown_workload         404
    ├── AgentUnavailable          agent_unavailable        503
    ├── AgentRefused              agent_refused            409
    ├── SkewTooLarge              skew_too_large           409  clocks that are not known precisely
    ├── WorkloadFailed            workload_failed          409  too few agents have completed
    ├── InvalidSimulation         invalid_simulation       422  one that cannot be accepted
    ├── SimulationExists          simulation_exists        409  its id is taken
    ├── UnknownSimulation         unknown_simulation       404
    ├── InvalidSchedule           invalid_schedule         422  one that breaks a rule, or would never fire
    ├── ScheduleExists            schedule_exists          409  its name is taken
    ├── UnknownSchedule           unknown_schedule         404
    ├── InvalidLimit              invalid_limit            422  or a job that is too heavy for one
    ├── UnknownLimit              unknown_limit            404
    ├── UnknownBatch              unknown_batch            404
    ├── MalformedKind             malformed_kind           422  a declaration with a fault
    ├── InvalidData               invalid_data             422  data that do not fit a kind or its event
    ├── RecordExists              record_exists            409  its id is taken
    ├── UnknownRecord             unknown_record           404
    ├── BadFilter                 bad_filter               422
    ├── NotSignedIn               not_signed_in            401  no token, or an invalid one
    ├── NotAllowed                not_allowed              403
    ├── UnknownToken              unknown_token            404
    ├── InvalidToken              invalid_token            422
    ├── SecretShownOnce           secret_shown_once        409  the secret of a token is not stored
    ├── UnknownSession            unknown_session          404
    ├── UnknownName
    │   ├── UnknownKind           unknown_kind             422
    │   ├── UnknownRecordKind     unknown_record_kind      404
    │   ├── UnknownMachine        unknown_machine          404
    │   ├── UnknownProfile        unknown_profile          404
    │   ├── UnknownState          unknown_state            422
    │   ├── UnknownEvent          unknown_event            422
    │   └── UnknownTask           unknown_task             422  no task has this name
    ├── TransitionRefused
    │   ├── AlreadyThere          already_there            409
    │   ├── TerminalState         terminal_state           409
    │   ├── TransitionNotAllowed  transition_not_allowed   409
    │   ├── EventIgnored          event_ignored            409
    │   └── GuardRefused          guard_refused            409
    ├── BadRequest                bad_request              422
    │   ├── NoHttp                no_http                  400
    │   └── NotUtf8               not_utf8                 400
    ├── UnknownPage               unknown_page             404
    ├── MethodNotAllowed          method_not_allowed       405
    ├── RequestTooLarge           request_too_large        413
    ├── UnsupportedMedia          unsupported_media        415
    ├── ConflictingRequestIds     conflicting_request_ids  409
    ├── TooMany                   too_many_requests        429
    ├── TooBusy                   too_busy                 503
    ├── TookTooLong               took_too_long            504
    ├── ArrivedTooSlowly          arrived_too_slowly       408
    ├── WrongHost                 wrong_host               421
    ├── ForeignOrigin             foreign_origin           403
    ├── NotReady                  not_ready                503
    ├── Unexpected                unexpected               500
    ├── CannotListen              cannot_listen            500
    ├── NotSigned                 not_signed               401
    ├── WebhookOff                webhook_off              404
    └── BadPayload                bad_payload              422
"""

from __future__ import annotations

import math

from interlock.errors.base import InterlockError as InterlockError
from interlock.errors.base import UnknownName as UnknownName
from interlock.errors.requests import ArrivedTooSlowly as ArrivedTooSlowly
from interlock.errors.requests import BadPayload as BadPayload
from interlock.errors.requests import BadRequest as BadRequest
from interlock.errors.requests import CannotListen as CannotListen
from interlock.errors.requests import ConflictingRequestIds as ConflictingRequestIds
from interlock.errors.requests import ForeignOrigin as ForeignOrigin
from interlock.errors.requests import MethodNotAllowed as MethodNotAllowed
from interlock.errors.requests import NoHttp as NoHttp
from interlock.errors.requests import NotReady as NotReady
from interlock.errors.requests import NotSigned as NotSigned
from interlock.errors.requests import NotUtf8 as NotUtf8
from interlock.errors.requests import RequestTooLarge as RequestTooLarge
from interlock.errors.requests import TooBusy as TooBusy
from interlock.errors.requests import TookTooLong as TookTooLong
from interlock.errors.requests import TooMany as TooMany
from interlock.errors.requests import Unexpected as Unexpected
from interlock.errors.requests import UnknownPage as UnknownPage
from interlock.errors.requests import UnsupportedMedia as UnsupportedMedia
from interlock.errors.requests import WebhookOff as WebhookOff
from interlock.errors.requests import WrongHost as WrongHost


class MalformedTable(InterlockError, code="malformed_table", status=422):
    """The declaration of a machine has faults; no machine was created."""


class MalformedCouplings(InterlockError, code="malformed_couplings", status=422):
    """The declaration of couplings has faults; no couplings were created."""


class MalformedBlueprint(InterlockError, code="malformed_blueprint", status=422):
    """The file is not an exported table."""


class CannotLoad(InterlockError, code="cannot_load", status=422):
    """The module, or an object in it, cannot be imported or has the wrong type."""


class CannotWrite(InterlockError, code="cannot_write", status=500):
    """The file cannot be written; nothing was changed."""


class InvalidSettings(InterlockError, code="invalid_settings", status=422):
    """The settings are out of range or contradictory."""


class StoreError(InterlockError, code="store_error", status=500):
    """The store cannot carry out the operation."""


class BadStoreUrl(StoreError, code="bad_store_url", status=422):
    """The URL is not that of a store."""


class StoreUnavailable(StoreError, code="store_unavailable", status=503):
    """The database did not answer in time; whether a commit happened may be unknown."""


class StoreMisconfigured(StoreError, code="store_misconfigured", status=503):
    """The configuration of the database does not allow the guarantees of the store."""


class StoreTooOld(StoreError, code="store_too_old", status=503):
    """The version of the database server is too old."""


class SchemaTooNew(StoreError, code="schema_too_new", status=503):
    """The schema was written by a newer program than this one."""


class SchemaMismatch(StoreError, code="schema_mismatch", status=503):
    """The schema was created by other migrations than those of this program."""


class ForeignSchema(StoreError, code="foreign_schema", status=503):
    """The database has tables of another program under the names of ours."""


class InvalidRecord(StoreError, code="invalid_record", status=422):
    """The record or commit breaks a rule of the store; nothing was written."""


class TooLarge(StoreError, code="too_large", status=413):
    """The body is larger than the store accepts; nothing was written."""


class PruneRefused(StoreError, code="prune_refused", status=409):
    """Only ended records may be pruned."""


class ServerRefused(InterlockError, code="server_refused", status=409):
    """The server has refused a request; `facts` have its code and status."""


class RunnerError(InterlockError, code="runner_error", status=409):
    """The message of a runner was refused; nothing was changed."""


class LeaseExpired(RunnerError, code="LEASE_EXPIRED"):
    """The lease has expired: no heartbeat arrived in time, and another runner may have the work."""


class LeaseRevoked(RunnerError, code="LEASE_REVOKED"):
    """The lease was revoked: the attempt timed out, was cancelled by force, or was given back."""


class UnknownLease(RunnerError, code="UNKNOWN_LEASE"):
    """No live lease has this token."""


class WrongRunner(RunnerError, code="wrong_runner"):
    """The lease belongs to another runner."""


class MessageRefused(RunnerError, code="message_refused"):
    """The lease is live, but the message is not valid: `facts` have the reason."""


class ClaimOver(InterlockError, code="claim_over", status=409):
    """All leases under the name of a claim have ended; a server returns no grants."""


class CommitFailed(InterlockError, code="commit_failed", status=409):
    """The commit was refused; nothing was changed."""


class Contended(CommitFailed, code="contended"):
    """Other processes changed the record first, at every attempt."""


class VersionChanged(CommitFailed, code="version_changed"):
    """The record does not have the expected version; nothing was changed."""


class RequestIdReused(CommitFailed, code="request_id_reused"):
    """The request id was used before, for another request."""


class IllegalChange(CommitFailed, code="illegal_change", status=500):
    """The store refused a change of state that no path of the table allows: a fault of the program."""


class JobError(InterlockError, code="job_error", status=500):
    """The job, its arguments or its result are not valid."""


class InvalidJob(JobError, code="invalid_job", status=422):
    """The job breaks a rule of submission; nothing was stored."""


class UnknownJob(JobError, code="unknown_job", status=404):
    """No job has this id."""


class InvalidArguments(JobError, code="invalid_arguments", status=422):
    """The arguments do not fit the task."""


class NotJson(JobError, code="not_json", status=422):
    """The value cannot be represented in JSON; `facts` have its position."""


class ConflictingCompletion(JobError, code="conflicting_completion", status=409):
    """The attempt has already ended with another outcome, which is kept."""


class DuplicateJob(JobError, code="duplicate_job", status=409):
    """Another job has the unique key, so this one was not created; `facts` name that job."""


class JobFailed(JobError, code="job_failed", status=409):
    """The job has failed, so there is no result."""


class JobCanceled(JobError, code="job_canceled", status=409):
    """The job was canceled, so there is no result."""


class ResultNotReady(JobError, TimeoutError, code="result_not_ready", status=409):
    """The job has not ended yet, so there is no result. Also a `TimeoutError`."""


class InvalidSignal(JobError, code="invalid_signal", status=422):
    """The signal or the wait breaks a rule."""


class MailboxFull(JobError, code="mailbox_full", status=409):
    """The job keeps as many signals as it can until its handler waits for them."""


class WaitTimeout(JobError, TimeoutError, code="wait_timeout", status=409):
    """No signal and no answer came before the timeout of the wait."""


class UnknownApproval(JobError, code="unknown_approval", status=404):
    """No approval has this id."""


class FlakyError(Exception):
    """Raised by a handler whose job may succeed the next time; its failure has the class `flaky`.

    With `retry_after_s` the next attempt starts after that time instead of the pause of the retry rule.
    The retry rule limits the number of retries, by default to two.
    """

    def __init__(self, *args: object, retry_after_s: float | None = None) -> None:
        super().__init__(*args)
        if retry_after_s is not None and not 0 <= retry_after_s < math.inf:
            raise InvalidArguments(
                f"A job cannot be tried again after {retry_after_s!r} s.",
                todo="Give retry_after_s as a number of seconds that is not negative.",
                facts={"retry_after_s": str(retry_after_s)},
            )
        self.retry_after_s = retry_after_s


class InvalidArtifact(JobError, code="invalid_artifact", status=422):
    """The name or path of the artifact is not valid; nothing was stored."""


class UnknownArtifact(JobError, code="unknown_artifact", status=404):
    """The job has no artifact of this name."""


class ArtifactExists(JobError, code="artifact_exists", status=409):
    """The attempt already has another artifact of this name, which is kept."""


class ArtifactGone(JobError, code="artifact_gone", status=410):
    """The artifact is no longer stored."""


class UnknownAttempt(InterlockError, code="unknown_attempt", status=404):
    """No attempt has this id."""


class UnknownCache(JobError, code="unknown_cache", status=404):
    """No cache has this key or a key with one of the given prefixes."""


class CacheRefused(JobError, code="cache_refused", status=409):
    """The job may not save a cache, because other jobs restore it."""


class NoSecret(InterlockError, code="no_secret", status=422):
    """The job names a secret that it cannot receive."""


class NotGiven(JobError, KeyError, code="secret_not_given"):
    """The handler asks for a secret that its job did not receive. Also a `KeyError`."""

    def __str__(self) -> str:
        """Return the sentence, not the representation of it as a `KeyError` would."""
        return InterlockError.__str__(self)


class NotExecuted(JobError, code="not_executed", status=409):
    """The simulation is executed elsewhere, or not at all: its worker has to stop."""


class NoBlobs(InterlockError, code="no_blobs", status=409):
    """No storage for artifacts is configured."""


class BlobsFull(InterlockError, code="blobs_full", status=507):
    """The storage for artifacts is full; nothing was stored."""


class PlanRefused(InterlockError, code="plan_refused", status=422):
    """The definition cannot be planned; `facts` have the position of each fault."""


class WorkerError(InterlockError, code="worker_error", status=500):
    """The worker or its registration is not valid."""


class InvalidWorker(WorkerError, code="invalid_worker", status=422):
    """The worker breaks a rule of registration; nothing was stored."""


class UnknownWorker(WorkerError, code="unknown_worker", status=404):
    """No worker has this id."""


class InvalidRun(InterlockError, code="invalid_run", status=422):
    """The run breaks a rule of submission; nothing was stored."""


class UnknownRun(InterlockError, code="unknown_run", status=404):
    """No run has this id."""


class InvalidWorkload(InterlockError, code="invalid_workload", status=422):
    """The agent cannot run this workload; nothing was started."""


class UnknownWorkload(InterlockError, code="unknown_workload", status=404):
    """No workload has this id."""


class AgentUnavailable(InterlockError, code="agent_unavailable", status=503):
    """An agent does not answer."""


class AgentRefused(InterlockError, code="agent_refused", status=409):
    """An agent refuses the workload, for the reason given."""


class SkewTooLarge(InterlockError, code="skew_too_large", status=409):
    """The clocks of the agents are not known precisely enough, so nothing was started."""


class WorkloadFailed(InterlockError, code="workload_failed", status=409):
    """Fewer agents completed than the policy needs; the partial result was saved."""


class InvalidSimulation(InterlockError, code="invalid_simulation", status=422):
    """The simulation breaks a rule of submission; nothing was stored."""


class SimulationExists(InterlockError, code="simulation_exists", status=409):
    """A simulation with this id exists already; nothing was stored."""


class UnknownSimulation(InterlockError, code="unknown_simulation", status=404):
    """No simulation has this id."""


class InvalidSchedule(InterlockError, code="invalid_schedule", status=422):
    """The schedule breaks a rule, or would never fire; nothing was stored."""


class ScheduleExists(InterlockError, code="schedule_exists", status=409):
    """A schedule with this name exists already; nothing was stored."""


class UnknownSchedule(InterlockError, code="unknown_schedule", status=404):
    """No schedule has this name."""


class InvalidLimit(InterlockError, code="invalid_limit", status=422):
    """A limit that cannot be declared, or a job that could never have the slots that it wants."""


class UnknownLimit(InterlockError, code="unknown_limit", status=404):
    """No limit has that name, and no pattern fits it."""


class UnknownBatch(InterlockError, code="unknown_batch", status=404):
    """No batch has that id."""


class MalformedKind(InterlockError, code="malformed_kind", status=422):
    """The declaration of a kind has a fault; no kind was created."""


class InvalidData(InterlockError, code="invalid_data", status=422):
    """The data do not fit the type of the kind or of the event; nothing was stored."""


class RecordExists(InterlockError, code="record_exists", status=409):
    """A record of this kind and id exists already; nothing was stored."""


class UnknownRecord(InterlockError, code="unknown_record", status=404):
    """No record of this kind has this id."""


class BadFilter(InterlockError, code="bad_filter", status=422):
    """The filter cannot be parsed; `facts` have the position of the fault."""


class NotSignedIn(InterlockError, code="not_signed_in", status=401):
    """The request has no token, or an invalid one."""


class NotAllowed(InterlockError, code="not_allowed", status=403):
    """The role of the principal does not allow this request."""


class UnknownToken(InterlockError, code="unknown_token", status=404):
    """No token has this name or id."""


class InvalidToken(InterlockError, code="invalid_token", status=422):
    """The requested token is not valid; nothing was stored."""


class SecretShownOnce(InterlockError, code="secret_shown_once", status=409):
    """The request was carried out before, and the secret that it created is not shown again."""


class UnknownSession(InterlockError, code="unknown_session", status=404):
    """No session has this id, or the session has ended."""


class UnknownMachine(UnknownName, code="unknown_machine", noun="machine"):
    """No machine has this name."""


class UnknownProfile(UnknownName, code="unknown_profile", noun="profile"):
    """The name is not one of the profiles."""


class UnknownKind(UnknownName, code="unknown_kind", status=422, noun="kind"):
    """The store has no such kind of record."""


class UnknownRecordKind(UnknownName, code="unknown_record_kind", status=404, noun="kind"):
    """The store has no records of this kind."""


class UnknownState(UnknownName, code="unknown_state", status=422, noun="state"):
    """The machine has no such state."""


class UnknownEvent(UnknownName, code="unknown_event", status=422, noun="event"):
    """The machine has no such event."""


class UnknownTask(UnknownName, code="unknown_task", status=422, noun="task"):
    """No task has this name."""


class TransitionRefused(InterlockError, code="transition_refused", status=409):
    """The table does not allow the event; nothing was changed."""


class AlreadyThere(TransitionRefused, code="already_there"):
    """The record is already in the target state."""


class TerminalState(TransitionRefused, code="terminal_state"):
    """The record has ended, and no event leaves a terminal state."""


class TransitionNotAllowed(TransitionRefused, code="transition_not_allowed"):
    """The table has no row for this event in this state."""


class EventIgnored(TransitionRefused, code="event_ignored"):
    """The table ignores this event in this state, on purpose."""


class GuardRefused(TransitionRefused, code="guard_refused"):
    """The guard of the row does not hold."""
