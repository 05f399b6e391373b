"""Sealed training: what docs/sealed.md admits of a coordinator that deals wrong numbers.

Parties take what is dealt as it comes. A share of a point's mask that is off by one weight makes
the point that weight, and the scores one column. Cosines and sines of a score's mask that are zero
but for one sample make the sum of losses that of one sample: a sine of one cell. A party answers
no more points than its run can need (`test_point_and_vector_limit`), which limits how often that
works.
"""

from __future__ import annotations

import numpy as np
import pytest
from asking_again import objects
from staging import Stage

from weft.data.tile import Tile
from weft.federation.preprocessing_settings import Preprocessing
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.dealer import Dealer
from weft.solvers.secret_sharing.digit_widths import loss_digits
from weft.solvers.secret_sharing.messages import Shapes
from weft.solvers.secret_sharing.scalars_opened_in_total import add_shares
from weft.solvers.secret_sharing.sine_series import SERIES
from weft.solvers.secret_sharing.table_positions import whole_table

ROWS, COLUMNS, LIAR = 30, 6, "c"
#: A weight of one in a point, and how large the waves are that are dealt.
WEIGHT, WAVE = np.uint64(1 << 28), 2.0**36
SETTINGS = Settings(lam=1e-2, loss="logistic", solver="sealed", gap=1e-2)


def tiles():
    rng = np.random.default_rng(4)
    block = rng.normal(size=(ROWS, COLUMNS))
    labels = (block @ rng.normal(size=COLUMNS) > 0).astype(int)
    ids, names = [f"i{r}" for r in range(ROWS)], [f"c{c}" for c in range(COLUMNS)]
    parts = zip("abc", (slice(0, 2), slice(2, 4), slice(4, 6)), strict=True)
    return {p: [Tile.make(ids, names[part], block[:, part], labels)] for p, part in parts}


class LyingDealer(Stage):
    """Follows the protocol up to the first point, and then deals what it likes."""

    def __init__(self):
        how = Preprocessing(intercept=False)
        super().__init__(tiles(), SETTINGS, "sealed.point", before=True, preprocessing=how)
        begun, _ = self.last("sealed.begin", "a")
        fields = {k.partition(".")[2]: v for k, v in begun.items() if k.startswith("shapes.")}
        self.table = whole_table(Shapes(**fields))
        seeds = [self.last("sealed.begin", name)[1]["seed"] for name in self.names]
        self._dealer = Dealer(seeds, self.table)
        self.serial, self.round = self.next_message["serial"] - 1, self.next_message["round"]

    def _ask(self, phase, dealt=None, **fields):
        """Ask all; ``dealt``: name and value of what the last party gets besides."""
        self.serial, self.round = self.serial + 1, self.round + 1
        numbers = {"round": self.round, "serial": self.serial}
        return {
            name: handler(
                f"sealed.{phase}",
                {**numbers, **fields, **(dealt if dealt and name == LIAR else {})},
            )
            for name, handler in self.handlers.items()
        }

    def cell(self, row, column):
        """One cell of whichever party."""
        dealer, problems = self._dealer, np.zeros(1, np.int64)
        masks = dealer.point(self.serial + 1, problems).copy()
        hidden = dealer._point.copy()
        masks[0, column] -= WEIGHT
        hidden[0, column] -= WEIGHT
        dealer._point = hidden
        point = np.zeros((1, 1), np.int64)
        told = self._ask("point", {"masks": masks.reshape(-1)}, problems=problems, point=point)
        told = self._ask("scores", point=sum(reply["point"] for reply in told.values()))
        dealer.scores(self.serial)
        waves = {"dealt": self._waves(row, int(dealer._scores[0, row]))}
        scores = sum(reply["scores"] for reply in told.values())
        told = self._ask("slopes", waves, scores=scores, series=0, period=0, held=False)
        total = add_shares(objects(told), "losses", 1, 64)[0]
        digits, series = loss_digits(self.table.n_rows, SERIES[0]), SERIES[0]
        sine = total / (WAVE * series.even[0] * 2.0 ** (digits.total - digits.dealt))
        return np.arcsin(sine) / series.frequencies[0]

    def _waves(self, row, mask):
        """Shares of cosines and sines that are nothing but for one sample, of the first wave."""
        number, rows, terms = self.serial + 1, self.table.n_rows, SERIES[0].terms
        # All rows are one block.
        wave = self._dealer._others(f"{number} wave", 2, terms, rows)
        loss = self._dealer._others(f"{number} loss", 2, 2, rows)
        angle = 2 * np.pi * ((mask * int(SERIES[0].words[0])) % 2**64) / 2**64
        # sin k(c − u) = cos kc · (−sin ku) + sin kc · cos ku, where c is what parties know.
        for part, factor in zip(loss, (-np.sin(angle), np.cos(angle)), strict=True):
            part[:1, row] += np.array([int(factor * WAVE)], np.int64).view(np.uint64)
        return np.concatenate([wave.reshape(-1), loss.reshape(-1)])

    def true_cells(self):
        """For the judge."""
        cells = np.zeros((ROWS, COLUMNS))
        for name, place in zip(self.names, self.table.places, strict=True):
            cells[np.ix_(place.rows, place.columns)] = self.half(name)._cells * 2.0**-18
        return cells


def test_a_coordinator_that_deals_wrong_numbers_reads_cells(record):
    stage = LyingDealer()
    # Two of each party.
    places = [(3 * column, column) for column in range(COLUMNS)]
    found = np.array([stage.cell(*place) for place in places])
    true = np.array([stage.true_cells()[place] for place in places])
    assert found == pytest.approx(true, abs=1e-6)
    told = f"admitted: {len(places)} of {len(places)} cells, error {np.abs(found - true).max():.0e}"
    record("57", "guarded", told)
