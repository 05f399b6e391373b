"""What crosses the channel: no names, no labels, no foreign slots, nothing readable."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from weft.algorithms.settings import Settings
from weft.crypto import cipher
from weft.crypto.cipher import Cipher, PlainAdder
from weft.data import Tile
from weft.federation import Federation, Preparation

PREPARATION = Preparation(intercept=True, scaling="standard", unit_rows=True)
PAYLOADS = ("z", "alpha", "v")
LOCALS = ("safe", "practical", "theory")


#: Each is 3 modulo 4, so that a value and its scrambled form differ unless it is 0 mod 2^63.
KEYS = {"z": 0x9E3779B97F4A7C17, "v": 0xD1B54A32D192ED03, "alpha": 0xAEF17502108EF2DB}


class Scrambled(Cipher):
    """Multiplies by an odd secret modulo 2^64: additively homomorphic, and unreadable to code.

    No real cipher (one known value gives it away), but the coordinator's code gets integers
    that mean nothing, so a run that ends with the same bits cannot have read any.
    """

    name = "blind"  # as long as "plain": settings travel, and their bytes are counted

    def encrypt(self, kind, slots, values):
        return (values.view(np.uint64) * np.uint64(KEYS[kind])).view(np.int64)

    def decrypt(self, kind, slots, payload):
        inverse = np.uint64(pow(KEYS[kind], -1, 2**64))
        return (np.ascontiguousarray(payload).view(np.uint64) * inverse).view(np.int64)


@pytest.fixture
def blind(monkeypatch):
    monkeypatch.setitem(cipher.CIPHERS, "blind", (Scrambled, PlainAdder))
    return "blind"


def both_ways(trained):
    """(direction, phase, party, field, value) of everything that crossed the channel."""
    for entry in trained.channel.transcript:
        for direction, message in (("down", entry.message), ("up", entry.reply)):
            for field, value in message.items():
                yield direction, entry.phase, entry.party, field, value


def texts_in(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes):
        return [value.decode("latin-1")]
    if isinstance(value, np.ndarray):
        # Names could also hide in the raw bytes of an array.
        return [
            value.tobytes().decode("latin-1"),
            *(str(v) for v in value.flat if isinstance(v, str)),
        ]
    return []


@pytest.mark.parametrize("participation", ["everyone", 0.5])
@pytest.mark.parametrize("local", LOCALS)
def test_no_message_carries_an_id_a_feature_name_or_the_labels_in_the_clear(
    patchwork, quick, local, participation
):
    tiles = patchwork(unlabelled=("east",))
    settings = quick(local=local, participation=participation, iterations=8)
    trained = Federation(tiles, PREPARATION, record=True).train(settings)
    names = {str(n) for held in tiles.values() for t in held for n in (*t.ids, *t.features)}
    vectors = []
    for (held,) in tiles.values():
        if held.labels is not None:
            classes = held.labels.astype(float)
            vectors += [classes, 2 * classes - 1]
    seen = 0
    for direction, phase, party, field, value in both_ways(trained):
        seen += 1
        where = f"{direction} {phase} {party} {field}"
        for text in texts_in(value):
            assert not any(name in text for name in names), where
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size > 4:
            flat = np.sort(value.astype(float).ravel())
            for labels in vectors:
                if flat.size == labels.size and field != "labelled":
                    assert not np.array_equal(flat, np.sort(labels)), where
    assert seen > 100


def tokens(tiles, seed, field):
    settings = Settings(lam=1.0, seed=seed)
    federation = Federation(tiles, record=True)
    channel, _, _ = federation.assemble(settings)
    return {e.party: e.reply[field] for e in channel.transcript if e.phase == "match.tokens"}


def test_tokens_agree_between_parties_and_change_with_the_secret(patchwork):
    tiles = patchwork()
    for field, of in (("rows", lambda t: t.ids), ("columns", lambda t: t.features)):
        here, there = tokens(tiles, 1, field), tokens(tiles, 2, field)
        by_name = {}
        for party, found in here.items():
            for name, token in zip(of(tiles[party][0]), found.tolist(), strict=True):
                assert by_name.setdefault(name, token) == token
        assert len(set(by_name.values())) == len(by_name)
        assert not set(by_name.values()) & {t for v in there.values() for t in v.tolist()}


def test_label_tokens_do_not_show_which_samples_have_equal_labels(patchwork):
    tiles = patchwork()
    for party, found in tokens(tiles, 1, "labels").items():
        assert len(np.unique(found)) == tiles[party][0].n


def test_a_sample_and_a_feature_of_the_same_name_have_different_tokens():
    tiles = {"a": (Tile.make(["x", "y"], ["x", "y"], np.eye(2), [0, 1]),)}
    rows, columns = (tokens(tiles, 0, field)["a"] for field in ("rows", "columns"))
    assert not set(rows.tolist()) & set(columns.tolist())


@pytest.mark.parametrize("participation", ["everyone", 0.5])
@pytest.mark.parametrize("local", LOCALS)
def test_no_party_sends_or_gets_a_slot_outside_its_own_rows_and_columns(
    patchwork, quick, local, participation
):
    tiles = patchwork(unlabelled=("east",))
    settings = quick(local=local, participation=participation, iterations=12)
    federation = Federation(tiles, PREPARATION, record=True)
    trained = federation.train(settings)
    for entry in trained.channel.transcript:
        seat = federation.parties[entry.party].seat
        shared = {"z": seat.n_shared_rows, "alpha": seat.n_shared_rows, "v": seat.n_shared_columns}
        for message in (entry.message, entry.reply):
            for kind in PAYLOADS:
                if kind not in message:
                    continue
                assert len(message[kind]) <= shared[kind], (entry.phase, entry.party, kind)
                slots = message.get(f"{kind}.slots")
                if slots is not None:
                    assert len(slots) == len(message[kind])
                    assert len(np.unique(slots)) == len(slots)
                    assert ((slots >= 0) & (slots < shared[kind])).all()


def test_inner_products_go_only_to_parties_that_compute_the_step(patchwork, quick):
    for local in LOCALS:
        tiles = patchwork(unlabelled=("east",))
        settings = quick(local=local, participation=0.75, iterations=20)
        federation = Federation(tiles, PREPARATION, record=True)
        transcript = federation.train(settings).channel.transcript
        assert any(e.phase == "hyfdca.weights" and e.party == "east" for e in transcript)
        assert not any(e.phase == "hyfdca.step" and e.party == "east" for e in transcript)
        losses = [e for e in transcript if e.phase == "certify.losses"]
        assert losses
        for entry in losses:
            counted = federation.parties[entry.party].seat.counted_rows
            shared = federation.parties[entry.party].seat.n_shared_rows
            assert len(entry.message.get("z", ())) == counted[:shared].sum()


@pytest.mark.parametrize("participation", ["everyone", 0.5])
@pytest.mark.parametrize("local", LOCALS)
def test_a_party_that_shares_nothing_sends_and_gets_only_scalars(
    patchwork, quick, local, participation
):
    rng = np.random.default_rng(5)
    island = Tile.make(
        [f"i{i}" for i in range(9)], ["u", "v"], rng.normal(size=(9, 2)), [0, 1] * 4 + [1]
    )
    tiles = {**patchwork(), "island": (island,)}
    how = Preparation(confirm_separate_ids=True, scaling="standard", unit_rows=True)
    settings = quick(local=local, participation=participation, iterations=10)
    trained = Federation(tiles, how, record=True).train(settings)
    for direction, phase, party, field, value in both_ways(trained):
        if party == "island" and not phase.startswith("match.") and isinstance(value, np.ndarray):
            allowed = field in ("send", "prefix")
            assert allowed or value.size == 0, (direction, phase, field)


def test_rows_only_data_needs_no_sums_over_samples(table, quick):
    whole = table()
    tiles = {
        name: (Tile.make(whole.ids[r], whole.features, whole.block[r], whole.labels[r]),)
        for name, r in (("a", slice(0, 20)), ("b", slice(20, 44)))
    }
    for local in LOCALS:
        trained = Federation(tiles, PREPARATION, record=True).train(
            quick(local=local, iterations=5)
        )
        for _, phase, _, field, _ in both_ways(trained):
            assert not phase.startswith("hyfdca") or field not in ("z", "alpha")
        phases = {entry.phase for entry in trained.channel.transcript}
        assert "hyfdca.weights" in phases
        assert not phases & {"hyfdca.step", "hyfdca.dual", "hyfdca.again"}


def without_seconds(history):
    timed = ("compute_seconds", "wall_seconds")
    return [{k: v for k, v in asdict(record).items() if k not in timed} for record in history]


@pytest.mark.parametrize("classes", [0, 2, 3], ids=["regression", "binary", "three classes"])
@pytest.mark.parametrize("participation", ["everyone", 0.5])
@pytest.mark.parametrize("local", LOCALS)
def test_a_coordinator_that_cannot_read_a_value_reaches_the_same_bits(
    patchwork, quick, blind, local, participation, classes
):
    tiles = patchwork(classes=classes, unlabelled=("east",))
    common = {
        "loss": "squared" if classes == 0 else "hinge",
        "local": local,
        "participation": participation,
        "iterations": 15,
        "certify_every": 3,
    }
    federation = Federation(tiles, PREPARATION, record=True)
    plain = federation.train(quick(**common))
    hidden = federation.train(quick(**common, cipher=blind))
    assert np.array_equal(plain.model.coef, hidden.model.coef)
    assert np.array_equal(plain.model.intercept, hidden.model.intercept)
    assert plain.model.certificate == hidden.model.certificate
    assert plain.result.certificate == hidden.result.certificate
    assert plain.result.certificate is not None
    assert without_seconds(plain.result.history) == without_seconds(hidden.result.history)
    # And every value that travelled was scrambled.
    pairs = zip(both_ways(plain), both_ways(hidden), strict=True)
    compared = 0
    for (*where, value), (*there, other) in pairs:
        assert where == there
        if where[3] in PAYLOADS and np.any(value):
            compared += 1
            assert (value[value != 0] != other[value != 0]).all(), where
    assert compared > 50


def test_the_same_seed_gives_the_same_bits_twice_and_another_seed_does_not(patchwork, quick):
    one, two, other = (
        Federation(patchwork(), PREPARATION).train(quick(seed=seed)).model for seed in (3, 3, 4)
    )
    assert np.array_equal(one.coef, two.coef)
    assert not np.array_equal(one.coef, other.coef)
