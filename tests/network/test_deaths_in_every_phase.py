"""Whoever dies, in whatever phase: the model of an undisturbed run to the bit, or one sentence.

Every cell of the matrix has a bound in time, far below the set-up's timeout. The clock is played,
so that waits cost nothing. Other methods and other kinds of runs: ``test_deaths_in_every_method``.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from rehearsed_deaths import (
    BACK,
    GONE,
    PARTIES,
    PATIENCE,
    Rehearsal,
    Study,
    by_columns,
    cells_of,
    new_credentials,
    playing,
    training,
)

from covering import cover
from weft.crypto.keys import ephemeral_keys
from weft.errors import WeftError
from weft.federation.local_federation import Federation
from weft.network import clock as network_clock

TASK = training({"solver": "lbfgs", "loss": "logistic", "gap": 1e-2})
CELLS = cells_of(("announcing", "matching", "scaling", "solver", "release", "closing"))


@pytest.fixture(scope="module")
def credentials():
    return new_credentials()


@pytest.fixture(scope="module")
def keys():
    return ephemeral_keys(PARTIES)


@pytest.fixture
def rehearsal(tmp_path, monkeypatch, credentials, keys):
    with playing(monkeypatch) as clock:
        found = Rehearsal(tmp_path, clock, credentials, keys, Study(TASK, by_columns()))
        yield found
        found.close()


@pytest.fixture(scope="module")
def undisturbed():
    return Federation(by_columns(), TASK.preprocessing).train(TASK.settings).model


#: Where a site that was slow to log in made runs wait for the whole set-up timeout.
FOUND = ("north", "matching", "slow login")


@cover(("role", "phase", "how"), [FOUND, *(cell for cell in CELLS if cell != FOUND)])
def test_every_death_ends_in_the_same_bits_or_one_sentence(
    rehearsal, undisturbed, record_property, role, phase, how
):
    rehearsal.strike(role, phase, how)
    began = rehearsal.clock.now()
    if (phase, how) == ("release", "gone"):
        # The model lacks what the party would have sealed, which the run says.
        rehearsal.run()
        assert any(role in note for note in rehearsal.summary()["notes"])
        record_property("outcome", "a note")
    elif (phase, how) == ("closing", "gone"):
        assert rehearsal.run() < BACK
        assert any(
            note.startswith(f"{role} does not know yet that the run is over")
            for note in rehearsal.summary()["notes"]
        )
        record_property("outcome", "a note")
    elif how == "gone":
        with pytest.raises(WeftError) as told:
            rehearsal.run()
        assert role in str(told.value)
        assert "\n" not in str(told.value)
        record_property("outcome", "a sentence")
    else:
        assert rehearsal.run() < BACK
        found = rehearsal.model()
        assert found.coef.tobytes() == undisturbed.coef.tobytes()
        assert found.intercept.tobytes() == undisturbed.intercept.tobytes()
        record_property("outcome", "the same bits")
    seconds = rehearsal.clock.now() - began
    record_property("seconds", seconds)
    assert seconds < GONE
    assert rehearsal.struck


def test_a_run_says_for_whom_it_waits_in_which_phase_and_until_when(rehearsal):
    rehearsal.strike("south", "matching", "gone")
    seen = []
    sleep = network_clock.sleep

    def looking(seconds):
        seen.append(rehearsal.progress.since().wait)
        sleep(seconds)

    with patch.object(network_clock, "sleep", looking), pytest.raises(WeftError):
        rehearsal.run()
    told = [wait for wait in seen if wait is not None and wait.why]
    assert {(wait.phase, *wait.parties, wait.limit) for wait in told} == {
        ("match.tokens", "south", int(PATIENCE))
    }
    assert {wait.why for wait in told} == {"is not connected"}
    seconds = [wait.seconds for wait in told]
    assert seconds == sorted(seconds)
    assert seconds[0] <= 3 < PATIENCE - 4 < seconds[-1]
    assert rehearsal.progress.since().wait is not None
    rehearsal.progress.end("failed", "south is gone")
    assert rehearsal.progress.since().wait is None
