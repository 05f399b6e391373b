"""Plug-ins add kinds of jobs; a site runs only those that are installed and that it agrees to."""

from __future__ import annotations

import importlib
import logging
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
from toys import MemoryTransport, Place, Toy, ToyRequest, toy

from process_apart import apart
from weft import all_messages
from weft.config.read_config import OTHER_KINDS, read_any_config, read_config
from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_key_pairs import Identity
from weft.data import load
from weft.errors import ConfigError, ProtocolError
from weft.guards.privacy_terms import OPEN, Terms
from weft.network.coordinator_run import coordinate_run
from weft.network.installed_job_kinds import JOB_KINDS, job_kind_of, read_task
from weft.network.job_kind_interface import JobKind, WrittenBy
from weft.network.model_saving_party import ModelSavingParty
from weft.network.network_channel import Timeouts
from weft.network.run_progress import Progress, Report
from weft.network.run_results import RESULTS
from weft.network.run_status_line import report_text
from weft.network.site_data_keys_and_consent import SiteMember
from weft.network.submitted_task import Task
from weft.network.task_from_config import task_of
from weft.network.write_submitter_results import write_out
from weft.plugins import _Added
from weft.privacy.agreement import Card, Limits, SitePolicy
from weft.privacy.agreement.cards_and_roster_drafts import draft_roster
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import Request

COUNT = toy("tally.count")


class TallyTask(Task, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="tally"):
    """Asks every party twice."""

    turns: int = 2

    @property
    def patience(self):
        return 1.0


@dataclass
class Turn:
    """An iteration of the plug-in's own."""

    turn: int
    round_trips: int
    bytes_down: int
    bytes_up: int

    @property
    def line(self):
        return f"turn {self.turn}"


class TallyParty(Toy):
    """Counts how often it is asked; its model is a text."""

    saved_models: ClassVar = {COUNT.name: (("model", "model.txt"),)}
    model = SimpleNamespace(save=lambda path: path.write_text("counted"))

    def replaying(self):
        raise NotImplementedError


class Tally(JobKind):
    """As a third party would write it, without a cipher."""

    task = TallyTask
    about = "tallies"
    command = "tally"
    beginning = "counting"
    result_files = ("tally.txt", "presence.json")
    setup_phases = ("tally.",)

    def __init__(self):
        self.opened = []

    def read_config(self, path, *, deployed=False):
        return SimpleNamespace(kind="tally", name="t", path=path, parties=(), deployed=deployed)

    def make_task(self, config, parties):
        return TallyTask(name=config.name, parties=parties)

    def write_results(self, draft, returned, config, *, keys, party, command):
        text = (returned / "tally.txt").read_text()
        (draft / "tally.txt").write_text(text)
        return {"calls": text}, []

    def progress_text(self, record):
        return f"turn {record['turn']}"

    def ending_text(self, folder, summary, remarks):
        return [f"counted {summary['calls']}"]

    def coordinate(self, task, channel, run, tell):
        calls = 0
        for turn in range(task.turns):
            request = Request(COUNT, dict.fromkeys(channel.parties, ToyRequest(turn=turn)))
            (replies,) = channel.exchange([request])
            calls += len(replies.answered)
            tell(Turn(turn, turn + 1, 12_345, 67_890))
        return WrittenBy(calls, [], task, self._write)

    @staticmethod
    def _write(folder, calls, task, presence):
        (folder / "tally.txt").write_text(str(calls))
        presence.save(folder / "presence.json")

    def check_consent(self, task, consent):
        consent.check_cipher("plain")

    def open_party(self, task, member, consent, memory):
        self.opened.append(member.name)
        return TallyParty(member.name)


@pytest.fixture
def tally(monkeypatch):
    """The kind, as if a plug-in were installed that adds it."""
    kind = Tally()
    for registry in (JOB_KINDS, OTHER_KINDS):
        monkeypatch.setitem(registry.__dict__, "_added", _Added({"tally": kind}))
    return kind


@pytest.fixture
def nothing_installed(monkeypatch):
    for registry in (JOB_KINDS, OTHER_KINDS):
        monkeypatch.setitem(registry.__dict__, "_added", _Added())


def member(name, folder, policy=None, roster=None):
    tiles = (load("breast_cancer").to_tile(),)
    keys = ephemeral_keys((name,))[name]
    book = Ledger(folder / "ledger", "one")
    members = dict.fromkeys((name, "north", "south"), keys.identity.public)
    return SiteMember(name, tiles, keys, members, book, roster=roster, policy=policy)


#: A site whose owner has agreed to tallies.
NAMED = SitePolicy(Terms(), Limits(kinds=("linear", "tally")))


def config_with(section, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(f'name = "t"\n[{section}]\nturns = 2\n')
    return path


def test_a_kind_from_outside_runs_from_config_to_results(tally, tmp_path, monkeypatch):
    monkeypatch.setattr(tally, "check_consent", lambda task, consent: None)
    plan = read_any_config(config_with("tally", tmp_path), deployed=True)
    task = task_of(plan, ["south", "north"])
    assert task == read_task(task.to_json())
    assert task.parties == ("north", "south")

    def open_party(request):
        site = member("site", tmp_path, NAMED)
        party = site.open_party(request.plan, request.memory)
        return ModelSavingParty(party, tmp_path / "models" / request.run)

    places = [Place(name, tmp_path / name, open_party) for name in task.parties]
    progress, folder = Progress("t-1"), tmp_path / "coordinator"
    coordinate_run(lambda parties: MemoryTransport(places), folder, task, progress)
    report = progress.since()
    assert report.kind == "tally"
    assert report_text(report).startswith("turn 1 · ")
    # Only a kind that says so shows exact sizes.
    assert report.records[0]["bytes_down"] == 12_000
    summary, remarks = write_out(folder / RESULTS, tmp_path / "out", plan, None, None)
    assert (summary, remarks) == ({"calls": "4"}, [])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "presence.json",
        "tally.txt",
    ]
    assert (tmp_path / "models" / "t-1" / "model.txt").read_text() == "counted"


def test_phases_of_the_set_up_are_those_of_the_kind(tally):
    timeouts = Timeouts(setup=50.0, work=5.0, setup_phases=tally.setup_phases)
    assert timeouts.of(["tally.count"]) == 50.0
    assert timeouts.of(["match.tokens"]) == 5.0
    assert Timeouts(setup=50.0, work=5.0).of(["match.tokens"]) == 50.0


def test_consent_is_asked_before_a_kind_opens_anything(tally, tmp_path):
    """A site for which nobody signed anything allows no sum in the clear."""
    task = TallyTask(name="t", parties=("north", "south"))
    with pytest.raises(ConfigError, match="refuses cipher = 'plain'"):
        member("north", tmp_path, NAMED).open_party(task.told(), {})
    assert tally.opened == []


def test_a_site_runs_no_kind_that_its_documents_do_not_name(tally, tmp_path, monkeypatch):
    """Installing a plug-in is no consent to its runs: nothing, a policy, a roster deny it."""
    monkeypatch.setattr(tally, "check_consent", lambda task, consent: None)
    task = TallyTask(name="t", parties=("north", "south"))
    for policy in (None, SitePolicy(), SitePolicy(OPEN)):
        with pytest.raises(ConfigError, match="refuses a job of kind 'tally', since only linear"):
            member("north", tmp_path, policy).open_party(task.told(), {})
    assert tally.opened == []
    member("north", tmp_path, NAMED).open_party(task.told(), {})
    alone = TallyTask(name="t", parties=("north",))
    roster = signed_by_north(Limits())
    with pytest.raises(ConfigError, match=r"add 'tally' to kinds .* \(the roster of 'one' says so"):
        member("north", tmp_path, NAMED, roster).open_party(alone.told(), {})
    allowed = signed_by_north(Limits(kinds=("tally",)))
    member("north", tmp_path, NAMED, allowed).open_party(alone.told(), {})
    assert tally.opened == ["north", "north"]


def signed_by_north(limits):
    identity = Identity.new()
    card = Card.of_public("north", identity.public)
    return draft_roster("one", [card], OPEN, limits=limits).signed_by("north", identity)


def test_a_site_runs_no_kind_that_is_not_installed(nothing_installed, tmp_path):
    task = TallyTask(name="t", parties=("north", "south"))
    with pytest.raises(ProtocolError) as refused:
        member("north", tmp_path).open_party(task.told(), {})
    said = str(refused.value)
    assert "kind 'tally', which is not installed here" in said
    assert "install the plug-in that adds it" in said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["os", "weft_neural.neural_job_kind", "../linear", ""])
def test_a_kind_is_never_imported_by_the_name_in_a_task(name, nothing_installed):
    with pytest.raises(ProtocolError, match="not installed here"):
        read_task(f'{{"kind": "{name}", "name": "a", "parties": []}}')


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a", "parties": []}',
        '{"kind": 3, "name": "a", "parties": []}',
        '{"kind": "tally", "name": "a", "parties": [], "more": 1}',
        '{"kind": "linear", "kind": "tally", "name": "a", "parties": [], "settings": {}}',
        "[]",
        "",
    ],
)
def test_a_malformed_task_is_refused(text, tally):
    with pytest.raises(ProtocolError, match="same version of Weft"):
        read_task(text)


def test_the_kind_of_a_task_must_be_the_installed_one(tally):
    class Other(Task, frozen=True, kw_only=True, tag="tally"):
        """Of the same name."""

    with pytest.raises(TypeError, match="not a task of an installed job kind"):
        job_kind_of(Other(name="t", parties=()))


def test_a_run_of_a_kind_that_is_not_installed_does_not_stop_the_list_of_runs(nothing_installed):
    record = {"bytes_down": 1e6, "bytes_up": 1e6}
    report = Report(run="t-1", state="running", kind="tally", records=[record], parties=["a"])
    assert report_text(report).startswith("a job of kind 'tally' · 2.0 MB")


# ── configs ───────────────────────────────────────────────────────────────────────────────────


def test_weft_train_names_the_command_for_another_kind(tally, tmp_path):
    with pytest.raises(ConfigError) as refused:
        read_config(config_with("tally", tmp_path))
    assert str(refused.value) == (
        "config.toml: has a section [tally], which describes tallies; use 'tally', or take it out"
    )


@pytest.mark.parametrize(
    ("section", "hint"),
    [
        ("tally", "install the plug-in that adds it, or take it out"),
        ("neural", "install the plug-in that adds it (pip install 'weft[neural]'), or take it out"),
    ],
)
@pytest.mark.parametrize("read", [read_config, read_any_config])
def test_without_its_plug_in_a_section_says_what_to_install(
    section, hint, read, nothing_installed, tmp_path
):
    with pytest.raises(ConfigError) as refused:
        read(config_with(section, tmp_path))
    assert str(refused.value) == (
        f"config.toml: has a section [{section}], which nothing here reads; {hint}"
    )


def test_a_slip_of_the_pen_is_no_missing_plug_in(nothing_installed, tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'solver'"):
        read_config(config_with("sovler", tmp_path))


# ── messages ──────────────────────────────────────────────────────────────────────────────────

MESSAGES = """
from weft.protocol import Nothing, Phase

MINE = Phase("{first}", Nothing, Nothing)
"""
PLUGIN = """
from weft.plugins import Plugin

def messages():
    import {name}_messages
    return {{"{name}_messages": {name}_messages}}

PLUGIN = Plugin(messages=messages)
"""


def test_messages_of_plug_ins_are_known_and_take_no_name_of_weft(tmp_path):
    """One plug-in with a phase of its own, one with a name that is taken; in a process apart."""
    for name, phase in (("adds", "mine.first"), ("takes", "start")):
        (tmp_path / f"{name}.py").write_text(PLUGIN.format(name=name))
        (tmp_path / f"{name}_messages.py").write_text(MESSAGES.format(first=phase))
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "entry_points.txt").write_text(f"[weft.plugins]\n{name} = {name}:PLUGIN\n")
    asked, modules, warned = apart(_loaded_beside, str(tmp_path))
    assert asked == ["Nothing", "StartRequest"]
    assert {"weft.federation.messages", "adds_messages"} <= set(modules)
    assert "takes_messages" not in modules
    (warning,) = warned
    assert "phase 'start' is declared twice" in warning


def _loaded_beside(folder):
    """Requests of both phases, modules of messages, warnings; with plug-ins in a folder."""
    warned = []
    sys.path.insert(0, folder)
    logging.getLogger("weft").addFilter(lambda entry: warned.append(entry.getMessage()))
    known = importlib.reload(all_messages)
    asked = [known.declared_phases()[phase].request.__name__ for phase in ("mine.first", "start")]
    return asked, [module.__name__ for module in known.MODULES], warned
