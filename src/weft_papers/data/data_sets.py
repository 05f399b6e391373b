"""The papers' data sets, by the names that configs and ``weft split`` use."""

from __future__ import annotations

from weft.data.named_data_sets import DataSet
from weft_papers.data import original_file_readers
from weft_papers.data.newsgroups import newsgroups

DATA_SETS = (
    DataSet(
        name="mnist",
        rows=60000,
        columns=784,
        task="classification",
        source="mnist/*-ubyte.gz (LeCun)",
        note="28 × 28 images scaled to [0, 1], ten classes; part='test' gives the other 10,000",
        loader=original_file_readers.mnist,
    ),
    DataSet(
        name="covtype",
        rows=581012,
        columns=54,
        task="classification",
        source="covtype/covtype.csv.xz (UCI)",
        note="derived: cover type 2 (+1) against the rest (-1), columns min-max scaled to [0, 1]",
        loader=original_file_readers.covtype,
    ),
    DataSet(
        name="newsgroups",
        rows=19997,
        columns=1604992,
        task="classification",
        source="newsgroups/20_newsgroups.tar.xz (original)",
        note="derived: tf-idf of words and word pairs, sparse; comp, misc and rec groups (+1) "
        "against alt, sci, soc and talk (-1); the size of news20.binary but not that data set",
        loader=newsgroups,
    ),
    DataSet(
        name="mushroom",
        rows=5644,
        columns=99,
        task="classification",
        source="mushroom/agaricus-lepiota.data.gz (UCI)",
        note="derived: rows with a missing value dropped, one-hot, a constant column; poisonous "
        "(+1) against edible (-1)",
        loader=original_file_readers.mushroom,
    ),
    DataSet(
        name="boston",
        rows=506,
        columns=13,
        task="regression",
        source="boston/boston_house_prices.csv (scikit-learn 1.1)",
        note="response MEDV, the median house value in 1000 dollars",
        loader=original_file_readers.boston,
    ),
    DataSet(
        name="mfeat",
        rows=2000,
        columns=649,
        task="classification",
        source="mfeat/*.csv.gz (UCI)",
        note="six views of 2,000 digits side by side, ten classes",
        loader=original_file_readers.mfeat,
    ),
    DataSet(
        name="fate_breast",
        rows=569,
        columns=30,
        task="classification",
        source="breast/breast_hetero_{guest,host}.csv (FATE)",
        note="FATE's vertical example joined: features of guest and host carry their party's name",
        loader=original_file_readers.fate_breast,
    ),
)
