"""Signals, waits and approvals in a store: an answer or the clock ends a wait.

It joins the deciders of `wait_records` with the engine, and adds no rules.

Why: decision 0422.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from interlock.engine.bulk import Item, apply_all
from interlock.engine.unit_of_work import Applied, Decision, Engine, IdempotencyKey, contended
from interlock.errors import InterlockError, InvalidSignal, StoreUnavailable, TooLarge, UnknownLease
from interlock.lifecycles.job import JOB
from interlock.store.records import Key, Query, Record, Repeated
from interlock.systems.orchestrator import wait_records
from interlock.systems.orchestrator.mailboxes import JobEnded, address_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import raise_for_answer, read_token
from interlock.systems.orchestrator.wait_records import (
    JOB_WAIT,
    KEPT,
    MOVED,
    OVERDUE,
    WAITING,
    ApprovalReply,
    SentSignal,
    approval_view,
    body_of,
    signal_asked,
    unknown_approval,
    wait_asked,
    wait_key,
)
from interlock.wire.access import Role
from interlock.wire.json_values import json_fault
from interlock.wire.waits import (
    MAX_APPROVERS,
    MAX_COMMENT,
    MAX_QUESTION,
    MAX_SIGNAL_BYTES,
    MAX_WAIT_S,
    SIGNAL_NAME,
    ApprovalQuestion,
    ApprovalView,
    SignalView,
    WaitAnswer,
    WaitRequest,
)

PAGE = 200
LOOKED_AT = 2_000
"""Maximum number of waits examined for a page of approvals."""
_NAME = re.compile(SIGNAL_NAME)
_NOTHING = msgspec.Raw(b"null")


class Waits:
    """The signals, waits and approvals of jobs in a store."""

    def __init__(self, engine: Engine, *, settings: OrchestratorSettings) -> None:
        self._engine = engine
        self._settings = settings

    # Handlers

    async def wait(self, request: WaitRequest) -> WaitAnswer:
        """Return the answer to a wait, or let the job wait for it. Idempotent."""
        token = read_token(request.token)
        if token is None:
            raise UnknownLease("This is not the token of a lease.", todo="Claim work first.")
        check_wait(request)
        address = address_of(request.name, question=request.question is not None)

        def name_wait(record: Record | None) -> str:
            return wait_asked(token.job_id, address, record, request.number)

        def decide(wait_id: str, found: Sequence[Record | None], now: datetime) -> Decision[object]:
            return wait_records.decide_ask(
                found,
                now,
                token=token,
                request=request,
                address=address,
                wait_id=wait_id,
                commit_id=self._engine.commit_id(),
                settings=self._settings,
            )

        answer = await self._with_wait(token.job_id, name_wait, decide)
        if isinstance(answer, WaitAnswer):
            return answer
        raise_for_answer(answer)
        raise AssertionError(answer)

    # Signals

    async def signal(
        self,
        job_id: str,
        name: str,
        data: msgspec.Raw = _NOTHING,
        *,
        actor: str = "",
        request_id: str | None = None,
    ) -> SignalView:
        """Send a signal to a job, for now or until it waits. Idempotent."""
        check_signal(name, data)
        sent = SentSignal(job_id, address_of(name, question=False), data, actor)
        request = self._engine.key_for(request_id, f"signal {job_id}", (name, data))

        def view(stored: tuple[str, int]) -> SignalView:
            state, number = stored
            wait_id = f"{job_id}.{sent.address}.{number}"
            return SignalView(id=wait_id, job_id=job_id, name=name, number=number, state=state)

        def decide(wait_id: str, found: Sequence[Record | None], now: datetime) -> Decision[Any]:
            commit_id = self._engine.commit_id()
            decided = wait_records.decide_signal(
                found, now, sent=sent, wait_id=wait_id, commit_id=commit_id, settings=self._settings
            )
            answer = view(decided.answer) if isinstance(decided.answer, tuple) else decided.answer
            return _requested(Decision(answer, decided.commit), request)

        stored = await self._with_wait(job_id, partial(signal_asked, job_id, sent.address), decide, request)
        return stored if isinstance(stored, SignalView) else msgspec.convert(stored, SignalView)

    # Approvals

    async def get(self, approval_id: str) -> ApprovalView:
        """Return an approval by its id or that of its job.

        The id of a job is enough if only one of its approvals waits.
        """
        return approval_view(await self._approval(approval_id))

    async def find(
        self, *, ended: bool = False, job_id: str = "", queue: str = "", limit: int = 100, cursor: str = ""
    ) -> tuple[list[ApprovalView], str]:
        """Return a page of waiting approvals, newest first, and a cursor.

        The cursor leads to the next page. With `ended` the page has all approvals.
        """
        page = await self._engine.store.find(
            Query(
                kind=JOB_WAIT.name,
                states=() if ended else (str(WAITING),),
                parent=job_id or None,
                queue=queue or None,
                labels=("approval",),
                cursor=cursor,
                limit=limit,
                within=LOOKED_AT,
            )
        )
        return [approval_view(record) for record in page.records], page.cursor

    async def approve(
        self,
        approval_id: str,
        *,
        comment: str = "",
        actor: str = "",
        roles: tuple[Role, ...] = (Role.ADMIN,),
        request_id: str | None = None,
    ) -> ApprovalView:
        """Approve; the handler continues."""
        reply = ApprovalReply(approved=True, by=actor, roles=roles, comment=comment[:MAX_COMMENT])
        return await self._reply(approval_id, reply, request_id)

    async def reject(
        self,
        approval_id: str,
        *,
        comment: str = "",
        actor: str = "",
        roles: tuple[Role, ...] = (Role.ADMIN,),
        request_id: str | None = None,
    ) -> ApprovalView:
        """Reject an approval; the handler receives the answer."""
        reply = ApprovalReply(approved=False, by=actor, roles=roles, comment=comment[:MAX_COMMENT])
        return await self._reply(approval_id, reply, request_id)

    async def _reply(self, approval_id: str, reply: ApprovalReply, request_id: str | None) -> ApprovalView:
        endpoint = f"{reply.event.name} {approval_id}"
        request = self._engine.key_for(request_id, endpoint, reply.comment)

        async def do() -> ApprovalView:
            found = await self._approval(approval_id)
            job_id = body_of(found).job_id

            def decide(_: str, records: Sequence[Record | None], now: datetime) -> Decision[Any]:
                decided = wait_records.decide_reply(
                    records, now, reply=reply, commit_id=self._engine.commit_id(), settings=self._settings
                )
                return _requested(decided, request)

            await self._with_wait(job_id, lambda _: found.id, decide, request)
            return await self.get(found.id)

        return await self._engine.answer_once(request, ApprovalView, do)

    async def _approval(self, approval_id: str) -> Record:
        (record,) = await self._engine.load([wait_key(approval_id)])
        if record is None and "." not in approval_id:
            open_ones = Query(
                kind=JOB_WAIT.name, states=(str(WAITING),), parent=approval_id, labels=("approval",)
            )
            waiting = (await self._engine.store.find(open_ones)).records
            record = waiting[0] if len(waiting) == 1 else None
        if record is None or body_of(record).question is None:
            raise unknown_approval(approval_id)
        return record

    # The clock, and the end of jobs

    async def sweep(self, *, limit: int = 500) -> int:
        """Let waits time out whose time has come; return their number."""
        due: list[Record] = []

        def look(records: Sequence[Record], _: datetime) -> list[Any]:
            due[:] = records
            return []

        await self._engine.due([JOB_WAIT.name], limit, look)
        return sum([await self._time_out(record) for record in due])

    async def _time_out(self, wait: Record) -> bool:
        decide = partial(
            wait_records.decide_timeout, commit_id=self._engine.commit_id(), settings=self._settings
        )
        keys = [Key(JOB.name, body_of(wait).job_id), wait.key]
        applied = await self._engine.apply(keys, decide)
        return isinstance(applied, Applied) and applied.answer

    async def close(self, payload: bytes) -> None:
        """Cancel the waits and drop the signals of an ended job. Idempotent."""
        ended = msgspec.json.decode(payload, type=JobEnded)
        query = Query(kind=JOB_WAIT.name, parent=ended.job_id, states=(str(WAITING), str(KEPT)), limit=PAGE)
        while True:
            page = await self._engine.store.find(query)
            items = [Item(record.key, wait_records.decide_close, record) for record in page.records]
            for result in await apply_all(self._engine, items):
                if isinstance(result, InterlockError):
                    raise result
            if not page.cursor:
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def _with_wait(
        self,
        job_id: str,
        name_wait: Callable[[Record | None], str],
        decide: Callable[[str, Sequence[Record | None], datetime], Decision[Any]],
        request: IdempotencyKey | None = None,
    ) -> Any:
        """Decide about a job and its wait, again if it names another one."""
        key = Key(JOB.name, job_id)
        for _ in range(self._engine.max_tries):
            wait_id = await self._named(key, name_wait, request)
            if isinstance(wait_id, Repeated):
                return msgspec.json.decode(wait_id.recorded.answer.body)
            keys = [key, wait_key(wait_id)]
            applied = await self._engine.apply_once(request, keys, partial(decide, wait_id))
            if isinstance(applied, Repeated):
                return msgspec.json.decode(applied.recorded.answer.body)
            if applied.answer is OVERDUE:
                (overdue,) = await self._engine.load(keys[1:])
                if overdue is not None:
                    await self._time_out(overdue)
            elif applied.answer is not MOVED:
                return applied.answer
        raise contended([key], None, self._engine.max_tries)

    async def _named(
        self, key: Key, name_wait: Callable[[Record | None], str], request: IdempotencyKey | None
    ) -> str | Repeated:
        """Return the wait that a job names, or a repeated request's answer."""
        (record,) = await self._engine.load([key])
        try:
            return name_wait(record)
        except StoreUnavailable:
            raise
        except InterlockError:
            before = None if request is None else await self._engine.recall(request)
            if not isinstance(before, Repeated):
                raise
            return before


def _requested(decision: Decision[Any], request: IdempotencyKey | None) -> Decision[Any]:
    """Return the decision under its request id, if it changes something."""
    if request is None or decision.commit is None:
        return decision
    answered = request.answered(msgspec.json.encode(decision.answer))
    return Decision(decision.answer, msgspec.structs.replace(decision.commit, request=answered))


def check_signal(name: str, data: msgspec.Raw) -> None:
    """Raise for a signal that no job can receive."""
    _check_name(name)
    if len(data) > MAX_SIGNAL_BYTES:
        raise TooLarge(
            f"The data of the signal have {len(data)} bytes; at most {MAX_SIGNAL_BYTES} are stored.",
            todo="Keep large data elsewhere, and send a reference to it.",
            facts={"bytes": len(data), "limit": MAX_SIGNAL_BYTES},
        )
    if fault := json_fault(data):
        raise InvalidSignal(
            f"The data of the signal {fault}.",
            todo="Send JSON that others can read.",
            facts={"name": name},
        )


def check_wait(request: WaitRequest) -> None:
    """Raise for a wait that breaks a rule."""
    if request.question is None or request.name:
        _check_name(request.name)
    if request.timeout_s is not None and not 0 < request.timeout_s <= MAX_WAIT_S:
        raise InvalidSignal(
            f"A job waits for more than 0 s and at most {MAX_WAIT_S:g} s, not {request.timeout_s:g} s.",
            todo="Give another timeout.",
            facts={"timeout_s": request.timeout_s, "most": MAX_WAIT_S},
        )
    if request.question is not None:
        _check_question(request.question)


def _check_question(question: ApprovalQuestion) -> None:
    if not 1 <= len(question.text) <= MAX_QUESTION:
        raise InvalidSignal(
            f"A question has 1 to {MAX_QUESTION} characters, not {len(question.text)}.",
            todo="Shorten it, and put the rest into the log of the job.",
            facts={"characters": len(question.text), "most": MAX_QUESTION},
        )
    if len(question.approvers) > MAX_APPROVERS:
        raise InvalidSignal(
            f"An approval names at most {MAX_APPROVERS} approvers, not {len(question.approvers)}.",
            todo="Name a role instead.",
            facts={"approvers": len(question.approvers), "most": MAX_APPROVERS},
        )
    if not question.role.includes(Role.OPERATOR):
        raise InvalidSignal(
            f"An approver needs the role {Role.OPERATOR} or {Role.ADMIN}, not {question.role}.",
            todo=f"Use {Role.OPERATOR}, and name the approvers.",
            allowed=[Role.OPERATOR, Role.ADMIN],
            facts={"role": question.role},
        )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidSignal(
            f"A signal cannot be called {name[:64]!r}.",
            todo="Use 1 to 32 letters, digits, dots, dashes and underscores, a letter or digit first.",
            facts={"name": name[:64]},
        )
