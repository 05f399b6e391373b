"""A coordinator's recording of a run: what the parties signed, also when somebody was killed."""

from __future__ import annotations

import json
import stat
from collections import Counter

import numpy as np
import pytest
from member_sites import MemberSites
from toys import Crashed, MemoryTransport

from weft.crypto.keys import ephemeral_keys
from weft.data import SPLITS, load
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.network import absent_parties, coordinator_run, network_channel
from weft.network.coordinator_run import coordinate_run
from weft.network.envelope_bytes import Work, decode_envelope
from weft.network.run_progress import Progress
from weft.network.run_results import FILES, RESULTS
from weft.network.submitted_task import LinearTask
from weft.privacy.agreement import Card, write_roster
from weft.privacy.agreement.cards_and_roster_drafts import draft_roster
from weft.protocol.channel import Recorded
from weft.protocol.recording_file import MESSAGES, Recorder, Recording
from weft.solvers.run_settings import Settings
from weft.storage.journal import Journal

PARTIES = ("p1", "p2", "p3")
FAST = Settings(lam=0.1, gap=0.1, solver="lbfgs", loss="logistic")


@pytest.fixture(scope="module")
def keys():
    return ephemeral_keys(PARTIES)


@pytest.fixture(scope="module")
def roster(keys, tmp_path_factory):
    """The file of a roster that all parties signed."""
    cards = [Card.of_public(name, found.identity.public) for name, found in keys.items()]
    drafted = draft_roster("clinics", cards, OPEN)
    for name, found in keys.items():
        drafted = drafted.signed_by(name, found.identity)
    path = tmp_path_factory.mktemp("roster") / "roster.json"
    write_roster(path, drafted)
    return path


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Look for parties that are away every other millisecond."""
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.002)
    monkeypatch.setattr(network_channel, "_PAUSE", 0.002)
    monkeypatch.setattr(coordinator_run, "_WAIT", 0.002)


class Post(MemoryTransport):
    """``fates``: phase and how often it was asked to what becomes of that letter."""

    def __init__(self, places, fates):
        super().__init__(places)
        self.fates, self.asked, self.met = fates, Counter(), []

    def fate(self, party, envelope):
        work = decode_envelope(envelope)
        if not isinstance(work, Work):
            return "fine"
        phase = work.parts[0][0]
        self.asked[phase] += 1
        fate = self.fates.get((phase, self.asked[phase]), "fine")
        self.met += [] if fate == "fine" else [fate]
        return fate


def task_of(settings):
    scaled = Preprocessing(scaling="standard")
    return LinearTask(name="a run", parties=PARTIES, settings=settings, preprocessing=scaled)


def recorded(folder, keys, settings=FAST, fates=(), wanted=True):
    """A run that is resumed until it is over; its folder, and what was recorded at each crash."""
    tiles = SPLITS["columns"](load("breast_cancer").rows(np.arange(60)), 3).parties
    sites = MemberSites(folder, keys, tiles)
    post = Post([sites.place(name) for name in PARTIES], dict(fates))
    run, before = folder / "coordinator", []
    while True:
        try:
            coordinate_run(
                lambda parties: post, run, task_of(settings), Progress("p-1"), record=wanted
            )
            break
        except Crashed:
            before.append((run / MESSAGES).read_bytes())
    assert sorted(post.met) == sorted(dict(fates).values())
    return run, before


#: Somebody dies while parties are matched and scaled, and in training; all are needed there.
DEATHS = {
    ("match.view", 2): "crash after",
    ("scale.extremes", 4): "killed within",
    ("subspace.spread", 5): "killed after",
    ("subspace.search", 6): "crash before",
    ("subspace.search", 8): "killed before",
}


def test_a_run_with_deaths_leaves_the_recording_that_all_parties_signed(
    tmp_path, keys, roster, weft, monkeypatch
):
    delete, deleted = Journal.delete, []

    def dies_at_the_very_end(journal):
        deleted.append(journal)
        if len(deleted) == 1:
            journal.close()
            raise Crashed
        delete(journal)

    monkeypatch.setattr(Journal, "delete", dies_at_the_very_end)
    run, (*early, complete) = recorded(tmp_path, keys, fates=DEATHS)
    path = run / MESSAGES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # Repeated from the journal, every message is there once and as it was.
    assert path.read_bytes() == complete
    assert len(early) == 2
    assert all(len(before) > 1000 and complete.startswith(before) for before in early)
    assert not (run / "journal.weft").exists()
    assert MESSAGES not in {found.name for found in (run / RESULTS).iterdir()}
    code, said, _ = weft("audit", run, "--roster", roster, "--json")
    found = json.loads(said)
    assert (code, found["sound"]) == (0, True)
    assert found["signed"] == dict.fromkeys(PARTIES, "verified")
    # A run that is over is not recorded again, nor is its recording dropped.
    coordinate_run(lambda parties: None, run, task_of(FAST), Progress("p-1"))
    assert path.read_bytes() == complete


def altered(value):
    """The same bytes, but for one bit."""
    return value[:-1] + bytes([value[-1] ^ 1])


def is_sealed(value):
    """Ciphertext, or a letter."""
    return isinstance(value, bytes) and len(value) > 40


def forged(folder, run, phase, party="p2"):
    """A recording in which one byte of one message to or from a party is another."""
    recording, done = Recording(run / MESSAGES), False
    entries = list(recording.entries())
    folder.mkdir()
    recorder = Recorder(folder / MESSAGES, recording.head)
    for asked, told in zip(entries[::2], entries[1::2], strict=True):
        said = [dict(asked.message), dict(told.message)]
        if not done and (asked.phase, asked.party) == (phase, party):
            message, field = next((m, f) for m in said for f in m if is_sealed(m[f]))
            message[field], done = altered(message[field]), True
        recorder(Recorded(asked.phase, asked.party, *said))
    recorder.finish()
    assert done
    return folder


def test_one_byte_that_differs_is_found_and_the_party_named(tmp_path, keys, roster, weft):
    run, _ = recorded(tmp_path, keys)
    assert weft("audit", run, "--roster", roster)[0] == 0
    changed = forged(tmp_path / "sum", run, "subspace.spread")
    code, said, _ = weft("audit", changed, "--roster", roster)
    assert code == 1
    assert "- p2: the signature does not fit these messages" in said
    assert "- p1, p3: signed the hash of these very messages, by keys that were given" in said
    # The model comes after all have signed: its parts must be those that were sealed.
    parcel = forged(tmp_path / "model", run, "release.model")
    code, said, _ = weft("audit", parcel, "--roster", roster)
    assert code == 1
    assert "- p2: signed the hash of a part of these messages only" in said
    whole = (run / MESSAGES).read_bytes()
    (tmp_path / "raw.weft").write_bytes(whole[:-60] + altered(whole[-60:-59]) + whole[-59:])
    code, _, said = weft("audit", tmp_path / "raw.weft", "--roster", roster)
    assert code == 2
    assert "is damaged" in said


def test_nothing_is_recorded_unless_it_is_wanted(tmp_path, keys, weft):
    folder = tmp_path / "coordinator"
    folder.mkdir()
    # It was wanted when the run began, and is not any more when it is resumed.
    (folder / MESSAGES).write_bytes(b"half a recording")
    run, _ = recorded(tmp_path, keys, wanted=False)
    assert not (run / MESSAGES).exists()
    # Nor is anything else that went to and fro left at the coordinator, but results.
    assert not list(run.glob("*journal*"))
    assert {path.name for path in (run / RESULTS).iterdir()} <= set(FILES)
    code, _, said = weft("audit", run)
    assert code == 2
    assert "weft serve --record" in said
