"""Declared columns in a federation: the central model, levels agreed on unseen, one rule."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

from weft.config.read_cells_of_new_samples import read_samples
from weft.config.strict_reading import checked
from weft.data import Tile, read_tile
from weft.data.columns.column_agreement import Levels, settled_together
from weft.data.columns.column_rules import ColumnRule
from weft.data.reading_options import ReadingOptions
from weft.errors import ConfigError, DataError, ProtocolError, WeftError
from weft.federation.column_level_agreement.party import ColumnsParty
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.model import load_model
from weft.federation.party import Party
from weft.guards.privacy_terms import OPEN
from weft.matching.encrypted_level_lists import LevelList, lock_levels
from weft.protocol import fields_of
from weft.protocol.declared_message_fields import message_of
from weft.protocol.message_bytes import pack
from weft.solvers.run_settings import Settings

N = 90
LEVELS = {"a": ["crimson", "olive"], "b": ["olive", "azure", "mauve"]}
HOW = Settings(lam=0.05, loss="squared", solver="lbfgs", gap=1e-8, cipher="pad")
COLOUR = {"kind": "category"}


def frames() -> dict[str, pd.DataFrame]:
    """Parties a and b have samples of their own and the same columns; c has one more of all."""
    rng = np.random.default_rng(2)
    ids = np.array([f"s{row:02d}" for row in range(N)])
    half = {"a": slice(0, 50), "b": slice(50, N)}
    held = {
        party: pd.DataFrame(
            {
                "id": ids[rows],
                "colour": rng.choice(LEVELS[party], len(ids[rows])),
                "dose": rng.normal(size=len(ids[rows])).round(2),
                "y": rng.normal(size=len(ids[rows])).round(3),
            }
        )
        for party, rows in half.items()
    }
    held["b"].loc[held["b"]["colour"] == "mauve", "colour"] = "azure"
    held["b"].loc[3, "colour"] = "mauve"
    return held | {"c": pd.DataFrame({"id": ids, "weight": rng.normal(size=N).round(2)})}


FRAMES = frames()


def tiles(folder, **rules) -> dict[str, tuple[Tile, ...]]:
    """The parties' files, read; ``rules`` by party, else those of all that have the column."""
    found = {}
    for party, frame in FRAMES.items():
        path = folder / f"{party}.csv"
        frame.to_csv(path, index=False)
        told = rules.get(party, {"colour": COLOUR} if "colour" in frame else {})
        columns = {name: checked(ColumnRule, rule, "column") for name, rule in told.items()}
        label = "y" if "y" in frame else None
        options = ReadingOptions(columns=columns or None)
        tile = read_tile(str(path), label_column=label, options=options, party=party)
        found[party] = (tile,)
    return found


def federation(held, missing="error", **more) -> Federation:
    how = Preprocessing(intercept=True, scaling="standard", missing=missing)
    return Federation(held, how, record=True, **more)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    made = federation(tiles(folder))
    return folder, made, made.train(HOW)


def test_the_model_is_that_of_the_central_table_with_categories(run):
    """The judge encodes, scales and solves on its own."""
    _, _, trained = run
    whole = pd.concat([FRAMES["a"], FRAMES["b"]]).merge(FRAMES["c"], on="id")
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["colour"]), remainder="passthrough",
        verbose_feature_names_out=False,
    )  # fmt: skip
    table = encoder.set_output(transform="pandas").fit_transform(whole.drop(columns=["id", "y"]))
    table = table.rename(columns=lambda name: name.replace("colour_", "colour="))
    deviation = table.std(ddof=0)
    scaled = ((table - table.mean()) / deviation).assign(one=1.0)
    judge = Ridge(alpha=HOW.lam * N, fit_intercept=False).fit(scaled, whole["y"])
    found = trained.model.decision(whole)[:, 0]
    assert np.abs(found - judge.predict(scaled)).max() < 1e-3
    levels = ["azure", "crimson", "mauve", "olive"]
    assert set(trained.model.features) == {"dose", "weight", *(f"colour={v}" for v in levels)}


def test_both_holders_have_every_level_and_the_same_bits_as_in_one_hand(run):
    _, made, _ = run
    levels = ["azure", "crimson", "mauve", "olive"]
    for party in "ab":
        features = made.parties[party].tiles[0].features.tolist()
        assert features == ["dose", *(f"colour={level}" for level in levels)]
    open_tiles = settled_together(made._tiles, dict.fromkeys("abc", 1), "error")
    for party, (tile,) in open_tiles.items():
        mine = made.parties[party].tiles[0]
        assert tile.features.tolist() == mine.features.tolist()
        assert np.asarray(tile.block).tobytes() == np.asarray(mine.block).tobytes()


def test_no_level_reaches_the_coordinator_or_a_party_without_the_column(run):
    """What the coordinator sees is all of the transcript; party c gets no list at all."""
    _, _, trained = run
    seen = trained.channel.transcript
    for entry in seen:
        both = pack(entry.message) + pack(entry.reply)
        assert not any(level.encode() in both for party in LEVELS for level in LEVELS[party])
        assert b"colour" not in both
    by = {(e.phase, e.party): e for e in seen if e.phase.startswith("columns.")}
    assert ("columns.join", "a") in by
    assert ("columns.join", "c") not in by
    assert not len(by["columns.take", "c"].message["levels.content"])
    lengths = [by["columns.list", party].reply["levels.lengths"].tolist() for party in "ab"]
    # How many levels a list has does not show.
    assert lengths[0] == lengths[1]


def test_rare_levels_never_leave_their_party_and_count_as_other(tmp_path, monkeypatch):
    named: list[LevelList] = []

    def listening(levels, key, nonce):
        named.append(levels)
        return lock_levels(levels, key, nonce)

    monkeypatch.setattr("weft.federation.column_level_agreement.party.lock_levels", listening)
    careful = federation(tiles(tmp_path), terms=msgspec.structs.replace(OPEN, min_batch=3))
    trained = careful.train(HOW)
    assert all("mauve" not in levels.names for levels in named)
    assert [levels.rare for levels in named] == [False, True, True]
    assert "colour=(other)" in trained.model.features
    assert not any("mauve" in str(name) for name in trained.model.features)
    assert "1 cell(s) of 1 level(s)" in careful.parties["b"].remarks[0]
    assert not any("mauve" in note for note in trained.result.notes)
    assert any("count as declared" in note for note in trained.result.notes)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "category", "reference": "olive"},
        {"kind": "category", "levels": ["olive", "azure", "mauve"]},
        {"kind": "category", "blank": "olive"},
    ],
    ids=["reference", "levels", "blank"],
)
def test_holders_that_declare_a_column_otherwise_are_stopped_before_matching(tmp_path, other):
    made = federation(tiles(tmp_path, b={"colour": other}))
    with pytest.raises(DataError, match=r"a and b declare 1 column\(s\) .*a: 'colour'") as found:
        made.train(HOW)
    assert "colour" not in found.value.told
    assert "different ways" in found.value.told
    with pytest.raises(DataError, match="'colour' otherwise"):
        settled_together(tiles(tmp_path, b={"colour": other}), dict.fromkeys("abc", 1), "error")


def test_one_declares_what_another_uses_as_it_is(tmp_path):
    rules = {"colour": COLOUR, "dose": {"range": [-9, 9]}}
    with pytest.raises(DataError, match=r"a and b declare .*'dose'"):
        federation(tiles(tmp_path, a=rules)).train(HOW)
    # Quantiles are those of a party's own numbers, and so differ where two hold a column.
    cut = {"colour": COLOUR, "dose": {"bins": 3}}
    with pytest.raises(DataError, match=r"a and b declare .*'dose'"):
        federation(tiles(tmp_path, a=cut, b=cut)).train(HOW)


def test_a_party_that_multiplies_columns_alone_is_told(tmp_path):
    held = tiles(tmp_path)
    declared = replace(held["a"][0].declared, interactions=(("colour", "dose"),))
    held["a"] = (replace(held["a"][0], declared=declared),)
    with pytest.raises(DataError, match=r"a and b declare .*'colour', 'dose'"):
        federation(held).train(HOW)


def test_how_a_file_writes_its_levels_is_its_own_affair(tmp_path):
    rules = {"kind": "category", "map": {"crimson": "azure"}}
    made = federation(tiles(tmp_path, a={"colour": rules}))
    features = made.train(HOW).model.features.tolist()
    assert "colour=crimson" not in features


def test_two_writings_of_a_level_stop_the_run_until_confirmed(tmp_path):
    rules = {"kind": "category", "map": {"crimson": "Azure"}}
    held = tiles(tmp_path, a={"colour": rules})
    with pytest.raises(WeftError, match=r"'Azure' and 'azure'; say map = . \"azure\" = \"Azure\""):
        federation(held).train(HOW)
    with pytest.raises(DataError) as found:
        ColumnsParty._refuse_two_writings("colour", Levels(("Azure", "azure")))
    # What others hear of it names neither the column nor the levels.
    assert not any(word in found.value.told for word in ("zure", "colour"))
    how = Preprocessing(scaling="standard", confirmed=("levels",))
    assert "colour=Azure" in Federation(held, how).train(HOW).model.features


def test_prediction_makes_of_a_file_what_training_made_of_it(run, tmp_path):
    """To the bit, from the stored model, for files and for data frames."""
    folder, made, trained = run
    trained.model.save(tmp_path / "model.npz")
    model = load_model(tmp_path / "model.npz")
    for party in "abc":
        trained_on = made.parties[party].tiles[0]
        again = read_samples(folder / f"{party}.csv", model).tile
        place = [again.features.tolist().index(name) for name in trained_on.features.tolist()]
        block = np.ascontiguousarray(np.asarray(again.block)[:, place])
        assert block.tobytes() == np.asarray(trained_on.block).tobytes()
        names, cells = model.features_of(FRAMES[party].drop(columns="id"))
        place = [names.tolist().index(name) for name in trained_on.features.tolist()]
        assert np.ascontiguousarray(cells[:, place]).tobytes() == block.tobytes()


def test_a_level_that_training_never_saw_counts_as_none_and_is_said(run, tmp_path):
    _, _, trained = run
    new = pd.DataFrame({"id": ["n1", "n2"], "colour": ["beige", "olive"], "dose": [0.0, 0.0]})
    new.to_csv(tmp_path / "new.csv", index=False)
    samples = read_samples(tmp_path / "new.csv", trained.model)
    (said,) = samples.remarks
    assert "1 cell(s) of 1 level(s)" in said
    assert "'beige'" in said
    shown = pd.DataFrame(samples.tile.block, columns=samples.tile.features)
    assert shown.filter(like="colour=").sum(axis=1).tolist() == [0.0, 1.0]


def test_the_same_bits_as_bytes_and_under_another_cipher(run, tmp_path):
    _, _, trained = run
    held = tiles(tmp_path)
    packed = federation(held, packed=True).train(HOW)
    plain = federation(held).train(msgspec.structs.replace(HOW, cipher="plain"))
    for other in (packed, plain):
        assert other.model.coef.tobytes() == trained.model.coef.tobytes()
        assert other.model.transformation == trained.model.transformation


# ── coordinators that lie ─────────────────────────────────────────────────────────────────────


def lied_to(folder, change) -> str:
    """How a party refuses a run in which the coordinator changes messages about columns."""
    made = federation(tiles(folder))

    def through(channel):
        asked = channel.exchange

        def exchange(requests):
            for request in requests:
                for party, message in request.messages.items():
                    change(request.phase.name, party, message)
            return asked(requests)

        channel.exchange = exchange
        return channel

    with pytest.raises(ProtocolError) as found:
        made.train(HOW, through=through)
    return str(found.value)


def test_lists_of_levels_cannot_be_forged_swapped_or_left_out(tmp_path):
    kept = {}

    def single_list(phase, party, message):
        """Its own list in the place of the one that holders joined."""
        if phase == "columns.join":
            kept["list"] = message.lists.cut()[0]
        if phase == "columns.take" and len(message.levels.lengths):
            message.levels = type(message.levels).of([kept["list"]])

    def left_out(phase, party, message):
        """One of the two lists is not brought: the joiner's, or that of the other holder."""
        if phase == "columns.join":
            message.lists = type(message.lists).of(message.lists.cut()[:1])
            message.counts = np.array([1])

    def twice(phase, party, message):
        if phase == "columns.join":
            message.lists = type(message.lists).of([message.lists.cut()[0]] * 2)

    assert "not made by a holder" in lied_to(tmp_path, single_list)
    # Whose list comes first depends on random bytes.
    alone = "together with its own alone"
    assert re.search(f"{alone}|its own list is not part of", lied_to(tmp_path, left_out))
    assert re.search(f"{alone}|came twice", lied_to(tmp_path, twice))


def test_a_party_with_declared_columns_makes_no_tokens_before_levels_are_agreed_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "weft.federation.participation_terms_and_classes.coordinator.agree_on_columns",
        lambda *_, **__: None,
    )
    with pytest.raises(ProtocolError, match="levels are agreed on first"):
        federation(tiles(tmp_path)).train(HOW)


def test_a_party_that_is_made_anew_agrees_on_the_same_levels(tmp_path, monkeypatch):
    """From its tiles, its memory and its messages, as after a kill on a site."""
    made, heard, memories = {}, {}, {}

    class Remembering(Party):
        def __init__(self, name, tiles, **things):
            made[name] = (tiles, things)
            super().__init__(name, tiles, **things, memory=memories.setdefault(name, {}))

        def on(self, phase, message):
            sent = fields_of(message)
            reply = super().on(phase, message)
            heard.setdefault(self.name, []).append((phase, sent, fields_of(reply)))
            return reply

    monkeypatch.setattr("weft.federation.local_federation.Party", Remembering)
    held = tiles(tmp_path)
    federation(held).train(HOW)
    for name in "ab":
        before, heard[name] = heard[name], []
        again = Remembering(name, made[name][0], **made[name][1])
        for phase, sent, said in before:
            with again.replaying() if phase.name != "match.tokens" else nullcontext():
                reply = fields_of(again.on(phase, message_of(phase.request, sent)))
            assert pack(reply) == pack(said)
            if phase.name == "match.tokens":
                break
        assert "colour=azure" in again.tiles[0].features
    # Other cells, or another rule, are another origin.
    other = {"colour": {"kind": "category", "reference": "olive"}}
    with pytest.raises(ConfigError, match="other samples, cells, labels"):
        Remembering("a", tiles(tmp_path, a=other)["a"], **made["a"][1])


def test_a_party_keeps_the_rules_of_its_own_columns_only(tmp_path):
    """What a site's model file has; whoever runs all parties has all of them."""
    made = federation(tiles(tmp_path, c={"weight": {"range": [-9, 9]}}))
    model = made.train(HOW).model
    assert set(model.columns().rules) == {"colour", "weight"}
    assert set(made.parties["a"].transformation.rules) == {"colour"}
    assert set(made.parties["c"].transformation.rules) == {"weight"}
