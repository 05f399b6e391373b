"""A data set that a config cuts into parties is one table: its own names are no slips."""

from weft.config.read_config import read_config
from weft.federation.preprocessing_settings import ONE_TABLE


def test_parties_cut_from_one_table_have_its_names(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(
        '[data]\ndataset = "breast_cancer"\nsplit = {name = "grid", k = 2, q = 2}\n'
        "[model]\nlambda = 0.1\n",
        encoding="utf-8",
    )
    assert set(read_config(config).problem().preprocessing.confirmed) == set(ONE_TABLE)
    assert {"names", "ids", "labels", "units", "levels"} == set(ONE_TABLE)
