"""The worlds, one line of reading each: who is there, what there is to do, and how hurried they are.

Two are hurried: they have the durations of production, and their days are dense. Three are patient: their
leases last long and their sweeps come seldom, as where nobody minds an hour, and months of them can be
played. What they all have in common is the code.
"""

from __future__ import annotations

from interlock.errors import InvalidArguments
from interlock.lifecycles.durations import Durations
from interlock.suggestions import nearest
from interlock.verify.worlds.plan import (
    HOUR_S,
    Arrivals,
    JobKind,
    RunKind,
    SimulationKind,
    WorkloadKind,
    World,
)

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
SPECIAL = JobKind(name="special", weight=0.5, seconds=(1.0, 30.0), labels=("gpu",))
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

BRISK = WorkloadKind(
    name="brisk",
    weight=2,
    agents=(1, 3),
    lead_s=(1.0, 40.0),
    ends=("ok",) * 8 + ("early", "mute", "slow"),
    cancels=0.1,
)
LASTING = WorkloadKind(
    name="lasting",
    weight=2,
    agents=(1, 3),
    seconds=(60.0, 400.0),
    ends=("ok",) * 6 + ("deaf",),
    cancels=0.3,
)
EXACT = WorkloadKind(name="exact", weight=0.5, agents=(2, 3), seconds=(5.0, 20.0), skew_limit_s=0.0012)
TOLERANT = WorkloadKind(
    name="tolerant",
    weight=2,
    agents=(3, 4),
    seconds=(10.0, 120.0),
    policy="majority",
    ends=("ok",) * 6 + ("fails", "stillborn", "hangs"),
)
WHATEVER = WorkloadKind(
    name="whatever",
    agents=(2, 3),
    seconds=(10.0, 90.0),
    policy="best-effort",
    ends=("ok", "ok", "fails", "hangs", "stubborn"),
    cancels=0.3,
)
OBSTINATE = WorkloadKind(
    name="obstinate", agents=(1, 3), ends=("deaf", "stubborn", "undead", "hangs"), cancels=0.7
)
WORKLOADS = (BRISK, LASTING, EXACT, TOLERANT, WHATEVER, OBSTINATE)

WORLDS = (
    World(
        name="laptop",
        doc="One machine: two workers with orchestrators of their own, and everything that people do.",
        orchestrators=0,
        workers=0,
        embedded=2,
        kinds=ALL,
        arrivals=Arrivals(by_day_per_h=40.0, by_night_per_h=5.0, bursts_per_day=2.0, burst=30),
        chapter_h=2.0,
        scene_h=0.5,
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
        chapter_h=2.0,
        scene_h=0.5,
    ),
    World(
        name="ci",
        doc="Runs on two servers and three workers: graphs, approved, stopped, superseded, done again.",
        orchestrators=2,
        workers=3,
        kinds=(PLAIN, STOPPED),
        runs=RUNS,
        durations=Durations(approval_timeout_s=1_800.0),
        arrivals=Arrivals(
            by_day_per_h=4.0, by_night_per_h=1.0, bursts_per_day=1.0, burst=10, runs_per_day=240.0
        ),
        chapter_h=2.0,
        scene_h=0.5,
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
        chapter_h=2.0,
        scene_h=0.3,
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
        chapter_h=2.0,
        scene_h=0.3,
    ),
    World(
        name="shift",
        doc="Workers under a supervisor who holds, drains and ends them, and who writes off the silent.",
        orchestrators=2,
        workers=3,
        embedded=1,
        supervised=True,
        kinds=(PLAIN, LONG, STOPPED, SHARDED, FAMILY),
        arrivals=Arrivals(
            by_day_per_h=40.0, by_night_per_h=5.0, bursts_per_day=3.0, burst=20, orders_per_h=20.0
        ),
        chapter_h=2.0,
        scene_h=0.3,
    ),
    World(
        name="nights",
        doc="A patient house: one server, two workers, little by day and a batch at night.",
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
        chapter_h=240.0,
        scene_h=10.0,
    ),
    World(
        name="pair",
        doc="A patient pair: a server, and a worker beside it that has an orchestrator of its own.",
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
        chapter_h=240.0,
        scene_h=10.0,
    ),
    World(
        name="holidays",
        doc="Hardly anything is to do, and what there is takes long: whoever works alone must not forget it.",
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
        chapter_h=480.0,
        scene_h=20.0,
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
        chapter_h=2.0,
        scene_h=0.4,
    ),
)

BY_NAME = {world.name: world for world in WORLDS}


def world_named(name: str) -> World:
    """The world of that name."""
    if name in BY_NAME:
        return BY_NAME[name]
    guess = nearest(name, tuple(BY_NAME))
    raise InvalidArguments(
        f"There is no world {name}." + (f" Did you mean {guess}?" if guess else ""),
        allowed=tuple(BY_NAME),
        todo=f"Use one of: {', '.join(BY_NAME)}.",
        facts={"world": name},
    )
