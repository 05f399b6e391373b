"""Sums for standard errors: readers get totals, nobody a party's own, and guards hold."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference_data import Floats, synthetic, table_of
from test_inference import by_site, fitted

from weft.crypto.keys import ephemeral_keys
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.federation.local_federation import Federation
from weft.federation.messages import StatisticsShare
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release import reader_opens_release, standard_errors_party
from weft.federation.release.masked_standard_error_sums import masked_words, opened
from weft.guards.privacy_terms import OPEN, Terms
from weft.inference.fit_statistics import FitStatistics
from weft.inference.party_sums_for_standard_errors import matrices_in
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

ALLOWED = Terms(allow_second_moments=True)


def sites(rows: int = 1000) -> dict[str, Any]:
    x, y = synthetic("poisson", rows)
    return by_site(table_of(x, y, ["a", "b", "c"], classes=False), 3)


@pytest.fixture(scope="module")
def letters() -> list[StatisticsShare]:
    """What a reader found in the letters of one run, before it added anything up."""
    found: list[StatisticsShare] = []
    joined = reader_opens_release.joined

    def spy(slices: Any, *told: Any, **more: Any) -> Any:
        found.extend(slice_.statistics for slice_ in slices)
        return joined(slices, *told, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_opens_release, "joined", spy)
        fitted(sites(), "poisson", terms=ALLOWED)
    return found


def test_words_of_one_party_and_of_all_but_one_are_uniform(letters: list[StatisticsShare]) -> None:
    assert len(letters) == 3
    partial = [letters[0].words, sum(share.words for share in letters[1:])]
    for words in partial:
        bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
    total = opened(letters)
    assert total[0] == 1000
    matrix = matrices_in(total, 4)[0]
    assert (np.linalg.eigvalsh(matrix) > 0).all()


def test_the_words_of_all_parties_are_their_numbers_exactly() -> None:
    rng = np.random.default_rng(0)
    values = [np.append(rng.normal(size=200) * 10.0 ** rng.integers(-12, 12, 200), v) for v in (
        (0.0, -1e-30, 1e-17), (-0.0, 1e-30, -1.0), (3.0, -2.5, 7.25))]  # fmt: skip
    shares = [
        StatisticsShare(
            words=masked_words(each, None, ""),
            columns=np.zeros(0, np.int64),
            width=0,
            samples=1,
            longest_row=1.0,
        )
        for each in values
    ]
    exact = np.array([float(sum(Fraction(v[i]) for v in values)) for i in range(203)])
    np.testing.assert_allclose(opened(shares), exact, rtol=1e-15, atol=1e-18)
    with pytest.raises(ProtocolError, match="too large to be added"):
        masked_words(np.array([1e300]), None, "")


def test_recorded_messages_hold_no_sum_in_the_clear() -> None:
    """The coordinator carries letters: no number of a party's statistics is in any message."""
    seen: list[Floats] = []
    made = standard_errors_party.row_sums

    def spy(*told: Any) -> Floats:
        seen.append(made(*told))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standard_errors_party, "row_sums", spy)
        federation = Federation(
            {name: (tile,) for name, tile in sites().items()},
            Preprocessing(scaling="standard", intercept=True),
            terms=ALLOWED,
            record=True,
            packed=True,
        )
        trained = federation.train(
            Settings(loss="poisson", lam=1e-3, inference="model", solver="lbfgs", gap=1e-4)
        )
    assert trained.inference is not None
    assert trained.inference.summary is not None
    text = repr(trained.channel.transcript).encode()
    parts = [np.ascontiguousarray(each[3:]) for each in seen]
    for values in [*parts, np.sum(parts, axis=0)]:
        for value in values[np.abs(values) > 1e-6]:
            assert value.tobytes() not in text
            assert repr(float(value)).encode() not in text


def test_matrices_are_neither_printed_nor_pickled() -> None:
    caught: list[FitStatistics] = []
    from weft.inference.coefficient_summary import Summary

    made = Summary.of.__func__

    def spy(cls: Any, fit: FitStatistics, *more: Any) -> Any:
        caught.append(fit)
        return made(cls, fit, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Summary, "of", classmethod(spy))
        fitted(sites(), "poisson", terms=ALLOWED)
    assert repr(caught[0]) == "FitStatistics of 4 coefficients over 1000 samples"
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(caught[0])


def test_a_party_tells_its_sums_of_one_model_only() -> None:
    federation = Federation(
        {name: (tile,) for name, tile in sites().items()},
        Preprocessing(scaling="standard", intercept=True),
        terms=ALLOWED,
    )
    federation.train(
        Settings(
            loss="poisson", lam=1e-3, path=(1e-2,), inference="model", solver="lbfgs", gap=1e-3
        )
    )
    party = federation.parties["site0"]
    made = party.training._statistics
    again = made.share(party._half, 1)
    assert np.array_equal(again.words, made.share(party._half, 1).words)
    with pytest.raises(ProtocolError, match="of another model"):
        made.share(party._half, 0)
    # After an interruption it is asked anew, and what it tells then is under other masks: the
    # difference would be that of its own sums at two models.
    made._told = None
    party._cipher.raise_epoch(party._cipher.epoch + 1)
    later = made.share(party._half, 1)
    bits = np.unpackbits(np.ascontiguousarray(later.words - again.words).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


def test_what_guards_refuse() -> None:
    x, y = synthetic("poisson")
    table = table_of(x, y, ["a", "b", "c"], classes=False)
    with pytest.raises(ProtocolError, match=r"refuses inference.*allow_second_moments = true"):
        fitted(by_site(table), "poisson", terms=Terms())
    tiles = dict(list(by_site(table).items())[:2])
    pairs = Terms(allow_second_moments=True, allow_pairs=True)
    with pytest.raises(WeftError, match="allow_pairs = true"):
        fitted(tiles, "poisson", terms=ALLOWED)
    assert fitted(tiles, "poisson", terms=pairs).inference.summary is not None
    small = table_of(x[:150], y[:150], ["a", "b", "c"], classes=False)
    with pytest.raises(ProtocolError, match="so many columns over so few samples"):
        fitted(by_site(small), "poisson", terms=ALLOWED)
    wild = y.copy()
    wild[0] = 4000.0
    found = fitted(
        by_site(table_of(x, wild, ["a", "b", "c"], classes=False)),
        "poisson",
        terms=ALLOWED,
        inference="robust",
    )
    assert found.inference.summary is None
    assert "party site0 refuses sums at this model of which a few" in found.inference.why_not
    assert found.model.coef.shape == (1, 3)


def test_ledgers_count_what_was_told_over_all_runs(tmp_path: Path) -> None:
    tiles = {name: (tile,) for name, tile in sites(400).items()}
    keys, ledger = ephemeral_keys(tuple(tiles)), Ledger(tmp_path, "study")

    def run() -> Any:
        federation = Federation(
            tiles,
            Preprocessing(scaling="standard", intercept=True),
            terms=ALLOWED,
            ledger=ledger,
            keys=keys,
        )
        return federation.train(
            Settings(loss="poisson", lam=1e-3, inference="model", solver="lbfgs", gap=1e-2)
        )

    # 80 samples a site and eight numbers a column: a fifth is reached after two runs.
    for _ in range(2):
        assert run().inference.summary is not None
    with pytest.raises(WeftError, match="further second moments over these samples"):
        run()


def test_shares_of_another_run_or_model_do_not_add_up(letters: list[StatisticsShare]) -> None:
    other: list[StatisticsShare] = list(letters)
    other[0] = StatisticsShare(
        words=letters[0].words[:, ::-1].copy(),
        columns=letters[0].columns,
        width=letters[0].width,
        samples=letters[0].samples,
        longest_row=letters[0].longest_row,
    )
    assert opened(other)[0] != 1000


def test_more_than_two_classes_are_refused() -> None:
    x, y = synthetic("binomial")
    table = table_of(x, y + (x[:, 0] > 3.5), ["a", "b", "c"], classes=True)
    with pytest.raises(ConfigError, match="no likelihood of all"):
        fitted(by_site(table), "binomial", terms=OPEN)


def test_cells_that_two_sites_hold_and_write_differently_are_noticed() -> None:
    x, y = synthetic("poisson")
    tiles = by_site(table_of(x, y, ["a", "b", "c"], classes=False))
    from weft import Tile

    block = np.array(tiles["site0"].block)
    ids = [f"s{i:04d}" for i in range(0, 1000, 5)]
    tiles["extra"] = Tile.make(ids, ["a", "b", "c"], block + 0.5, np.asarray(y)[::5])
    found = fitted(tiles, "poisson", terms=OPEN)
    assert found.inference.summary is None
    assert "has other cells than another party" in found.inference.why_not
