"""What kits tell the engine, judged by the engine's own readers of it."""

import importlib
import json
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

import nvflare
import pytest
import yaml
from kitted import (
    ANNA,
    kit_of,
    settings,
)
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace
from nvflare.app_common.logging.constants import is_log_streaming_allowed
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.private.fed.utils.site_config import project_site_config
from nvflare.security.security import COMMAND_CATEGORIES, FLAuthorizer

from weft.network.kits.kit_folder import Kit

TEMPLATES = {
    "coordinator": ("fed_server", "fed_server.json"),
    "north": ("fed_client", "fed_client.json"),
    ANNA: ("fed_admin", "fed_admin.json"),
}


def paths_in(value, start=""):
    """All keys of nested settings, as dotted paths."""
    if isinstance(value, list):
        return set().union(*(paths_in(entry, f"{start}[]") for entry in value))
    if not isinstance(value, dict):
        return {start}
    return set().union(*(paths_in(entry, f"{start}.{key}") for key, entry in value.items()))


@pytest.mark.parametrize("name", TEMPLATES)
def test_startup_settings_have_the_keys_of_the_engines_own_templates(place, name):
    section, file = TEMPLATES[name]
    folder = Path(nvflare.__file__).parent / "lighter/templates"
    text = yaml.safe_load((folder / "master_template.yml").read_text())[section]
    text = re.sub(r"{~~(\w+)~~}", lambda m: "" if m[1].endswith("_config") else "1", text)
    template = json.loads(text)
    ours = json.loads((kit_of(place, name) / "startup" / file).read_text())
    assert ours.pop("require_signed_jobs", True) is True
    assert paths_in(ours) == paths_in(template)


@pytest.mark.parametrize("name", ["coordinator", "north"])
def test_classes_in_settings_exist_and_stream_no_logs(place, name):
    resources = settings(kit_of(place, name))
    components = [*resources["components"]]
    if name == "coordinator":
        persistor = resources["snapshot_persistor"]
        components += [persistor, persistor["args"]["storage"]]
    for component in components:
        module, _, kind = component["path"].rpartition(".")
        assert hasattr(importlib.import_module(module), kind)
        assert "log" not in module.split(".")[-1]
        assert ".logging." not in module
    context = FLContext()
    context.set_prop("__workspace_root__", str(kit_of(place, name)))
    context.put("__identity_name__", name, private=False, sticky=True)
    assert not is_log_streaming_allowed(context)


def test_a_site_starts_its_party_and_nothing_else(place):
    (party,) = settings(place / "north")["components"]
    assert party["path"] == "weft.network.nvflare_processes.client_party.PartyComponent"
    assert party["args"] == {}


def test_a_site_sends_none_of_its_settings_along(place):
    merged = {
        **json.loads((place / "north/startup/fed_client.json").read_text()),
        **settings(place / "north"),
    }
    sent = project_site_config(merged)
    assert sent == {"allow_log_streaming": False, "require_signed_jobs": True}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("coordinator", "weft.network.nvflare_processes.coordinator_job.CoordinatorController"),
        ("north", "weft.network.nvflare_processes.client_party.PartyComponent"),
    ],
)
def test_jobs_may_name_one_class_of_ours_and_nothing_else(place, name, ours):
    """Not even another callable of ours: a job gives it arguments of its choice."""
    workspace = Workspace(str(kit_of(place, name)))
    judge = ComponentPathAuthorizer()
    judge.authorize_component_config({"path": ours}, workspace=workspace)
    for path in (
        "nvflare.app_common.workflows.fedavg.FedAvg",
        "os.system",
        "weft.cli.main",
        "weft.network.nvflare_processes.write_job.write_job",
        "weft.network.nvflare_processes.coordinator_job.packed_json",
    ):
        with pytest.raises(Exception, match="not in allow_list"):
            judge.authorize_component_config({"path": path}, workspace=workspace)


def may(kit, right, user=ANNA, submitter=ANNA):
    policy = settings(kit, "authorization.json")
    person, other = (Person(name, "north_clinic", "lead") for name in (user, submitter))
    context = AuthzContext(right=right, user=person, submitter=other)
    return FLAuthorizer("clinic", policy).authorize(context)[0]


def test_a_submitter_may_do_nothing_on_a_site(place):
    rights = {*COMMAND_CATEGORIES, "submit_job", "byoc", "clone_job", "app_command"}
    assert not [right for right in rights if may(place / "north", right)]


def test_a_submitter_manages_its_own_runs_on_the_coordinator_and_nothing_else(place):
    kit = place / "kits/coordinator"
    for right in ("submit_job", "list_jobs", "get_job_meta", "check_status", "app_command"):
        assert may(kit, right)
    for right in ("abort_job", "download_job", "delete_job"):
        assert may(kit, right)
        assert not may(kit, right, submitter="ben@south.example")
    for right in ("cat", "ls", "grep", "byoc", "shutdown", "restart", "remove_client", "clone_job"):
        assert not may(kit, right)


def test_the_coordinators_storage_lies_inside_its_kit_wherever_that_was_moved(place, tmp_path):
    shutil.copytree(place / "kits/coordinator", tmp_path / "moved")
    kit = Kit.open(tmp_path / "moved", "coordinator")
    kit.prepare()
    resources = settings(kit.path)
    stores = [resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]]
    stores += [c["args"]["uri_root"] for c in resources["components"] if c["id"] == "job_manager"]
    assert [os.path.commonpath([kit.home, store]) for store in stores] == [str(kit.home)] * 2
    assert os.path.join(tempfile.gettempdir(), "nvflare") not in json.dumps(resources)
    for path in (kit.home, kit.runs, kit.home / "engine", kit.local / "resources.json"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    kit.prepare()
    assert settings(kit.path) == resources


def test_a_coordinators_kit_made_when_the_scheduler_was_called_otherwise_starts(place, tmp_path):
    shutil.copytree(place / "kits/coordinator", tmp_path / "older")
    file = tmp_path / "older/local/resources.json"
    resources = json.loads(file.read_text())
    (scheduler,) = (c for c in resources["components"] if c["id"] == "job_scheduler")
    now, scheduler["path"] = (
        scheduler["path"],
        "weft.network.nvflare_processes.server_only_jobs.RunScheduler",
    )
    file.write_text(json.dumps(resources))
    kit = Kit.open(tmp_path / "older", "coordinator")
    kit.prepare()
    found = [c["path"] for c in settings(kit.path)["components"] if c["id"] == "job_scheduler"]
    assert found == [now]


def test_submitters_and_sites_come_in_by_one_port_with_both_sides_certified(place):
    (server,) = json.loads((place / "kits/coordinator/startup/fed_server.json").read_text())[
        "servers"
    ]
    assert server["service"]["target"] == "localhost:18002"
    assert server["admin_port"] == 18002
    assert server["connection_security"] == "mtls"
    client = json.loads((place / "north/startup/fed_client.json").read_text())
    assert client["client"]["connection_security"] == "mtls"
    assert client["servers"][0]["identity"] == "localhost"
