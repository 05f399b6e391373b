"""Weights and offsets at parties without labels: the same bits, told to label holders only."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from weft import Tile
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.federation.weight_and_offset_letters.messages import (
    TAKE,
    TELL,
    Letters,
    TakeRequest,
    TellRequest,
)
from weft.guards.privacy_terms import OPEN
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import pack
from weft.solvers.run_settings import Settings

N = 60
rng = np.random.default_rng(8)
X = rng.normal(size=(N, 4))
TIME, WEIGHT = rng.uniform(0.2, 4.0, N), rng.uniform(0.5, 3.0, N)
Y = rng.poisson(TIME * np.exp(X @ [0.5, -0.3, 0.2, 0.4])).astype(float)
IDS = [f"s{i:02d}" for i in range(N)]
NORTH, SOUTH, FAR = slice(0, 20), slice(20, 40), slice(40, 60)
HOW = Preprocessing(
    intercept=True, exposure="time", weight="weight", confirmed=ONE_TABLE, confirm_separate_ids=True
)
SETTINGS = Settings(lam=0.05, loss="poisson", solver="lbfgs", gap=1e-5, penalize_intercept=False)
#: Guards as by default, but for groups that are too small here.
AGREED = msgspec.structs.replace(OPEN, min_batch=2)
ALONE = msgspec.structs.replace(AGREED, allow_told_columns=False)


def cut(*, at_labels=(), at_lab=("time", "weight"), other=None):
    """Three sites with labels, of which the lab knows the first two; who has time and weight."""
    beside = {"time": TIME, "weight": WEIGHT}

    def tile(rows, columns, names, labels=None, **changed):
        values = [X[rows][:, columns], *((beside | changed)[name][rows, None] for name in names)]
        features = [f"x{j}" for j in columns] + list(names)
        return (Tile.make(IDS[rows], features, np.hstack(values), labels),)

    known = slice(0, 40)
    tiles = {
        "north": tile(NORTH, [0, 1], at_labels, Y[NORTH]),
        "south": tile(SOUTH, [0, 1], at_labels, Y[SOUTH]),
        "far": tile(FAR, [0, 1, 2, 3], ("time", "weight"), Y[FAR]),
        "lab": tile(known, [2, 3], at_lab),
    }
    if other is not None:
        tiles["registry"] = tile(known, [], ("weight",), weight=other)
    return tiles


def train(tiles, terms=AGREED, **how):
    federation = Federation(tiles, HOW, terms=terms, **how)
    return federation, federation.train(SETTINGS)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A recorded run in which the lab tells what only it holds, and its ledgers."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger"))
    return *train(cut(), record=True, ledger=ledger), ledger


def test_models_are_the_same_bits_wherever_weights_and_exposures_are(told):
    _, trained, _ = told
    _, beside = train(cut(at_labels=("time", "weight"), at_lab=()), terms=ALONE)
    assert np.array_equal(trained.model.coef, beside.model.coef)
    assert trained.result.certificate == beside.result.certificate
    # One at the label holders, the other at the lab.
    _, mixed = train(cut(at_labels=("time",), at_lab=("weight",)))
    assert np.array_equal(mixed.model.coef, beside.model.coef)
    assert set(trained.model.features) == {"x0", "x1", "x2", "x3"}


def test_letters_go_to_label_holders_of_these_samples_and_nobody_else_reads_them(told):
    federation, trained, _ = told
    crossed = [e for e in trained.channel.transcript if e.phase in (TELL.name, TAKE.name)]
    assert len(crossed) == 2 * len(federation.parties)
    written = {e.party: e.reply["readers"].tolist() for e in crossed if e.phase == TELL.name}
    assert written == {"north": [], "south": [], "far": [], "lab": [0, 1]}
    brought = {e.party: e.message["writers"].tolist() for e in crossed if e.phase == TAKE.name}
    assert brought == {"north": [3], "south": [3], "far": [], "lab": []}
    # What crossed the coordinator's hands shows no value, in no form in which files have them.
    everything = b"".join(pack(e.message) + pack(e.reply) for e in trained.channel.transcript)
    for values in (TIME, WEIGHT, np.log(TIME)):
        assert not any(value.tobytes() in everything for value in values[:40])
    # Another party that gets hold of a letter does not open it, nor does it stand for another.
    (tell,) = (e.reply for e in crossed if e.phase == TELL.name and e.party == "lab")
    first = Letters(content=tell["letters.content"], lengths=tell["letters.lengths"]).cut()[0]
    for name in ("south", "far"):
        with pytest.raises(ProtocolError, match="was not written by party number 3"):
            federation.parties[name]._keyring.unlock(3, first, "values of samples")
    with pytest.raises(ProtocolError, match="was not written by party number 3"):
        federation.parties["north"]._keyring.unlock(3, first, "letter of a run")


def test_a_party_knows_values_of_its_own_samples_alone(told):
    federation, _, _ = told
    north, far = (federation.parties[name].data.tiles[0] for name in ("north", "far"))
    assert np.array_equal(north.weight, WEIGHT[NORTH])
    assert np.array_equal(north.offset, np.log(TIME[NORTH]))
    assert np.array_equal(far.weight, WEIGHT[FAR])
    assert federation.parties["lab"].data.tiles[0].weight is None


def test_ledgers_say_which_columns_were_told_of_how_many_samples(told):
    *_, ledger = told
    runs = {name: ledger.book(name).read().runs[-1] for name in ("lab", "north")}
    assert (runs["lab"].told, runs["lab"].told_samples) == (("time", "weight"), 40)
    assert runs["north"].told == ()


def test_no_submitter_has_one_column_after_the_other_told(told):
    """Whoever submits names what is a weight: x3 is none, and was not told before."""
    *_, ledger = told
    how = msgspec.structs.replace(HOW, exposure=None, offset="x3")
    careful = msgspec.structs.replace(AGREED, allow_exposure=False)
    other = Federation(cut(), how, terms=careful, ledger=ledger)
    with pytest.raises(WeftError, match=r"lab refuses to tell the values of column 'x3'.*earlier"):
        other.train(SETTINGS)
    assert other.parties["north"].data.tiles[0].offset is None
    assert all("x3" not in run.told for run in ledger.book("lab").read().runs)


def test_who_makes_up_labels_is_told_unless_somebody_has_them():
    """Admitted: nobody can know what another party's files hold."""
    made_up = (Tile.make(IDS[NORTH], ["x1"], X[NORTH, 1:2], np.ones(20)),)
    federation, _ = train({**cut(), "north": made_up})
    assert np.array_equal(federation.parties["north"].data.tiles[0].weight, WEIGHT[NORTH])
    with pytest.raises(WeftError, match="different labels"):
        train({**cut(), "other": made_up})


def test_nothing_is_told_twice_or_in_another_place(told):
    federation, trained, _ = told
    lab, north = federation.parties["lab"], federation.parties["north"]
    with pytest.raises(ProtocolError, match="has told weights and offsets"):
        lab.on(TELL, TellRequest())
    (brought,) = (
        e.message for e in trained.channel.transcript if e.phase == TAKE.name and e.party == "north"
    )
    letters = Letters(content=brought["letters.content"], lengths=brought["letters.lengths"])
    with pytest.raises(ProtocolError, match="has taken weights and offsets"):
        north.on(TAKE, TakeRequest(writers=brought["writers"], letters=letters))


def test_without_the_term_the_sentence_names_party_column_and_term():
    words = "north.*has labels, but no column 'time'.*allow_told_columns = true"
    with pytest.raises(WeftError, match=words):
        train(cut(), terms=ALONE)
    federation = Federation(cut(), HOW, terms=ALONE)
    with pytest.raises(WeftError):
        federation.train(SETTINGS)
    # A coordinator that asks nevertheless is refused by who holds the column.
    with pytest.raises(ConfigError, match="lab refuses to tell the values of column 'time'"):
        federation.parties["lab"].on(TELL, TellRequest())


def test_two_holders_that_differ_are_named_with_column_and_sample():
    other = WEIGHT.copy()
    other[3] += 0.5
    words = "north: two holders of column 'weight' have different values of sample s03;"
    with pytest.raises(WeftError, match=words):
        train(cut(other=other))
    own = cut(at_labels=("weight",))
    changed = own["north"][0].block.copy()
    changed[5, -1] *= 2
    own["north"] = (with_block(own["north"][0], changed),)
    with pytest.raises(WeftError, match=r"north: two holders of column 'weight'.*sample s05;"):
        train(own)


def with_block(tile, block):
    return Tile.make(tile.ids, tile.features, block, tile.labels)


def test_what_nobody_has_and_what_is_no_weight_is_said():
    with pytest.raises(WeftError, match=r"north.*no column 'weight'"):
        train(cut(at_labels=("time",), at_lab=()))
    tiles = cut()
    wrong = tiles["lab"][0].block.copy()
    wrong[7, -1] = -1.0
    tiles["lab"] = (with_block(tiles["lab"][0], wrong),)
    with pytest.raises(WeftError, match=r"party lab.*'weight' has values of zero or below"):
        train(tiles)


def test_an_own_file_with_labels_takes_them_from_another_own_file():
    tiles = cut(at_lab=())
    for name, rows in (("north", NORTH), ("south", SOUTH)):
        block = np.column_stack([TIME, WEIGHT])[rows]
        tiles[name] = (*tiles[name], Tile.make(IDS[rows], ["time", "weight"], block))
    _, trained = train(tiles, terms=ALONE)
    _, beside = train(cut(at_labels=("time", "weight"), at_lab=()), terms=ALONE)
    assert np.array_equal(trained.model.coef, beside.model.coef)
