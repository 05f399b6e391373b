"""One party's part of ‖u‖² in HyFDCA's power iteration, by saying that another is away.

Four horizontal parties, breast cancer, careful terms. While a party is away, HyFDCA may begin among
the others, so that its power iteration is the one place where a request says over whom a sum of
scalars goes. With nobody away, the total over all less that over three is the fourth party's. The
same follows if only one party is told a factor other than zero.
"""

from __future__ import annotations

import numpy as np
import pytest
from asking_again import NAMES, Again, caught, total
from scene import by_rows, table_of

from weft.crypto.scalar_mask_neighbours import attendance
from weft.solvers.hyfdca import data_norms
from weft.solvers.hyfdca.data_norms import DataNormsParty

ALONE, OTHERS = NAMES[0], NAMES[1:]
BITS = attendance(4, [1, 2, 3])
AGAIN = "comes again, or too early or late"


@pytest.fixture
def again() -> Again:
    return caught(by_rows(table_of("breast_cancer", 160), 4), "hyfdca", "hyfdca.spread")


def asked_as_it_likes(monkeypatch) -> None:
    """Take out that every step comes once, in order, over the same parties."""
    monkeypatch.setattr(DataNormsParty, "_go_on", lambda *_: None)
    monkeypatch.setattr(
        DataNormsParty,
        "_sharers",
        lambda party, message: data_norms.over_attending(
            party._cipher, message.attending, harmless=True
        ),
    )


def own(again: Again) -> float:
    """For the judge: that party's part."""
    half = again.parties[ALONE]._half
    u = half.data_norms._u[half.view.counted_rows]
    return float((u**2).sum()) / half.view.n_samples


def over_all_but_one(again: Again) -> float:
    """total(all) − total(three), at the same u."""
    whole = total(again.ask(NAMES), "squares", NAMES)[0]
    return whole - total(again.ask(OTHERS, attending=BITS), "squares", OTHERS)[0]


def gathered(again: Again, scales: dict[str, float]) -> float:
    """The total of ‖u‖² after a product that every party scales by another number."""
    spread = {name: dict(message) for name, message in again.asked.items()}
    again.phase = "hyfdca.gather"
    for name, scale in scales.items():
        message = {**spread[name], "scale": scale}
        again.asked[name] = {k: v for k, v in message.items() if k in ("round", "scale")}
        # v of the round before is brought again: what it is matters little.
        again.parties[name]._half.data_norms._v.open = lambda v, width: np.ones((30, 1)) / 30
        again.ask([name])
        again.later -= 100
    again.later += 100
    again.phase, again.asked = "hyfdca.spread", spread
    return total(again.ask(NAMES), "squares", NAMES)[0]


def test_one_partys_part_follows_from_two_sets(again, monkeypatch, record):
    asked_as_it_likes(monkeypatch)
    found = over_all_but_one(again)
    assert found == pytest.approx(own(again), rel=1e-12)
    record("41", "unguarded", "p1's own ‖u‖², exact")


def test_nobody_is_left_out_while_all_are_there(again, record):
    assert not again.ask(OTHERS, attending=BITS)
    assert not again.ask(NAMES)
    assert all(AGAIN in refusal for refusal in again.refusals)
    record("41", "guarded", "refused")


def test_those_who_began_a_power_iteration_end_it(again):
    """Also where HyFDCA works in the place of another solver."""
    for party in again.parties.values():
        party._half.data_norms._among_some = True
        party._half.data_norms._step = "gather"
    assert not again.ask(OTHERS, attending=BITS)
    assert all("over others than all that began with it" in refusal for refusal in again.refusals)


def test_one_partys_part_follows_from_factors_of_the_coordinators(again, monkeypatch, record):
    monkeypatch.setattr(data_norms, "question_digest", lambda message, before: b"")
    found = gathered(again, {name: float(name == ALONE) for name in NAMES})
    assert found == pytest.approx(own(again), rel=1e-12)
    record("41", "unguarded", "the same by factors of the coordinator's")


def test_parties_that_are_told_different_factors_give_noise(again, record):
    assert abs(gathered(again, {name: float(name == ALONE) for name in NAMES})) > 2.0**20
    record("41", "guarded", "noise, ≥ 2^20")
