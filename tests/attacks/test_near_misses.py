"""What comparing units, and ids without what they begin with, could be made to tell."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from weft import Federation, Settings, Tile
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.unit_mismatches_party import UnitsParty, unit_tokens
from weft.matching.party import MatchingParty
from weft.matching.tokens import tokens_of
from weft.matching.two_spellings import PrefixedIds, TwoWritings, check_prefixes
from weft.matching.unit_mismatches import OtherUnits, UnitTokens, check_units, places

NAMES = ("north", "south", "west")
SETTINGS = Settings(lam=0.1, loss="squared", cipher="pad")
SECRET = Secret(bytes(range(32)))
#: Thirds of powers of ten, from a thousandth to a million.
STEPS = range(-9, 18)


def tiles(rows=60, south=1.0, values=None):
    """All hold the same samples and an age; south's has other units and blank cells."""
    rng, found = np.random.default_rng(0), {}
    for at, name in enumerate(NAMES):
        age = rng.normal(50, 9, rows) * (south if name == "south" else 1.0)
        if name == "south":
            age[rows if values is None else values :] = np.nan
        block = np.column_stack([age, rng.normal(size=rows)])
        labels = np.arange(rows) % 2 if at < 2 else None
        found[name] = (Tile.make([f"p{i}" for i in range(rows)], ["age", f"x{at}"], block, labels),)
    return found


# ── a submitter ───────────────────────────────────────────────────────────────────────────


def sizes_of(tile, least):
    """What a party tells of the first column of a tile, as tokens."""
    keyring = SimpleNamespace(bound_secret=lambda purpose: SECRET.derive(purpose, b""))
    view = SimpleNamespace(tile_columns=[np.array([0, -1])], n_shared_columns=1)
    told = UnitsParty("south", [tile], keyring, least).tell(view, [tile.features])
    return told.here.tolist()


@pytest.mark.parametrize("least", [45, 46])
def test_blank_cells_that_a_study_counts_as_zero_are_no_values(least):
    """Before, they moved the median, and a column of 45 values passed for one of 60."""
    (blank,) = tiles(values=45)["south"]
    filled = Tile.make(
        blank.ids.tolist(), blank.features.tolist(), np.nan_to_num(blank.block), None
    )
    assert sizes_of(blank, least) == sizes_of(filled, least)
    nothing = unit_tokens(["age"], [None], SECRET.derive("weft units", b""), "south")[0]
    assert (sizes_of(filled, least) == nothing.here.tolist()) == (least > 45)


def held_by(count, common, rows=500):
    """North's ids and south's, of which some would meet without north's letters."""
    north, bare = np.arange(rows), np.arange(rows) + 10_000
    south = np.concatenate([bare[:common], np.arange(count - common) + 20_000])
    columns = (np.array([1]), np.array([2]))
    none = np.zeros(0, np.uint64)
    return [
        PrefixedIds(north.astype(np.uint64), north.astype(np.uint64), bare.astype(np.uint64),
                    columns[0].astype(np.uint64)),
        PrefixedIds(south.astype(np.uint64), south.astype(np.uint64), none,
                    columns[1].astype(np.uint64)),
    ]  # fmt: skip


def said_of(common, least=10):
    try:
        check_prefixes(["north", "south"], held_by(500, common), separate=False, least=least)
    except TwoWritings as doubt:
        return doubt.in_a_check(least)
    return ""


def test_a_check_does_not_tell_four_ids_that_would_meet_from_seven():
    """Before, more than one in a hundred of 500 stopped a run, so that six differed from five."""
    assert {said_of(common) for common in range(10)} == {""}
    # Forty-four and a small group: rounded down to tens, four differed from seven.
    assert said_of(48) == said_of(51)
    assert "at least 10 ids" in said_of(48)


# ── a party ───────────────────────────────────────────────────────────────────────────────


def guesses(name, secret):
    """Tokens of all sizes that a column may have, on the first grid."""
    contents = [f"{name}\0{0} {m} {s}".encode() for m, s in product(STEPS, STEPS)]
    return tokens_of(contents, secret, "units")


@pytest.mark.parametrize("longer", [True, False])
def test_a_party_cannot_try_out_sizes_beside_its_own(monkeypatch, longer):
    """Before, an honest coordinator found for it which of 729 guesses was another's, in one run.

    Either by more tokens than it has columns, or by guesses in the place of its own size times
    powers of ten.
    """
    tell = UnitsParty.tell

    def guessing(self, view, features):
        told = tell(self, view, features)
        if self._name != "north":
            return told
        tried = guesses("age", self._keyring.bound_secret("weft units"))
        if longer:
            rows = -(-len(tried) // 48)
            elsewhere = np.concatenate([told.elsewhere, np.resize(tried, 48 * rows)])
            here = np.arange(4 * rows).astype(np.uint64)
            return UnitTokens(here=np.concatenate([told.here, here]), elsewhere=elsewhere)
        # All that is about 50 and 10, of which one is south's.
        at = places((50.0, 12.0))[0]
        near = [
            f"age\0{0} {at[0] + m} {at[1] + s}".encode()
            for m, s in product(range(-3, 4), range(-3, 4))
        ][:48]
        tried = tokens_of(near, self._keyring.bound_secret("weft units"), "units")
        return UnitTokens(here=told.here, elsewhere=tried)

    monkeypatch.setattr(UnitsParty, "tell", guessing)
    federation = Federation(tiles(), Preprocessing())
    if longer:
        with pytest.raises(ProtocolError, match="party north sent tokens of sizes"):
            federation.assemble(SETTINGS)
    else:
        assert federation.assemble(SETTINGS)[1].n_features == 4


@pytest.mark.parametrize("guess", ["again and again", "more than it has rows"])
def test_a_party_cannot_have_guessed_ids_counted_as_many(monkeypatch, guess):
    """Before, one id of south was told from one that it lacks as thirty that would meet."""
    tokens = MatchingParty._tokens

    def guessing(self, message):
        reply = tokens(self, message)
        if self._name == "north":
            secret = self._keyring.bound_secret("weft tokens")
            tried = [b"s7"] * 30 if guess == "again and again" else [b"%d" % i for i in range(31)]
            reply.bare = np.sort(tokens_of(tried, secret, "rows"))
        return reply

    monkeypatch.setattr(MatchingParty, "_tokens", guessing)
    held = {
        name: (Tile.make([f"{name[0]}{i}" for i in range(30)], [name], np.ones((30, 1)), y),)
        for name, y in (("north", np.arange(30.0)), ("south", np.arange(30.0)))
    }
    with pytest.raises(ProtocolError, match="party north sent ids without"):
        Federation(held, Preprocessing(confirm_separate_ids=True)).assemble(SETTINGS)


# ── what is left ──────────────────────────────────────────────────────────────────────────


def test_what_is_told_changes_at_a_power_of_ten():
    """Ninety-seven and a small group of two, or of five."""
    assert said_of(99) != said_of(102)
    assert (said_of(9), "at least 10 ids" in said_of(12)) == ("", True)


def apart(mine, theirs):
    """Which power of ten a check tells, 0 for none."""
    told = {
        name: unit_tokens(["age"], [size], SECRET, name)[0]
        for name, size in (("north", mine), ("south", theirs))
    }
    try:
        check_units(told, {"north": 1, "south": 1})
    except OtherUnits as found:
        return found.powers[0]
    return 0


def searched(theirs):
    """What a party finds of another's size by checks with other cells in its own file.

    Every answer leaves the sizes that would have given it.
    """
    near = [(m / 6, s / 6) for m in range(-6, 25) for s in range(-6, 25)]
    sizes = {(10 ** (m + 1 / 12), 10 ** (s + 1 / 12)) for m, s in near}
    asked = 0
    # One size of its own stands for all that differ from it by powers of ten.
    for m, s in product(range(6), range(-12, 7)):
        mine = (10 ** (m / 6 + 1 / 12 - 3), 10 ** (m / 6 + s / 6 + 1 / 12 - 3))
        answer, asked = apart(mine, theirs), asked + 1
        sizes = {size for size in sizes if by_places(mine, size) == answer}
    return sizes, asked


def by_places(mine, theirs):
    for one, other in zip(places(mine), places(theirs), strict=True):
        median, spread = other[0] - one[0], other[1] - one[1]
        if median == spread and median % 3 == 0 and 0 < abs(median) <= 18:
            return median // 3
    return 0


def test_checks_with_other_files_give_a_size_to_within_a_half_and_no_nearer():
    """A party that may ask again and again needs no conspirator; 114 checks, fewer if it thinks."""
    theirs = (50.0, 12.0)
    sizes, asked = searched(theirs)
    assert asked == 114
    assert sizes
    for median, spread in sizes:
        assert 1 / 1.5 < median / theirs[0] < 1.5
        assert 1 / 1.5 < spread / theirs[1] < 1.5
    # Another size in the same sixths of a power of ten is never told from it.
    assert places(theirs) == places((60.0, 11.0))


def test_a_party_and_the_coordinator_try_out_sizes_of_a_column_that_nobody_shares():
    """They have the key, and a coordinator may say that a column is shared."""
    (tile,) = tiles()["south"]
    # The coordinator's word: the first column is shared. Nothing confirms it before the answer.
    told = set(sizes_of(tile, 10))
    secret = SECRET.derive("weft units", b"")
    tried = dict(zip(guesses("age", secret).tolist(), product(STEPS, STEPS), strict=True))
    (found,) = [tried[token] for token in told & tried.keys()]
    median = float(np.median(np.abs(tile.block[:, 0])))
    assert 10 ** (found[0] / 3) <= median < 10 ** ((found[0] + 1) / 3)
