"""A party that brings a sample of another's in one study and not in the next.

Of a cell that two parties hold the first counts. Whoever comes before a party and names one more of
its samples, with cells of its own making, takes that sample's cells off the party's part of every
total, and knows what stands in their place.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_descriptive_statistics import describe_tiles
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards import Terms
from weft.privacy.agreement import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

TERMS = Terms(min_batch=10)
IDS = np.array([f"s{row:03}" for row in range(240)])
WANTED = 31


@pytest.fixture
def study(tmp_path):
    rng = np.random.default_rng(0)
    ages, labels = rng.normal(50, 10, 240), np.arange(240) % 2
    keys = ephemeral_keys(("attacker", "other", "victim"))

    def described(names: range, terms: Terms = TERMS) -> dict[str, Any]:
        """What is told of a column where the attacker names these samples of the victim's too."""
        # Its own ledger is its own affair.
        (tmp_path / "attacker.npz").unlink(missing_ok=True)
        mine, claimed = np.r_[list(names), 160:240], np.zeros(len(names))
        held = {
            "attacker": (IDS[mine], np.r_[claimed, ages[160:]], labels[mine]),
            "other": (IDS[80:160], ages[80:160], labels[80:160]),
            "victim": (IDS[:80], ages[:80], labels[:80]),
        }
        tiles = {p: (Tile.make(i, ("age",), x[:, None], y),) for p, (i, x, y) in held.items()}
        found, _ = describe_tiles(
            tiles,
            Preprocessing(confirmed=ONE_TABLE, confirm_separate_ids=True),
            Settings(lam=0.1, loss="logistic"),
            consents={party: Consent(party, terms) for party in tiles},
            ledger=Ledger(tmp_path, "study"),
            keys=keys,
        )
        return found.to_dict()

    return described, ages


def test_a_sample_that_another_party_names_too_is_one_that_changed(study):
    described, ages = study
    loose = msgspec.structs.replace(TERMS, allow_small_changes=True)
    first, second = (described(range(n), loose) for n in (WANTED, WANTED + 1))
    sums = [one["columns"][0]["mean"] * one["columns"][0]["cells"] for one in (first, second)]
    # Without the guard, its cell to four digits.
    assert sums[0] - sums[1] == pytest.approx(ages[WANTED], abs=1e-2)
    with pytest.raises(WeftError, match=r"party victim refuses.*1 got other holders"):
        described(range(WANTED + 2))


def test_many_samples_may_come_to_be_held_by_others(study):
    described, _ = study
    first = described(range(20))
    assert described(range(40))["columns"][0]["cells"] == first["columns"][0]["cells"]
    with pytest.raises(WeftError, match="3 got other holders"):
        described(range(43))
