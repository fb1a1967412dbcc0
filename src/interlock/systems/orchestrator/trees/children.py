"""Children that a handler submits, under its lease and under a name.

Fencing. The parent hears of its children as of a heartbeat, in the commit that makes them: an attempt
that was given up makes none, and the refusal is journalled.

Names. What a handler submits under a name is written down beside its job in the same commit, once. A
handler that runs again, after a crash, a retry or a wait, submits the same under the same name, and is
given the children that are there. Unlike a request id, a name is known for as long as its job is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InvalidJob, RequestIdReused, UnknownLease
from interlock.lifecycles.job import JOB
from interlock.store.records import Key, Record, Repeated
from interlock.systems.orchestrator.answers import raise_for_answer
from interlock.systems.orchestrator.attachments import Births, Brood, brood_change, brood_key
from interlock.systems.orchestrator.body import decode_body, given_of
from interlock.systems.orchestrator.runner_messages import decide_message
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import check_spec
from interlock.systems.orchestrator.tokens import read_token
from interlock.systems.orchestrator.trees.submission import Draw, TreeSubmission, tree_keys
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Answer, Heard
from interlock.wire.trees import MAX_CHILD_NAME, MAX_CHILDREN


async def submit_children(
    engine: Engine,
    settings: OrchestratorSettings,
    draw: Draw,
    token_text: str,
    runner_id: str,
    name: str,
    specs: Sequence[JobSpec],
) -> tuple[str, ...]:
    """The ids of the children under this name: new ones, or those that were submitted under it before."""
    token = read_token(token_text)
    if token is None:
        raise UnknownLease("This is not the token of a lease.", todo="Ask for work first.")
    _check(name, specs)
    specs = [msgspec.structs.replace(spec, parent_job_id=token.job_id) for spec in specs]
    for spec in specs:
        check_spec(spec, settings)
    parent, brood = Key(JOB.name, token.job_id), brood_key(token.job_id, token.shard, name)
    trees = tree_keys(await engine.store.load([parent]))
    births = Births(token=token_text, runner_id=runner_id, children=len(specs))

    def decide(found: Sequence[Record | None], now: datetime) -> Decision[Answer | tuple[str, ...]]:
        above, before, *kept = found
        mark = engine.mark()
        heard = decide_message(above, token, births, now, mark, settings)
        if above is None or heard.commit is None or not isinstance(heard.answer, Heard):
            return Decision(heard.answer, heard.commit)
        if before is not None:
            return Decision(_again(before, name, specs))
        joining = TreeSubmission({above.id: above}, dict(zip(trees, kept, strict=True)), now, settings, draw)
        for spec in _inherited(specs, above):
            joining.add(spec)
        told = Brood(shard=token.shard, name=name, ids=tuple(joining.ids), fingerprint=_fingerprint(specs))
        changes = (
            *heard.commit.changes,
            *joining.changes(mark=mark, actor=runner_id),
            brood_change(token.job_id, told, mark=mark, actor=runner_id),
        )
        return Decision(told.ids, msgspec.structs.replace(heard.commit, changes=changes))

    applied = await engine.apply([parent, brood, *trees], decide)
    assert not isinstance(applied, Repeated)  # it carries no request
    if isinstance(applied.answer, tuple):
        return applied.answer
    raise_for_answer(applied.answer)
    raise AssertionError(applied.answer)


def _check(name: str, specs: Sequence[JobSpec]) -> None:
    if not (1 <= len(name) <= MAX_CHILD_NAME and name.isprintable()):
        raise InvalidJob(
            f"The name of children has 1 to {MAX_CHILD_NAME} printable characters.",
            todo="Give them another one.",
            facts={"name": name[:MAX_CHILD_NAME]},
        )
    if not 1 <= len(specs) <= MAX_CHILDREN:
        raise InvalidJob(
            f"A handler submits 1 to {MAX_CHILDREN} children at once, not {len(specs)}.",
            todo="Submit them in several portions, each under a name of its own.",
            facts={"children": len(specs), "most": MAX_CHILDREN},
        )


def _again(record: Record, name: str, specs: Sequence[JobSpec]) -> tuple[str, ...]:
    known = msgspec.json.decode(record.body, type=Brood)
    if known.fingerprint != _fingerprint(specs):
        raise RequestIdReused(
            f"The handler has submitted other children under the name {name!r} before; those stay.",
            todo="Submit the same again under a name, whenever the handler runs again, and others under "
            "another one.",
            facts={"name": name, "children": len(known.ids)},
        )
    return known.ids


def _fingerprint(specs: Sequence[JobSpec]) -> str:
    """Of what they are to do; how they are queued may change with the next version of a program."""
    told = [(spec.task, spec.input) for spec in specs]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:32]


def _inherited(specs: Sequence[JobSpec], parent: Record) -> list[JobSpec]:
    """Return the specs with the trace of their parent, and with no secret that it is not given itself."""
    more = sorted({name for spec in specs for name in spec.secrets} - set(decode_body(parent.body).secrets))
    if more:
        raise InvalidJob(
            f"A child is given only secrets of its parent, which has no {', '.join(more)}.",
            todo="Name them where the parent is submitted as well.",
            facts={"secrets": more},
        )
    trace = given_of(parent).trace
    return [msgspec.structs.replace(spec, trace=spec.trace or trace) for spec in specs]
