"""XᵀX and the Hessian on shares are those of numpy on the pooled table, within stated errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sealed_runs import CUTS, cut, table, train

from weft.errors import ProtocolError
from weft.solvers.sealed import coordinator
from weft.solvers.sealed.descent import factors_of
from weft.solvers.sealed.party_moments import refuse_sparse

#: Both hold all of some columns: a cell counts half at each.
TWICE = {
    "a": [(slice(None), slice(0, 5))],
    "b": [(slice(None), slice(3, None), False)],
}


@pytest.fixture
def errors(monkeypatch):
    """Make moments at the end of every run; what each may be off by."""
    told = {}
    original = coordinator._Run.train

    def train_and_more(self):
        result = original(self)
        told["gram"] = self._exchange.gram()
        trial = self._problems[0].stay()
        self._exchange.point(np.arange(1), factors_of([trial], self._vectors))
        told["hessian"] = self._exchange.hessian(self._guard.level, trial.norm)
        return result

    monkeypatch.setattr(coordinator._Run, "train", train_and_more)
    return told


def halves(federation):
    return [party._half for party in federation.parties.values()]


def pooled(parties):
    """The whole table in the order of shares, and the weights of the point in hand."""
    whole = parties[0]._whole
    block = np.zeros((whole.n_rows, whole.n_columns))
    point = np.zeros(whole.n_columns, np.uint64)
    for half in parties:
        block[np.ix_(half._place.rows, half._place.columns)] += half._context.table.dense()
        point += half._point[0]
    return block, point.view(np.int64) * 2.0**-28


def opened(shares):
    """What a reader makes of all shares."""
    total = sum((share.words for share in shares), np.zeros_like(shares[0].words))
    return total.view(np.int64) * 2.0 ** -shares[0].bits


@pytest.mark.parametrize("how", [*CUTS, "twice"])
def test_moments_are_those_of_the_pooled_table(how, errors):
    block, labels = table()
    federation, _ = train(cut(block, labels, CUTS.get(how, TWICE)), lam=1e-1)
    parties = halves(federation)
    block, w = pooled(parties)
    gram = opened([half.gram_share() for half in parties])
    assert np.abs(gram - block.T @ block).max() <= errors["gram"] < 1e-2
    slopes = expit(block @ w)
    true = block.T @ ((slopes * (1 - slopes))[:, None] * block)
    hessian = opened([half.hessian_share() for half in parties])
    assert np.abs(hessian - true).max() <= errors["hessian"] < 0.1 * np.abs(true).max()


def test_a_share_alone_tells_nothing_of_the_moments(errors):
    block, labels = table()
    federation, _ = train(cut(block, labels, CUTS["vertical"]), lam=1e-1)
    for half in halves(federation):
        for share in (half.gram_share(), half.hessian_share()):
            # Uniform words: the upper half of them has the highest bit.
            high = (share.words >> np.uint64(63)).mean()
            assert 0.2 < high < 0.8


def test_columns_that_tell_of_few_rows_are_refused_in_one_sentence():
    dense = np.random.default_rng(0).integers(1, 1000, (40, 3))
    everyone = [np.arange(40)]
    refuse_sparse(dense, everyone, 8)
    rare = dense.copy()
    rare[:, 1] = 0
    refuse_sparse(rare, everyone, 8)
    rare[:3, 1] = 5
    with pytest.raises(ProtocolError, match="tell single rows"):
        refuse_sparse(rare, [], 8)
    apart = dense.copy()
    apart[:20, 0] = apart[12:, 1] = 0
    # Twenty and twelve rows, none of which are the same: nothing to tell.
    refuse_sparse(apart, [], 8)
    apart[:14, 0] = 7
    # Two rows have both.
    apart[14:, 0] = 0
    apart[2:14, 1] = 0
    with pytest.raises(ProtocolError, match="tell single rows"):
        refuse_sparse(apart, [], 8)
    halved = dense.copy()
    halved[::2, 2] = 0
    refuse_sparse(halved, [], 8)
    with pytest.raises(ProtocolError, match="tell single rows"):
        refuse_sparse(halved, everyone, 8)


def test_a_table_with_few_rows_by_column_is_refused(errors):
    block, labels = table(rows=60)
    with pytest.raises(ProtocolError, match="tell single rows"):
        train(
            cut(
                block,
                labels,
                {"a": [(slice(0, 30), slice(None))], "b": [(slice(30, None), slice(None))]},
            )
        )
