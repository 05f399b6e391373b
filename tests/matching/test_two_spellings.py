"""What two parties write in two ways stops a run, whoever coordinates it, from tokens alone."""

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import Federation, Preprocessing, Settings, Tile
from weft.errors import DataError, WeftError
from weft.federation import label_wording_mismatches
from weft.federation.label_wording_mismatches import all_coded, check_vocabularies, mapping_between
from weft.matching import id_and_name_forms, two_spellings
from weft.matching.id_and_name_forms import loose_features
from weft.matching.messages import SIMILAR, SimilarRequest
from weft.matching.two_spellings import SimilarNames, TwoWritings

SETTINGS = Settings(lam=0.1, loss="squared", cipher="pad")


def tile(names, begin="n", labels=None, source="", rows=30):
    block = np.random.default_rng(len(names)).normal(size=(rows, len(names)))
    ids = [f"{begin}{row}" for row in range(rows)]
    return Tile.make(ids, names, block, np.arange(rows) if labels is None else labels, source)


def assembled(north, south, **how):
    federation = Federation({"north": (north,), "south": (south,)}, Preprocessing(**how))
    return federation.assemble(SETTINGS)[1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("LIMIT_BAL", "limit_bal", True),
        ("LIMIT_BAL", "Limit Bal", True),
        ("Größe", "GROSSE", True),
        ("é-1", "E_1", True),
        ("x.1", "x1", True),
        ("pixel_1_12", "pixel_11_2", False),
        ("pixel 1 12", "PIXEL_1-12", True),
        ("x+", "x", False),
        ("_", "-", False),
    ],
)
def test_which_names_are_the_same_but_for_their_writing(one, other, same):
    forms = loose_features(np.array([one, other], dtype=object)).tolist()
    assert (forms[0] == forms[1]) == same


def test_two_spellings_of_a_column_never_train_silently():
    north = tile(["LIMIT_BAL", "age"], source="north.csv")
    south = tile(["limit_bal", "age"], "s", source="south.csv")
    with pytest.raises(DataError, match=r"north and south have 1 column\(s\)") as caught:
        assembled(north, south)
    said = str(caught.value)
    assert "north: in two spellings: 'LIMIT_BAL' of north.csv" in said
    assert "south: in two spellings: 'limit_bal' of south.csv" in said
    assert caught.value.told == SimilarNames.TOLD
    how = {"confirmed": ("names",), "confirm_separate_ids": True}
    # With the constant column.
    assert assembled(north, south, **how).n_features == 3


def test_names_that_both_parties_have_are_no_slip():
    names = ["b", "B"]
    assert assembled(tile(names), tile(names, "s")).n_features == 2


def test_what_travels_about_spellings_holds_no_name():
    seen = []
    tiles = {"north": (tile(["LIMIT_BAL", "age"]),), "south": (tile(["limit_bal", "age"], "s"),)}
    federation = Federation(tiles, record=seen.append)
    with pytest.raises(DataError):
        federation.assemble(SETTINGS)
    # What a party refuses with goes to its owner; over a network others hear what is told of it.
    everything = repr([(one.phase, one.message, one.reply) for one in seen])
    assert "match.similar" in everything
    assert "limit" not in everything.lower()


@pytest.mark.parametrize("places", [[[9, 0]], [[0, 9]], [[0, -1]]])
def test_a_party_names_columns_to_its_owner_alone_and_once(places):
    tiles = {"north": (tile(["LIMIT_BAL", "age"]),), "south": (tile(["limit_bal", "age"], "s"),)}
    how = Preprocessing(confirmed=("names",), confirm_separate_ids=True)
    federation = Federation(tiles, how)
    federation.assemble(SETTINGS)
    with pytest.raises(WeftError, match="places"):
        federation.parties["north"].on(SIMILAR, SimilarRequest(places=np.array(places)))
    south, asked = federation.parties["south"], SimilarRequest(places=np.array([[0, 0]]))
    with pytest.raises(DataError, match="of its tile") as caught:
        south.on(SIMILAR, asked)
    assert caught.value.told == "its log names the columns"
    with pytest.raises(WeftError, match="once"):
        south.on(SIMILAR, asked)


def test_many_ids_that_differ_in_zeros_only_stop_a_run():
    north = tile(["x", "y"], "00")
    south = tile(["u", "v"], "0")
    with pytest.raises(DataError, match=r"id\(s\) of north and south differ only in") as caught:
        assembled(north, south)
    assert "north" not in caught.value.told.replace("the coordinator's log names", "")
    how = {"confirmed": ("ids",), "confirm_separate_ids": True}
    assert assembled(north, south, **how).mismatches


@pytest.mark.parametrize("matching", ["hmac", "oprf"])
@pytest.mark.parametrize(
    ("north", "south", "words"),
    [
        ("p-", "", r"30 id\(s\) of north would occur at south too"),
        ("", "p-00", r"30 id\(s\) of south would occur at north too"),
        ("n-", "s-", r"30 id\(s\) of north and south would meet without what all ids of each"),
    ],
)
def test_ids_that_meet_without_what_all_begin_with_stop_a_run(north, south, words, matching):
    """From tokens, without a name of the letters."""
    tiles = tile(["x", "y"], north), tile(["u", "v"], south)
    with pytest.raises(DataError, match=words) as caught:
        assembled(*tiles, matching=matching)
    assert "id_prefix" in caught.value.told
    assert not any(name in caught.value.told for name in ("north", "south", "30", "p-"))
    how = {"confirmed": ("ids",), "confirm_separate_ids": True}
    assert assembled(*tiles, matching=matching, **how).n_samples == 60


def test_letters_of_its_own_before_other_samples_are_no_slip():
    """Two parties with the same columns number their own samples; or ids meet as they are."""
    assert assembled(tile(["x", "y"], "n-"), tile(["x", "y"], "s-")).n_samples == 60
    assert assembled(tile(["x", "y"], "n-"), tile(["u", "v"], "n-")).n_samples == 30
    how = {"confirm_separate_ids": True}
    assert assembled(tile(["x"], "n-"), tile(["u"], "s-"), **how).n_samples == 60


def test_of_many_ids_some_are_compared_without_what_all_begin_with(monkeypatch):
    """The same ones at both parties, from which follows about how many would meet."""
    monkeypatch.setattr(id_and_name_forms, "MOST_BARE", 50)
    monkeypatch.setattr(two_spellings, "MOST_BARE", 50)
    seen = []
    tiles = {"north": (tile(["x"], "n-", rows=400),), "south": (tile(["u"], "s-", rows=200),)}
    with pytest.raises(DataError) as caught:
        Federation(tiles, record=seen.append).assemble(SETTINGS)
    told = {one.party: one.reply["bare"] for one in seen if one.phase == "match.tokens"}
    assert [len(tokens) for tokens in told.values()] == [50, 50]
    estimate = int(re.search(r"(\d+) id", str(caught.value))[1])
    # About half of north's fifty are among south's: 200 meet in truth, give or take.
    assert 100 <= estimate <= 300


@pytest.mark.parametrize(
    ("count", "least", "told"),
    [(4812, 10, "at least 1000"), (999, 1, "at least 100"), (39, 10, "at least 10"),
     (39, 11, "ids"), (120, 65, "at least 100"), (7, 1, "at least 1")],
)  # fmt: skip
def test_a_check_rounds_down_how_many_ids_would_meet(count, least, told):
    found = TwoWritings("{} of north", count, told="ids").in_a_check(least)
    assert found == f"{told} ids of north".replace("ids ids", "ids")


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (["0", "1"], ["no", "yes"], {"no": "0", "yes": "1"}),
        (["ill", "well"], ["Ill", "WELL"], {"Ill": "ill", "WELL": "well"}),
        ([0, 1], ["J", "N"], {"J": "1", "N": "0"}),
        (["no", "sick"], ["N", "ill"], {"N": "no", "ill": "sick"}),
        (["cat", "cow", "dog"], ["Cat", "fox", "dog"], {"Cat": "cat", "fox": "fox", "dog": "dog"}),
        ([0, 1], [1, 2], {"1": "0", "2": "1"}),
        ([0, 1], [-1, 1], {"-1": "0", "1": "1"}),
        ([0, 1, 2], ["a", "b"], {}),
        (["ill", "well"], ["krank", "gesund"], {}),
        ([0, 1], [1, 0], None),
        ([0, 1], [0, 1, 2], None),
        ([0, 1], [2, 3], None),
        (["cat", "dog"], ["dog", "ship"], None),
        (["cat", "dog", "cow"], ["ship", "car"], None),
        ([1.0], [1, 2], None),
    ],
)
def test_labels_in_other_words_are_found(one, other, found):
    lists = [np.array(one), np.array(other)]
    assert mapping_between(*lists, coded=all_coded(lists)) == found
    if found is None:
        check_vocabularies(lists)
    else:
        with pytest.raises(DataError, match="same classes in other words") as caught:
            check_vocabularies(lists)
        assert not any(str(value) in caught.value.told for value in ("ill", "krank", "cow"))


def test_a_refusal_lists_four_classes_and_says_where_there_are_more():
    lists = [np.array(["Cat", "b", "c", "d", "e"]), np.array(["cat", "b", "c", "d"])]
    listed = "one party has the labels Cat, b, c, d, … and another cat, b, c, d, which look like"
    with pytest.raises(DataError, match=listed):
        check_vocabularies(lists)


def test_numbers_of_three_classes_are_no_other_coding():
    check_vocabularies([np.array([0, 1]), np.array([1, 2]), np.array([0, 2])])


@given(
    st.lists(
        st.lists(
            st.sampled_from(["0", "1", "2", "no", "No", "a", "b", "A"]), min_size=1, unique=True
        ),
        min_size=2,
        max_size=5,
    )
)
def test_lists_that_are_compared_are_all_that_matter(lists):
    found = [np.array(one) for one in lists]
    coded = all_coded(found)
    pairs = combinations(found, 2)
    if any(mapping_between(one, other, coded=coded) is not None for one, other in pairs):
        with pytest.raises(DataError, match="same classes in other words"):
            check_vocabularies(found)
    else:
        check_vocabularies(found)


def test_thousands_of_lists_take_no_comparison_in_pairs(monkeypatch):
    compared = []
    monkeypatch.setattr(
        label_wording_mismatches, "mapping_between", lambda *_, **__: compared.append(1)
    )
    some = np.random.default_rng(0)
    lists = [np.sort(some.choice(10, size=5, replace=False)) for _ in range(3000)]
    check_vocabularies([*lists, np.array([0, 1]), np.array([1, 2])])
    check_vocabularies([np.array([f"class {i}" for i in one]) for one in lists])
    assert len(compared) == 1


def test_labels_in_other_words_stop_a_run_unless_confirmed():
    north = tile(["x"], labels=["yes", "no"] * 15)
    south = tile(["x"], "s", labels=[1, 0] * 15)
    settings = Settings(lam=0.1, cipher="pad")
    federation = Federation({"north": (north,), "south": (south,)})
    with pytest.raises(WeftError, match="one party has the labels"):
        federation.assemble(settings)
    federation = Federation(
        {"north": (north,), "south": (south,)}, Preprocessing(confirmed=("labels",))
    )
    assert len(federation.assemble(settings)[3]) == 4
