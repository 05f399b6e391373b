"""Every named data set loads with the shape and labels it promises."""

from __future__ import annotations

import io
import shutil
import tarfile

import numpy as np
import pytest

from weft.data import describe, load
from weft.errors import DataError
from weft_papers.data.original_file_readers import fate_breast_tiles

INFO = {info.name: info for info in describe()}
FEATURES = {
    "digits": ("r0c0", "r7c7"),
    "breast_cancer": ("mean radius", "worst fractal dimension"),
    "diabetes": ("age", "s6"),
    "mnist": ("r0c0", "r27c27"),
    "covtype": ("Elevation", "Soil_Type40"),
    "mushroom": ("cap-shape=b", "constant"),
    "boston": ("CRIM", "LSTAT"),
    "mfeat": ("fac_0", "zer_46"),
    "fate_breast": ("guest_x0", "host_x19"),
}


def test_all_names_are_described():
    assert set(INFO) == {*FEATURES, "newsgroups"}
    assert [name for name, info in INFO.items() if not info.needs_data_dir] == [
        "digits",
        "breast_cancer",
        "diabetes",
    ]


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "diabetes"])
def test_bundled_set_needs_no_data_directory(name, monkeypatch):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    check_promises(load(name), name)


@pytest.mark.parametrize("name", ["mushroom", "boston", "mfeat", "fate_breast"])
def test_set_from_files_is_as_described(name, data_dir):
    check_promises(load(name, data_dir), name)


def check_promises(table, name):
    info = INFO[name]
    assert table.block.shape == (info.rows, info.columns)
    assert table.task == info.task
    assert table.name == name
    assert (table.features[0], table.features[-1]) == FEATURES[name]
    assert np.isfinite(table.block).all()
    classes = np.unique(table.labels)
    expected = {"digits": 10, "mnist": 10, "mfeat": 10, "diabetes": 214, "boston": 229}
    assert len(classes) == expected.get(name, 2)
    if name != "fate_breast":
        assert table.ids[[0, -1]].tolist() == ["0", str(info.rows - 1)]


def test_mnist_is_as_described(mnist):
    check_promises(mnist, "mnist")


def test_mnist_pixels_are_scaled_and_the_test_part_is_the_other_one(data_dir):
    table = load("mnist", data_dir, part="test")
    assert table.block.shape == (10000, 784)
    assert (table.block.min(), table.block.max()) == (0, 1)
    assert table.labels[:5].tolist() == [7, 2, 1, 0, 4]
    with pytest.raises(DataError, match="'train' or 'test'"):
        load("mnist", data_dir, part="validation")


@pytest.mark.release
def test_covtype_is_binary_and_scaled_to_the_unit_interval(data_dir):
    table = load("covtype", data_dir)
    check_promises(table, "covtype")
    assert (table.labels == 1).sum() == 283301
    assert np.array_equal(table.block.min(axis=0), np.zeros(54))
    assert np.array_equal(table.block.max(axis=0), np.ones(54))


def test_mushroom_is_one_hot_of_the_complete_rows(data_dir):
    table = load("mushroom", data_dir)
    assert np.array_equal(table.block.sum(axis=1), np.full(5644, 23))
    assert (table.labels == 1).sum() == 2156


def test_fate_parties_hold_the_same_patients_under_distinct_feature_names(data_dir):
    tiles = fate_breast_tiles(data_dir)
    assert tiles["guest"].block.shape == (569, 10)
    assert tiles["host"].block.shape == (569, 20)
    assert tiles["guest"].labelled.all()
    assert tiles["host"].labels is None
    assert set(tiles["guest"].ids) == set(tiles["host"].ids)
    assert not set(tiles["guest"].features) & set(tiles["host"].features)


#: The ten groups of either class.
POSITIVE = (
    *("comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware"),
    *("comp.sys.mac.hardware", "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles"),
    *("rec.sport.baseball", "rec.sport.hockey"),
)
NEGATIVE = (
    *("alt.atheism", "sci.crypt", "sci.electronics", "sci.med", "sci.space"),
    *("soc.religion.christian", "talk.politics.guns", "talk.politics.mideast"),
    *("talk.politics.misc", "talk.religion.misc"),
)


@pytest.fixture(scope="module")
def small_archive(tmp_path_factory):
    """Three short texts of every group, in an archive like the original."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "newsgroups").mkdir()
    with tarfile.open(folder / "newsgroups" / "20_newsgroups.tar.xz", "w:xz") as archive:
        for group in sorted((*POSITIVE, *NEGATIVE)):
            for number in range(3):
                text = (
                    f"Newsgroups: {group}\nSubject: xyzzy\n\nabout {group} text {number} caf\xe9\n"
                )
                member = tarfile.TarInfo(f"20_newsgroups/{group}/{number}")
                member.size = len(text.encode("latin-1"))
                archive.addfile(member, io.BytesIO(text.encode("latin-1")))
    return folder


@pytest.fixture(scope="module")
def news(small_archive, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return load("newsgroups", small_archive, ngrams=(1, 1), cache_dir=cache), cache


def test_newsgroups_are_sparse_and_balanced(news):
    table, _ = news
    assert table.is_sparse
    assert np.unique(table.labels, return_counts=True)[1].tolist() == [30, 30]
    assert_of_norm_one(table)


def assert_of_norm_one(table):
    norms = np.sqrt(table.block.power(2).sum(axis=1))
    assert np.isclose(norms[norms > 0], 1).all()


def test_headers_of_newsgroups_are_stripped(news):
    table, _ = news
    assert {"about", "text", "caf\xe9", "atheism"} <= set(table.features.tolist())
    assert not {"newsgroups", "subject", "xyzzy"} & set(table.features.tolist())


def test_pairs_of_words_are_features_too(news, small_archive):
    pairs = load("newsgroups", small_archive, ngrams=(1, 2)).features.tolist()
    assert set(news[0].features.tolist()) < set(pairs)
    assert "about alt" in pairs


@pytest.mark.release
def test_the_original_newsgroups_are_as_described(data_dir):
    table = load("newsgroups", data_dir, ngrams=(1, 1))
    assert table.n == 19997
    assert table.m > 100_000
    assert np.unique(table.labels, return_counts=True)[1].tolist() == [9997, 10000]
    assert_of_norm_one(table)
    column = table.features.tolist().index("newsgroups")
    assert (table.block[:, [column]] != 0).nnz < 0.05 * table.n


def test_the_cache_of_newsgroups_gives_the_same_table_and_group_names(news, small_archive):
    table, cache = news
    again = load("newsgroups", small_archive, ngrams=(1, 1), cache_dir=cache, target="groups")
    assert (again.block != table.block).nnz == 0
    assert again.features.tolist() == table.features.tolist()
    assert set(again.labels[table.labels == 1]) == set(POSITIVE)
    assert set(again.labels[table.labels == -1]) == set(NEGATIVE)


def test_unknown_names_and_options_are_refused(data_dir):
    with pytest.raises(DataError, match="did you mean 'covtype'"):
        load("covtyp")
    with pytest.raises(DataError, match="choose one of digits"):
        load("imagenet22k")
    with pytest.raises(DataError, match="no option 'part'; it takes none"):
        load("digits", part="test")
    with pytest.raises(DataError, match="target 'topic'"):
        load("newsgroups", data_dir, target="topic")


def test_missing_data_directory_or_file_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    with pytest.raises(DataError, match=r"boston/boston_house_prices\.csv.*WEFT_DATA.*data_dir"):
        load("boston")
    with pytest.raises(DataError, match="which does not exist"):
        load("boston", tmp_path)


def test_environment_names_the_data_directory(monkeypatch, data_dir, tmp_path):
    (tmp_path / "boston").mkdir()
    shutil.copy(data_dir / "boston" / "boston_house_prices.csv", tmp_path / "boston")
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    assert load("boston").n == 506


def test_a_damaged_download_is_refused(tmp_path):
    (tmp_path / "mnist").mkdir()
    for part in ("images-idx3", "labels-idx1"):
        (tmp_path / "mnist" / f"train-{part}-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="not a complete idx file"):
        load("mnist", tmp_path)
