"""Envelopes and replies: the same content back, and one sentence about anything else."""

from __future__ import annotations

import struct
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.errors import ProtocolError
from weft.network.envelope_bytes import (
    Damaged,
    End,
    Ended,
    Failed,
    Garbled,
    Hello,
    Ping,
    Pong,
    Welcome,
    Work,
    Worked,
    decode_envelope,
    decode_reply,
    encode,
)

RUNS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
NUMBERS = st.integers(0, 2**53 - 1)
LISTS = st.lists(NUMBERS, max_size=3)
PARTS = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9)), max_size=3)
ENVELOPES = st.one_of(
    st.builds(Hello, RUNS, st.binary(max_size=9), st.text(max_size=9)),
    st.builds(Work, RUNS, NUMBERS, NUMBERS, NUMBERS, PARTS),
    st.builds(Ping, RUNS),
    st.builds(End, RUNS, st.booleans(), NUMBERS),
)
REPLIES = st.one_of(
    st.builds(Welcome, st.binary(max_size=9), st.text(max_size=9)),
    st.builds(
        Worked,
        NUMBERS,
        st.lists(st.binary(max_size=9), max_size=3),
        st.lists(st.floats(allow_nan=False), max_size=3),
        LISTS,
    ),
    st.builds(Failed, st.sampled_from(["refused", "failed"]), st.text(max_size=9)),
    st.builds(Garbled, st.text(max_size=9)),
    st.builds(Pong, st.booleans(), st.text(max_size=9)),
    st.builds(Ended, LISTS),
)
#: Content that msgspec may have to read although nobody wrote it here.
CONTENTS = st.recursive(
    st.one_of(st.none(), st.integers(-9, 2**60), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["type", "run", "number", "parts"]), inner, max_size=4),
    ),
    max_leaves=8,
)


def sealed(version, body):
    """Bytes with a right checksum, as another version of Weft may send them."""
    check = crc32(body, crc32(struct.pack("<4sHI", b"WEFT", version, 0)))
    return struct.pack("<4sHI", b"WEFT", version, check) + body


@examples(50)
@given(ENVELOPES)
def test_every_envelope_comes_back_as_it_was(envelope):
    assert decode_envelope(encode(envelope)) == envelope


@examples(50)
@given(REPLIES)
def test_every_reply_comes_back_as_it_was(reply):
    assert decode_reply(encode(reply)) == reply


@examples(50)
@given(st.binary(max_size=60), st.booleans())
def test_random_bytes_are_damage_or_cannot_be_read(junk, framed):
    packed = sealed(3, junk) if framed else junk
    for decode in (decode_envelope, decode_reply):
        with pytest.raises(ProtocolError) as caught:
            decode(packed)
        assert framed != isinstance(caught.value, Damaged)
        assert "\n" not in str(caught.value)


@examples(50)
@given(CONTENTS)
def test_content_that_is_not_of_the_protocol_is_refused_in_a_sentence(content):
    packed = sealed(3, msgspec.msgpack.encode(content))
    for decode in (decode_envelope, decode_reply):
        with pytest.raises(ProtocolError, match="cannot be read"):
            decode(packed)


@examples(50)
@given(st.one_of(ENVELOPES, REPLIES), st.data())
def test_no_flipped_bit_and_no_cut_goes_unnoticed(content, data):
    packed = encode(content)
    bit = data.draw(st.integers(0, 8 * len(packed) - 1))
    changed = bytearray(packed)
    changed[bit // 8] ^= 1 << bit % 8
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    for decode in (decode_envelope, decode_reply):
        for damaged in (bytes(changed), cut):
            with pytest.raises(Damaged):
                decode(damaged)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_version_is_named_and_not_taken_for_damage(version):
    named = rf"version {version} .* install the same version"
    with pytest.raises(ProtocolError, match=named) as caught:
        decode_envelope(sealed(version, b"whatever it is"))
    assert not isinstance(caught.value, Damaged)


@pytest.mark.parametrize("run", ["", "../up", "a/b", ".hidden", "a\n", "x" * 65, "a b"])
def test_a_run_is_named_so_that_its_folder_stays_where_it_belongs(run):
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode_envelope(encode(Ping(run)))
