"""What worlds and faults are made of, as data: who is there, what they do, and how often what breaks."""

from __future__ import annotations

import msgspec

from interlock.lifecycles.durations import Durations
from interlock.systems.orchestrator.settings import DEFAULT_QUOTAS, OrchestratorSettings
from interlock.systems.orchestrator.vault import Environment, SecretPolicy
from interlock.wire.jobs import RetryRule

HOUR_S = 3_600.0

Span = tuple[float, float]
"""From and to; whatever lies between them is drawn."""


PRODUCTION = "production"
POLICY = SecretPolicy(environments={PRODUCTION: Environment(approval=True)})


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of job that people submit."""

    name: str
    weight: float = 1.0
    """How often, beside the other kinds."""
    seconds: Span = (1.0, 60.0)
    ends: tuple[str, ...] = ("ok",)
    """How its attempts end, one drawn for each: ok, user, infra, flaky, tooling, hang or deaf."""
    shards: int = 1
    children: int = 0
    """How many are submitted below it by whoever submits it."""
    breadth: int = 0
    """How many children its handler submits and waits for; they do the same one level below."""
    levels: int = 1
    if_fails: str = "ignore"
    """What a child of its handler that fails does to others."""
    priority: int = 0
    labels: tuple[str, ...] = ()
    delay_s: float = 0.0
    timeout_s: float | None = None
    job_timeout_s: float | None = None
    retries: int = 0
    losses: int | None = None
    cancels: float = 0.0
    """The chance that somebody asks it to stop."""
    again: float = 0.0
    """The chance that somebody has it done again after its end."""
    awaited: float = 0.03
    """The chance that somebody waits for its end."""


class RunKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of run that people submit: a plan of jobs that is drawn for each of them."""

    name: str
    weight: float = 1.0
    jobs: tuple[int, int] = (1, 6)
    seconds: Span = (1.0, 60.0)
    ends: tuple[str, ...] = ("ok",)
    """As of a kind of job."""
    needs: float = 0.4
    """The chance that a job needs another that was planned before it, for each of those."""
    optional: float = 0.2
    """The chance that the run can succeed without a job."""
    fail_fast: bool = True
    timeout_s: float | None = None
    grouped: float = 0.0
    """The chance that it belongs to a group in which a newer run supersedes the older ones."""
    cancels: float = 0.0
    again: float = 0.0
    """The chance that what has not succeeded is done again, once it was reported."""
    deploys: bool = False
    """Its last job uses an environment, so that an operator has to approve the run."""


class SimulationKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of simulation that people start: a chain of steps."""

    name: str
    weight: float = 1.0
    steps: tuple[int, int] = (2, 30)
    seconds: Span = (0.5, 20.0)
    """How long a step takes."""
    save_every_s: float = 0.0
    losses: int = 0
    pauses: float = 0.0
    """The chance that somebody pauses it, and resumes it later."""
    cancels: float = 0.0
    fails: float = 0.0
    """The chance that one of its steps fails."""


class WorkloadKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of workload that people have driven on the fleet."""

    name: str
    weight: float = 1.0
    agents: tuple[int, int] = (2, 4)
    """On how many of them."""
    seconds: Span = (5.0, 60.0)
    lead_s: Span = (1.0, 20.0)
    """How long after the last READY all begin."""
    skew_limit_s: float = 0.1
    """How far apart they may begin at worst, for all that is known of their clocks."""
    policy: str = "all"
    ends: tuple[str, ...] = ("ok",)
    """How it ends on an agent, one drawn for each: ok, early, fails, stillborn, slow, mute, hangs, deaf (to
    being asked), stubborn (to being terminated as well) or undead (it survives a kill for a while)."""
    cancels: float = 0.0


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """When people submit."""

    by_day_per_h: float = 10.0
    by_night_per_h: float = 1.0
    bursts_per_day: float = 1.0
    burst: int = 20
    """How many come at once."""
    runs_per_day: float = 0.0
    simulations_per_day: float = 0.0
    workloads_per_h: float = 0.0
    orders_per_h: float = 0.0
    """How often the supervisor orders a worker something: to hold, to go on, to leave, to go at once."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A workload: who is there, and what there is to do. Times are in seconds."""

    name: str
    doc: str
    orchestrators: int = 1
    """Servers that workers speak to over a network, and that look after the store."""
    workers: int = 2
    """Workers of those servers."""
    embedded: int = 0
    """Workers with an orchestrator of their own, on the store itself."""
    slots: int = 4
    prefetch: int = 0
    kinds: tuple[JobKind, ...] = (JobKind(name="plain"),)
    runs: tuple[RunKind, ...] = ()
    simulations: tuple[SimulationKind, ...] = ()
    agents: int = 0
    """Of the fleet, which the workers drive."""
    workloads: tuple[WorkloadKind, ...] = ()
    clocks_set_per_h: float = 0.0
    """How often somebody sets the clock of an agent's machine, in a storm, where clocks are off at all."""
    supervised: bool = False
    """Whether its workers register with the supervisor, and hear its orders."""
    quotas: tuple[int, ...] = DEFAULT_QUOTAS
    """Of trees, from the root on."""
    arrivals: Arrivals = Arrivals()
    durations: Durations = Durations()
    first_backoff_s: float = 0.2
    """How soon a worker that has found nothing asks again, the first time."""
    deliver_every_s: float = 10.0
    retain_every_s: float = HOUR_S
    keeps_s: float = 12 * HOUR_S
    """How long what has ended is kept."""
    settles_within_s: float = 2 * HOUR_S
    """After the last fault, everything has ended by then."""
    chapter_h: float = 24.0
    """How long one seed lasts, unless somebody says otherwise."""
    scene_h: float = 1.0
    """How long it lasts where many seeds shall have their turn soon."""

    @property
    def settings(self) -> OrchestratorSettings:
        """What the orchestrators are told."""
        return OrchestratorSettings(durations=self.durations, tree_quotas=self.quotas, secrets=POLICY)

    @property
    def fleet(self) -> list[str]:
        """Where the agents live."""
        return [f"a{number}" for number in range(1, self.agents + 1)]

    @property
    def people(self) -> str:
        """The name of whoever submits."""
        return "people"

    def retry_rules(self, kind: JobKind) -> dict[str, RetryRule]:
        """How failures of a kind of job are tried again, beside the defaults."""
        rule = RetryRule(retries=kind.retries, first_pause_s=2.0, longest_pause_s=60.0)
        return {"user": rule, "timeout": rule} if kind.retries else {}


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong: chances are per call, rates per hour, both in a storm; `calm` is what is left of them
    between two storms."""

    name: str
    doc: str
    # What happens to one call, of the store or of an orchestrator
    request_lost: float = 0.0
    reply_lost: float = 0.0
    late: float = 0.0
    late_s: Span = (0.5, 15.0)
    twice: float = 0.0
    """A message arrives again, after a while: as by a proxy that repeats what it has seen."""
    twice_s: Span = (0.1, 300.0)
    # What happens to a process, to the network and to the store
    kills: float = 0.0
    down_s: Span = (1.0, 300.0)
    deploys: float = 0.0
    """A worker is asked to go, and started again under its name."""
    freezes: float = 0.0
    frozen_s: Span = (5.0, 600.0)
    partitions: float = 0.0
    apart_s: Span = (5.0, 600.0)
    outages: float = 0.0
    away_s: Span = (1.0, 120.0)
    failovers: float = 0.0
    """The store is away for a moment and comes back in another epoch."""
    lossy_s: float = 0.0
    """How much of the latest writes a fail-over loses at most."""
    lags: float = 0.0
    """Timers of a process, and so its sweeps, are late for a while."""
    lag_s: Span = (1.0, 60.0)
    skew: float = 0.0
    """By which part of itself a clock runs fast or slow, at most; wall clocks are off by hours besides."""
    # When
    storm_every_h: float = 8.0
    storm_lasts_h: float = 2.0
    calm: float = 0.1
    quiet_at_end_s: float = 600.0

    def stormy(self, at_s: float) -> bool:
        """Whether there is a storm at this time."""
        return (at_s / HOUR_S) % self.storm_every_h < self.storm_lasts_h
