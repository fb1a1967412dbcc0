"""From the outcome of a run to REPORTED, by way of its reports.

A decided outcome has one message (`run.report`), in the same commit. It creates the reports of all
configured reporters in one commit; with the end of the last one the run becomes REPORTED, in the same commit.
Without reporters the outcome is only logged. Reporting happens after the outcome is decided and never blocks
a run; a report that cannot be delivered is retried for `report_for_s`, then given up, and stays visible.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from interlock.engine.bulk import commit_all_with_recovery
from interlock.engine.debounce import Debouncer
from interlock.engine.outbox import MESSAGE, message_in, outgoing, sent
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import UnknownRun
from interlock.lifecycles import run
from interlock.lifecycles.run import OUTCOMES, RUN
from interlock.store.records import Change, Commit, Committed, Key, Query, Record
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import decode_run, query_of
from interlock.systems.runs.plans import Plans, piece_key, settled_piece
from interlock.systems.runs.reconciler import RunMessage, run_commit_of
from interlock.systems.runs.reports.delivery import (
    ReporterQueue,
    ReportRuns,
    body_of,
    dropped,
    give_up,
    has_ended,
    overdue,
    redeliver,
    settled,
    url_of,
    with_status,
)
from interlock.systems.runs.reports.github import GithubReporter
from interlock.systems.runs.reports.report import (
    DROPPED,
    GIVEN_UP,
    REPORT,
    SENDING,
    STATUSES,
    WAITING,
    ReadTime,
    Reporter,
    ReportState,
    RunReport,
    RunStatus,
    report_id,
)
from interlock.systems.runs.reports.summary import in_words, shortened
from interlock.systems.runs.reports.webhook import WebhookReporter
from interlock.systems.runs.settings import ReportingSettings
from interlock.systems.runs.views import view_of
from interlock.wire.runs import FailedReport, ReportView, RunExplanation, RunFilter, RunView, RunWaiting

NEWER = 20
"""Number of runs of one commit to examine for a newer one."""


class ReportedRuns:
    """The interface of runs for reports."""

    def __init__(
        self,
        engine: Engine,
        plans: Plans,
        settings: OrchestratorSettings,
        view: Callable[[str], Awaitable[RunView]],
        outline: Callable[[str], Awaitable[RunView]],
    ) -> None:
        self._engine = engine
        self._plans = plans
        self._settings = settings
        self.view: Callable[[str], Awaitable[RunView]] = view
        self.outline: Callable[[str], Awaitable[RunView]] = outline

    async def endings(self, run_ids: Sequence[str]) -> list[list[Record]]:
        """Return runs with the pieces of their plans; nothing for a pruned one."""
        keys = [key for run_id in run_ids for key in (Key(RUN.name, run_id), piece_key(run_id, 0))]
        found = await self._engine.load(keys)
        further = [
            piece_key(record.id, number)
            for record in found[::2]
            if record is not None
            for number in range(1, decode_run(record.body).pieces)
        ]
        beside: dict[str | None, list[Record]] = {}
        for piece in await self._engine.load(further):
            if piece is not None:
                beside.setdefault(piece.parent, []).append(piece)
        return [
            []
            if record is None
            else [record, *([] if first is None else [first]), *beside.get(record.id, ())]
            for record, first in zip(found[::2], found[1::2], strict=True)
        ]

    async def ending(self, run_id: str) -> list[Record]:
        """Return the run and the pieces of its plan, which are settled together.

        Return nothing if it was pruned.
        """
        return (await self.endings([run_id]))[0]

    async def newer(self, run: RunView) -> list[RunView]:
        """Return runs of the same commit that superseded a run, or came after it."""
        source = run.source
        if not source.sha:
            return []
        wanted = RunFilter(
            workflow=run.workflow, repository=source.repository, sha=source.sha, since=run.created_at
        )
        query = query_of(wanted, newest_first=True, cursor="", limit=NEWER)
        found = list((await self._engine.store.find(query)).records)
        if run.superseded_by:
            loaded = await self._engine.store.load([Key(RUN.name, run.superseded_by)])
            found += [record for record in loaded if record is not None]
        views = [view_of(record) for record in found]
        order = (run.created_at, run.id)
        return [
            view
            for view in views
            if view.id == run.superseded_by
            or ((view.created_at, view.id) > order and view.superseded_by != run.id)
        ]

    def reported(self, records: Sequence[Record | None], now: datetime) -> tuple[Change, ...]:
        """Return the changes that mark the run as REPORTED.

        It is empty if it was before, or has no outcome.
        """
        record, *kept = records or (None,)
        if record is None:
            return ()
        draft = RunAggregate.of(record, now, self._settings.durations)
        if draft.send(run.reported) is not None:
            return ()
        commit_id = self._engine.commit_id()
        pieces = [settled_piece(each, commit_id=commit_id) for each in kept if each is not None]
        return run_commit_of(draft, commit_id=commit_id, actor="reporter", more=pieces).commit.changes


def reporters_of(settings: ReportingSettings, now: ReadTime) -> tuple[Reporter, ...]:
    """Return all configured reporters.

    This process may lack the credentials of some.
    """
    return (
        *(GithubReporter(one, now, timeout_s=settings.request_s) for one in settings.github),
        *(WebhookReporter(one, now, timeout_s=settings.request_s) for one in settings.webhooks),
    )


log: logging.Logger = logging.getLogger("interlock.runs.outcomes")

HISTORY_TOPIC = "run.learn"
"""The topic of messages from which job histories are updated."""
MOST = 100


class ReportService:
    """Sends notifications about runs."""

    def __init__(
        self,
        engine: Engine,
        runs: ReportRuns,
        settings: ReportingSettings,
        reporters: Sequence[Reporter] | None = None,
    ) -> None:
        self._engine = engine
        self._runs = runs
        self.settings = settings
        self.reporters: tuple[Reporter, ...] = tuple(
            reporters_of(settings, engine.clock.now) if reporters is None else reporters
        )
        self.lanes: tuple[ReporterQueue, ...] = tuple(
            ReporterQueue(engine, runs, one, settings) for one in self.reporters if one.able
        )
        self._debouncers = tuple(Debouncer(f"{lane.name} is notified", lane.round) for lane in self.lanes)
        self._standing: dict[str, None] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = [
            close for one in self.reporters if (close := getattr(one, "close", None)) is not None
        ]

    async def close(self) -> None:
        """Stop delivering, and close all connections."""
        for debouncer in self._debouncers:
            await debouncer.close()
        for close in self._closing:
            await close()

    async def outcomes(self, messages: Sequence[Record]) -> list[Record]:
        """Settle the runs of these messages together, without reporters.

        Return the other messages. Runs that have not succeeded, or meet a conflict, are among the others.
        """
        if self.reporters or len(messages) < 2:
            return list(messages)
        endings = await self._runs.endings([message_in(each.body, RunMessage).run_id for each in messages])
        now, left = await self._engine.clock.now(), list[Record]()
        settling: list[tuple[Record, RunView, Commit]] = []
        for message, ending in zip(messages, endings, strict=True):
            view = view_of(ending[0]) if ending else None
            if view is None or view.outcome != run.SUCCESS or not view.tally:
                left.append(message)
                continue
            changes = [*self._runs.reported(ending, now), *_history_messages_of(view, now), sent(message)]
            settling.append((message, view, self._engine.stamped(Commit(changes=tuple(changes)), ending)))
        outcomes = await commit_all_with_recovery(self._engine, [commit for *_, commit in settling])
        for (message, view, _), outcome in zip(settling, outcomes, strict=True):
            if isinstance(outcome, Committed):
                self._standing.pop(view.id, None)
                self._log(view, RunStatus.SUCCESS)
            else:
                left.append(message)
        return left

    async def outcome(self, message: Record) -> bool:
        """Create the reports of a decided outcome. Idempotent.

        This is the receiver of its messages. Return whether the message was committed as sent.
        """
        run_id = message_in(message.body, RunMessage).run_id
        self._standing.pop(run_id, None)
        ending = await self._runs.ending(run_id)
        if not ending:
            return False  # it was pruned, and cannot be reported
        view = await self._ended(ending[0])
        status = STATUSES.get(view.outcome or "")
        if status is None:
            return False
        self._log(view, status)
        names = [one.name for one in self.reporters if one.wants(view, status)]
        touched = [*names, *await self._former(run_id, names)]
        learns = _learns(view)
        return await self._spread(
            run_id, status, names, touched, learns=learns, ending=() if names else ending, message=message
        )

    async def _ended(self, record: Record) -> RunView:
        """Return a run that has ended.

        It has its jobs if they are reported, or named in the log.
        """
        outline = view_of(record)
        if not self.reporters and outline.outcome == run.SUCCESS and outline.tally:
            return outline
        return await self._runs.view(record.id)

    def on_its_way(self, run_id: str) -> bool:
        """Remember to report the state of a run, until `report_pending`.

        Return whether there is a reporter. This is not stored: after a crash a receiver may miss "running",
        but not the outcome.
        """
        if self.reporters:
            self._standing[run_id] = None
        return bool(self.reporters)

    async def report_pending(self) -> int:
        """Report the states of remembered runs; return their number."""
        standing, self._standing = self._standing, {}
        for run_id in standing:
            await self._report_state(run_id)
        return len(standing)

    async def go_on(self, *, at_once: bool = False) -> int:
        """Start delivering ready reports in the background.

        Each reporter delivers independently. With `at_once`, deliver them one reporter after the other;
        return the number delivered.
        """
        if at_once:
            return sum([await lane.round() for lane in self.lanes])
        for debouncer in self._debouncers:
            debouncer.trigger()
        return 0

    def swept(self, records: Sequence[Record], now: datetime) -> list[Commit]:
        """Return the commits that requeue reports of lost processes. Pure."""
        return [
            Commit(changes=(overdue(record, now, self.settings),))
            for record in records
            if record.state == SENDING
        ]

    async def give_up(self, records: Sequence[Record]) -> int:
        """Give up those of these reports that are overdue; return their number."""
        late = [record for record in records if record.state != SENDING]
        for record in late:
            await settled(self._engine, self._runs, record, give_up(self.settings))
        return len(late)

    async def reports_of(self, run_id: str) -> list[ReportView]:
        """Return the reports of a run."""
        found = await self._engine.store.find(Query(kind=REPORT.name, parent=run_id, newest_first=False))
        return [_view(record) for record in found.records]

    async def failing(self) -> list[FailedReport]:
        """Return the newest reports that failed, and are retried or were given up."""
        query = Query(kind=REPORT.name, states=(WAITING, GIVEN_UP), limit=MOST)
        found = (await self._engine.store.find(query)).records
        views = [(_view(record), record.parent or "") for record in found]
        return [
            FailedReport(run_id=run_id, **msgspec.structs.asdict(view))
            for view, run_id in views
            if view.last_error
        ]

    async def again(self, run_id: str) -> list[ReportView]:
        """Retry reports that were given up; return the new reports. Idempotent."""
        found = (
            await self._engine.store.find(Query(kind=REPORT.name, parent=run_id, newest_first=False))
        ).records
        by_reporter: dict[str, list[Record]] = {}
        for record in found:
            by_reporter.setdefault(record.queue or "", []).append(record)
        for records in by_reporter.values():
            if all(record.state in (GIVEN_UP, DROPPED) for record in records):
                await self._report_again(records)
        return await self.reports_of(run_id)

    async def _report_again(self, records: Sequence[Record]) -> None:
        last, number = records[-1], len(records)
        key = Key(REPORT.name, f"{records[0].id}.{number}")

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            if found[0] is not None:
                return Decision(None)  # another process did the same
            return Decision(None, Commit(changes=(redeliver(last, number, now, self.settings),)))

        await self._engine.apply([key], decide)

    async def explained(self, explanation: RunExplanation) -> RunExplanation:
        """Return the explanation with the reports that the run waits for."""
        if explanation.state not in OUTCOMES:
            return explanation
        found = await self._engine.store.find(
            Query(kind=REPORT.name, parent=explanation.run_id, newest_first=False)
        )
        lines = tuple(_waiting(record) for record in found.records if not has_ended(record))
        deadlines = [
            line.deadline_at for line in (*explanation.lines, *lines) if line.deadline_at is not None
        ]
        return msgspec.structs.replace(
            explanation, lines=(*explanation.lines, *lines), next_deadline_at=min(deadlines, default=None)
        )

    async def _report_state(self, run_id: str) -> None:
        try:
            view = await self._runs.view(run_id)
        except UnknownRun:
            return
        status = STATUSES.get(view.state)
        if status is None or status.final:
            return  # an outcome is reported in any case
        names = [one.name for one in self.reporters if one.wants(view, status)]
        if names:
            await self._spread(run_id, status, names, names)

    async def _former(self, run_id: str, names: Sequence[str]) -> list[str]:
        """Return reporters with unfinished reports that are no longer configured."""
        if not self.reporters:
            return []
        found = await self._engine.store.find(Query(kind=REPORT.name, parent=run_id))
        return [str(r.queue) for r in found.records if r.queue not in names and not has_ended(r)]

    async def _spread(
        self,
        run_id: str,
        status: RunStatus,
        names: Sequence[str],
        touched: Sequence[str],
        *,
        learns: bool = False,
        ending: Sequence[Record] = (),
        message: Record | None = None,
    ) -> bool:
        """Create the reports, or the end of reporting, in one commit.

        There is a report for each reporter. The message for job histories is part of the commit. `ending` are
        the run and its plan as they are now, to be settled. Return whether the message that asked for this
        was committed as sent.
        """
        reports = [Key(REPORT.name, report_id(run_id, name)) for name in touched]
        history = [Key(MESSAGE.name, _history_message_id(run_id))] if learns else []
        beside = tuple(names) if status.final else ()

        def change_of(name: str, record: Record | None, now: datetime) -> Change | None:
            if name not in names:
                if record is None or has_ended(record):
                    return None
                return dropped(record, now, self.settings)
            return with_status(record, run_id, name, status, now, self.settings, beside)

        def decide(records: Sequence[Record | None], now: datetime) -> Decision[bool]:
            nonlocal message
            reported, rest = records[: len(reports)], records[len(reports) :]
            found = [change_of(name, record, now) for name, record in zip(touched, reported, strict=True)]
            if history and rest[0] is None:
                found.append(_history_message(run_id, now))
            further = self._runs.reported(rest[len(history) :], now) if ending else ()
            changes = [*(change for change in found if change is not None), *further]
            if not changes:
                return Decision(False)
            arrived, message = message, None  # a conflict may be about it
            changes += [] if arrived is None else [sent(arrived)]
            return Decision(arrived is not None, Commit(changes=tuple(changes)))

        keys = [*reports, *history, *(record.key for record in ending)]
        known = () if reports or history else ending
        applied = await self._engine.apply(keys, decide, known=known)
        return isinstance(applied, Applied) and applied.answer

    def _log(self, view: RunView, status: RunStatus) -> None:
        report = RunReport(run=view, status=status, at=view.updated_at, url=url_of(self.settings, view.id))
        level = logging.INFO if status is RunStatus.SUCCESS else logging.WARNING
        text = shortened(in_words(report), 300)
        log.log(level, "run %s (%s) of %s: %s", view.id, view.workflow or "-", _change_text(view), text)


def _learns(view: RunView) -> bool:
    """Return whether the histories of jobs learn from this run."""
    return bool(view.source.repository and view.source.sha)


def _history_messages_of(view: RunView, now: datetime) -> list[Change]:
    return [_history_message(view.id, now)] if _learns(view) else []


def _history_message(run_id: str, now: datetime) -> Change:
    return outgoing(_history_message_id(run_id), HISTORY_TOPIC, msgspec.json.encode(RunMessage(run_id)), now)


def _history_message_id(run_id: str) -> str:
    return f"{run_id}.learn"


def _waiting(record: Record) -> RunWaiting:
    body, entry = body_of(record), REPORT.table.entry(ReportState(record.state))
    again = f" It is tried again at {record.ready_at:%H:%M:%S} UTC." if record.ready_at else ""
    why = f" after {body.tries} tries: {body.last_error}." if body.tries else "."
    return RunWaiting(
        entity=f"reporter {record.queue}",
        state=record.state,
        sentence=f"It has not reported the outcome yet{why}{again}",
        turn=str(entry.turn or ""),
        deadline_at=record.deadline_at,
        deadline_event=entry.within.event.name if entry.within and record.deadline_at else "",
        accepts=REPORT.accepts(ReportState(record.state)),
    )


def _change_text(view: RunView) -> str:
    source = view.source
    return f"{source.repository} {source.ref} {source.sha[:12]}".strip() or "no repository"


def _view(record: Record) -> ReportView:
    body = body_of(record)
    ended = has_ended(record)
    return ReportView(
        reporter=record.queue or "",
        state=record.state,
        word=body.status,
        told=body.told or "",
        tries=body.tries,
        last_error=body.last_error,
        next_try_at=record.ready_at,
        given_up_at=None if ended or record.state == SENDING else record.deadline_at,
        updated_at=record.updated_at,
    )
