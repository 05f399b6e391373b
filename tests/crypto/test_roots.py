"""The root over all nonces: everybody finds the same, and nobody's nonce can be left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.crypto.primitives.hash_tree import HASH, root_of, ways
from weft.errors import ProtocolError

NONCES = st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=40)


@given(NONCES)
def test_everybody_finds_the_same_root(nonces):
    found = {
        root_of(n, i, way) for i, (n, way) in enumerate(zip(nonces, ways(nonces), strict=True))
    }
    assert len(found) == 1


@given(NONCES, st.data())
def test_another_nonce_anywhere_is_another_root(nonces, data):
    place = data.draw(st.integers(0, len(nonces) - 1))
    changed = [*nonces[:place], bytes(16), *nonces[place + 1 :]]
    if changed[place] == nonces[place]:
        return
    roots = [root_of(each[0], 0, ways(each)[0]) for each in (nonces, changed)]
    assert roots[0] != roots[1]
    # Not even with the hashes of the other run.
    assert root_of(changed[place], place, ways(nonces)[place]) != roots[0]


@pytest.mark.parametrize("way", [None, "text", b"short", bytes(HASH + 1)])
def test_what_is_no_way_is_refused(way):
    with pytest.raises(ProtocolError, match="'way'"):
        root_of(bytes(16), 0, way)
