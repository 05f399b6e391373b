"""All packages of the environment that runs this, as a CycloneDX bill of materials in JSON.

``python packaging/bill_of_materials.py > weft.cdx.json`` lists what is installed, not what could
be: versions, licences as the packages declare them, and who depends on whom.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import metadata
from typing import Any

_SPEC = "1.6"
#: The package that the bill is about.
_ABOUT = "weft"
_REQUIRED = re.compile(r"[A-Za-z0-9._-]+")
_LICENCE = "License :: OSI Approved :: "


def bill_of_materials(installed: Iterable[metadata.Distribution] | None = None) -> dict[str, Any]:
    """The bill of what is installed; by default of this environment."""
    found = metadata.distributions() if installed is None else installed
    packages = {normalized(one.metadata["Name"]): one for one in found}
    about = packages.pop(_ABOUT, None)
    names = sorted(packages)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _SPEC,
        "version": 1,
        "metadata": {"component": component(about, "application")} if about is not None else {},
        "components": [component(packages[name], "library") for name in names],
        "dependencies": [
            {"ref": reference(one), "dependsOn": depends_on(one, packages)}
            for one in (*([about] if about is not None else []), *(packages[n] for n in names))
        ],
    }


def component(package: metadata.Distribution, kind: str) -> dict[str, Any]:
    told = {
        "type": kind,
        "bom-ref": reference(package),
        "name": normalized(package.metadata["Name"]),
        "version": package.version,
        "purl": reference(package),
    }
    licences = licences_of(package)
    return {**told, "licenses": licences} if licences else told


def licences_of(package: metadata.Distribution) -> list[dict[str, Any]]:
    """As an expression where the package has one, else the names that it gives."""
    expression = package.metadata.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    declared = package.metadata.get_all("Classifier") or []
    names = [one.removeprefix(_LICENCE) for one in declared if one.startswith(_LICENCE)]
    text = (package.metadata.get("License") or "").strip()
    if not names and text and "\n" not in text:
        names = [text]
    return [{"license": {"name": name}} for name in names]


def reference(package: metadata.Distribution) -> str:
    """Its address as a package URL."""
    return f"pkg:pypi/{normalized(package.metadata['Name'])}@{package.version}"


def depends_on(
    package: metadata.Distribution, packages: dict[str, metadata.Distribution]
) -> list[str]:
    """Those of the packages that it names, also for extras."""
    named = {
        normalized(match.group())
        for line in package.requires or ()
        if (match := _REQUIRED.match(line))
    }
    return [reference(packages[name]) for name in sorted(named & packages.keys())]


def normalized(name: str) -> str:
    """A name as package indices compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(json.dumps(bill_of_materials(), indent=1))
