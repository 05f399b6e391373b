"""The form in which ids and feature names are compared, and what is refused or counted."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.data import Tile
from weft.errors import DataError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.local_joint_prediction import predict_scores
from weft.federation.model import Model
from weft.matching import id_and_name_forms
from weft.matching.id_and_name_forms import (
    bare_ids,
    loose_ids,
    normal_features,
    normal_ids,
    own_loose_forms,
)
from weft.report.holdings_counts import describe_holdings
from weft.solvers.run_settings import Settings

SETTINGS = Settings(lam=1.0, loss="squared")


def names(*items):
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found


SAME = {
    "case": ("Smith-7", "sMITH-7"),
    "sharp s": ("STRASSE", "straße"),
    "composed": ("Jos\u00e9", "Jose\u0301"),
    "full width": ("\uff21\uff22\uff11", "ab1"),
    "ligature": ("\ufb01t", "fit"),
    "trimmed": ("  a b\t", "a b"),
    "runs of blanks": ("a \t\n b", "a b"),
    "no-break space": ("a\u00a0b", "a b"),
    "ideographic space": ("a\u3000b", "a b"),
    "line separator": ("a\u2028b", "a b"),
    "byte order mark": ("\ufeffa1", "a1"),
    "zero width space": ("a\u200b1", "a1"),
    "zero width joiner": ("a\u200d1", "a1"),
    "soft hyphen": ("a\u00ad1", "a1"),
    "mark of direction": ("\u200ea1\u202c", "a1"),
    "variation selector": ("a1\ufe0f", "a1"),
    "grapheme joiner": ("e\u034f\u0301", "\u00e9"),
    "control character": ("a\x001\x7f", "a1"),
    "dotted capital i": ("\u0130", "i\u0307"),
}


@pytest.mark.parametrize("name", SAME)
def test_ways_to_write_the_same_id(name):
    one, other = SAME[name]
    # Alone and among others, for there is a quick way for plain ids.
    assert normal_ids(names(one))[0] == normal_ids(names(other))[0]
    assert normal_ids(names("x", one, "y"))[1] == normal_ids(names("x", other, "y"))[1]


@pytest.mark.parametrize(
    ("one", "other"), [("7", "007"), ("a-1", "a1"), ("e", "é"), ("a b", "ab"), ("o", "0")]
)
def test_ids_that_stay_apart(one, other):
    assert normal_ids(names(one))[0] != normal_ids(names(other))[0]


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6))
def test_the_normal_form_of_a_normal_form_is_itself_and_needs_no_company(texts):
    found = normal_ids(names(*texts))
    assert normal_ids(found).tolist() == found.tolist()
    assert found.tolist() == [normal_ids(names(text))[0] for text in texts]
    assert found.tolist() == normal_ids(names(*(t.swapcase().swapcase() for t in found))).tolist()


@given(st.lists(st.text(st.characters(max_codepoint=127), min_size=1), min_size=1, max_size=6))
def test_plain_ids_take_the_quick_way_to_the_same_form(texts):
    slow = normal_ids(names(*texts, "é"))[:-1]
    assert normal_ids(names(*texts)).tolist() == slow.tolist()


def test_a_hundred_thousand_plain_ids_are_normal_in_well_under_a_second():
    ids = names(*(f"Patient-{i:07d}" for i in range(100_000)))
    start = process_time()
    found = normal_ids(ids)
    loose_ids(found)
    assert process_time() - start < 1.0  # 0.2 s as a rule
    assert found[17] == "patient-0000017"


@pytest.mark.parametrize(
    ("one", "other"),
    [("id-0017", "ID 17"), ("José", "jose"), ("2024-01-05", "20240105"), ("a.0.b", "a0b")],
)
def test_loose_forms_that_agree(one, other):
    loose = loose_ids(normal_ids(names(one, other)))
    assert loose[0] == loose[1]


def test_loose_forms_keep_what_is_left_of_nothing():
    assert loose_ids(names("--", "0", "000", "é")).tolist() == ["--", "0", "0", "e"]


def test_feature_names_keep_case_and_lose_blanks_at_their_ends():
    found = normal_features(names(" Age", "age", "a  b", "e\u0301"))
    assert found.tolist() == ["Age", "age", "a  b", "é"]


# ── in a federation ──────────────────────────────────────────────────────────────────────────


def tile(ids, features, labels=None, source=""):
    block = np.arange(1.0, 1 + len(ids) * len(features)).reshape(len(ids), -1)
    return (Tile.make(ids, features, block, labels, source),)


def test_holders_that_write_an_id_in_two_ways_share_the_sample_and_its_slot():
    tiles = {
        "north": tile(["A 1", "B 2", "c 3"], ["x"], [0.0, 1.0, 2.0]),
        "south": tile(["b\u00a02 ", "C  3", "a 1"], ["y"]),
    }
    federation = Federation(tiles)
    _, roster, _, _ = federation.assemble(SETTINGS)
    assert roster.vertical
    north, south = (party.view.tile_rows[0] for party in federation.parties.values())
    assert north.tolist() == south[[2, 0, 1]].tolist()
    assert roster.mismatches == ()


def test_two_rows_of_a_tile_with_the_same_id_are_refused_by_party_file_and_rows():
    tiles = {"north": tile(["a", "B", "b ", "c"], ["x"], [0, 1, 2, 3], "north.csv")}
    with pytest.raises(
        DataError, match=r"party north, north\.csv: rows 2 and 3 .*rename"
    ) as caught:
        Federation(tiles).assemble(SETTINGS)
    assert "'B'" not in str(caught.value)


def test_an_id_of_invisible_characters_and_twin_features_are_refused():
    with pytest.raises(DataError, match=r"party north, a tile: the id of row 2 holds no visible"):
        Federation({"north": tile(["a", "\u200b"], ["x"], [0, 1])}).assemble(SETTINGS)
    with pytest.raises(DataError, match="columns 1 and 3 have the same name"):
        Federation({"north": tile(["a"], ["x", "y", "x "], [0])}).assemble(SETTINGS)


#: Of 65,535 bytes at most, also in loose form: a Hangul syllable takes 3 bytes, its letters 9.
LENGTHS = [("x" * 65_535, 65_536, "x"), ("한" * 7_281, 65_538, "한")]


@pytest.mark.parametrize(("longest", "length", "more"), LENGTHS)
def test_an_id_that_is_too_long_for_key_holders_is_refused_by_party_file_and_row(
    longest, length, more
):
    def federation(sample):
        one = tile(["a", sample], ["f", "g"], [1, 0], source="north.csv")
        two = tile(["a", sample], ["h", "i"], source="south.csv")
        return Federation({"n": one, "s": two}, Preprocessing(matching="oprf"))

    settings = Settings(lam=1e-1)
    assert federation(longest).assemble(settings)[1].n_samples == 2
    with pytest.raises(DataError, match=r"^party n, north\.csv: the id of row 2 takes") as told:
        federation(longest + more).assemble(settings)
    assert f"{length:,} bytes, more than the 65,535" in str(told.value)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("matching", ["hmac", "oprf"])
def test_probable_mismatches_are_counted_and_remarked(matching):
    tiles = {
        "north": tile(["id-001", "id-002", "id-003", "z"], ["x"], [0.0, 1.0, 2.0, 3.0]),
        "south": tile(["ID1", "id 2", "id-003", "q"], ["y"], [0.0, 1.0, 2.0, 5.0]),
        "west": tile(["id1", "zz"], ["u"], [0.0, 1.0]),
    }
    how = Preprocessing(confirm_separate_ids=True, confirmed=("ids",), matching=matching)
    federation = Federation(tiles, how)
    _, roster, _, classes = federation.assemble(SETTINGS)
    assert roster.mismatches == (("north", "south", 2), ("north", "west", 1))
    remarks = describe_holdings(roster, tiles, classes).remarks()
    assert any("2 id(s) of north and south differ only in" in text for text in remarks)


def test_ids_that_look_alike_at_one_party_are_matched_and_no_mismatch():
    tiles = {
        "north": tile(["a-1", "a1"], ["x"], [0.0, 1.0]),
        "south": tile(["a1", "a-1"], ["y"]),
    }
    _, roster, _, _ = Federation(tiles).assemble(SETTINGS)
    assert roster.mismatches == ()


def test_folds_do_not_depend_on_how_an_id_is_written():
    """All holders of a sample must leave it out together."""
    ids = [f"P {i}" for i in range(40)]
    tiles = {
        "north": tile(ids, ["x"], np.arange(40.0)),
        "south": tile([i.lower() + " " for i in reversed(ids)], ["y"]),
    }
    federation = Federation(tiles)
    settings = Settings(lam=0.1, loss="squared", folds=3, path=(1.0,), solver="cutting-planes")
    federation.assemble(settings)
    one, other = (
        party.data.folds(party._matching.ids, settings).of_rows.tolist()
        for party in federation.parties.values()
    )
    assert one == other
    assert set(one) == {0, 1, 2}


def test_joint_prediction_takes_the_first_way_to_write_an_id():
    model = Model(
        features=names("x", "y"),
        coef=np.array([[1.0, 10.0]]),
        intercept=np.zeros(1),
        classes=None,
        scaling=(np.zeros(2), np.ones(2)),
        loss="squared",
        loss_parameters={},
        lam=1.0,
        certificate={},
    )
    tiles = {
        "north": (Tile.make(["A", "B"], ["x"], [[1.0], [2.0]]),),
        "south": (Tile.make(["b ", "a"], [" y"], [[3.0], [4.0]]),),
    }
    for matching in ("hmac", "oprf"):
        ids, scores = predict_scores(model, tiles, matching=matching)
        assert ids.tolist() == ["A", "B"]
        assert scores[:, 0] == pytest.approx([41.0, 32.0])


def test_own_loose_forms_are_those_that_dropping_signs_and_zeros_changes():
    ids = names("a7", "a-7", "007", "a0b", "10", "x 1", "é1", "0", "--", "p00")
    rows, forms = own_loose_forms(ids)
    slow = ["a7", "a7", "7", "a0b", "10", "x1", "e1", "0", "--", "p0"]
    assert loose_ids(ids).tolist() == slow
    assert rows.tolist() == [1, 2, 5, 6, 9]
    assert forms.tolist() == [slow[row] for row in rows]


def test_of_many_ids_the_same_bare_forms_are_compared_wherever_they_are(monkeypatch):
    monkeypatch.setattr(id_and_name_forms, "MOST_BARE", 20)
    # Every form three times, in two writings: more ids than are sorted at first.
    one = names(*(f"p-{n % 90:04d}" for n in range(270)))
    other = names(*(f"q{n}" for n in reversed(range(90))))
    found = [bare_ids([ids]).tolist() for ids in (one, other)]
    assert len(set(found[0])) == len(found[0]) == 20
    assert found[0] == found[1]
    assert bare_ids([names("a1", "b1")]).tolist() == []
