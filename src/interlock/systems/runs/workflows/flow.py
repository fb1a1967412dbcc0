"""Python flows: a function that declares jobs, and the planner that calls it.

    from interlock import Flow, flow, task

    @flow
    def ci(plan: Flow, *, pythons: str = "3.11 3.12") -> None:
        lint = plan.job(run_ruff, "src")
        tests = [plan.job(run_tests, v, name=f"test ({v})", needs=[lint]) for v in pythons.split()]
        plan.shell("package", "make dist", needs=tests)

    await il.runs.submit(ci, pythons="3.13")

The function is called at submission, or by a planner that has loaded its module, and builds a plan. It does
none of the work: tasks that it names are not called.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, overload

import msgspec

from interlock.errors import CannotLoad, InterlockError, InvalidArguments, PlanRefused
from interlock.systems.runs.workflows import PlanRequest
from interlock.systems.runs.workflows.expressions import (
    ChangeFacts,
    branch_of,
    changed_sentence,
    matching,
    tag_of,
)
from interlock.text import nearest
from interlock.wire.jobs import SHELL, JobSpec
from interlock.wire.runs import Plan, PlannedApproval, PlannedJob, RunSpec, SkippedJob, Source

_CARRIED = tuple(
    name for name in JobSpec.__struct_fields__ if name in PlannedJob.__struct_fields__ and name != "secrets"
)
"""Fields that a planned job takes from the spec of its task."""
_NOT_IN_A_PLAN = ("delay_s", "at", "not_after", "start_within_s", "unique", "parent_job_id", "after")
_NO_CHANGE = Source()


class TaskLike(Protocol):
    """A task: makes a spec from arguments."""

    def spec(self, *args: Any, **kwargs: Any) -> JobSpec:
        """Return a job spec."""
        ...


FlowWork: TypeAlias = "TaskLike | JobSpec"


class FlowJob:
    """A job of a flow, to be named in the needs of other jobs."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: str = name

    def __repr__(self) -> str:
        return f"<job {self.name} of a flow>"


class Flow:
    """The plan that a flow builds: add jobs to it, and inspect the change."""

    def __init__(self, source: Source, inputs: Mapping[str, str] = {}) -> None:
        self.source = source
        self.fail_fast = True
        self.timeout_s: float | None = None
        self._known = ChangeFacts(source, inputs)
        self._jobs: dict[str, PlannedJob] = {}
        self._skipped: dict[str, str] = {}

    @property
    def branch(self) -> str:
        """The branch of a push; otherwise empty."""
        return branch_of(self.source)

    @property
    def tag(self) -> str:
        """The tag of a push; otherwise empty."""
        return tag_of(self.source)

    def changed(self, *patterns: str) -> bool:
        """Return whether a matching path has changed.

        Return True if the changed paths are unknown.
        """
        paths = self.source.changed_paths
        return paths is None or any(matching(path, patterns) for path in paths)

    def job(
        self,
        work: FlowWork,
        /,
        *args: Any,
        name: str = "",
        needs: Iterable[FlowJob] = (),
        required: bool = True,
        secrets: Iterable[str] = (),
        environment: str = "",
        approval: PlannedApproval | str | None = None,
        why: str = "",
        **kwargs: Any,
    ) -> FlowJob:
        """Add a job: a task with its arguments and options, or a spec.

        `approval` is a question that a person has to approve before it starts.
        """
        spec = _spec_of(work, args, kwargs)
        _refuse_what_a_plan_has_not(spec)
        name = name or spec.task.rpartition(".")[2]
        self._refuse_twice(name)
        carried = {field: getattr(spec, field) for field in _CARRIED}
        self._jobs[name] = PlannedJob(
            name=name,
            needs=tuple(self._needed(name, needs)),
            required=required,
            why=why or "the flow says so",
            secrets=tuple(secrets) or spec.secrets,
            environment=environment,
            approval=PlannedApproval(question=approval) if isinstance(approval, str) else approval,
            **carried,
        )
        return FlowJob(name)

    def shell(
        self, name: str, *commands: str, env: Mapping[str, str] = {}, workdir: str = "", **options: Any
    ) -> FlowJob:
        """Add a job of shell commands, one step each.

        It takes the options of `job` and of a `JobSpec`.
        """
        steps = [{"run": command} for command in commands]
        given: dict[str, Any] = {"steps": steps, "env": dict(env)}
        if workdir:
            given["workdir"] = workdir
        of_spec = {field: options.pop(field) for field in list(options) if field in _CARRIED}
        spec = JobSpec(task=SHELL, input=msgspec.Raw(msgspec.json.encode(given)), **of_spec)
        return self.job(spec, name=name, **options)

    def skip(self, name: str, why: str = "") -> None:
        """Record that a job is left out, and why."""
        self._refuse_twice(name)
        self._skipped[name] = why or "the flow says so"

    def why_changed(self, *patterns: str) -> str:
        """Return the matching path that has changed, as a reason."""
        return changed_sentence(self._known, patterns)

    def made(self) -> Plan:
        """Return the plan so far."""
        return Plan(
            jobs=tuple(self._jobs.values()),
            skipped=tuple(SkippedJob(name=name, why=why) for name, why in self._skipped.items()),
            fail_fast=self.fail_fast,
            timeout_s=self.timeout_s,
        )

    def _refuse_twice(self, name: str) -> None:
        if name in self._jobs or name in self._skipped:
            raise PlanRefused(
                f"Two jobs of the flow are called {name}.",
                todo='Give one of them a name of its own: plan.job(..., name="...").',
                facts={"job": name},
            )

    def _needed(self, name: str, needs: Iterable[FlowJob]) -> Iterable[str]:
        for need in needs:
            known = self._jobs.get(getattr(need, "name", ""))
            if known is None:
                raise PlanRefused(
                    f"The job {name} needs {need!r}, which is not a job of this flow.",
                    allowed=tuple(self._jobs),
                    todo="Pass the value that plan.job(...) returned.",
                    facts={"job": name},
                )
            yield need.name


class FlowFunction:
    """A function decorated with `@flow`."""

    __name__: str

    def __init__(self, function: Callable[..., None], name: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name: str = name or function.__name__
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
        if not parameters or inspect.iscoroutinefunction(function):
            raise CannotLoad(
                f"The flow {self.name} has to be a plain function that takes the plan.",
                todo=f"Write: def {function.__name__}(plan: Flow) -> None",
                facts={"flow": self.name},
            )
        self._inputs = {parameter.name: parameter for parameter in parameters[1:]}

    def __repr__(self) -> str:
        return f"<flow {self.address}>"

    def __call__(self, plan: Flow, **inputs: Any) -> None:
        """Call the function, which adds its jobs to a plan.

        It may be the plan of another flow.
        """
        self.function(plan, **inputs)

    @property
    def address(self) -> str:
        """The address by which a planner finds it: `module:function`."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def plan(self, source: Source = _NO_CHANGE, /, **inputs: Any) -> Plan:
        """Return the plan that the function builds for a change and inputs."""
        texts = {name: str(value) for name, value in inputs.items()}
        made = Flow(source, texts)
        self.function(made, **self._fitted(inputs))
        return made.made()

    def spec(self, source: Source = _NO_CHANGE, /, **inputs: Any) -> RunSpec:
        """Return a run spec with the plan made here."""
        texts = {name: str(value) for name, value in inputs.items()}
        return RunSpec(workflow=self.name, plan=self.plan(source, **inputs), source=source, inputs=texts)

    def _fitted(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs converted to the annotated types.

        They may come as text.
        """
        fitted = {}
        for name, value in inputs.items():
            parameter = self._inputs.get(name)
            if parameter is None:
                guess = nearest(name, tuple(self._inputs))
                raise PlanRefused(
                    f"The flow {self.name} has no input {name!r}."
                    + (f" Did you mean {guess}?" if guess else ""),
                    allowed=tuple(self._inputs),
                    facts={"flow": self.name, "input": name},
                )
            annotated = Any if parameter.annotation is parameter.empty else parameter.annotation
            try:
                fitted[name] = msgspec.convert(value, annotated, strict=False)
            except msgspec.ValidationError as error:
                raise PlanRefused(
                    f"The input {name} of the flow {self.name} does not fit: {error}.",
                    facts={"flow": self.name, "input": name},
                ) from error
        missing = [
            name for name, one in self._inputs.items() if one.default is one.empty and name not in fitted
        ]
        if missing:
            raise PlanRefused(
                f"The flow {self.name} needs {' and '.join(missing)}.",
                todo=f"Give it: --input {missing[0]}=VALUE.",
                facts={"flow": self.name, "missing": missing},
            )
        return fitted


@overload
def flow(function: Callable[..., None], /) -> FlowFunction: ...


@overload
def flow(*, name: str | None = None) -> Callable[[Callable[..., None]], FlowFunction]: ...


def flow(function: Callable[..., None] | None = None, /, *, name: str | None = None) -> Any:
    """Declare a function that adds jobs to a plan as a flow.

    Used with or without a name.
    """

    def decorate(function: Callable[..., None]) -> FlowFunction:
        made = FlowFunction(function, name)
        FLOWS[made.address] = made
        return made

    return decorate if function is None else decorate(function)


FLOWS: dict[str, FlowFunction] = {}
"""Every flow of the loaded modules, by its address."""


def _spec_of(work: FlowWork, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobSpec:
    if not isinstance(work, JobSpec):
        return work.spec(*args, **kwargs)
    if args or kwargs:
        raise InvalidArguments(
            "A spec has its arguments already.", todo="Give the task itself, or the spec alone."
        )
    return work


def _refuse_what_a_plan_has_not(spec: JobSpec) -> None:
    for field in _NOT_IN_A_PLAN:
        if getattr(spec, field):
            raise PlanRefused(
                f"A job of a plan has no {field}; it starts when the jobs it needs have ended.",
                todo=f"Leave {field} out.",
                facts={"task": spec.task},
            )


class FlowPlanner:
    """Makes plans with loaded flows. It imports no module: a request cannot name code to load."""

    def __init__(self, flows: Mapping[str, FlowFunction] = FLOWS) -> None:
        self._flows = flows

    async def plan(self, request: PlanRequest) -> Plan:
        """Return the plan.

        The function runs in a thread, and its exceptions become `PlanRefused`.
        """
        spec = request.spec
        found = self._flows.get(spec.definition)
        if found is None:
            known = tuple(sorted(self._flows))
            guess = nearest(spec.definition, known)
            raise PlanRefused(
                f"There is no flow {spec.definition[:200]!r} here."
                + (f" Did you mean {guess}?" if guess else ""),
                allowed=known,
                todo="Start the server with its module, or submit the flow from a program that has it.",
                facts={"flow": spec.definition[:200], "known": list(known)},
            )
        try:
            return await asyncio.to_thread(found.plan, spec.source, **spec.inputs)
        except InterlockError:
            raise
        except Exception as error:
            raise PlanRefused(
                f"The flow {found.address} raised {type(error).__name__}: {error}",
                todo="Mend the flow.",
                facts={"flow": found.address, "exception": type(error).__name__},
            ) from error
