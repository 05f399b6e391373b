"""A site's own policy over a network: which columns it offers, and in how many runs."""

import numpy as np
import pandas as pd
import pytest

from weft.config.site_policy_file import read_policy
from weft.errors import ConfigError, WeftError
from weft.network.site_data_keys_and_consent import examine_offered, offered_tiles
from weft.privacy.agreement import SitePolicy

TABLE = pd.DataFrame(
    {
        "patient": ["a", "b", "c"],
        "age": [51.0, 47.0, 63.0],
        "remark": ["tall", "", "left handed"],
        "dose": [1.0, 0.0, 2.0],
        "outcome": [1, 0, 1],
    }
)


@pytest.fixture
def files(tmp_path):
    TABLE.to_csv(tmp_path / "one.csv", index=False)
    TABLE[["patient", "dose"]].rename(columns={"dose": "weight"}).to_parquet(
        tmp_path / "two.parquet"
    )
    ids = TABLE["patient"].to_numpy(dtype=str)
    block = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "three.npz", ids=ids, features=np.array(["u", "v"]), X=block)
    return [tmp_path / name for name in ("one.csv", "two.parquet", "three.npz")]


def offered(files, *columns, label=None):
    policy = SitePolicy(columns=columns) if columns else None
    examined = examine_offered(files, policy, id_column="patient", label=label, party="north")
    tiles = offered_tiles(examined)
    return [tile.features.tolist() for tile in tiles], tiles


def test_columns_that_are_not_offered_are_not_even_read(files):
    names, tiles = offered(files[:1], "dose", "age", label="outcome")
    # The text in 'remark' would stop whoever read it; the file's order is kept.
    assert names == [["age", "dose"]]
    assert np.array_equal(tiles[0].block, TABLE[["age", "dose"]].to_numpy())
    assert tiles[0].labels.tolist() == [1, 0, 1]


def test_a_policy_without_columns_offers_all(files):
    names, _ = offered(files[1:])
    assert names == [["weight"], ["u", "v"]]


def test_columns_may_lie_in_several_files_of_any_kind(files):
    names, tiles = offered(files, "v", "weight", "age")
    assert names == [["age"], ["weight"], ["v"]]
    assert tiles[2].block[:, 0].tolist() == [1.0, 3.0, 5.0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("age", "doze"), "offers the column 'doze', which none of its files has (the closest is"),
        (("age", "patient"), "'patient', which none"),
        (("age", "outcome"), "'outcome', which none"),
        (("weight",), "one.csv has none of the columns that its policy offers; leave the file out"),
    ],
)
def test_columns_that_cannot_be_offered_are_one_sentence(files, columns, words):
    with pytest.raises(WeftError, match="party north: ") as stop:
        offered(files, *columns, label="outcome")
    assert words in str(stop.value)
    assert "\n" not in str(stop.value)


def test_a_policy_says_columns_and_runs(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('columns = ["age", "dose"]\nmost_runs = 3\nmin_batch = 20\n')
    policy = read_policy(path)
    assert (policy.columns, policy.most_runs) == (("age", "dose"), 3)
    assert policy.terms.min_batch == 20
    path.write_text("")
    assert (read_policy(path).columns, read_policy(path).most_runs) == (None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns = []", "columns is empty"),
        ('columns = "age"', "columns: expected a list"),
        ('columns = ["age", "age"]', "columns names 'age' twice"),
        ("most_runs = 0", "most_runs is 0; give a whole number above 0"),
        ("most_runs = 1.5", "most_runs: expected a whole number"),
        ("most_run = 1", "has no key 'most_run' (did you mean 'most_runs'?)"),
        ('allow_exposure = "yes"', "allow_exposure: expected true or false"),
    ],
)
def test_a_mistake_in_a_policy_is_one_sentence(tmp_path, text, words):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"^policy\.toml: ") as stop:
        read_policy(tmp_path / "policy.toml")
    assert words in str(stop.value)
