"""``weft doctor``: what is wrong with a kit or its machine, each with a mend."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from kitted import ANNA, kit_of
from test_port_and_coordinator_checks import coordinator, open_kit

from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes import kit_health


def examined(kit):
    return {symptom.about: symptom for symptom in kit_health.examine_kit(kit)}


def later(days):
    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=days)

    return Later


@pytest.mark.parametrize("name", ["south", ANNA])
def test_a_kit_that_works_is_good_in_all_respects(place, name, monkeypatch):
    plenty = SimpleNamespace(free=2e12, available=64e9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: plenty)
    monkeypatch.setattr(kit_health.psutil, "virtual_memory", lambda: plenty)
    with coordinator(Kit.open(kit_of(place, "coordinator"))) as port:
        found = examined(open_kit(place, name, port))
    abouts = ["certificate", "authority", "kit", "disk", "memory", "versions", "coordinator"]
    assert list(found) == abouts
    assert {(symptom.state, symptom.mend) for symptom in found.values()} == {("good", "")}


def test_every_trouble_is_told_with_a_mend(place, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1e7))
    monkeypatch.setattr(kit_health.psutil, "virtual_memory", lambda: SimpleNamespace(available=1e8))
    monkeypatch.setattr(kit_health, "datetime", later(350))
    found = examined(open_kit(place, "south", 1))
    states = {about: symptom.state for about, symptom in found.items()}
    assert states == {
        "certificate": "soon", "authority": "good", "kit": "good", "disk": "bad",
        "memory": "soon", "versions": "good", "coordinator": "bad",
    }  # fmt: skip
    assert all(bool(symptom.mend) == (symptom.state != "good") for symptom in found.values())
    assert "weft serve" in found["coordinator"].mend
    monkeypatch.setattr(kit_health, "datetime", later(400))
    assert examined(open_kit(place, "south", 1))["certificate"].state == "bad"
    monkeypatch.setattr(kit_health, "datetime", later(-2))
    clock = examined(open_kit(place, "south", 1))["clock"]
    assert clock.state == "bad"
    assert "set the clock" in clock.mend


def test_the_command_says_it_in_lines_or_as_json(place, weft, tmp_path):
    code, out, _ = weft("doctor", kit_of(place, "coordinator"))
    assert (code, out.count("\n")) == (0, 7)
    kit = tmp_path / "kit"
    shutil.copytree(kit_of(place, "south"), kit)
    (kit / "startup" / "client.key").chmod(0o644)
    code, out, err = weft("doctor", kit, "--json")
    told = json.loads(out)
    assert (code, err, told["healthy"], told["name"]) == (2, "", False, "south")
    (found,) = (each for each in told["found"] if each["about"] == "kit")
    assert found["state"] == "bad"
    assert "client.key" in found["found"]
