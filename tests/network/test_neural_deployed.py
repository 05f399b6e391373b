"""Neural runs over a network, from a config to results; what sites keep, and what they refuse."""

from __future__ import annotations

import importlib
import re
import sys

import msgspec
import pandas as pd
import pytest
from neural_sites import (
    BLOCKS,
    HELD,
    in_one_process,
    numbers,
    places,
    settings,
    site_of,
    task,
    threads,
    tiles,
)
from toys import Crashed, MemoryTransport

from process_apart import apart, forget
from weft.crypto.keys import ephemeral_keys
from weft.errors import ConfigError, ProtocolError
from weft.guards import OPEN, Terms
from weft.network import absent_parties
from weft.network.coordinator_run import coordinate_run
from weft.network.envelope_bytes import Work
from weft.network.installed_job_kinds import read_task
from weft.network.record_and_replay_absences import Presence, ReplayedPresence
from weft.network.run_progress import Progress
from weft.network.run_results import RESULTS
from weft.network.run_status_line import report_text
from weft.network.task_from_config import task_of
from weft.network.write_submitter_results import write_out
from weft.privacy.agreement import Limits, SitePolicy
from weft.protocol import Failure
from weft_neural.config import read_neural_config
from weft_neural.trained_model import NeuralModel

RUN = "three-clinics-1"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.002)


@pytest.fixture
def config(tmp_path):
    """What whoever submits a run writes."""
    lines = ['name = "three clinics"', "[neural]"]
    told = msgspec.to_builtins(settings())
    for key in ("coordinator_sees", "hidden", "rounds", "steps", "batch", "test_share"):
        lines.append(f"{key} = {msgspec.json.encode(told[key]).decode()}")
    for name, block in told["blocks"].items():
        columns = msgspec.json.encode(block["columns"]).decode()
        lines += [f"[neural.blocks.{name}]", f"columns = {columns}",
                  "options = { hidden = [], features = 3 }"]  # fmt: skip
    path = tmp_path / "clinics.toml"
    path.write_text("\n".join(lines) + "\n[network]\ntimeout = 20.0\n")
    return path


class Transport(MemoryTransport):
    """The coordinator dies once, in the middle."""

    dies_at = 0

    def send(self, envelopes, timeout):
        first = next(iter(envelopes.values()))
        self.dies_at -= first.find(b"neural.train") > 0
        if self.dies_at == 0:
            raise Crashed
        return super().send(envelopes, timeout)


def test_from_a_config_to_results_also_when_the_coordinator_is_killed(config, tmp_path):
    plan = read_neural_config(config, deployed=True)
    asked = task_of(plan, list(HELD)[::-1])
    # By the names of those who are connected.
    assert asked.parties == ("east", "north", "south")
    asked = msgspec.structs.replace(asked, parties=tuple(HELD))
    transport = Transport(places(tmp_path / "sites"))
    transport.dies_at = 4
    folder, progress = tmp_path / "coordinator" / RUN, Progress(RUN)
    with pytest.raises(Crashed):
        coordinate_run(lambda parties: transport, folder, asked, progress, "anna")
    assert progress.since().state == "running"
    # The next process reads what the first was told from a file.
    again, progress = read_task(asked.to_json()), Progress(RUN)
    coordinate_run(lambda parties: transport, folder, again, progress, "anna")
    assert not (folder / "journal.weft").exists()
    summary, remarks = write_out(folder / RESULTS, tmp_path / "out", plan, None, None)
    assert remarks == []
    assert (summary["name"], summary["rounds"], summary["notes"]) == ("three clinics", 6, [])

    presence = Presence.load(tmp_path / "out" / "presence.json")
    alone = in_one_process(plan.settings, lambda channel: ReplayedPresence(channel, presence))
    model = NeuralModel.load(tmp_path / "out" / "model.npz")
    assert numbers(model) == numbers(alone.model)
    history = pd.read_parquet(tmp_path / "out" / "history.parquet")
    assert history["loss"].tolist() == [turn.loss for turn in alone.history]
    for name in HELD:
        models = tmp_path / "sites" / name / "models" / RUN
        assert sorted(path.name for path in models.iterdir()) == [
            "own.npz",
            "received.npz",
        ]
        assert not (tmp_path / "sites" / name / "runs" / RUN).exists()


def test_progress_is_told_round_by_round(tmp_path, caplog):
    caplog.set_level("INFO", "weft.coordinator")
    transport, progress = MemoryTransport(places(tmp_path / "sites")), Progress(RUN)
    coordinate_run(lambda parties: transport, tmp_path / RUN, task(), progress)
    report = progress.since(4)
    # As it comes to whoever asks.
    report = msgspec.convert(msgspec.json.decode(msgspec.json.encode(report.to_plain())),
                             type(report))  # fmt: skip
    assert report.kind == "neural"
    assert [record["turn"] for record in report.records] == [5, 6]
    line = report_text(report)
    for part in ("round 6", "loss 0.", "own ", "received ", "round trips", "MB", "3 of 3 parties"):
        assert part in line
    assert any("round 1, 3 parties answered" in entry.getMessage() for entry in caplog.records)
    progress.add(_told(progress), {"east": Failure("late", "gave no answer")})
    assert "without east" in report_text(progress.since())


def _told(progress):
    return progress._records[-1]


def test_no_id_no_label_and_no_cell_leaves_a_site_as_it_is(tmp_path):
    sites = places(tmp_path)
    transport = MemoryTransport(sites)
    answers = []

    def listening(place):
        answer = place.site.answer

        def listened(envelope):
            answers.append(answer(envelope))
            return answers[-1]

        return listened

    for place in sites:
        place.site.answer = listening(place)
    coordinate_run(lambda parties: transport, tmp_path / RUN, task(), Progress(RUN))
    sent = [part for _, envelope in transport.sent if isinstance(envelope, Work)
            for _, part in envelope.parts]  # fmt: skip
    assert len(sent) > 30
    crossed = b"".join(answers + sent)
    assert b"patient-" not in crossed
    for held in tiles().values():
        for row in held[0].block:
            for kind in ("<f8", "<f4"):
                cells = row.astype(kind)
                assert cells[:2].tobytes() not in crossed
        # All labels of a party in a row, in any width.
        for kind in ("<i8", "<i4", "u1", "<f8", "<f4"):
            assert held[0].labels.astype(kind)[:24].tobytes() not in crossed
    # The search finds what does cross.
    assert any(name.encode() in crossed for name in BLOCKS)


# ── refusals ──────────────────────────────────────────────────────────────────────────────


def refusal(told, folder, memory=None, **changes):
    keys = changes.pop("keys", None) or ephemeral_keys(tuple(HELD))
    with pytest.raises(ConfigError) as refused:
        site_of("north", keys, folder, **changes).open_party(told, {} if memory is None else memory)
    sentence = str(refused.value)
    assert sentence.count("\n") == 0
    return sentence


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"policy": None}, "refuses a job of kind 'neural', .* agree on allow_networks = true"),
        ({"policy": SitePolicy(terms=Terms(allow_networks=True))}, "coordinator_sees = 'weights'"),
        ({"policy": SitePolicy(limits=Limits(solvers=("hyfdca",)))}, "add 'hyfem' to solvers"),
        (
            {"policy": SitePolicy(terms=msgspec.structs.replace(OPEN, ciphers=("pad",)))},
            "refuses cipher = 'plain'",
        ),
    ],
    ids=["nothing said", "mode", "solvers", "cipher"],
)
def test_a_site_refuses_what_it_has_not_agreed_to(changes, told, tmp_path):

    asked = task(settings(cipher="plain")).told()
    assert re.search(told, refusal(asked, tmp_path, **changes))


def test_a_site_may_list_networks_among_its_solvers(tmp_path):
    policy = SitePolicy(limits=Limits(solvers=("hyfdca", "hyfem")))
    site = site_of("north", ephemeral_keys(tuple(HELD)), tmp_path, policy=policy)
    assert site.open_party(task().told(), {}).name == "north"


def test_a_site_without_pytorch_says_what_to_install(tmp_path, monkeypatch):
    real = importlib.import_module

    def without(name, *rest):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, *rest)

    monkeypatch.setattr("weft_neural.torch_requirement.import_module", without)
    assert "pip install 'weft[neural]'" in refusal(task().told(), tmp_path)


def test_the_coordinator_works_without_pytorch(tmp_path):
    """It can neither load it, nor tables, in a process in which it coordinates a neural run."""
    said, loaded = apart(_coordinated_anew, task(timeout=0.1).to_json(), tmp_path / "run")
    assert "the run cannot begin without every party" in said
    assert loaded == []


def _coordinated_anew(asked, folder):
    """What a coordinator of Weft says that was loaded without PyTorch, and what it has loaded."""
    forget("weft", "weft_neural", "torch")
    sys.modules["torch"] = None
    for name in ("weft_neural.neural_result_files", "weft_neural.coordinator"):
        importlib.import_module(name)
    failure = importlib.import_module("weft.protocol").Failure
    run = importlib.import_module("weft.network.coordinator_run").coordinate_run
    told = importlib.import_module("weft.network.installed_job_kinds").read_task(asked)
    progress = importlib.import_module("weft.network.run_progress").Progress("a")

    class Nobody:
        parties = ("north", "south")

        def send(self, letters, timeout):
            return {party: failure("unknown", "is not there") for party in letters}

    said = ""
    try:
        run(lambda parties: Nobody(), folder, told, progress)
    except Exception as error:
        said = str(error)
    private = ("weft.data", "weft.crypto.secret_bytes", "weft.federation.party")
    return said, [name for name in sys.modules if name.startswith(private)]


@pytest.mark.parametrize("other", ["threads", "rows", "terms", "keys"])
def test_who_takes_a_run_up_again_must_bring_the_same(other, tmp_path):
    keys, memory, told = ephemeral_keys(tuple(HELD)), {}, task().told()
    site_of("north", keys, tmp_path).open_party(told, memory)
    site_of("north", keys, tmp_path).open_party(told, memory)
    if other == "threads":
        with threads(3):
            said = refusal(told, tmp_path, memory, keys=keys)
    else:
        terms = msgspec.structs.replace(OPEN, min_batch=2)
        changes = {
            "rows": {"tiles": tiles()["south"]},
            "terms": {"policy": SitePolicy(terms=terms)},
            "keys": {"keys": ephemeral_keys(tuple(HELD))},
        }[other]
        said = refusal(told, tmp_path, memory, **{"keys": keys, **changes})
    assert "party north was interrupted in this run" in said


def test_a_task_of_neither_kind_is_refused():
    with pytest.raises(ProtocolError, match="same version of Weft"):
        read_task('{"kind": "other", "name": "a", "parties": []}')
    assert read_task(task().to_json()) == task()
