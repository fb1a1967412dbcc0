"""Records that take one step in their life: they are open, then settled, and never changed after that.

    LOG = WriteOnce("log", "Some lines of an attempt.", opened=state(OPEN, …), settled=end(KEPT, …), …)
    change = LOG.change(name, body, settle=True, parent=job_id, actor=actor, mark=mark)

Logs, large results and artifacts are settled when they are created, a plan when its run was reported,
a tree when its last job has ended. The journal line of the step is made from the table.
"""

from __future__ import annotations

from interlock.machine import Event, Machine, Moved, State, ignore, on
from interlock.machine.table import S
from interlock.store.records import Change, Note, Record, StepLine


class WriteOnce(Machine[S, None]):
    """The table of such a record, and the changes that write it."""

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        opened: State[S],
        settled: State[S],
        dropped: State[S],
        settle: Event,
        why: str,
        drop: Event,
    ) -> None:
        # fmt: off
        super().__init__(
            name,
            doc,
            initial=opened.name,
            spine=(opened.name, settled.name),
            stop=(drop,),
            states=(opened, settled, dropped),
            rows=(
                on(settle, opened.name, settled.name, owner=settle.by, why=why),
                on(drop, opened.name, dropped.name, owner=drop.by, why="Somebody said so."),
                ignore(drop, (settled.name, dropped.name), why="it is over"),
            ),
        )
        # fmt: on
        self._settle = settle

    def change(
        self,
        name: str,
        body: bytes,
        *,
        settle: bool,
        before: Record | None = None,
        parent: str | None = None,
        actor: str,
        mark: str,
    ) -> Change:
        """Return the change that creates a record, or writes an open one again, and may settle it.

        Only the beginning and the end of a record are journalled. Raises where the table does not let it be
        settled.
        """
        state, note = self.initial, Note(actor=actor, request_id=mark)
        if settle:
            decided = self.decide(state if before is None else self.state(before.state), None, self._settle)
            if not isinstance(decided, Moved):
                raise decided.error()
            state, note = decided.state, Note(steps=_lines(decided), actor=actor, request_id=mark)
        return Change(
            kind=self.name,
            id=name,
            expected=0 if before is None else before.version,
            state=state,
            body=body,
            parent=parent if before is None else before.parent,
            note=note if settle or before is None else None,
        )


def _lines(moved: Moved[S, None]) -> tuple[StepLine, ...]:
    return tuple(
        StepLine(step.machine, "", step.event, step.source, step.target, step.owner, step.moves)
        for step in moved.steps
    )
