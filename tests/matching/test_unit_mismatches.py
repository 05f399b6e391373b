"""The same column in other units stops a run, from tokens alone, and tells nothing else."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import Federation, Preprocessing, Settings, Tile
from weft.crypto.secret_bytes import Secret
from weft.data.column_sizes_for_unit_check import column_sizes
from weft.errors import DataError, ProtocolError, WeftError
from weft.federation.unit_mismatches_party import UnitsParty, unit_tokens
from weft.matching.messages import UNITS, UnitsRequest
from weft.matching.unit_mismatches import (
    OtherUnits,
    UnitTokens,
    check_units,
    powers_apart,
)

SETTINGS = Settings(lam=0.1, loss="squared", cipher="pad")
SECRET = Secret(bytes(range(32)))


def tiles(factor=1000.0, rows=60, middle=70.0):
    """Two parties with rows of their own and three columns; the second weighs in other units."""
    found = {}
    for at, name in enumerate(("north", "south")):
        rng = np.random.default_rng(at)
        weight = rng.normal(middle, middle / 5, rows) * (factor if at else 1.0)
        block = np.column_stack([weight, rng.normal(50, 9, rows), rng.normal(size=rows)])
        ids = [f"{name[0]}{row}" for row in range(rows)]
        found[name] = (Tile.make(ids, ["weight", "age", "x"], block, rng.normal(size=rows)),)
    return found


def assembled(held, *, record=False, **how):
    federation = Federation(held, Preprocessing(**how), record=record)
    return federation, federation.assemble(SETTINGS)[1]


def test_a_column_in_other_units_never_trains_silently():
    with pytest.raises(DataError, match=r"1 column\(s\) of south are about 1000 times") as caught:
        assembled(tiles())
    said = str(caught.value)
    assert "north: in other units: 'weight' (median 7" in said
    assert "'age'" not in said
    assert caught.value.told == OtherUnits.TOLD
    assert not any(name in OtherUnits.TOLD for name in ("north", "south", "weight", "1000"))
    assert assembled(tiles(), confirmed=("units",))[1].n_features == 3
    assert assembled(tiles(factor=1.0))[1].n_features == 3


def test_other_samples_are_no_other_units():
    """Twice or five times as large is no power of ten."""
    for factor in (2.0, 5.0):
        assert assembled(tiles(factor=factor))[1].n_features == 3


def test_sizes_are_quartiles_as_numpy_finds_them_zeros_and_blank_cells_aside():
    rng = np.random.default_rng(5)
    for rows in range(20, 60):
        block = rng.normal(size=(rows, 3)).round(1 + rows % 4)
        block[rng.random(rows) < 0.1, 1] = np.nan
        tile = Tile.make([str(row) for row in range(rows)], ["a", "b", "c"], block, None)
        sizes = column_sizes([tile], 10)
        for name, column in zip("abc", block.T, strict=True):
            values = np.abs(column[~np.isnan(column) & (column != 0)])
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
            assert sizes[name] == (middle, high - low)


SIZES = st.tuples(st.floats(1e-5, 1e5), st.floats(1e-5, 1e5))


@given(SIZES, st.integers(-6, 6), st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_what_is_found_is_near_a_power_of_ten(size, power, median, spread):
    """Held against logarithms: within a sixth always, beyond a third never."""
    other = (size[0] * 10 ** (power + median), size[1] * 10 ** (power + spread))
    found = powers_apart(size, other)
    assert powers_apart(other, size) == -found
    if max(abs(median), abs(spread)) < 1 / 6 - 1e-9:
        assert found == power
    if max(abs(median), abs(spread)) > 1 / 3 + 1e-9:
        assert found != power or power == 0


@given(SIZES, SIZES)
def test_tokens_find_what_the_sizes_themselves_would(one, other):
    told = {
        name: unit_tokens(["a", "b"], [size, None], SECRET, name)[0]
        for name, size in (("north", one), ("south", other))
    }
    power = powers_apart(one, other)
    if not power:
        check_units(told, {"north": 2, "south": 2})
        return
    with pytest.raises(OtherUnits) as caught:
        check_units(told, {"north": 2, "south": 2})
    assert caught.value.powers == [power]
    assert [len(places) for places in caught.value.places.values()] == [1, 1]


def told_units(held):
    """What the coordinator gets about units: per party, both lists of tokens."""
    seen = []
    with contextlib.suppress(DataError):
        assembled(held, record=seen.append)
    everything = repr([(one.message, one.reply) for one in seen])
    assert "weight" not in everything
    return {
        one.party: [one.reply[f"units.{kind}"].tolist() for kind in ("here", "elsewhere")]
        for one in seen
        if one.phase == "match.view"
    }


def test_the_coordinator_gets_hashes_that_say_nothing_but_equal():
    first, again = told_units(tiles()), told_units(tiles())
    for party, (here, elsewhere) in first.items():
        assert (len(here), len(elsewhere)) == (3 * 4, 3 * 48)
        # All different, and of no other run.
        assert len({*here, *elsewhere}) == 3 * 52
        assert not {*here, *elsewhere} & {*again[party][0], *again[party][1]}
    # A column of one value looks like the others: as many hashes, which meet none.
    held = tiles()
    held["south"][0].block[:, :] = 7.0
    flat = told_units(held)
    assert [len(part) for part in flat["south"]] == [3 * 4, 3 * 48]
    assert not {*flat["south"][0], *flat["south"][1]} & {*flat["north"][0], *flat["north"][1]}


def units_of(tile, least):
    """What a party tells of its shared columns under a known secret."""
    keyring = SimpleNamespace(bound_secret=lambda purpose: SECRET.derive(purpose, b""))
    view = SimpleNamespace(tile_columns=[np.arange(3)], n_shared_columns=3)
    told = UnitsParty("north", [tile], keyring, least).tell(view, [tile.features])
    return told.here.tolist(), told.elsewhere.tolist()


def test_a_party_tells_nothing_of_columns_with_fewer_values_than_min_batch():
    one, other = (tiles(middle=middle)["north"][0] for middle in (70.0, 3.0))
    assert units_of(one, 60) != units_of(other, 60)
    assert units_of(one, 61) == units_of(other, 61)
    # Blank cells do not count, and twenty values are the least under any terms.
    for tile in (one, other):
        tile.block[19:, 0] = np.nan
    assert units_of(one, 1) == units_of(other, 1)


def test_columns_are_named_to_the_owner_alone_and_once():
    federation, _ = assembled(tiles(factor=1.0))
    north, south = federation.parties["north"], federation.parties["south"]
    with pytest.raises(WeftError, match="places"):
        north.on(UNITS, UnitsRequest(places=np.array([3])))
    with pytest.raises(DataError, match="median") as caught:
        south.on(UNITS, UnitsRequest(places=np.array([0])))
    assert caught.value.told == "its log names the columns"
    with pytest.raises(ProtocolError, match="once"):
        south.on(UNITS, UnitsRequest(places=np.array([0])))


def test_tokens_that_do_not_fit_are_refused():
    whole, _ = unit_tokens(["a"], [(1.0, 1.0)], SECRET, "north")
    short = UnitTokens(here=whole.here, elsewhere=whole.elsewhere[1:])
    for wrong in (None, short):
        with pytest.raises(ProtocolError, match="party south sent"):
            check_units({"north": whole, "south": wrong}, {"north": 1, "south": 1})
