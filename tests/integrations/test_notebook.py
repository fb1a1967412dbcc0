"""Progress in a notebook: the example as Jupyter runs it, and what is displayed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PROGRAM_S

from interlock import Interlock, JobSpec
from interlock import notebook as module
from interlock.errors import InvalidSettings, ResultNotReady, StoreUnavailable
from interlock.notebook import ProgressTable, watch
from interlock.wire.batches import BatchCounts, BatchView
from interlock.wire.jobs import AttemptView, JobView
from interlock.wire.runner import Progress

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def nbformat() -> Any:
    """Return the library, which has no types, and takes a fifth of the time of collecting all tests."""
    import nbformat

    return nbformat


def opened() -> Any:
    return nbformat().reads(EXAMPLE.read_text(encoding="utf-8"), as_version=4)


@pytest.mark.long
def test_the_example_runs_in_jupyter_and_shows_both_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("INTERLOCK_URL", "INTERLOCK_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    from nbclient import NotebookClient

    book = opened()
    client = NotebookClient(
        book,
        timeout=int(PROGRAM_S),
        startup_timeout=int(PROGRAM_S),
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    watched = next(cell for cell in book.cells if "await watch" in cell.source)
    (shown,) = [output for output in watched.outputs if "text/html" in output.get("data", {})]
    page = shown.data["text/html"]
    assert page.count("<tr>") == 3
    assert ("COMPLETED" in page, "50 of 50 completed" in page, "100%" in page) == (True, True, True)
    printed = next(cell for cell in book.cells if cell.source.startswith("print")).outputs[0].text
    assert printed == "0.0115 50\n"


def test_the_example_is_kept_without_outputs() -> None:
    book = opened()
    nbformat().validate(book)
    assert [cell.outputs for cell in book.cells if cell.cell_type == "code" and cell.outputs] == []


class Screen:
    """What is shown, one after the other."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, table: object, /) -> None:
        self.shown.append(repr(table))


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    one = Screen()
    monkeypatch.setattr(module, "_display", lambda: one)
    return one


@pytest.fixture
async def il() -> AsyncIterator[Interlock]:
    async with Interlock("memory:") as one:
        yield one


async def test_a_job_is_shown_as_it_changes_and_returned_when_it_has_ended(
    il: Interlock, screen: Screen
) -> None:
    handle = await il.submit(JobSpec(task="shop.send", description="for Ann"))
    watching = asyncio.create_task(watch(handle, every_s=0.0))
    while not screen.shown:
        await asyncio.sleep(0)
    await handle.cancel()
    (ended,) = await watching
    assert ended.state == "CANCELED"
    assert screen.shown == [f"{handle.id}  PENDING  for Ann", f"{handle.id}  CANCELED  for Ann"]


async def test_nothing_to_watch_shows_nothing() -> None:
    assert await watch() == []


async def test_a_job_that_does_not_end_in_time_continues(il: Interlock, screen: Screen) -> None:
    handle = await il.submit(JobSpec(task="shop.send"))
    with pytest.raises(ResultNotReady) as caught:
        await watch(handle, every_s=0.0, timeout_s=0.01)
    assert caught.value.facts == {"ids": [handle.id]}
    assert (await handle.view()).state == "PENDING"
    assert len(screen.shown) == 1, "what has not changed is not drawn again"


async def test_a_store_that_is_away_for_a_while_does_not_end_the_display(
    il: Interlock, screen: Screen
) -> None:
    handle = await il.submit(JobSpec(task="shop.send"))
    await handle.cancel()

    class Unsteady:
        id = handle.id
        away = True

        async def view(self) -> JobView:
            if self.away:
                self.away = False
                raise StoreUnavailable("The store does not answer.")
            return await handle.view()

    (ended,) = await watch(Unsteady(), every_s=0.0)
    assert ended.state == "CANCELED"
    assert len(screen.shown) == 1


async def test_without_ipython_the_command_that_installs_it_is_named(
    il: Interlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(InvalidSettings) as caught:
        await watch(await il.submit(JobSpec(task="shop.send")))
    assert caught.value.todo == "Install it: pip install 'interlock[notebook]'"


def job(**facts: Any) -> JobView:
    known = {
        "id": "j_0123456789ab",
        "state": "RUNNING",
        "version": 2,
        "task": "shop.send",
        "queue": "default",
    }
    return JobView(**{**known, "created_at": NOW, "updated_at": NOW, **facts})


def test_html_in_the_description_of_a_job_is_escaped() -> None:
    page = ProgressTable([job(description="<script>alert(1)</script>")])._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("done", "total", "share"), [(2, 8, "25%"), (9, 8, "100%"), (None, 8, ""), (2, None, ""), (2, 0, "")]
)
def test_the_progress_bar_shows_the_progress_that_the_handler_reports(
    done: float | None, total: float | None, share: str
) -> None:
    progress = Progress(done=done, total=total, message="halfway")
    attempt = AttemptView(id="1", shard=1, index=1, state="LEASED", created_at=NOW, progress=progress)
    table = ProgressTable([job(attempts=(attempt,))])
    assert ("<progress" in table._repr_html_()) is bool(share)
    assert repr(table).split("  ") == [
        part for part in ("j_0123456789ab", "RUNNING", share, "halfway") if part
    ]


def test_a_batch_with_failures_is_shown_as_failed() -> None:
    counts = BatchCounts(total=10, completed=4, failed=1, canceled=1)
    view = BatchView(id="b_0123456789ab", state="RUNNING", created_at=NOW, updated_at=NOW, counts=counts)
    (row,) = ProgressTable([view]).rows
    assert (row.tone, row.share) == ("bad", 0.6)
    assert row.message == "4 of 10 completed, 1 failed, 1 canceled"
