"""Jobs that are submitted together, some of them as children of others. Pure.

A child, its parent, which counts it, and its tree, which has a place for it or holds it back, change in
one commit: so the parent cannot have ended meanwhile, and nobody is let in beyond the quotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from interlock.errors import InvalidJob
from interlock.lifecycles.job import Job
from interlock.store.records import Change, Key, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import Provenance
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import depth_below, new_job
from interlock.systems.orchestrator.trees.body import TreePart, decode_tree, tree_change, tree_key
from interlock.systems.orchestrator.trees.slots import TreeSlots, check_workers
from interlock.wire.jobs import SHELL, JobSpec

Draw = Callable[[datetime], str]
"""Where the ids of jobs come from."""


class _Kin(msgspec.Struct):
    """As much of a job's body as its tree and its children need to know."""

    data: Job
    tree: TreePart | None = None
    secrets_withheld: bool = False
    origin: Provenance | None = None


def root_of(record: Record) -> str:
    """The root of the tree that a job is in; its own id where it has no parent."""
    part = msgspec.json.decode(record.body, type=_Kin).tree
    return part.root_id if part is not None else record.id


def beneath(spec: JobSpec, parent: Record) -> tuple[JobSpec, Provenance | None]:
    """Return a child as its parent allows it, and where it comes from.

    What is withheld from the parent is withheld from the child. The child of a fork's job stays with shell
    steps in the queue and with the labels of its parent, whatever it asks for.
    """
    kin = msgspec.json.decode(parent.body, type=_Kin)
    spec = replace(spec, secrets_withheld=spec.secrets_withheld or kin.secrets_withheld)
    if kin.origin is None or not kin.origin.from_fork:
        return spec, kin.origin
    if spec.task != SHELL:
        raise InvalidJob(
            f"A job of a change from a fork submits only {SHELL}, not {spec.task}.",
            todo=f"Submit {SHELL}, or do it in a run that is not about a fork.",
            allowed=[SHELL],
            facts={"task": spec.task, "parent_job_id": parent.id},
        )
    return replace(spec, queue=parent.queue or spec.queue, labels=parent.labels), kin.origin


class TreeSubmission:
    """Jobs that are being made, and what that makes of their parents and their trees."""

    def __init__(
        self,
        parents: Mapping[str, Record | None],
        trees: Mapping[Key, Record | None],
        now: datetime,
        settings: OrchestratorSettings,
        draw: Draw,
    ) -> None:
        self._depths = {name: depth_below(name, record) for name, record in parents.items()}
        self._parents = {name: record for name, record in parents.items() if record is not None}
        self._trees = trees
        self._now, self._settings, self._draw = now, settings, draw
        self._seatings: dict[str, TreeSlots] = {}
        self.ids: list[str] = []
        self._drafts: list[JobAggregate] = []
        self._born = Counter[str]()

    def add(self, spec: JobSpec) -> None:
        """One more of them, in its order."""
        while (job_id := self._draw(self._now)) in self._parents:
            pass  # the name of a parent in the same commit
        self.ids.append(job_id)
        if spec.parent_job_id is None:
            self._drafts.append(new_job(spec, job_id, self._now, self._settings))
            return
        self._born[spec.parent_job_id] += 1
        self._drafts.append(self._child(spec, job_id, spec.parent_job_id))

    def _child(self, spec: JobSpec, job_id: str, parent_id: str) -> JobAggregate:
        depth = self._depths[parent_id]
        spec, origin = beneath(spec, self._parents[parent_id])
        check_workers(spec.task, depth, spec.worker_count, self._settings.tree_quotas)
        root_id = root_of(self._parents[parent_id])
        seated = self._seating(root_id).join(job_id, parent_id, depth, spec.worker_count)
        later = self._now + timedelta(seconds=spec.delay_s) if spec.delay_s and not seated else None
        part = TreePart(root_id=root_id, if_fails=spec.if_fails, not_before=later)
        return new_job(
            spec, job_id, self._now, self._settings, depth=depth, origin=origin, tree=part, held=not seated
        )

    def _seating(self, root_id: str) -> TreeSlots:
        if root_id not in self._seatings:
            body = decode_tree(self._trees.get(tree_key(root_id)))
            self._seatings[root_id] = TreeSlots(body, self._settings.tree_quotas)
        return self._seatings[root_id]

    def parents(self, *, mark: str) -> list[Change]:
        """The parents, which count their children: when they are stopped, there is somebody to tell."""
        changes = []
        for parent_id, record in self._parents.items():
            parent = JobAggregate.of(record, self._now, self._settings)
            parent.body.children += self._born[parent_id]
            changes.append(parent.change(mark=mark, actor=""))
        return changes

    def changes(self, *, mark: str, actor: str) -> list[Change]:
        """The jobs themselves, and the trees that they have joined."""
        changes = [draft.change(mark=mark, actor=actor) for draft in self._drafts]
        for root_id, seating in self._seatings.items():
            record = self._trees.get(tree_key(root_id))
            changes.append(tree_change(root_id, record, seating.body, mark=mark, over=False))
        return changes


def tree_keys(parents: Sequence[Record | None]) -> list[Key]:
    """The trees that children of these jobs would be in."""
    return [tree_key(root_id) for root_id in sorted({root_of(each) for each in parents if each is not None})]
