"""Joint prediction: the scores of cut samples are those of the pooled table; model files."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from covering import before_release, cover, every_value
from process_apart import apart, forget
from weft.crypto.ciphers.block_format import read_block, words_of
from weft.crypto.party_key_pairs import Identity
from weft.data import SPLITS, Split, Tile, pool
from weft.errors import DataError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.local_joint_prediction import predict_scores
from weft.federation.model import Model, load_model
from weft.federation.prediction_table import Predictions
from weft.federation.sealed_score_letter import open_scores, seal_scores


def trained_on(table, quick, classes, scaling="standard", loss="hinge"):
    whole = table(classes=classes)
    split = SPLITS["grid"](whole, k=2, q=2)
    how = Preprocessing(intercept=True, scaling=scaling)
    settings = quick(loss="squared" if classes == 0 else loss, iterations=15)
    return Federation(split.parties, how).train(settings).model


def new_tiles(table, kind, classes, form=None):
    """Other samples of the same features, cut in a grid or into overlapping tiles."""
    fresh = table(n=30, classes=classes, seed=77)
    if kind == "grid":
        split = SPLITS["grid"](fresh, k=3, q=2, seed=1)
    else:
        split = SPLITS["overlapping"](fresh, parties=4, row_share=0.6, column_share=0.7, seed=1)
    rng = np.random.default_rng(8)
    noise = 0.5 * (kind == "overlapping")
    tiles = {}
    for name, held in split.parties.items():
        blocks = [t.block + noise * rng.normal(size=t.block.shape) for t in held]
        blocks = blocks if form is None else [form(b) for b in blocks]
        # Nobody needs labels to predict.
        tiles[name] = tuple(
            Tile.make(t.ids, t.features, b) for t, b in zip(held, blocks, strict=True)
        )
    return tiles


def central_scores(model, tiles, overlap):
    """Scores of the pooled table, cells that nobody holds standing at the centre."""
    split = Split(tiles, overlap, "")
    table = pool(split)
    block = table.block if isinstance(table.block, np.ndarray) else table.block.toarray()
    held = np.zeros(block.shape, bool)
    row = {sample: i for i, sample in enumerate(table.ids)}
    column = {feature: j for j, feature in enumerate(table.features)}
    for _, tile in split.tiles():
        held[np.ix_([row[i] for i in tile.ids], [column[f] for f in tile.features])] = True
    place = [model.features.tolist().index(feature) for feature in table.features]
    block = np.where(held, block, model.scaling[0][place])
    return table.ids, model.decision(model.aligned(table.features, block))


@pytest.fixture(scope="module")
def models(table, quick):
    return cache(lambda classes, scaling: trained_on(table, quick, classes, scaling))


@every_value(
    classes=[0, 2, 3],
    scaling=["none", "standard", "minmax"],
    kind=["grid", "overlapping"],
    overlap=["mean", "first"],
    form=[None, sp.csr_array],
)
def test_joint_scores_are_the_models_decision_on_the_pooled_table(
    table, models, classes, scaling, kind, overlap, form
):
    model = replace(models(classes, scaling), overlap=overlap)
    tiles = new_tiles(table, kind, classes, form)
    ids, scores = predict_scores(model, tiles)
    expected_ids, expected = central_scores(model, tiles, overlap)
    assert ids.tolist() == expected_ids.tolist()
    assert scores.shape == expected.shape
    assert np.allclose(scores, expected, rtol=0, atol=1e-9)
    if classes:
        assert np.array_equal(model.outcome(scores), model.outcome(expected))


def test_a_feature_that_nobody_holds_counts_as_its_centre(table, quick):
    model = trained_on(table, quick, 2)
    fresh = table(n=10, seed=3)
    tiles = {"a": (Tile.make(fresh.ids, fresh.features[:4], fresh.block[:, :4]),)}
    filled = np.hstack([fresh.block[:, :4], np.tile(model.scaling[0][4:], (10, 1))])
    _, scores = predict_scores(model, tiles)
    assert np.allclose(scores, model.decision(filled), atol=1e-9)


def test_a_blank_cell_counts_as_it_did_in_training(table, quick):
    model = trained_on(table, quick, 2)
    fresh = table(n=10, seed=3)
    blank = fresh.block.copy()
    blank[:, 4:] = np.nan
    tiles = {"a": (Tile.make(fresh.ids, fresh.features, blank),)}
    for missing, stands in (("mean", model.scaling[0][4:]), ("zero", np.zeros(3))):
        told = replace(model, missing=missing)
        filled = np.hstack([fresh.block[:, :4], np.tile(stands, (10, 1))])
        expected = told.decision(filled)
        assert np.allclose(told.decision(blank), expected, atol=1e-9)
        assert np.allclose(predict_scores(told, tiles)[1], expected, atol=1e-9)
        alone = told.partial(told.features, blank) + told.centre_score
        assert np.allclose(alone, expected, atol=1e-9)
    for ask in (model.decision, lambda x: model.partial(model.features, x)):
        with pytest.raises(DataError, match=r"30 cell\(s\) are blank, .* missing = 'error'"):
            ask(blank)
    with pytest.raises(DataError, match="are blank"):
        predict_scores(model, tiles)


def test_columns_that_the_model_does_not_know_are_ignored_and_a_tile_of_only_such_is_refused(
    table, quick
):
    model = trained_on(table, quick, 2)
    fresh = table(n=10, seed=3)
    known = Tile.make(fresh.ids, fresh.features, fresh.block)
    more = Tile.make(
        fresh.ids, [*fresh.features, "shoe size"], np.hstack([fresh.block, np.full((10, 1), 44.0)])
    )
    assert np.array_equal(
        predict_scores(model, {"a": (known,)})[1], predict_scores(model, {"a": (more,)})[1]
    )
    foreign = Tile.make(fresh.ids, ["shoe size"], np.full((10, 1), 44.0), source="shoes.csv")
    with pytest.raises(DataError, match=r"party b, shoes\.csv: none of its columns"):
        predict_scores(model, {"a": (known,), "b": (foreign,)})


@pytest.mark.parametrize("cipher", ["bfv", *before_release("paillier")])
@pytest.mark.parametrize("kind", ["overlapping", *before_release("grid")])
def test_joint_scores_do_not_depend_on_the_cipher(table, models, kind, cipher):
    tiles = new_tiles(table, kind, 3)
    plain, padded, other = (
        predict_scores(models(3, "standard"), tiles, cipher=name)[1]
        for name in ("plain", "pad", cipher)
    )
    assert np.array_equal(plain, padded)
    assert np.array_equal(plain, other)


@pytest.mark.parametrize("kind", ["grid", "overlapping"])
def test_nobody_reads_a_score_in_the_messages_of_joint_prediction(table, models, kind):
    tiles = new_tiles(table, kind, 3)
    words = []
    for _ in range(2):
        crossed = []
        predict_scores(models(3, "standard"), tiles, record=crossed.append)
        found, blocks = [], 0
        for entry in crossed:
            for message in (entry.message, entry.reply):
                assert not any(getattr(v, "dtype", None) == np.float64 for v in message.values())
                if "z" in message:
                    blocks += 1
                    found.append(words_of(read_block(message["z"], "a block"), "a block").ravel())
        assert blocks == 2 * len(tiles)
        words.append(np.concatenate(found))
        # Numbers below 2^49 are what a plain block would hold.
        assert (np.abs(words[-1].view(np.int64).astype(float)) < 2.0**49).mean() < 0.02
    assert not np.isin(words[0], words[1]).any()


# ── the model file ───────────────────────────────────────────────────────────────────────────


def predicted(model_file, table_file, out):
    """Scores by a process that has loaded no tables, nor what trains."""
    forget("weft")
    model = import_module("weft.federation.model").load_model(model_file)
    table = np.load(table_file)
    np.savez(
        out,
        scores=model.decision(table),
        outcome=model.predict(table),
        features=model.features.astype(str),
        gap=model.certificate["gap"],
    )
    return [name for name in sys.modules if name.startswith("weft.data")]


def test_a_model_file_gives_the_same_bits_in_another_process(table, quick, tmp_path):
    model = trained_on(table, quick, 3)
    fresh = table(n=20, classes=3, seed=5)
    model.save(tmp_path / "model.npz")
    np.save(tmp_path / "table.npy", fresh.block)
    paths = [str(tmp_path / name) for name in ("model.npz", "table.npy", "out.npz")]
    assert apart(predicted, *paths) == []
    with np.load(tmp_path / "out.npz") as out:
        assert np.array_equal(out["scores"], model.decision(fresh.block))
        assert np.array_equal(out["outcome"], model.predict(fresh.block))
        assert out["features"].tolist() == model.features.tolist()
        assert float(out["gap"]) == model.certificate["gap"]


@pytest.mark.parametrize("shape", [(2, 2), (3, 1)], ids=["fewer samples", "fewer classes"])
def test_scores_that_are_not_those_of_the_samples_are_refused_by_whoever_asked(shape):
    model = Model(
        np.array(["age"], dtype=object), np.ones((2, 1)), np.zeros(2), np.array(["x", "y"]),
        (np.zeros(1), np.ones(1)), "hinge", {}, 0.1, {},
    )  # fmt: skip
    asker, run = Identity.new(), bytes(16)
    ids = np.array(["i1", "i2", "i3"], dtype=object)
    letter = seal_scores(Predictions(model, ids, np.zeros(shape)), asker, run)
    with pytest.raises(ProtocolError, match="not those of the samples"):
        open_scores(letter, asker, model, run)
    fine = Predictions(model, ids, np.arange(6.0).reshape(3, 2))
    opened = open_scores(seal_scores(fine, asker, run), asker, model, run)
    assert opened.scores.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 7], [0.5, 1.5], ["a", "b", "c"]], ids=str)
def test_classes_of_any_type_survive_the_file(table, quick, tmp_path, labels):
    whole = table(classes=len(labels))
    named = np.array(labels)[whole.labels]
    tiles = {
        name: (Tile.make(whole.ids, whole.features[c], whole.block[:, c], named),)
        for name, c in (("a", slice(0, 4)), ("b", slice(4, 7)))
    }
    model = Federation(tiles).train(quick(iterations=30)).model
    model.save(tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    assert loaded.classes.tolist() == labels
    predicted = loaded.predict(whole.block)
    assert np.array_equal(predicted, model.predict(whole.block))
    assert (predicted == named).mean() > 0.7
    assert loaded.lam == model.lam
    assert dict(loaded.certificate) == dict(model.certificate)


@pytest.mark.parametrize("content", [b"", b"not a model", b"PK\x03\x04 cut off"])
def test_something_else_than_a_model_file_gives_one_sentence(tmp_path, content):
    path = tmp_path / "model.npz"
    with pytest.raises(DataError, match="there is no model file"):
        load_model(path)
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not a Weft model file"):
        load_model(path)


@cover(("classes", "loss"), [(0, "squared"), (3, "hinge")], others=[(2, "hinge"), (2, "logistic")])
def test_the_scikit_learn_model_predicts_the_same(table, quick, classes, loss):
    model = trained_on(table, quick, classes, loss=loss)
    fresh = table(n=40, classes=classes, seed=6).block
    estimator = model.to_sklearn()
    assert estimator.feature_names_in_.tolist() == model.features.tolist()
    fresh = pd.DataFrame(fresh, columns=model.features.astype(str))
    predicted = estimator.predict(fresh)
    if classes == 0:
        assert np.allclose(predicted, model.predict(fresh), rtol=1e-14)
    else:
        assert np.array_equal(predicted, model.predict(fresh))
        scores = model.decision(fresh)
        expected = scores[:, 0] if classes == 2 else scores
        assert np.allclose(estimator.decision_function(fresh), expected, rtol=1e-14)
