"""Write a CycloneDX SBOM of the locked runtime dependencies: `make sbom`, or `python tools/sbom.py FILE`.

Names, versions, licences and what needs what come from the installed distributions, which are those of
requirements.lock. Dependencies of extras are optional components. The JavaScript in the built dashboard comes
from web/package-lock.json. Two runs on one lock differ in their time only, and SOURCE_DATE_EPOCH sets that.

Why: decision 0435.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = "interlock"
LOCK = ROOT / "requirements.lock"
WEB_LOCK = ROOT / "web" / "package-lock.json"
_MODULES = "node_modules/"
SCHEMA = SchemaVersion.V1_6
_OSI = "License :: OSI Approved :: "
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Write the SBOM, and say where."""
    version = distribution(PROJECT).version
    target = Path(arguments[0]) if arguments else ROOT / "dist" / f"{PROJECT}-{version}.cdx.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    bom = bom_of_runtime()
    target.write_text(as_json(bom), encoding="utf-8")
    print(f"{target}: {len(bom.components)} components")
    return 0


def as_json(bom: Bom) -> str:
    """Return the SBOM as JSON."""
    return make_outputter(bom, OutputFormat.JSON, SCHEMA).output_as_string(indent=2)


def bom_of_runtime() -> Bom:
    """Return the SBOM of Interlock and everything it needs at run time."""
    needed = set(_closure([Requirement(PROJECT)]))
    optional = set(_closure([Requirement(f"{PROJECT}[{','.join(sorted(_extras()))}]")])) - needed
    components = {
        name: _component(name, ComponentScope.OPTIONAL if name in optional else ComponentScope.REQUIRED)
        for name in sorted(needed | optional)
    }
    bundled = bundled_packages()
    scripts = {name: _script(name, package) for name, package in sorted(bundled.items())}
    locks = "".join(lock.read_text(encoding="utf-8") for lock in (LOCK, WEB_LOCK))
    libraries = [component for name, component in components.items() if name != PROJECT]
    bom = Bom(
        components=[*libraries, *scripts.values()],
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, locks),
    )
    bom.metadata.component = components[PROJECT]
    bom.metadata.timestamp = _time()
    for name, component in components.items():
        wanted = _extras() if name == PROJECT else frozenset[str]()
        following = {canonicalize_name(each.name) for each in _requirements(name, wanted)}
        needs = [components[each] for each in sorted(following & set(components))]
        if name == PROJECT:
            needs += [scripts[each] for each in _web_lock()[""]["dependencies"]]
        bom.register_dependency(component, needs)
    for name, script in scripts.items():
        bom.register_dependency(script, [scripts[each] for each in bundled[name].get("dependencies", ())])
    return bom


def bundled_packages() -> dict[str, dict[str, Any]]:
    """Return the locked packages of npm that the build puts into the dashboard, by name."""
    return {
        path.removeprefix(_MODULES): package
        for path, package in _web_lock().items()
        if path and not package.get("dev")
    }


def _web_lock() -> dict[str, Any]:
    packages: dict[str, Any] = json.loads(WEB_LOCK.read_text(encoding="utf-8"))["packages"]
    return packages


def locked() -> dict[str, set[str]]:
    """Return the locked versions of each distribution: some have several, for several platforms."""
    versions: dict[str, set[str]] = {}
    for name, version in _PIN.findall(LOCK.read_text(encoding="utf-8")):
        versions.setdefault(canonicalize_name(name), set()).add(version)
    return versions


def _extras() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(project["optional-dependencies"])


def _closure(wanted: Iterable[Requirement]) -> Iterator[str]:
    """Yield the names of these distributions and of all that they need here."""
    waiting, seen = list(wanted), set[tuple[str, frozenset[str]]]()
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) not in seen:
            seen.add((name, extras))
            yield name
            waiting += _requirements(name, extras)


def _requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Return what a distribution needs on this platform, with these extras."""
    asked = [Requirement(line) for line in distribution(name).requires or ()]
    return [
        each
        for each in asked
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def _component(name: str, scope: ComponentScope) -> Component:
    found = distribution(name)
    purl = PackageURL("pypi", None, name, found.version)
    return Component(
        name=name,
        version=found.version,
        type=ComponentType.APPLICATION if name == PROJECT else ComponentType.LIBRARY,
        scope=scope,
        description=next(iter(found.metadata.get_all("Summary") or ()), None),
        purl=purl,
        bom_ref=str(purl),
        licenses=[licence_of(found)],
    )


def _script(name: str, package: dict[str, Any]) -> Component:
    """Return a package of npm as a component; raise if it declares no licence."""
    group, _, last = name.rpartition("/")
    if "license" not in package:
        raise SystemExit(f"{name} declares no licence in {WEB_LOCK.name}.")
    purl = PackageURL("npm", group or None, last, package["version"])
    return Component(
        group=group or None,
        name=last,
        version=package["version"],
        type=ComponentType.LIBRARY,
        scope=ComponentScope.REQUIRED,
        purl=purl,
        bom_ref=str(purl),
        licenses=[_declared(package["license"])],
    )


def licence_of(found: Distribution) -> License:
    """Return the licence as its authors declare it; raise if they do not."""
    metadata = found.metadata
    osi = [each.removeprefix(_OSI) for each in metadata.get_all("Classifier") or () if each.startswith(_OSI)]
    names = (*(metadata.get_all("License-Expression") or ()), *(metadata.get_all("License") or ()))
    said = next(filter(None, map(_one_line, names)), " OR ".join(osi))
    if not said:
        raise SystemExit(f"{metadata['Name']} declares no licence.")
    return _declared(said)


def _declared(licence: str) -> License:
    return LicenseFactory().make_from_string(licence, license_acknowledgement=LicenseAcknowledgement.DECLARED)


def _one_line(text: str) -> str:
    """Return a licence that is a name; some distributions have its whole text there, others "UNKNOWN"."""
    return "" if "\n" in text.strip() or text.strip() == "UNKNOWN" else text.strip()


def _time() -> datetime:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
