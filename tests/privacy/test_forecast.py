"""The forecast: never fewer sums at most than a run takes, and likely ones close to the truth."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
import pytest

from covering import cover, every_value
from weft.data import SPLITS, Split, Tile, load, pool
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import OPEN, Terms
from weft.privacy.ledger.expected_exposure import alternatives, forecast, outlook
from weft.privacy.ledger.expected_exposure_text import paragraphs
from weft.privacy.ledger.foreign_columns_by_receiver import views_of
from weft.solvers.algorithm_choice import ALGORITHMS, resolve
from weft.solvers.run_settings import Settings

PREPARATION = Preprocessing(intercept=True, scaling="standard", unit_rows=True)
FREE_ROWS = Preprocessing(intercept=True, scaling="standard")


def prepared(settings):
    """Rows of norm one, which are found in twenty round trips, where a method needs them."""
    return PREPARATION if settings.local == "theory" else FREE_ROWS


def run(tiles, settings, preprocessing=PREPARATION):
    """The most sums that any party received, those of holders without labels, and the forecast."""
    federation = Federation(tiles, preprocessing)
    trained = federation.train(settings)
    received, without = 0, 0
    for party in federation.parties.values():
        party_view = party.view
        labelled = party_view.labelled[party_view.row_cohort[: party_view.n_shared_rows]]
        received = max(received, int(party.sum_counter.received[labelled].max(initial=0)))
        without = max(without, int(party.sum_counter.received[~labelled].max(initial=0)))
    squares = sum(float(party.data.table.squares.sum()) for party in federation.parties.values())
    ahead = forecast(
        trained.settings,
        classes=len(trained.model.coef),
        mean_square=squares / trained.holdings.n_samples,
        unit_rows=preprocessing.unit_rows,
    )
    return received, without, ahead


TABLES = {
    "breast": lambda: SPLITS["columns"](load("breast_cancer"), 2).parties,
    "digits": lambda: SPLITS["grid"](load("digits"), 3, 3).parties,
}
RUNS = {
    "cutting planes": {"lam": 1e-3, "gap": 1e-3, "solver": "cutting-planes"},
    "a smaller λ": {"lam": 1e-4, "gap": 1e-2, "solver": "cutting-planes"},
    "L-BFGS": {"lam": 1e-3, "gap": 1e-3, "loss": "logistic", "solver": "lbfgs"},
    "a path with folds": {
        "lam": 1e-3,
        "path": (1e-1, 1e-2),
        "folds": 3,
        "gap": 1e-2,
        "solver": "cutting-planes",
    },
    "HyFDCA": {"lam": 1e-2, "gap": 1e-2, "solver": "hyfdca"},
    "HyFDCA, logistic": {"lam": 1e-3, "gap": 1e-2, "loss": "logistic", "solver": "hyfdca"},
}


@cover(
    ("settings", "table"),
    [
        ("cutting planes", "digits"),
        ("L-BFGS", "breast"),
        ("a path with folds", "breast"),
        ("HyFDCA", "breast"),
    ],
    others=product(RUNS, TABLES),
)
def test_a_run_takes_about_as_many_sums_as_forecast(table, settings):
    received, without, ahead = run(TABLES[table](), Settings(**RUNS[settings]))
    assert not without
    assert received <= ahead.most
    assert ahead.likely / 3 <= received <= 3 * ahead.likely, (received, ahead)


def test_without_rows_of_unit_length_too():
    how = Preprocessing(intercept=True, scaling="standard")
    received, _, ahead = run(
        TABLES["breast"](), Settings(lam=1e-2, gap=1e-3, solver="cutting-planes"), how
    )
    assert ahead.likely / 3 <= received <= 3 * ahead.likely


LIMITED = {
    "cutting planes": {"solver": "cutting-planes"},
    "in groups": {"solver": "cutting-planes", "groups": 3},
    "a path with folds": {"solver": "cutting-planes", "folds": 2, "path": (1e-1,)},
    "L-BFGS": {"solver": "lbfgs", "loss": "logistic"},
    "Newton": {"solver": "newton-cg", "loss": "logistic"},
    "HyFDCA": {"solver": "hyfdca"},
    "HyFDCA in parts": {"solver": "hyfdca", "participation": 0.5, "certify_every": 1},
    "practical": {"solver": "hyfdca", "local": "practical"},
    "theory": {"solver": "hyfdca", "local": "theory"},
}


@every_value(case=LIMITED, limit=[{"iterations": 1}, {"iterations": 6}, {"round_trips": 25}])
def test_no_run_takes_more_than_the_most(patchwork, case, limit):
    """Also where the limit ends it, and where some holders have no labels."""
    if "round_trips" in limit and "participation" in LIMITED[case]:
        limit = {"iterations": 20}
    settings = Settings(**{"lam": 1e-4, "gap": 1e-9, "iterations": None, **LIMITED[case], **limit})
    tiles = patchwork(unlabelled=("east",))
    received, without, ahead = run(tiles, settings, prepared(settings))
    assert 0 < received <= ahead.most
    assert without <= ahead.others_most
    assert (without > 0) == (ahead.others > 0)


def test_no_solver_is_expected_to_take_more_than_the_most():
    """Of an iteration, so that no run need be long enough for a limit to count."""
    spans = [entry.forecast for entry in ALGORITHMS.values() if entry.spans]
    assert len(spans) >= 4
    for ahead in spans:
        assert ahead.most >= ahead.usual


def cut_for(algorithm, patchwork, classes):
    """A table that the algorithm can train on, with samples at several parties where it may be."""
    if algorithm.cut == "any":
        return patchwork(classes=classes, unlabelled=("east",))
    table = pool(Split(patchwork(classes=classes), "mean", ""))
    parties = 1 if algorithm.cut == "whole" else 3
    return SPLITS["columns" if algorithm.cut == "columns" else "rows"](table, parties).parties


@every_value(
    name=[n for n, a in ALGORITHMS.items() if not a.spans],
    classes=[2, 3],
    limit=[{"iterations": 4}, {"iterations": None, "round_trips": 16}],
)
def test_no_method_in_rounds_takes_more_than_the_most(patchwork, name, classes, limit):
    """The sums of its iterations, and one for every certificate, the last one included."""
    algorithm = ALGORITHMS[name]
    loss = "hinge" if algorithm.losses == "kinks" else "logistic"
    tiles = cut_for(algorithm, patchwork, classes)
    settings = Settings(lam=1e-2, gap=None, loss=loss, solver=name, **limit)
    received, without, ahead = run(tiles, settings, prepared(settings))
    assert received <= ahead.most
    assert without <= ahead.others_most
    # Setting up takes round trips too: only iterations tell how many sums are likely.
    if algorithm.cut in ("any", "columns") and "round_trips" not in limit:
        assert ahead.likely / 3 <= received or name == "hyfdca"


def test_a_method_that_certifies_more_often_takes_more_sums(patchwork):
    settings = Settings(lam=1e-2, gap=None, loss="logistic", solver="fedavg", iterations=20)
    often = msgspec.structs.replace(settings, certify_every=4)
    found = [forecast(s, classes=2, mean_square=1.0).most for s in (settings, often)]
    assert found == [2 * 3, 2 * 6]
    # Five certificates and the norms of rows.
    assert run(patchwork(), often)[0] == 5 + 1


def test_a_run_from_a_model_takes_no_more_than_the_most(patchwork):
    settings = Settings(lam=0.05, gap=1e-9, iterations=1, loss="logistic", solver="lbfgs")
    federation = Federation(patchwork(), PREPARATION)
    model = federation.train(settings).model
    federation.train(settings, start=model)
    received = max(int(p.sum_counter.received.max()) for p in federation.parties.values())
    most = forecast(settings, classes=1, mean_square=1.0, unit_rows=True).most
    assert received <= most


def test_what_has_no_limit_is_not_promised_one():
    settings = Settings(lam=1e-2, iterations=None, solver="cutting-planes")
    assert forecast(settings, classes=1, mean_square=1.0).most is None
    hyfdca = msgspec.structs.replace(settings, solver="hyfdca")
    assert forecast(hyfdca, classes=1, mean_square=1.0).most is None


@pytest.mark.release
def test_alternatives_can_all_be_run(patchwork):
    settings, _ = resolve(
        Settings(lam=1e-2, path=(1e-1, 0.5), folds=3, gap=1e-2, loss="logistic", solver="auto")
    )
    found = dict(alternatives(settings))
    assert {"one lambda and no folds", "folds = 2", "two values of lambda", "gap = 0.1"} <= set(
        found
    )
    assert 'name = "newton-cg" in [solver]' in found
    # HyFDCA trains neither paths nor folds, cutting planes no smooth losses.
    assert not any("hyfdca" in what or "cutting" in what for what in found)
    for changed in found.values():
        Federation(patchwork(), PREPARATION).train(changed)


# ── who sees what of whom ────────────────────────────────────────────────────────────────────


def assembled(tiles, terms=OPEN):
    federation = Federation(tiles, Preprocessing(intercept=True), terms=terms)
    return federation.assemble(Settings(lam=1.0))[1]


def test_views_are_those_of_the_tiles_themselves(patchwork):
    """Counted sample by sample, from who holds what."""
    tiles = patchwork(unlabelled=("east",))
    expected = {}
    everybody = {i for (tile,) in tiles.values() for i in tile.ids.tolist()}
    for sample in everybody:
        holders = {n: t for n, (t,) in tiles.items() if sample in t.ids}
        for name, own in holders.items():
            foreign = {
                n: set(t.features) - set(own.features) for n, t in holders.items() if n != name
            }
            columns = set().union(*foreign.values()) if foreign else set()
            if columns:
                about = tuple(n for n in tiles if foreign.get(n))
                key = (name, about, len(columns), len(holders), name != "east")
                expected[key] = expected.get(key, 0) + 1
    found = {
        (v.receiver, v.about, v.columns, v.holders, v.labelled): v.samples
        for v in views_of(assembled(tiles))
    }
    assert found == expected
    assert len(found) > 5


def test_additive_shares_are_foreign_also_where_the_column_is_not():
    rng = np.random.default_rng(0)
    tiles = {
        name: (Tile.make(["a", "b"], ["x", "y"], rng.normal(size=(2, 2)), [0, 1]),)
        for name in ("one", "two")
    }
    federation = Federation(tiles, Preprocessing(overlap="sum"))
    roster = federation.assemble(Settings(lam=1.0))[1]
    assert [(v.receiver, v.columns) for v in views_of(roster)] == [("one", 2), ("two", 2)]
    assert not views_of(assembled(tiles))


def test_columns_that_the_finished_model_gives_away_are_told():
    """Sums of the released model have weights that everybody knows who gets it."""
    roster = assembled(TABLES["breast"]())
    settings = Settings(lam=1e-1, solver="cutting-planes")
    for classes, told in ((1, False), (14, False), (15, True)):
        look = outlook(roster, settings, Terms(), classes=classes, mean_square=0.01)
        said = " ".join(paragraphs(look))
        assert ("belong to the finished model" in said) == told


def test_the_constant_column_is_none_of_those_that_are_shared():
    """Three parties share all thirty columns; the constant one, which they share too, is theirs."""
    roster = assembled(SPLITS["rows"](load("breast_cancer"), 3).parties)
    look = outlook(roster, Settings(lam=1e-1), Terms(), classes=1, mean_square=0.01)
    assert look.shared_columns == {3: 30}


def test_what_was_spent_before_counts_against_the_columns():
    roster = assembled(TABLES["breast"]())
    settings = Settings(lam=1e-1, gap=1e-1, loss="logistic", solver="lbfgs", iterations=3)

    def standings(spent):
        look = outlook(
            roster,
            settings,
            Terms(),
            classes=1,
            mean_square=0.01,
            spent={"p1": np.array([spent]), "p2": np.array([0])},
        )
        return {e.view.receiver: e.standing for e in look.exposures}

    assert standings(0) == {"p1": "not reached", "p2": "not reached"}
    assert standings(9) == {"p1": "close", "p2": "not reached"}
    assert standings(13) == {"p1": "likely", "p2": "not reached"}
    assert standings(15) == {"p1": "reached before", "p2": "not reached"}
