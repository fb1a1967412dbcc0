"""Plans for tests of what holds for any plan."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.systems.runs.site import planned

from interlock.wire.runs import PlannedApproval, PlannedJob


@st.composite
def planned_jobs(draw: st.DrawFn) -> tuple[PlannedJob, ...]:
    """Up to eight jobs, each of which needs some of those before it; many are alike."""
    names = [f"a{n}" for n in range(draw(st.integers(1, 8)))]
    return tuple(
        PlannedJob(
            name=name,
            task=draw(st.sampled_from(["build", "test"])),
            needs=tuple(draw(st.sets(st.sampled_from(names[:at]), max_size=2))) if at else (),
            required=draw(st.sampled_from([True, True, False])),
            limits=draw(st.sampled_from([(), (), ("disk",)])),
            approval=draw(st.sampled_from([None, None, PlannedApproval(question="Now?")])),
        )
        for at, name in enumerate(names)
    )


DIAMOND = (
    *(planned(f"a{n}") for n in range(3)),
    *(planned(f"b{n}", "a0", "a1", "a2", required=n > 0) for n in range(3)),
    planned("c", "b0", "b1", "b2"),
)
