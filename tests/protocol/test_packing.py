"""Messages as bytes: the same values back, and the same bits from a whole run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from covering import changing, cover
from weft.data import SPLITS, load
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.protocol import pack, unpack
from weft.solvers.run_settings import Settings

ARRAYS = hnp.arrays(
    st.sampled_from([np.int32, np.int64, np.uint64, np.float64, np.bool_, np.dtype("<U3")]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
VALUES = st.one_of(
    ARRAYS, st.binary(), st.text(), st.booleans(), st.floats(), st.integers(-(2**63), 2**63)
)


@settings(max_examples=8 if changing() else 100)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_every_message_comes_back_as_it_was(message):
    back = unpack(pack(message))
    assert list(back) == list(message)
    for name, value in message.items():
        if isinstance(value, np.ndarray):
            assert back[name].dtype == value.dtype
            np.testing.assert_array_equal(back[name], value)
            assert back[name].flags.writeable
        else:
            np.testing.assert_equal(back[name], value)
            assert type(back[name]) is type(value)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused(junk):
    for packed in (junk, b"WEFT1" + junk):
        with suppress(ProtocolError):
            assert isinstance(unpack(packed), dict)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_is_read_as_plain_values_or_refused(position, change):
    packed = bytearray(pack({"v": np.arange(6.0).reshape(2, 3), "iteration": 3, "name": "p1"}))
    packed[position % len(packed)] ^= change
    with suppress(ProtocolError):
        assert isinstance(unpack(bytes(packed)), dict)


def test_objects_do_not_travel():
    with pytest.raises(ProtocolError, match="cannot travel"):
        pack({"ids": np.array(["a", None], dtype=object)})


# Every family of solvers has such a test of its own.
@cover(
    ("participation", "local"),
    [(0.5, "practical")],
    others=product(["everyone", 0.5], ["safe", "practical", "theory"]),
)
def test_a_run_over_bytes_gives_the_same_bits(local, participation):
    table = load("digits")
    table = replace(table, ids=table.ids[:120], block=table.block[:120], labels=table.labels[:120])
    split = SPLITS["overlapping"](table, parties=4, seed=3)
    settings = Settings(
        lam=1e-2, local=local, iic=0.3, gap=None, iterations=5, participation=participation
    )
    how = Preprocessing(scaling="standard", unit_rows=True, intercept=True)
    runs = [Federation(split.parties, how, packed=packed).train(settings) for packed in (0, 1)]
    np.testing.assert_array_equal(runs[0].model.coef, runs[1].model.coef)
    assert runs[0].result.certificate == runs[1].result.certificate
    assert [r.primal for r in runs[0].result.history] == [r.primal for r in runs[1].result.history]
