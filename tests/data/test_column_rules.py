"""Declared columns become the numbers that pandas and scikit-learn make of them, every time."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
)

from covering import examples
from weft.config.strict_reading import checked
from weft.data import read_tile
from weft.data.columns.column_agreement import Levels, own_levels, settle_columns, settled_together
from weft.data.columns.column_rules import ColumnRule
from weft.data.columns.raw_column_cells import CategoryCells, DeclaredColumns, NumberCells
from weft.data.columns.table_transformation import FileReading, Transformation
from weft.data.read_tiles import examine
from weft.data.reading_options import ReadingOptions
from weft.data.tile import Tile
from weft.errors import ConfigError, DataError

N = 60
RNG = np.random.default_rng(4)
FRAME = pd.DataFrame(
    {
        "id": [f"s{row:02d}" for row in range(N)],
        "colour": RNG.choice(["red", "green", "blue"], N),
        "age": RNG.integers(18, 90, N).astype(float),
        "dose": RNG.normal(size=N).round(3),
        "seen": pd.date_range("2023-12-15", periods=N, freq="9D"),
    }
)


def read(tmp_path, frame=FRAME, interactions=None, **columns) -> Tile:
    """The tile of a file whose columns are declared so."""
    path = tmp_path / "file.csv"
    frame.to_csv(path, index=False, date_format="%d.%m.%Y")
    rules = {name: checked(ColumnRule, told, "column") for name, told in columns.items()}
    kept = [name for name in frame.columns if name in {*columns, "id", "dose"}]
    options = ReadingOptions(columns=rules, interactions=interactions)
    return read_tile(str(path), features=kept[1:], options=options)


def numbers(tile: Tile) -> pd.DataFrame:
    """What its columns become, where it is the only party."""
    ((whole,),) = settled_together({"a": [tile]}, {"a": 1}, "mean").values()
    return pd.DataFrame(whole.block, columns=whole.features)


def test_a_category_becomes_what_a_one_hot_encoder_makes_of_it(tmp_path):
    found = numbers(read(tmp_path, colour={"kind": "category"}))
    judge = OneHotEncoder(sparse_output=False).fit(FRAME[["colour"]])
    expected = judge.transform(FRAME[["colour"]])
    names = [f"colour={level}" for level in judge.categories_[0]]
    assert list(found.columns) == ["dose", *names]
    assert np.array_equal(found[names], expected)


def test_the_reference_level_has_no_column_and_others_share_one(tmp_path):
    rule = {"kind": "category", "levels": ["red", "green", "(other)"], "reference": "red"}
    found = numbers(read(tmp_path, colour=rule))
    assert list(found.columns) == ["dose", "colour=green", "colour=(other)"]
    assert np.array_equal(found["colour=(other)"], FRAME["colour"] == "blue")
    assert (found[FRAME["colour"] == "red"][["colour=green", "colour=(other)"]] == 0).all(axis=None)


def test_numbers_become_what_scikit_learn_makes_of_them(tmp_path):
    age = FRAME[["age"]]
    scaled = numbers(read(tmp_path, age={"range": [0, 120]}))["age"]
    ends = MinMaxScaler().fit(pd.DataFrame({"age": [0.0, 120.0]}))
    assert np.allclose(scaled, ends.transform(age)[:, 0], rtol=0, atol=1e-15)
    logged = numbers(read(tmp_path, age={"log": "x"}))["age"]
    assert np.array_equal(logged, np.log(FRAME["age"]))
    both = numbers(read(tmp_path, age={"log": "1+x", "range": [0, 120]}))["age"]
    assert np.allclose(both, np.log1p(FRAME["age"]) / np.log1p(120), rtol=0, atol=1e-15)
    clipped = numbers(read(tmp_path, age={"clip": [30, 60]}))["age"]
    assert np.array_equal(clipped, FRAME["age"].clip(30, 60))


def test_bins_and_splines_become_what_scikit_learn_makes_of_them(tmp_path):
    bins = numbers(read(tmp_path, age={"bins": [30, 50]})).drop(columns="dose")
    assert list(bins.columns) == ["age<30", "30<=age<50", "age>=50"]
    expected = pd.get_dummies(pd.cut(FRAME["age"], [-np.inf, 30, 50, np.inf], right=False))
    assert np.array_equal(bins, expected)
    quarters = numbers(read(tmp_path, age={"bins": 4})).drop(columns="dose")
    judge = KBinsDiscretizer(4, encode="onehot-dense", quantile_method="linear")
    assert np.array_equal(quarters, judge.fit_transform(FRAME[["age"]]))
    # Where its own numbers are cut is nothing for a name.
    assert list(quarters.columns) == [f"age.bin{part}" for part in range(1, 5)]
    knots = [[20.0], [40.0], [70.0]]
    curve = numbers(read(tmp_path, age={"spline": [20, 40, 70]})).drop(columns="dose")
    spline = SplineTransformer(knots=np.array(knots), extrapolation="constant")
    assert np.allclose(curve, spline.fit_transform(FRAME[["age"]].to_numpy()), rtol=0, atol=1e-12)


def test_dates_become_days_and_parts_as_pandas_has_them(tmp_path):
    rule = {"kind": "date", "since": "2024-01-01", "parts": ["year", "month", "weekday"]}
    found = numbers(read(tmp_path, seen=rule))
    seen = FRAME["seen"]
    assert np.array_equal(found["seen"], (seen - pd.Timestamp("2024-01-01")).dt.days)
    assert np.array_equal(found["seen.year"], seen.dt.year)
    for month in range(1, 13):
        assert np.array_equal(found[f"seen.month={month:02d}"], seen.dt.month == month)
    for day in ("Monday", "Thursday", "Sunday"):
        assert np.array_equal(found[f"seen.weekday={day}"], seen.dt.day_name() == day)


def test_products_of_columns_are_those_of_polynomial_features(tmp_path):
    tile = read(
        tmp_path, interactions=[("dose", "age"), ("colour", "dose")], colour={"kind": "category"},
        age={"range": [0, 100]},
    )  # fmt: skip
    found = numbers(tile)
    judge = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    expected = judge.fit_transform(np.column_stack([FRAME["age"] / 100, FRAME["dose"]]))[:, 2]
    assert np.allclose(found["age*dose"], expected, rtol=0, atol=1e-15)
    assert np.array_equal(found["colour=red*dose"], FRAME["dose"] * (FRAME["colour"] == "red"))


def test_blank_cells_get_what_is_declared_and_an_indicator(tmp_path):
    frame = FRAME.assign(age=FRAME["age"].where(FRAME.index % 5 > 0))
    frame.loc[3, "colour"] = None
    frame["seen"] = frame["seen"].where(FRAME.index != 7)
    found = numbers(
        read(
            tmp_path,
            frame,
            age={"blank": 40, "indicator": True, "range": [0, 100]},
            colour={"kind": "category", "blank": "unknown"},
            seen={"kind": "date", "since": "2024-01-01", "blank": "2024-01-11"},
        )
    )
    assert np.array_equal(found["age.blank"], frame["age"].isna())
    assert np.array_equal(found["age"], frame["age"].fillna(40) / 100)
    assert found["colour=unknown"].tolist() == [float(row == 3) for row in range(N)]
    assert found["seen"][7] == 10
    # Without a rule for them, all that the column becomes is blank.
    bare = numbers(read(tmp_path, frame, colour={"kind": "category"}))
    assert bare.isna().to_numpy().any(axis=1).tolist() == [row == 3 for row in range(N)]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"kind": "colour"}, "'colour' is unknown .*choose one of number, category, date"),
        ({"levels": ["a"]}, "has levels, which is for kind = 'category'"),
        ({"kind": "category", "range": [0, 1]}, "has range, which is for kind = 'number'"),
        ({"range": [3, 1]}, "give a lower and a higher number"),
        ({"range": [0, 1], "bins": [1]}, "two of range, bins and spline"),
        ({"bins": [3, 1]}, "give rising numbers"),
        ({"spline": [3]}, "at least two numbers"),
        ({"outside": "clip"}, "no range"),
        ({"log": "x", "range": [0, 1]}, "needs numbers above 0"),
        ({"indicator": True}, "needs blank"),
        ({"blank": "x"}, "give a number"),
        ({"kind": "category", "blank": 3}, "as text in quotes"),
        ({"kind": "category", "levels": ["a", "a"]}, "lists a level twice"),
        ({"kind": "category", "levels": ["a"], "reference": "b"}, "not in levels"),
        ({"kind": "date"}, 'needs since = "2020-01-01"'),
        ({"kind": "date", "since": "1.2.2020"}, "write a day with its year first"),
        ({"colour": 1}, "has no key 'colour'"),
    ],
)
def test_every_mistake_in_a_rule_is_one_sentence(rule, said):
    with pytest.raises(ConfigError, match=said):
        checked(ReadingOptions, {"columns": {"age": rule}}, "the file")


@pytest.mark.parametrize(
    ("cells", "rule", "severity", "said"),
    [
        (["5", "-1"], {"range": [0, 10]}, "error", "1 number.* outside of what is declared.*'b'"),
        (["5", "0"], {"log": "x"}, "error", "outside of what is declared"),
        (["5", "12"], {"range": [0, 10], "outside": "clip"}, "note", "count as its ends"),
        (["3/4/2024", "5/6/2024"], {"kind": "date", "since": "2024-01-01"}, "doubt", "either way"),
        (["3/4/2024", "soon"], {"kind": "date", "since": "2024-01-01"}, "error", "'soon' is none"),
        (["5", "x"], {"range": [0, 10]}, "error", "is not numeric"),
    ],
)
def test_cells_that_do_not_fit_are_told_with_their_column(tmp_path, cells, rule, severity, said):
    path = tmp_path / "north.csv"
    pd.DataFrame({"id": ["a", "b"], "x": cells}).to_csv(path, index=False)
    options = ReadingOptions(columns={"x": checked(ColumnRule, rule, "column")})
    found = examine(str(path), party="north", options=options).findings
    assert any(one.severity == severity and one.column == "x" for one in found)
    assert any(pd.Series([one.sentence()]).str.contains(said).all() for one in found)


def test_dates_are_read_in_every_usual_writing_and_never_guessed(tmp_path):
    rule = ColumnRule(kind="date", since="2024-01-01")
    for texts, format in (
        (["2024-02-01", "2024-02-13"], None),
        (["01.02.2024", "13.02.2024"], None),
        (["1/2/2024", "13/2/2024"], None),
        (["2/1/2024", "2/13/2024"], None),
        (["01/02/2024", "02/02/2024"], "%d/%m/%Y"),
        (["2024-02-01 12:00", "2024-02-13T06:00:00"], None),
    ):
        path = tmp_path / "file.csv"
        pd.DataFrame({"id": ["a", "b"], "x": texts}).to_csv(path, index=False)
        told = msgspec.structs.replace(rule, format=format)
        tile = read_tile(str(path), options=ReadingOptions(columns={"x": told}))
        first, second = numbers(tile)["x"]
        assert int(first) == 31
        assert int(second) == (32 if format else 43)


texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1
)
finite = st.floats(-1e6, 1e6)


@st.composite
def tiles(draw):
    """A tile with a category, a number that is cut, and a date; blank cells among them."""
    rows = draw(st.integers(4, 12))
    levels = tuple(draw(st.lists(texts, min_size=1, max_size=4, unique=True)))
    codes = draw(st.lists(st.integers(-1, len(levels) - 1), min_size=rows, max_size=rows))
    values = draw(st.lists(finite, min_size=rows, max_size=rows, unique=True))
    days = draw(st.lists(st.integers(0, 30000), min_size=rows, max_size=rows))
    cut = draw(st.sampled_from([{"bins": 3}, {"spline": 3}, {"range": (-1e6, 1e6)}, {}]))
    rules = {
        "c": ColumnRule(kind="category", blank=draw(st.none() | texts)),
        "x": ColumnRule(**cut),
        "d": ColumnRule(kind="date", since="2000-01-01", parts=["month"]),
    }
    cells = {
        "c": CategoryCells(levels, np.array(codes, np.int64)),
        "x": NumberCells(np.array(values)),
        "d": NumberCells(np.array(days, float)),
    }
    ids = np.array([str(row) for row in range(rows)], dtype=object)
    plain = np.array(["plain"], dtype=object)
    declared = DeclaredColumns(rules, cells, (("plain", "x"),))
    return Tile(ids, plain, np.arange(rows, dtype=float)[:, None], None, "t", declared)


def test_columns_that_a_study_makes_have_all_digits_beside_single_precision():
    """A range could make cells so small that float32 has only the largest of them."""
    values = np.array([1.0, 2.0, 6.0])
    rule = ColumnRule(range=(0.0, 8e45), outside="keep")
    plain = Tile.make(["a", "b", "c"], ["plain"], [[1.0], [2.0], [4.0]], source="t")
    declared = DeclaredColumns({"x": rule}, {"x": NumberCells(values)})
    tile = replace(plain.in_single_precision(), declared=declared)
    made = settle_columns([tile], {}).apply(tile).tile
    assert made.features.tolist() == ["plain", "x"]
    np.testing.assert_array_equal(made.block[:, 1], values / 8e45)


@given(tiles())
@examples(60, deadline=None)
def test_a_stored_transformation_gives_the_same_bits_again(tile):
    made = settle_columns([tile], {"c": own_levels([tile], "c", 2)})
    stored = made.to_json()
    again = Transformation.from_json(stored)
    assert again == made
    assert again.to_json() == stored
    one, other = made.apply(tile).tile, again.apply(tile).tile
    assert one.features.tolist() == other.features.tolist()
    assert np.asarray(one.block).tobytes() == np.asarray(other.block).tobytes()
    # Rows do not depend on each other: new samples are treated one by one.
    some = again.apply(tile.rows(slice(1, 3))).tile
    assert np.asarray(some.block).tobytes() == np.asarray(one.block)[1:3].tobytes()


def test_another_version_of_the_rules_is_refused():
    text = msgspec.json.encode({"columns": [], "interactions": [], "version": 99}).decode()
    with pytest.raises(DataError, match="version 99 of the rules, this Weft has 2"):
        Transformation.from_json(text)
    with pytest.raises(DataError, match="cannot be read"):
        Transformation.from_json('{"version": 1, "columns": 3}')


def test_rules_from_before_files_were_read_alike_still_count():
    old = '{"columns":[{"name":"age","rule":{"log":"1+x"}}],"interactions":[],"version":1}'
    made = Transformation.from_json(old)
    assert (list(made.rules), made.readings) == (["age"], ())
    assert made.reading_of(["age"], ["age"]) == FileReading()


@pytest.mark.parametrize("more", [{}, {"reference": "x"}, {"blank": "x"}, {"reference": "absent"}])
@pytest.mark.parametrize("present", [True, False])
def test_no_rule_steers_whether_there_are_rare_levels(more, present):
    """With blank cells near the least number, a single sample of the level named changes nothing"""
    codes = [0] * 9 + [-1] * 2 + [1, 2 if present else 1]
    cells = CategoryCells(("often", "rare", "x"), np.array(codes, np.int64))
    rules = {"c": ColumnRule(kind="category", **more)}
    ids = np.array([str(row) for row in range(len(cells))], dtype=object)
    declared = DeclaredColumns(rules, {"c": cells})
    none = np.zeros((len(ids), 0))
    tile = Tile(ids, np.zeros(0, dtype=object), none, None, "t", declared)
    assert own_levels([tile], "c", 3) == Levels(("often",), True)


def test_logarithms_of_a_range_and_of_knots_must_rise():
    for told in ({"range": (1e10, np.nextafter(1e10, 1e11))}, {"spline": [-1.0, 2.0]}):
        with pytest.raises(ConfigError, match="whose logarithms do not rise"):
            ColumnRule(log="x", **told)
