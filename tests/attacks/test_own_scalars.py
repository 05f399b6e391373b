"""One party's own losses, from totals that the coordinator chooses: then single samples' margins.

Four horizontal parties, breast cancer, careful terms. The coordinator makes up requests: it leaves
p4 out of a sum, or asks it something else than the others. With two lines of Weft taken out, that
gives p4's losses at as many points as wanted, and from the kinks of a hinge the margins of its
samples. With them in, every total is one over all parties, of one question, or noise.
"""

from __future__ import annotations

import numpy as np
import pytest
from asking_again import NAMES, Again, caught, total
from scene import by_rows, table_of

from weft.crypto.scalar_mask_neighbours import attendance
from weft.solvers.subspace import party as subspace_party
from weft.solvers.subspace import party_searches_duals_and_losses
from weft.sums.scalar_sums import over_attending

ALONE, OTHERS = NAMES[-1], NAMES[:-1]
BITS = attendance(4, [0, 1, 2])
POINTS = np.linspace(-40, 40, 40)


@pytest.fixture(scope="module")
def tiles():
    return by_rows(table_of("breast_cancer", 200), 4)


@pytest.fixture
def again(tiles, monkeypatch) -> Again:
    # What hides a party's losses must do so however often it is asked.
    often = property(lambda side: 1, lambda side, value: None)
    monkeypatch.setattr(
        party_searches_duals_and_losses.SampleSide, "_searches", often, raising=False
    )
    found = caught(tiles, "cutting-planes", "subspace.search")
    # No message says any more what masks are for, or who shares them.
    assert not {"ring.context", "ring.peers", "context", "peers"} & found.asked[ALONE].keys()
    return found


def line(points) -> np.ndarray:
    """Steps on the way from the point to the target, and beyond."""
    return np.stack([1 - points, points], axis=1)[:, :, None]


def search(again: Again, steps: dict[str, np.ndarray], bits=None) -> dict[str, dict]:
    """The next search from where all parties stand, at steps of each one's own."""
    answers = {}
    stay = {"moved": np.array([[1.0], [0.0]]), "at": np.zeros((0, 1)), "of": None, "z": None}
    for name in NAMES:
        again.asked[name]["serial"] += 1
        again.parties[name]._cipher.told = None if name == ALONE else bits
        message = {**stay, "steps": steps[name]}
        gone = {field for field, value in message.items() if value is None}
        kept = {f: v for f, v in again.asked[name].items() if f not in gone}
        again.asked[name] = kept
        answers |= again.ask([name], **{f: v for f, v in message.items() if v is not None})
        # All of them answer one request.
        again.later -= 100
    again.later += 100
    return answers


def alike(points) -> dict[str, np.ndarray]:
    return dict.fromkeys(NAMES, line(points))


def without_p4(again: Again, points) -> np.ndarray:
    """total(all) − total(three) at the same points."""
    whole = total(search(again, alike(points)), "losses", NAMES)
    return whole - total(search(again, alike(points), BITS), "losses", OTHERS)


def elsewhere(again: Again, points) -> np.ndarray:
    """total with p4 at other points − total with all at one: p4's losses, less one of them."""
    start = np.zeros_like(points)
    mixed = {**alike(start), ALONE: line(points)}
    whole = total(search(again, mixed), "losses", NAMES)
    return whole - total(search(again, alike(start)), "losses", NAMES)


def own(again: Again, points) -> np.ndarray:
    """For the judge: p4's losses."""
    return again.parties[ALONE]._half.rows.losses_along(line(points)).ravel()


def believe_the_message(monkeypatch) -> None:
    """Take the first line out: a message says over whom a sum goes."""

    def told(cipher):
        return over_attending(cipher, getattr(cipher, "told", None), harmless=True)

    monkeypatch.setattr(party_searches_duals_and_losses, "over_labelled", told)


def forget_the_question(monkeypatch) -> None:
    """Take the second line out: masks do not depend on what was asked."""
    monkeypatch.setattr(subspace_party, "told_alike", lambda message: b"")


def test_losses_of_one_party_if_a_message_said_over_whom_a_sum_goes(again, record, monkeypatch):
    believe_the_message(monkeypatch)
    told = np.concatenate([without_p4(again, some) for some in np.split(POINTS, 10)])
    worst = np.abs(told - own(again, POINTS)).max()
    assert worst < 1e-12
    record("26", "unguarded", f"p4's own losses at {len(told)} points, error {worst:.0e}")


@pytest.mark.release
def test_losses_of_one_party_if_it_could_be_asked_at_other_points(again, record, monkeypatch):
    forget_the_question(monkeypatch)
    told = np.concatenate([elsewhere(again, some) for some in np.split(POINTS, 10)])
    worst = np.abs(told - (own(again, POINTS) - own(again, np.zeros(1)))).max()
    assert worst < 1e-12
    record("26", "unguarded", f"asked elsewhere than the others: the same, error {worst:.0e}")


def kinks(read, lo: float, hi: float, count: int) -> list[float]:
    """Where a sum of hinges bends, each bend alone between two points of a grid."""
    grid = np.linspace(lo, hi, count)
    values = np.concatenate([read(some) for some in np.array_split(grid, count // 5)])
    slope = np.diff(values) / np.diff(grid)
    found = []
    for i in range(1, len(slope) - 1):
        # Straight on both sides of the cell, with other slopes: the two lines meet in the bend.
        before, after = slope[i - 1], slope[i + 1]
        if after - before > 1e-9 and abs(slope[i] - before) > 1e-9 < abs(after - slope[i]):
            left = values[i] - before * grid[i]
            right = values[i + 1] - after * grid[i + 1]
            found.append((left - right) / (after - before))
    return found


@pytest.mark.release
def test_margins_of_single_samples_follow_from_such_losses(again, record, monkeypatch):
    """A hinge bends where its sample's margin is one: where, and by how much, gives (z, z')."""
    believe_the_message(monkeypatch)
    rows = again.parties[ALONE]._half.rows
    labels = again.parties[ALONE]._half._context.labels[:, 0]
    margin, slope = labels * rows._z[:, 0], labels * (rows._target[:, 0] - rows._z[:, 0])
    true = (1 - margin) / slope
    true = true[np.abs(true) < 12]
    found = np.array(kinks(lambda points: without_p4(again, points), -12, 12, 1200))
    right = sum(bool((np.abs(found - bend) < 1e-6).any()) for bend in true)
    assert len(true) >= 10
    assert right >= 0.7 * len(true)
    record("26", "unguarded", f"margins of {right} of {len(true)} samples of p4 from their kinks")


def test_totals_over_fewer_or_of_different_questions_are_noise(again, record):
    few = np.linspace(0, 1, 4)
    assert np.abs(without_p4(again, few)).min() > 2.0**20
    assert not again.refusals
    # All are asked alike once more: the total of all four comes out, and only that.
    whole = total(search(again, alike(few)), "losses", NAMES)
    true = sum(p._half.rows.losses_along(line(few)).ravel() for p in again.parties.values())
    assert np.abs(whole - true).max() < 1e-12
    assert np.abs(elsewhere(again, few)).min() > 2.0**20
    # Whoever was asked something else has other masks for the rest of the run.
    assert np.abs(total(search(again, alike(few)), "losses", NAMES)).min() > 2.0**20
    record("26", "guarded", "noise, ≥ 2^20")


def test_a_turn_is_answered_once_whatever_is_asked(again, record):
    asked = again.ask(NAMES)
    assert {name: reply["losses"] for name, reply in asked.items()} == {
        name: reply["losses"] for name, reply in again.first.items()
    }
    assert not again.ask(NAMES, steps=line(np.linspace(-1, 1, 4)))
    assert {"asked again in other words" in refusal for refusal in again.refusals} == {True}
    record("26", "guarded", "the same turn at other points: refused")
