"""Sealed training: what the dealer, or all parties but one, could make of their records.

The dealer knows all masks and carries all masked words; parties know all masked words and, but for
one of them, all seeds.
"""

from __future__ import annotations

import numpy as np
import pytest

from weft.crypto.pads.pads_all_parties_know import CHUNK, SUMS, OpeningPads
from weft.crypto.primitives.seeded_words import seeded_words
from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.solvers.run_settings import Settings

ROWS, COLUMNS = 60, 6


@pytest.fixture(scope="module")
def tiles():
    rng = np.random.default_rng(4)
    block = rng.normal(size=(ROWS, COLUMNS))
    labels = (block @ rng.normal(size=COLUMNS) > 0).astype(int)
    ids, names = [f"i{r}" for r in range(ROWS)], [f"c{c}" for c in range(COLUMNS)]
    return {
        party: [Tile.make(ids, names[part], block[:, part], labels if party == "a" else None)]
        for party, part in (("a", slice(0, 2)), ("b", slice(2, 4)), ("c", slice(4, 6)))
    }


def recorded(tiles):
    federation = Federation(tiles, Preprocessing(intercept=False), record=True)
    trained = federation.train(Settings(lam=1e-2, loss="logistic", solver="sealed", gap=1e-2))
    return federation, trained


@pytest.fixture(scope="module")
def run(tiles):
    """Looked at by several tests."""
    return recorded(tiles)


def replies(trained, phase):
    return {e.party: e.reply for e in trained.channel.transcript if e.phase == phase}


def cells_by_the_dealer(trained, federation):
    """E + A: what the dealer carries and the masks that it knows, per party."""
    found = {}
    for party, reply in replies(trained, "sealed.tables").items():
        shape = federation.parties[party].data.table.dense().shape
        count = shape[0] * shape[1]
        assert len(reply["table"]) == count + SUMS * -(-count // CHUNK)
        seed = replies(trained, "sealed.begin")[party]["seed"]
        words = reply["table"][:count].reshape(shape) + seeded_words(seed, "table", *shape)
        found[party] = words.view(np.int64) * 2.0**-18
    return found


def hits(found, federation):
    """The share of all cells that were found to 1e-4."""
    close = [
        np.abs(found[name] - party.data.table.dense()) < 1e-4
        for name, party in federation.parties.items()
    ]
    return float(np.mean(np.concatenate([part.ravel() for part in close])))


def test_the_dealer_gets_every_cell_without_pads_and_none_with_them(
    run, tiles, monkeypatch, record
):
    federation, trained = run
    assert hits(cells_by_the_dealer(trained, federation), federation) == 0.0
    record("52", "guarded", "dealer: no cell")
    none = staticmethod(lambda label, party, count: np.zeros(OpeningPads.size(count), np.uint64))
    monkeypatch.setattr(OpeningPads, "_stream", none)
    federation, trained = recorded(tiles)
    assert hits(cells_by_the_dealer(trained, federation), federation) == 1.0
    record("52", "unguarded", "dealer, without pads: every cell")


def test_masked_tables_that_all_hold_are_cells_to_who_has_the_owners_seed_alone(run, record):
    federation, _ = run
    halves = {name: party._half for name, party in federation.parties.items()}

    def guessed(owner, known):
        """A party's cells, by the tables that the others keep and the seeds that they know."""
        number = list(halves).index(owner)
        words = next(iter(halves.values()))._masked[number]
        for name in known:
            words = words + seeded_words(halves[name]._seed, "table", *words.shape)
        return words.view(np.int64) * 2.0**-18

    others = {name: tuple(n for n in halves if n != name) for name in halves}
    for known in (lambda name: others[name], lambda name: (others[name][0],)):
        assert hits({name: guessed(name, known(name)) for name in halves}, federation) == 0.0
    assert hits({name: guessed(name, (name,)) for name in halves}, federation) == 1.0
    record("52", "guarded", "all parties but one: no cell of its table")


def test_all_parties_but_one_know_no_weight_and_with_its_share_all(run, record):
    federation, trained = run
    model = trained.result.model_iteration
    shares = {n: p._half.model_share(model).words for n, p in federation.parties.items()}
    w = trained.model.coef[0]
    for missing in shares:
        known = sum((s for n, s in shares.items() if n != missing), np.zeros_like(w, np.uint64))
        guess = known.view(np.int64)[0] * 2.0**-28
        assert not (np.abs(guess - w) < 1.0).any()
    total = sum(shares.values(), np.zeros((1, COLUMNS), np.uint64))
    assert np.sort(total.view(np.int64)[0] * 2.0**-28) == pytest.approx(np.sort(w), abs=1e-7)
    record("52", "guarded", "nor a weight, nor a score")


def test_two_colluding_parties_cannot_unmask_scores_but_with_the_third_seed_they_could(run):
    """c = z + u: without the mask of one party, nothing near a score is left."""
    federation, trained = run
    halves = {name: party._half for name, party in federation.parties.items()}
    entries = [e for e in trained.channel.transcript if e.phase == "sealed.slopes"]
    message = entries[0].message
    serial = message["serial"] - 1
    totals = {}
    for missing in (None, *halves):
        masks = [
            seeded_words(half._seed, f"{serial} scores", 1, ROWS)
            for name, half in halves.items()
            if name != missing
        ]
        totals[missing] = sum(masks, np.zeros((1, ROWS), np.uint64))
    assert len({t.tobytes() for t in totals.values()}) == len(totals)
    for missing, half in halves.items():
        rest = (totals[None] - totals[missing]).view(np.int64) * 2.0**-46
        # What the coalition lacks is uniform over ±2^17, where scores are below 20.
        assert np.abs(rest).mean() > 2.0**14
        assert half._seed not in b"".join(h._own_seed for h in halves.values())
