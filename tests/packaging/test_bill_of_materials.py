"""The bill of materials: what is installed here, in the versions that are pinned."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bill():
    program = ROOT / "packaging" / "bill_of_materials.py"
    return json.loads(subprocess.check_output([sys.executable, str(program)]))


def pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_it_lists_what_is_installed_in_the_versions_of_the_constraints(bill):
    # Builds for one kind of processor, such as PyTorch's, say so after a plus.
    listed = {part["name"]: part["version"].partition("+")[0] for part in bill["components"]}
    wanted = {name.lower().replace("_", "-"): version for name, version in pinned().items()}
    missing = {name: v for name, v in wanted.items() if name not in listed}
    # What this machine does not have, such as another platform's packages, is not in its bill.
    for name in missing:
        with pytest.raises(metadata.PackageNotFoundError):
            metadata.version(name)
    assert len(missing) < len(wanted) / 2
    assert {name: listed[name] for name in wanted.keys() & listed.keys()} == {
        name: version for name, version in wanted.items() if name in listed
    }


def test_it_is_about_weft_and_says_what_weft_depends_on(bill):
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("weft", metadata.version("weft"))
    uses = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert f"pkg:pypi/numpy@{metadata.version('numpy')}" in uses[about["bom-ref"]]


def test_every_part_is_named_once_and_every_dependency_is_a_part(bill):
    refs = [part["bom-ref"] for part in bill["components"]]
    assert len(refs) == len(set(refs))
    known = {*refs, bill["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bill["dependencies"]} == known
    assert all(known.issuperset(one["dependsOn"]) for one in bill["dependencies"])


def test_licences_are_told_as_the_packages_declare_them(bill):
    licences = {part["name"]: part.get("licenses", []) for part in bill["components"]}
    assert any("BSD-3-Clause" in json.dumps(one) for one in licences["numpy"])
    assert sum(bool(one) for one in licences.values()) > 0.8 * len(licences)
