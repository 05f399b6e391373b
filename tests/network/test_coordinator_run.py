"""A run that waits for a party, in the coordinator's process."""

from __future__ import annotations

import msgspec
import pytest

from weft.errors import ConfigError, PartyAway, ProtocolError
from weft.federation.preprocessing_settings import Preprocessing
from weft.network import coordinator_run as running
from weft.network.run_progress import Progress
from weft.network.submitted_task import LinearTask
from weft.solvers.run_settings import Settings
from weft.storage.atomic_files import StorageError

TASK = LinearTask(
    name="a study",
    parties=("north", "south"),
    settings=Settings(lam=0.1, patience=30.0),
    preprocessing=Preprocessing(),
)


@pytest.fixture
def outcomes(monkeypatch):
    """What comes of one try after the other; None: the run is over."""
    told = []

    def run(transport, folder, task, progress, record):
        (folder / "journal.weft").touch()
        error = told.pop(0)
        if error is not None:
            raise error

    monkeypatch.setattr(running, "_run", run)
    monkeypatch.setattr(running, "_WAIT", 0.0)
    return told


def go(folder, task=TASK, submitter="anna@north.example"):
    running.coordinate_run(lambda parties: None, folder, task, Progress("a-run"), submitter)


def test_who_is_away_is_waited_for(tmp_path, outcomes):
    outcomes += [PartyAway("north is away"), PartyAway("north is away"), None]
    go(tmp_path / "run")
    assert outcomes == []


def test_nobody_is_waited_for_longer_than_the_patience(tmp_path, outcomes):
    outcomes += [PartyAway("north is away")] * 3
    hasty = msgspec.structs.replace(TASK, settings=Settings(lam=0.1, patience=0.0))
    with pytest.raises(PartyAway, match="north is away"):
        go(tmp_path / "run", hasty)
    assert outcomes


def test_another_submitter_does_not_resume_a_run(tmp_path, outcomes):
    folder = tmp_path / "a-run"
    outcomes += [ProtocolError("north refuses"), None]
    with pytest.raises(ProtocolError, match="north refuses"):
        go(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError) as found:
        go(folder, submitter="bert@south.example")
    assert str(found.value) == (
        "run a-run is not bert@south.example's; only its submitter can resume it"
    )
    # Nothing was tried, and nothing is lost for the one whose run it is.
    assert len(outcomes) == 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    go(folder)
    assert outcomes == []


def test_no_submitter_learns_where_the_coordinator_keeps_its_files(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made") as found:
        go(tmp_path / "file" / "run")
    assert str(tmp_path) in str(found.value)
    assert found.value.told == "the coordinator has no folder for the run; its event log says why"
    full = StorageError(f"{tmp_path}/journal.weft: the journal cannot be written")
    assert str(tmp_path) not in full.told
    assert "its own log says" in full.told


def test_what_waiting_does_not_mend_ends_the_run(tmp_path, outcomes):
    outcomes += [ProtocolError("north refuses")]
    with pytest.raises(ProtocolError, match="north refuses"):
        go(tmp_path / "run")
