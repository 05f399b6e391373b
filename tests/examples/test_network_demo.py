"""The network's demo without its processes: the third party, the sockets, the comparison."""

from __future__ import annotations

import socket
from dataclasses import replace

import numpy as np
import psutil
import pytest

from weft.errors import DataError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.solvers.run_settings import Settings
from weft_examples.network_demo_data import breast_example, cut
from weft_examples.network_demo_results import figures_of, same
from weft_examples.open_ports_and_connections import is_loopback, look
from weft_papers.data.original_file_readers import fate_breast_tiles

SEEN = {
    "equal": True,
    "looks": 1,
    "processes": 1,
    "listening": 0,
    "connections": 0,
    "exchanges": 0,
    "missed": 0,
    "away_iterations": 0,
    "seconds": {},
    "sealed": None,
}


@pytest.fixture(scope="module", params=["fate", "scikit-learn"])
def example(request):
    """From FATE's files where they are, and always from what scikit-learn brings along."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "fate":
            patch.setenv("WEFT_DATA", str(request.getfixturevalue("data_dir")))
        else:
            patch.setenv("WEFT_DATA", "nowhere")
        found = breast_example()
    assert ("FATE's two-party" in found.source) == (request.param == "fate")
    return found


def ids(example, party):
    return set(example.tiles[party][0].ids.tolist())


def features(example, party):
    return set(example.tiles[party][0].features.tolist())


def test_the_third_party_shares_samples_and_features_with_both_and_has_others(example):
    assert ids(example, "hospital") == ids(example, "laboratory")
    shared = ids(example, "clinic") & ids(example, "hospital")
    assert min(len(shared), len(ids(example, "clinic") - shared)) > 50
    assert features(example, "clinic") == features(example, "hospital") | features(
        example, "laboratory"
    )
    assert not features(example, "hospital") & features(example, "laboratory")
    assert [name for name, (tile,) in example.tiles.items() if tile.labels is not None] == [
        "hospital",
        "clinic",
    ]


def test_the_parties_hold_the_pooled_table_and_nothing_that_is_held_out(example):
    train, test = example.train, example.test
    held = set().union(*(ids(example, party) for party in example.tiles))
    assert held == set(train.ids.tolist())
    assert not held & set(test.ids.tolist())
    assert (train.n + test.n, train.m) == (569, 30)
    rows = {sample: n for n, sample in enumerate(train.ids.tolist())}
    columns = {name: n for n, name in enumerate(train.features.tolist())}
    for (tile,) in example.tiles.values():
        place = np.ix_([rows[i] for i in tile.ids], [columns[f] for f in tile.features])
        np.testing.assert_array_equal(tile.block, train.block[place])
        if tile.labels is not None:
            np.testing.assert_array_equal(tile.labels, train.labels[place[0].ravel()])


def test_rows_of_the_two_parties_are_joined_by_their_ids(data_dir):
    pair = fate_breast_tiles(data_dir)
    backwards = np.arange(pair["host"].n)[::-1]
    one = cut(pair["guest"], pair["host"])
    other = cut(pair["guest"], pair["host"].rows(backwards))
    np.testing.assert_array_equal(one.train.block, other.train.block)


def test_a_guest_without_labels_is_refused(data_dir):
    pair = fate_breast_tiles(data_dir)
    with pytest.raises(DataError, match="has no labels"):
        cut(pair["host"], pair["guest"])


def test_liblinear_cannot_do_better_than_the_certificate_says(example):
    settings = Settings(loss="logistic", lam=1e-2, gap=1e-4, solver="auto")
    trained = Federation(example.tiles, Preprocessing(scaling="standard", intercept=True)).train(
        settings
    )
    figures = figures_of(example, trained.model, trained, **SEEN)
    assert figures.relative_difference <= figures.certified_gap <= 1e-4
    assert figures.relative_difference >= -1e-9
    assert abs(figures.accuracy - figures.accuracy_central) <= 0.01
    assert figures.loss == pytest.approx(trained.result.certificate.primal[0], rel=1e-9)


def test_models_that_differ_in_one_bit_are_not_the_same(example):
    settings = Settings(loss="logistic", lam=1e-1, gap=1e-2, solver="auto")
    model = Federation(example.tiles, Preprocessing()).train(settings).model
    assert same(model, replace(model))
    for field in ("coef", "intercept"):
        nudged = getattr(model, field).copy()
        nudged.flat[0] = np.nextafter(nudged.flat[0], np.inf)
        assert not same(model, replace(model, **{field: nudged}))
    negative = replace(model, intercept=np.array([-0.0]))
    assert not same(negative, replace(model, intercept=np.array([0.0])))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_addresses_that_never_leave_the_machine(address):
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7", "::ffff:192.0.2.7", "fe80::1"])
def test_addresses_that_others_can_reach(address):
    assert not is_loopback(address)


def test_sockets_are_seen_on_both_sides_of_a_connection():
    own = psutil.Process()
    before = look([own])
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        seen = look([own])
    assert len(seen.listening) == len(before.listening) + 1
    assert len(seen.connected) >= len(before.connected) + 1
    assert "127.0.0.1" in {*seen.listening} & {*seen.connected}
