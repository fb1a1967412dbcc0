"""A walk from answer to answer: what they lead to is asked for next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from schemathesis.core.transport import Response
from tests.server.fuzzing.cases import ALWAYS, SAME_CHANCE, Case, schema_of
from tests.server.fuzzing.world import Place, world

from interlock.server.routes import Route


def walk(
    folder: Path,
    more: Sequence[Route] = (),
    *,
    first: Sequence[Place] = (),
    within: str = "/",
    scenarios: int,
    steps: int,
) -> Counter[tuple[str, int]]:
    """Ask for what answers lead to, by the links of the document and by names that are alike.

    Each scenario is one walk through a world of its own, in which these things were there `first`. It asks
    for paths that begin with `within`.
    Counts what was answered with which status.
    """
    answered: Counter[tuple[str, int]] = Counter()

    schema = schema_of(more).include(path_regex=f"^{within}")

    class Walk(schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            self._open = ExitStack()
            place = self._open.enter_context(TemporaryDirectory(dir=folder))
            self._world = self._open.enter_context(world(Path(place), more))
            for each in first:
                dict(each(self._world))

        def teardown(self) -> None:
            self._open.close()

        def call(self, case: Case, **_: Any) -> Response:
            response = self._world.call(case)
            answered[case.operation.label, response.status_code] += 1
            return response

        def validate_response(self, response: Response, case: Case, *_: Any, **__: Any) -> None:
            case.validate_response(response, checks=ALWAYS)

    Walk.run(settings=settings(SAME_CHANCE, max_examples=scenarios, stateful_step_count=steps))
    return answered
