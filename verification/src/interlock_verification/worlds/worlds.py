"""The worlds, written as data: their actors, their work and its rate."""

from __future__ import annotations

import msgspec

from interlock.errors import InvalidArguments
from interlock.lifecycles.durations import Durations
from interlock.systems.orchestrator.settings import DEFAULT_QUOTAS
from interlock.systems.orchestrator.vault import Environment, SecretPolicy
from interlock.systems.settings import Settings
from interlock.text import nearest
from interlock.wire.jobs import RetryRule, UniquePolicy

HOUR_S = 3_600.0

BRIEF, POSTAL, BRANCH = "brief", "postal", "branch"
"""Tasks whose handlers never wait, wait for signals, and wait for the children that they submit."""

Span = tuple[float, float]
"""A range from which a value is drawn."""

PRODUCTION = "production"
POLICY = SecretPolicy(environments={PRODUCTION: Environment(approval=True)})


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of submitted job."""

    name: str
    weight: float = 1.0
    """Relative frequency among the kinds."""
    seconds: Span = (1.0, 60.0)
    ends: tuple[str, ...] = ("ok",)
    """Ends to draw from for each attempt: ok, user, infra, flaky, tooling, snooze, hang, deaf or said."""
    brief: bool = False
    """Whether its handler never waits, so that workers execute several of them as a cohort."""
    shards: int = 1
    children: int = 0
    """Number of children submitted by its client."""
    breadth: int = 0
    """Number of children that its handler submits and waits for; these do the same one level below."""
    levels: int = 1
    if_fails: str = "ignore"
    """The effect of a failed child on others."""
    signals: int = 0
    """Number of signals that its handler waits for, and its client sends."""
    priority: int = 0
    labels: tuple[str, ...] = ()
    delay_s: float = 0.0
    keys: int = 0
    """Number of unique keys that such jobs share; 0 for none."""
    policy: UniquePolicy = "existing"
    start_within_s: float | None = None
    limits: tuple[str, ...] = ()
    """Keys of limits that it counts against."""
    heavy: int = 1
    """Number of slots of each limit that it takes."""
    timeout_s: float | None = None
    job_timeout_s: float | None = None
    retries: int = 0
    losses: int | None = None
    cancels: float = 0.0
    """Probability of a cancellation."""
    again: float = 0.0
    """Probability of a retry after its end."""
    awaited: float = 0.03
    """Probability that a client waits for its end."""


class RunKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of submitted run: a plan of jobs that is drawn for each of them."""

    name: str
    weight: float = 1.0
    jobs: tuple[int, int] = (1, 6)
    seconds: Span = (1.0, 60.0)
    ends: tuple[str, ...] = ("ok",)
    brief: bool = False
    """Both as for a kind of job."""
    needs: float = 0.4
    """Probability that a job needs another one, for each that was planned before it."""
    optional: float = 0.2
    """Probability that a job is optional."""
    fail_fast: bool = True
    timeout_s: float | None = None
    grouped: float = 0.0
    """Probability that it belongs to a group in which a newer run supersedes the older ones."""
    cancels: float = 0.0
    again: float = 0.0
    """Probability that its failed jobs are rerun."""
    deploys: bool = False
    """Whether its last job uses an environment, so that an operator has to approve the run."""


class SimulationKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of simulation: a chain of steps."""

    name: str
    weight: float = 1.0
    steps: tuple[int, int] = (2, 30)
    seconds: Span = (0.5, 20.0)
    """Duration of a step."""
    save_every_s: float = 0.0
    losses: int = 0
    pauses: float = 0.0
    """Probability of a pause, with a later resume."""
    cancels: float = 0.0
    fails: float = 0.0
    """Probability that one of its steps fails."""


class FleetWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of workload of the fleet."""

    name: str
    weight: float = 1.0
    agents: tuple[int, int] = (2, 4)
    """Number of agents."""
    seconds: Span = (5.0, 60.0)
    lead_s: Span = (1.0, 20.0)
    """Time between the last READY and the start."""
    skew_limit_s: float = 0.1
    """Maximum uncertainty of simultaneous starts, from the measured clocks."""
    policy: str = "all"
    ends: tuple[str, ...] = ("ok",)
    """The possible ends on an agent, one drawn for each: ok, early, fails, stillborn, slow, mute, hangs, deaf
    (ignores a request to stop), stubborn (also ignores SIGTERM) or undead (survives a kill for a while).
    """
    cancels: float = 0.0


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of submissions."""

    by_day_per_h: float = 10.0
    by_night_per_h: float = 1.0
    bursts_per_day: float = 1.0
    burst: int = 20
    """Number of submissions in a burst."""
    runs_per_day: float = 0.0
    simulations_per_day: float = 0.0
    workloads_per_h: float = 0.0
    orders_per_h: float = 0.0
    """Rate of orders to workers: pause, resume, drain, terminate."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A world: its actors and their work. Times are in seconds."""

    name: str
    doc: str
    orchestrators: int = 1
    """Servers that workers use over a network, and that sweep the store."""
    workers: int = 2
    """Workers of those servers."""
    embedded: int = 0
    """Workers with an embedded orchestrator, on the store itself."""
    slots: int = 4
    prefetch: int = 0
    kinds: tuple[JobKind, ...] = (JobKind(name="plain"),)
    runs: tuple[RunKind, ...] = ()
    simulations: tuple[SimulationKind, ...] = ()
    agents: int = 0
    """Agents of the fleet, driven by the workers."""
    workloads: tuple[FleetWorkload, ...] = ()
    clocks_set_per_h: float = 0.0
    """Rate in a storm at which the clock of an agent's machine is set, with clock skew."""
    supervised: bool = False
    """Whether its workers register with the supervisor, and follow its orders."""
    limits: tuple[tuple[str, int], ...] = ()
    """Declared limits: name and slots."""
    quotas: tuple[int, ...] = DEFAULT_QUOTAS
    """Quotas of trees, from the root on."""
    arrivals: Arrivals = Arrivals()
    durations: Durations = Durations()
    first_backoff_s: float = 0.2
    """First backoff of a worker without a job."""
    deliver_every_s: float = 10.0
    retain_every_s: float = HOUR_S
    keeps_s: float = 12 * HOUR_S
    """Retention of ended records."""
    settles_within_s: float = 2 * HOUR_S
    """Time after the last fault within which everything has ended."""
    episode_h: float = 24.0
    """Default duration of an episode."""
    short_episode_h: float = 1.0
    """Duration of an episode in a short campaign."""

    @property
    def settings(self) -> Settings:
        """Settings for the orchestrators."""
        return Settings(durations=self.durations, tree_quotas=self.quotas, secrets=POLICY)

    @property
    def fleet(self) -> list[str]:
        """The nodes of the agents."""
        return [f"a{number}" for number in range(1, self.agents + 1)]

    @property
    def people(self) -> str:
        """The name of the submitting client."""
        return "people"

    def retry_rules(self, kind: JobKind) -> dict[str, RetryRule]:
        """Return the retry rules of a kind of job, in addition to the defaults."""
        rule = RetryRule(retries=kind.retries, first_pause_s=2.0, longest_pause_s=60.0)
        return {"user": rule, "timeout": rule} if kind.retries else {}


PATIENT = Durations(
    ack_window_s=120.0,
    lease_ttl_s=900.0,
    heartbeat_every_s=300.0,
    sweep_every_s=600.0,
    worker_silence_s=900.0,
    attempt_timeout_s=4 * HOUR_S,
    job_timeout_s=24 * HOUR_S,
    backoff_cap_s=1_200.0,
)

PLAIN = JobKind(name="plain", weight=5, seconds=(0.1, 45.0), ends=("ok", "ok", "ok", "flaky", "infra"))
LONG = JobKind(name="long", weight=1, seconds=(120.0, 900.0), losses=10, ends=("ok", "ok", "infra"))
WRONG = JobKind(name="wrong", weight=1, seconds=(0.1, 5.0), ends=("user", "ok"), retries=1, again=0.5)
STOPPED = JobKind(name="stopped", weight=1, seconds=(5.0, 120.0), cancels=0.8)
HANGING = JobKind(
    name="hanging",
    weight=0.5,
    seconds=(1.0, 5.0),
    ends=("hang", "ok"),
    timeout_s=90.0,
    retries=2,
    cancels=0.3,
)
DEAF = JobKind(name="deaf", weight=0.3, seconds=(1.0, 5.0), ends=("deaf",), cancels=0.7)
SHARDED = JobKind(name="sharded", weight=1, seconds=(1.0, 60.0), shards=3, ends=("ok", "ok", "flaky"))
TREE = JobKind(name="tree", weight=1, seconds=(20.0, 120.0), children=3, cancels=0.5)
HURRIED = JobKind(name="hurried", weight=1, seconds=(0.1, 10.0), priority=5)
LATER = JobKind(name="later", weight=1, seconds=(1.0, 10.0), delay_s=600.0, cancels=0.2)
BOUNDED = JobKind(
    name="bounded", weight=0.5, seconds=(100.0, 400.0), job_timeout_s=150.0, ends=("ok", "infra"), losses=5
)
ALIKE = JobKind(
    name="alike", weight=8, brief=True, ends=("ok",) * 8 + ("said", "flaky", "user", "snooze"), cancels=0.1
)
SPECIAL = JobKind(name="special", weight=0.5, seconds=(1.0, 30.0), labels=("gpu",))
SINGLE = JobKind(
    name="single", weight=3, seconds=(10.0, 240.0), keys=1, cancels=0.2, ends=("ok", "infra", "user")
)
REFUSED = JobKind(name="refused", weight=3, seconds=(10.0, 240.0), keys=1, policy="reject", again=0.5)
REPLACED = JobKind(name="replaced", weight=2, seconds=(1.0, 30.0), keys=1, policy="replace", delay_s=60.0)
DEBOUNCED = JobKind(name="debounced", weight=2, seconds=(1.0, 30.0), keys=1, policy="debounce", delay_s=60.0)
PERISHABLE = JobKind(name="perishable", weight=2, seconds=(30.0, 120.0), start_within_s=45.0, cancels=0.1)
SNOOZING = JobKind(
    name="snoozing", weight=3, seconds=(1.0, 30.0), keys=4, ends=("ok", "snooze", "snooze", "infra")
)
KEYED = (SINGLE, REFUSED, REPLACED, DEBOUNCED, PERISHABLE, SNOOZING)
ALL = (PLAIN, LONG, WRONG, STOPPED, HANGING, DEAF, SHARDED, TREE, HURRIED, LATER, BOUNDED, SPECIAL)

CHECK = RunKind(
    name="check",
    weight=3,
    seconds=(1.0, 90.0),
    ends=("ok",) * 6 + ("infra", "flaky"),
    grouped=0.3,
    cancels=0.15,
)
PATIENT_RUN = RunKind(
    name="nightly",
    jobs=(2, 8),
    seconds=(5.0, 120.0),
    ends=("ok", "ok", "ok", "ok", "ok", "user"),
    fail_fast=False,
    again=0.5,
)
BROKEN = RunKind(
    name="broken", seconds=(1.0, 30.0), ends=("ok", "user"), optional=0.5, again=0.3, cancels=0.1
)
SLOW = RunKind(name="slow", weight=0.5, seconds=(60.0, 400.0), timeout_s=300.0, ends=("ok", "hang", "deaf"))
DEPLOY = RunKind(
    name="deploy",
    weight=1.5,
    jobs=(1, 3),
    seconds=(1.0, 60.0),
    grouped=0.3,
    again=0.2,
    cancels=0.1,
    deploys=True,
)
RUNS = (CHECK, PATIENT_RUN, BROKEN, SLOW, DEPLOY)
MATRIX = RunKind(
    name="matrix", brief=True, jobs=(6, 24), ends=("ok",) * 24 + ("user",), needs=0.05, again=0.3
)

FAMILY = JobKind(
    name="family", weight=3, seconds=(4.0, 60.0), breadth=4, ends=("ok",) * 6 + ("infra",), cancels=0.2
)
CLAN = JobKind(
    name="clan",
    weight=2,
    seconds=(4.0, 60.0),
    breadth=3,
    levels=2,
    ends=("ok",) * 8 + ("flaky",),
    cancels=0.3,
)
STRICT = JobKind(
    name="strict",
    seconds=(4.0, 40.0),
    breadth=4,
    levels=2,
    ends=("ok",) * 9 + ("user",),
    if_fails="fail_parent",
)
ALLIED = JobKind(
    name="allied", seconds=(4.0, 40.0), breadth=5, ends=("ok",) * 6 + ("user",), if_fails="cancel_siblings"
)
FAMILIES = (FAMILY, CLAN, STRICT, ALLIED)

WALK = SimulationKind(name="walk", weight=3, pauses=0.4, cancels=0.1)
STUBBORN = SimulationKind(name="stubborn", weight=2, losses=5, save_every_s=10.0, pauses=0.2, cancels=0.1)
DOOMED = SimulationKind(name="doomed", losses=1, fails=0.7, cancels=0.2)
SIMULATIONS = (WALK, STUBBORN, DOOMED)

BRISK = FleetWorkload(
    name="brisk",
    weight=2,
    agents=(1, 3),
    lead_s=(1.0, 40.0),
    ends=("ok",) * 8 + ("early", "mute", "slow"),
    cancels=0.1,
)
LASTING = FleetWorkload(
    name="lasting",
    weight=2,
    agents=(1, 3),
    seconds=(60.0, 400.0),
    ends=("ok",) * 6 + ("deaf",),
    cancels=0.3,
)
EXACT = FleetWorkload(name="exact", weight=0.5, agents=(2, 3), seconds=(5.0, 20.0), skew_limit_s=0.0012)
TOLERANT = FleetWorkload(
    name="tolerant",
    weight=2,
    agents=(3, 4),
    seconds=(10.0, 120.0),
    policy="majority",
    ends=("ok",) * 6 + ("fails", "stillborn", "hangs"),
)
WHATEVER = FleetWorkload(
    name="whatever",
    agents=(2, 3),
    seconds=(10.0, 90.0),
    policy="best-effort",
    ends=("ok", "ok", "fails", "hangs", "stubborn"),
    cancels=0.3,
)
OBSTINATE = FleetWorkload(
    name="obstinate", agents=(1, 3), ends=("deaf", "stubborn", "undead", "hangs"), cancels=0.7
)
WORKLOADS = (BRISK, LASTING, EXACT, TOLERANT, WHATEVER, OBSTINATE)

CALL = JobKind(
    name="call",
    weight=4,
    seconds=(1.0, 40.0),
    limits=("vendor-x",),
    ends=("ok", "ok", "ok", "flaky", "infra"),
    cancels=0.1,
)
TENANT = JobKind(
    name="tenant",
    weight=3,
    seconds=(1.0, 60.0),
    limits=("tenant:a", "vendor-x"),
    ends=("ok", "ok", "user"),
    retries=1,
    losses=5,
    cancels=0.1,
)
OTHER_TENANT = JobKind(name="other", weight=2, seconds=(1.0, 30.0), limits=("tenant:b",), delay_s=30.0)
HEAVY = JobKind(name="heavy", weight=1, seconds=(5.0, 90.0), limits=("vendor-x",), heavy=2, losses=5)
LIMITED = (CALL, TENANT, OTHER_TENANT, HEAVY)
LETTER = JobKind(
    name="letter",
    weight=5,
    seconds=(1.0, 60.0),
    signals=3,
    ends=("ok", "ok", "flaky", "infra", "user"),
    retries=2,
    losses=10,
    cancels=0.1,
)
PARCEL = JobKind(name="parcel", weight=2, seconds=(20.0, 90.0), signals=2, shards=2, losses=10)

WORLDS = (
    World(
        name="laptop",
        doc="One machine: two workers with their own orchestrators, and all requests of users.",
        orchestrators=0,
        workers=0,
        embedded=2,
        kinds=ALL,
        arrivals=Arrivals(by_day_per_h=40.0, by_night_per_h=5.0, bursts_per_day=2.0, burst=30),
        episode_h=2.0,
        short_episode_h=0.5,
    ),
    World(
        name="team",
        doc="Two servers and four workers with little room, jobs of every kind, and bursts of them.",
        orchestrators=2,
        workers=4,
        slots=2,
        prefetch=1,
        kinds=ALL,
        arrivals=Arrivals(by_day_per_h=60.0, by_night_per_h=10.0, bursts_per_day=3.0, burst=40),
        episode_h=2.0,
        short_episode_h=0.5,
    ),
    World(
        name="ci",
        doc="Runs on two servers and three workers: graphs, approved, cancelled, superseded, rerun.",
        orchestrators=2,
        workers=3,
        kinds=(PLAIN, STOPPED),
        runs=RUNS,
        durations=Durations(approval_timeout_s=1_800.0),
        arrivals=Arrivals(
            by_day_per_h=4.0, by_night_per_h=1.0, bursts_per_day=1.0, burst=10, runs_per_day=240.0
        ),
        episode_h=2.0,
        short_episode_h=0.5,
    ),
    World(
        name="forest",
        doc="Trees: handlers that submit children and wait for them, little room, subtrees that are stopped.",
        orchestrators=2,
        workers=3,
        slots=3,
        kinds=(*FAMILIES, PLAIN, TREE),
        quotas=(10, 3, 2, 1, 1, 1),
        arrivals=Arrivals(by_day_per_h=30.0, by_night_per_h=5.0, bursts_per_day=2.0, burst=10),
        episode_h=2.0,
        short_episode_h=0.3,
    ),
    World(
        name="lab",
        doc="Simulations on two servers and three workers: paused, resumed, cancelled, losing their workers.",
        orchestrators=2,
        workers=2,
        embedded=1,
        kinds=(PLAIN, STOPPED),
        simulations=SIMULATIONS,
        arrivals=Arrivals(
            by_day_per_h=4.0, by_night_per_h=1.0, bursts_per_day=1.0, burst=10, simulations_per_day=480.0
        ),
        episode_h=2.0,
        short_episode_h=0.3,
    ),
    World(
        name="shift",
        doc="Workers under a supervisor that pauses, drains and terminates them, and gives up silent ones.",
        orchestrators=2,
        workers=3,
        embedded=1,
        supervised=True,
        kinds=(PLAIN, LONG, STOPPED, SHARDED, FAMILY),
        arrivals=Arrivals(
            by_day_per_h=40.0, by_night_per_h=5.0, bursts_per_day=3.0, burst=20, orders_per_h=20.0
        ),
        episode_h=2.0,
        short_episode_h=0.3,
    ),
    World(
        name="nights",
        doc="Long durations: one server, two workers, little by day and a batch at night.",
        orchestrators=1,
        workers=2,
        kinds=(PLAIN, LONG, WRONG, STOPPED, SHARDED, TREE),
        arrivals=Arrivals(by_day_per_h=3.0, by_night_per_h=0.5, bursts_per_day=1.0, burst=30),
        durations=PATIENT,
        first_backoff_s=120.0,
        deliver_every_s=900.0,
        retain_every_s=3 * HOUR_S,
        keeps_s=12 * HOUR_S,
        settles_within_s=12 * HOUR_S,
        episode_h=240.0,
        short_episode_h=10.0,
    ),
    World(
        name="pair",
        doc="Long durations: a server, and a worker with its own orchestrator.",
        orchestrators=1,
        workers=1,
        embedded=1,
        kinds=ALL,
        arrivals=Arrivals(by_day_per_h=4.0, by_night_per_h=1.0, bursts_per_day=0.5, burst=20),
        durations=PATIENT,
        first_backoff_s=120.0,
        deliver_every_s=900.0,
        retain_every_s=3 * HOUR_S,
        keeps_s=12 * HOUR_S,
        settles_within_s=12 * HOUR_S,
        episode_h=240.0,
        short_episode_h=10.0,
    ),
    World(
        name="holidays",
        doc="Few jobs that take long: a worker with its own orchestrator must not forget them.",
        orchestrators=1,
        workers=1,
        kinds=(LONG, LATER, STOPPED, TREE, SHARDED),
        arrivals=Arrivals(by_day_per_h=1.0, by_night_per_h=0.2, bursts_per_day=0.2, burst=10),
        durations=PATIENT,
        first_backoff_s=120.0,
        deliver_every_s=900.0,
        retain_every_s=6 * HOUR_S,
        keeps_s=24 * HOUR_S,
        settles_within_s=24 * HOUR_S,
        episode_h=480.0,
        short_episode_h=20.0,
    ),
    World(
        name="fleet",
        doc="Five agents with clocks of their own, and two workers that drive load on them as jobs.",
        orchestrators=1,
        workers=1,
        embedded=1,
        slots=2,
        agents=5,
        workloads=WORKLOADS,
        clocks_set_per_h=90.0,
        kinds=(PLAIN,),
        arrivals=Arrivals(by_day_per_h=0.0, by_night_per_h=0.0, bursts_per_day=0.0, workloads_per_h=45.0),
        episode_h=2.0,
        short_episode_h=0.4,
    ),
    World(
        name="factory",
        doc="Bursts and runs of alike jobs whose handlers never wait: workers execute them in cohorts.",
        orchestrators=2,
        workers=2,
        embedded=1,
        slots=8,
        kinds=(ALIKE, PLAIN),
        runs=(MATRIX,),
        arrivals=Arrivals(by_day_per_h=20.0, bursts_per_day=24.0, burst=30, runs_per_day=480.0),
        episode_h=2.0,
        short_episode_h=0.3,
    ),
    World(
        name="keys",
        doc="Two servers and two workers with little room: unique jobs, some that expire or snooze.",
        orchestrators=2,
        workers=2,
        slots=2,
        kinds=KEYED,
        arrivals=Arrivals(by_day_per_h=120.0, by_night_per_h=20.0, bursts_per_day=6.0, burst=30),
        episode_h=1.0,
        short_episode_h=0.5,
    ),
    World(
        name="vendors",
        doc="Two servers, two workers and one of its own: jobs under limits, of several keys and weights.",
        orchestrators=2,
        workers=2,
        embedded=1,
        slots=4,
        kinds=(*LIMITED, PLAIN),
        limits=(("vendor-x", 3), ("tenant:*", 2), ("queue:default", 5)),
        arrivals=Arrivals(by_day_per_h=60.0, by_night_per_h=10.0, bursts_per_day=4.0, burst=30),
        episode_h=2.0,
        short_episode_h=0.5,
    ),
    World(
        name="post",
        doc="Two servers, two workers and one of its own: jobs that wait for signals, also in shards.",
        orchestrators=2,
        workers=2,
        embedded=1,
        slots=2,
        kinds=(LETTER, PARCEL, PLAIN),
        arrivals=Arrivals(by_day_per_h=40.0, by_night_per_h=10.0, bursts_per_day=4.0, burst=20),
        episode_h=2.0,
        short_episode_h=0.5,
    ),
)

BY_NAME = {world.name: world for world in WORLDS}


def world_named(name: str) -> World:
    """Return the world of that name."""
    if name in BY_NAME:
        return BY_NAME[name]
    guess = nearest(name, tuple(BY_NAME))
    sentence = f"There is no world {name}." + (f" Did you mean {guess}?" if guess else "")
    todo = f"Use one of: {', '.join(BY_NAME)}."
    raise InvalidArguments(sentence, allowed=tuple(BY_NAME), todo=todo, facts={"world": name})
