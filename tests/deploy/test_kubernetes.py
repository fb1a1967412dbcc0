"""The manifests of Kubernetes: its own schemas accept them, and they agree with the code in names, ports,
paths and times.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.deploy.files import (
    DEPLOY,
    GUIDE,
    MARGIN_S,
    METRICS_PATH,
    PATHS,
    STOPS_S,
    documents,
    folder_of,
    parsed,
    variables,
)
from tests.server import promql
from tests.server.promql import scrape

from interlock.cli import project
from interlock.lifecycles.durations import DEFAULTS
from interlock.server.settings import DEFAULT_PORT

FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
MANIFESTS = [each for file in FILES for each in documents(file)]
DEPLOYMENTS = [each for each in MANIFESTS if each["kind"] == "Deployment"]


# The schemas of Kubernetes, of each version that the package has.

KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "Service": "io.k8s.api.core.v1.Service",
}
"""Names of the definitions. A ScaledObject is of KEDA: its fields are below."""
VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
OF_KUBERNETES = [each for each in MANIFESTS if each["kind"] in KINDS]


@cache
def schema_of_version(version: str) -> jsonschema_rs.Validator:
    """Return what a version of Kubernetes accepts, by kind; its definitions allow no unknown field.

    One schema for all kinds, since to read it takes longer than to compare a manifest.
    """
    folder = folder_of("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    kinds = {kind: {"$ref": f"#/$defs/{name}"} for kind, name in KINDS.items()}
    definitions = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    return jsonschema_rs.validator_for(
        {"properties": kinds, "additionalProperties": False, "$defs": definitions}
    )


def accept(version: str, manifest: dict[str, Any]) -> None:
    """Raise unless a version of Kubernetes has every field of a manifest, of its type."""
    schema_of_version(version).validate({manifest["kind"]: manifest})


# Schemas of our own: which fields these manifests must have, and no others, so that a slip is found.


def record(*required: str, **fields: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields; the first ones are required."""
    return {
        "type": "object",
        "required": list(required),
        "properties": fields,
        "additionalProperties": False,
    }


def listing(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": item}


NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
TEXT = {"type": "string", "minLength": 1}
NUMBER = {"type": "integer", "minimum": 0}
QUANTITY = {"type": "string", "pattern": "^[0-9]+(m|Ki|Mi|Gi)?$"}
LABELS = {"type": "object", "minProperties": 1, "additionalProperties": TEXT}
METADATA = record("name", name=NAME, labels=LABELS)
SELECTOR = record("matchLabels", matchLabels=LABELS)
PROBE = record(
    "httpGet",
    httpGet=record("path", "port", path=TEXT, port=NAME),
    periodSeconds=NUMBER,
    timeoutSeconds=NUMBER,
    failureThreshold=NUMBER,
)
RESOURCES = record(
    "requests", "limits", requests=record(cpu=QUANTITY, memory=QUANTITY), limits=record(memory=QUANTITY)
)
CONTAINER = record(
    *("name", "image", "args", "env", "ports", "readinessProbe", "resources", "securityContext"),
    name=NAME,
    image=TEXT,
    args=listing(TEXT),
    env=listing(
        record(
            "name",
            "valueFrom",
            name=TEXT,
            valueFrom=record("secretKeyRef", secretKeyRef=record("name", "key", name=NAME, key=TEXT)),
        )
    ),
    ports=listing(record("containerPort", name=NAME, containerPort=NUMBER)),
    livenessProbe=PROBE,
    readinessProbe=PROBE,
    startupProbe=PROBE,
    lifecycle=record("preStop", preStop=record("exec", exec=record("command", command=listing(TEXT)))),
    resources=RESOURCES,
    securityContext=record(
        allowPrivilegeEscalation={"const": False},
        readOnlyRootFilesystem={"const": True},
        capabilities=record("drop", drop={"const": ["ALL"]}),
    ),
    volumeMounts=listing(
        record("name", "mountPath", name=NAME, mountPath=TEXT, subPath=TEXT, readOnly={"type": "boolean"})
    ),
)
POD = record(
    *("terminationGracePeriodSeconds", "securityContext", "containers"),
    terminationGracePeriodSeconds=NUMBER,
    automountServiceAccountToken={"const": False},
    securityContext=record(
        "runAsNonRoot",
        "runAsUser",
        runAsNonRoot={"const": True},
        runAsUser={"type": "integer", "minimum": 1},
        runAsGroup={"type": "integer", "minimum": 1},
        seccompProfile=record("type", type={"const": "RuntimeDefault"}),
    ),
    containers=listing(CONTAINER),
    volumes=listing(
        record("name", name=NAME, configMap=record("name", name=NAME), emptyDir={"type": "object"})
    ),
)


def int32(minimum: int, maximum: int = 2**31 - 1) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


SCALED = record(
    *("scaleTargetRef", "triggers"),
    scaleTargetRef=record("name", name=NAME, kind=TEXT, apiVersion=TEXT, envSourceContainerName=NAME),
    minReplicaCount=int32(0),
    maxReplicaCount=int32(1),
    idleReplicaCount=int32(0),
    pollingInterval=int32(1),
    cooldownPeriod=int32(0),
    initialCooldownPeriod=int32(0),
    advanced=record(
        restoreToOriginalReplicaCount={"type": "boolean"},
        horizontalPodAutoscalerConfig=record(
            name=NAME,
            behavior=record(
                scaleDown=record(stabilizationWindowSeconds=int32(0, 3_600)),
                scaleUp=record(stabilizationWindowSeconds=int32(0, 3_600)),
            ),
        ),
    ),
    triggers=listing(
        record(
            *("type", "metadata"),
            type={"const": "prometheus"},
            name=NAME,
            metricType={"enum": ["Value", "AverageValue"]},
            useCachedMetrics={"type": "boolean"},
            metadata=record(
                *("serverAddress", "query", "threshold"),
                serverAddress={"type": "string", "pattern": "^https?://"},
                query=TEXT,
                threshold={"type": "string", "pattern": "^[0-9]+([.][0-9]+)?$"},
                activationThreshold={"type": "string", "pattern": "^[0-9]+([.][0-9]+)?$"},
                ignoreNullValues={"enum": ["true", "false"]},
                timeout={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
            ),
        )
    ),
)
"""The specification of a ScaledObject: types, bounds and required fields as in the definition that KEDA 2.20
publishes (`config/crd/bases/keda.sh_scaledobjects.yaml`). A cluster drops fields that are not in it, so a
slip in a name would have no effect there. The definition takes any texts as metadata of a trigger: their
names here are those of KEDA's scaler for Prometheus.

It is written by hand because no package has the definition as data. `cloudcoil-models-keda` (PyPI) and
`@kubernetes-models/keda` (npm) have it as classes and as code, without its bounds, and the former brings a
plugin that every pytest loads. Each field named here is also in those classes, which are of KEDA 2.16."""
SURGE = record("maxSurge", "maxUnavailable", maxSurge=NUMBER, maxUnavailable=NUMBER)
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "ConfigMap": ("v1", {}),
    "Deployment": (
        "apps/v1",
        record(
            *("selector", "template"),
            replicas=NUMBER,
            selector=SELECTOR,
            strategy=record("type", type={"const": "RollingUpdate"}, rollingUpdate=SURGE),
            template=record("metadata", "spec", metadata=record("labels", labels=LABELS), spec=POD),
        ),
    ),
    "Service": (
        "v1",
        record(
            *("selector", "ports"),
            selector=LABELS,
            ports=listing(record("port", name=NAME, port=NUMBER, targetPort=NAME)),
        ),
    ),
    "PodDisruptionBudget": (
        "policy/v1",
        record("selector", selector=SELECTOR, minAvailable=NUMBER, maxUnavailable=NUMBER),
    ),
    "ScaledObject": ("keda.sh/v1alpha1", SCALED),
}


def schema_of(kind: str) -> dict[str, Any]:
    version, spec = SPECS[kind]
    fields: dict[str, Any] = {
        "apiVersion": {"const": version},
        "kind": {"const": kind},
        "metadata": METADATA,
        **({"spec": spec} if spec else {"data": LABELS}),
    }
    return record(*fields, **fields)


def title(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_kubernetes_accept_every_manifest(version: str) -> None:
    for manifest in OF_KUBERNETES:
        accept(version, manifest)


def test_every_version_is_tested_that_the_guide_names_and_the_package_has() -> None:
    folder = folder_of("kubernetes_validate") / "kubernetes-json-schema"
    assert {path.name for path in folder.glob("*-strict")} == {f"v{each}.0-local-strict" for each in VERSIONS}
    assert f"Kubernetes {VERSIONS[0]} to {VERSIONS[-1]}" in GUIDE.read_text(encoding="utf-8")


def test_a_field_that_kubernetes_does_not_have_is_found() -> None:
    slip = copy.deepcopy(DEPLOYMENTS[0])
    slip["spec"]["template"]["spec"]["terminationGracePeriod"] = 40
    with pytest.raises(jsonschema_rs.ValidationError, match="terminationGracePeriod"):
        accept(VERSIONS[-1], slip)
    slip = copy.deepcopy(DEPLOYMENTS[0])
    slip["spec"]["replicas"] = "two"
    with pytest.raises(jsonschema_rs.ValidationError, match="two"):
        accept(VERSIONS[-1], slip)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=title)
def test_a_manifest_has_the_fields_that_it_needs_and_no_others(manifest: dict[str, Any]) -> None:
    jsonschema_rs.validate(schema_of(manifest["kind"]), manifest)


def test_a_slip_in_a_manifest_is_found() -> None:
    (budget, *_) = (each for each in MANIFESTS if each["kind"] == "PodDisruptionBudget")
    slip = {**budget, "spec": {**budget["spec"], "minAvailible": 1}}
    assert not jsonschema_rs.is_valid(schema_of("PodDisruptionBudget"), slip)


SCALED_OBJECT = next(each for each in MANIFESTS if each["kind"] == "ScaledObject")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cooldownPeriod",), "300"),
        (("coolDownPeriod",), 300),
        (("pollingInterval",), 0),
        (("maxReplicaCount",), 0),
        (("minReplicaCount",), -1),
        (("scaleTargetRef",), {}),
        (("triggers",), []),
        (("advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleDown", "stabilizationSeconds"), 300),
        (("advanced", "horizontalPodAutoscalerConfig", "behaviour"), {}),
        (("triggers", 0, "metricType"), "Average"),
        (("triggers", 0, "metadata", "threshold"), 30),
        (("triggers", 0, "metadata", "treshold"), "30"),
    ],
)
def test_a_slip_in_the_scaled_object_is_found(place: tuple[str | int, ...], value: object) -> None:
    assert not jsonschema_rs.is_valid(schema_of("ScaledObject"), with_slip(place, value))


def with_slip(place: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """Return the scaled object with another value at a place of its specification."""
    slip = copy.deepcopy(SCALED_OBJECT)
    inner: Any = slip["spec"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return slip


def test_the_scaled_object_keeps_the_rules_of_keda_that_no_type_says() -> None:
    spec = SCALED_OBJECT["spec"]
    assert spec["minReplicaCount"] <= spec["maxReplicaCount"]
    names = [trigger["name"] for trigger in spec["triggers"]]
    assert len(names) == len(set(names))


# Pods


def pod_of(deployment: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod, and its only container."""
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def faults_of(deployment: dict[str, Any]) -> list[str]:
    """What disagrees with the programs: arguments, variables, ports, paths and times."""
    pod, container = pod_of(deployment)
    program = container["args"][0]
    values = parsed(container["args"])
    (port,) = container["ports"]
    faults = [f"no variable {one['name']}" for one in container["env"] if one["name"] not in variables()]
    if port["containerPort"] != (values.get("port") or values["metrics_port"]):
        faults.append(f"it does not listen at {port['containerPort']}")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        get = container.get(name, {}).get("httpGet")
        known = PATHS if program == "server" else {METRICS_PATH}
        if get and (get["path"] not in known or get["port"] != port["name"]):
            faults.append(f"{name}: nothing answers {get['path']} at {get['port']}")
    grace_s, needs_s = pod["terminationGracePeriodSeconds"], pauses(container) + STOPS_S[program] + MARGIN_S
    if not needs_s <= grace_s < DEFAULTS.lease_ttl_s:
        faults.append(f"killed after {grace_s} s, and may take {needs_s:g}")
    return faults


def pauses(container: dict[str, Any]) -> float:
    """Return how long it waits before SIGTERM is sent."""
    if "lifecycle" not in container:
        return 0.0
    word, number = container["lifecycle"]["preStop"]["exec"]["command"]
    assert word == "sleep"
    return float(number)


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=title)
def test_a_pod_agrees_with_the_program_in_it(deployment: dict[str, Any]) -> None:
    assert faults_of(deployment) == []


@pytest.mark.parametrize(
    ("slip", "fault"),
    [
        ({"path: /readyz": "path: /ready"}, "readinessProbe: nothing answers /ready at http"),
        ({"INTERLOCK_URL": "INTERLOCK_STORE"}, "no variable INTERLOCK_STORE"),
        ({"containerPort: 8088": "containerPort: 8080"}, "it does not listen at 8080"),
        ({"PeriodSeconds: 45": "PeriodSeconds: 30"}, "killed after 30 s, and may take 35"),
    ],
)
def test_a_pod_that_disagrees_is_found_out(slip: dict[str, str], fault: str, tmp_path: Path) -> None:
    text = (DEPLOY / "kubernetes" / "server.yaml").read_text(encoding="utf-8")
    for old, new in slip.items():
        text = text.replace(old, new)
    changed = tmp_path / "server.yaml"
    changed.write_text(text, encoding="utf-8")
    assert faults_of(documents(changed)[0]) == [fault]


def test_pods_are_the_user_of_the_image_and_start_where_their_settings_are(tmp_path: Path) -> None:
    image = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    (user,) = re.findall(r"^USER (\d+):\1$", image, re.M)
    place = re.findall(r"^WORKDIR (\S+)$", image, re.M)[-1]
    (config,) = (each for each in MANIFESTS if each["kind"] == "ConfigMap")
    for deployment in DEPLOYMENTS:
        pod, container = pod_of(deployment)
        assert pod["securityContext"]["runAsUser"] == int(user)
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        mount = mounts[f"{place}/{project.FILE}"]
        assert volumes[mount["name"]]["configMap"]["name"] == config["metadata"]["name"]
        assert mount["subPath"] in config["data"]
    (tmp_path / project.FILE).write_text(config["data"][project.FILE], encoding="utf-8")
    assert project.read_file(tmp_path / project.FILE).worker.module == "interlock.demo.tasks"


def test_services_and_budgets_choose_pods_that_there_are() -> None:
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in DEPLOYMENTS]
    for manifest in MANIFESTS:
        chosen = manifest.get("spec", {}).get("selector")
        if chosen is not None:
            assert chosen.get("matchLabels", chosen) in pods, title(manifest)
    (service,) = (each for each in MANIFESTS if each["kind"] == "Service")
    _, container = pod_of(DEPLOYMENTS[0])
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert service["spec"]["ports"][0]["port"] == DEFAULT_PORT


# Autoscaling

PAGE = """\
interlock_queue_jobs{{queue="default",state="PENDING"}} {pending}
interlock_queue_jobs{{queue="other",state="PENDING"}} 900
interlock_queue_oldest_ready_seconds{{queue="default"}} {age}
interlock_queue_oldest_ready_seconds{{queue="other"}} 900
"""


def test_workers_are_scaled_by_how_long_jobs_of_their_queues_wait_and_by_how_many_wait() -> None:
    scaled = SCALED_OBJECT
    assert scaled["spec"]["scaleTargetRef"]["name"] in {each["metadata"]["name"] for each in DEPLOYMENTS}
    wait, backlog = (trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"])
    assert promql.faults_of(wait) + promql.faults_of(backlog) == []
    page = PAGE.format(pending=7, age=60)
    slow = [scrape(0.0, page, page)]
    assert promql.answer(wait, slow) == {frozenset(): 60.0}
    assert promql.answer(backlog, slow) == {frozenset(): 7.0}, "two servers say the same"
    nothing = [scrape(0.0, "")]
    assert promql.answer(wait, nothing) == {frozenset(): 0.0}, "a number, also when no server is scraped"
    assert promql.answer(backlog, nothing) == {frozenset(): 0.0}
