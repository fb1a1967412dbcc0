"""What a registration must satisfy; one that does not is told everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.errors import InvalidWorker
from interlock.store.limits import MAX_HANDLER, MAX_ID, MAX_LABEL, MAX_LABELS
from interlock.wire.runner import MAX_TASKS
from interlock.wire.workers import WorkerSpec

MAX_CAPACITY = 10_000
MAX_METADATA = 4_096


def check(spec: WorkerSpec) -> None:
    """Raise unless the worker can be registered."""
    faults = []
    for noun, text in (("workspace_id", spec.workspace_id), ("name", spec.name or "-")):
        if not 1 <= len(text) <= MAX_ID or not text.isprintable() or "#" in text:
            faults.append(f"{noun} has 1 to {MAX_ID} printable characters and no '#'")
    faults += _misnamed(spec)
    for noun, number, most in (
        ("labels", len(set(spec.labels)), MAX_LABELS),
        ("tasks", len(spec.tasks or ()), MAX_TASKS),
    ):
        if number > most:
            faults.append(f"there are {number} {noun}, at most {most}")
    if not 1 <= spec.capacity <= MAX_CAPACITY:
        faults.append(f"capacity is {spec.capacity} and must be 1 to {MAX_CAPACITY}")
    texts = (spec.incarnation, spec.host, spec.version, *spec.metadata, *spec.metadata.values())
    if sum(map(len, texts)) > MAX_METADATA or not all(text.isprintable() for text in texts):
        faults.append(f"what it says about itself has at most {MAX_METADATA} printable characters")
    if faults:
        raise InvalidWorker(
            "The worker cannot be registered: " + "; ".join(faults) + ".",
            todo="Correct it and register again; nothing was stored.",
            facts={"faults": faults},
        )


def _misnamed(spec: WorkerSpec) -> Iterator[str]:
    for noun, names, longest in (
        ("the name of a queue", spec.queues, MAX_ID),
        ("a label", spec.labels, MAX_LABEL),
        ("the name of a task", spec.tasks or (), MAX_HANDLER),
    ):
        if not all(1 <= len(each) <= longest and each.isprintable() for each in names):
            yield f"{noun} has 1 to {longest} printable characters"
